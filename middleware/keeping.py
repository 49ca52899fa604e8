"""What an exchange leaves with the store once it was written out: the response, and the request where it was read and is text."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from ctxpack import ContextPack, ContextPackError
from middleware.stores import Base

T = TypeVar("T")
OFF_LOOP = 128 * 2**10
"""Bytes from which on a body's work is done on a thread: it would hold up the event loop by more than a millisecond or two."""


async def off_loop(size: int, work: Callable[..., T], *args: Any) -> T:
    """Do it here, or on a thread where ``size`` bytes are too many for the loop."""
    return await asyncio.to_thread(work, *args) if size > OFF_LOOP else work(*args)


def pack_with_digest(content: bytes, after: ContextPack | None = None) -> ContextPack:
    """A pack whose digest is made already, and not later on the loop. Raises ContextPackError."""
    pack = ContextPack.from_utf8(content, after=after)
    _ = pack.digest
    return pack


class RequestBase:
    """The request body as a base, made while the upstream works; nothing where it is no text."""

    def __init__(self, request: bytes) -> None:
        self._made: asyncio.Future[list[Base]] | list[Base]
        if len(request) > OFF_LOOP:
            self._made = asyncio.get_running_loop().run_in_executor(None, _base_of, request)
        else:
            self._made = _base_of(request)

    async def bases(self) -> list[Base]:
        """The base, once it is made; nearly always it was, long before the upstream answered."""
        return self._made if isinstance(self._made, list) else await self._made


def _base_of(request: bytes) -> list[Base]:
    try:
        pack = pack_with_digest(request)
    except ContextPackError:
        return []
    return [Base(request, (pack.digest,), pack)]
