"""Pages of other origins: preflights for our fields, and answers a page may read."""

from typing import Any

import pytest
from support.client import ask
from support.gateways import gateway_for
from support.messages import FieldsLike, Response, values
from support.packs import SPOKEN, pack_client
from support.texts import document
from support.twins import growing, turn_of
from support.upstream import Reply, upstream

PAGE = "https://page.example"
PREFLIGHT = [
    ("Origin", PAGE),
    ("Access-Control-Request-Method", "POST"),
    ("Access-Control-Request-Headers", "content-type,ctxpack-accept,ctxpack-base,packhorse-session"),
]
ALLOWED = ["content-type", "ctxpack-accept", "ctxpack-base", "packhorse-session"]


async def asked(
    method: str, fields: FieldsLike, reply: Reply, origins: list[str] | None = None, **over: Any
) -> tuple[Response, list[Any]]:
    """The answer of a gateway for these origins, and what reached the upstream."""
    async with upstream(reply) as up, gateway_for(up, cors={"origins": origins or [PAGE]}, **over) as gateway:
        return await ask(gateway, method, "/x", fields), list(up.requests)


def of_cors(response: Response) -> set[str]:
    return {name for name in response.names() if name.startswith("access-control-")}


@pytest.mark.parametrize("reply", [Reply(404), Reply(405), Reply(200, [], b"no CORS here"), Reply(204), Reply(500), Reply(302)])
async def test_a_preflight_is_answered_where_the_upstream_knows_nothing_of_it(reply: Reply) -> None:
    response, requests = await asked("OPTIONS", PREFLIGHT, reply)
    assert len(requests) == 1  # it was asked first
    assert (response.status, response.body) == (204, b"")
    assert response.text("access-control-allow-origin") == PAGE
    assert response.text("access-control-allow-methods") == "POST"
    assert response.members("access-control-allow-headers") == ALLOWED
    assert response.text("access-control-max-age") == "7200"
    assert response.text("access-control-allow-credentials") == "true"
    assert {"origin", "access-control-request-method", "access-control-request-headers"} <= set(response.members("vary"))


@pytest.mark.parametrize(
    ("upstreams", "headers"),
    [
        ("content-type", ["content-type", "ctxpack-accept", "ctxpack-base", "packhorse-session"]),
        ("Ctxpack-Base, content-type", ["ctxpack-base", "content-type", "ctxpack-accept", "packhorse-session"]),
        ("*", ["*"]),
    ],
)
async def test_a_preflight_the_upstream_answers_is_extended_by_our_fields(upstreams: str, headers: list[str]) -> None:
    theirs = [
        ("Access-Control-Allow-Origin", PAGE),
        ("Access-Control-Allow-Headers", upstreams),
        ("Access-Control-Allow-Methods", "GET, POST"),
        ("Access-Control-Max-Age", "5"),
    ]
    response, _ = await asked("OPTIONS", PREFLIGHT, Reply(204, theirs))
    assert response.members("access-control-allow-headers") == headers
    assert response.text("access-control-allow-methods") == "GET, POST"
    assert response.text("access-control-max-age") == "5"


async def test_a_preflight_without_our_fields_stays_as_the_upstream_answered_it() -> None:
    theirs = [("Access-Control-Allow-Origin", PAGE), ("Access-Control-Allow-Headers", "x-a")]
    fields = [*PREFLIGHT[:2], ("Access-Control-Request-Headers", "x-a")]
    response, _ = await asked("OPTIONS", fields, Reply(204, theirs))
    assert response.text("access-control-allow-headers") == "x-a"


@pytest.mark.parametrize(
    ("origins", "origin", "allowed"),
    [
        ([PAGE], PAGE, True),
        (["https://other.example", PAGE], PAGE, True),
        (["HTTPS://Page.Example"], PAGE, True),
        (["*"], PAGE, True),
        ([PAGE], "https://evil.example", False),
        ([PAGE], PAGE + ".evil.example", False),
        ([PAGE], "http://page.example", False),
        ([PAGE], PAGE + ":8443", False),
        ([PAGE], "null", False),
        ([PAGE], "", False),
    ],
)
async def test_only_for_the_origins_that_were_set(origins: list[str], origin: str, allowed: bool) -> None:
    for method, fields in (("OPTIONS", [("Origin", origin), *PREFLIGHT[1:]]), ("GET", [("Origin", origin)])):
        response, _ = await asked(method, fields, Reply(200, [], b"x"), origins)
        assert bool(of_cors(response)) is allowed
        if allowed:
            assert response.text("access-control-allow-origin") == origin
            # credentials never go with "any origin": every page could read what the user may
            assert (response.text("access-control-allow-credentials") == "true") is (origins != ["*"])
        else:
            assert response.status == 200


@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
async def test_who_is_no_page_sees_nothing_of_it(method: str) -> None:
    response, _ = await asked(method, [], Reply(200, [], b"x"))
    assert of_cors(response) == set()


async def test_without_origins_nothing_is_changed() -> None:
    theirs = [("Access-Control-Allow-Origin", "*"), ("Access-Control-Expose-Headers", "X-A")]
    async with upstream(Reply(200, theirs, b"x")) as up, gateway_for(up) as gateway:
        response = await ask(gateway, "OPTIONS", "/x", PREFLIGHT)
        assert [(name.decode(), value.decode()) for name, value in response.fields if b"Access" in name] == theirs


async def test_a_page_may_read_our_fields_that_are_there() -> None:
    fields = [("Origin", PAGE), ("Accept-Encoding", SPOKEN), ("Packhorse-Debug", "1")]
    reply = Reply(200, [("Content-Type", "text/plain"), ("Access-Control-Expose-Headers", "X-Theirs")], document(1))
    response, _ = await asked("GET", fields, reply)
    exposed = response.members("access-control-expose-headers")
    assert exposed[0] == "x-theirs"
    assert {"content-encoding", "ctxpack-digest", "packhorse-session", "packhorse-why", "server-timing"} <= set(exposed)
    assert set(exposed) - {"x-theirs"} <= set(response.names())
    assert "origin" in response.members("vary")


@pytest.mark.parametrize("vary", ["Origin", "origin, Accept", "*"])
async def test_vary_is_merged(vary: str) -> None:
    response, _ = await asked("GET", [("Origin", PAGE)], Reply(200, [("Vary", vary)], b"x"))
    assert response.members("vary").count("origin") <= 1
    assert set(response.members("vary")) & {"origin", "*"}


async def test_what_the_upstream_allows_is_not_overruled() -> None:
    theirs = [("Access-Control-Allow-Origin", "https://other.example")]
    response, _ = await asked("GET", [("Origin", PAGE)], Reply(200, theirs, b"x"))
    assert values(response.fields, "access-control-allow-origin") == [b"https://other.example"]
    assert "access-control-allow-credentials" not in response.names()


async def test_a_page_can_read_a_refusal() -> None:
    async with upstream(Reply()) as up, gateway_for(up, cors={"origins": [PAGE]}, limits={"request": 5}) as gateway:
        response = await ask(gateway, "POST", "/x", [("Origin", PAGE)], b"too much")
    assert (response.status, up.requests) == (413, [])
    assert response.text("access-control-allow-origin") == PAGE


async def test_an_options_request_that_is_no_preflight_is_an_ordinary_one() -> None:
    response, _ = await asked("OPTIONS", [("Origin", PAGE)], Reply(200, [("Allow", "GET")], b"the upstream's"))
    assert (response.status, response.body) == (200, b"the upstream's")
    assert response.text("allow") == "GET"


CROSS_SITE = [("Origin", PAGE), ("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "cors")]


@pytest.mark.parametrize(
    ("theirs", "deltas"),
    [
        ([], True),
        ([("Access-Control-Allow-Origin", PAGE)], True),
        ([("Access-Control-Allow-Origin", "*")], True),
        ([("Access-Control-Allow-Origin", "https://other.example")], False),
        ([("Access-Control-Allow-Origin", "null")], False),
    ],
)
async def test_a_page_gets_deltas_of_what_it_may_read(theirs: list[tuple[str, str]], deltas: bool) -> None:
    """The upstream's word is not overruled, so where it allows another origin alone, this page may not read the answer."""
    async with (
        upstream(growing("prepare", theirs)) as up,
        gateway_for(up, cors={"origins": [PAGE]}) as gateway,
        pack_client(gateway, fields=CROSS_SITE) as client,
    ):
        await turn_of(client, "prepare", 1)
        assert (await turn_of(client, "prepare", 2)).delta is deltas
