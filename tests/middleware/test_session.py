"""Which conversation an exchange belongs to, in the order of contract 5, and what becomes of the ids."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict
from support.client import ask
from support.gateways import gateway_for
from support.messages import FieldsLike, Response
from support.packs import SPOKEN, gzipped
from support.upstream import Reply, upstream

from gateway.principals import Principals
from middleware.exchange import Exchange, exchange_of
from middleware.fields import drop_cookie
from middleware.limits import Limits
from middleware.problems import problems
from middleware.session import SessionFinder, SessionNames, _in_chat_body
from middleware.stores import Owner
from middleware.uploads import UploadReader

HASHER = Principals(bytes(32))
UPSTREAM = "http://up.example"
TAKES_PART = ("Accept-Encoding", SPOKEN)
COOKIE = ("Cookie", "packhorse_session=from-cookie")
NAMED = ("Packhorse-Session", "named")
FOREIGN = ("x-session-id", "foreign")


@dataclass
class Scene:
    """One exchange through a SessionFinder: how it looked to the handler, and what came back."""

    start: Any
    response_headers: list[tuple[str, str]] = field(default_factory=list)
    status: int = 200
    secure: bool = False

    async def __call__(
        self,
        fields: FieldsLike = (),
        *,
        principal: str | None = None,
        kind: str = "prepare",
        body: bytes = b"",
        **sessions: Any,
    ) -> "tuple[Exchange, Response]":
        seen: list[Exchange] = []

        @web.middleware
        async def before(request: web.Request, handler: Any) -> web.StreamResponse:
            exchange = exchange_of(request)
            exchange.principal, exchange.kind, exchange.secure = principal, kind, self.secure
            seen.append(exchange)
            return await handler(request)

        async def handler(request: web.Request) -> web.Response:
            response = web.Response(status=self.status, text="answer")
            response.headers.extend(self.response_headers)
            return response

        finder = SessionFinder(SessionNames(**sessions), HASHER, UploadReader(Limits(), 5), UPSTREAM)
        app = web.Application(middlewares=[before, problems, web.middleware(finder)])
        app.router.add_route("*", "/", handler)
        server = await self.start(app, auto_decompress=False)
        response = await ask(server.port, "POST" if body else "GET", "/", fields, body)
        return seen[0], response


@pytest.fixture
def scene(aiohttp_server: Any) -> Scene:
    return Scene(aiohttp_server)


def own(session: str) -> Owner:
    """The owner of a session that its caller named, without credentials: the session is the scope."""
    hashed = HASHER.of("own", session)
    return Owner(f"session:{hashed} {UPSTREAM}", hashed)


def of_alice(kind: str, session: str) -> Owner:
    return Owner(f"alice {UPSTREAM}", HASHER.of(kind, session))


# The order


@pytest.mark.parametrize(
    ("fields", "owner"),
    [
        ([NAMED, FOREIGN, COOKIE, TAKES_PART], own("named")),
        ([COOKIE, TAKES_PART], own("from-cookie")),
        ([FOREIGN, COOKIE, TAKES_PART], own("from-cookie")),  # a guessable id is nothing without credentials
        ([FOREIGN], None),
        ([], None),
        ([("Accept-Encoding", "gzip, zstd")], None),  # nothing is made for who does not take part
    ],
)
async def test_without_credentials(scene: Scene, fields: FieldsLike, owner: Owner | None) -> None:
    exchange, response = await scene(fields)
    assert (exchange.owner, exchange.made_session) == (owner, None)
    assert response.names().count("set-cookie") == 0
    assert "packhorse-session" not in response.names()


CHAT = json.dumps({"prompt_cache_key": "key", "messages": []}).encode()


@pytest.mark.parametrize(
    ("fields", "kind", "owner"),
    [
        ([NAMED, FOREIGN, COOKIE, TAKES_PART], "openai", of_alice("own", "named")),
        ([FOREIGN, COOKIE, TAKES_PART], "openai", of_alice("field x-session-id", "foreign")),
        ([COOKIE, TAKES_PART], "openai", of_alice("own", "from-cookie")),
        ([TAKES_PART], "openai", of_alice("chat", "key")),
        ([TAKES_PART], "anthropic", of_alice("chat", "key")),
        ([TAKES_PART], "prepare", Owner(f"alice {UPSTREAM}", "principal")),  # no chat route: no id in its bodies
        ([], "openai", Owner(f"alice {UPSTREAM}", "principal")),  # and none is read for who does not take part
    ],
)
async def test_with_credentials(scene: Scene, fields: FieldsLike, kind: str, owner: Owner) -> None:
    exchange, _ = await scene(fields, principal="alice", kind=kind, body=CHAT)
    assert (exchange.owner, exchange.made_session) == (owner, None)


async def test_foreign_fields_have_an_order_of_their_own(scene: Scene) -> None:
    names = SessionNames().headers
    for index, name in enumerate(names):
        fields = [(later, f"id-{later}") for later in reversed(names[index:])]
        exchange, _ = await scene(fields, principal="alice")
        assert exchange.owner == of_alice(f"field {name}", f"id-{name}")


async def test_the_foreign_fields_are_a_setting(scene: Scene) -> None:
    exchange, _ = await scene([("x-mine", "a"), FOREIGN], principal="alice", headers=("x-mine",))
    assert exchange.owner == of_alice("field x-mine", "a")
    exchange, _ = await scene([FOREIGN], principal="alice", headers=())
    assert exchange.owner == Owner(f"alice {UPSTREAM}", "principal")


async def test_an_empty_foreign_field_is_none(scene: Scene) -> None:
    exchange, _ = await scene([("x-litellm-session-id", ""), FOREIGN], principal="alice")
    assert exchange.owner == of_alice("field x-session-id", "foreign")


async def test_the_same_id_from_another_place_is_another_session(scene: Scene) -> None:
    owners = set()
    for fields in ([("Packhorse-Session", "same")], [("x-session-id", "same")], [("session-id", "same")]):
        exchange, _ = await scene(fields, principal="alice")
        owners.add(exchange.owner)
    assert len(owners) == 3


@pytest.mark.parametrize("foreign", ["x" * 4000, "a b;c,d", "../../etc/passwd", "Grüße", "\xff\xfe"])
async def test_a_foreign_id_may_hold_anything_and_is_only_ever_a_hash(scene: Scene, foreign: str) -> None:
    exchange, response = await scene([("x-session-id", foreign)], principal="alice")
    assert response.status == 200
    assert exchange.owner is not None
    assert len(exchange.owner.session) == 32
    assert foreign not in repr(exchange.owner)


# Our own field


@pytest.mark.parametrize("name", ["a", "A-Z.a_z-09", "x" * 128, "0", "..."])
async def test_an_opaque_name(scene: Scene, name: str) -> None:
    exchange, response = await scene([("Packhorse-Session", name)])
    assert (response.status, exchange.owner, exchange.opted_in) == (200, own(name), True)


@pytest.mark.parametrize(
    "given",
    [
        [""],
        ["x" * 129],
        ["a b"],
        ["a,b"],
        ["a/b"],
        ["ü"],
        ["\xff"],
        ['"a"'],
        ["a;b"],
        ["a", "a"],
        ["a", "b"],
        ["$x"],
        ["sha256:0"],
    ],
)
async def test_a_malformed_name_is_a_400(scene: Scene, given: list[str]) -> None:
    _, response = await scene([("Packhorse-Session", name) for name in given])
    assert (response.status, json.loads(response.body)["type"]) == (400, "urn:packhorse:bad-request")
    assert not any(name and name in response.body.decode() for name in given if len(name) > 1)


async def test_only_our_own_names_opt_a_client_in(scene: Scene) -> None:
    for fields, principal, opted_in in (
        ([NAMED], None, True),
        ([COOKIE], "alice", True),
        ([TAKES_PART], None, True),  # the gateway made one
        ([FOREIGN], "alice", False),
        ([], "alice", False),
        ([], None, False),
    ):
        exchange, _ = await scene(fields, principal=principal)
        assert exchange.opted_in is opted_in, (fields, principal)


# The session the gateway makes


async def test_who_takes_part_is_told_its_new_session(scene: Scene) -> None:
    made = set()
    for _ in range(5):
        exchange, response = await scene([TAKES_PART])
        name = response.text("packhorse-session")
        assert name is not None
        assert exchange.owner == own(name)
        assert len(name) == 22  # 128 bits
        assert response.text("set-cookie") == f"packhorse_session={name}; Path=/; HttpOnly; SameSite=Lax"
        assert response.text("cache-control") == "private"
        made.add(name)
    assert len(made) == 5


async def test_the_cookie_is_for_https_alone_where_the_client_speaks_it(scene: Scene) -> None:
    scene.secure = True
    _, response = await scene([TAKES_PART])
    assert (response.text("set-cookie") or "").endswith("; HttpOnly; SameSite=Lax; Secure")


@pytest.mark.parametrize(
    ("headers", "cache_control"),
    [
        ([], ["private"]),
        ([("Cache-Control", "no-cache")], ["private, no-cache"]),
        ([("Cache-Control", "no-cache"), ("Cache-Control", "must-revalidate")], ["private, no-cache, must-revalidate"]),
        ([("Cache-Control", "private, max-age=60")], ["private, max-age=60"]),
        ([("Cache-Control", "no-store")], ["private, no-store"]),
        ([("Cache-Control", "max-age=0")], ["private, max-age=0"]),
        ([("Cache-Control", "private"), ("Expires", "Thu, 01 Jan 2099 00:00:00 GMT")], ["private"]),
    ],
)
async def test_an_answer_that_sets_a_session_is_private(
    scene: Scene, headers: list[tuple[str, str]], cache_control: list[str]
) -> None:
    scene.response_headers = headers
    _, response = await scene([TAKES_PART])
    assert response.text("packhorse-session")
    assert [value.decode() for value in response.values("cache-control")] == cache_control


@pytest.mark.parametrize(
    "headers",
    [
        [("Cache-Control", "public")],
        [("Cache-Control", "max-age=60")],
        [("Cache-Control", "s-maxage=60")],
        [("Cache-Control", "s-maxage=0")],
        [("Cache-Control", "no-cache, public")],
        [("Expires", "Thu, 01 Jan 2099 00:00:00 GMT")],
    ],
)
async def test_an_answer_that_a_shared_cache_may_keep_sets_none(scene: Scene, headers: list[tuple[str, str]]) -> None:
    scene.response_headers = headers
    exchange, response = await scene([TAKES_PART])
    assert exchange.owner is None  # nor is anything kept for a session nobody will ever name
    assert not {"packhorse-session", "set-cookie"}.intersection(response.names())
    assert [(name, value.encode()) for name, value in headers if name == "Cache-Control"] == [
        ("Cache-Control", value) for value in response.values("cache-control")
    ]


async def test_a_refusal_sets_none(aiohttp_server: Any) -> None:
    async with upstream(Reply()) as up, gateway_for(up, limits={"request": 5}) as gateway:
        response = await ask(gateway, "POST", "/", [TAKES_PART], b"too much")
        assert response.status == 413
        assert "set-cookie" not in response.names()


async def test_the_upstreams_own_cookies_stay(scene: Scene) -> None:
    scene.response_headers = [("Set-Cookie", "theirs=1; Path=/")]
    _, response = await scene([TAKES_PART])
    assert response.values("set-cookie")[0] == b"theirs=1; Path=/"
    assert len(response.values("set-cookie")) == 2


# Our cookie ends here


@pytest.mark.parametrize(
    ("lines", "sent"),
    [
        (["packhorse_session=abc"], []),
        (["packhorse_session=abc; a=1"], ["a=1"]),
        (["a=1; packhorse_session=abc"], ["a=1"]),
        (["a=1; packhorse_session=abc; b=2"], ["a=1; b=2"]),
        (['a="x y";b=2 ;  packhorse_session=abc;c=%20='], ['a="x y";b=2 ;c=%20=']),
        (["packhorse_session=abc;a=1"], ["a=1"]),
        (["packhorse_session=a; packhorse_session=b; c=3"], ["c=3"]),
        (["a=1", "packhorse_session=abc", "b=2"], ["a=1", "b=2"]),
        (["packhorse_session=not valid!; a=1"], ["a=1"]),
        (["packhorse_session"], []),
        # not ours
        (["xpackhorse_session=abc; a=1"], ["xpackhorse_session=abc; a=1"]),
        (["packhorse_session2=abc"], ["packhorse_session2=abc"]),
        (["a=packhorse_session"], ["a=packhorse_session"]),
        (["Packhorse_Session=abc"], ["Packhorse_Session=abc"]),  # cookie names have a case
        (["a=1;;b=2"], ["a=1;;b=2"]),
        (["", "a=1"], ["", "a=1"]),
    ],
)
def test_ours_goes_and_the_others_keep_their_bytes(lines: list[str], sent: list[str]) -> None:
    headers = CIMultiDict([("A", "1"), *(("Cookie", line) for line in lines), ("B", "2")])
    drop_cookie(headers)
    assert headers.getall("Cookie", []) == sent
    assert (headers["A"], headers["B"]) == ("1", "2")


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("packhorse_session=abc", "abc"),
        ("a=1; packhorse_session=abc", "abc"),
        ("packhorse_session=bad value; packhorse_session=good", "good"),
        ('packhorse_session="abc"', None),
        ("packhorse_session=", None),
        ("packhorse_session=" + "x" * 129, None),
        ("packhorse_session", None),
    ],
)
async def test_a_cookie_that_is_none_of_ours_is_no_400(scene: Scene, line: str, named: str | None) -> None:
    exchange, response = await scene([("Cookie", line)])
    assert (response.status, exchange.owner) == (200, None if named is None else own(named))


# Ids in chat bodies


@pytest.mark.parametrize(
    ("document", "found"),
    [
        ({"prompt_cache_key": "a", "metadata": {"session_id": "b", "user_id": "c"}}, "a"),
        ({"metadata": {"session_id": "b", "user_id": "c"}}, "b"),
        ({"metadata": {"user_id": "c"}}, "c"),
        ({"prompt_cache_key": "", "metadata": {"user_id": "c"}}, "c"),
        ({"prompt_cache_key": 7, "metadata": {"session_id": ["x"], "user_id": "c"}}, "c"),
        ({"metadata": "text"}, None),
        ({"metadata": None}, None),
        ({"user": "c"}, None),
        ({}, None),
        ([], None),
        ("text", None),
        (7, None),
    ],
)
def test_the_providers_own_field(document: object, found: str | None) -> None:
    assert _in_chat_body(json.dumps(document).encode()) == found


@settings(deadline=None)
@given(st.one_of(st.none(), st.binary(max_size=40), st.text(max_size=40).map(str.encode)))
def test_a_body_that_is_no_json_has_no_id(body: bytes | None) -> None:
    assert _in_chat_body(body) is None or b"{" in (body or b"")


@pytest.mark.parametrize("depth", [10_000, 1_000_000])
def test_a_body_of_nothing_but_brackets_has_no_id(depth: int) -> None:
    assert _in_chat_body(b"[" * depth + b"]" * depth) is None


def test_a_lone_surrogate_is_an_id_like_any_other() -> None:
    found = _in_chat_body(b'{"prompt_cache_key": "\\ud800"}')
    assert found is None or HASHER.of("chat", found)


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_the_id_in_a_coded_body_counts_once_it_is_decoded(scene: Scene, kind: str) -> None:
    fields = [TAKES_PART, ("Content-Encoding", "gzip")]
    exchange, _ = await scene(fields, principal="alice", kind=kind, body=gzipped(CHAT))
    assert exchange.owner == of_alice("chat", "key")


async def test_a_body_that_was_read_for_its_id_still_goes_upstream_as_it_came() -> None:
    body = b'  {"prompt_cache_key":"key",  "messages":[]}\n'
    async with upstream(Reply(body=b"{}")) as up, gateway_for(up, kind="openai") as gateway:
        for framing in ("length", "chunked"):
            await ask(
                gateway, "POST", "/v1/chat/completions", [TAKES_PART, ("Authorization", "Bearer k")], body, framing=framing
            )
            assert up.last.body == body


# Ours never reach the upstream


async def test_neither_session_nor_cookie_goes_upstream() -> None:
    async with upstream(Reply(body=b"x")) as up, gateway_for(up) as gateway:
        fields = [NAMED, ("Cookie", 'a="1, 2";  b=2; packhorse_session=secret'), TAKES_PART, FOREIGN]
        await ask(gateway, "GET", "/", fields)
        assert b"secret" not in up.last.raw_head
        assert "packhorse-session" not in up.last.names()
        assert up.last.value("cookie") == b'a="1, 2";  b=2'
        assert up.last.value("x-session-id") == b"foreign"  # somebody else's field is not ours to take out
