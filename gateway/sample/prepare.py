"""The prepare routes: a document at a turn, by GET or POST, and an echo for replaying texts of one's own."""

import hashlib
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from gateway.sample.asking import Refused
from gateway.sample.bodies import json_object, plain
from gateway.sample.documents import DOCUMENTS, Document, turns

_MARKDOWN = "text/markdown; charset=utf-8"


@dataclass(frozen=True)
class Prepare:
    """Handlers of the prepare routes."""

    seed: int

    def routes(self) -> list[web.RouteDef]:
        """To be added to an application."""
        return [
            web.get("/prepare/{name:.+}", self.at_path),
            web.post("/prepare/{name:.+}", self.at_path),
            web.post("/prepare", self.in_body),
            web.post("/echo", echo),
        ]

    async def at_path(self, request: web.Request) -> web.Response:
        """``/prepare/<document>?turn=N``, or ``{"turn": N}`` in the body of a POST; without a turn, the last."""
        asked = await _fields(request)
        return self._answer(request, request.match_info["name"], asked.get("turn"))

    async def in_body(self, request: web.Request) -> web.Response:
        """``{"document": ..., "turn": N}``."""
        asked = await _fields(request)
        return self._answer(request, str(asked.get("document", "meeting")), asked.get("turn"))

    def _answer(self, request: web.Request, name: str, turn: object) -> web.Response:
        document = next((known for known in DOCUMENTS if known.name == name), None)
        if document is None:
            known_names = ", ".join(known.name for known in DOCUMENTS)
            raise Refused(f"no document {name!r}; there are {known_names}", status=404)
        texts = turns(name, self.seed)
        number = len(texts) if turn is None else _whole(turn)
        if number is None or not 1 <= number <= len(texts):
            raise Refused(f"turn must be a whole number from 1 to {len(texts)}")
        return _document(request, document, texts[number - 1].encode())


def _document(request: web.Request, document: Document, body: bytes) -> web.Response:
    headers = {"Content-Type": _MARKDOWN}
    if document.cache_control:
        headers["Cache-Control"] = document.cache_control
    if document.strong_tag and request.method in ("GET", "HEAD"):
        tag = hashlib.sha256(body).hexdigest()[:16]
        headers["ETag"] = f'"{tag}"'
        named = request.if_none_match or ()
        if any(entry.value in (tag, "*") for entry in named):
            del headers["Content-Type"]
            return web.Response(status=304, headers=headers)
    return web.Response(body=body, headers=headers)


async def echo(request: web.Request) -> web.Response:
    """The body as it came, with its own content type."""
    kind = request.headers.get("Content-Type", "application/octet-stream")
    return web.Response(body=await plain(request), headers={"Content-Type": kind})


async def _fields(request: web.Request) -> dict[str, Any]:
    """The query and, over it, the JSON body of a POST."""
    asked: dict[str, Any] = dict(request.query)
    body = await plain(request) if request.method == "POST" else b""
    return asked | json_object(body) if body else asked


def _whole(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isdecimal() and len(text) < 10 else None
