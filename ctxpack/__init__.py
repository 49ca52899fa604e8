"""Context Pack v1: send a body as what changed since the last one. Standard library only, Python 3.9 and later.

    from ctxpack import ContextPack, ContextPackDelta, apply_delta

    base = ContextPack.from_content(previous_text)
    wire = ContextPackDelta.between(base, ContextPack.from_content(current_text)).to_bytes()
    assert apply_delta(base, ContextPackDelta.from_bytes(wire)).content == current_text

The bytes are defined in docs/protocol.md, the ways to use them in docs/integration.md.
"""

from ctxpack.canonical import DELTA_SCHEMA, PACK_SCHEMA
from ctxpack.delta import ContextPackDelta, apply_delta
from ctxpack.errors import CODES, ContextPackError
from ctxpack.pack import ContextPack
from ctxpack.split import split_content

__all__ = [
    "CODES",
    "DELTA_SCHEMA",
    "PACK_SCHEMA",
    "ContextPack",
    "ContextPackDelta",
    "ContextPackError",
    "apply_delta",
    "split_content",
]
