"""Contract, section 4: bases."""

import gzip
import random
import threading
import time
import zlib

import brotli
import pytest
from backports import zstd
from contract.kit import (
    Client,
    Holder,
    Peer,
    Raw,
    Reply,
    Request,
    ask,
    digest,
    fresh,
    gateway,
    get,
    is_delta,
    name,
    problem,
    text_reply,
    until,
    why,
)
from support.texts import lines

FIRST, SECOND, THIRD = lines(100), lines(104), lines(108)
BEARER = "Authorization"


def grown(up, gw, path: str, holder: Holder, text: str = SECOND):
    up.at(path, text_reply(text))
    return holder.get(path)


def test_a_response_becomes_a_base_of_its_session(up, gw):
    """Every decoded body that may be stored becomes a base of its session: responses"""
    path = up.at(fresh(), text_reply(FIRST))
    client = Holder(gw)
    for count in range(100, 140, 4):
        response = grown(up, gw, path, client, lines(count))
    assert is_delta(response)


@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize("encode", [bytes, gzip.compress, zstd.compress, brotli.compress, zlib.compress])
def test_a_request_body_becomes_a_base(up, gw, method, encode):
    """Every decoded body that may be stored becomes a base of its session: ... and request bodies."""
    coding = {bytes: "", gzip.compress: "gzip", zstd.compress: "zstd", brotli.compress: "br", zlib.compress: "deflate"}[encode]
    path = up.at(fresh(), text_reply(lines(50, 3)))
    client = Holder(gw)
    fields = [("Content-Encoding", coding)] if coding else []
    client.ask(method, path, encode(FIRST.encode()), fields)
    client.held.clear()
    client.hold(FIRST)
    response = grown(up, gw, path, client)
    assert is_delta(response), why(response)
    assert response.content == SECOND.encode()


def test_a_chunked_request_body_becomes_a_base(up, gw):
    """Every decoded body that may be stored becomes a base of its session: ... and request bodies."""
    path = up.at(fresh(), text_reply(lines(50, 3)))
    client = Holder(gw)
    client.ask("POST", path, FIRST.encode(), framing="chunked")
    assert up.last(path).body == FIRST.encode()
    client.held.clear()
    client.hold(FIRST)
    assert is_delta(grown(up, gw, path, client))


def test_a_base_serves_every_route_of_its_upstream(up, second, gw):
    """A base serves every route of its upstream."""
    client = Holder(gw)
    client.get(up.at(fresh(), text_reply(FIRST)))
    for prefix in ("/v1", "/anthropic", "/weak"):
        assert is_delta(client.get(up.at(fresh(prefix), text_reply(SECOND)))), prefix
        client.held.clear()
        client.hold(FIRST)


def test_a_base_serves_no_other_upstream(up, second, gw):
    """A base serves every route of its upstream (and of no other)."""
    client = Holder(gw)
    client.get(up.at(fresh(), text_reply(FIRST)))
    response = client.get(second.at(fresh("/second"), text_reply(SECOND)))
    assert not is_delta(response)
    assert why(response) == "unknown-base"


def test_the_last_four_exchanges_stay(up, gw):
    """The last `bases.keep` (default 4) exchanges of each session and route stay"""
    texts = [lines(100, seed) for seed in range(20, 26)]
    session = name()
    path = fresh()
    for text in texts:
        up.at(path, text_reply(text))
        get(gw, path, [("Accept-Encoding", "ctxpack.delta.v1"), ("Packhorse-Session", session)])
    for index, text in reversed(list(enumerate(texts))):
        client = Holder(gw, session, accept="ctxpack.delta.v1")
        client.hold(text)
        up.at(
            path,
            Reply(200, [("Content-Type", "text/plain"), ("Cache-Control", "no-store")], (text + "one line more\n").encode()),
        )
        assert is_delta(client.get(path)) is (index >= 2), index


def test_keep_counts_each_route_apart(up, gw):
    """The last `bases.keep` (default 4) exchanges of each session and route stay"""
    session = name()
    client = Holder(gw, session)
    client.get(up.at(fresh(), text_reply(FIRST)))
    for seed in range(6):
        Holder(gw, session).get(up.at(fresh("/v1"), text_reply(lines(60, 50 + seed))))
    assert is_delta(client.get(up.at(fresh(), text_reply(SECOND))))


def test_bounds_of_a_session_by_bytes_and_ttl(up):
    """within `bases.max_bytes` a session and in total, for `bases.ttl`"""
    with gateway(up, bases={"max_bytes": 20000, "ttl": "1s"}) as gw:
        session, path = name(), fresh()
        for seed in (31, 32, 33):
            up.at(path, text_reply(lines(100, seed)))
            Holder(gw, session).get(path)
        held = gw.metrics().total("packhorse_base_bytes")
        assert 0 < held <= 20000
        newest = Holder(gw, session)
        newest.hold(lines(100, 33))
        assert is_delta(grown(up, gw, path, newest, lines(104, 33)))
        oldest = Holder(gw, session)
        oldest.hold(lines(100, 31))
        assert why(grown(up, gw, path, oldest, lines(104, 31))) == "unknown-base"
        time.sleep(1.3)
        late = Holder(gw, session)
        late.hold(lines(104, 33))
        assert why(grown(up, gw, path, late, lines(108, 33))) == "unknown-base"


def test_evicted_by_session(up):
    """Scope: looked up by hash among all bases of the principal; evicted by session."""
    with gateway(up, sessions={"max": 3}) as gw:
        path = fresh()
        held = []
        for seed in range(6):
            client = Holder(gw)
            up.at(path, text_reply(lines(100, 60 + seed)))
            client.get(path)
            held.append(client)
        assert gw.metrics().total("packhorse_sessions") <= 3
        assert why(grown(up, gw, path, held[0], lines(104, 60))) == "unknown-base"
        assert is_delta(grown(up, gw, path, held[-1], lines(104, 65)))


# ---------------------------------------------------------------- scope

CREDENTIALS = ["Authorization", "x-api-key", "api-key", "x-goog-api-key"]


@pytest.mark.parametrize("field", CREDENTIALS)
def test_looked_up_among_all_bases_of_the_principal(up, gw, field):
    """Scope: looked up by hash among all bases of the principal"""
    secret = [(field, "Bearer " + name())]
    one, other = Holder(gw, fields=secret), Holder(gw, fields=secret)
    path = up.at(fresh(), text_reply(FIRST))
    one.get(path)
    other.hold(FIRST)
    assert is_delta(grown(up, gw, path, other)), field


@pytest.mark.parametrize("field", CREDENTIALS)
@pytest.mark.parametrize("other", [None, "same", *CREDENTIALS])
def test_a_base_never_crosses_principals(up, gw, field, other):
    """A base never crosses principals."""
    session, key = name(), name()
    path = up.at(fresh(), text_reply(FIRST))
    Holder(gw, session, fields=[(field, key)]).get(path)
    match other:
        case None:
            fields = []
        case "same":
            fields = [(field, key + "x")]
        case _:
            fields = [(other, key)]
    client = Holder(gw, session, fields=fields)
    client.hold(FIRST)
    response = grown(up, gw, path, client)
    if other == field:
        assert is_delta(response)
    else:
        assert not is_delta(response)
        assert why(response) == "unknown-base", "a base of somebody else looks as one nobody has"


def test_a_base_of_someone_without_credentials_is_not_for_a_caller_with_some(up, gw):
    """A base never crosses principals."""
    session = name()
    path = up.at(fresh(), text_reply(FIRST))
    Holder(gw, session).get(path)
    client = Holder(gw, session, fields=[("x-api-key", name())])
    client.hold(FIRST)
    assert not is_delta(grown(up, gw, path, client))


def test_hits_of_others_do_not_show(up, gw):
    """D08: no sharing of hit or miss signals across credentials: the responses are alike to the byte."""
    path = up.at(fresh(), text_reply(FIRST, ("Date", "Wed, 21 Oct 2026 07:28:00 GMT"), ("Server", "x")))
    Holder(gw, fields=[("x-api-key", "key-1")]).get(path)

    def seen(base: str):
        fields = [
            ("x-api-key", "key-2"),
            ("Packhorse-Session", "t"),
            ("Accept-Encoding", "ctxpack.delta.v1"),
            ("Ctxpack-Base", base),
        ]
        response = get(gw, path, fields)
        return response.raw_head, response.body

    assert seen(digest(FIRST[:-100])) == seen("sha256:" + "9" * 64)


def test_without_credentials_the_session_is_the_scope(up, gw):
    """Without credentials the session is the scope, and only `Packhorse-Session` or our cookie opens it"""
    path = up.at(fresh(), text_reply(FIRST))
    Holder(gw).get(path)
    client = Holder(gw)
    client.hold(FIRST)
    assert why(grown(up, gw, path, client)) == "unknown-base"


@pytest.mark.parametrize(
    "field",
    ["x-litellm-session-id", "helicone-session-id", "x-headroom-session-id", "x-claude-code-session-id", "x-codex-session-id",
     "session-id", "session_id", "x-session-id"],
)  # fmt: skip
def test_a_guessable_header_opens_nothing_without_credentials(up, gw, field):
    """never a guessable id from a body or another header"""
    value = name()
    path = up.at(fresh(), text_reply(FIRST))
    Holder(gw, None, fields=[(field, value)]).get(path)
    client = Holder(gw, None, fields=[(field, value)])
    client.hold(FIRST)
    assert not is_delta(grown(up, gw, path, client))


@pytest.mark.parametrize(
    ("prefix", "body"),
    [("/v1", b'{"prompt_cache_key": "guess", "messages": []}'), ("/v1", b'{"metadata": {"session_id": "guess"}}'),
     ("/anthropic", b'{"metadata": {"user_id": "guess"}, "messages": []}')],
)  # fmt: skip
def test_a_guessable_id_of_a_body_opens_nothing_without_credentials(up, gw, prefix, body):
    """never a guessable id from a body or another header"""
    path = up.at(fresh(prefix), text_reply(FIRST))
    Holder(gw, None).ask("POST", path, body)
    client = Holder(gw, None)
    client.hold(FIRST)
    up.at(path, text_reply(SECOND))
    assert not is_delta(client.ask("POST", path, body))


def test_a_foreign_cookie_value_opens_nothing(up, gw):
    """our cookie opens it: a value the gateway never gave opens nothing of others"""
    path = up.at(fresh(), text_reply(FIRST))
    Holder(gw, "guessable").get(path)
    for value in ("guessabl", "", "x" * 500, "a b", "../guessable"):
        client = Holder(gw, None, fields=[("Cookie", f"packhorse_session={value}")])
        client.hold(FIRST)
        response = grown(up, gw, path, client)
        assert response.status == 200
        assert not is_delta(response), value


# ---------------------------------------------------------------- not stored


def never_a_base(up, gw, reply, *fields: tuple[str, str], method: str = "GET") -> None:
    session, path = name(), up.at(fresh(), reply)
    ask(gw, method, path, [("Accept-Encoding", "ctxpack.delta.v1"), ("Packhorse-Session", session), *fields])
    client = Holder(gw, session)
    client.hold(FIRST)
    response = grown(up, gw, path, client)
    assert not is_delta(response)
    assert why(response) == "unknown-base"


@pytest.mark.parametrize("value", ["no-store", "No-Store", "private, no-store", "no-cache,no-store,max-age=0"])
def test_no_store_is_not_stored(up, gw, value):
    """Not stored: `no-store` bodies"""
    never_a_base(up, gw, text_reply(FIRST, ("Cache-Control", value)))
    never_a_base(up, gw, text_reply(FIRST, ("Cache-Control", "x=1"), ("Cache-Control", value)))


def test_what_a_request_marks_no_store_is_not_stored(up, gw):
    """Not stored: `no-store` bodies (RFC 9111 5.2.1.5: nor any response to such a request)"""
    never_a_base(up, gw, text_reply(FIRST), ("Cache-Control", "no-store"))


@pytest.mark.parametrize("value", ["no-cache", "private", "max-age=0", "must-revalidate", 'ext="no-store"'])
def test_what_is_not_no_store_is_stored(up, gw, value):
    """Not stored: `no-store` bodies (and not others)"""
    path = up.at(fresh(), text_reply(FIRST, ("Cache-Control", value)))
    client = Holder(gw)
    client.get(path)
    assert is_delta(grown(up, gw, path, client)), value


def test_partial_is_not_stored(up, gw):
    """Not stored: ... partial"""
    never_a_base(
        up,
        gw,
        Reply(206, [("Content-Type", "text/plain"), ("Content-Range", f"bytes 0-{len(FIRST) - 1}/99999")], FIRST.encode()),
    )


@pytest.mark.parametrize("status", [400, 404, 500, 503])
def test_failed_is_not_stored(up, gw, status):
    """Not stored: ... failed"""
    never_a_base(up, gw, text_reply(FIRST, status=status))


def test_cut_off_is_not_stored(up, gw):
    """Not stored: ... cut-off ones"""
    data = FIRST.encode()

    def short(peer: Peer, _request: Request) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % (len(data) + 10) + data)
        peer.close()

    def unended(peer: Peer, _request: Request) -> None:
        peer.begin([("Content-Type", "text/plain")])
        peer.chunk(data)
        peer.close()

    def late(peer: Peer, request: Request) -> None:
        peer.begin([("Content-Type", "text/plain")])
        peer.chunk(data)
        time.sleep(0.7)
        peer.reset()

    for script in (short, unended, late):
        session, path = name(), up.at(fresh(), Raw(script))
        with Client(gw) as client:
            client.send(
                f"GET {path} HTTP/1.1\r\nHost: g\r\nAccept-Encoding: ctxpack.delta.v1\r\nPackhorse-Session: {session}\r\n\r\n".encode()
            )
            response = client.response()
            assert response.status in (502, 200)
            assert response.status == 502 or not response.complete
        holder = Holder(gw, session)
        holder.hold(FIRST)
        assert not is_delta(grown(up, gw, path, holder)), script.__name__


def test_a_truncated_coded_body_is_not_stored_nor_whole(up, gw):
    """Not stored: ... cut-off ones (Truncated upstream bodies are never taken as whole.)"""
    for coding, encode in {
        "gzip": gzip.compress,
        "zstd": zstd.compress,
        "br": brotli.compress,
        "deflate": zlib.compress,
    }.items():
        path = up.at(fresh(), text_reply(encode(FIRST.encode())[:-9], ("Content-Encoding", coding)))
        with Client(gw) as client:
            client.send(
                f"GET {path} HTTP/1.1\r\nHost: g\r\nAccept-Encoding: ctxpack.delta.v1\r\nPackhorse-Session: c\r\n\r\n".encode()
            )
            response = client.response()
        assert response.status == 502 or not response.complete, coding


def test_what_was_not_written_out_in_full_is_not_stored(up, gw):
    """anything whose response was not written out in full without error"""
    big = "".join(f"{number} and some words that go on for a while\n" for number in range(300_000))
    session, path = name(), up.at(fresh(), text_reply(big))
    client = Client(gw)
    client.send(
        f"GET {path} HTTP/1.1\r\nHost: g\r\nAccept-Encoding: ctxpack.delta.v1\r\nPackhorse-Session: {session}\r\n\r\n".encode()
    )
    client.exactly(100)
    client.reset()
    time.sleep(0.3)
    holder = Holder(gw, session)
    holder.hold(big)
    response = grown(up, gw, path, holder, big + "more\n")
    assert not is_delta(response)


# ---------------------------------------------------------------- refusals of coded requests


@pytest.mark.parametrize("prefix", ["", "/v1", "/anthropic"])
@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", b"this is no gzip"),
        ("gzip", gzip.compress(b"x" * 3000)[:-4]),
        ("gzip", gzip.compress(b"x" * 3000) + b"trailing rubbish"),
        ("zstd", b"this is no zstd"),
        ("zstd", zstd.compress(random.Random(1).randbytes(3000))[:-5]),
        ("br", b"\xff\xff\xff\xff"),
        ("br", brotli.compress(random.Random(2).randbytes(3000))[:-3]),
        ("deflate", b"rubbish"),
        ("deflate", zlib.compress(b"x" * 3000)[:-2]),
        ("zstd, gzip", gzip.compress(b"not zstd")),
    ],
    ids=range(10),
)
def test_a_corrupt_request_is_400(up, gw, prefix, coding, body):
    """A wrong or truncated [coding]: 400, type `bad-coding`"""
    path = up.at(fresh(prefix), text_reply("fine"))
    with Client(gw) as client:
        response = client.ask("POST", path, [("Content-Encoding", coding)], body)
        problem(response, 400, "bad-coding")
        assert up.seen(path) == [], "it was forwarded"


@pytest.mark.parametrize("coding", ["x-unknown", "gzip, x-unknown", "compress", "gzip;q=1", "a" * 300])
def test_an_unknown_coding_is_415(up, gw, coding):
    """`unsupported-coding` (415 with `Accept-Encoding`; `plain` routes pass unknown codings through)"""
    path = up.at(fresh(), text_reply("fine"))
    response = ask(gw, "POST", path, [("Content-Encoding", coding)], b"xyz")
    problem(response, 415, "unsupported-coding")
    assert {"gzip", "zstd"} <= set(response.members("accept-encoding"))
    assert up.seen(path) == []
    path = up.at(fresh("/plain"), text_reply("fine"))
    assert ask(gw, "POST", path, [("Content-Encoding", coding)], b"xyz").status == 200
    assert (up.last(path).value("content-encoding"), up.last(path).body) == (coding.encode(), b"xyz")


def test_a_415_of_the_upstream_is_its_own(up, gw):
    """A 415 of another type is the upstream's own."""
    path = up.at(fresh(), Reply(415, [("Content-Type", "application/json")], b'{"error": "no"}'))
    response = ask(gw, "POST", path, [], b"x")
    assert (response.status, response.body) == (415, b'{"error": "no"}')


def test_identity_in_content_encoding(up, gw):
    """`identity` is no coding (RFC 9110 8.4.1)"""
    path = up.at(fresh(), text_reply("fine"))
    assert ask(gw, "POST", path, [("Content-Encoding", "identity")], b"xyz").status == 200
    assert up.last(path).body == b"xyz"
    assert ask(gw, "POST", path, [("Content-Encoding", "identity, gzip")], gzip.compress(b"xyz")).status in (200, 415)


@pytest.mark.parametrize(
    ("encode", "coding"),
    [(gzip.compress, "gzip"), (zstd.compress, "zstd"), (brotli.compress, "br"), (zlib.compress, "deflate")],
)
def test_ratio_200(up, gw, encode, coding):
    """Over the limit when decoded (...; ratio 200; ...): 413."""
    path = up.at(fresh(), text_reply("fine"))
    bomb = encode(b"\0" * 8_000_000)
    expected = 413 if 8_000_000 / len(bomb) > 200 else 200
    response = ask(gw, "POST", path, [("Content-Encoding", coding)], bomb)
    assert response.status == expected
    if expected == 413:
        problem(response, 413, "too-large")
        assert up.seen(path) == []


def test_layers(up, gw):
    """Over the limit when decoded (...; 4 layers): 413."""
    for count, status in ((4, 200), (5, 413), (40, 413)):
        body = b"some text of no great length"
        for _ in range(count):
            body = gzip.compress(body)
        path = up.at(fresh(), text_reply("fine"))
        response = ask(gw, "POST", path, [("Content-Encoding", ", ".join(["gzip"] * count))], body)
        assert response.status == status, count
        if status == 413:
            problem(response, 413, "too-large")
            assert up.seen(path) == []


def test_limits_request(up):
    """`limits.request`, default 64 MiB ... 413"""
    with gateway(up, limits={"request": 10000}) as gw:
        path = up.at(fresh(), text_reply("fine"))
        for size, status in ((9999, 200), (10000, 200), (10001, 413)):
            for framing in ("length", "chunked"):
                with Client(gw) as client:
                    response = client.ask("POST", path, [], b"x" * size, framing=framing)
                    assert response.status == status, (size, framing)
                    if status == 413:
                        problem(response, 413, "too-large")
        content = random.Random(1).randbytes(3000) * 4
        for size, status in ((10000, 200), (10001, 413)):
            response = ask(gw, "POST", path, [("Content-Encoding", "gzip")], gzip.compress(content[:size]))
            assert response.status == status


def test_64_mib(up, gw):
    """(`limits.request`, default 64 MiB ...): 413"""
    limit = 64 * 2**20
    path = up.at(fresh(), text_reply("fine"))
    with Client(gw) as client:
        client.send(f"POST {path} HTTP/1.1\r\nHost: g\r\nContent-Length: {limit + 1}\r\n\r\n".encode())
        problem(client.response("POST"), 413, "too-large")
    assert up.seen(path) == []
    with Client(gw) as client:
        client.send(f"POST {path} HTTP/1.1\r\nHost: g\r\nContent-Length: {limit}\r\n\r\n".encode())
        piece = b"y" * 2**20
        for _ in range(64):
            client.send(piece)
        assert client.response("POST").status == 200
    assert len(up.last(path).body) == limit
    up.last(path).body = up.last(path).raw_body = b""


def test_a_refusal_leaves_no_body_to_be_read_as_a_request(up, gw):
    """C03: the unread body is drained or the connection closed, so that it is never parsed as the next request."""
    inner = up.at(fresh(), text_reply("smuggled"))
    path = up.at(fresh(), text_reply("fine"))
    smuggled = f"GET {inner} HTTP/1.1\r\nHost: g\r\n\r\n".encode()
    with Client(gw) as client:
        client.send(
            f"POST {path} HTTP/1.1\r\nHost: g\r\nContent-Encoding: x-no\r\nContent-Length: {len(smuggled)}\r\n\r\n".encode()
            + smuggled
        )
        assert client.response("POST").status == 415
        client.ends(1)
    assert up.seen(inner) == []


# ---------------------------------------------------------------- concurrency and restarts


def test_concurrent_turns_of_one_session(up, gw):
    """Concurrent turns of one session are all served: bases are content-addressed, so they do not conflict. (E01)"""
    session = name()
    path = up.at(fresh(), text_reply(FIRST))
    Holder(gw, session).get(path)
    barrier = threading.Barrier(25)
    errors: list[BaseException] = []

    def turn(number: int) -> None:
        try:
            client = Holder(gw, session)
            client.hold(FIRST)
            mine = up.at(fresh(), text_reply(FIRST + f"turn {number}\n" * 20))
            barrier.wait(10)
            response = client.get(mine)  # a delta, or whole where four later exchanges had come before it
            assert is_delta(response) or why(response) == "unknown-base"
            assert response.content == (FIRST + f"turn {number}\n" * 20).encode()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=turn, args=(number,)) for number in range(25)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert errors == []


def test_a_restart_forgets_memory_and_keeps_sqlite(up):
    """E11: a base that predates a restart is unknown (memory) or there (sqlite); the client is served either way."""
    for kind in ("memory", "sqlite"):
        with gateway(up, store={"kind": kind, "path": "bases.sqlite3"}) as gw:
            path = up.at(fresh(), text_reply(FIRST))
            client = Holder(gw)
            client.get(path)
            if kind == "sqlite":
                until(lambda gw=gw: gw.metrics().total("packhorse_bases", store="sqlite") >= 1)
                time.sleep(0.5)
            gw.kill()
            gw.again()
            up.at(path, text_reply(SECOND))
            said = [is_delta(client.get(path))]
            if kind == "sqlite" and not said[0]:
                client.held.clear()
                client.hold(FIRST)
                said.append(is_delta(client.get(path)))
            assert said[-1] is (kind == "sqlite"), kind


def test_the_store_files_are_private(up):
    """the key file is made once, mode 0600, beside the store; the SQLite file is 0600"""
    with gateway(up, store={"kind": "sqlite", "path": "var/bases.sqlite3"}) as gw:
        client = Holder(gw, fields=[("x-api-key", "secret-of-mine")])
        client.get(up.at(fresh(), text_reply(FIRST)))
        until(lambda: len(list((gw.folder / "var").iterdir())) >= 2)
        for file in (gw.folder / "var").iterdir():
            assert file.stat().st_mode & 0o777 == 0o600, file
            assert b"secret-of-mine" not in file.read_bytes()
        keys = {file.name: file.read_bytes() for file in (gw.folder / "var").iterdir() if "sqlite" not in file.suffix}
        gw.kill()
        gw.again()
        for file, before in keys.items():
            if not file.endswith(("-wal", "-shm", ".sqlite3")):
                assert (gw.folder / "var" / file).read_bytes() == before, "the key was made again"
