"""Which responses are passed as they come, and why: one of the words of ``Packhorse-Why``. Pure."""

from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from middleware.cache_control import CacheControl
from middleware.offers import Offers

_STREAMS = ("text/event-stream", "application/x-ndjson", "application/ndjson", "application/jsonl", "application/stream+json")
_BODILESS = frozenset({204, 304})


def cache_control(headers: "CIMultiDict[str] | CIMultiDictProxy[str]") -> CacheControl:
    """The Cache-Control of a message."""
    return CacheControl.parse(headers.getall("Cache-Control", ()))


def untouched(request: web.Request, response: web.Response) -> str | None:
    """Why nothing of the response may be changed, or None (contract 3)."""
    if response.status == 206 or "Content-Range" in response.headers:
        return "partial"
    if request.method == "HEAD" or response.status in _BODILESS or response.status < 200 or response.body is None:
        return "streamed"
    if (
        cache_control(response.headers).no_transform
        or CacheControl.parse(request.headers.getall("Cache-Control", ())).no_transform
    ):
        return "no-transform"
    return None


def is_stream(response: web.Response) -> bool:
    """Whether it is meant to be read as it comes."""
    return response.content_type in _STREAMS


def takes_all(offers: Offers, codings: tuple[str, ...]) -> bool:
    """Whether the client said it takes every coding of a stack."""
    accept = offers.taken.accept
    return not accept.absent and all(accept.accepts(coding) for coding in codings)


def declared_length(response: web.Response) -> int | None:
    """Content-Length, where it is there and sane."""
    text = response.headers.get("Content-Length", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def is_text(content: bytes) -> bool:
    """Whether it is UTF-8."""
    if content.isascii():
        return True
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
