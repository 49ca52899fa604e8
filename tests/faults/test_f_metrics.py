"""Faults (f): the counters say what really crossed the wire, and nothing a client does makes them lie or grow."""

import asyncio
import contextlib
import json
import random
import shutil
import subprocess
import time
from typing import Any

import pytest
from support.channel import Ended, eventually
from support.client import Client, ask, connect, request_bytes
from support.gateways import gateway_for, gateway_process
from support.messages import Request, head_bytes
from support.packs import SPOKEN, PackClient, gzipped, pack_client
from support.scrapes import Scrape, counted, parse, scrape
from support.texts import KINDS, PATHS, UNDERSTOOD, chat_request, document, events
from support.twins import growing, turn_of, uses_delta
from support.upstream import Peer, Reply, each, upstream

LINK = "packhorse_link_bytes_total"


async def balanced(gateway: Any, *clients: Client) -> Scrape:
    """Wait until the gateway counts what the sockets did; it may be late by a moment, and never be above."""
    sent, received = sum(client.sent for client in clients), sum(client.received for client in clients)
    last: list[Scrape] = []

    async def equal() -> bool:
        last[:] = [await scrape(gateway)]
        up, down = last[0].total(LINK, direction="up"), last[0].total(LINK, direction="down")
        assert up <= sent, f"counted {up} up, the socket sent {sent}"
        assert down <= received, f"counted {down} down, the socket received {received}"
        return (up, down) == (sent, received)

    try:
        await eventually(equal, 4)
    except AssertionError as error:
        up, down = last[0].total(LINK, direction="up"), last[0].total(LINK, direction="down")
        raise AssertionError(f"counted up {up} of {sent}, down {down} of {received}") from error
    return last[0]


async def _documents(client: Client, kind: str) -> None:
    for number in range(3):
        await client.ask("POST", PATHS[kind], [("X-Turn", str(number + 1))], chat_request(kind))


async def _deltas(client: Client, kind: str) -> None:
    packs = PackClient(client, "s", SPOKEN, ())
    for number in range(1, 5):
        await turn_of(packs, kind, number)


async def _chunked_uploads(client: Client, kind: str) -> None:
    for size in (0, 1, 999, 1000, 30_000):
        await client.ask("POST", PATHS[kind], [], b"x" * size, framing="chunked")
    head = head_bytes("POST / HTTP/1.1", [("Host", "gw"), ("Transfer-Encoding", "chunked")])
    await client.send(head + b"5;ext=1\r\nhello\r\n0\r\nX-Trailer: 1\r\n\r\n")
    await client.response()
    await client.trickle(head + b"00005\r\nhello\r\n0\r\n\r\n")
    await client.response()


async def _pipelined(client: Client, kind: str) -> None:
    requests = [
        request_bytes("GET", "/a"),
        request_bytes("POST", "/b", [], b"body"),
        request_bytes("POST", "/c", [], b"c" * 3000, framing="chunked"),
    ]
    await client.send(b"".join(requests * 3))
    for _ in range(9):
        await client.response()
    await client.send(b"\r\n\r\n" + requests[0])
    await client.response()


async def _expecting(client: Client, kind: str) -> None:
    for size in (5, 5000):
        whole = request_bytes("POST", PATHS[kind], [("Expect", "100-continue")], b"x" * size)
        head, _, body = whole.partition(b"\r\n\r\n")
        await client.send(head + b"\r\n\r\n")
        await client.arrives(b"100 Continue")
        await client.send(body)
        await client.response()
    await client.send(request_bytes("POST", PATHS[kind], [("Expect", "100-continue")], b"early"))  # does not wait
    await client.response()


async def _bodiless(client: Client, kind: str) -> None:
    for method, target in (
        ("HEAD", "/"),
        ("GET", "/204"),
        ("GET", "/304"),
        ("HEAD", "/204"),
        ("DELETE", "/204"),
        ("OPTIONS", "*"),
    ):
        await client.ask(method, target)


async def _streams(client: Client, kind: str) -> None:
    for _ in range(2):
        await client.ask("POST", "/stream", [("Accept-Encoding", SPOKEN)], chat_request(kind, stream=True))


async def _errors(client: Client, kind: str) -> None:
    await client.ask("GET", "/404")
    await client.ask("GET", "/500")
    await client.ask("POST", "/", [("Packhorse-Session", "a b")])
    await client.ask("POST", "/", [("Content-Encoding", "foo")], b"x")
    await client.ask("POST", "/", [("Content-Encoding", "gzip")], b"not gzip")
    await client.ask("GET", "/die")


async def _refused_by_the_parser(client: Client, kind: str) -> None:
    await client.ask("GET", "/")
    await client.send(b"GET / HTTP/1.1\r\nHost: gw\r\nX A: b\r\n\r\n")
    await client.response()
    await client.gone()


async def _nonsense(client: Client, kind: str) -> None:
    await client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and more of it\r\n\r\n")
    await client.response()
    await client.gone()


async def _too_large_a_head(client: Client, kind: str) -> None:
    await client.send(head_bytes("GET / HTTP/1.1", [("Host", "gw"), ("X-A", "y" * 40_000)]))
    await client.response()
    await client.gone()


async def _half_a_request(client: Client, kind: str) -> None:
    await client.ask("GET", "/")
    await client.send(b"POST / HTTP/1.1\r\nHost: gw\r\nContent-Le")
    client.finish()
    await client.gone()


async def _close_delimited(client: Client, kind: str) -> None:
    await client.send(request_bytes("GET", "/until-close", [("Connection", "close")]))
    await client.response()
    await client.gone()


async def _http10(client: Client, kind: str) -> None:
    await client.send(b"GET / HTTP/1.0\r\nHost: gw\r\n\r\n")
    await client.to_end()


async def _byte_by_byte(client: Client, kind: str) -> None:
    await client.trickle(request_bytes("POST", PATHS[kind], [("Accept-Encoding", "gzip")], b"hello"))
    await client.response()


async def _left_amid_an_upload(client: Client, kind: str) -> None:
    await client.ask("GET", "/")
    head = head_bytes(f"POST {PATHS[kind]} HTTP/1.1", [("Host", "gw"), ("Content-Length", "50000")])
    await client.send(head + b"x" * 20_000)
    await asyncio.sleep(0.05)
    client.close()
    await client.lost.wait()


async def _refused_amid_an_upload(client: Client, kind: str) -> None:
    fields = [("Host", "gw"), ("Content-Length", "5000"), ("Expect", "cake")]
    await client.send(head_bytes(f"POST {PATHS[kind]} HTTP/1.1", fields) + b"x" * 5_000)
    assert (await client.response()).status == 417
    if not client.closed.is_set():
        await client.ask("GET", "/")


TRAFFIC = {
    function.__name__.strip("_"): function
    for function in (
        *(_documents, _deltas, _chunked_uploads, _pipelined, _expecting, _bodiless, _streams, _errors, _refused_by_the_parser),
        *(_nonsense, _too_large_a_head, _half_a_request, _close_delimited, _http10, _byte_by_byte),
        *(_left_amid_an_upload, _refused_amid_an_upload),
    )
}


def _mixed(kind: str) -> Any:
    async def answers(peer: Peer, request: Request) -> None:
        path = request.target
        if path == b"/stream":
            await peer.stream(events(kind, ["a", "b", "c"] * 20))
        elif path == b"/die":
            peer.reset()
        elif path[1:] in (b"204", b"304", b"404", b"500"):
            status = int(path[1:])
            await peer.respond(status, [("X-A", "1")], b"" if status < 400 else b"an error")
        elif path == b"/until-close":
            await peer.respond(200, [("Content-Type", "text/plain")], document(1), framing="close")
        elif request.method == b"HEAD":
            await peer.respond(200, [("Content-Type", "text/plain")], b"", framing="none")
        else:
            await peer.reply(growing(kind)(request))

    return each(answers)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", list(TRAFFIC))
async def test_f11_link_bytes_are_a_counting_sockets_own(kind, what):
    """headroomlabs-ai/headroom#3561: savings were shown while the payload went out unchanged. Plus or minus nothing."""
    async with upstream(_mixed(kind)) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        await TRAFFIC[what](client, kind)
        await balanced(gateway, client)


@pytest.mark.parametrize("kind", KINDS)
async def test_f11_so_are_they_over_many_connections_at_once(kind):
    async with upstream(_mixed(kind)) as up, gateway_for(up, kind=kind) as gateway:
        clients: list[Client] = []

        async def one(number: int) -> None:
            async with connect(gateway) as client:
                clients.append(client)
                names = list(TRAFFIC)
                for name in random.Random(number).sample(names, 4):
                    if client.closed.is_set():
                        break
                    await TRAFFIC[name](client, kind)

        await asyncio.gather(*(one(number) for number in range(12)))
        await balanced(gateway, *clients)


@pytest.mark.parametrize("kind", KINDS)
async def test_f11_so_are_they_for_a_client_that_left_amid_a_stream(kind):
    async def answers(peer: Peer, request: Request) -> None:
        await peer.begin([("Content-Type", "text/event-stream")])
        await peer.chunk(b"data: 1\n\n")
        await peer.gone()

    async with upstream(each(answers)) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        await client.send(request_bytes("POST", PATHS[kind], [], chat_request(kind)))
        await client.arrives(b"data: 1\n\n")
        client.close()
        await up.all_gone()
        await balanced(gateway, client)


@pytest.mark.parametrize("kind", KINDS)
async def test_f11_body_and_head_are_told_apart(kind):
    """Contract 8: body is content after transfer decoding, head is all the rest."""
    async with upstream(_mixed(kind)) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        first = await client.ask("POST", PATHS[kind], [], b"u" * 777, framing="chunked")
        second = await client.ask("POST", "/stream", [], b"v" * 333)
        metrics = await balanced(gateway, client)
        assert metrics.total(LINK, direction="up", part="body") == 777 + 333
        assert metrics.total(LINK, direction="down", part="body") == len(first.body) + len(second.body)
        assert len(second.raw_body) > len(second.body)
        assert metrics.total("packhorse_link_original_bytes_total", direction="up") == 777 + 333
        assert metrics.total("packhorse_link_original_bytes_total", direction="down") == len(first.body) + len(second.body)


@pytest.mark.parametrize("kind", UNDERSTOOD)
async def test_f11_what_was_saved_is_the_difference_of_real_bytes(kind):
    async with upstream(growing(kind)) as up, gateway_for(up, kind=kind) as gateway, pack_client(gateway) as client:
        turns = [await turn_of(client, kind, number) for number in range(1, 6)]
        metrics = await balanced(gateway, client.client)
        assert metrics.total(LINK, direction="down", part="body") == sum(len(turn.response.body) for turn in turns)
        assert metrics.total("packhorse_link_original_bytes_total", direction="down") == sum(
            len(turn.content) for turn in turns
        )
        codings = metrics.by("packhorse_bodies_total", "coding", direction="down")
        assert sum(codings.values()) == 5
        assert sum(count for coding, count in codings.items() if coding.startswith("ctxpack.delta")) == 4


@pytest.mark.parametrize("coding", ["gzip", "identity"])
async def test_f11_losses_are_visible(coding):
    """A body that grew shows as more bytes sent than there were: here a provider's gzip of what does not compress."""
    noise = random.Random(1).randbytes(4000)
    fields = [("Content-Encoding", "gzip")] if coding == "gzip" else []
    body = gzipped(noise, 1) if coding == "gzip" else noise
    async with upstream(Reply(fields=fields, body=body)) as up, gateway_for(up) as gateway, connect(gateway) as client:
        response = await client.ask("GET", "/", [("Accept-Encoding", "gzip")])
        metrics = await balanced(gateway, client)
        assert metrics.total(LINK, direction="down", part="body") == len(response.body)
        original = metrics.total("packhorse_link_original_bytes_total", direction="down")
        if response.values("content-encoding"):
            assert original in (len(noise), len(body)), "either what it was uncoded, or, where nobody looked, what it was"
        else:
            assert original == len(response.body)
        sent, gzip_size = (metrics.total(f"packhorse_gzip_compared_{what}_bytes_total") for what in ("sent", "gzip"))
        assert sent <= gzip_size or sent == 0


@pytest.mark.parametrize("kind", UNDERSTOOD)
async def test_f11_the_three_compared_series_speak_of_the_same_bodies(kind):
    async with upstream(growing(kind)) as up, gateway_for(up, kind=kind, gzip_comparison={"cpu_share": 1}) as gateway:
        async with pack_client(gateway) as client:
            turns = [await turn_of(client, kind, number) for number in range(1, 6)]
        name = "packhorse_gzip_compared_original_bytes_total"
        originals = sum(len(turn.content) for turn in turns)
        metrics = await counted(gateway, name, originals, direction="down")
        assert metrics.total(name, direction="down") == originals
        assert metrics.total("packhorse_gzip_compared_sent_bytes_total", direction="down") == sum(
            len(turn.response.body) for turn in turns
        )
        assert metrics.total("packhorse_gzip_compared_gzip_bytes_total", direction="down") == sum(
            len(gzipped(turn.content)) for turn in turns
        )


async def test_f11_no_cpu_for_the_comparison_is_counted_as_skipped():
    async with upstream(growing()) as up, gateway_for(up, gzip_comparison={"cpu_share": 0}) as gateway:
        async with pack_client(gateway, accept="ctxpack.delta.v1") as client:
            for number in (1, 2, 3):
                await turn_of(client, "prepare", number)
        metrics = await counted(gateway, "packhorse_gzip_comparisons_skipped_total", 2)
        assert metrics.total("packhorse_gzip_compared_original_bytes_total") <= len(document(3)) * 3


@pytest.mark.limit(60)
async def test_f01_counters_rise_and_add_up_over_twenty_scrapes_under_load():
    """BerriAI/litellm#10595: a counter that went up and down."""
    async with upstream(growing()) as up, gateway_for(up) as gateway:
        done = asyncio.Event()

        async def load() -> None:
            async def one(number: int) -> None:
                async with pack_client(gateway, f"s{number}") as client:
                    for turn_number in range(1, 26):
                        await turn_of(client, "prepare", turn_number)

            await asyncio.gather(*(one(number) for number in range(4)))
            done.set()

        loading = asyncio.ensure_future(load())
        last: dict[Any, float] = {}
        scrapes = 0
        while scrapes < 20 or not done.is_set():
            samples = (await scrape(gateway)).samples
            for key, value in samples.items():
                if key[0].endswith(("_total", "_count", "_sum", "_bucket")):
                    assert value >= last.get(key, 0), key
            assert set(last) <= set(samples), "a series went away"
            last = samples
            scrapes += 1
        await loading
        metrics = await counted(gateway, "packhorse_requests_total", 100)
        assert metrics.total("packhorse_requests_total") == 100


@pytest.mark.limit(60)
async def test_f02_hostile_traffic_makes_no_series():
    """BerriAI/litellm#39136: random models, paths, methods, sessions and status codes."""
    chance = random.Random(2)

    def answers(request: Request) -> Reply:
        status = int(request.value("x-status") or b"200")
        return Reply(
            status,
            [("Content-Type", "application/json"), ("Content-Encoding", f"c{chance.random()}")] if status % 2 else [],
            b"{}",
        )

    async with upstream(answers) as up:
        routes = [{"name": kind, "match": f"/{kind}", "upstream": up.url, "kind": kind} for kind in KINDS]
        async with gateway_for(routes=routes) as gateway:

            async def some(client: Client, count: int) -> None:
                for _ in range(count):
                    word = f"{chance.getrandbits(40):x}"
                    method = chance.choice(["GET", "POST", "PUT", f"M{word}", "PROPFIND", "get"])
                    fields = [
                        ("Packhorse-Session", word),
                        ("x-session-id", word),
                        ("User-Agent", word),
                        ("Authorization", word),
                    ]
                    fields += [
                        ("X-Status", str(chance.randint(200, 599))),
                        ("Packhorse-Link", chance.choice([word, "weak", "normal", "metered"])),
                    ]
                    fields += [("Accept-Encoding", f"{word}, gzip, ctxpack.delta.v1"), ("Ctxpack-Base", f"sha256:{word}")]
                    body = f'{{"model": "m-{word}\\\\\\"\\n\\ud800", "messages": []}}'.encode("utf-8", "surrogatepass")
                    kind = chance.choice([*KINDS, "none"])
                    async with connect(gateway) as client:
                        request = request_bytes(method, f"/{kind}/{word}?{word}", fields, body, framing="length")
                        await client.send(request)
                        with contextlib.suppress(Ended):
                            await client.response(method)

            async with connect(gateway) as client:
                await some(client, 500)
                first = (await scrape(gateway)).series()
                await some(client, 700)
            metrics = await scrape(gateway)
            second = metrics.series()
            grown = second - first
            assert len(grown) < 25, sorted(map(str, grown))[:30]  # rare combinations of fixed words may still come
            words = {value for _, labels in second for _, value in labels}
            assert len(words) < 140
            assert metrics.total("packhorse_requests_total") >= 1000


@pytest.mark.parametrize("model", ['a"b\\', "a\nb", "\ud800", "\x00", "x" * 5000, "☁", "", "a" * 200])
async def test_f05_a_hostile_model_name_leaves_the_scrape_parseable(model):
    """headroomlabs-ai/headroom#2463, traps 34: one lone surrogate broke every later scrape."""
    async with upstream(growing("openai")) as up, gateway_for(up, kind="openai") as gateway:
        body = json.dumps({"model": model, "messages": []}).encode()
        await ask(gateway, "POST", PATHS["openai"], [], body)
        await counted(gateway, "packhorse_requests_total")


async def _mixed_traffic(gateway: Any) -> None:
    async with connect(gateway) as client:
        for name in ("documents", "deltas", "bodiless", "streams", "errors"):
            await TRAFFIC[name](client, "openai")
    async with connect(gateway) as client:
        await _refused_by_the_parser(client, "openai")


async def test_f04_promtool_finds_nothing_to_say():
    """prometheus/client_python#1043: duplicate TYPE lines and samples."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool (Debian's prometheus) is not installed")
    async with upstream(_mixed("openai")) as up, gateway_for(up, kind="openai") as gateway:
        await _mixed_traffic(gateway)
        text = (await counted(gateway, "packhorse_requests_total", 10)).response.body
    checked = await asyncio.to_thread(
        subprocess.run, [promtool, "check", "metrics"], input=text, capture_output=True, timeout=20
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


@pytest.mark.parametrize(
    "accept", [None, "*/*", "text/plain", "application/openmetrics-text; version=1.0.0, text/plain;version=0.0.4;q=0.5"]
)
async def test_f07_the_content_type_is_exact(accept):
    """EBOLABOY/GridBNB-USDT#45: no type, charset twice, or a 500."""
    async with gateway_for("http://127.0.0.1:1") as gateway:
        response = await ask(gateway.admin_url, "GET", "/metrics", [] if accept is None else [("Accept", accept)])
        assert response.status == 200
        content_type = response.text("content-type") or ""
        assert content_type.startswith(("text/plain; version=", "application/openmetrics-text; version="))
        assert content_type.endswith("; charset=utf-8")
        assert content_type.count("charset") == 1
        if not (accept or "").startswith("application/openmetrics"):
            assert content_type.startswith("text/plain; version=")
        head = await ask(gateway.admin_url, "HEAD", "/metrics")
        assert head.text("content-type") == (await ask(gateway.admin_url, "GET", "/metrics")).text("content-type")


@pytest.mark.limit(60)
async def test_f09_scrapes_change_no_request_counter_and_do_not_hold_the_loop():
    """kiro-lb#5: scraping counted itself, and stalled the event loop."""
    async with upstream(growing()) as up, gateway_for(up) as gateway:
        await uses_delta(gateway)
        before = (await counted(gateway, "packhorse_requests_total", 2)).samples
        for _ in range(200):
            after = (await scrape(gateway)).samples
        counters = {
            key: value
            for key, value in before.items()
            if key[0].startswith("packhorse_") and key[0].endswith(("_total", "_count"))
        }
        assert counters
        assert {key: after[key] for key in counters} == counters
    async with upstream(growing()) as up, gateway_process(up, log={"access": False}) as gateway:
        await uses_delta(gateway)
        worst: list[float] = []

        async def scraping() -> None:
            for _ in range(50):
                await ask(gateway.admin_url, "GET", "/metrics")
                await asyncio.sleep(0.02)

        async def asking() -> None:
            async with connect(gateway) as client:
                while not task.done():
                    started = time.perf_counter()
                    await client.ask("GET", "/")
                    worst.append(time.perf_counter() - started)

        task = asyncio.ensure_future(scraping())
        await asking()
        await task
        worst.sort()
        assert worst[len(worst) * 9 // 10] < 0.15, "lag under 50 ms, with slack for a busy machine"


@pytest.mark.limit(60)
async def test_f03_f10_a_second_gateway_and_stale_files_disturb_nobody(tmp_path):
    """BerriAI/litellm#42566 (a second gateway wiped the first one's files), prometheus/client_python#381 (a truncated .db)."""
    (tmp_path / "counter_1.db").write_bytes(b"\x10\x00")
    (tmp_path / "gauge_livesum_4242.db").write_bytes(b"")
    environment = {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "prometheus_multiproc_dir": str(tmp_path)}
    async with upstream(growing()) as up, gateway_process(up, environment=environment) as first:
        await uses_delta(first)
        assert (await counted(first, "packhorse_requests_total", 2)).total("packhorse_requests_total") == 2
        async with gateway_process(up, environment=environment) as second:
            assert (await scrape(second)).total("packhorse_requests_total") == 0
            await uses_delta(second)
            await uses_delta(first, session="again")
            assert (await counted(first, "packhorse_requests_total", 4)).total("packhorse_requests_total") == 4
            assert (await counted(second, "packhorse_requests_total", 2)).total("packhorse_requests_total") == 2
            second.process.kill()
            await second.exit()
        await uses_delta(first, session="third")
        assert (await counted(first, "packhorse_requests_total", 6)).total("packhorse_requests_total") == 6
    assert sorted(path.name for path in tmp_path.iterdir()) == ["counter_1.db", "gauge_livesum_4242.db"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("leaving", ["amid the stream", "after the last event", "after the end"])
async def test_f12_leaving_early_and_leaving_satisfied_are_told_apart(kind, leaving):
    """BerriAI/litellm#25776: a client that leaves is no failure; one that leaves after the last event is a success."""
    stay = asyncio.Event()
    pieces = events(kind, ["a", "b", "c"])

    async def answers(peer: Peer, request: Request) -> None:
        await peer.begin([("Content-Type", "text/event-stream")])
        for piece in pieces[:-1] if leaving == "amid the stream" else pieces:
            await peer.chunk(piece)
        if leaving == "after the end":
            await peer.end()
        else:
            waiting = [asyncio.ensure_future(peer.closed.wait()), asyncio.ensure_future(stay.wait())]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                task.cancel()

    async with upstream(each(answers)) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        await client.send(request_bytes("POST", PATHS[kind], [], chat_request(kind, stream=True)))
        await client.arrives(pieces[-2 if leaving == "amid the stream" else -1])
        if leaving == "after the end":
            await client.arrives(b"0\r\n\r\n")
        client.close()
        metrics = await counted(gateway, "packhorse_requests_total")
        expected = (
            "client_gone"
            if leaving == "amid the stream" or (leaving == "after the last event" and kind in ("prepare", "plain"))
            else "ok"
        )
        assert metrics.by("packhorse_requests_total", "outcome") == {expected: 1}
        stay.set()


OUTCOMES = {
    "ok": ("GET", "/ok", []),
    "refused": ("POST", "/ok", [("Packhorse-Session", "a b")]),
    "upstream_cut": ("GET", "/cut", []),
    "failed": ("GET", "/die", []),
}


@pytest.mark.parametrize("kind", UNDERSTOOD)
@pytest.mark.parametrize("outcome", list(OUTCOMES))
async def test_f12_every_outcome_has_its_word(kind, outcome):
    async def answers(peer: Peer, request: Request) -> None:
        if request.target == b"/cut":
            await peer.send(
                head_bytes("HTTP/1.1 200 OK", [("Content-Type", "text/event-stream"), ("Content-Length", "500")])
                + b"data: 1\n\n"
            )
            peer.close()
        elif request.target == b"/die":
            peer.reset()
        else:
            await peer.respond(404, [("Content-Type", "text/plain")], b"an upstream's 404 is a whole answer")

    async with upstream(each(answers)) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        method, target, fields = OUTCOMES[outcome]
        await client.ask(method, target, fields)
        metrics = await counted(gateway, "packhorse_requests_total")
        counted_as = metrics.by("packhorse_requests_total", "outcome")
        assert counted_as in ({outcome: 1}, {"upstream_cut": 1}) if outcome == "failed" else counted_as == {outcome: 1}
        assert metrics.total("packhorse_in_flight") == 0


async def test_f_histograms_and_gauges_of_the_contract_are_there():
    async with upstream(growing()) as up, gateway_for(up) as gateway:
        await uses_delta(gateway)
        metrics = await counted(gateway, "packhorse_requests_total", 2)
        for name in ("request", "overhead", "first_byte", "upstream"):
            assert metrics.total(f"packhorse_{name}_seconds_count", route="r") == 2, name
        for name in ("bases", "base_bytes", "sessions"):
            assert metrics.total(f"packhorse_{name}", store="memory") >= 1, name
        assert metrics.total("packhorse_build_info") == 1
        assert metrics.total("packhorse_config_last_reload_successful") == 1
        assert metrics.total("packhorse_base_lookups_total", result="hit", direction="down") == 1


def test_f_the_kit_would_notice_duplicates():
    with pytest.raises((AssertionError, ValueError)):
        parse("# TYPE a counter\na_total 1\n# TYPE b counter\nb_total 1\n# TYPE a counter\na_total 2\n")
