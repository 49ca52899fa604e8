"""Errors as RFC 9457 has them, once, and never with a byte that somebody sent."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support.client import ask
from support.gateways import ROOT

from middleware.exchange import exchange_of
from middleware.problems import CODES, Problem, internal_response, problem_response, problems

CONTRACT = {
    "base-unknown": 415, "bad-request": 400, "bad-coding": 400, "unsupported-coding": 415, "too-large": 413,
    "headers-too-large": 431, "unauthorized": 401, "forbidden": 403, "rate-limited": 429, "no-route": 404,
    "upstream-unreachable": 502, "upstream-timeout": 504, "upstream-cut": 502, "shutting-down": 503,
}  # fmt: skip
"""Contract 6."""


def test_the_codes_are_those_of_the_contract() -> None:
    assert {code: status for code, (status, _) in CODES.items()} == CONTRACT


@pytest.mark.parametrize("code", list(CODES))
def test_a_problem_is_a_document_of_its_own_type(code: str) -> None:
    response = problem_response(Problem(code, "what was wrong", fields={"X-A": "1"}))
    document = json.loads(response.body.content)  # type: ignore[union-attr]
    assert document == {
        "type": f"urn:packhorse:{code}", "title": CODES[code][1], "status": CONTRACT[code], "detail": "what was wrong",
    }  # fmt: skip
    assert response.status == CONTRACT[code]
    assert response.headers["Content-Type"] == "application/problem+json"
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["X-A"] == "1"


def test_a_status_may_be_a_closer_one() -> None:
    response = problem_response(Problem("bad-request", "no such expectation", status=417))
    assert (response.status, json.loads(response.body.content)["status"]) == (417, 417)  # type: ignore[union-attr]


@pytest.mark.parametrize("code", list(CODES))
def test_whose_fault_it_is(code: str) -> None:
    assert Problem(code, "x").upstream_fault == code.startswith("upstream-")


def test_a_code_nobody_knows_is_a_fault_of_ours() -> None:
    with pytest.raises(KeyError):
        Problem("new", "x")


SECRET = "sk-secret-of-a-client"


async def served(aiohttp_server: Any, handler: Any) -> Any:
    seen: list[Any] = []

    @web.middleware
    async def outside(request: web.Request, handler: Any) -> web.StreamResponse:
        seen.append(exchange_of(request))
        return await handler(request)

    app = web.Application(middlewares=[outside, problems])
    app.router.add_route("*", "/", handler)
    response = await ask((await aiohttp_server(app)).port, "POST", "/", [("Authorization", SECRET)], SECRET.encode())
    return response, seen[0]


async def test_what_is_raised_is_answered_and_noted(aiohttp_server: Any) -> None:
    async def handler(request: web.Request) -> web.Response:
        raise Problem("rate-limited", "later", fields={"Retry-After": "1"})

    response, exchange = await served(aiohttp_server, handler)
    assert (response.status, response.text("retry-after")) == (429, "1")
    assert exchange.refusal == "rate-limited"


async def test_a_fault_of_our_own_says_nothing_but_that_it_happened(
    aiohttp_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(request: web.Request) -> web.Response:
        raise ValueError(f"cannot read {(await request.read()).decode()}")

    with caplog.at_level(logging.DEBUG):
        response, exchange = await served(aiohttp_server, handler)
    assert json.loads(response.body) == {"type": "about:blank", "title": "Internal Server Error", "status": 500}
    assert response.status == 500
    assert exchange.refusal == "internal"
    ours = [record for record in caplog.records if record.name.startswith("packhorse")]
    assert len(ours) == 1
    said = logging.Formatter().format(ours[0])
    assert "ValueError" in said
    assert "test_problems.py" in said  # where it happened
    assert SECRET not in said


async def test_a_fault_that_was_chained_does_not_tell_by_its_cause(
    aiohttp_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(request: web.Request) -> web.Response:
        try:
            raise KeyError((await request.read()).decode())
        except KeyError as cause:
            raise RuntimeError("wrapped") from cause

    with caplog.at_level(logging.DEBUG):
        await served(aiohttp_server, handler)
    said = "".join(logging.Formatter().format(record) for record in caplog.records if record.name.startswith("packhorse"))
    assert said
    assert SECRET not in said


async def test_aiohttps_own_answers_pass(aiohttp_server: Any) -> None:
    async def handler(request: web.Request) -> web.Response:
        raise web.HTTPGone(text="short and stout")

    response, exchange = await served(aiohttp_server, handler)
    assert (response.status, response.body, exchange.refusal) == (410, b"short and stout", None)


async def test_what_was_answered_stays(aiohttp_server: Any) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=500, text="the upstream's own")

    response, exchange = await served(aiohttp_server, handler)
    assert (response.status, response.body, exchange.refusal) == (500, b"the upstream's own", None)


def test_an_internal_response_is_not_kept() -> None:
    assert internal_response().headers["Cache-Control"] == "no-store"


def test_no_detail_is_made_of_what_came_from_outside() -> None:
    """Details are sentences of our own; what stands in braces is a limit or a word from a fixed set."""
    import ast

    allowed = {
        "limits.request", "limits.ratio", "limits.layers", "self._limits.request", "self._limits.layers", "self._limit",
        "ACCEPTED", "limit", "error.kind", "which", "self._head_limit",
    }  # fmt: skip
    for folder in ("middleware", "gateway"):
        for path in sorted(Path(ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Problem" and len(node.args) > 1):
                    continue
                for part in ast.walk(node.args[1]):
                    if isinstance(part, ast.FormattedValue):
                        told = ast.unparse(part.value)
                        assert told in allowed, f"{path.name}:{node.lineno} tells {told}: can it hold a client's bytes?"
