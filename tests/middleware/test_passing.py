"""Which responses are passed as they come, and in which order the reasons count (contract 3)."""

from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from support.client import ask
from support.messages import FieldsLike

from middleware.offers import Offers, taken
from middleware.passing import declared_length, is_stream, is_text, takes_all, untouched


async def why(aiohttp_server: Any, method: str, fields: FieldsLike, **response: Any) -> str | None:
    """What ``untouched`` says of that answer to that request."""
    said: list[str | None] = []

    async def handler(request: web.Request) -> web.Response:
        said.append(untouched(request, web.Response(**response)))
        return web.Response()

    app = web.Application()
    app.router.add_route("*", "/", handler)
    await ask((await aiohttp_server(app)).port, method, "/", fields)
    return said[0]


NO_TRANSFORM = ("Cache-Control", "max-age=5, No-Transform")


@pytest.mark.parametrize(
    ("method", "fields", "response", "said"),
    [
        ("GET", [], {"body": b"x"}, None),
        ("POST", [], {"body": b"x", "status": 500}, None),
        ("GET", [], {"body": b""}, None),
        ("GET", [], {"body": b"x", "status": 206}, "partial"),
        ("GET", [], {"body": b"x", "headers": {"Content-Range": "bytes 0-0/5"}}, "partial"),
        ("HEAD", [], {"body": b"x"}, "streamed"),
        ("GET", [], {"status": 204}, "streamed"),
        ("GET", [], {"status": 304}, "streamed"),
        ("GET", [], {}, "streamed"),
        ("GET", [], {"body": b"x", "headers": dict([NO_TRANSFORM])}, "no-transform"),
        ("GET", [NO_TRANSFORM], {"body": b"x"}, "no-transform"),
        ("GET", [("Cache-Control", "no-store")], {"body": b"x"}, None),
        ("GET", [("Pragma", "no-transform")], {"body": b"x"}, None),
        # the first that holds
        ("HEAD", [NO_TRANSFORM], {"body": b"x", "status": 206}, "partial"),
        ("HEAD", [NO_TRANSFORM], {"body": b"x"}, "streamed"),
    ],
)
async def test_untouched(
    aiohttp_server: Any, method: str, fields: FieldsLike, response: dict[str, Any], said: str | None
) -> None:
    assert await why(aiohttp_server, method, fields, **response) == said


@pytest.mark.parametrize(
    ("content_type", "streams"),
    [
        ("text/event-stream", True),
        ("Text/Event-Stream; charset=utf-8", True),
        ("application/x-ndjson", True),
        ("application/ndjson", True),
        ("application/jsonl", True),
        ("application/stream+json", True),
        ("application/json", False),
        ("text/plain", False),
        ("text/event-streams", False),
        ("multipart/mixed; boundary=text/event-stream", False),
        ("", False),
        (None, False),
    ],
)
def test_is_stream(content_type: str | None, streams: bool) -> None:
    response = web.Response(body=b"x")
    response.headers.popall("Content-Type", None)
    if content_type is not None:
        response.headers["Content-Type"] = content_type
    assert is_stream(response) is streams


@pytest.mark.parametrize(
    ("accept", "codings", "takes"),
    [
        ("gzip", ("gzip",), True),
        ("br, gzip", ("gzip", "br"), True),
        ("gzip", ("gzip", "br"), False),
        ("gzip;q=0, *", ("gzip",), False),
        ("*", ("gzip", "br"), True),
        ("", ("gzip",), False),
        (None, ("gzip",), False),  # it said nothing: what the upstream made up is undone
        ("gzip", (), True),
    ],
)
def test_takes_all(accept: str | None, codings: tuple[str, ...], takes: bool) -> None:
    offers = Offers(taken(() if accept is None else (accept,), ()), (), False, False)
    assert takes_all(offers, codings) is takes


@pytest.mark.parametrize(
    ("text", "length"),
    [(None, None), ("0", 0), ("12", 12), ("", None), ("-1", None), ("+1", None), ("1e3", None), (" 1", None), ("٣", None),
     ("9" * 18, 10**18 - 1), ("9" * 19, None), ("9" * 5000, None)],
)  # fmt: skip
def test_declared_length(text: str | None, length: int | None) -> None:
    response = web.Response()
    if text is not None:
        response.headers["Content-Length"] = text
    assert declared_length(response) == length


@settings(deadline=None)
@given(st.one_of(st.text().map(str.encode), st.binary()))
def test_text_is_what_decodes(content: bytes) -> None:
    try:
        content.decode()
    except UnicodeDecodeError:
        assert not is_text(content)
    else:
        assert is_text(content)
