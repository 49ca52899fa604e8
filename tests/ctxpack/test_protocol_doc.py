"""docs/protocol.md says what the library does: every block of JSON in it, every table, and the links of both pages."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from ctxpack import CODES, ContextPack, ContextPackDelta, ContextPackError, apply_delta, split_content


class Block(NamedTuple):
    """A fenced block: the words after its language, and its text without the last line feed."""

    about: dict[str, str]
    text: str


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    """The page."""
    return (root / "docs" / "protocol.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def blocks(page: str) -> list[Block]:
    """Its blocks of JSON, each of which says what it is."""
    found = [
        Block({word.partition("=")[0]: word.partition("=")[2] for word in about.split()}, text)
        for about, text in re.findall(r"^```json ?(.*)\n((?:.*\n)*?)```$", page, re.MULTILINE)
    ]
    return [Block(block.about, block.text.rstrip("\n")) for block in found]


@pytest.fixture(scope="module")
def texts(blocks: list[Block]) -> dict[str, str]:
    """The texts it names."""
    return {block.about["text"]: json.loads(block.text) for block in blocks if "text" in block.about}


def limit(block: Block) -> int:
    return int(block.about.get("limit", "512"))


def test_every_block_says_what_it_is(page: str, blocks: list[Block]) -> None:
    assert page.count("\n```json") == len(blocks)
    for block in blocks:
        assert {"text", "chunks", "digested", "pack", "delta"} & block.about.keys(), block


def test_chunks(blocks: list[Block], texts: dict[str, str]) -> None:
    shown = [block for block in blocks if "chunks" in block.about]
    assert len(shown) >= 2
    for block in shown:
        chunks = [chunk.decode() for chunk in split_content(texts[block.about["chunks"]], limit(block))]
        assert json.loads(block.text) == chunks


def test_digests(blocks: list[Block], texts: dict[str, str]) -> None:
    shown = [block for block in blocks if "digested" in block.about]
    assert shown
    for block in shown:
        digest = "sha256:" + hashlib.sha256(block.text.encode()).hexdigest()
        assert digest == ContextPack.from_content(texts[block.about["digested"]]).digest


def test_packs(blocks: list[Block], texts: dict[str, str]) -> None:
    shown = [block for block in blocks if block.about.get("pack")]
    assert len(shown) >= 4
    for block in shown:
        pack = ContextPack.from_content(texts[block.about["pack"]], limit(block))
        assert block.text == pack.to_bytes().decode()
        assert ContextPack.from_bytes(block.text.encode()) == pack


def test_deltas(blocks: list[Block], texts: dict[str, str]) -> None:
    shown = [block for block in blocks if block.about.get("delta")]
    assert shown
    for block in shown:
        base, target = (ContextPack.from_content(texts[name], limit(block)) for name in block.about["delta"].split(".."))
        assert block.text == ContextPackDelta.between(base, target).to_bytes().decode()
        assert apply_delta(base, ContextPackDelta.from_bytes(block.text.encode())).content == target.content


def test_refusals(blocks: list[Block], texts: dict[str, str]) -> None:
    base = ContextPack.from_content(texts["greek"], 8)
    shown = [block for block in blocks if "refused" in block.about]
    for block in shown:
        data = block.text.encode()
        with pytest.raises(ContextPackError) as refused:
            ContextPack.from_bytes(data) if "pack" in block.about else apply_delta(base, ContextPackDelta.from_bytes(data))
        assert refused.value.code == block.about["refused"]
    assert {block.about["refused"] for block in shown} == CODES.keys() - {"too_large"}  # that one the caller sets


def test_the_counting_by_hand(page: str, texts: dict[str, str]) -> None:
    pack = ContextPack.from_content(texts["greek"])
    assert f"{pack.byte_count - 3} + 3 = {pack.byte_count}" in page


def test_the_tables(page: str) -> None:
    assert dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|$", page, re.MULTILINE)) == CODES
    fields = re.findall(r"^\| `(\w+)` \| (?:integer|string|array of strings) \|", page, re.MULTILINE)
    pack, other = ContextPack(), ContextPack([b"a"])
    delta = ContextPackDelta.between(pack, other)
    assert fields == [*json.loads(pack.to_bytes()), *json.loads(delta.to_bytes())]


@pytest.mark.parametrize("name", ["protocol.md", "integration.md"])
def test_links_lead_somewhere(root: Path, name: str) -> None:
    text = (root / "docs" / name).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (root / "docs" / target).exists(), target
