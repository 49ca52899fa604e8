"""docs/receivers/ctxpack.mjs, run by Node: it agrees with every vector, and with a server that sends deltas."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ctxpack import ContextPack, ContextPackDelta
from ctxpack.minutes import minutes

NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")

SEEN_OTHERWISE = {
    # JSON.parse keeps the last of two equal keys, and cannot tell 774.0 from 774; the text gives both away.
    "duplicate_key": "not_canonical",
    "twice_the_same_key": "not_canonical",
    "total_bytes_float": "not_canonical",
    "keeps_a_googol": "not_canonical",
}


def run(root: Path, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what the receiver made of each case: `value`, or the code it was `refused` with."""
    driver = Path(__file__).with_name("receiver_driver.mjs")
    receiver = root / "docs" / "receivers" / "ctxpack.mjs"
    command = [str(NODE), str(driver), str(receiver)]
    done = subprocess.run(command, input=json.dumps(cases), capture_output=True, encoding="utf-8", timeout=60)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.strip("\n").split("\n")]


def test_splits_packs_and_digests(vectors: dict[str, list[dict[str, Any]]], root: Path) -> None:
    cases = vectors["pack"]
    results = run(root, [{"act": "split", "text": case["text"], "limit": case["max_chunk_bytes"]} for case in cases])
    for case, result in zip(cases, results, strict=True):
        assert result == {"value": case["chunk_sizes"]}, case["name"]
    wire = [case for case in cases if case["max_chunk_bytes"] == 512]
    for case, result in zip(wire, run(root, [{"act": "pack", "text": case["text"]} for case in wire]), strict=True):
        assert result == {"value": case["digest"]}, case["name"]
    packs = [case for case in cases if "pack" in case]
    for case, result in zip(packs, run(root, [{"act": "read", "input": case["pack"]} for case in packs]), strict=True):
        assert result == {"value": case["text"]}, case["name"]


@pytest.mark.parametrize("held", ["pack", "text"])
def test_applies_deltas(vectors: dict[str, list[dict[str, Any]]], root: Path, held: str) -> None:
    cases = vectors["delta"]
    if held == "pack":
        asked = [{"act": "apply", "base": case["base"], "input": case["delta"]} for case in cases]
    else:  # the pack of a text it holds, the receiver makes itself
        asked = [{"act": "applyText", "text": case["base_text"], "input": case["delta"]} for case in cases]
    for case, result in zip(cases, run(root, asked), strict=True):
        assert result == {"value": case["target_text"]}, case["name"]


def test_refuses(vectors: dict[str, list[dict[str, Any]]], root: Path) -> None:
    accepted = {case[key] for case in vectors["delta"] for key in ("base", "target", "delta")}
    cases = [case for case in vectors["refused"] if case["input"] not in accepted]  # why: test_vectors.py
    empty = ContextPack().to_bytes().decode()
    acts = {"pack": "read", "delta": "apply", "apply": "apply"}
    asked = [{"act": acts[case["object"]], "base": case.get("base", empty), "input": case["input"]} for case in cases]
    for case, result in zip(cases, run(root, asked), strict=True):
        assert result == {"refused": SEEN_OTHERWISE.get(case["name"], case["code"])}, case["name"]


def test_bytes_that_are_no_text_are_refused(root: Path) -> None:
    assert run(root, [{"act": "raw", "hex": "80" * 2000}]) == [{"refused": "invalid_utf8"}]


class Sender(BaseHTTPRequestHandler):
    """Sends turn n of the minutes at /n, as the gateway would: what the client's fields allow."""

    turns: ClassVar[list[str]] = list(minutes())
    seen: ClassVar[list[tuple[str, str, str]]] = []

    def do_GET(self) -> None:
        number = int(self.path.rpartition("/")[2])
        target = ContextPack.from_content(self.turns[number])
        base = self.headers["Ctxpack-Base"]
        body, coding = target.content_bytes, ""
        if self.path.startswith("/pack/"):
            body, coding = target.to_bytes(), "ctxpack.pack.v1"
        elif self.path.startswith("/delta/"):
            known = ContextPack.from_content(self.turns[number - 1])
            assert base == known.digest
            body, coding = ContextPackDelta.between(known, target).to_bytes(), "ctxpack.delta.v1"
        if "gzip" in self.path:
            body, coding = gzip.compress(body), f"{coding}, gzip".lstrip(", ")
        self.seen.append((base, self.headers["Ctxpack-Accept"], coding))
        self.send_response(200)
        if coding:
            self.send_header("Content-Encoding", coding)
        self.send_header("Ctxpack-Digest", target.digest if "wrong" not in self.path else ContextPack().digest)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def sender() -> Iterator[str]:
    """The address of a server of `Sender`."""
    Sender.seen.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Sender)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_conversation_over_http(root: Path, sender: str) -> None:
    ways = ["plain", "delta", "delta/gzip", "plain/gzip", "pack/gzip", "delta/gzip", "pack"]
    urls = [f"{sender}/{way}/{number}" for number, way in enumerate(ways)]
    assert run(root, [{"act": "converse", "urls": urls}]) == [{"value": Sender.turns[: len(ways)]}]
    bases = ["none"] + [ContextPack.from_content(text).digest for text in Sender.turns[: len(ways) - 1]]
    codings = ["", "ctxpack.delta.v1", "ctxpack.delta.v1, gzip", "gzip", "ctxpack.pack.v1, gzip", "ctxpack.delta.v1, gzip",
               "ctxpack.pack.v1"]  # fmt: skip
    accept = "ctxpack.delta.v1, ctxpack.pack.v1, gzip"
    assert Sender.seen == [(base, accept, coding) for base, coding in zip(bases, codings, strict=True)]


def test_a_wrong_digest_is_noticed(root: Path, sender: str) -> None:
    assert run(root, [{"act": "converse", "urls": [f"{sender}/wrong/0"]}]) == [{"refused": "digest_mismatch"}]


def test_the_client_of_the_integration_page(root: Path, sender: str) -> None:
    page = (root / "docs" / "integration.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        exec(compile(block, "docs/integration.md", "exec"), names)  # noqa: S102 - the page's own examples
    held = None
    for number, way in enumerate(["plain", "delta", "delta/gzip", "plain/gzip", "pack/gzip", "pack"]):
        held = names["fetch"](f"{sender}/{way}/{number}", held)
        assert held.content == Sender.turns[number]
    with pytest.raises(ValueError, match="ask again"):
        names["fetch"](f"{sender}/wrong/0")
    kept = None
    for text in Sender.turns:
        coding, body, kept = names["respond"](text, kept)
        assert kept.content == text
    assert coding == "ctxpack.delta.v1"
    assert len(body) < 1000
    status, tag, _ = names["answer"](Sender.turns[0], None)
    assert (status, names["answer"](Sender.turns[0], tag)[0]) == (200, 304)
