from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path

import pytest

from ctxpack import ContextPack, ContextPackDelta, measure
from ctxpack.cli import main
from ctxpack.files import grow, turns_of
from ctxpack.minutes import minutes

SEED = {"raw": 114_652, "pack": 160_550, "delta": 24_454}
"""The seed's table. Its gzip row, 12,735, is of a text that repeats itself more than ours."""


def table(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, int]:
    assert main(["measure", "--json", *arguments]) == 0
    return {row["name"]: row["bytes"] for row in json.loads(capsys.readouterr().out)["rows"]}


def test_the_sample_has_the_shape_of_the_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    rows = table(capsys)
    for name, seed in SEED.items():
        assert abs(rows[name] - seed) < seed * 0.01, name
    assert rows["gzip"] < rows["delta"]
    if "dcz" in rows:
        assert rows["dcz"] < rows["gzip"] / 4


def test_the_rows_are_sums_of_what_is_sent(capsys: pytest.CaptureFixture[str]) -> None:
    texts = list(minutes())
    packs = [ContextPack.from_content(text) for text in texts]
    deltas = [ContextPackDelta.between(base, target) for base, target in pairwise(packs)]
    rows = table(capsys)
    assert rows["raw"] == sum(len(text.encode()) for text in texts)
    assert rows["pack"] == sum(len(pack.to_bytes()) for pack in packs)
    assert rows["delta"] == len(packs[0].to_bytes()) + sum(len(delta.to_bytes()) for delta in deltas)
    assert rows["gzip"] == sum(len(gzip.compress(text.encode(), 9)) for text in texts)


def test_the_table_for_people(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["measure"]) == 0
    text = capsys.readouterr().out
    assert "114,636" in text
    assert "+78.8%" in text
    monkeypatch.setattr(measure, "_zstd", lambda: None)
    assert main(["measure"]) == 0
    output = capsys.readouterr()
    assert "dcz" not in output.out
    assert "backports.zstd" in output.err


def test_the_sample_is_always_the_same_and_says_what_it_is() -> None:
    assert list(minutes()) == list(minutes())
    assert len(list(minutes())) == 40
    assert "invented" in next(minutes())


def test_folders_and_files_are_turns(tmp_path: Path) -> None:
    for number in (10, 9, 1):
        (tmp_path / f"turn{number}.txt").write_text(str(number))
    (tmp_path / ".hidden").write_text("no turn")
    (tmp_path / "folder").mkdir()
    assert list(turns_of([str(tmp_path)], 40)) == [b"1", b"9", b"10"]
    files = [str(tmp_path / "turn9.txt"), str(tmp_path / "turn1.txt")]
    assert list(turns_of(files, 40)) == [b"9", b"1"]


@pytest.mark.parametrize("text", [b"", b"a", b"a\n", b"a\nb", b"a\r\nb\n" * 7, b"line\n" * 100, b"\n" * 3])
def test_one_text_grows_to_its_full_length(text: bytes) -> None:
    turns = list(grow(text, 5))
    assert turns[-1] == text
    assert 1 <= len(turns) <= 5
    assert all(after.startswith(before) for before, after in pairwise(turns))
    assert all(turn.endswith(b"\n") for turn in turns[:-1])


def test_dcz_is_what_a_receiver_of_rfc_9842_decodes() -> None:
    zstd = pytest.importorskip("backports.zstd", reason="no zstd here")
    compress = measure.dcz_compressor()
    assert compress is not None
    base, body = b"some base text\n" * 1000, b"some base text\n" * 1000 + b"and more\n"
    frame = compress(body, base)
    assert zstd.decompress(frame, zstd_dict=zstd.ZstdDict(base, is_raw=True).as_prefix) == body
    assert len(frame) < 60
    assert frame[4] & 4  # RFC 8878 section 3.1.1.1.1: the content checksum flag
    assert zstd.decompress(compress(body, b"")) == body
    assert zstd.decompress(compress(b"", base)) == b""
