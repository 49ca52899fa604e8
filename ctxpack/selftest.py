"""Checks of an installation that need nothing but this folder: no test runner, no other file.

They cover each rule once, with expected bytes written down here (those of the shared vectors), so that a copy with a
broken interpreter, a broken hash or a missing file says so before it is trusted.
"""

from __future__ import annotations

from typing import Callable, List, NamedTuple, Tuple

from ctxpack.delta import ContextPackDelta, apply_delta
from ctxpack.errors import ContextPackError
from ctxpack.minutes import minutes
from ctxpack.pack import ContextPack
from ctxpack.split import split_content

_EMPTY = (
    b'{"byte_count":161,"chunk_bytes":[],"digest":"sha256:795560be8d22a80a17c8e15ef722ccc35494919cee25812780eecd534a459'
    b'f60","schema":"ctxpack.pack.v1","total_bytes":0}'
)
_ONE = (
    b'{"byte_count":167,"chunk_bytes":["YQ=="],"digest":"sha256:95fa9ff87a9ef569d4d4a72e0dec02b3b6220dea9c1186606daef60'
    b'15e66e625","schema":"ctxpack.pack.v1","total_bytes":1}'
)

_SPLITS: Tuple[Tuple[str, int, List[int]], ...] = (
    ("", 512, []),
    ("alpha\nbeta", 512, [10]),
    ("\n" * 1500, 512, [512, 512, 476]),
    ("x" * 511 + "\n" + "x" * 512 + "\n", 512, [512, 512, 1]),
    ("a\r\nb\u2028c\x0c" * 3, 8, [3, 8, 1, 8, 1, 6]),
    ("\u6c49" * 3, 4, [3, 3, 3]),
    ("ab\n\U0001f600\U0001f600\ncd\n", 5, [3, 4, 5, 3]),
)

_REFUSED: Tuple[Tuple[str, bytes], ...] = (
    ("invalid_json", b"{"),
    ("invalid_json", b"[" * 200_000),
    ("invalid_json", _ONE.replace(b"167", b"9" * 200_000)),
    ("invalid_json", _ONE.replace(b"167", b"NaN")),
    ("invalid_json", _ONE[:-1] + b',"total_bytes":1}'),
    ("invalid_type", b"[]"),
    ("missing_field", b"{}"),
    ("unexpected_field", _ONE[:-1] + b',"x":1}'),
    ("schema_mismatch", _ONE.replace(b"pack.v1", b"pack.v2")),
    ("invalid_type", _ONE.replace(b":1}", b":true}")),
    ("invalid_base64", _ONE.replace(b"YQ==", b"YR==")),
    ("invalid_utf8", _ONE.replace(b"YQ==", b"//4=")),
    ("empty_chunk", _ONE.replace(b"YQ==", b"")),
    ("invalid_digest", _ONE.replace(b"95fa9", b"95FA9")),
    ("digest_mismatch", _ONE.replace(b"95fa9", b"95fa8")),
    ("total_bytes_mismatch", _ONE.replace(b":1}", b":2}")),
    ("byte_count_mismatch", _ONE.replace(b"167", b"168")),
    ("not_canonical", _ONE.replace(b",", b", ")),
)


class Result(NamedTuple):
    """One check: its name, and what was wrong, empty where nothing was."""

    name: str
    problem: str


def run_checks() -> List[Result]:
    """Run every check, in under a second or so, and return the results in order. Raises nothing."""
    results: List[Result] = []
    for check in _CHECKS:
        name = (check.__doc__ or check.__name__).strip()
        try:
            problem = check()
        except Exception as error:  # a check that breaks is a check that failed, and the others still run
            problem = f"{type(error).__name__}: {error}"
        results.append(Result(name, problem))
    return results


def _splits() -> str:
    """texts split where the format says"""
    for text, limit, sizes in _SPLITS:
        found = [len(chunk) for chunk in split_content(text, limit)]
        if found != sizes:
            return f"{text[:20]!a} at {limit}: {found}, not {sizes}"
    return ""


def _serialises() -> str:
    """packs serialise to the bytes the format says"""
    for text, expected in (("", _EMPTY), ("a", _ONE)):
        if ContextPack.from_content(text).to_bytes() != expected:
            return f"the pack of {text!a} differs"
    return ""


def _counts() -> str:
    """byte_count is the smallest fixed point"""
    for size in range(560, 680):
        pack = ContextPack([b"k" * size, b"k", b"k"])  # 999 and 1000 would both fit one of them
        if len(pack.to_bytes()) != pack.byte_count or pack.byte_count == 1000:
            return f"{size} bytes of content: byte_count {pack.byte_count}, length {len(pack.to_bytes())}"
    return ""


def _round_trips() -> str:
    """forty turns rebuild byte for byte, from serialised data alone"""
    held = ContextPack.from_content("")
    for text in minutes():
        wire = ContextPackDelta.between(held, ContextPack.from_content(text)).to_bytes()
        held = apply_delta(ContextPack.from_bytes(held.to_bytes()), ContextPackDelta.from_bytes(wire))
        if held.content != text:
            return f"differs at {len(text)} characters"
    return ""


def _continues() -> str:
    """a pack made after another equals one made alone"""
    held = ContextPack.from_content("")
    for text in minutes():
        held = ContextPack.from_utf8(text.encode(), after=held)
        if held.to_bytes() != ContextPack.from_content(text).to_bytes():
            return f"differs at {len(text)} characters"
    return ""


def _refuses() -> str:
    """every kind of invalid pack is refused with its code"""
    for code, data in _REFUSED:
        found = _code(lambda data=data: ContextPack.from_bytes(data))  # type: ignore[misc]
        if found != code:
            return f"{data[:40]!a}: {found}, not {code}"
    return ""


def _notices() -> str:
    """a pack or delta changed in any byte is refused"""
    base = ContextPack.from_content("alpha\n" * 100)
    pack = ContextPack.from_content("alpha\n" * 90 + "beta\n")
    delta = ContextPackDelta.between(base, pack).to_bytes()
    for data, accept in (
        (pack.to_bytes(), ContextPack.from_bytes),
        (delta, lambda wire: apply_delta(base, ContextPackDelta.from_bytes(wire))),
    ):
        for index in range(len(data)):
            changed = data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :]
            if not _code(lambda changed=changed, accept=accept: accept(changed)):  # type: ignore[misc]
                return f"byte {index} changed and nobody noticed"
    return ""


def _orders() -> str:
    """deltas are checked against their base, in order"""
    base, other = ContextPack.from_content("a"), ContextPack.from_content("b")
    for code, delta in (
        ("base_mismatch", ContextPackDelta(other.digest, 9, (), other.digest)),
        ("kept_out_of_range", ContextPackDelta(base.digest, 9, (), other.digest)),
        ("target_mismatch", ContextPackDelta(base.digest, 1, (), other.digest)),
    ):
        found = _code(lambda delta=delta: apply_delta(base, delta))  # type: ignore[misc]
        if found != code:
            return f"{found or 'accepted'}, not {code}"
    return ""


def _code(act: Callable[[], object]) -> str:
    """Return the code `act` is refused with, or nothing."""
    try:
        act()
    except ContextPackError as error:
        return error.code
    return ""


_CHECKS = (_splits, _serialises, _counts, _round_trips, _continues, _refuses, _notices, _orders)
