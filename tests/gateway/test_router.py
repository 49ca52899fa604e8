"""From a request to its route, by itself and over real sockets: which upstream is asked, and for what target to the byte."""

import contextlib
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from support.client import ask, connect
from support.gateways import gateway_for
from support.scrapes import counted
from support.upstream import Reply, Upstream, upstream

from gateway.router import METHODS, Built, Router
from middleware.problems import Problem

MATCHES = ["/", "/v1", "/v1/chat/", "/v1/chat/x", "/a%2Fb", "/v1beta"]


async def _unused(request: web.Request) -> web.StreamResponse:
    raise AssertionError("choosing serves nothing")


ROUTER = Router([Built(match, match, "plain", _unused) for match in MATCHES], _unused)
NARROW = Router([Built("v1", "/v1", "plain", _unused)], _unused)


@pytest.mark.parametrize(
    ("target", "match"),
    [
        ("/", "/"),
        ("/x?y", "/"),
        ("/v1", "/v1"),
        ("/v1?a=/v1/chat/x", "/v1"),
        ("/v1/chat", "/v1/chat/"),
        ("/v1/chat/", "/v1/chat/"),
        ("/v1/chatter", "/v1"),
        ("/v1/chat/x/y", "/v1/chat/x"),
        ("/v1/chat/xy", "/v1/chat/"),
        ("/v1/chat%2Fx", "/v1"),
        ("/v1beta/models", "/v1beta"),
        ("/v1bet", "/"),
        ("/a%2Fb/c", "/a%2Fb"),
        ("/a%2fb/c", "/"),
        ("/a/b/c", "/"),
        ("//v1/chat", "/"),
        ("/V1", "/"),
        ("http://other.example/v1/chat", "/v1/chat/"),
        ("http://other.example", "/"),
        ("http://v1/chat", "/"),
    ],
)
def test_the_longest_prefix_of_whole_segments_wins(target: str, match: str) -> None:
    assert ROUTER.choose("GET", target).match == match


def test_the_order_of_the_settings_decides_nothing() -> None:
    for matches in (MATCHES, MATCHES[::-1], sorted(MATCHES)):
        router = Router([Built(match, match, "plain", _unused) for match in matches], _unused)
        assert router.choose("GET", "/v1/chat/x").match == "/v1/chat/x"
        assert router.choose("GET", "/zzz").match == "/"


@pytest.mark.parametrize(
    ("method", "target", "code", "status"),
    [
        ("GET", "/", "no-route", 404),
        ("GET", "/v1x", "no-route", 404),
        ("GET", "", "bad-request", 400),
        ("GET", "*", "bad-request", 400),
        ("GET", "/v1#x", "bad-request", 400),
        ("GET", "/v1/../x", "bad-request", 400),
        ("GET", "/v1/%2e%2e/x", "bad-request", 400),
        ("CONNECT", "/v1", "bad-request", 405),
        ("CONNECT", "h:443", "bad-request", 405),
    ],
)
def test_what_no_route_can_take_is_a_problem(method: str, target: str, code: str, status: int) -> None:
    with pytest.raises(Problem) as refused:
        NARROW.choose(method, target)
    assert (refused.value.code, refused.value.status) == (code, status)


@settings(deadline=None)
@given(st.sampled_from(["GET", "CONNECT", "OPTIONS", "X"]), st.text(max_size=60) | st.text("/.%2eE:?#v1*\\", max_size=40))
def test_choosing_raises_nothing_but_problems(method: str, target: str) -> None:
    for router in (ROUTER, NARROW):
        with contextlib.suppress(Problem):
            router.choose(method, target)


@contextlib.asynccontextmanager
async def two(**route: object) -> AsyncIterator[tuple[Upstream, Upstream, object]]:
    """``/`` on one upstream and ``/v1`` on another."""
    async with upstream(Reply(200, [], b"root")) as root, upstream(Reply(200, [], b"v1")) as v1:
        base = route.pop("base", "")
        routes = [
            {"name": "root", "match": "/", "upstream": root.url, "kind": "plain"},
            {"name": "v1", "match": "/v1", "upstream": f"{v1.url}{base}", "kind": "plain", **route},
        ]
        async with gateway_for(None, routes=routes) as gateway:
            yield root, v1, gateway


@pytest.mark.parametrize(
    ("target", "to", "seen"),
    [
        ("/v1/a?b=%20", "v1", "/v1/a?b=%20"),
        ("/v1", "v1", "/v1"),
        ("/v1?", "v1", "/v1?"),
        ("/v1/", "v1", "/v1/"),
        ("/v1%2Fa", "root", "/v1%2Fa"),
        ("/v1/a%2Fb%zz", "v1", "/v1/a%2Fb%zz"),
        ("//v1/a", "root", "//v1/a"),
        ("//evil.example/v1", "root", "//evil.example/v1"),
        ("/v1//a", "v1", "/v1//a"),
        ("/v1/a/../b", "v1", "/v1/a/../b"),
        ("http://evil.example/v1/a?x", "v1", "/v1/a?x"),
        ("http://evil.example", "root", "/"),
        ("HTTP://v1/x?http://y", "root", "/x?http://y"),
    ],
)
async def test_the_target_reaches_the_chosen_upstream_to_the_byte(target: str, to: str, seen: str) -> None:
    async with two() as (root, v1, gateway):
        response = await ask(gateway, "GET", target)
        assert (response.status, response.body) == (200, to.encode())
        chosen, other = (v1, root) if to == "v1" else (root, v1)
        assert chosen.targets() == [seen.encode()]
        assert not other.requests
        assert chosen.last.value("host") == chosen.authority.encode()


@pytest.mark.parametrize(
    ("base", "strip", "target", "seen"),
    [
        ("", True, "/v1/a?b", "/a?b"),
        ("", True, "/v1", "/"),
        ("", True, "/v1?x", "/?x"),
        ("", True, "/v1/", "/"),
        ("", True, "/v1//a", "//a"),
        ("", True, "/v1/a%2Fb/%zz?", "/a%2Fb/%zz?"),
        ("/base", False, "/v1/a", "/base/v1/a"),
        ("/base/", False, "/v1/a?", "/base/v1/a?"),
        ("/base", True, "/v1/a", "/base/a"),
        ("/base/", True, "/v1", "/base/"),
        ("/ba%2Fse", True, "/v1//x%zz?q=%", "/ba%2Fse//x%zz?q=%"),
        ("/base", True, "http://evil.example/v1/a?b", "/base/a?b"),
    ],
)
async def test_the_prefix_is_taken_off_where_asked_and_the_upstreams_own_path_comes_first(
    base: str, strip: bool, target: str, seen: str
) -> None:
    async with two(base=base, strip_prefix=strip) as (_, v1, gateway):
        assert (await ask(gateway, "GET", target)).status == 200
        assert v1.targets() == [seen.encode()]


@pytest.mark.parametrize("target", ["/v1/../x", "/v1/%2e%2e/x", "/v1/a/../../x?y", "/.."])
@pytest.mark.parametrize("strip", [False, True])
async def test_dots_that_lead_out_of_a_route_reach_no_upstream(target: str, strip: bool) -> None:
    async with two(strip_prefix=strip) as (root, v1, gateway):
        response = await ask(gateway, "GET", target)
        assert response.status == 400
        assert b"urn:packhorse:bad-request" in response.body
        assert not root.requests
        assert not v1.requests


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [("OPTIONS", "*", 204), ("CONNECT", "h:443", 405), ("CONNECT", "/v1", 405), ("GET", "*", 400)],
)
async def test_star_and_connect_are_answered_before_any_route(method: str, target: str, status: int) -> None:
    async with two() as (root, v1, gateway), connect(gateway) as client:
        response = await client.ask(method, target)
        assert response.status == status
        assert response.text("allow") == (None if status == 400 else METHODS)
        assert response.body == b"" or b"urn:packhorse:bad-request" in response.body
        assert not root.requests
        assert not v1.requests
        scrape = await counted(gateway, "packhorse_requests_total", route="none")
        assert scrape.total("packhorse_requests_total") == 1


async def test_options_of_a_path_are_the_upstreams_to_answer() -> None:
    async with two() as (_, v1, gateway):
        assert (await ask(gateway, "OPTIONS", "/v1/a")).body == b"v1"
        assert v1.last.method == b"OPTIONS"


async def test_without_a_route_the_answer_is_a_404_problem_that_names_nothing() -> None:
    async with upstream(Reply()) as up, gateway_for(up, route={"match": "/v1"}) as gateway:
        response = await ask(gateway, "GET", "/secret-path?key=1")
        assert (response.status, response.text("content-type")) == (404, "application/problem+json")
        assert b"urn:packhorse:no-route" in response.body
        assert b"secret" not in response.body
        assert not up.requests
