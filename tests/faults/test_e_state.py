"""Faults (e): sessions, bases and the store under load, loss and bad disks. Losing a base costs bytes, never correctness."""

import asyncio
import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.channel import eventually
from support.client import ask, connect
from support.gateways import gateway_for, gateway_process
from support.messages import Request
from support.packs import SPOKEN, PackClient, pack_client
from support.scrapes import counted, scrape
from support.texts import PATHS, UNDERSTOOD, answer, chat_request
from support.twins import growing, turn_of, uses_delta
from support.upstream import Peer, Reply, each, upstream

from ctxpack import ContextPack

STORES = ["memory", "sqlite"]


def store(kind: str, folder: Path) -> dict[str, Any]:
    return {"kind": kind, "path": str(folder / "s.sqlite3")}


async def degraded(gateway: Any) -> list[str]:
    return orjson.loads((await ask(gateway.admin_url, "GET", "/readyz")).body)["degraded"]


async def stored(gateway: Any, bases: int) -> None:
    """Wait until that many bases are held."""
    await counted(gateway, "packhorse_bases", bases)


@pytest.mark.parametrize("kind", UNDERSTOOD)
@pytest.mark.parametrize("where", STORES)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_e01_simultaneous_turns_of_one_session_are_all_served(kind, where, method, tmp_path):
    """nexu-io/open-design#5490: 25 turns at one barrier; all 200, one survived. Each client decodes its own reply."""
    count = 25
    barrier = asyncio.Barrier(count)

    async def answers(peer: Peer, request: Request) -> None:
        if request.value("x-turn") != b"1":
            async with asyncio.timeout(10):
                await barrier.wait()
        await peer.reply(growing(kind)(request))

    async with upstream(each(answers)) as up, gateway_for(up, kind=kind, store=store(where, tmp_path)) as gateway:
        async with pack_client(gateway, "one") as first:
            await turn_of(first, kind, 1, method=method)

        async def one(number: int) -> tuple[PackClient, bool]:
            async with connect(gateway) as connection:
                client = PackClient(connection, "one", SPOKEN, ())
                client.held = dict(first.held)
                turn = await turn_of(client, kind, 2 + number % 6, method=method)
                return client, turn.delta

        done = await asyncio.gather(*(one(number) for number in range(2, count + 2)))
        assert [delta for _, delta in done] == [True] * count
        assert len(up.requests) == count + 1
        barrier = asyncio.Barrier(1)
        client, _ = done[-1]
        async with connect(gateway) as connection:
            client.client = connection
            await turn_of(client, kind, count + 2, method=method)  # its bases may be among those that 24 others displaced
            assert (await turn_of(client, kind, count + 3, method=method)).delta


@pytest.mark.parametrize("where", STORES)
async def test_e01_concurrent_sessions_never_mix(where, tmp_path):
    async def conversation(gateway: Any, number: int) -> int:
        deltas = 0
        async with pack_client(gateway, f"s{number}", fields=[("X-Seed", str(number))]) as client:
            for turn_number in range(1, 6):
                turn = await turn_of(client, "prepare", turn_number, seed=number)
                deltas += turn.delta
        return deltas

    def answers(request: Request) -> Reply:
        return growing("prepare", seed=int(request.value("x-seed") or b"0"))(request)

    async with upstream(answers) as up, gateway_for(up, store=store(where, tmp_path)) as gateway:
        assert await asyncio.gather(*(conversation(gateway, number) for number in range(20))) == [4] * 20


@pytest.mark.limit(60)
async def test_e08_a_locked_file_stops_nobody(tmp_path):
    """mem0ai/mem0#7196: ``database is locked``. Another process holds transactions while turns are written."""
    async with upstream(growing()) as up, gateway_process(up, store=store("sqlite", tmp_path)) as gateway:
        await uses_delta(gateway, session="before")
        stop = threading.Event()

        def hold() -> None:
            other = sqlite3.connect(tmp_path / "s.sqlite3", isolation_level=None, timeout=5)
            while not stop.is_set():
                other.execute("BEGIN IMMEDIATE")
                other.execute("SELECT count(*) FROM sqlite_master").fetchall()
                stop.wait(0.3)
                other.execute("ROLLBACK")
            other.close()

        holder = threading.Thread(target=hold)
        holder.start()
        try:
            for number in range(8):
                await uses_delta(gateway, session=f"during-{number}")
        finally:
            stop.set()
            await asyncio.to_thread(holder.join)
        await uses_delta(gateway, session="after")
        assert "Traceback" not in gateway.log
        assert gateway.log.count("locked") <= 1


@pytest.mark.limit(60)
async def test_e08_gateways_that_open_a_fresh_file_at_once_all_start(tmp_path):
    async with upstream(growing()) as up:
        settings = [gateway_process(up, store=store("sqlite", tmp_path)) for _ in range(3)]
        gateways = await asyncio.gather(*(one.__aenter__() for one in settings))
        try:
            for gateway in gateways:
                await uses_delta(gateway)
                assert "Traceback" not in gateway.log
        finally:
            for one in settings:
                await one.__aexit__(None, None, None)


def _garbage(path: Path) -> None:
    path.write_bytes(os.urandom(50_000))


def _empty_header(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + bytes(200))


def _truncated(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)


def _corrupt_wal(path: Path) -> None:
    path.with_name(path.name + "-wal").write_bytes(os.urandom(40_000))


def _corrupt_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:12288] = os.urandom(8192)
    path.write_bytes(data)


@pytest.mark.limit(60)
@pytest.mark.parametrize("harm", [_garbage, _empty_header, _truncated, _corrupt_wal, _corrupt_page])
async def test_e09_a_bad_file_costs_bytes_and_nothing_else(harm, tmp_path):
    """AgentFlocks/flocks#319: it starts, moves the bad file aside, says so once, and serves."""
    path = tmp_path / "s.sqlite3"
    async with upstream(growing()) as up:
        async with gateway_for(up, store=store("sqlite", tmp_path)) as gateway:
            async with pack_client(gateway) as client:
                await turn_of(client, "prepare", 1)
            await stored(gateway, 1)
        harm(path)
        async with gateway_process(up, store=store("sqlite", tmp_path)) as gateway:
            async with pack_client(gateway) as again:
                again.held = dict(client.held)
                await turn_of(again, "prepare", 2)  # a delta or a full body, but right
                await turn_of(again, "prepare", 3)
                assert (await turn_of(again, "prepare", 4)).delta
            assert (await ask(gateway.admin_url, "GET", "/readyz")).status == 200
            assert "Traceback" not in gateway.log
            gateway.signal(signal.SIGTERM)
            assert await gateway.exit() == 0


@pytest.mark.limit(60)
async def test_e09_kill_9_amid_writing_leaves_whole_bases_only(tmp_path):
    """thedotmack/claude-mem#3179."""
    async with upstream(growing()) as up:
        held: dict[str, ContextPack] = {}
        for round_number in range(3):
            async with gateway_process(up, store=store("sqlite", tmp_path)) as gateway:
                async with pack_client(gateway, "killed") as client:
                    client.held = dict(held)
                    for number in range(1, 12):
                        await turn_of(client, "prepare", number + round_number)
                    held = dict(list(client.held.items())[-8:])
                gateway.signal(signal.SIGKILL)
                await gateway.exit()
        async with gateway_process(up, store=store("sqlite", tmp_path)) as gateway:
            assert await degraded(gateway) == []
            async with pack_client(gateway, "killed") as client:
                client.held = held
                await turn_of(client, "prepare", 20)
                assert (await turn_of(client, "prepare", 21)).delta
    check = sqlite3.connect(tmp_path / "s.sqlite3")
    assert check.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    check.close()


@pytest.mark.limit(60)
async def test_e09_e11_twin_what_was_stored_outlives_a_restart(tmp_path):
    async with upstream(growing()) as up:
        async with gateway_process(up, store=store("sqlite", tmp_path)) as gateway, pack_client(gateway) as client:
            await turn_of(client, "prepare", 1)
            await stored(gateway, 1)
            gateway.signal(signal.SIGTERM)
            assert await gateway.exit() == 0
        async with gateway_process(up, store=store("sqlite", tmp_path)) as gateway, pack_client(gateway) as again:
            again.held = dict(client.held)
            second = await turn_of(again, "prepare", 2)
            third = await turn_of(again, "prepare", 3)
            assert second.delta or third.delta  # the first may find the base still on its way from the disk
            assert third.delta
            assert second.delta, "a base on disk was not there in time for an upstream that answers at once"


def _mount(folder: Path, options: str) -> Iterator[Path]:
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    yield from _mount(tmp_path / "tiny", "size=1m")


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder in which nobody can write, root neither."""
    yield from _mount(tmp_path / "ro", "ro")


@pytest.mark.limit(60)
async def test_e09_where_nothing_can_be_written_full_bodies_go_on_and_readyz_says_so(read_only):
    async with upstream(growing()) as up, gateway_process(up, store=store("sqlite", read_only)) as gateway:
        async with pack_client(gateway) as client:
            for number in range(1, 4):
                await turn_of(client, "prepare", number)
        assert (await ask(gateway.admin_url, "GET", "/readyz")).status == 200
        assert await degraded(gateway)
        assert (await scrape(gateway)).total("packhorse_degraded") >= 1
        assert "Traceback" not in gateway.log


@pytest.mark.limit(60)
async def test_e10_a_full_disk_costs_bytes_and_heals(full_disk):
    """cvmfs/cvmfs#3083: 200 with full bodies, no partial base, and back when there is space."""
    async with upstream(growing()) as up, gateway_process(up, store=store("sqlite", full_disk)) as gateway:
        await uses_delta(gateway, session="before")
        ballast = full_disk / "ballast"
        with ballast.open("wb", buffering=0) as out, contextlib.suppress(OSError):
            while True:
                out.write(bytes(4096))
        for number in range(40):
            async with pack_client(gateway, f"s{number}") as client:
                for turn_number in (1, 2, 3):
                    await turn_of(client, "prepare", turn_number, seed=1)
        assert (await ask(gateway.admin_url, "GET", "/readyz")).status == 200

        async def said_so() -> bool:
            await uses_something(gateway)
            return bool(await degraded(gateway))

        await eventually(said_so)
        assert (await scrape(gateway)).total("packhorse_degraded") >= 1
        ballast.unlink()

        async def healed() -> bool:
            await uses_something(gateway)
            return not await degraded(gateway)

        await eventually(healed, 20)
        await uses_delta(gateway, session="after")
        assert "Traceback" not in gateway.log


async def uses_something(gateway: Any) -> None:
    async with pack_client(gateway, f"x{os.urandom(4).hex()}") as client:
        await turn_of(client, "prepare", 1)


@pytest.mark.parametrize("kind", UNDERSTOOD)
@pytest.mark.parametrize("named", ["never seen", "of another session", "evicted by keep"])
async def test_e11_a_base_that_is_not_held_means_a_full_body(kind, named):
    """agentic-community/mcp-gateway-registry#960. Down: no error, the whole body, and the next turn is a delta again."""
    async with (
        upstream(growing(kind)) as up,
        gateway_for(up, kind=kind, bases={"keep": 2}) as gateway,
        pack_client(gateway, "mine") as client,
    ):
        if named == "never seen":
            pack = ContextPack.from_content("made up\n" * 100)
            client.held = {pack.digest: pack}
        elif named == "of another session":
            client.session = "other"
            await turn_of(client, kind, 1)
            client.session = "mine"
        else:
            for number in range(1, 6):
                await turn_of(client, kind, number)
            client.held = dict(list(client.held.items())[:1])
        turn = await turn_of(client, kind, 7)
        assert not turn.delta
        assert turn.why in ("unknown-base", "no-base")
        assert (await turn_of(client, kind, 8)).delta


@pytest.mark.parametrize("bound", [{"ttl": "200ms"}, {"total_bytes": 20_000}, {"max_bytes": 10_000}])
@pytest.mark.parametrize("where", STORES)
async def test_e11_sessions_are_evicted_by_time_and_by_size(bound, where, tmp_path):
    async with (
        upstream(growing()) as up,
        gateway_for(up, bases=bound, store=store(where, tmp_path)) as gateway,
        pack_client(gateway, "old") as client,
    ):
        await turn_of(client, "prepare", 1)
        if "ttl" in bound:
            await asyncio.sleep(0.4)
        else:
            for number in range(4):
                async with pack_client(gateway, f"new{number}" if "total_bytes" in bound else "old") as other:
                    await turn_of(other, "prepare", number + 10)
        turn = await turn_of(client, "prepare", 30)
        assert not turn.delta
        sizes = await scrape(gateway)
        limit = next(iter(bound.values()))
        if isinstance(limit, int):
            assert sizes.total("packhorse_base_bytes") <= limit + (20_000 if where == "sqlite" else 0)


async def test_e11_memory_forgets_at_a_restart_and_the_client_is_served():
    async with upstream(growing()) as up:
        async with gateway_for(up) as gateway, pack_client(gateway) as client:
            await turn_of(client, "prepare", 1)
        async with gateway_for(up) as gateway, pack_client(gateway) as again:
            again.held = dict(client.held)
            assert not (await turn_of(again, "prepare", 2)).delta
            assert (await turn_of(again, "prepare", 3)).delta


FORGED = {
    "another digest": lambda good: "sha256:" + "0" * 64,
    "upper case": lambda good: "sha256:" + good[7:].upper(),
    "no algorithm": lambda good: good[7:],
    "another algorithm": lambda good: "sha512:" + good[7:],
    "short": lambda good: good[:-1],
    "long": lambda good: good + "0",
    "words": lambda good: "give me all",
    "quoted": lambda good: f'"{good}"',
    "empty": lambda good: "",
    "commas": lambda good: ",,,",
    "nine names, the good one last": lambda good: ", ".join([*("sha256:" + f"{number}" * 64 for number in range(8)), good]),
    "very long": lambda good: ", ".join("sha256:" + f"{number:064x}" for number in range(300)),
}


@pytest.mark.parametrize("kind", UNDERSTOOD)
@pytest.mark.parametrize("case", list(FORGED))
async def test_e14_a_forged_base_gets_the_full_body(kind, case):
    """tldraw/tldraw#10614: reject as a whole, base unchanged. The kit verifies every digest on the way."""
    async with upstream(growing(kind)) as up, gateway_for(up, kind=kind) as gateway, pack_client(gateway) as client:
        await turn_of(client, kind, 1)
        good = next(iter(client.held))
        forged = await turn_of(client, kind, 2, fields=[("Ctxpack-Base", FORGED[case](good))])
        assert not forged.delta
        assert forged.response.text("ctxpack-digest") == ContextPack.from_content(answer(kind, 2)[1].decode()).digest
        assert (await turn_of(client, kind, 3)).delta, "the right base was lost"


@pytest.mark.parametrize("kind", UNDERSTOOD)
async def test_e14_twin_up_to_eight_names_are_read_and_the_best_serves(kind):
    async with upstream(growing(kind)) as up, gateway_for(up, kind=kind) as gateway, pack_client(gateway) as client:
        await turn_of(client, kind, 1)
        own = next(iter(client.held))
        for others in (1, 7):
            named = ", ".join(["sha256:" + f"{number}" * 64 for number in range(others)] + [own])
            turn = await turn_of(client, kind, 2, fields=[("Ctxpack-Base", named)])
            assert turn.delta
            client.held = {own: client.held[own]}


@pytest.mark.parametrize("kind", UNDERSTOOD)
async def test_e14_the_first_turn_is_a_pack_only_when_asked(kind):
    """Contract 1."""
    async with upstream(growing(kind)) as up, gateway_for(up, kind=kind) as gateway, pack_client(gateway) as client:
        plain = await turn_of(client, kind, 1)
        assert plain.codings in ([], ["gzip"], ["zstd"])
        client.held.clear()
        asked = await turn_of(client, kind, 1, fields=[("Ctxpack-Base", "none")])
        assert asked.codings[:1] == ["ctxpack.pack.v1"]


@pytest.mark.limit(90)
@pytest.mark.parametrize("where", STORES)
async def test_e17_two_thousand_turns_leave_no_descriptor_and_no_thread(where, tmp_path):
    """nesquena/hermes-webui#2233: a descriptor a turn."""
    async with upstream(growing()) as up, gateway_process(up, store=store(where, tmp_path), log={"access": False}) as gateway:

        async def turns(name: str, count: int) -> None:
            async with pack_client(gateway, name) as client:
                for number in range(count):
                    turn = await turn_of(client, "prepare", 1 + number % 7)
                    client.held = dict(list(client.held.items())[-4:])
                assert turn.delta

        await asyncio.gather(*(turns(f"warm{number}", 20) for number in range(4)))
        before = gateway.descriptors(), gateway.threads()
        await asyncio.gather(*(turns(f"s{number}", 500) for number in range(4)))
        after = gateway.descriptors(), gateway.threads()
        assert abs(after[0] - before[0]) <= 5
        assert abs(after[1] - before[1]) <= 5


@pytest.mark.limit(90)
@pytest.mark.parametrize("where", STORES)
async def test_e18_one_shot_sessions_leave_memory_and_disk_flat(where, tmp_path):
    """openclaw/openclaw#97325. A light one: 4000 here, 50000 in the benchmarks."""
    bounds = {"sessions": {"max": 300}, "bases": {"total_bytes": 3 * 2**20}, "gzip_comparison": {"cpu_share": 0}}
    async with (
        upstream(growing()) as up,
        gateway_process(up, store={**store(where, tmp_path), "memory": 2**20}, log={"access": False}, **bounds) as gateway,
    ):
        body = chat_request("prepare")

        async def some(start: int, count: int) -> None:
            async with connect(gateway) as client:
                for number in range(start, start + count):
                    fields = [("Packhorse-Session", f"one-{number}"), ("Accept-Encoding", SPOKEN), ("X-Turn", "1")]
                    assert (await client.ask("POST", PATHS["prepare"], fields, body)).status == 200

        await asyncio.gather(*(some(number * 10_000, 300) for number in range(4)))
        before, disk_before = gateway.rss(), _disk(tmp_path)
        await asyncio.gather(*(some(number * 10_000 + 1000, 700) for number in range(4)))
        grown = gateway.rss() - before
        assert grown < 12 * 2**20, f"{grown / 2**20:.1f} MiB more"
        sizes = await scrape(gateway)
        assert sizes.total("packhorse_sessions") <= 300 + 20
        assert sizes.total("packhorse_base_bytes") <= 3 * 2**20 + 50_000
        assert _disk(tmp_path) <= disk_before * 2 + 8 * 2**20
        await uses_delta(gateway, session="last")


def _disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
