"""The chat routes: read JSON, answer by rule in the dialect of the path, whole or as an event stream."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson
from aiohttp import web

from gateway.sample import anthropic, openai_chat, openai_responses
from gateway.sample.asking import CREATED, Ask, Refused, Reply, estimate_tokens, reply
from gateway.sample.bodies import answer, json_object, plain

Events = Iterator[tuple[str | None, dict[str, Any] | None]]


@dataclass(frozen=True)
class Dialect:
    """One provider's way of saying it."""

    path: str
    key_fields: tuple[str, ...]
    """Fields that may carry the key, where keys are asked for."""
    read: Callable[[Mapping[str, Any]], Ask]
    whole: Callable[[Ask, Reply], dict[str, Any]]
    events: Callable[[Ask, Reply], Events]
    refusal: Callable[[Refused], dict[str, Any]]


DIALECTS = tuple(
    Dialect(path, fields, module.read, module.whole, module.events, module.refusal)
    for path, fields, module in (
        ("/v1/chat/completions", ("Authorization",), openai_chat),
        ("/v1/responses", ("Authorization",), openai_responses),
        ("/v1/messages", ("x-api-key", "Authorization"), anthropic),
    )
)
"""Every chat route."""


@dataclass(frozen=True)
class Chat:
    """Handlers of the chat routes."""

    seed: int
    pace: float
    """Seconds between two events of a stream."""
    require_key: bool

    def routes(self) -> list[web.RouteDef]:
        """To be added to an application."""
        listed = [web.post(dialect.path, self._handler(dialect)) for dialect in DIALECTS]
        return [*listed, web.get("/v1/models", _models)]

    def _handler(self, dialect: Dialect) -> Callable[[web.Request], Any]:
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                return await self._answer(dialect, request)
            except Refused as refused:
                return answer(dialect.refusal(refused), refused.status)

        return handle

    async def _answer(self, dialect: Dialect, request: web.Request) -> web.StreamResponse:
        if self.require_key and not any(request.headers.get(name) for name in dialect.key_fields):
            named = " or ".join(dialect.key_fields)
            raise Refused(f"send a key in {named}; any value will do", status=401, code="invalid_api_key")
        body = await plain(request)
        document = json_object(body)
        ask = dialect.read(document)
        ask = replace(ask, prompt_tokens=estimate_tokens(body.decode()))
        made = reply(ask, body, self.seed)
        if not ask.stream:
            return answer(dialect.whole(ask, made))
        headers = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        return web.Response(body=self._stream(dialect.events(ask, made)), headers=headers)

    async def _stream(self, events: Events) -> AsyncIterator[bytes]:
        for name, data in events:
            head = f"event: {name}\n".encode() if name else b""
            yield head + b"data: " + (b"[DONE]" if data is None else orjson.dumps(data)) + b"\n\n"
            if self.pace:
                await asyncio.sleep(self.pace)


async def _models(_request: web.Request) -> web.Response:
    model = {"id": "sample", "object": "model", "created": CREATED, "owned_by": "packhorse"}
    return answer({"object": "list", "data": [model]})
