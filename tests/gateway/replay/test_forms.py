"""Undoing codings as a stranger would."""

import gzip

import pytest

from ctxpack import ContextPack, ContextPackDelta
from gateway.replay.forms import Broken, undo


def _gzip(data: bytes) -> bytes:
    """Without the time in it: these bytes are part of test names, and each worker must make the same."""
    return gzip.compress(data, mtime=0)


OLD, NEW = "eins\n" * 300, "eins\n" * 300 + "zwei\n"
BASE, TARGET = ContextPack.from_content(OLD), ContextPack.from_content(NEW)
DELTA = ContextPackDelta.between(BASE, TARGET).to_bytes()


@pytest.mark.parametrize(
    ("body", "codings"),
    [
        (NEW.encode(), ["identity"]),
        (_gzip(NEW.encode()), ["gzip"]),
        (TARGET.to_bytes(), ["ctxpack.pack.v1"]),
        (DELTA, ["ctxpack.delta.v1"]),
        (_gzip(DELTA), ["ctxpack.delta.v1", "gzip"]),
    ],
)
def test_every_form_leads_back(body: bytes, codings: list[str]) -> None:
    assert undo(body, codings, BASE) == NEW.encode()


@pytest.mark.parametrize(
    ("body", "codings", "base", "says"),
    [
        (_gzip(b"abc")[:-1], ["gzip"], None, "does not end"),
        (_gzip(b"abc") + b"x", ["gzip"], None, "does not end"),
        (b"abc", ["gzip"], None, "damaged"),
        (DELTA, ["ctxpack.delta.v1"], None, "no base was named"),
        (DELTA, ["ctxpack.delta.v1"], TARGET, "base_mismatch"),
        (TARGET.to_bytes()[:-1], ["ctxpack.pack.v1"], None, "refused"),
        (b"abc", ["br"], None, "not asked for"),
    ],
)
def test_what_does_not_lead_back_is_broken(body: bytes, codings: list[str], base: ContextPack | None, says: str) -> None:
    with pytest.raises(Broken, match=says):
        undo(body, codings, base)
