"""Errors as RFC 9457 problems, made in one place.

Whoever must refuse raises :class:`Problem`; the middleware turns it into a response once. After the head is out nothing can be
answered any more: :class:`middleware.body.Body` cuts the connection instead, so that the client sees a truncated message and
never a well-formed lie. A problem never carries bytes the client or the upstream sent.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping

import orjson
from aiohttp import hdrs, web

from middleware.body import Body
from middleware.exchange import exchange_of

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger("packhorse.problems")

CODES: Mapping[str, tuple[int, str]] = {
    "base-unknown": (415, "The base is not held here"),
    "bad-request": (400, "The request is malformed"),
    "bad-coding": (400, "The body does not decode"),
    "unsupported-coding": (415, "The content coding is not supported"),
    "too-large": (413, "The body is too large"),
    "headers-too-large": (431, "The head of the request is too large"),
    "unauthorized": (401, "A key is needed"),
    "forbidden": (403, "This is not allowed"),
    "rate-limited": (429, "Too many requests at one time"),
    "no-route": (404, "No route matches"),
    "upstream-unreachable": (502, "The upstream cannot be reached"),
    "upstream-timeout": (504, "The upstream did not answer in time"),
    "upstream-cut": (502, "The upstream broke off its answer"),
    "shutting-down": (503, "The gateway is shutting down"),
}
"""Contract 6: code to status and title."""


class Problem(Exception):
    """A refusal. ``detail`` says what was wrong and what to do; ``fields`` are further response fields."""

    def __init__(self, code: str, detail: str, *, status: int | None = None, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.status = status or CODES[code][0]
        self.fields = dict(fields or {})

    @property
    def upstream_fault(self) -> bool:
        """Whether the upstream, not the client, is to blame."""
        return self.code.startswith("upstream-")


def problem_response(problem: Problem) -> web.Response:
    """The problem as a complete ``application/problem+json`` response."""
    document = {
        "type": f"urn:packhorse:{problem.code}",
        "title": CODES[problem.code][1],
        "status": problem.status,
        "detail": problem.detail,
    }
    headers = {hdrs.CONTENT_TYPE: "application/problem+json", hdrs.CACHE_CONTROL: "no-store", **problem.fields}
    return web.Response(status=problem.status, headers=headers, body=Body(orjson.dumps(document)))


def internal_response() -> web.Response:
    """What a client is told of a fault of our own: nothing but that it happened."""
    document = {"type": "about:blank", "title": "Internal Server Error", "status": 500}
    headers = {hdrs.CONTENT_TYPE: "application/problem+json", hdrs.CACHE_CONTROL: "no-store"}
    return web.Response(status=500, headers=headers, body=Body(orjson.dumps(document)))


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer what was raised below, once."""
    try:
        return await handler(request)
    except Problem as problem:
        exchange_of(request).refusal = problem.code
        return problem_response(problem)
    except (web.HTTPException, ConnectionError):  # aiohttp's way to answer; a client that is gone
        raise
    except Exception as fault:
        exchange_of(request).refusal = "internal"
        log.error("exchange %s: a fault of the gateway's own", exchange_of(request).id, exc_info=_without_values(fault))
        return internal_response()


def _without_values(fault: Exception) -> Exception:
    """The fault with its place but without its text, which may quote what a client sent."""
    return RuntimeError(type(fault).__name__).with_traceback(fault.__traceback__)
