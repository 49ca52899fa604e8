"""How each exchange ended, told once to a recorder. Outside everything that can refuse, so that refusals are counted."""

import asyncio
import re
import time
from dataclasses import dataclass
from typing import Literal, Protocol

from aiohttp import web

from middleware.body import Body
from middleware.events import is_terminal
from middleware.exchange import Exchange, exchange_of
from middleware.limits import InFlight
from middleware.problems import Handler

Outcome = Literal["ok", "client_gone", "upstream_cut", "refused", "failed"]
_PATH = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*)?([^?#]*)")
_EMPTY = frozenset({204, 304})


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of an exchange. ``status`` is 0 where nothing was answered; sizes in bytes, times in seconds."""

    method: str
    target: str
    """Path without its query: what a log line may hold."""
    status: int
    outcome: Outcome
    seconds: float
    overhead: float
    """What the gateway added: until the head was ready, less the wait for the upstream."""
    first_byte: float | None
    """Until the head was ready, where one was."""
    sent: int
    """Content bytes of the response handed to the connection."""
    coding: str
    """Its Content-Encoding, or ``identity``."""
    upload: str | None = None
    """Content-Encoding of the request body, or ``identity``; None where there was none."""


class Recorder(Protocol):
    """Makes counters, log lines and comparisons of it. Returns at once and never raises."""

    def ended(self, exchange: Exchange, ended: Ended) -> None:
        """The exchange is over."""
        ...


@web.middleware
class Metrics:
    """The middleware."""

    def __init__(self, recorder: Recorder, in_flight: InFlight) -> None:
        self._recorder = recorder
        self._in_flight = in_flight

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        exchange = exchange_of(request)
        self._in_flight.enter()
        try:
            response = await handler(request)
        except web.HTTPException as answer:  # aiohttp's way to answer by raising
            exchange.head_ready_at = time.perf_counter()
            self._end(request, exchange, answer, _answered(exchange), len(answer.body) if isinstance(answer.body, bytes) else 0)
            raise
        except BaseException as error:
            gone = isinstance(error, (asyncio.CancelledError, ConnectionError))
            self._end(request, exchange, None, "client_gone" if gone else "failed", 0)
            raise
        exchange.head_ready_at = time.perf_counter()
        body = response.body if isinstance(response, web.Response) else None
        if not isinstance(body, Body) or request.method == "HEAD" or response.status in _EMPTY:
            self._end(request, exchange, response, _answered(exchange), len(body) if isinstance(body, bytes) else 0)
        else:
            body.on_end.append(lambda error: self._written(request, exchange, response, body, error))
        return response

    def _written(
        self, request: web.Request, exchange: Exchange, response: web.StreamResponse, body: Body, error: BaseException | None
    ) -> None:
        outcome: Outcome
        if error is None or (body.tail is not None and is_terminal(body.tail)):
            outcome = _answered(exchange)
        elif isinstance(error, (asyncio.CancelledError, ConnectionError)):
            outcome = "client_gone"
        else:
            outcome = "upstream_cut"
        self._end(request, exchange, response, outcome, body.sent)

    def _end(
        self, request: web.Request, exchange: Exchange, response: web.StreamResponse | None, outcome: Outcome, sent: int
    ) -> None:
        self._in_flight.leave()
        ready = exchange.head_ready_at
        waited = (
            (exchange.upstream_done_at - exchange.sent_upstream_at) if exchange.upstream_done_at else exchange.upstream_seconds
        )
        ended = Ended(
            method=request.method,
            target=_PATH.match(request.raw_path)[1],  # type: ignore[index]
            status=0 if response is None else response.status,
            outcome=outcome,
            seconds=time.perf_counter() - exchange.started,
            overhead=max(0.0, ready - exchange.started - waited) if ready else 0.0,
            first_byte=ready - exchange.started if ready else None,
            sent=sent,
            upload=request.headers.get("Content-Encoding", "identity") if request.body_exists else None,
            coding="identity" if response is None else response.headers.get("Content-Encoding", "identity"),
        )
        self._recorder.ended(exchange, ended)


def _answered(exchange: Exchange) -> Outcome:
    """The outcome of an exchange whose answer went out whole."""
    if exchange.refusal is None:
        return "ok"
    if exchange.refusal == "upstream-cut":
        return "upstream_cut"
    return "failed" if exchange.refusal.startswith(("upstream-", "internal")) else "refused"
