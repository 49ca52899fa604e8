"""Who is calling. A principal is what bounds bases: a keyed hash of the caller's credentials, or the name of its key.

With ``access.keys`` set, a request needs one of them in ``Packhorse-Key``. The key is the gateway's own: it never goes upstream
(hop_by_hop takes it out), and the caller's credentials for the upstream pass untouched beside it.
"""

import hmac
from typing import Annotated, Protocol

from aiohttp import web
from pydantic import Field

from middleware.exchange import exchange_of
from middleware.problems import Handler, Problem
from middleware.settings import Settings

CREDENTIALS = ("Authorization", "x-api-key", "api-key", "x-goog-api-key")
"""Fields that say who pays (contract 5)."""


class AccessKey(Settings):
    """A caller known by name."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
    """Principal of the caller."""
    key: Annotated[str, Field(min_length=16)]
    """What the caller sends as ``Packhorse-Key``; never passed upstream."""


class Access(Settings):
    """Who may call. With no keys, anyone."""

    keys: tuple[AccessKey, ...] = ()
    """Named keys. With any, a request without one is answered 401."""


class Hasher(Protocol):
    """Turns secrets into names that can be stored."""

    def of(self, kind: str, secret: str) -> str:
        """A keyed hash, printable."""
        ...


@web.middleware
class Principal:
    """Finds the principal; refuses strangers where keys are asked for."""

    def __init__(self, access: Access, hasher: Hasher) -> None:
        self._keys = [(entry.name, entry.key.encode()) for entry in access.keys]
        self._hasher = hasher

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        exchange = exchange_of(request)
        headers = request.headers
        if self._keys:
            exchange.principal = "key:" + self._named(headers.getall("Packhorse-Key", []))
        else:
            found = [f"{name}={value}" for name in CREDENTIALS for value in headers.getall(name, ())]
            if found:
                exchange.principal = self._hasher.of("credentials", "\n".join(found))
        return await handler(request)

    def _named(self, given: list[str]) -> str:
        key = given[0].strip().encode("utf-8", "surrogateescape") if len(given) == 1 else b""
        matching = [name for name, known in self._keys if hmac.compare_digest(known, key)]
        if not matching:
            raise Problem("unauthorized", "send one of the configured access keys in Packhorse-Key")
        return matching[0]
