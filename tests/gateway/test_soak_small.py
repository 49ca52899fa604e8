"""Two thousand mixed exchanges over 32 connections, a third of them broken off by one side or the other: nothing stays behind.

The order is drawn from a fixed seed; where the breaks fall within an exchange is left to the machine.
"""

import asyncio
import contextlib
import gc
import os
import random
from typing import Any

import pytest
from aiohttp import ClientSession
from support.channel import Ended, eventually
from support.client import Client, connect, request_bytes
from support.gateways import gateway_for, gateway_process
from support.messages import Malformed, Request, head_bytes, read_request_body
from support.packs import SPOKEN
from support.scrapes import scrape
from support.texts import document
from support.upstream import Peer, Upstream, upstream
from support.websockets import AGREE, ASK

EXCHANGES = 2000
CONNECTIONS = 32
ODD = ["cut", "junk", "drop", "empty", "tunnel", "slow", "error", "early", "bad", "stall"]
WHAT = ["doc"] * 8 + ["stream"] * 3 + ODD
BAD = [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", request_bytes("GET", "/..")]
SESSIONS = [f"session-{number}" for number in range(12)]


async def moody(peer: Peer) -> None:
    """Does what the target says: whole documents, streams, errors, cuts, resets, tunnels, junk."""
    with contextlib.suppress(Ended, TimeoutError, Malformed, ConnectionError):
        while (request := await peer.head()) is not None:
            if not await answered(peer, request):
                return


async def answered(peer: Peer, request: Request) -> bool:
    """Whether the connection goes on."""
    what = request.target.split(b"/")[1].split(b"?")[0]
    if what == b"early":  # answers without having read the body
        await peer.respond(403, [], b"no", framing="close")
        return False
    await read_request_body(peer, request)
    match what:
        case b"doc":
            turn = int(request.target.rpartition(b"=")[2])
            framing = "chunked" if turn % 2 else "length"
            await peer.respond(200, [("Content-Type", "text/plain; charset=utf-8")], document(turn), framing=framing)
        case b"stream":
            await peer.begin([("Content-Type", "text/event-stream")])
            for number in range(5):
                await peer.chunk(b"data: %d\n\n" % number)
                await asyncio.sleep(0)
            await peer.end()
        case b"cut":
            await peer.send(head_bytes("HTTP/1.1 200 OK", [("Content-Length", "100000")]) + b"x" * 500)
            peer.reset()
        case b"junk":
            await peer.send(b"no http at all\r\n\r\n")
            peer.close()
        case b"drop":
            peer.reset()
        case b"empty":
            await peer.send(b"HTTP/1.1 204 No Content\r\n\r\n")
        case b"tunnel":
            await peer.send(head_bytes("HTTP/1.1 101 Switching Protocols", AGREE) + b"hello")
            await peer.some()
            peer.close()
        case b"slow":
            await asyncio.sleep(0.05)
            await peer.respond(200, [], b"late")
        case _:
            await peer.respond(500, [], b"error")
    return not peer.transport.is_closing()


def drawn(chance: random.Random) -> tuple[str, bytes]:
    """What to do, and the bytes that begin it."""
    what = chance.choice(WHAT)
    fields = [("Packhorse-Session", chance.choice(SESSIONS)), ("Accept-Encoding", chance.choice([SPOKEN, "gzip", ""]))]
    match what:
        case "tunnel":
            return what, request_bytes("GET", "/tunnel", ASK)
        case "bad":
            return what, chance.choice(BAD)
        case "stall":
            return what, request_bytes("POST", "/doc?n=1", [*fields, ("Content-Length", "99")], framing="none") + b"half"
        case "early":
            return what, request_bytes("POST", "/early", fields, b"x" * 50_000)
    target = f"/{what}?n={chance.randint(1, 30)}"
    if chance.random() < 0.5:
        framing = chance.choice(["length", "chunked"])
        return what, request_bytes("POST", target, fields, b"{}" * chance.randint(1, 2000), framing=framing)
    return what, request_bytes("GET", target, fields)


async def exchange(client: Client, chance: random.Random) -> bool:
    """One exchange, perhaps broken off; whether the connection may go on."""
    what, raw = drawn(chance)
    leave = chance.random()
    await client.send(raw if leave > 0.08 else raw[: chance.randint(1, len(raw))])
    if leave < 0.08 or what == "stall":  # gone amid the request
        return False
    if leave < 0.2:  # gone somewhere before or amid the answer
        for _ in range(chance.randint(0, 30)):
            await asyncio.sleep(0)
        return False
    response = await client.response_head(raw.split(b" ", 1)[0].decode("latin-1"))
    if what == "tunnel":
        if response.status == 101:
            await client.send(b"x" * 100)
        return False
    if leave < 0.26:
        return False
    response = await client.body_of(response)
    return response.complete and "close" not in response.members("connection")


async def one_connection(url: Any, chance: random.Random, left: list[int]) -> None:
    while left[0] > 0:
        async with connect(url) as client:
            goes_on = True
            while goes_on and left[0] > 0:
                left[0] -= 1
                try:
                    goes_on = await exchange(client, chance)
                except (Ended, ConnectionError):
                    goes_on = False
            client.reset() if chance.random() < 0.5 else client.close()


async def soak(url: Any, seed: int) -> None:
    left = [EXCHANGES]
    async with asyncio.TaskGroup() as group:
        for number in range(CONNECTIONS):
            group.create_task(one_connection(url, random.Random(f"{seed} {number}"), left))


async def quiet(gateway: Any) -> None:
    async def nothing_in_flight() -> bool:
        return (await scrape(gateway)).total("packhorse_in_flight") == 0

    await eventually(nothing_in_flight, 10)


def open_to_gateway(up: Upstream) -> int:
    return sum(not peer.closed.is_set() for peer in up.peers)


PATIENCE = {"first_byte": "5s", "idle": "2s"}


async def test_nothing_stays_behind_in_process() -> None:
    before = {task.get_name() for task in asyncio.all_tasks()}
    async with upstream(moody) as up:
        async with gateway_for(up, timeouts=PATIENCE, deltas={"wait": "200ms"}) as gateway:
            await soak(gateway, 1)
            await quiet(gateway)
            assert gateway.services.in_flight.now == 0
            found = await scrape(gateway)
            outcomes = found.by("packhorse_requests_total", "outcome")
            assert outcomes["ok"] > EXCHANGES / 4
            assert outcomes["client_gone"] > 20
            assert outcomes["upstream_cut"] > 20
            assert sum(outcomes.values()) <= EXCHANGES
            assert gateway.services.store.sizes().sessions <= len(SESSIONS) + 1
        await up.all_gone(2)
        await eventually(lambda: len(asyncio.all_tasks()) <= len(before) + len(up._tasks) + 1)
    gc.collect()
    left = [task for task in asyncio.all_tasks() if task.get_name() not in before]
    assert not left, left


@pytest.mark.parametrize("kind", ["prepare", "plain"])
async def test_descriptors_and_connections_come_back_and_memory_does_not_grow(kind: str) -> None:
    async with upstream(moody) as up, gateway_process(up, kind=kind, timeouts=PATIENCE, log={"access": "off"}) as gateway:
        await soak(gateway, 2)
        await quiet(gateway)
        await eventually(lambda: open_to_gateway(up) <= CONNECTIONS)
        base, memory = gateway.descriptors() - open_to_gateway(up), gateway.rss()
        await soak(gateway, 3)
        await quiet(gateway)
        await eventually(lambda: gateway.descriptors() - open_to_gateway(up) <= base + 1)
        assert gateway.rss() - memory < 25 * 2**20
        assert gateway.threads() < 30
        assert open_to_gateway(up) <= CONNECTIONS, "idle ones are kept, no more than were ever needed at one time"
        assert "Traceback" not in gateway.log
        assert "a fault of the gateway's own" not in gateway.log


TO_THE_END = ["doc", "doc", "stream", "junk", "drop", "empty", "slow", "error", "bad", "tunnel"]


async def whole(url: Any, chance: random.Random, count: int) -> tuple[int, int]:
    """``count`` exchanges that nobody breaks off; bytes sent and received, as the sockets counted them."""
    sent = received = done = 0
    while done < count:
        async with connect(url) as client:
            goes_on = True
            while goes_on and done < count:
                what, raw = drawn(chance)
                if what not in TO_THE_END:
                    continue
                done += 1
                pieces = [raw[at : at + 700] for at in range(0, len(raw), 700)] if chance.random() < 0.5 else [raw]
                await client.send(*pieces)
                response = await client.response_head(raw.split(b" ", 1)[0].decode("latin-1"))
                if response.status == 101:
                    await client.send(b"x" * 100)
                    await client.to_end()
                    goes_on = False
                else:
                    response = await client.body_of(response)
                    goes_on = what != "bad" and "close" not in response.members("connection")
            await client.leave()
            sent, received = sent + client.sent, received + client.received
    return sent, received


@pytest.mark.parametrize("kind", ["prepare", "plain"])
async def test_the_links_bytes_add_up_to_those_of_all_sockets(kind: str) -> None:
    """Issue 2: bytes are what really crossed the wire, checked against counting sockets, plus or minus nothing."""
    async with upstream(moody) as up, gateway_for(up, kind=kind, timeouts=PATIENCE) as gateway:
        figures = await asyncio.gather(*(whole(gateway, random.Random(f"{kind} {number}"), 60) for number in range(8)))
        await quiet(gateway)
        sent, received = (sum(each) for each in zip(*figures, strict=True))

        async def counted_all() -> bool:
            found = await scrape(gateway)
            return (
                found.total("packhorse_link_bytes_total", direction="up"),
                found.total("packhorse_link_bytes_total", direction="down"),
            ) == (sent, received)

        try:
            await eventually(counted_all, 2)
        except AssertionError:
            found = await scrape(gateway)
            up_by, down_by = (found.by("packhorse_link_bytes_total", "part", direction=way) for way in ("up", "down"))
            pytest.fail(f"sent {sent}, counted {up_by}; received {received}, counted {down_by}")


async def test_cancelled_clients_of_aiohttps_own_leave_nothing() -> None:
    """Cancellation at any moment of the exchange, by a client library rather than by hand."""
    chance = random.Random(4)
    async with upstream(moody) as up, gateway_for(up, timeouts=PATIENCE) as gateway, ClientSession() as session:

        async def get() -> None:
            with contextlib.suppress(asyncio.CancelledError, Exception):
                async with session.post(f"{gateway.url}/{chance.choice(['doc', 'stream', 'slow'])}?n=5", data=b"{}") as answer:
                    await answer.read()

        for _ in range(150):
            task = asyncio.create_task(get())
            for _ in range(chance.randint(0, 60)):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await eventually(lambda: gateway.services.in_flight.now == 0)
        assert len(os.listdir("/proc/self/fd")) < 200
        async with connect(gateway) as client:
            assert (await client.ask("POST", "/doc?n=1", (), b"{}")).body == document(1)
