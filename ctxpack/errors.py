"""The one exception of the package, and every code it can carry.

The codes are part of the format (docs/protocol.md, "Refusals"): programs branch on them, so one is never renamed and
never reused. The words after a code are for people and may change.
"""

from __future__ import annotations

from typing import Dict

CODES: Dict[str, str] = {
    "too_large": "more bytes than the caller allows",
    "invalid_json": "not one JSON text in UTF-8: broken, a key twice, NaN, trailing data, excessive nesting or digits",
    "invalid_type": "a value of the wrong JSON type, or an integer that is negative or a boolean",
    "missing_field": "a field of the schema is absent",
    "unexpected_field": "a field the schema does not have",
    "schema_mismatch": "another object, or another version of it",
    "invalid_base64": "a chunk that is not standard, padded, canonical Base64",
    "invalid_utf8": "content or a chunk that is not valid UTF-8 on its own",
    "empty_chunk": "a chunk of no bytes",
    "invalid_digest": "a digest that is not `sha256:` and 64 lower-case hex digits",
    "digest_mismatch": "the digest is not that of the chunks",
    "total_bytes_mismatch": "`total_bytes` is not the length of the content",
    "byte_count_mismatch": "`byte_count` is not the length of the serialisation, or not the smallest that fits",
    "not_canonical": "valid, but written in another way (the only code `strict=False` waives)",
    "base_mismatch": "the delta was made against another base",
    "kept_out_of_range": "the delta keeps more chunks than the base has",
    "target_mismatch": "what base and delta rebuild is not what the delta promised",
}


class ContextPackError(ValueError):
    """Input that is not a valid pack, delta or content.

    `code` is one of `CODES` and stable; `reason` says in words what was found. No result accompanies it: a caller that
    catches this error holds nothing half usable.
    """

    def __init__(self, code: str, reason: str) -> None:
        if code not in CODES:
            raise KeyError(code)
        super().__init__(code, reason)
        self.code = code
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.code}: {self.reason}"
