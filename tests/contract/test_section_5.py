"""Contract, section 5: sessions."""

import json
import re
import ssl
import subprocess

import pytest
from contract.kit import Client, Holder, Reply, ask, fresh, gateway, get, is_delta, name, text_reply, until
from support.texts import lines

FIRST, SECOND = lines(100), lines(104)
FOREIGN = [
    "x-litellm-session-id", "helicone-session-id", "x-headroom-session-id", "x-claude-code-session-id", "x-codex-session-id",
    "session-id", "session_id", "x-session-id",
]  # fmt: skip
SPEAKS = ("Accept-Encoding", "ctxpack.delta.v1, gzip")


def sessions(gw) -> float:
    return gw.metrics().total("packhorse_sessions")


def one_session(up, gw, asked: list[tuple[str, str, list[tuple[str, str]], bytes]]) -> int:
    """How many sessions those requests (method, path prefix, fields, body) made."""
    before = sessions(gw)
    for number, (method, prefix, fields, body) in enumerate(asked):
        path = up.at(fresh(prefix), text_reply(lines(20, 1000 + number)))
        assert ask(gw, method, path, [SPEAKS, *fields], body).status == 200
    until(lambda: gw.metrics().total("packhorse_in_flight") == 0)
    return int(sessions(gw) - before)


@pytest.fixture(scope="module")
def own(up):
    """A gateway of this file's own, so that its sessions can be counted."""
    routes = [
        {"name": "r", "match": "/", "upstream": up.url, "kind": "prepare"},
        {"name": "chat", "match": "/v1", "upstream": up.url, "kind": "openai"},
        {"name": "claude", "match": "/anthropic", "upstream": up.url, "kind": "anthropic"},
    ]
    with gateway(up, routes=routes) as made:
        yield made


@pytest.mark.parametrize("field", FOREIGN)
def test_foreign_headers_carry_a_session(up, own, field):
    """a header named in `session.headers` (default, in order: ...)"""
    key = ("x-api-key", name())
    same = [("GET", "", [key, (field, "a")], b"")] * 2
    assert one_session(up, own, same) == 1
    assert one_session(up, own, [*same, ("GET", "", [key, (field, "b")], b"")]) == 1, "the first two are the session of before"


def test_packhorse_session_comes_before_foreign_headers(up, own):
    """First that applies: `Packhorse-Session`; a header named in `session.headers`"""
    key = ("x-api-key", name())
    asked = [("GET", "", [key, ("Packhorse-Session", "same"), ("x-session-id", other)], b"") for other in ("1", "2", "3")]
    assert one_session(up, own, asked) == 1


@pytest.mark.parametrize(("earlier", "later"), list(zip(FOREIGN, FOREIGN[1:], strict=False)))
def test_foreign_headers_in_order(up, own, earlier, later):
    """(default, in order: `x-litellm-session-id`, `helicone-session-id`, ...)"""
    key = ("x-api-key", name())
    asked = [("GET", "", [key, (later, other), (earlier, "same")], b"") for other in ("1", "2", "3")]
    assert one_session(up, own, asked) == 1


def test_foreign_headers_come_before_the_cookie(up, own):
    """a header named in `session.headers`; the cookie `packhorse_session`"""
    key = ("x-api-key", name())
    asked = [("GET", "", [key, ("x-session-id", "same"), ("Cookie", f"packhorse_session=c{n}")], b"") for n in range(3)]
    assert one_session(up, own, asked) == 1
    asked = [("GET", "", [key, ("Cookie", f"packhorse_session=c{n}")], b"") for n in range(3)]
    assert one_session(up, own, asked) == 3


def test_the_cookie_comes_before_the_body(up, own):
    """the cookie `packhorse_session`; for chat bodies, once decoded, the provider's own field"""
    key = ("x-api-key", name())
    asked = [
        ("POST", "/v1", [key, ("Cookie", "packhorse_session=same")], json.dumps({"prompt_cache_key": f"k{n}"}).encode())
        for n in range(3)
    ]
    assert one_session(up, own, asked) == 1


@pytest.mark.parametrize(
    ("prefix", "of"),
    [
        ("/v1", lambda value: {"prompt_cache_key": value, "model": "m"}),
        ("/v1", lambda value: {"metadata": {"session_id": value}}),
        ("/anthropic", lambda value: {"metadata": {"user_id": value}}),
        ("/anthropic", lambda value: {"metadata": {"session_id": value}}),
    ],
)
def test_the_providers_own_field(up, own, prefix, of):
    """for chat bodies, once decoded, the provider's own field (`prompt_cache_key`, `metadata.session_id`, Anthropic `metadata.user_id`)"""
    import gzip

    key = ("x-api-key", name())
    body = json.dumps(of("alpha")).encode()
    asked = [("POST", prefix, [key], body), ("POST", prefix, [key, ("Content-Encoding", "gzip")], gzip.compress(body))]
    assert one_session(up, own, asked) == 1
    assert one_session(up, own, [("POST", prefix, [key], json.dumps(of(f"beta{n}")).encode()) for n in range(2)]) == 2


def test_the_body_of_a_prepare_route_names_no_session(up, own):
    """for chat bodies ... the provider's own field"""
    key = ("x-api-key", name())
    asked = [("POST", "", [key], json.dumps({"prompt_cache_key": f"k{n}"}).encode()) for n in range(3)]
    assert one_session(up, own, asked) == 1


def test_a_caller_with_credentials_has_one_session(up, own):
    """else, for a caller with credentials, one session per principal"""
    key = ("Authorization", "Bearer " + name())
    assert one_session(up, own, [("GET", "", [key], b"")] * 3) == 1
    assert one_session(up, own, [("GET", "", [("Authorization", "Bearer " + name())], b"") for _ in range(3)]) == 3
    response = get(own, up.at(fresh(), text_reply(FIRST)), [SPEAKS, key])
    assert response.values("packhorse-session") == []
    assert response.values("set-cookie") == []


def test_hostile_foreign_ids_are_hashed(up, own):
    """Only a malformed `Packhorse-Session` is a 400; foreign ids are hashed, whatever they hold."""
    key = ("x-api-key", name())
    values = ["../../../tmp/pwn", "..%2f", "a/b", "a_b", "C:\\x", "x" * 10000, ".", "\xff\xfe", 'a"b', "a b", "a,b", "a;b"]
    assert one_session(up, own, [("GET", "", [key, ("x-session-id", value)], b"") for value in values]) == len(values)
    for value in ("", " "):
        assert get(own, up.at(fresh(), text_reply(FIRST)), [key, SPEAKS, ("x-session-id", value)]).status == 200


def test_hostile_ids_of_a_body(up, own):
    """foreign ids are hashed, whatever they hold."""
    key = ("x-api-key", name())
    values = ["../../x", "\u0000", "\ud800", "x" * 100_000, 5, None, [], {}, True, ""]
    for value in values:
        for body in ({"prompt_cache_key": value}, {"metadata": {"session_id": value}}, {"metadata": value}):
            path = up.at(fresh("/v1"), text_reply(FIRST))
            assert ask(own, "POST", path, [SPEAKS, key], json.dumps(body).encode()).status == 200
            assert up.last(path).body == json.dumps(body).encode()


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b"\xff", b'{"metadata": 5}', b"[" * 5000, b'{"a":1e400}', b'"x"', b""])
def test_chat_bodies_that_are_none(up, own, body):
    """It does not guess: what it cannot read passes byte for byte."""
    for prefix in ("/v1", "/anthropic"):
        path = up.at(fresh(prefix), text_reply(FIRST))
        assert ask(own, "POST", path, [SPEAKS, ("x-api-key", "k")], body).status == 200
        assert up.last(path).body == body


# ---------------------------------------------------------------- sessions the gateway makes


@pytest.mark.parametrize("accept", ["dcz", "dcz, gzip", "ctxpack.delta.v1", "ctxpack.pack.v1;q=0.1", "gzip, ctxpack.delta.v1"])
def test_made_for_who_offers_dcz_or_ctxpack(up, gw, accept):
    """else the gateway makes one (128 random bits), but only for a request that offers `dcz` or `ctxpack.*`"""
    path = up.at(fresh(), text_reply(FIRST))
    responses = [get(gw, path, [("Accept-Encoding", accept)]) for _ in range(3)]
    made = {response.text("packhorse-session") for response in responses}
    assert len(made) == 3
    assert None not in made
    for session in made:
        assert len(session) >= 21, "128 bits need 22 characters of Base64"
        assert re.fullmatch(r"[A-Za-z0-9._-]+", session)


@pytest.mark.parametrize("accept", [None, "gzip", "*", "dcz;q=0", "ctxpack.delta.v1;q=0, gzip", "identity"])
@pytest.mark.parametrize("mode", [None, "navigate", "cors"])
def test_made_for_nobody_else(up, gw, accept, mode):
    """but only for a request that offers `dcz` or `ctxpack.*`, or for a browser on a route whose `dictionary` setting is on"""
    path = up.at(fresh(), text_reply(FIRST))
    fields = [*([("Accept-Encoding", accept)] if accept else []), *([("Sec-Fetch-Mode", mode)] if mode else [])]
    response = get(gw, path, fields)
    assert response.values("packhorse-session") == []
    assert response.values("set-cookie") == []
    assert response.values("cache-control") == []


def test_a_response_that_sets_our_session_is_private(up, gw):
    """A response that sets our session carries `Cache-Control: private`"""
    for given in (
        [],
        ["no-cache"],
        ["private"],
        ["max-age=0"],
        ["no-store"],
        ["must-revalidate", "no-cache"],
        ["private, max-age=60"],
        [""],
    ):
        path = up.at(fresh(), text_reply(FIRST, *[("Cache-Control", value) for value in given]))
        response = get(gw, path, [SPEAKS])
        if response.values("set-cookie"):
            assert "private" in response.members("cache-control"), given
            for value in given:
                for member in filter(None, value.split(", ")):
                    assert member in response.members("cache-control")
        else:
            assert response.values("packhorse-session") == [], given


@pytest.mark.parametrize(
    "value", ["public", "public, max-age=60", "s-maxage=5", "max-age=3600", "PUBLIC", "public, no-cache", 'public, private="x"']
)
def test_what_a_shared_cache_may_keep_never_sets_it(up, gw, value):
    """and one that a shared cache may keep never sets it."""
    path = up.at(fresh(), text_reply(FIRST, ("Cache-Control", value)))
    response = get(gw, path, [SPEAKS])
    if "private" in response.members("cache-control") and "public" not in value.lower():
        return  # made private: then no shared cache may keep it
    assert response.values("set-cookie") == []
    assert response.values("packhorse-session") == []
    assert response.text("cache-control") == value


def test_expires_counts_too(up, gw):
    """one that a shared cache may keep never sets it (RFC 9111 3: Expires)"""
    path = up.at(fresh(), text_reply(FIRST, ("Expires", "Thu, 01 Jan 2099 00:00:00 GMT")))
    response = get(gw, path, [SPEAKS])
    assert not response.values("set-cookie") or "private" in response.members("cache-control")


def test_the_cookie(up, gw):
    """The cookie is HttpOnly, SameSite=Lax, Secure on https"""
    path = up.at(fresh(), text_reply(FIRST, ("Set-Cookie", "theirs=1; Path=/")))
    response = get(gw, path, [SPEAKS])
    cookies = [value.decode() for value in response.values("set-cookie")]
    assert cookies[0] == "theirs=1; Path=/"
    (ours,) = cookies[1:]
    assert ours.startswith(f"packhorse_session={response.text('packhorse-session')};")
    attributes = {part.strip().lower() for part in ours.split(";")[1:]}
    assert {"httponly", "samesite=lax"} <= attributes
    assert "secure" not in attributes


def test_the_cookie_is_secure_on_https(up, tmp_path):
    """Secure on https"""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "k.pem", "-out", "c.pem", "-days", "2", "-subj", "/CN=localhost"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    with gateway(up, tls={"certificate": str(tmp_path / "c.pem"), "key": str(tmp_path / "k.pem")}) as gw:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with Client(gw) as client:
            client.socket = context.wrap_socket(client.socket)
            path = up.at(fresh(), text_reply(FIRST))
            response = client.ask("GET", path, [SPEAKS])
            client.socket.close()
        assert "secure" in {part.strip().lower() for part in response.text("set-cookie").split(";")}


def test_the_cookie_is_secure_behind_a_trusted_proxy(up):
    """Secure on https (peers behind a trusted proxy that says `https`)"""
    said = {"trusted": [("X-Forwarded-Proto", "https"), ("X-Forwarded-For", "203.0.113.5")], "not": []}
    for trusted in (["127.0.0.1/32"], []):
        with gateway(up, forwarded="x-forwarded", trusted_proxies=trusted) as gw:
            path = up.at(fresh(), text_reply(FIRST))
            cookie = get(gw, path, [SPEAKS, *said["trusted"]]).text("set-cookie")
            assert ("secure" in cookie.lower()) is bool(trusted)


@pytest.mark.parametrize(
    ("sent", "arrives"),
    [
        ("packhorse_session=abc", None),
        ("a=1; packhorse_session=abc", "a=1"),
        ("packhorse_session=abc; a=1", "a=1"),
        ("a=1; packhorse_session=abc; b=2", "a=1; b=2"),
        ("a=1; xpackhorse_session=abc", "a=1; xpackhorse_session=abc"),
        ("a=packhorse_session=abc", "a=packhorse_session=abc"),
        ("a=1;b=2;  c=\"x y\"", 'a=1;b=2;  c="x y"'),
        ("packhorse_session", "packhorse_session"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("prefix", ["", "/v1", "/plain"])
def test_the_cookie_is_not_sent_upstream(up, gw, prefix, sent, arrives):
    """and is not sent upstream."""
    path = up.at(fresh(prefix), text_reply("fine"))
    get(gw, path, [("Cookie", sent)])
    got = up.last(path).value("cookie")
    if sent == "packhorse_session":
        return
    assert got == (None if arrives is None else arrives.encode())


def test_a_cookie_names_the_session_though_it_is_malformed(up, gw):
    """Only a malformed `Packhorse-Session` is a 400"""
    path = up.at(fresh(), text_reply("fine"))
    for value in ("", "a b", "x" * 4000, "\xff", "../.."):
        assert get(gw, path, [SPEAKS, ("Cookie", f"packhorse_session={value}")]).status == 200


# ---------------------------------------------------------------- named keys


def test_access_on(up):
    """Principals: ... with `access` on, the named key. | `unauthorized`"""
    keys = [{"name": "alice", "key": "alice-key-0123456789"}, {"name": "bob", "key": "bob-key-0123456789ab"}]
    with gateway(up, access={"keys": keys}) as gw:
        path = up.at(fresh(), text_reply(FIRST))
        for fields in ([], [("Packhorse-Key", "wrong-key-0123456789")], [("Packhorse-Key", "")]):
            response = get(gw, path, fields)
            assert response.status == 401, fields
            assert json.loads(response.body)["type"] == "urn:packhorse:unauthorized"
        assert up.seen(path) == []
        alice = Holder(gw, fields=[("Packhorse-Key", keys[0]["key"]), ("Authorization", "Bearer one")])
        alice.get(path)
        assert not [n for n in up.last(path).names() if n.startswith("packhorse")]
        assert up.last(path).value("authorization") == b"Bearer one"
        again = Holder(gw, fields=[("Packhorse-Key", keys[0]["key"]), ("Authorization", "Bearer two")])
        again.hold(FIRST)
        up.at(path, text_reply(SECOND))
        assert is_delta(again.get(path)), "the named key is the principal, whatever the upstream's key"
        bob = Holder(gw, alice.session, fields=[("Packhorse-Key", keys[1]["key"]), ("Authorization", "Bearer one")])
        bob.hold(FIRST)
        assert not is_delta(bob.get(path))


def test_responses_of_a_stranger_are_never_mixed(up, gw):
    """A base never crosses principals: 40 callers, one session name, one path."""
    from concurrent.futures import ThreadPoolExecutor

    path = fresh()
    up.at(
        path,
        lambda request: Reply(200, [("Content-Type", "text/plain")], (request.value("x-api-key") + b"\n") + lines(60).encode()),
    )

    def turns(number: int) -> None:
        client = Holder(gw, "shared", fields=[("x-api-key", f"caller-{number}")])
        for _ in range(4):
            assert client.get(path).content.startswith(f"caller-{number}\n".encode())

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(turns, range(40)))
