"""Faults (e) of state: broken files, full disks, killed and crowding processes. Traffic never notices; the disk is never believed."""

import asyncio
import contextlib
import logging
import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.store_worker import text
from support.stores import Clock, base, name_of, owner, sqlite_at, until

from gateway.stores import Bounds, SqliteStore
from gateway.stores.sqlite_file import SqliteFile

REPOSITORY = Path(__file__).parents[3]


@contextlib.asynccontextmanager
async def running(folder: Path, **how: object) -> AsyncIterator[SqliteStore]:
    store = sqlite_at(folder, **how)  # type: ignore[arg-type]
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def fill(folder: Path, count: int = 20) -> None:
    async with running(folder) as store:
        for number in range(count):
            store.keep(owner(f"s{number}"), "prepare", [base(f"text {number} " * 300)])
        await store.settled()


def start_worker(folder: Path, name: str, count: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "support.store_worker", str(folder), name, str(count)],
        cwd=REPOSITORY, env=os.environ | {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'tests'}"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


# E08: many processes, one file


def test_e08_eight_workers_open_a_fresh_file_at_once_while_a_reader_reads(tmp_path: Path) -> None:
    workers = [start_worker(tmp_path, f"worker{number}", 40) for number in range(8)]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    assert workers[0].stdout is not None
    assert workers[0].stdout.readline() == "10\n"
    with contextlib.closing(sqlite3.connect(tmp_path / "bases.sqlite3", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        before = reader.execute("SELECT count(*) FROM content").fetchone()
        results = [worker.communicate(timeout=60) for worker in workers]
        assert reader.execute("SELECT count(*) FROM content").fetchone() == before
        reader.execute("COMMIT")
        (scopes,) = reader.execute("SELECT count(DISTINCT scope) FROM content").fetchone()
        assert reader.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        totals = reader.execute("SELECT bases, bytes, sessions FROM totals").fetchone()
        counted = reader.execute("SELECT count(*), sum(length(body)), (SELECT count(*) FROM session) FROM content").fetchone()
    assert [out.splitlines()[-1] for out, _ in results] == ["sound"] * 8
    assert [err for _, err in results] == [""] * 8
    assert scopes == 8
    assert totals == counted == (8 * 28, counted[1], 8 * 7)


async def test_e08_a_writer_that_holds_the_file_delays_and_loses_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as store:
        with contextlib.closing(sqlite3.connect(tmp_path / "bases.sqlite3", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            store.keep(owner(), "prepare", [base("while locked")])
            assert store.find("alice", base("while locked").names[0]) is not None
            await until(store.degraded)
            assert "locked" in str(store.degraded())
            other.execute("COMMIT")
        await store.settled()
        assert store.degraded() is None
    async with running(tmp_path) as store:
        assert store.find("alice", base("while locked").names[0]) is not None


async def test_what_another_process_wrote_can_be_fetched(tmp_path: Path) -> None:
    async with running(tmp_path) as one, running(tmp_path) as two:
        one.keep(owner(), "prepare", [base("from one")])
        await one.settled()
        name = base("from one").names[0]
        assert two.find("alice", name) is None
        two.fetch("alice", ["sha256:unknown", name])
        two.fetch("bob", [name])
        await two.settled()
        found = two.find("alice", name)
        assert found is not None
        assert found.content == b"from one"
        assert two.find("bob", name) is None


# E09: broken files


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def corrupt_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("bases.sqlite3.corrupt-?"))


async def serves(store: SqliteStore) -> None:
    store.keep(owner("new"), "prepare", [base("after the fault")])
    await store.settled()
    assert store.find("alice", base("after the fault").names[0]) is not None


@pytest.mark.parametrize("damage", ["garbage", "empty pages", "truncated", "tables", "middle"])
async def test_e09_a_broken_file_is_moved_aside_and_the_traffic_goes_on(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "bases.sqlite3"
    await fill(tmp_path)
    if damage == "garbage":
        file.write_bytes(random.Random(1).randbytes(50_000))
    elif damage == "empty pages":
        file.write_bytes(file.read_bytes()[:100] + bytes(20_000))
    elif damage == "truncated":
        os.truncate(file, 10_000)
    elif damage == "middle":
        content = bytearray(file.read_bytes())
        content[4096:] = random.Random(2).randbytes(len(content) - 4096)
        file.write_bytes(content)
    else:
        with contextlib.closing(sqlite3.connect(file)) as other:
            other.execute("DROP TABLE name")
    file.chmod(0o644)
    async with running(tmp_path) as store:
        await serves(store)
        assert store.degraded() is None
    (aside,) = corrupt_files(tmp_path)
    assert stat.S_IMODE(aside.stat().st_mode) == 0o600
    assert [record.levelname for record in caplog.records if record.name == "packhorse.store"] == ["ERROR"]
    async with running(tmp_path) as store:
        assert store.find("alice", base("after the fault").names[0]) is not None
    assert corrupt_files(tmp_path) == [aside]


async def test_e09_a_damaged_row_is_dropped_and_the_others_are_served(tmp_path: Path) -> None:
    await fill(tmp_path, 3)
    with contextlib.closing(sqlite3.connect(tmp_path / "bases.sqlite3")) as other, other:
        other.execute("UPDATE content SET body = replace(body, 'text 1', 'text X') WHERE id = 2")
        other.execute("UPDATE content SET names = names || 'f' WHERE id = 3")
        other.execute("UPDATE name SET name = name || 'f' WHERE content = 3")
    async with running(tmp_path) as store:
        names = [base(f"text {number} " * 300).names[0] for number in range(3)]
        store.fetch("alice", [*names, names[2] + "f"])
        await store.settled()
        assert [store.find("alice", name) is not None for name in [*names, names[2] + "f"]] == [True, False, False, False]
        await store.settled()
        assert store.degraded() is None


async def test_e09_a_base_moved_to_another_principal_on_disk_is_not_believed(tmp_path: Path) -> None:
    await fill(tmp_path, 1)
    with contextlib.closing(sqlite3.connect(tmp_path / "bases.sqlite3")) as other, other:
        for statement in ("UPDATE content SET scope = 'mallory'", "UPDATE name SET scope = 'mallory'"):
            other.execute(statement)
        other.execute("UPDATE session SET scope = 'mallory'")
    async with running(tmp_path) as store:
        name = base("text 0 " * 300).names[0]
        store.fetch("mallory", [name])
        await store.settled()
        assert store.find("mallory", name) is None


@pytest.mark.parametrize("how", ["garbage", "cut"])
async def test_e09_a_corrupt_log_costs_at_most_what_it_held(tmp_path: Path, how: str) -> None:
    async with running(tmp_path) as store:
        store.keep(owner("one"), "prepare", [base("in the file")])
        await store.settled()
        with contextlib.closing(sqlite3.connect(tmp_path / "bases.sqlite3", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM content").fetchone()
            store.keep(owner("two"), "prepare", [base("only in the log " * 1000)])
            await store.settled()
            copy = tmp_path / "copy"
            copy.mkdir()
            for suffix in ("", "-wal"):
                shutil.copy(tmp_path / f"bases.sqlite3{suffix}", copy / f"bases.sqlite3{suffix}")
    log = copy / "bases.sqlite3-wal"
    assert log.stat().st_size > 16_000
    if how == "garbage":
        log.write_bytes(random.Random(3).randbytes(log.stat().st_size))
    else:
        os.truncate(log, log.stat().st_size - 3000)
    async with running(copy) as store:
        assert store.find("alice", base("in the file").names[0]) is not None
        await serves(store)
        assert store.degraded() is None


async def test_e09_only_a_few_broken_files_are_kept(tmp_path: Path) -> None:
    for _ in range(5):
        (tmp_path / "bases.sqlite3").write_bytes(b"no database at all" * 100)
        async with running(tmp_path) as store:
            await serves(store)
    assert len(corrupt_files(tmp_path)) == 3


async def test_e09_a_folder_that_cannot_be_made_leaves_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("not a folder")
    async with running(tmp_path / "file" / "deeper") as store:
        store.keep(owner(), "prepare", [base("text")])
        await store.settled()
        assert "in memory only" in str(store.degraded())
        assert store.find("alice", base("text").names[0]) is not None
        assert store.sizes().bases == 1
        await until(lambda: store._disk._retry_at)
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1


async def test_the_database_of_another_program_is_never_touched(tmp_path: Path) -> None:
    file = tmp_path / "bases.sqlite3"
    with contextlib.closing(sqlite3.connect(file)) as other, other:
        other.execute("CREATE TABLE precious (x)")
    before = file.read_bytes()
    async with running(tmp_path) as store:
        await store.settled()
        assert "another program" in str(store.degraded())
    assert file.read_bytes() == before
    assert corrupt_files(tmp_path) == []


async def test_a_deleted_file_is_made_anew(tmp_path: Path) -> None:
    async with running(tmp_path) as store:
        empty(tmp_path)
        await serves(store)
        assert store.degraded() is None
    async with running(tmp_path) as store:
        assert store.find("alice", base("after the fault").names[0]) is not None


async def test_of_two_processes_with_a_broken_file_one_moves_it(tmp_path: Path) -> None:
    first, second = (SqliteFile(tmp_path / "bases.sqlite3", "CREATE TABLE t (x);", 1) for _ in range(2))
    for file in (first, second):
        file.open().close()
    assert first.move_aside() is not None
    first.open().close()
    assert second.move_aside() is None
    assert len(corrupt_files(tmp_path)) == 1


def test_e09_kill_9_while_writing_leaves_only_whole_bases(tmp_path: Path) -> None:
    chance = random.Random(9)
    for round_number in range(4):
        worker = start_worker(tmp_path, f"round{round_number}", 0)
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdout.readline()
        worker.stdin.write("go\n")
        worker.stdin.flush()
        written = [int(worker.stdout.readline()) for _ in range(chance.randint(2, 12))][-1]
        worker.kill()
        worker.communicate()
        asyncio.run(check_after_kill(tmp_path, f"round{round_number}", written))


async def check_after_kill(folder: Path, scope: str, written: int) -> None:
    async with running(folder) as store:
        for number in range(written - 20, written + 1):  # at least the last of each of seven sessions were written
            found = store.find(scope, base(text(scope, number)).names[0])
            assert found is not None or number <= written - 15
        with contextlib.closing(sqlite3.connect(folder / "bases.sqlite3")) as reader:
            assert reader.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            for names, body in reader.execute("SELECT names, body FROM content"):
                assert names == name_of(body)
        assert store.degraded() is None
    assert corrupt_files(folder) == []


# E10: a full disk


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


async def test_e10_a_full_disk_costs_nothing_now_and_recovers(small_disk: Path) -> None:
    async with running(small_disk) as store:
        for number in range(300):
            store.keep(owner(f"s{number}"), "prepare", [base(f"{number} " * 3000)])
        await store.settled()
        assert "full" in str(store.degraded())
        assert all(store.find("alice", base(f"{number} " * 3000).names[0]) for number in range(300))
        remount(small_disk, "size=16m")
        await until(lambda: store.degraded() is None)
        store.keep(owner("later"), "prepare", [base("when there is space again")])
        await store.settled()
        assert store.degraded() is None
    with contextlib.closing(sqlite3.connect(small_disk / "bases.sqlite3")) as reader:
        assert reader.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        rows = reader.execute("SELECT names, body FROM content").fetchall()
    assert rows
    assert all(names == name_of(body) for names, body in rows)
    async with running(small_disk) as store:
        assert store.find("alice", base("when there is space again").names[0]) is not None


async def test_e10_a_disk_full_from_the_start_leaves_memory_and_recovers(small_disk: Path) -> None:
    filler = small_disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as stream:
        while stream.write(bytes(4096)):
            pass
    async with running(small_disk) as store:
        store.keep(owner(), "prepare", [base("text")])
        await store.settled()
        assert store.degraded() is not None
        assert store.find("alice", base("text").names[0]) is not None
        filler.unlink()
        await until(lambda: store.degraded() is None)
        await serves(store)


async def test_e09_a_read_only_disk_leaves_memory_and_recovers(small_disk: Path) -> None:
    await fill(small_disk, 3)
    remount(small_disk, "ro")
    async with running(small_disk) as store:
        store.keep(owner(), "prepare", [base("text")])
        assert "in memory only" in str(store.degraded())
        assert "read-only" in str(store.degraded())
        assert store.find("alice", base("text").names[0]) is not None
        remount(small_disk, "rw")
        await until(lambda: store.degraded() is None)
        await serves(store)


# Restart


async def test_a_restart_remembers_sessions_exchanges_and_order(tmp_path: Path) -> None:
    clock = Clock()
    bounds = Bounds(keep=2, sessions=3)
    async with running(tmp_path, bounds=bounds, clock=clock) as store:
        for session in ("one", "two", "three"):
            for number in range(3):
                clock.now += 1
                store.keep(owner(session), "prepare", [base(f"{session} {number}", f"raw:{session}{number}")])
        await store.settled()
        before = store.sessions(10)
    async with running(tmp_path, bounds=bounds, clock=clock) as store:
        assert store.sessions(10) == before
        assert store.find("alice", "raw:one2") is not None
        assert store.find("alice", "raw:one0") is None
        clock.now += 1
        store.keep(owner("three"), "prepare", [base("three 3")])
        assert store.find("alice", "raw:three1") is None
        assert store.find("alice", "raw:three2") is not None
        clock.now += 1
        store.keep(owner("four"), "prepare", [base("four")])
        assert store.find("alice", "raw:two2") is None


async def test_a_use_without_a_new_exchange_outlives_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    async with running(tmp_path, bounds=Bounds(ttl=100), clock=clock) as store:
        store.keep(owner(), "prepare", [base("text")])
        for _ in range(3):
            clock.now += 60
            assert store.find("alice", base("text").names[0]) is not None
            await store.settled()
    async with running(tmp_path, bounds=Bounds(ttl=100), clock=clock) as store:
        assert store.find("alice", base("text").names[0]) is not None
        clock.now += 200
    async with running(tmp_path, bounds=Bounds(ttl=100), clock=clock) as store:
        assert store.sessions(10) == []
        store.fetch("alice", [base("text").names[0]])
        await store.settled()
        assert store.find("alice", base("text").names[0]) is None


async def test_what_memory_lacks_is_fetched_and_what_is_behind_a_hit_is_not(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "bases.sqlite3", Bounds(), memory=25_000)
    await store.open()
    names = [base(f"{number}" * 10_000).names[0] for number in range(4)]
    for number in range(4):
        store.keep(owner(f"s{number}"), "prepare", [base(f"{number}" * 10_000)])
    await store.settled()
    assert [store.find("alice", name) is not None for name in names] == [False, False, True, True]
    store.fetch("alice", [names[3], names[1]])
    await store.settled()
    assert store.find("alice", names[1]) is None
    store.fetch("alice", [names[1], names[3]])
    await store.settled()
    assert store.find("alice", names[1]) is not None
    assert store.sizes().bases == 4
    await store.close()
