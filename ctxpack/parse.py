"""From bytes of unknown origin to checked fields, each refusal with its code (docs/protocol.md, "Refusals").

The order of checks is part of the format: JSON, object, missing, unexpected, schema, types, Base64, UTF-8, empty
chunks, digest form; what follows (digest, total, count, canonical form) is in `pack` and `delta`, which know the whole.
Nothing but `ContextPackError` leaves this file, whatever the bytes: numbers of any length are never converted beyond
`_DIGITS`, and the depth of nesting is bounded by the interpreter's own limit.
"""

from __future__ import annotations

import json
import re
from binascii import a2b_base64, b2a_base64
from typing import Any, Dict, FrozenSet, List, NoReturn, Optional, Tuple

from ctxpack.canonical import encode_chunks
from ctxpack.errors import ContextPackError

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)

_DIGITS = 4300
"""Longest integer converted, in characters: Python's own default, set here for those 3.9s that have none."""


def read_fields(data: bytes, schema: str, names: FrozenSet[str], *, max_bytes: Optional[int] = None) -> Dict[str, Any]:
    """Return the fields of the JSON object in `data`, whose names and `schema` are right; types are not yet checked.

    Raises `ContextPackError`: `too_large`, `invalid_json`, `invalid_type`, `missing_field`, `unexpected_field`,
    `schema_mismatch`.
    """
    if max_bytes is not None and len(data) > max_bytes:
        raise ContextPackError("too_large", f"{len(data)} bytes, where at most {max_bytes} are allowed")
    fields = _read_json(data)
    if not isinstance(fields, dict):
        raise ContextPackError("invalid_type", f"the document is {_kind(fields)}, not an object")
    missing = sorted(names - fields.keys())
    if missing:
        raise ContextPackError("missing_field", f"{missing[0]} is missing")
    unexpected = fields.keys() - names
    if unexpected:
        raise ContextPackError("unexpected_field", f"{shorten(min(unexpected))} does not belong here")
    if fields["schema"] != schema:
        raise ContextPackError("schema_mismatch", f"schema is {shorten(fields['schema'])}, not {schema!r}")
    return fields


def _read_json(data: bytes) -> Any:
    try:
        return _DECODER.decode(data.decode("utf-8"))
    except ContextPackError:
        raise
    except RecursionError:
        raise ContextPackError("invalid_json", "nested too deeply") from None  # a chain of a thousand frames helps nobody
    except json.JSONDecodeError as error:
        raise ContextPackError("invalid_json", f"{error.msg} at character {error.pos}") from error
    except UnicodeDecodeError as error:
        raise ContextPackError("invalid_json", f"not UTF-8 at byte {error.start}") from error


def _pairs(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ContextPackError("invalid_json", "a key stands twice in one object")
    return fields


def _integer(literal: str) -> int:
    if len(literal) > _DIGITS:
        raise ContextPackError("invalid_json", f"a number of {len(literal)} characters")
    return int(literal)


def _fraction(_literal: str) -> float:
    return 0.5  # no field takes one, so its value is never looked at and need not be computed


def _constant(literal: str) -> NoReturn:
    raise ContextPackError("invalid_json", f"{literal} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=_integer, parse_float=_fraction, parse_constant=_constant)


def check_count(value: object, name: str) -> int:
    """Return `value` if it is a non-negative integer and no boolean; else `invalid_type`."""
    if type(value) is not int or value < 0:
        found = shorten(value) if type(value) is int else _kind(value)
        raise ContextPackError("invalid_type", f"{name} is {found}, not a non-negative integer")
    return value


def check_string(value: object, name: str) -> str:
    """Return `value` if it is a string; else `invalid_type`."""
    if not isinstance(value, str):
        raise ContextPackError("invalid_type", f"{name} is {_kind(value)}, not a string")
    return value


def check_strings(value: object, name: str) -> List[str]:
    """Return `value` if it is an array of strings; else `invalid_type`."""
    if not isinstance(value, list):
        raise ContextPackError("invalid_type", f"{name} is {_kind(value)}, not an array")
    if not set(map(type, value)) <= {str}:
        index = next(index for index, item in enumerate(value) if type(item) is not str)
        raise ContextPackError("invalid_type", f"{name}[{index}] is {_kind(value[index])}, not a string")
    return value


def check_digest(value: str, name: str) -> str:
    """Return `value` if it has the form of a digest; else `invalid_digest`."""
    if not _DIGEST.fullmatch(value):
        raise ContextPackError("invalid_digest", f"{name} is {shorten(value)}, not sha256: and 64 lower-case hex digits")
    return value


def decode_chunks(strings: List[str], name: str) -> Tuple[List[bytes], bytes]:
    """Return the chunks, and what `encode_chunks` makes of them; else `invalid_base64`, `invalid_utf8` or `empty_chunk`."""
    try:
        chunks = list(map(a2b_base64, strings))
    except ValueError as error:  # binascii.Error, and what a2b_base64 raises for a string that is not ASCII
        raise ContextPackError("invalid_base64", f"a string of {name} is not Base64") from error
    encoded = encode_chunks(chunks)
    # a2b_base64 skips strangers and ignores spare bits. What was joined is equal only where each string is: a string
    # that held the separator itself would make one more of them than there are chunks.
    if encoded != '","'.join([*strings, ""]).encode("ascii"):
        index = next(index for index, string in enumerate(strings) if b2a_base64(chunks[index]) != string.encode() + b"\n")
        raise ContextPackError("invalid_base64", f"{name}[{index}] is not canonical Base64")
    check_chunks(chunks, name)
    return chunks, encoded


def check_chunks(chunks: List[bytes], name: str) -> None:
    """Raise `invalid_utf8` or `empty_chunk` unless every chunk is valid UTF-8 of its own and holds something."""
    try:
        for chunk in chunks:
            chunk.decode("utf-8")
    except UnicodeDecodeError as error:
        reason = f"{name}[{chunks.index(error.object)}] is not UTF-8 at byte {error.start}"
        raise ContextPackError("invalid_utf8", reason) from error
    if b"" in chunks:
        raise ContextPackError("empty_chunk", f"{name}[{chunks.index(b'')}] holds nothing")


def shorten(value: object) -> str:
    """Return a printable ASCII form of at most about 60 characters, for messages."""
    if isinstance(value, str):
        return ascii(value) if len(value) <= 50 else ascii(value[:40]) + f"... ({len(value)} characters)"
    if type(value) is int:
        return str(value) if abs(value) < 10**40 else "a number of more than 40 digits"
    return _kind(value)


def _kind(value: object) -> str:
    for kind, words in _KINDS:
        if isinstance(value, kind):
            return words
    return "null"


_KINDS: Tuple[Tuple[type, str], ...] = (
    (bool, "a boolean"),
    (int, "an integer"),
    (float, "a fraction"),
    (str, "a string"),
    (list, "an array"),
    (dict, "an object"),
)


def as_bytes(data: bytes) -> bytes:
    """Return `data` itself if it is `bytes`, else a copy of the buffer; `TypeError` where there is none (a `str`)."""
    return data if type(data) is bytes else bytes(memoryview(data))
