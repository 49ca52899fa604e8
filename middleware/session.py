"""Which conversation an exchange belongs to (contract 5): the unit of eviction, and without credentials the scope as well.

Only ``Packhorse-Session`` and our cookie open the bases of a session to a caller without credentials; ids from elsewhere can be
guessed, so they only group what belongs to a principal. Ids are hashed before they are stored, whatever they hold.
"""

import re
import secrets
from typing import Annotated

import orjson
from aiohttp import web
from multidict import CIMultiDict
from pydantic import Field

from middleware.access import Hasher
from middleware.cache_control import CacheControl
from middleware.exchange import Exchange, exchange_of
from middleware.fields import COOKIE
from middleware.offers import offers_of
from middleware.problems import Handler, Problem
from middleware.settings import Settings
from middleware.stores import Owner
from middleware.uploads import UploadReader

_OPAQUE = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")
_CHAT = frozenset({"openai", "anthropic"})


class Sessions(Settings):
    """Conversations."""

    max: Annotated[int, Field(ge=1)] = 100_000
    """Most sessions remembered."""


class SessionNames(Settings):
    """How a client may name its session, beside ``Packhorse-Session``."""

    headers: tuple[str, ...] = (
        "x-litellm-session-id", "helicone-session-id", "x-headroom-session-id", "x-claude-code-session-id",
        "x-codex-session-id", "session-id", "session_id", "x-session-id",
    )  # fmt: skip
    """Further fields that carry a session id, in order; ids in them are hashed."""


@web.middleware
class SessionFinder:
    """The middleware of one route. ``upstream`` names what is behind it: a base serves every route of its upstream."""

    def __init__(self, names: SessionNames, hasher: Hasher, uploads: UploadReader, upstream: str) -> None:
        self._upstream = upstream
        self._headers = names.headers
        self._hasher = hasher
        self._uploads = uploads

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        exchange = exchange_of(request)
        kind, found = await self._find(request, exchange)
        if found is None and exchange.principal is None and offers_of(request).takes_part:
            kind, found = "own", secrets.token_urlsafe(16)
            exchange.made_session = found
        exchange.opted_in = kind == "own"
        exchange.owner = self._owner(exchange, kind, found)
        response = await handler(request)
        if exchange.made_session is not None:
            self._announce(exchange, response)
        return response

    async def _find(self, request: web.Request, exchange: Exchange) -> tuple[str, str | None]:
        """How the session was named, and its name. Without credentials only what cannot be guessed counts."""
        headers = request.headers
        named = headers.getall("Packhorse-Session", ())
        if named:
            if len(named) > 1 or not _OPAQUE.match(named[0]):
                raise Problem("bad-request", "Packhorse-Session is 1 to 128 of A-Z a-z 0-9 . _ -, once")
            return "own", named[0]
        if exchange.principal is not None:
            for name in self._headers:
                value = headers.get(name)
                if value:
                    return f"field {name}", value
        cookie = _cookie(headers.getall("Cookie", ()))
        if cookie is not None:
            return "own", cookie
        if exchange.principal is not None and exchange.kind in _CHAT and offers_of(request).takes_part:
            chosen = _in_chat_body(await self._uploads.read(request, exchange))
            if chosen is not None:
                return "chat", chosen
        return "principal", None

    def _owner(self, exchange: Exchange, kind: str, found: str | None) -> Owner | None:
        session = self._hasher.of(kind, found) if found is not None else "principal"
        if exchange.principal is not None:
            return Owner(f"{exchange.principal} {self._upstream}", session)
        return Owner(f"session:{session} {self._upstream}", session) if kind == "own" else None

    def _announce(self, exchange: Exchange, response: web.StreamResponse) -> None:
        """Tell the client the session we made, unless a shared cache could hand it to others."""
        headers = response.headers
        said = CacheControl.parse(headers.getall("Cache-Control", ()))
        if response.prepared or exchange.refusal or _shared_cache_may_keep(said, headers):
            exchange.owner = None
            return
        headers["Packhorse-Session"] = exchange.made_session or ""
        secure = "; Secure" if exchange.secure else ""
        headers.add("Set-Cookie", f"{COOKIE}={exchange.made_session}; Path=/; HttpOnly; SameSite=Lax{secure}")
        if not said.private:
            lines = [line for line in headers.popall("Cache-Control", []) if line.strip()]
            headers["Cache-Control"] = ", ".join(["private", *lines])


def _shared_cache_may_keep(said: CacheControl, headers: "CIMultiDict[str]") -> bool:
    """Whether the upstream's own word lets a cache hand the response to others (RFC 9111 3)."""
    if said.public:  # whatever it says beside: it is contradictory, or private for some fields only
        return True
    if said.private or said.no_store:
        return False
    return said.s_maxage is not None or bool(said.max_age) or ("Expires" in headers and said.max_age is None)


def _cookie(lines: "tuple[str, ...] | list[str]") -> str | None:
    for line in lines:
        for pair in line.split(";"):
            name, _, value = pair.strip().partition("=")
            if name == COOKIE and _OPAQUE.match(value):
                return value
    return None


def _in_chat_body(body: bytes | None) -> str | None:
    """The provider's own field: ``prompt_cache_key``, ``metadata.session_id``, Anthropic's ``metadata.user_id``."""
    try:
        document = orjson.loads(body or b"")
    except orjson.JSONDecodeError:
        return None
    if not isinstance(document, dict):
        return None
    metadata = document.get("metadata")
    inner = metadata if isinstance(metadata, dict) else {}
    candidates = (document.get("prompt_cache_key"), inner.get("session_id"), inner.get("user_id"))
    return next((value for value in candidates if isinstance(value, str) and value), None)
