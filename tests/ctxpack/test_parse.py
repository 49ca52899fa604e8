"""Hostile input: every change is noticed, nothing but the declared error leaves, within bounded time and memory."""

from __future__ import annotations

import json
import sys
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxpack import CODES, ContextPack, ContextPackDelta, ContextPackError, apply_delta

BASE = ContextPack.from_content("alpha\n" * 200 + "始\n")
TARGET = ContextPack.from_content("alpha\n" * 190 + "beta\n")
PACK = TARGET.to_bytes()
DELTA = ContextPackDelta.between(BASE, TARGET).to_bytes()


def code_of(data: bytes, *, strict: bool = True) -> set[str | None]:
    """Return the codes `data` is refused with as a pack and as a delta applied to `BASE`; None where it is accepted."""
    codes: set[str | None] = set()
    for read in (
        lambda: ContextPack.from_bytes(data, strict=strict),
        lambda: apply_delta(BASE, ContextPackDelta.from_bytes(data, strict=strict)),
    ):
        error = None
        try:
            read()
        except ContextPackError as refusal:
            error = refusal
        codes.add(error and error.code)
        assert error is None or error.code in CODES
        assert str(error).isascii()  # a message prints anywhere
        assert len(str(error)) < 400
    return codes


@pytest.mark.parametrize("data", [PACK, DELTA], ids=["pack", "delta"])
def test_every_single_bit_counts(data: bytes) -> None:
    for index in range(len(data)):
        for bit in (1, 4, 32, 128):
            assert None not in code_of(data[:index] + bytes([data[index] ^ bit]) + data[index + 1 :]), index


@given(st.sampled_from([PACK, DELTA]), st.data())
def test_every_edit_is_noticed(data: bytes, draw: st.DataObject) -> None:
    start = draw.draw(st.integers(0, len(data)))
    stop = draw.draw(st.integers(start, min(len(data), start + 40)))
    changed = data[:start] + draw.draw(st.binary(max_size=8)) + data[stop:]
    assert changed == data or None not in code_of(changed)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_with_a_code(data: bytes) -> None:
    assert None not in code_of(data) | code_of(data, strict=False)


values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("ctxpack.pack.v1")
    | st.just("YQ==") | st.just(BASE.digest),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


@given(st.sampled_from([PACK, DELTA]), st.dictionaries(st.integers(0, 4), values), st.booleans())
def test_any_json_is_refused_with_a_code(data: bytes, changes: dict[int, Any], strict: bool) -> None:
    fields = json.loads(data)
    names = sorted(fields)
    changed = {**fields, **{names[index]: value for index, value in changes.items()}}
    if changed != fields:
        assert None not in code_of(json.dumps(changed, sort_keys=True, separators=(",", ":")).encode(), strict=strict)


def test_not_canonical_is_all_that_strict_adds() -> None:
    for data in (PACK, DELTA):
        loose = json.dumps(json.loads(data), indent=2).encode()
        assert "not_canonical" in code_of(loose)
        assert None in code_of(loose, strict=False)


MEGABYTE = 1_000_000
BOMBS = {
    "arrays": b"[" * MEGABYTE,
    "objects": b'{"a":' * MEGABYTE,
    "arrays_in_a_field": PACK.replace(b'"chunk_bytes":[', b'"chunk_bytes":' + b"[" * MEGABYTE),
    "closed_arrays": b"[" * MEGABYTE + b"]" * MEGABYTE,
    "integer": PACK.replace(b'"byte_count":', b'"byte_count":' + b"7" * MEGABYTE),
    "negative_integer": b"-" + b"7" * MEGABYTE,
    "fraction": b"0." + b"7" * MEGABYTE,
    "exponent": b"1e" + b"7" * MEGABYTE,
    "integers": b"[" + (b"7" * 4000 + b",") * (MEGABYTE // 4000) + b"7]",
    "key": b'{"' + b"k" * MEGABYTE + b'":1}',
    "keys": b"{" + b",".join(b'"%d":1' % index for index in range(MEGABYTE // 10)) + b"}",
    "same_key": b"{" + b'"a":1,' * (MEGABYTE // 6) + b'"a":1}',
    "unexpected_key": PACK[:-1] + b',"' + b"k" * MEGABYTE + b'":1}',
    "schema": PACK.replace(b"ctxpack.pack.v1", b"s" * MEGABYTE),
    "digest": PACK.replace(b"sha256:", b"sha256:" + b"0" * MEGABYTE),
    "escapes": b'{"' + b"\\ud800" * (MEGABYTE // 6) + b'":1}',
    "spaces": b" " * MEGABYTE,
    "wide_text": "始".encode() * (MEGABYTE // 3),
    "empty_chunks": PACK.replace(b'"chunk_bytes":[', b'"chunk_bytes":[' + b'"",' * (MEGABYTE // 3)),
    "zero_bytes": bytes(MEGABYTE),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_in_bounded_time(name: str) -> None:
    started = time.process_time()
    assert None not in code_of(BOMBS[name])
    assert time.process_time() - started < 2.0


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_in_bounded_memory(name: str) -> None:
    tracemalloc.start()
    try:
        assert None not in code_of(BOMBS[name])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 120 * MEGABYTE


def test_a_number_may_be_long_but_not_endless() -> None:
    kept = DELTA.replace(b'"kept_chunks":', b'"kept_chunks":' + b"9" * 4000)
    assert "kept_out_of_range" in code_of(kept)
    assert "invalid_json" in code_of(kept.replace(b"9" * 4000, b"9" * 5000))


def test_a_raised_digit_limit_of_the_interpreter_changes_nothing() -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        assert code_of(b"7" * MEGABYTE) == {"invalid_json"}
    finally:
        sys.set_int_max_str_digits(before)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-8-sig", "cp037"])
def test_only_utf8_is_read(encoding: str) -> None:
    assert code_of(PACK.decode().encode(encoding)) == {"invalid_json"}
