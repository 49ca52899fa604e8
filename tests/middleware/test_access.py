"""Who is calling: principals without their secrets, keys of the gateway's own, and neither of them upstream."""

import json
from typing import Any

import pytest
from aiohttp import web
from pydantic import ValidationError
from support.client import ask
from support.gateways import gateway_for
from support.messages import FieldsLike
from support.upstream import Reply, upstream

from gateway.principals import Principals
from middleware.access import CREDENTIALS, Access, AccessKey, Principal
from middleware.exchange import exchange_of
from middleware.problems import problems

ALICE, BOB = "alice-0123456789abcdef", "bob-0123456789abcdef"
ANYONE = Access()
KEYED = Access(keys=(AccessKey(name="alice", key=ALICE), AccessKey(name="bob", key=BOB)))


class Caller:
    """Asks a server with the middleware; the principal it found and the status."""

    def __init__(self, aiohttp_server: Any) -> None:
        self._start = aiohttp_server
        self._ports: dict[int, int] = {}
        self._seen: list[str | None] = []

    async def __call__(self, fields: FieldsLike, access: Access = ANYONE) -> tuple[str | None, int]:
        async def handler(request: web.Request) -> web.Response:
            self._seen.append(exchange_of(request).principal)
            return web.Response()

        if id(access) not in self._ports:
            found = web.middleware(Principal(access, Principals(bytes(32))))
            app = web.Application(middlewares=[problems, found])
            app.router.add_get("/", handler)
            self._ports[id(access)] = (await self._start(app)).port
        self._seen.clear()
        response = await ask(self._ports[id(access)], "GET", "/", fields)
        return (self._seen or [None])[0], response.status


@pytest.fixture
def principal_of(aiohttp_server: Any) -> Caller:
    return Caller(aiohttp_server)


async def test_without_credentials_there_is_no_principal(principal_of: Caller) -> None:
    for fields in ([], [("Cookie", "a=b")], [("Packhorse-Session", "s")], [("Proxy-Authorization", "Basic x")]):
        assert await principal_of(fields) == (None, 200)


@pytest.mark.parametrize("name", CREDENTIALS)
async def test_each_credential_makes_a_principal_that_tells_nothing_of_it(principal_of: Caller, name: str) -> None:
    first, _ = await principal_of([(name, "Bearer sk-secret")])
    assert first is not None
    assert "secret" not in first
    assert await principal_of([(name.upper(), "Bearer sk-secret")]) == (first, 200)
    assert (await principal_of([(name, "Bearer sk-secre")]))[0] != first
    assert (await principal_of([(name, "bearer sk-secret")]))[0] != first


async def test_other_credentials_are_other_principals(principal_of: Caller) -> None:
    """Whatever differs in any of them: a base of one is none of the other's."""
    given: list[FieldsLike] = [
        [("Authorization", "a")],
        [("x-api-key", "a")],
        [("api-key", "a")],
        [("x-goog-api-key", "a")],
        [("Authorization", "a"), ("x-api-key", "b")],
        [("Authorization", "b"), ("x-api-key", "a")],
        [("Authorization", "a"), ("Authorization", "b")],
        [("Authorization", "b"), ("Authorization", "a")],
        [("Authorization", "a, b")],
        [("Authorization", "a x-api-key=b")],
        [("Authorization", "")],
        [("Authorization", "\xe9")],
        [("Authorization", "\xc3\xa9")],
    ]
    found = [(await principal_of(fields))[0] for fields in given]
    assert None not in found
    assert len(set(found)) == len(given)


async def test_the_order_of_different_fields_does_not_matter(principal_of: Caller) -> None:
    one = [("Authorization", "a"), ("x-api-key", "b")]
    assert await principal_of(one) == await principal_of(one[::-1])


# Keys


@pytest.mark.parametrize(
    ("fields", "principal"),
    [
        ([("Packhorse-Key", ALICE)], "key:alice"),
        ([("packhorse-key", f" {BOB} ")], "key:bob"),
        ([("Packhorse-Key", ALICE), ("Authorization", "Bearer x")], "key:alice"),  # the upstream's are not ours to look at
        ([("Packhorse-Key", BOB), ("Packhorse-Session", "s")], "key:bob"),
    ],
)
async def test_a_key_names_its_caller(principal_of: Caller, fields: FieldsLike, principal: str) -> None:
    assert await principal_of(fields, KEYED) == (principal, 200)


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [("Packhorse-Key", "")],
        [("Packhorse-Key", ALICE[:-1])],
        [("Packhorse-Key", ALICE + "x")],
        [("Packhorse-Key", ALICE.upper())],
        [("Packhorse-Key", "alice")],
        [("Packhorse-Key", f"{ALICE}, {BOB}")],
        [("Packhorse-Key", ALICE), ("Packhorse-Key", ALICE)],
        [("Packhorse-Key", "\xff\xfe")],
        [("Packhorse-Key", "ü" * 40)],
        [("Authorization", f"Bearer {ALICE}")],
        [("x-api-key", ALICE)],
    ],
)
async def test_a_stranger_is_a_401(principal_of: Caller, fields: FieldsLike) -> None:
    assert await principal_of(fields, KEYED) == (None, 401)


async def test_a_refusal_says_what_to_send_and_nothing_of_what_was_sent(aiohttp_server: Any) -> None:
    app = web.Application(middlewares=[problems, web.middleware(Principal(KEYED, Principals(bytes(32))))])
    server = await aiohttp_server(app)
    response = await ask(server.port, "GET", "/", [("Packhorse-Key", "wrong-but-secret")])
    assert json.loads(response.body)["type"] == "urn:packhorse:unauthorized"
    assert b"Packhorse-Key" in response.body
    for hidden in (b"wrong-but-secret", ALICE.encode(), BOB.encode(), b"alice", b"bob"):
        assert hidden not in response.body


async def test_the_gateways_key_never_goes_upstream_and_the_upstreams_own_do() -> None:
    keys = [{"name": "alice", "key": ALICE}]
    async with upstream(Reply(body=b"x")) as up, gateway_for(up, access={"keys": keys}) as gateway:
        theirs = [(name, f"for the upstream {name}") for name in CREDENTIALS]
        response = await ask(gateway, "GET", "/", [("Packhorse-Key", ALICE), *theirs])
        assert response.status == 200
        assert "packhorse-key" not in up.last.names()
        assert ALICE.encode() not in up.last.raw_head
        for name, value in theirs:
            assert up.last.value(name) == value.encode()
        assert (await ask(gateway, "GET", "/", theirs)).status == 401
        assert len(up.requests) == 1


@pytest.mark.parametrize("kind", ["plain", "prepare"])
async def test_a_key_is_asked_for_before_a_body_is_read(kind: str) -> None:
    keys = [{"name": "alice", "key": ALICE}]
    async with upstream(Reply()) as up, gateway_for(up, kind=kind, access={"keys": keys}) as gateway:
        response = await ask(gateway, "POST", "/", [("Content-Length", "100000"), ("Expect", "100-continue")], framing="none")
        assert (response.status, response.interim, up.requests) == (401, [], [])


@pytest.mark.parametrize(
    "key",
    [
        {"name": "a b", "key": ALICE},
        {"name": "", "key": ALICE},
        {"name": "x" * 65, "key": ALICE},
        {"name": "a", "key": "short"},
    ],
)
def test_settings_that_could_not_work_are_refused(key: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        Access.model_validate({"keys": [key]})
