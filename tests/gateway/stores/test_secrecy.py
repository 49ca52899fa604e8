"""The file holds people's text: only its owner reads it, and what was deleted is gone."""

import os
import stat
from pathlib import Path

import pytest
from support.stores import Clock, base, owner, sqlite_at

from gateway.stores import Bounds


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


@pytest.fixture
def wide_umask() -> "object":
    before = os.umask(0)
    yield
    os.umask(before)


async def test_only_the_owner_reads_file_and_logs_whatever_the_umask(tmp_path: Path, wide_umask: object) -> None:
    folder = tmp_path / "made" / "here"
    store = sqlite_at(folder)
    await store.open()
    store.keep(owner(), "prepare", [base("text")])
    await store.settled()
    assert modes(folder) == {"bases.sqlite3": 0o600, "bases.sqlite3-wal": 0o600, "bases.sqlite3-shm": 0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    await store.close()


async def test_a_file_that_was_open_to_others_is_closed_to_them(tmp_path: Path) -> None:
    for _ in range(2):
        store = sqlite_at(tmp_path)
        await store.open()
        await store.close()
        assert set(modes(tmp_path).values()) == {0o600}
        (tmp_path / "bases.sqlite3").chmod(0o666)


@pytest.mark.parametrize("size", [1, 50, 4000])
async def test_evicted_text_is_in_no_byte_of_the_file(tmp_path: Path, size: int) -> None:
    store = sqlite_at(tmp_path, Bounds(keep=1))
    await store.open()
    secret = "a most personal remark; "
    store.keep(owner(), "prepare", [base(secret * size)])
    await store.settled()
    assert secret.encode() in everything(tmp_path)
    store.keep(owner(), "prepare", [base("something else")])
    await store.settled()
    assert b"personal remark" not in everything(tmp_path)
    await store.close()
    assert b"personal remark" not in everything(tmp_path)


async def test_expired_text_is_in_no_byte_of_the_file(tmp_path: Path) -> None:
    clock = Clock()
    bounds = Bounds(ttl=100)
    store = sqlite_at(tmp_path, bounds, clock)
    await store.open()
    store.keep(owner(), "prepare", [base("a most personal remark; " * 100)])
    await store.close()
    assert b"personal remark" in everything(tmp_path)
    clock.now += 100
    store = sqlite_at(tmp_path, bounds, clock)
    await store.open()
    await store.settled()
    assert b"personal remark" not in everything(tmp_path)
    await store.close()
