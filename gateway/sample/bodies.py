"""Request bodies as the sample takes them: plain, and JSON objects where JSON is meant."""

from typing import Any

import orjson
from aiohttp import web

from gateway.sample.asking import Refused


async def plain(request: web.Request) -> bytes:
    """The body. Like most upstreams the sample decodes nothing: a content coding is refused with 415."""
    coding = request.headers.get("Content-Encoding", "identity")
    if coding.lower() != "identity":
        raise Refused(f"Content-Encoding {coding!r} is not taken here; send the body as it is", status=415)
    return await request.read()


def json_object(body: bytes) -> dict[str, Any]:
    """The body as a JSON object, or `Refused`."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refused(f"the body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise Refused("the body must be a JSON object")
    return document


def answer(document: object, status: int = 200) -> web.Response:
    """A JSON response; a 415 names what is taken (RFC 9110 15.5.16)."""
    headers = {"Accept-Encoding": "identity"} if status == 415 else {}
    return web.Response(body=orjson.dumps(document), status=status, content_type="application/json", headers=headers)
