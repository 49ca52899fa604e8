"""Contract, section 2: fields."""

import gzip
import re

import pytest
from contract.kit import (
    OWN_REQUEST_FIELDS,
    Client,
    Holder,
    Reply,
    ask,
    digest,
    fresh,
    gateway,
    get,
    is_delta,
    name,
    problem,
    text_reply,
    why,
)
from support.texts import lines

FIRST, SECOND, THIRD = lines(100), lines(104), lines(108)
VARY = ["accept-encoding", "available-dictionary", "ctxpack-base", "ctxpack-accept"]
WHYS = {
    "delta", "pack", "unchanged", "no-base", "unknown-base", "not-smaller", "too-small", "too-large", "link-normal", "no-transform",
    "not-acceptable", "partial", "already-coded", "not-text", "streamed",
}  # fmt: skip


def second_turn(
    up, gw, *fields: tuple[str, str], accept: str | None = None, method: str = "GET", first=FIRST, second=SECOND, **reply
):
    """The second of two turns, asked with those fields."""
    path = up.at(fresh(), text_reply(first, **reply))
    client = Holder(gw)
    client.ask(method, path)
    up.at(path, text_reply(second, **reply))
    return client.ask(method, path, fields=[*fields, *([("Accept-Encoding", accept)] if accept is not None else [])])


ACCEPTS = [
    # value, codings of which one must be used (None: identity only)
    ("gzip", {"gzip"}),
    ("GZIP", {"gzip"}),
    ("x-gzip", {"gzip", "x-gzip"}),
    ("gzip;q=0", set()),
    ("gzip;q=0.0", set()),
    ("gzip;q=0.000", set()),
    ("gzip ; q=0", set()),
    ("gzip;Q=0", set()),
    ("GZIP;Q=0.5", {"gzip"}),
    ("gzip;q=0.001", {"gzip"}),
    ("gzip, identity", {"gzip"}),
    ("br;q=0, gzip", {"gzip"}),
    ("br", set()),
    ("*", {"gzip", "zstd"}),
    ("*;q=0", set()),
    ("*;q=0, gzip", {"gzip"}),
    ("gzip;q=0, *", {"zstd"}),
    ("zstd;q=0, *;q=0.5", {"gzip"}),
    ("zstd;q=0, gzip;q=0, *", set()),
    ("*;q=0.1, gzip;q=0", {"zstd"}),
    ("", set()),
    (" ", set()),
    (",", set()),
    (",,gzip,,", {"gzip"}),
    ("identity", set()),
    ("identity;q=0", set()),
    ("identity;q=0, gzip", {"gzip"}),
    ("\tgzip\t,\tfoo", {"gzip"}),
    ("gzipp", set()),
    ("xgzip, notzstd", set()),
    ("gzip;q=1.0, zstd;q=0", {"gzip"}),
    ("zstd", {"zstd"}),
    ("gzip;q=0.5, zstd;q=1", {"gzip", "zstd"}),
]


@pytest.mark.parametrize(("value", "allowed"), ACCEPTS, ids=[repr(value) for value, _ in ACCEPTS])
def test_accept_encoding_in_full(up, gw, value, allowed):
    """which of the codings above it takes; RFC 9110 12.5.3 in full (q-values, `*`, `identity;q=0`)"""
    path = up.at(fresh(), text_reply(FIRST))
    response = get(gw, path, [("Accept-Encoding", value)])
    assert response.status == 200
    codings = response.members("content-encoding")
    assert codings == [] if not allowed else codings[0] in allowed, (value, codings)
    assert len(codings) <= 1
    if codings == ["gzip"]:
        assert gzip.decompress(response.body) == FIRST.encode()
    if not codings:
        assert response.body == FIRST.encode()


def test_accept_encoding_in_several_lines(up, gw):
    """RFC 9110 5.3: several lines are one list."""
    path = up.at(fresh(), text_reply(FIRST))
    response = get(gw, path, [("Accept-Encoding", "foo"), ("Accept-Encoding", "gzip")])
    assert response.members("content-encoding") == ["gzip"]
    response = get(gw, path, [("Accept-Encoding", "*"), ("accept-encoding", "gzip;q=0, zstd;q=0")])
    assert response.members("content-encoding") == []


@pytest.mark.parametrize(
    "value", ["*", "*;q=1", "*, gzip;q=0", "*, identity;q=0", None, "ctxpack.*", "ctxpack.delta.v1;q=0, *"]
)
def test_star_never_selects_ctxpack(up, gw, value):
    """`*` never selects `dcz` or `ctxpack.*`"""
    path = up.at(fresh(), text_reply(FIRST))
    client = Holder(gw)
    client.get(path)
    up.at(path, text_reply(SECOND))
    fields = [pair for pair in client.request_fields() if pair[0] != b"Accept-Encoding"]
    fields += [] if value is None else [(b"Accept-Encoding", value.encode())]
    response = get(gw, path, fields)
    assert not any(coding.startswith(("ctxpack", "dcz")) for coding in response.members("content-encoding"))


def test_ctxpack_accept_is_appended(up, gw):
    """`Ctxpack-Accept: <codings>` | appended to `Accept-Encoding`, for browsers, whose scripts cannot set that field"""
    response = second_turn(up, gw, ("Ctxpack-Accept", "ctxpack.delta.v1"), accept="gzip, deflate, br, zstd")
    assert is_delta(response)
    response = second_turn(up, gw, ("Ctxpack-Accept", "ctxpack.delta.v1;q=0"), accept="gzip")
    assert not is_delta(response)
    response = second_turn(up, gw, ("Ctxpack-Accept", "ctxpack.delta.v1"), accept="")
    assert is_delta(response)
    response = second_turn(up, gw, ("Ctxpack-Accept", "foo"), ("Ctxpack-Accept", "ctxpack.delta.v1"), accept="")
    assert is_delta(response)


def test_ctxpack_accept_without_accept_encoding(up, gw):
    """appended to `Accept-Encoding`, also where there is none"""
    path = up.at(fresh(), text_reply(FIRST))
    client = Holder(gw, accept=None, fields=[("Ctxpack-Accept", "ctxpack.delta.v1")])
    client.get(path)
    up.at(path, text_reply(SECOND))
    assert is_delta(client.get(path))


@pytest.mark.parametrize("accept", ["gzip, deflate, br, zstd", "zstd, gzip", "zstd"])
def test_scripts_can_undo_the_outer_coding(up, gw, accept):
    """for browsers, whose scripts ... must undo an outer gzip themselves (they have no zstd: aiohttp-traps.md)"""
    response = second_turn(up, gw, ("Ctxpack-Accept", "ctxpack.delta.v1"), accept=accept, second=lines(300))
    codings = response.members("content-encoding")
    if codings[:1] == ["ctxpack.delta.v1"]:
        assert codings[1:] in ([], ["gzip"]), codings


@pytest.mark.parametrize("prefix", ["", "/v1", "/anthropic", "/plain", "/second"])
def test_own_request_fields_never_reach_the_upstream(up, second, gw, prefix):
    """The gateway's own request fields never reach the upstream. | `Available-Dictionary` ... Never sent upstream"""
    where = second if prefix == "/second" else up
    path = where.at(fresh(prefix), text_reply("fine"))
    given = [
        ("Accept-Encoding", "dcz, ctxpack.delta.v1, gzip"),
        ("Ctxpack-Accept", "ctxpack.pack.v1"),
        ("Available-Dictionary", ":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=:"),
        ("Ctxpack-Base", "sha256:" + "1" * 64),
        ("Packhorse-Session", name()),
        ("Packhorse-Link", "weak"),
        ("Packhorse-Debug", "1"),
        ("Cookie", "a=1; packhorse_session=abcdef; b=2"),
    ]
    for method in ("GET", "POST"):
        assert ask(gw, method, path, given, b"x" if method == "POST" else b"").status == 200
        got = where.last(path)
        for own in OWN_REQUEST_FIELDS:
            assert got.values(own) == [], own
        assert not [n for n in got.names() if n.startswith(("packhorse", "ctxpack"))]
        accept = b",".join(got.values("accept-encoding")).decode()
        assert not re.search(r"dcz|ctxpack", accept), accept
        assert b",".join(got.values("cookie")) == b"a=1; b=2"


def test_gateway_fields_in_any_case(up, gw):
    """Field names have no case: the gateway's own never reach the upstream, however they are written."""
    path = up.at(fresh(), text_reply("fine"))
    get(
        gw,
        path,
        [
            ("PACKHORSE-SESSION", "abc"),
            ("ctxpack-BASE", "none"),
            ("AVAILABLE-dictionary", ":AA==:"),
            ("packhorse-LINK", "weak"),
        ],
    )
    assert not [n for n in up.last(path).names() if n.startswith(("packhorse", "ctxpack", "available"))]


def test_at_most_eight_bases_newest_first(up, gw):
    """`Ctxpack-Base: sha256:<hex>[, ...]` | digests of packs it holds, newest first, at most 8"""
    path = up.at(fresh(), text_reply(FIRST))
    session = name()
    client = Holder(gw, session)
    client.get(path)
    up.at(path, text_reply(SECOND))
    strangers = [f"sha256:{n:064x}" for n in range(12)]
    for count in (0, 1, 7):
        response = client.get(path, ("Ctxpack-Base", ", ".join([*strangers[:count], digest(FIRST)])))
        assert is_delta(response), count
    for count in (8, 11):
        response = get(
            gw, path, [*client.request_fields()[:2], ("Ctxpack-Base", ", ".join([*strangers[:count], digest(FIRST)]))]
        )
        assert response.status == 200


def test_bases_over_several_lines(up, gw):
    """A list field may come in several lines (RFC 9110 5.3)."""
    path = up.at(fresh(), text_reply(FIRST))
    client = Holder(gw)
    client.get(path)
    up.at(path, text_reply(SECOND))
    response = client.ask("GET", path, fields=[("Ctxpack-Base", "sha256:" + "2" * 64), ("Ctxpack-Base", digest(FIRST))])
    assert is_delta(response)


@pytest.mark.parametrize(
    "value",
    [
        "",
        ",",
        "sha256:",
        "sha256:12",
        "SHA256:" + "a" * 64,
        "md5:" + "a" * 32,
        "none, none",
        "a" * 5000,
        "sha256:" + "g" * 64,
        "*",
    ],
)
def test_a_malformed_base_is_no_error(up, gw, value):
    """`Ctxpack-Base`: what names no base is as if absent; the body comes whole."""
    path = up.at(fresh(), text_reply(FIRST))
    response = get(gw, path, [("Accept-Encoding", "ctxpack.delta.v1"), ("Ctxpack-Base", value), ("Packhorse-Session", name())])
    assert (response.status, response.body) == (200, FIRST.encode())


@pytest.mark.parametrize("value", ["a", "A-Z.a_z-0.9", "x" * 128, ".", "-", "..", "..-.."])
def test_sessions_that_are_well_formed(up, gw, value):
    """1 to 128 of A-Z a-z 0-9 . _ -"""
    path = up.at(fresh(), text_reply("fine"))
    assert get(gw, path, [("Packhorse-Session", value)]).status == 200


@pytest.mark.parametrize("prefix", ["", "/v1", "/anthropic"])
@pytest.mark.parametrize(
    "value",
    [b"", b" ", b"x" * 129, b"a b", b"a/b", b"../../../tmp/pwn", b"a,b", b"%0d%0aSet-Cookie:x=1", b"a;b", b"\xe9", b"a\tb", b"a:b",
     b'"a"', b"C:\\x", b"x" * 9000],
    ids=repr,
)  # fmt: skip
def test_sessions_that_are_malformed(up, gw, prefix, value):
    """1 to 128 of A-Z a-z 0-9 . _ - ; anything else is 400"""
    path = up.at(fresh(prefix), text_reply("fine"))
    response = ask(gw, "GET", path, [("Packhorse-Session", value)])
    problem(response, 400, "bad-request")
    assert up.seen(path) == []
    assert b"pwn" not in response.body
    assert response.values("set-cookie") == []


def test_two_session_fields(up, gw):
    """`Packhorse-Session: <opaque>`: two of them are not one id."""
    path = up.at(fresh(), text_reply("fine"))
    assert get(gw, path, [("Packhorse-Session", "one"), ("Packhorse-Session", "two")]).status == 400


def test_session_is_answered_only_when_the_gateway_made_one(up, gw):
    """`Packhorse-Session` | client, and gateway when it made one"""
    path = up.at(fresh(), text_reply(FIRST))
    response = get(gw, path, [("Accept-Encoding", "ctxpack.delta.v1")])
    made = response.text("packhorse-session")
    assert made
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,128}", made)
    response = get(gw, path, [("Accept-Encoding", "ctxpack.delta.v1"), ("Packhorse-Session", made)])
    assert response.values("packhorse-session") == []
    assert response.values("set-cookie") == []


def test_the_session_made_is_a_session(up, gw):
    """the session: what the gateway made may be named, and opens its bases"""
    path = up.at(fresh(), text_reply(FIRST))
    first = get(gw, path, [("Accept-Encoding", "ctxpack.delta.v1")])
    client = Holder(gw, first.text("packhorse-session"))
    client.hold(FIRST)
    up.at(path, text_reply(SECOND))
    assert is_delta(client.get(path))
    up.at(path, text_reply(THIRD))
    cookie = first.text("set-cookie").split(";")[0]
    by_cookie = Holder(gw, None, fields=[("Cookie", cookie)])
    by_cookie.hold(SECOND)
    assert is_delta(by_cookie.get(path))


HINTS = [
    # hints, whether deltas are used where nothing else is known but a route that says `normal`
    ([], False),
    ([("Save-Data", "on")], True),
    ([("Save-Data", "ON")], None),
    ([("Save-Data", "off")], None),
    ([("ECT", "slow-2g")], True),
    ([("ECT", "2g")], True),
    ([("ECT", "3g")], None),
    ([("ECT", "4g")], False),
    ([("ECT", "bogus")], False),
    ([("Downlink", "0.05")], True),
    ([("Downlink", "10")], False),
    ([("Downlink", "nonsense")], False),
    ([("Downlink", "nan")], False),
    ([("Downlink", "1e999")], False),
    ([("Downlink", "-1")], None),
    ([("RTT", "3000")], True),
    ([("RTT", "50")], False),
    ([("RTT", "")], False),
    ([("RTT", "9" * 5000)], None),
]


@pytest.mark.parametrize(("hints", "used"), HINTS, ids=[repr(hints)[:40] for hints, _ in HINTS])
def test_client_hints(up, gw, hints, used):
    """`Save-Data`, `ECT`, `Downlink`, `RTT` | client hints; they can make a link weak or metered"""
    path = up.at(fresh("/normal"), text_reply(FIRST))
    client = Holder(gw, fields=hints)
    client.get(path)
    up.at(path, text_reply(SECOND))
    response = client.get(path)
    assert response.status == 200
    if used is not None:
        assert is_delta(response) is used, why(response)
    if used is False:
        assert why(response) == "link-normal"


@pytest.mark.parametrize("hints", [[("Save-Data", "on")], [("ECT", "slow-2g")], [("RTT", "5000")], [("Downlink", "0.01")]])
def test_packhorse_link_wins_over_every_hint(up, gw, hints):
    """`Packhorse-Link: weak / metered / normal` | what it knows of its own link; wins over every hint"""
    for link, used in (("normal", False), ("weak", True), ("metered", True)):
        response = second_turn(up, gw, ("Packhorse-Link", link), *hints)
        assert is_delta(response) is used, (link, why(response))


def test_packhorse_link_wins_over_the_route(up, gw):
    """`Packhorse-Link` ... Order of evidence: `Packhorse-Link`, client hints, route setting"""
    for prefix, link, used in (
        ("/normal", "weak", True),
        ("/normal", "metered", True),
        ("/weak", "normal", False),
        ("/weak", "bogus", True),
    ):
        path = up.at(fresh(prefix), text_reply(FIRST))
        client = Holder(gw, fields=[("Packhorse-Link", link)])
        client.get(path)
        up.at(path, text_reply(SECOND))
        assert is_delta(client.get(path)) is used, (prefix, link)


def test_digest_for_clients_that_speak_ctxpack(up, gw):
    """`Ctxpack-Digest: sha256:<hex>` | pack digest of the decoded response body, when the client speaks ctxpack"""
    path = up.at(fresh(), text_reply(FIRST))
    for accept in ("ctxpack.delta.v1", "ctxpack.pack.v1", "gzip, ctxpack.delta.v1;q=0.1"):
        response = get(gw, path, [("Accept-Encoding", accept), ("Packhorse-Session", name())])
        assert response.text("ctxpack-digest") == digest(FIRST)
    for accept in ("gzip", "*", "ctxpack.delta.v1;q=0", "identity"):
        assert get(gw, path, [("Accept-Encoding", accept), ("Packhorse-Session", name())]).values("ctxpack-digest") == []
    assert get(gw, path).values("ctxpack-digest") == []


def test_debug_asks_for_why_and_timing(up, gw):
    """`Packhorse-Debug: 1` | asks for `Packhorse-Why` and `Server-Timing` | `Server-Timing: packhorse;dur=<ms>`"""
    response = second_turn(up, gw)
    assert why(response) == "delta"
    assert re.fullmatch(r"packhorse;dur=\d+(\.\d+)?", response.text("server-timing"))
    for value in (None, "0", "", "true"):
        fields = [("Accept-Encoding", "ctxpack.delta.v1"), ("Packhorse-Session", name())]
        fields += [] if value is None else [("Packhorse-Debug", value)]
        path = up.at(fresh(), text_reply(FIRST))
        response = get(gw, path, fields)
        assert response.values("packhorse-why") == []
        assert response.values("server-timing") == []


def test_the_upstreams_own_timing_stays(up, gw):
    """`Server-Timing` is a list: ours is added, the upstream's stays."""
    path = up.at(fresh(), text_reply(FIRST, ("Server-Timing", "db;dur=53")))
    assert get(gw, path).text("server-timing") == "db;dur=53"
    response = get(gw, path, [("Packhorse-Debug", "1"), ("Accept-Encoding", "ctxpack.delta.v1"), ("Packhorse-Session", name())])
    assert {member.split(";")[0] for member in response.members("server-timing")} == {"db", "packhorse"}


def test_explain_always(up):
    """setting `explain: always` turns them on for all"""
    with gateway(up, explain="always") as gw:
        path = up.at(fresh(), text_reply(FIRST))
        response = get(gw, path, [("Accept-Encoding", "ctxpack.delta.v1"), ("Packhorse-Session", "s")])
        assert why(response) == "no-base"
        assert response.values("server-timing")


def test_every_why(up, gw):
    """`Packhorse-Why: <token>` | one word for what was done"""
    speak = [("Accept-Encoding", "ctxpack.delta.v1, ctxpack.pack.v1, gzip"), ("Packhorse-Debug", "1")]

    def said(*fields, reply=None, session=None, target=None):
        path = target or up.at(fresh(), reply or text_reply(FIRST))
        mine = {key.lower() for key, _ in fields}
        own = [pair for pair in speak if pair[0].lower() not in mine]
        response = get(gw, path, [*own, ("Packhorse-Session", session or name()), *fields])
        assert why(response) in WHYS
        return why(response)

    session = name()
    path = up.at(fresh(), text_reply(FIRST))
    assert said(target=path, session=session) == "no-base"
    assert said(("Ctxpack-Base", digest(FIRST)), target=path, session=session) == "unchanged"
    up.at(path, text_reply(SECOND))
    assert said(("Ctxpack-Base", digest(FIRST)), target=path, session=session) == "delta"
    assert said(("Ctxpack-Base", "none"), target=path, session=session) == "pack"
    up.at(path, text_reply(lines(100, 77)))
    assert said(("Ctxpack-Base", digest(FIRST)), target=path, session=session) == "not-smaller"
    assert said(("Ctxpack-Base", "sha256:" + "5" * 64)) == "unknown-base"
    assert said(reply=text_reply("x" * 255)) == "too-small"
    assert said(("Packhorse-Link", "normal")) == "link-normal"
    assert said(("Cache-Control", "no-transform")) == "no-transform"
    assert said(reply=text_reply(FIRST, ("Cache-Control", "no-transform"))) == "no-transform"
    assert said(("Accept-Encoding", "ctxpack.delta.v1, identity;q=0")) == "not-acceptable"
    partial = Reply(206, [("Content-Range", "bytes 0-8404/90000"), ("Content-Type", "text/plain")], FIRST.encode())
    assert said(reply=partial) == "partial"
    assert said(reply=text_reply(FIRST, ("Content-Encoding", "x-unknown"))) == "already-coded"
    assert said(reply=Reply(200, [("Content-Type", "text/plain")], b"\xff\xfe" * 400)) == "not-text"
    assert said(reply=Reply(200, [("Content-Type", "text/event-stream")], b"data: x\n\n" * 50, framing="chunked")) == "streamed"


def test_why_too_large(up):
    """`too-large`"""
    with gateway(up, deltas={"max_bytes": 4096}) as gw:
        path = up.at(fresh(), text_reply(FIRST))
        response = Holder(gw).get(path)
        assert (why(response), response.content) == ("too-large", FIRST.encode())


@pytest.mark.parametrize("accept", [None, "gzip", "*", "br, zstd", "ctxpack.delta.v1;q=0"])
def test_others_get_none_of_its_response_fields(up, gw, accept):
    """Clients that offer neither `dcz` nor `ctxpack.*` get none of its response fields"""
    path = up.at(fresh(), text_reply(FIRST))
    for session in ([], [("Packhorse-Session", name())]):
        response = get(gw, path, [*([("Accept-Encoding", accept)] if accept else []), *session])
        assert not [
            n for n in response.names() if n.startswith(("packhorse", "ctxpack", "use-as", "server-timing", "set-cookie"))
        ]


def test_at_most_three_short_fields_unasked(up, gw):
    """the others at most three short ones unasked"""
    path = up.at(fresh(), text_reply(FIRST, ("ETag", '"v1"'), ("Vary", "Origin")))
    plain = set(get(gw, path).names())
    for session in ([], [("Packhorse-Session", name())]):
        response = get(gw, path, [("Accept-Encoding", "ctxpack.delta.v1, ctxpack.pack.v1, gzip"), *session])
        own = [
            pair
            for pair in response.fields
            if pair[0].lower().startswith((b"packhorse", b"ctxpack", b"set-cookie", b"use-as", b"server-"))
        ]
        own = [pair for pair in own if pair[0].decode().lower() not in plain]
        assert len(own) <= 3, own
        assert all(len(key) + len(value) < 120 for key, value in own), own


# ---------------------------------------------------------------- CORS


def test_cors_is_off_by_default(up, gw):
    """Cross-origin browsers: `cors.origins` (default none)"""
    path = up.at(fresh(), text_reply(FIRST))
    response = get(gw, path, [("Origin", "https://page.example")])
    assert not [n for n in response.names() if n.startswith("access-control")]
    ask(gw, "OPTIONS", path, [("Origin", "https://page.example"), ("Access-Control-Request-Method", "GET")])
    assert up.last(path).method == b"OPTIONS"


def test_cors_preflight_and_exposed_fields(up):
    """`cors.origins` makes the gateway answer or extend preflights for its own fields and expose its response fields."""
    origin = "https://page.example"
    with gateway(up, cors={"origins": [origin]}) as gw:
        path = up.at(fresh(), lambda _: text_reply(FIRST, ("Access-Control-Allow-Origin", origin)))
        asked = [
            ("Origin", origin), ("Access-Control-Request-Method", "POST"), ("Access-Control-Request-Headers", "ctxpack-accept,ctxpack-base,packhorse-session"),
        ]  # fmt: skip
        response = ask(gw, "OPTIONS", path, asked)
        assert 200 <= response.status < 300
        assert response.text("access-control-allow-origin") in (origin, "*")
        allowed = response.members("access-control-allow-headers")
        assert {"ctxpack-accept", "ctxpack-base", "packhorse-session"} <= set(allowed) or allowed == ["*"]
        response = get(gw, path, [("Origin", origin), ("Accept-Encoding", "gzip"), ("Ctxpack-Accept", "ctxpack.delta.v1")])
        exposed = response.members("access-control-expose-headers")
        assert {"ctxpack-digest", "packhorse-session"} <= set(exposed) or exposed == ["*"]
        other = [("Origin", "https://evil.example"), *asked[1:]]
        response = ask(gw, "OPTIONS", path, other)
        assert "https://evil.example" not in (response.text("access-control-allow-origin") or "")
        assert not {"packhorse-session"} & set(response.members("access-control-allow-headers"))


def test_cors_preflight_of_the_upstream_is_extended(up):
    """answer or extend preflights"""
    origin = "https://page.example"
    said = [
        ("Access-Control-Allow-Origin", origin), ("Access-Control-Allow-Methods", "GET, PUT"), ("Access-Control-Allow-Headers", "x-mine, authorization"),
        ("Access-Control-Max-Age", "60"),
    ]  # fmt: skip
    with gateway(up, cors={"origins": [origin]}) as gw:
        path = up.at(fresh(), Reply(204, said))
        response = ask(gw, "OPTIONS", path, [
            ("Origin", origin), ("Access-Control-Request-Method", "PUT"), ("Access-Control-Request-Headers", "x-mine, ctxpack-base"),
        ])  # fmt: skip
        assert 200 <= response.status < 300
        allowed = set(response.members("access-control-allow-headers"))
        assert {"x-mine", "ctxpack-base"} <= allowed
        assert "put" in response.members("access-control-allow-methods")
        assert response.text("access-control-allow-origin") == origin


def test_cors_delta_from_another_origin(up):
    """the JavaScript receiver works from a page of another origin (by hand-made requests)"""
    origin = "https://page.example"
    with gateway(up, cors={"origins": [origin]}) as gw:
        path = up.at(fresh(), text_reply(FIRST, ("Access-Control-Allow-Origin", origin)))
        page = [
            ("Origin", origin),
            ("Sec-Fetch-Site", "cross-site"),
            ("Sec-Fetch-Mode", "cors"),
            ("Ctxpack-Accept", "ctxpack.delta.v1"),
        ]
        client = Holder(gw, accept="gzip, deflate, br, zstd", fields=page)
        client.ask("POST", path, b"q")
        up.at(path, text_reply(SECOND, ("Access-Control-Allow-Origin", origin)))
        response = client.ask("POST", path, b"q")
        assert is_delta(response), why(response)


# ---------------------------------------------------------------- Vary


@pytest.mark.parametrize(
    "fields", [[], [("Accept-Encoding", "gzip")], [("Accept-Encoding", "ctxpack.delta.v1"), ("Packhorse-Session", "v")]]
)
def test_vary(up, gw, fields):
    """Every response whose coding could have differed carries `Vary: Accept-Encoding, Available-Dictionary, Ctxpack-Base, Ctxpack-Accept`"""
    path = up.at(fresh(), text_reply(FIRST))
    assert sorted(get(gw, path, fields).members("vary")) == sorted(VARY)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([("Vary", "Origin")], ["origin", *VARY]),
        ([("Vary", "Origin, accept-encoding")], ["origin", *VARY]),
        ([("Vary", "ACCEPT-ENCODING"), ("Vary", "Origin")], ["origin", *VARY]),
        ([("Vary", "Origin,Origin")], None),
        ([("Vary", "*")], ["*"]),
        ([("Vary", "Origin"), ("Vary", "*")], None),
        ([("Vary", "")], VARY),
    ],
)
def test_vary_is_merged(up, gw, given, expected):
    """merged into the upstream's own"""
    path = up.at(fresh(), text_reply(FIRST, *given))
    for fields in ([], [("Accept-Encoding", "gzip")]):
        members = get(gw, path, fields).members("vary")
        if expected is None:
            assert "*" in members or set(members) == {"origin", *VARY}
        else:
            assert sorted(members) == sorted(expected), members


def test_vary_on_304(up, gw):
    """Every response whose coding could have differed: a 304 carries the Vary of its 200 (RFC 9110 15.4.5)"""
    path = up.at(fresh(), text_reply(FIRST))
    tag = get(gw, path).text("etag")
    response = get(gw, path, [("If-None-Match", tag)])
    assert response.status == 304
    assert sorted(response.members("vary")) == sorted(VARY)
    assert response.text("etag") == tag


def test_plain_routes_have_no_vary_of_ours(up, gw):
    """`plain` (proxied only: nothing decoded, stored or recoded)"""
    path = up.at(fresh("/plain"), text_reply(FIRST, ("ETag", '"v1"')))
    response = get(gw, path, [("Accept-Encoding", "gzip, ctxpack.delta.v1")])
    assert response.values("vary") == []
    assert response.values("content-encoding") == []
    assert response.text("etag") == '"v1"'
    assert response.values("ctxpack-digest") == []


# ---------------------------------------------------------------- validators


def tagged(tag: str, body: str = FIRST):
    """An upstream that honours If-None-Match, by weak comparison."""

    def answer(request):
        asked = b", ".join(request.values("if-none-match")).decode()
        opaque = tag.removeprefix("W/")
        if request.values("if-none-match") and (
            asked.strip() == "*" or opaque in [m.strip().removeprefix("W/") for m in asked.split(",")]
        ):
            return Reply(304, [("ETag", tag)])
        if (matched := request.value("if-match")) is not None and matched.decode() not in (tag, "*"):
            return Reply(412, [("ETag", tag)], b"")
        return text_reply(body, ("ETag", tag))

    return answer


@pytest.mark.parametrize("accept", ["gzip", "zstd", "ctxpack.delta.v1"])
def test_a_strong_tag_is_weakened_where_the_body_was_coded(up, gw, accept):
    """An upstream's strong ETag is always weakened when the body was coded here"""
    path = up.at(fresh(), tagged('"v1"'))
    client = Holder(gw, accept=accept)
    client.get(path)
    up.at(path, tagged('"v2"', SECOND))
    response = client.get(path)
    assert response.members("content-encoding")
    assert response.text("etag").startswith('W/"')


@pytest.mark.parametrize("accept", ["gzip", "zstd", None, "br"])
@pytest.mark.parametrize("tag", ['"v1"', 'W/"v1"', '""', '"a,b"', '"W/x"', '"sha256-x"'])
def test_tags_go_round(up, gw, accept, tag):
    """and mapped back in `If-None-Match` and `If-Match`"""
    path = up.at(fresh(), tagged(tag))
    fields = [("Accept-Encoding", accept)] if accept else []
    first = get(gw, path, fields)
    ours = first.text("etag")
    if accept in ("gzip", "zstd"):
        assert ours.startswith("W/")
    for asked in (ours, f'"other", {ours}', f'{ours}, "other"'):
        response = get(gw, path, [*fields, ("If-None-Match", asked)])
        if "," not in tag:
            assert response.status == 304, asked
            assert response.text("etag") == ours
            assert response.body == b""
            assert response.values("content-encoding") == []
            sent = up.last(path).value("if-none-match").decode()
            assert tag.removeprefix("W/") in sent
    response = get(gw, path, [*fields, ("If-None-Match", "*")])
    assert response.status == 304
    assert up.last(path).value("if-none-match") == b"*"


def test_if_match_is_mapped_back(up, gw):
    """mapped back in `If-None-Match` and `If-Match`"""
    path = up.at(fresh(), tagged('"v1"'))
    ours = get(gw, path, [("Accept-Encoding", "gzip")]).text("etag")
    response = ask(gw, "PUT", path, [("Accept-Encoding", "gzip"), ("If-Match", ours)], b"new")
    assert up.last(path).value("if-match") == b'"v1"'
    assert response.status == 200
    response = ask(gw, "PUT", path, [("If-Match", f'"zzz", {ours}')], b"new")
    assert up.last(path).value("if-match") == b'"zzz", "v1"'


def test_a_clients_own_condition_passes_as_it_is(up, gw):
    """Byte-faithful: a tag the gateway never gave is not touched."""
    path = up.at(fresh(), text_reply("fine"))
    for given in ('"abc"', '"a", "b"', "*", '"a,b" ,  "c"'):
        get(gw, path, [("If-None-Match", given)])
        assert up.last(path).value("if-none-match") == given.encode()
        ask(gw, "PUT", path, [("If-Match", given)], b"x")
        assert up.last(path).value("if-match") == given.encode()


def test_if_range_with_our_tag_is_dropped(up, gw):
    """an `If-Range` that carries our tag is dropped"""
    path = up.at(fresh(), tagged('"v1"'))
    ours = get(gw, path, [("Accept-Encoding", "gzip")]).text("etag")
    get(gw, path, [("Range", "bytes=0-9"), ("If-Range", ours)])
    assert up.last(path).values("if-range") == []
    made = up.at(fresh(), text_reply(FIRST))
    tag = get(gw, made).text("etag")
    get(gw, made, [("Range", "bytes=0-9"), ("If-Range", tag)])
    assert up.last(made).values("if-range") == []
    for other in ('"mine"', "Wed, 21 Oct 2026 07:28:00 GMT"):
        get(gw, path, [("Range", "bytes=0-9"), ("If-Range", other)])
        assert up.last(path).value("if-range") == other.encode()


def test_a_dropped_if_range_takes_the_range_with_it(up, gw):
    """an `If-Range` that carries our tag is dropped: without it, a Range would be answered from whatever is there now (RFC 9110 13.1.5)"""
    path = up.at(fresh(), tagged('"v1"'))
    ours = get(gw, path, [("Accept-Encoding", "gzip")]).text("etag")
    get(gw, path, [("Range", "bytes=0-9"), ("If-Range", ours)])
    assert up.last(path).values("range") == []


@pytest.mark.parametrize("accept", [None, "gzip", "ctxpack.delta.v1", "identity"])
def test_a_get_without_tag_gets_one(up, gw, accept):
    """Where the upstream sends no ETag, a GET gets `W/"sha256-<first 32 hex of the pack digest>"`"""
    path = up.at(fresh(), text_reply(FIRST))
    fields = [("Packhorse-Session", name()), *([("Accept-Encoding", accept)] if accept else [])]
    tag = get(gw, path, fields).text("etag")
    assert tag == f'W/"sha256-{digest(FIRST)[7:39]}"'
    asked = len(up.seen(path))
    response = get(gw, path, [*fields, ("If-None-Match", tag)])
    assert (response.status, response.body, response.text("etag")) == (304, b"", tag)
    assert len(up.seen(path)) == asked + 1, "answered without asking the upstream"
    for other in (f'"sha256-{digest(FIRST)[7:39]}"', f'"x", {tag}', f'{tag} , "y"'):
        assert get(gw, path, [*fields, ("If-None-Match", other)]).status == 304, other
    up.at(path, text_reply(SECOND))
    response = get(gw, path, [*fields, ("If-None-Match", tag)])
    assert response.status == 200
    assert response.text("etag") == f'W/"sha256-{digest(SECOND)[7:39]}"'


def test_our_tag_works_over_a_body_the_upstream_coded(up, gw):
    """`If-None-Match` with it is answered 304 after the upstream was asked and its body is unchanged"""
    path = up.at(fresh(), text_reply(gzip.compress(FIRST.encode()), ("Content-Encoding", "gzip")))
    tags = {get(gw, path, [("Accept-Encoding", accept)]).text("etag") for accept in ("gzip", "identity", "ctxpack.delta.v1")}
    assert tags == {f'W/"sha256-{digest(FIRST)[7:39]}"'}
    for accept in ("gzip", "identity", "ctxpack.delta.v1"):
        assert get(gw, path, [("Accept-Encoding", accept), ("If-None-Match", *tags)]).status == 304


def test_a_304_says_what_the_200_would(up, gw):
    """RFC 9110 15.4.5: Cache-Control, Content-Location, Date, ETag, Expires and Vary of the 200"""
    path = up.at(fresh(), text_reply(FIRST, ("Cache-Control", "max-age=5"), ("Date", "Wed, 21 Oct 2026 07:28:00 GMT")))
    tag = get(gw, path).text("etag")
    with Client(gw) as client:
        response = client.ask("GET", path, [("If-None-Match", tag)])
        assert response.status == 304
        assert response.text("cache-control") == "max-age=5"
        assert response.text("date") == "Wed, 21 Oct 2026 07:28:00 GMT"
        assert client.ask("GET", path).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_only_a_get_gets_a_tag(up, gw, method):
    """a GET gets `W/"sha256-..."`"""
    path = up.at(fresh(), text_reply(FIRST))
    assert ask(gw, method, path, [], b"x").values("etag") == []


@pytest.mark.parametrize("status", [404, 500, 201])
def test_only_a_200_is_answered_304(up, gw, status):
    """RFC 9110 13.2.1: preconditions count only where the answer without them would be 200"""
    path = up.at(fresh(), text_reply(FIRST, status=status))
    tag = f'W/"sha256-{digest(FIRST)[7:39]}"'
    assert get(gw, path, [("If-None-Match", tag)]).status == status
