"""Faults (d): nothing a client or an upstream writes reaches where it must not."""

import asyncio
import contextlib
import signal
import subprocess

import pytest
from support.channel import Ended
from support.client import ask, connect, request_bytes
from support.gateways import ROOT, gateway_for, gateway_process
from support.messages import Request, head_bytes
from support.packs import SPOKEN, gzipped, pack_client
from support.scrapes import counted, scrape
from support.texts import KINDS, PATHS, UNDERSTOOD, chat_request, document
from support.twins import growing, turn_of, uses_delta
from support.upstream import Peer, Reply, closed_port, each, upstream

from ctxpack import ContextPack

H = b"POST / HTTP/1.1\r\nHost: gw\r\n"
G = b"GET / HTTP/1.1\r\nHost: gw\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: gw\r\n\r\n"
MARK = b"OffendingBytes"

MALFORMED = {
    "CL and TE": H + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "TE and CL": H + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "two lengths": H + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
    "two lengths in one": H + b"Content-Length: 4, 5\r\n\r\nabcde",
    "TE with a space before the colon": H + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "CL and tRANSFER-ENCODING": H + b"tRANSFER-ENCODING: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "a length with a sign": H + b"Content-Length: +2\r\n\r\nab",
    "a negative length": H + b"Content-Length: -2\r\n\r\nab",
    "a hexadecimal length": H + b"Content-Length: 0x2\r\n\r\nab",
    "a length of words": H + b"Content-Length: " + MARK + b"\r\n\r\nab",
    "obs-fold": G + b"X-A: b\r\n " + MARK + b"\r\n\r\n",
    "a fold first": b"GET / HTTP/1.1\r\n X-A: " + MARK + b"\r\nHost: gw\r\n\r\n",
    "bare LF": b"GET / HTTP/1.1\nHost: gw\nX-A: " + MARK + b"\n\n",
    "bare CR in a value": G + b"X-A: b\rX-B: " + MARK + b"\r\n\r\n",
    "NUL in a value": G + b"X-A: b\0" + MARK + b"\r\n\r\n",
    "NUL in a name": G + b"X\0A: " + MARK + b"\r\n\r\n",
    "a name with a space": G + b"X A: " + MARK + b"\r\n\r\n",
    "no colon": G + MARK + b"\r\n\r\n",
    "an empty name": G + b": " + MARK + b"\r\n\r\n",
    "no Host": b"GET / HTTP/1.1\r\nX-A: " + MARK + b"\r\n\r\n",
    "two Hosts": G + b"Host: " + MARK + b"\r\n\r\n",
    "TE twice": H + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "TE not chunked last": H + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "a chunk size with a sign": H + b"Transfer-Encoding: chunked\r\n\r\n+1\r\na\r\n0\r\n\r\n",
    "a chunk size of words": H + b"Transfer-Encoding: chunked\r\n\r\n" + MARK + b"\r\na\r\n0\r\n\r\n",
    "a chunk that runs on": H + b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
    "version 2.0": b"GET / HTTP/2.0\r\nHost: gw\r\nX-A: " + MARK + b"\r\n\r\n",
    "version 1.10": b"GET / HTTP/1.10\r\nHost: gw\r\nX-A: " + MARK + b"\r\n\r\n",
    "no version": b"GET /" + MARK + b"\r\nHost: gw\r\n\r\n",
    "TLS on a plain port": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + MARK + b"\r\n\r\n",
    "a method of brackets": b"G{}T / HTTP/1.1\r\nHost: gw\r\nX-A: " + MARK + b"\r\n\r\n",
}


async def _is_refused(gateway, raw: bytes, up, *, feed: str = "whole") -> None:
    served = len(up.requests)
    async with connect(gateway) as client:
        with contextlib.suppress(ConnectionResetError):  # refused before the end of it
            await (client.trickle(raw + SMUGGLED) if feed == "bytes" else client.send(raw + SMUGGLED))
        response = await client.response()
        assert response.status in (400, 411, 413, 431, 501, 505), response.raw_head
        assert response.text("content-type") == "application/problem+json"
        assert b"urn:packhorse:" in response.body
        assert MARK not in client.transcript
        assert await client.some() == b"", "something was answered after the refusal"
    assert b"/smuggled" not in [request.target for request in up.requests[served:]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", list(MALFORMED))
@pytest.mark.parametrize("feed", ["whole", "bytes"])
async def test_d01_a_malformed_request_is_refused_and_the_connection_closed(kind, case, feed, caplog):
    """aio-libs/aiohttp#6182 and its kind: the rest of a refused message must never be read as the next request."""
    caplog.set_level("DEBUG")
    async with upstream(Reply(body=b"ok")) as up, gateway_for(up, kind=kind) as gateway:
        await _is_refused(gateway, MALFORMED[case], up, feed=feed)
        assert MARK.decode() not in caplog.text
        assert (await ask(gateway, "GET", "/")).body == b"ok"


@pytest.mark.limit(60)
async def test_d01_so_it_is_without_the_compiled_parser():
    async with upstream(Reply(body=b"ok")) as up, gateway_process(up, environment={"AIOHTTP_NO_EXTENSIONS": "1"}) as gateway:
        refused = []
        for case, raw in MALFORMED.items():
            try:
                await _is_refused(gateway, raw, up)
            except (AssertionError, Ended) as error:
                refused.append(f"{case}: {str(error).splitlines()[0]}")
        assert refused == []
        assert MARK.decode() not in gateway.log


async def test_d01_chunked_in_any_case_is_chunked():
    async with upstream(Reply(body=b"ok")) as up, gateway_for(up) as gateway, connect(gateway) as client:
        await client.send(H + b"tRANSFER-ENCODING: cHUNKED\r\n\r\n2\r\nab\r\n0\r\n\r\n" + request_bytes("GET", "/next"))
        assert [(await client.response()).status for _ in range(2)] == [200, 200]
        assert (up.requests[0].body, up.targets()) == (b"ab", [b"/", b"/next"])


@pytest.mark.parametrize("kind", KINDS)
async def test_d01_twin_well_formed_requests_in_one_segment_are_all_answered(kind):
    async with upstream(growing(kind)) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        await client.send(
            request_bytes("POST", "/a", [], b"abcde") + request_bytes("POST", "/b", [], b"xyz", framing="chunked") + SMUGGLED
        )
        assert [(await client.response()).status for _ in range(3)] == [200, 200, 200]
        assert up.targets() == [b"/a", b"/b", b"/smuggled"]
        await uses_delta(gateway, kind)


UPSTREAM_NONSENSE = {
    "bare CR": b"HTTP/1.1 200 OK\r\nX-A: b\rSet-Cookie: x=1\r\nContent-Length: 2\r\n\r\nok",
    "NUL": b"HTTP/1.1 200 OK\r\nX-A: b\0c\r\nContent-Length: 2\r\n\r\nok",
    "CL and TE": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
    "no HTTP": b"SSH-2.0-OpenSSH_9.9\r\n",
    "no status": b"HTTP/1.1 \r\n\r\n",
    "status 99": b"HTTP/1.1 99 Low\r\nContent-Length: 2\r\n\r\nok",
    "an empty answer": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nX-A: b",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", list(UPSTREAM_NONSENSE))
async def test_d06_nonsense_from_the_upstream_is_a_502_and_splits_nothing(kind, case):
    """gke-labs/kube-agents#391, GHSA-86v3. Probe: aiohttp closes with an empty reply at send time."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(UPSTREAM_NONSENSE[case])
        peer.close()

    async with upstream(script) as up, gateway_for(up, kind=kind) as gateway:
        response = await ask(gateway, "POST", "/", [], b"{}")
        assert response.values("set-cookie") == []
        assert response.status == 502
        assert b"urn:packhorse:upstream-" in response.body
        assert len(up.requests) == 1


@pytest.mark.parametrize("kind", UNDERSTOOD)
@pytest.mark.parametrize("name", ["Packhorse-Session", "x-session-id", "x-request-id", "Packhorse-Link", "Ctxpack-Base"])
async def test_d06_an_encoded_line_break_in_an_id_splits_nothing(kind, name):
    async with upstream(growing(kind)) as up, gateway_for(up, kind=kind) as gateway:
        response = await ask(gateway, "GET", PATHS[kind], [(name, "a%0d%0aSet-Cookie: x=1"), ("Accept-Encoding", SPOKEN)])
        assert all(value.startswith(b"packhorse_session=") and b"x=1" not in value for value in response.values("set-cookie"))
        assert response.status == (400 if name == "Packhorse-Session" else 200)


IDS = ["../../../tmp/pwn", "..%2f", "a/b", "C:\\x", "x" * 129, "x" * 10_000, " ", "a b", "é", "a;b", "a,b", "a%00", "*", "a\tb"]


@pytest.mark.parametrize("kind", UNDERSTOOD)
@pytest.mark.parametrize("session", IDS)
@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_d12_a_hostile_session_id_is_400_and_names_no_file(kind, session, store, tmp_path):
    """NousResearch/hermes-agent#54852."""
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    async with (
        upstream(growing(kind)) as up,
        gateway_for(up, kind=kind, store={"kind": store, "path": str(folder / "s.sqlite3")}) as gateway,
    ):
        response = await ask(gateway, "GET", "/", [("Packhorse-Session", session.encode()), ("Accept-Encoding", SPOKEN)])
        assert response.status == 400
        assert b"urn:packhorse:bad-request" in response.body
        assert up.requests == []
        foreign = await ask(gateway, "GET", "/", [("x-session-id", session.encode()), ("Accept-Encoding", SPOKEN)])
        assert foreign.status == 200  # foreign ids are hashed, whatever they hold
        await asyncio.sleep(0)
    names = {path.name for path in tmp_path.rglob("*")}
    assert all(name in ("a", "b") or name.startswith("s.sqlite3") or "key" in name for name in names), names


@pytest.mark.parametrize("kind", UNDERSTOOD)
@pytest.mark.parametrize("session", [".", "..", "a", "A-b_c.1", "-", "x" * 128])
async def test_d12_twin_good_ids_have_deltas(kind, session):
    async with upstream(growing(kind)) as up, gateway_for(up, kind=kind) as gateway:
        await uses_delta(gateway, kind, session=session)


@pytest.mark.parametrize("pair", [("a.b", "a_b"), ("a-b", "a.b"), ("A", "a"), ("a", "a."), ("x" * 127, "x" * 128)])
@pytest.mark.parametrize("name", ["Packhorse-Session", "x-session-id"])
async def test_d12_ids_that_differ_in_little_do_not_collide(pair, name):
    async with upstream(growing()) as up, gateway_for(up) as gateway, pack_client(gateway, None) as client:
        first = await turn_of(client, "prepare", 1, fields=[(name, pair[0])])
        assert first.status == 200
        other = await turn_of(client, "prepare", 2, fields=[(name, pair[1])])
        assert not other.delta, "another session's base was used"
        if name == "Packhorse-Session":
            assert (await turn_of(client, "prepare", 2, fields=[(name, pair[0])])).delta


CREDENTIALS = ["Authorization", "x-api-key", "api-key", "x-goog-api-key"]


@pytest.mark.parametrize("kind", UNDERSTOOD)
@pytest.mark.parametrize("name", CREDENTIALS)
@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_d08_bases_never_cross_credentials(kind, name, store, tmp_path):
    """theopenco/llmgateway#3758: a cache key without the tenant. Nor is a client told that another holds a base."""
    async with (
        upstream(growing(kind)) as up,
        gateway_for(up, kind=kind, store={"kind": store, "path": str(tmp_path / "s.sqlite3")}) as gateway,
    ):
        async with (
            pack_client(gateway, "same", fields=[(name, "key-of-a")]) as a,
            pack_client(gateway, "same", fields=[(name, "key-of-b")]) as b,
        ):
            await turn_of(a, kind, 1)
            b.held = dict(a.held)
            stolen = await turn_of(b, kind, 2)
            assert not stolen.delta
            unknown = ContextPack.from_content("nobody ever sent this\n" * 50)
            b.held = {unknown.digest: unknown}
            made_up = await turn_of(b, kind, 2)
            assert made_up.why == stolen.why
            assert made_up.response.names() == stolen.response.names()
            assert made_up.response.body == stolen.response.body
            assert (await turn_of(a, kind, 2)).delta
        lookups = await counted(gateway, "packhorse_base_lookups_total", result="foreign")
        assert lookups.total("packhorse_base_lookups_total", result="hit") >= 1


@pytest.mark.parametrize("kind", UNDERSTOOD)
async def test_d08_without_credentials_a_session_is_the_scope(kind):
    async with upstream(growing(kind)) as up, gateway_for(up, kind=kind) as gateway, pack_client(gateway, "one") as client:
        await turn_of(client, kind, 1)
        client.session = "two"
        assert not (await turn_of(client, kind, 2)).delta
        client.session = "one"
        assert (await turn_of(client, kind, 3)).delta


@pytest.mark.parametrize("kind", UNDERSTOOD)
@pytest.mark.parametrize("name", CREDENTIALS)
async def test_d08_twin_one_credential_shares_its_bases_among_sessions(kind, name):
    async with (
        upstream(growing(kind)) as up,
        gateway_for(up, kind=kind) as gateway,
        pack_client(gateway, "one", fields=[(name, "key-of-a")]) as client,
    ):
        await turn_of(client, kind, 1)
        client.session = "two"
        assert (await turn_of(client, kind, 2)).delta


TARGETS = [
    "//169.254.169.254/latest",
    "///evil.example/x",
    "http://evil.example/admin?x=1",
    "HTTP://evil.example",
    "https://evil.example:1/a%2Fb",
    "http://user:pass@evil.example/x",
    "/\\evil.example/",
    "/http://evil.example/",
    "http://[::ffff:169.254.169.254]/",
    "http://2852039166/x",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_d03_d20_no_target_chooses_the_upstream(kind, target, host):
    """fastify/fast-proxy#42, BerriAI/litellm#30284: the configured upstream is asked, or nobody."""
    async with upstream(Reply(body=b"ok"), host=host) as up, gateway_for(up, kind=kind) as gateway:
        response = await ask(gateway, "GET", target, [("Host", "evil.example"), ("X-Forwarded-Host", "evil.example")])
        assert response.status in (200, 400)
        if response.status == 200:
            path = target
            if "://" in target and not target.startswith("/"):
                path = "/" + target.partition("://")[2].partition("/")[2]
            assert up.last.target.startswith(b"/")
            assert up.last.target == path.encode()
            assert up.last.values("host") == [up.authority.encode()]
        else:
            assert up.requests == []


@pytest.mark.parametrize("kind", KINDS)
async def test_d03_d20_twin_absolute_targets_have_deltas(kind):
    async with upstream(growing(kind)) as up, gateway_for(up, kind=kind) as gateway:
        await uses_delta(gateway, kind, target="http://gw.example/notes?x=%20")
        assert up.last.target == b"/notes?x=%20"


CLIMBS = [
    "/ui/../../etc/passwd",
    "/ui/..%2f..%2fetc/passwd",
    "/ui/%2e%2e/",
    "/ui/.%2e/x",
    "/ui/%2E./x",
    "/ui/a/../../x",
    "/ui/..",
    "/ui/./../x",
    "http://gw/ui/../x",
    "/ui/..?q",
    "/ui/a/b/../../../x",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", CLIMBS)
@pytest.mark.parametrize("strip", [False, True])
async def test_d13_dot_segments_do_not_leave_their_route(kind, target, strip):
    """aio-libs/aiohttp#8079 (CVE-2024-23334)."""
    async with (
        upstream(Reply(body=b"secret")) as up,
        gateway_for(up, kind=kind, route={"match": "/ui", "strip_prefix": strip}) as gateway,
    ):
        response = await ask(gateway, "GET", target)
        if "%2f" in target:
            assert response.status in (200, 400, 404)  # one segment: RFC 3986 does not split it
        else:
            assert response.status == 400
            assert up.requests == []


@pytest.mark.parametrize(
    "target",
    [
        "/../../etc/passwd",
        "/console/../../etc/passwd",
        "/console/..%2f..%2fetc/passwd",
        "/console/%2e%2e/%2e%2e/etc/passwd",
        "/console/....//etc/passwd",
        "/api/../../etc/passwd",
        "//etc/passwd",
        "/metrics/../../etc/passwd",
    ],
)
async def test_d13_the_admin_listener_serves_no_files(target):
    async with gateway_for("http://127.0.0.1:1") as gateway:
        response = await ask(gateway.admin_url, "GET", target)
        assert response.status in (400, 403, 404)
        assert b"root:" not in response.body


@pytest.mark.parametrize("kind", KINDS)
async def test_d13_twin_dot_segments_inside_a_route_pass_and_deltas_are_used(kind):
    async with upstream(growing(kind)) as up, gateway_for(up, kind=kind, route={"match": "/ui"}) as gateway:
        await uses_delta(gateway, kind, target="/ui/a/../b/./c")
        assert up.last.target == b"/ui/a/../b/./c"


SECRET = "s3cr3t-Value-9f8e7d"
IN_BODY = "b0dy-Secret-1a2b3c"
SECRETS = [
    ("Authorization", f"Bearer {SECRET}"),
    ("x-api-key", SECRET),
    ("api-key", SECRET),
    ("Cookie", f"sid={SECRET}"),
    ("Packhorse-Session", SECRET),
    ("x-session-id", SECRET),
    ("Proxy-Authorization", f"Basic {SECRET}"),
    ("Accept-Encoding", SPOKEN),
]


@pytest.mark.limit(60)
@pytest.mark.parametrize("log", ["console", "json"])
async def test_d14_secrets_are_nowhere(log, tmp_path):
    """BerriAI/litellm#8075: keys in logs, error bodies and traces. Every way to fail, at debug level, with the store on disk."""

    async def answers(peer: Peer, request: Request) -> None:
        path = request.target.partition(b"?")[0]
        if path == b"/cut":
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\nabc")
            peer.close()
        elif path == b"/garbage":
            await peer.send(b"no HTTP at all\r\n\r\n")
            peer.close()
        elif path == b"/hang":
            await peer.gone()
        elif path == b"/missing":
            await peer.respond(404, [("Content-Type", "application/json")], b'{"error": "none"}')
        elif path == b"/bad-gzip":
            await peer.respond(200, [("Content-Encoding", "gzip")], gzipped(document(1))[:-9])
        else:
            await peer.reply(growing("openai")(request))

    bodies: list[bytes] = []
    async with upstream(each(answers)) as up:
        routes = [
            {"name": "dead", "match": "/dead", "upstream": f"http://127.0.0.1:{closed_port()}", "kind": "openai"},
            {"name": "live", "match": "/", "upstream": up.url, "kind": "openai"},
        ]
        settings = {"log": {"format": log, "level": "debug"}, "store": {"kind": "sqlite", "path": str(tmp_path / "s.sqlite3")}}
        timeouts = {"connect": "1s", "first_byte": "500ms", "idle": "500ms"}
        async with gateway_process(routes=routes, timeouts=timeouts, limits={"request": 100_000}, **settings) as gateway:
            query = f"?key={SECRET}&api_key={SECRET}"
            for path in (
                "/ok",
                "/ok",
                "/dead/x",
                "/missing",
                "/cut",
                "/garbage",
                "/hang",
                "/bad-gzip",
                "/../x",
            ):
                async with connect(gateway) as client:
                    response = await client.ask("POST", path + query, SECRETS, chat_request("openai"))
                    bodies.append(response.raw_head + response.body if response.status >= 400 else b"")
            for fields, body in (
                ([("Content-Encoding", "gzip")], SECRET.encode()),
                ([("Content-Encoding", SECRET)], b"x"),
                ([("Packhorse-Link", SECRET)], b"x"),
                ([("Ctxpack-Base", SECRET)], b"x"),
                ([], b"x" * 200_000),
                ([("Content-Type", "application/json")], f'{{"model": "{IN_BODY}", '.encode()),
            ):
                async with connect(gateway) as client:
                    response = await client.ask("POST", "/ok" + query, [*SECRETS, *fields], body)
                    bodies.append(response.raw_head + response.body if response.status >= 400 else b"")
            async with connect(gateway) as client:
                await client.send(f"GET /x{query} HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer\0{SECRET}\r\n\r\n".encode())
                response = await client.response()
                bodies.append(response.raw_head + response.body)
            for path in ("/metrics", "/readyz", "/api/sessions", "/api/savings", f"/{SECRET}"):
                bodies.append((await ask(gateway.admin_url, "GET", path)).body)
            gateway.signal(signal.SIGTERM)
            await gateway.exit()
            assert gateway.log, "nothing was logged at all"
            assert SECRET not in gateway.log
            assert IN_BODY not in gateway.log
            assert "Traceback" not in gateway.log
        assert all(SECRET.encode() not in body and IN_BODY.encode() not in body for body in bodies)
        assert len([request for request in up.requests if SECRET.encode() in request.raw_head]) > 5
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path
            assert path.stat().st_mode & 0o077 == 0, f"{path} can be read by others"


@pytest.mark.parametrize("kind", KINDS)
async def test_d16_the_data_port_has_nothing_of_the_admin_plane(kind):
    """BerriAI/litellm#24530: /metrics without authentication on the public listener."""
    async with upstream(Reply(body=b"the upstream's")) as up, gateway_for(up, kind=kind) as gateway:
        for path in ("/metrics", "/livez", "/healthz", "/readyz", "/api/sessions", "/console/", "/-/reload", "/-/drain"):
            for method in ("GET", "POST"):
                assert (await ask(gateway, method, path)).body == b"the upstream's"
        for path in ("/metrics", "/livez", "/readyz"):
            assert (await ask(gateway.admin_url, "GET", path)).status == 200


async def test_d16_labels_hold_no_keys_and_no_ids():
    async with upstream(growing()) as up, gateway_for(up) as gateway:
        await uses_delta(
            gateway, session="label-session", own=[("Authorization", "Bearer label-key"), ("x-session-id", "label-foreign")]
        )
        text = (await counted(gateway, "packhorse_requests_total", 2)).response.body
        for secret in (b"label-session", b"label-key", b"label-foreign", b"sha256"):
            assert secret not in text


async def test_d16_with_a_token_the_admin_plane_asks_for_it():
    async with gateway_for("http://127.0.0.1:1", admin={"listen": "127.0.0.1:0", "token": "t0ken-t0ken-t0ken"}) as gateway:
        for path, method in (("/metrics", "GET"), ("/api/sessions", "GET"), ("/-/drain", "POST"), ("/-/reload", "POST")):
            for fields in ([], [("Authorization", "Bearer wrong")], [("Authorization", "Basic t0ken-t0ken-t0ken")]):
                assert (await ask(gateway.admin_url, method, path, fields)).status == 401
        assert (await ask(gateway.admin_url, "GET", "/metrics", [("Authorization", "Bearer t0ken-t0ken-t0ken")])).status == 200
        for path in ("/livez", "/healthz", "/readyz"):
            assert (await ask(gateway.admin_url, "GET", path)).status == 200


def test_d16_an_admin_listener_for_all_wants_a_token(tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text("admin: {listen: 0.0.0.0:9}\nroutes: [{name: r, upstream: 'http://127.0.0.1:1'}]\n")
    checked = subprocess.run(
        [f"{ROOT}/.venv/bin/python", "-m", "gateway", "check-config", str(config)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert checked.returncode == 2
    assert "token" in checked.stdout + checked.stderr


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("location", ["other", "//evil.example/%2Fx", "/relative?a=%20", "HTTP://Evil.Example/A b"])
async def test_d17_redirects_are_relayed_and_never_followed(kind, status, method, location):
    """rmusser01/tldw_chatbook#1925: a client followed, and sent x-api-key to another origin."""
    async with upstream(Reply(body=b"stolen")) as other:
        location = f"{other.url}/take" if location == "other" else location
        reply = Reply(status, [("Location", location), ("Content-Type", "text/plain")], b"moved")
        async with upstream(reply) as up, gateway_for(up, kind=kind) as gateway:
            fields = [("x-api-key", "k"), ("Authorization", "Bearer k"), ("Cookie", "a=b")]
            response = await ask(gateway, method, "/", fields, b"{}" if method == "POST" else b"")
            assert (response.status, response.text("location"), response.body) == (status, location, b"moved")
            assert len(up.requests) == 1
        assert other.peers == []


@pytest.mark.parametrize("kind", KINDS)
async def test_d17_twin_what_is_no_redirect_with_a_location_has_deltas(kind):
    async with (
        upstream(growing(kind, [("Location", "/x"), ("Content-Location", "/y")])) as up,
        gateway_for(up, kind=kind) as gateway,
    ):
        turn = await uses_delta(gateway, kind)
        assert turn.response.text("location") == "/x"


KEYS = {"keys": [{"name": "alice", "key": "alice-key-0123456789"}, {"name": "bob", "key": "bob-key-0123456789ab"}]}


@pytest.mark.parametrize("kind", KINDS)
async def test_d18_what_is_for_the_gateway_stays_with_the_gateway(kind):
    """jupyterhub/jupyter-server-proxy#590: the gateway's own credential was sent upstream."""
    async with upstream(growing(kind)) as up, gateway_for(up, kind=kind, access=KEYS) as gateway:
        own = [
            ("Packhorse-Key", "alice-key-0123456789"),
            ("Cookie", "a=1; packhorse_session=abcdefgh12345678; b=2"),
            ("Packhorse-Link", "weak"),
        ]
        own += [
            ("Authorization", "Bearer upstream-key"),
            ("Ctxpack-Accept", "ctxpack.delta.v1"),
            ("Available-Dictionary", ":abc:"),
        ]
        await uses_delta(gateway, kind, own=own)
        for request in up.requests:
            assert b"alice-key" not in request.raw_head
            assert b"packhorse_session" not in request.raw_head
            assert [name for name in request.names() if name.startswith(("packhorse", "ctxpack", "available"))] == []
            assert request.values("authorization") == [b"Bearer upstream-key"]
            cookie = b"; ".join(request.values("cookie"))
            assert [part.strip() for part in cookie.split(b";")] == [b"a=1", b"b=2"]
            assert b"ctxpack" not in b",".join(request.values("accept-encoding"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", [None, "", "wrong-key-0123456789", "alice-key-012345678", "alice-key-0123456789x"])
async def test_d18_without_a_key_nothing_reaches_the_upstream(kind, key):
    async with upstream(growing(kind)) as up, gateway_for(up, kind=kind, access=KEYS) as gateway:
        response = await ask(gateway, "POST", "/", [] if key is None else [("Packhorse-Key", key)], b"{}")
        assert response.status == 401
        assert b"urn:packhorse:unauthorized" in response.body
        assert up.requests == []


async def test_d18_named_keys_are_principals():
    async with (
        upstream(growing()) as up,
        gateway_for(up, access=KEYS) as gateway,
        pack_client(gateway, "same", fields=[("Packhorse-Key", "alice-key-0123456789")]) as client,
    ):
        await turn_of(client, "prepare", 1)
        client.fields = [(b"Packhorse-Key", b"bob-key-0123456789ab")]
        assert not (await turn_of(client, "prepare", 2)).delta
        client.fields = [(b"Packhorse-Key", b"alice-key-0123456789")]
        assert (await turn_of(client, "prepare", 3)).delta


@pytest.mark.parametrize("kind", UNDERSTOOD)
@pytest.mark.parametrize("control", [None, "public, max-age=60", "s-maxage=5"])
async def test_d_a_session_made_here_never_enters_a_shared_cache(kind, control):
    """Contract 5."""
    fields = [] if control is None else [("Cache-Control", control)]
    async with upstream(growing(kind, fields)) as up, gateway_for(up, kind=kind) as gateway:
        response = await ask(gateway, "GET", PATHS[kind], [("Accept-Encoding", SPOKEN)])
        made = response.values("packhorse-session") + [
            value for value in response.values("set-cookie") if value.startswith(b"packhorse_session")
        ]
        said = response.members("cache-control")
        if made:
            assert "private" in said
            assert "public" not in said
        if control is not None:
            assert not made, "a response that a shared cache may keep sets no session"
        quiet = await ask(gateway, "GET", PATHS[kind], [("Accept-Encoding", "gzip")])
        assert [name for name in quiet.names() if name.startswith(("packhorse", "ctxpack", "use-as"))] == []
        assert quiet.values("set-cookie") == []


async def test_d_headers_of_the_size_that_matters_are_counted_before_they_are_kept():
    async with upstream(Reply(body=b"ok")) as up, gateway_for(up) as gateway, connect(gateway) as client:
        head = head_bytes("GET / HTTP/1.1", [("Host", "gw"), *((f"X-{number}", "y" * 1000) for number in range(3000))])
        with contextlib.suppress(ConnectionResetError):
            await client.send(head)
        response = await client.response()
        assert (response.status, up.requests) == (431, [])
        assert (await scrape(gateway)).samples
