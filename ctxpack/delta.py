"""A delta: the first chunks of a base that stay, and the chunks that follow them (docs/protocol.md, "Delta").

Rebuilding needs the base and the serialised delta, nothing else: no cache of the sender, no shared object.
"""

from __future__ import annotations

from typing import Any, ClassVar, FrozenSet, Iterable, Optional, Tuple, Type

from ctxpack import canonical
from ctxpack.errors import ContextPackError
from ctxpack.pack import ContextPack
from ctxpack.parse import (
    as_bytes,
    check_chunks,
    check_count,
    check_digest,
    check_string,
    check_strings,
    decode_chunks,
    read_fields,
)

_FIELDS: FrozenSet[str] = frozenset({"base_digest", "kept_chunks", "new_chunks", "schema", "target_digest"})

_set = object.__setattr__


class ContextPackDelta:
    """What turns one pack into another. Immutable and hashable."""

    __slots__ = ("_base_digest", "_kept_chunks", "_new_chunks", "_target_digest")

    schema: ClassVar[str] = canonical.DELTA_SCHEMA
    """The field of that name."""

    _base_digest: str
    _kept_chunks: int
    _new_chunks: Tuple[bytes, ...]
    _target_digest: str

    def __init__(self, base_digest: str, kept_chunks: int, new_chunks: Iterable[bytes], target_digest: str) -> None:
        """Take the fields as they are. Raises `ContextPackError` as `from_bytes` does for wrong ones."""
        check_count(kept_chunks, "kept_chunks")
        chunks = [as_bytes(chunk) for chunk in new_chunks]
        check_chunks(chunks, "new_chunks")
        check_digest(check_string(base_digest, "base_digest"), "base_digest")
        check_digest(check_string(target_digest, "target_digest"), "target_digest")
        self._fill(base_digest, kept_chunks, tuple(chunks), target_digest)

    @classmethod
    def between(cls, base: ContextPack, target: ContextPack) -> ContextPackDelta:
        """Return the delta that makes `target` of `base`: the longest common prefix of chunks stays.

        No Base64 is made here: of several deltas the best can be chosen before one is serialised.
        """
        kept = base._common_chunks(target)
        return cls._made(base.digest, kept, tuple(target._pieces(kept)), target.digest)

    @classmethod
    def from_bytes(cls, data: bytes, *, strict: bool = True, max_bytes: Optional[int] = None) -> ContextPackDelta:
        """Read a serialised delta and check what can be checked without its base.

        Raises `ContextPackError`, and nothing else, whatever the bytes. `strict=False` waives `not_canonical` alone;
        `max_bytes` limits `data` (`too_large`).
        """
        data = as_bytes(data)
        fields = read_fields(data, canonical.DELTA_SCHEMA, _FIELDS, max_bytes=max_bytes)
        base_digest = check_string(fields["base_digest"], "base_digest")
        kept = check_count(fields["kept_chunks"], "kept_chunks")
        strings = check_strings(fields["new_chunks"], "new_chunks")
        target_digest = check_string(fields["target_digest"], "target_digest")
        chunks, encoded = decode_chunks(strings, "new_chunks")
        check_digest(base_digest, "base_digest")
        check_digest(target_digest, "target_digest")
        delta = cls._made(base_digest, kept, tuple(chunks), target_digest)
        if strict and data != canonical.delta_bytes(base_digest, kept, encoded, target_digest):
            raise ContextPackError("not_canonical", "valid, but not the canonical JSON of this delta")
        return delta

    @classmethod
    def _made(cls, base_digest: str, kept_chunks: int, new_chunks: Tuple[bytes, ...], target_digest: str) -> ContextPackDelta:
        """Return the delta of fields that have been checked."""
        delta = object.__new__(cls)
        delta._fill(base_digest, kept_chunks, new_chunks, target_digest)
        return delta

    def _fill(self, base_digest: str, kept_chunks: int, new_chunks: Tuple[bytes, ...], target_digest: str) -> None:
        _set(self, "_base_digest", base_digest)
        _set(self, "_kept_chunks", kept_chunks)
        _set(self, "_new_chunks", new_chunks)
        _set(self, "_target_digest", target_digest)

    @property
    def base_digest(self) -> str:
        """Digest of the pack this delta applies to."""
        return self._base_digest

    @property
    def kept_chunks(self) -> int:
        """How many first chunks of the base stay."""
        return self._kept_chunks

    @property
    def new_chunks(self) -> Tuple[bytes, ...]:
        """The chunks that follow the kept ones."""
        return self._new_chunks

    @property
    def target_digest(self) -> str:
        """Digest of the pack that results."""
        return self._target_digest

    @property
    def byte_count(self) -> int:
        """Length of `to_bytes()` in bytes, found without making it. Not a field of the format."""
        frame = canonical.delta_bytes(self._base_digest, self._kept_chunks, b"", self._target_digest)
        return len(frame) - len(b"[]") + canonical.array_length(list(map(len, self._new_chunks)))

    def to_bytes(self) -> bytes:
        """Return the canonical JSON."""
        encoded = canonical.encode_chunks(self._new_chunks)
        return canonical.delta_bytes(self._base_digest, self._kept_chunks, encoded, self._target_digest)

    def _fields(self) -> Tuple[str, int, Tuple[bytes, ...], str]:
        return self._base_digest, self._kept_chunks, self._new_chunks, self._target_digest

    def __eq__(self, other: object) -> bool:
        return self._fields() == other._fields() if isinstance(other, ContextPackDelta) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        return (
            f"<ContextPackDelta {self._base_digest} -> {self._target_digest}"
            f" kept_chunks={self._kept_chunks} new_chunks={len(self._new_chunks)}>"
        )

    def __reduce__(self) -> Tuple[Type[ContextPackDelta], Tuple[Any, ...]]:
        return type(self), self._fields()

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a ContextPackDelta does not change; {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a ContextPackDelta does not change; {name} cannot be deleted")


def apply_delta(base: ContextPack, delta: ContextPackDelta) -> ContextPack:
    """Rebuild the target of `delta` from `base`.

    Raises `ContextPackError`, in this order of checks: `base_mismatch`, `kept_out_of_range`, `target_mismatch`. What is
    returned is the target, byte for byte; there is no other result.
    """
    if delta.base_digest != base.digest:
        raise ContextPackError("base_mismatch", f"the delta is for base {delta.base_digest}, this one is {base.digest}")
    if delta.kept_chunks > len(base._ends):
        raise ContextPackError("kept_out_of_range", f"the delta keeps more chunks than the {len(base._ends)} of the base")
    pack = base._with_chunks(delta.kept_chunks, delta.new_chunks)
    if pack.digest != delta.target_digest:
        reason = f"rebuilt {pack.digest}, where the delta promises {delta.target_digest}"
        raise ContextPackError("target_mismatch", reason)
    return pack
