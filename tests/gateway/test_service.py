"""The gateway's life, in this process: it starts whole or not at all, reloads whole or not at all, and drains."""

import asyncio
import os
from typing import Any

import pytest
from support.channel import eventually
from support.client import ask, connect, request_bytes
from support.gateways import gateway_for, settings
from support.messages import Request
from support.packs import pack_client
from support.scrapes import counted, scrape
from support.twins import growing, turn_of
from support.upstream import Peer, Reply, each, upstream

from config.errors import ConfigError, Problem
from config.schema import Configuration
from gateway.service import Gateway, running

RELOADED = "packhorse_config_last_reload_successful"


def configuration(up: Any, **over: Any) -> Configuration:
    return Configuration.model_validate(settings(up, **over))


class Held:
    """An upstream's stream that goes on until it is told to end."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def answer(self, peer: Peer, request: Request) -> None:
        if request.target == b"/stream":
            await peer.begin([("Content-Type", "text/event-stream")])
            await peer.chunk(b"data: first\n\n")
            await self.go.wait()
            await peer.chunk(b"data: last\n\n")
            await peer.end()
        else:
            await peer.respond(200, [], b"plain")


# Starting and stopping


async def test_it_serves_inside_the_block_and_not_after() -> None:
    before = len(os.listdir("/proc/self/fd"))
    async with upstream(Reply(200, [], b"x")) as up:
        async with running(configuration(up)) as gateway:
            assert (await ask(gateway, "GET", "/")).status == 200
            assert (await ask(gateway.admin_url, "GET", "/readyz")).status == 200
        for url in (gateway.url, gateway.admin_url):
            with pytest.raises(OSError):
                await ask(url, "GET", "/")
        await up.all_gone(1)
    await eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_what_fails_in_the_block_still_closes_everything() -> None:
    with pytest.raises(ZeroDivisionError):
        async with gateway_for("http://127.0.0.1:1") as gateway:
            raise ZeroDivisionError
    with pytest.raises(OSError):
        await ask(gateway, "GET", "/")


async def test_stopping_twice_is_stopping() -> None:
    async with gateway_for("http://127.0.0.1:1") as gateway:
        await gateway.stop()


# Draining


async def stop_while(gateway: Gateway) -> "asyncio.Task[None]":
    """Begin to stop; returns when the data listener is closed."""
    stopping = asyncio.create_task(gateway.stop())

    async def closed() -> bool:
        try:
            async with connect(gateway.port):
                return False
        except ConnectionRefusedError:
            return True
        except OSError:  # caught in the backlog
            return False

    await eventually(closed)
    return stopping


async def test_h01_a_stream_under_way_ends_by_itself_while_nothing_new_is_taken() -> None:
    held = Held()
    async with (
        upstream(each(held.answer)) as up,
        gateway_for(up) as gateway,
        connect(gateway) as busy,
        connect(gateway) as idle,
    ):
        assert (await idle.ask("GET", "/")).status == 200
        await busy.send(request_bytes("GET", "/stream"))
        response = await busy.response_head()
        await busy.arrives(b"first")
        stopping = await stop_while(gateway)
        await idle.gone(1)
        ready = await ask(gateway.admin_url, "GET", "/readyz")
        assert (ready.status, b'"draining"' in ready.body) == (503, True)
        assert (await ask(gateway.admin_url, "GET", "/livez")).status == 200
        assert (await ask(gateway.admin_url, "GET", "/healthz")).status == 200
        assert not stopping.done()
        held.go.set()
        response = await busy.body_of(response)
        assert response.complete
        assert response.body.endswith(b"data: last\n\n")
        await asyncio.wait_for(stopping, 2)
        await busy.gone(1)


async def test_h01_a_stream_over_the_grace_is_cut_and_seen_to_be() -> None:
    async with upstream(each(Held().answer)) as up, gateway_for(up, drain="300ms") as gateway, connect(gateway) as busy:
        await busy.send(request_bytes("GET", "/stream"))
        response = await busy.response_head()
        await busy.arrives(b"first")
        stopping = await stop_while(gateway)
        assert not (await busy.body_of(response)).complete
        await asyncio.wait_for(stopping, 2)
        await up.all_gone(1)


async def test_a_request_on_a_connection_that_was_busy_when_draining_began_is_not_left_hanging() -> None:
    """Either it is answered or the connection closes: a pipelined request must not wait for ever."""
    held = Held()
    async with upstream(each(held.answer)) as up, gateway_for(up) as gateway, connect(gateway) as busy:
        await busy.send(request_bytes("GET", "/stream"))
        response = await busy.response_head()
        stopping = await stop_while(gateway)
        await busy.send(request_bytes("GET", "/"))
        held.go.set()
        assert (await busy.body_of(response)).complete
        await busy.gone(2)
        await asyncio.wait_for(stopping, 2)


async def test_an_upload_under_way_when_draining_begins_is_finished() -> None:
    async with upstream(Reply(200, [], b"done")) as up, gateway_for(up, kind="plain") as gateway, connect(gateway) as client:
        await client.send(request_bytes("POST", "/", [("Content-Length", "6")], framing="none") + b"abc")
        await up.seen(1)
        stopping = await stop_while(gateway)
        await client.send(b"def")
        assert (await client.response()).body == b"done"
        await asyncio.wait_for(stopping, 2)


async def test_drain_may_be_asked_for_over_the_admin_plane() -> None:
    async with upstream(Reply(200)) as up, gateway_for(up) as gateway:
        assert not gateway.draining
        assert (await ask(gateway.admin_url, "GET", "/-/drain")).status == 405
        assert not gateway.draining
        response = await ask(gateway.admin_url, "POST", "/-/drain")
        assert (response.status, response.body) == (202, b'{"status":"draining"}')
        assert gateway.drained.is_set()
        assert (await ask(gateway.admin_url, "GET", "/readyz")).status == 503


# Reloading


class Loader:
    """Settings as a test sets them."""

    def __init__(self, first: Configuration) -> None:
        self.next: Configuration | Exception = first

    def __call__(self) -> Configuration:
        if isinstance(self.next, Exception):
            raise self.next
        return self.next


async def test_a_reload_is_for_new_requests_and_a_stream_goes_on_with_the_old_settings() -> None:
    held = Held()
    async with upstream(each(held.answer)) as old, upstream(Reply(200, [], b"new")) as new:
        first = configuration(old)
        loader = Loader(first)
        async with running(first, loader) as gateway, connect(gateway) as busy, connect(gateway) as idle:
            await busy.send(request_bytes("GET", "/stream"))
            response = await busy.response_head()
            await busy.arrives(b"first")
            assert (await idle.ask("GET", "/")).body == b"plain"
            loader.next = configuration(new)
            assert await gateway.reload() == []
            assert (await idle.ask("GET", "/")).body == b"new", "an open connection has the new settings too"
            held.go.set()
            response = await busy.body_of(response)
            assert response.complete
            assert response.body.endswith(b"last\n\n")
            assert (await scrape(gateway)).total(RELOADED) == 1


async def test_a_reload_that_is_refused_changes_nothing() -> None:
    async with upstream(Reply(200, [], b"old")) as up, upstream(Reply(200, [], b"new")) as new:
        first = configuration(up)
        loader = Loader(first)
        async with running(first, loader) as gateway:
            refusals: list[tuple[Any, str]] = [
                (ConfigError([Problem("routes.0.kind", "expected prepare")]), "routes.0.kind"),
                (configuration(new, listen="127.0.0.1:9"), "listen"),
                (configuration(new, store={"kind": "sqlite"}), "store.kind"),
                (configuration(new, admin={"listen": "127.0.0.1:9"}), "admin.listen"),
                (configuration(new, limits={"headers": "1KiB"}), "limits.headers"),
                (configuration(new, bases={"keep": 9, "ttl": "1s"}), "bases.keep"),
                (configuration(new, route={"tls": {"ca": "/no/such/file"}}), "cannot be built"),
            ]
            for wrong, named in refusals:
                loader.next = wrong
                problems = await gateway.reload()
                assert any(named in problem for problem in problems), problems
                assert gateway.configuration is first
                assert (await ask(gateway, "GET", "/")).body == b"old"
                assert (await scrape(gateway)).total(RELOADED) == 0
            loader.next = configuration(new, bases={"keep": 9, "ttl": "1s"})
            assert len([key for key in await gateway.reload() if "only with a restart" in key]) == 2, "every such key is named"
            loader.next = configuration(new)
            assert await gateway.reload() == []
            assert (await scrape(gateway)).total(RELOADED) == 1
            assert (await ask(gateway, "GET", "/")).body == b"new"


async def test_without_a_file_there_is_nothing_to_reload() -> None:
    async with gateway_for("http://127.0.0.1:1") as gateway:
        assert len(await gateway.reload()) == 1
        assert (await scrape(gateway)).total(RELOADED) == 0


async def test_bases_and_totals_outlive_a_reload() -> None:
    async with upstream(growing()) as up:
        first = configuration(up)
        loader = Loader(first)
        async with running(first, loader) as gateway, pack_client(gateway) as client:
            await turn_of(client, "prepare", 1)
            loader.next = configuration(up, deltas={"min_bytes": 100})
            assert await gateway.reload() == []
            assert (await turn_of(client, "prepare", 2)).delta
            found = await counted(gateway, "packhorse_requests_total", 2, route="r")
            assert found.total("packhorse_requests_total", route="r") == 2
            assert len(up.peers) == 1, "warm connections outlive it too"


async def test_a_reload_retunes_what_all_routes_share() -> None:
    held = Held()
    async with upstream(each(held.answer)) as up:
        first = configuration(up)
        loader = Loader(first)
        async with running(first, loader) as gateway, connect(gateway) as busy:
            loader.next = configuration(up, limits={"in_flight": 1}, link={"assume": "normal"})
            assert await gateway.reload() == []
            await busy.send(request_bytes("GET", "/stream"))
            await busy.response_head()
            assert (await ask(gateway, "GET", "/")).status == 429
            held.go.set()
            await eventually(lambda: gateway.services.in_flight.now == 0)
            await ask(gateway, "GET", "/")
            await counted(gateway, "packhorse_link_bytes_total", route="r", link="normal", direction="down")


async def test_a_reload_during_a_drain_brings_nothing_back() -> None:
    held = Held()
    async with upstream(each(held.answer)) as up:
        first = configuration(up)
        async with running(first, Loader(first)) as gateway, connect(gateway) as busy:
            await busy.send(request_bytes("GET", "/stream"))
            await busy.response_head()
            stopping = await stop_while(gateway)
            await gateway.reload()
            with pytest.raises(ConnectionRefusedError):
                await ask(gateway, "GET", "/")
            assert (await ask(gateway.admin_url, "GET", "/readyz")).status == 503
            held.go.set()
            await asyncio.wait_for(stopping, 2)


async def test_routes_taken_away_are_gone_for_new_requests() -> None:
    async with upstream(Reply(200, [], b"x")) as up:
        first = configuration(up)
        loader = Loader(first)
        async with running(first, loader) as gateway:
            assert (await ask(gateway, "GET", "/")).status == 200
            loader.next = configuration(up, route={"match": "/only"})
            assert await gateway.reload() == []
            assert (await ask(gateway, "GET", "/")).status == 404
            assert (await ask(gateway, "GET", "/only")).status == 200
