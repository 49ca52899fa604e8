"""What every store promises (middleware/stores.py), run against each."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.stores import KINDS, Clock, base, opened, owner, settled

from gateway.stores import Bounds
from middleware.stores import BaseStore


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def store(kind: str, tmp_path: Path) -> AsyncIterator[BaseStore]:
    async with opened(kind, tmp_path) as it:
        yield it


async def test_what_is_kept_is_found_at_once_under_each_name(store: BaseStore) -> None:
    kept = base("text", "raw:1")
    store.keep(owner(), "prepare", [kept])
    for name in kept.names:
        found = store.find("alice", name)
        assert found is not None
        assert found.content == b"text"
        assert store.lookup("alice", name) == "hit"


async def test_kind_is_the_label(store: BaseStore, kind: str) -> None:
    assert store.kind == kind


async def test_a_base_never_crosses_scopes(store: BaseStore) -> None:
    name = base("secret").names[0]
    store.keep(owner("s", "alice"), "prepare", [base("secret")])
    assert store.find("mallory", name) is None
    assert store.lookup("mallory", name) == "foreign"
    assert store.lookup("mallory", "sha256:other") == "unknown"
    store.fetch("mallory", [name])
    await settled(store)
    assert store.find("mallory", name) is None
    assert store.sessions(10)[0].bases == 1


async def test_own_and_foreign_is_a_hit(store: BaseStore) -> None:
    name = base("shared").names[0]
    store.keep(owner("s", "alice"), "prepare", [base("shared")])
    store.keep(owner("s", "bob"), "prepare", [base("shared")])
    assert store.lookup("alice", name) == store.lookup("bob", name) == "hit"


async def test_a_base_serves_every_session_of_its_scope(store: BaseStore) -> None:
    store.keep(owner("one"), "prepare", [base("text")])
    store.keep(owner("two"), "chat", [base("other")])
    assert store.find("alice", base("text").names[0]) is not None


async def test_the_same_content_is_stored_once_a_scope(store: BaseStore) -> None:
    for session in ("one", "two"):
        for _ in range(3):
            store.keep(owner(session), "prepare", [base("text"), base("text")])
    await settled(store)
    sizes = store.sizes()
    assert (sizes.bases, sizes.base_bytes, sizes.sessions) == (1, 4, 2)


async def test_a_later_name_of_the_same_content_is_learnt(store: BaseStore) -> None:
    store.keep(owner(), "prepare", [base("text")])
    store.keep(owner(), "prepare", [base("text", "raw:late")])
    found = store.find("alice", "raw:late")
    assert found is not None
    assert found.names == (base("text").names[0], "raw:late")


async def test_the_last_exchanges_of_a_session_and_route_stay(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path, Bounds(keep=2)) as store:
        for number in range(4):
            store.keep(owner(), "prepare", [base(f"request {number}"), base(f"response {number}")])
        store.keep(owner(), "chat", [base("elsewhere")])
        held = [number for number in range(4) if store.find("alice", base(f"response {number}").names[0])]
        assert held == [2, 3]
        assert store.find("alice", base("elsewhere").names[0]) is not None
        await settled(store)
        assert store.sizes().bases == 5


async def test_what_a_later_exchange_still_holds_stays(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path, Bounds(keep=1)) as store:
        store.keep(owner(), "prepare", [base("same"), base("old")])
        store.keep(owner(), "prepare", [base("same"), base("new")])
        assert store.find("alice", base("same").names[0]) is not None
        assert store.find("alice", base("old").names[0]) is None


async def test_a_session_is_bounded_in_bytes(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path, Bounds(session_bytes=250)) as store:
        for number in range(4):
            store.keep(owner(), f"route{number % 2}", [base(f"{number}" * 100)])
        held = [number for number in range(4) if store.find("alice", base(f"{number}" * 100).names[0])]
        assert held == [2, 3]
        await settled(store)
        assert store.sizes().base_bytes == 200


async def test_a_base_larger_than_a_session_is_passed_over(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path, Bounds(session_bytes=100)) as store:
        store.keep(owner(), "prepare", [base("small")])
        store.keep(owner(), "prepare", [base("x" * 101)])
        store.keep(owner(), "prepare", [base("y" * 101), base("also small")])
        assert store.find("alice", base("x" * 101).names[0]) is None
        assert store.find("alice", base("small").names[0]) is not None
        assert store.find("alice", base("also small").names[0]) is not None


async def test_all_sessions_are_bounded_in_bytes_and_the_least_used_goes_first(kind: str, tmp_path: Path) -> None:
    clock = Clock()
    async with opened(kind, tmp_path, Bounds(total_bytes=300), clock) as store:
        for name in "abc":
            clock.now += 1
            store.keep(owner(name), "prepare", [base(name * 100)])
        clock.now += 1
        assert store.find("alice", base("a" * 100).names[0]) is not None  # used: b is now the oldest
        store.keep(owner("a"), "prepare", [])
        clock.now += 1
        store.keep(owner("d"), "prepare", [base("d" * 100)])
        held = [name for name in "abcd" if store.lookup("alice", base(name * 100).names[0]) == "hit"]
        assert held == ["a", "c", "d"]
        await settled(store)
        assert store.sizes().base_bytes <= 300


async def test_sessions_are_bounded_in_number(kind: str, tmp_path: Path) -> None:
    clock = Clock()
    async with opened(kind, tmp_path, Bounds(sessions=3), clock) as store:
        for number in range(10):
            clock.now += 1
            store.keep(owner(f"s{number}", f"scope{number}"), "prepare", [base("text")])
        await settled(store)
        assert store.sizes().sessions == 3
        assert store.find("scope9", base("text").names[0]) is not None
        assert store.find("scope0", base("text").names[0]) is None


async def test_a_base_in_use_outlives_its_eviction(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path, Bounds(sessions=1)) as store:
        store.keep(owner("one"), "prepare", [base("text")])
        held = store.find("alice", base("text").names[0])
        store.keep(owner("two"), "prepare", [base("other")])
        await settled(store)
        assert store.find("alice", base("text").names[0]) is None
        assert held is not None
        assert held.content == b"text"


async def test_an_idle_session_is_forgotten_and_a_used_one_is_not(kind: str, tmp_path: Path) -> None:
    clock = Clock()
    async with opened(kind, tmp_path, Bounds(ttl=100), clock) as store:
        store.keep(owner("idle"), "prepare", [base("idle")])
        store.keep(owner("used"), "prepare", [base("used")])
        clock.now += 60
        assert store.find("alice", base("used").names[0]) is not None
        clock.now += 60
        assert store.find("alice", base("idle").names[0]) is None
        assert store.lookup("alice", base("idle").names[0]) == "unknown"
        assert store.find("alice", base("used").names[0]) is not None
        assert len(store.sessions(10)) == 1


async def test_a_session_that_returns_after_its_time_finds_nothing_old(kind: str, tmp_path: Path) -> None:
    clock = Clock()
    async with opened(kind, tmp_path, Bounds(ttl=100), clock) as store:
        store.keep(owner(), "prepare", [base("old")])
        clock.now += 100
        store.keep(owner(), "prepare", [base("new")])
        assert store.find("alice", base("old").names[0]) is None
        assert store.find("alice", base("new").names[0]) is not None


async def test_unknown_names_of_evicted_or_strange_sessions_are_just_unknown(store: BaseStore) -> None:
    """E11, the store's part: what is gone or never was is answered at once, and nothing is raised."""
    store.fetch("nobody", ["sha256:never", "", "x" * 10_000])
    await settled(store)
    assert store.find("nobody", "sha256:never") is None
    assert store.lookup("nobody", "") == "unknown"


async def test_sessions_are_listed_newest_first_by_a_hash(kind: str, tmp_path: Path) -> None:
    clock = Clock()
    async with opened(kind, tmp_path, clock=clock) as store:
        for name in ("first", "second", "third"):
            clock.now += 10
            store.keep(owner(name), "prepare", [base(name), base(name * 2)])
        listed = store.sessions(2)
        assert [each.idle_seconds for each in listed] == [0, 10]
        assert [(each.bases, each.base_bytes) for each in listed] == [(2, 15), (2, 18)]
        assert len({each.key for each in store.sessions(10)}) == 3
        assert not any(name in each.key for each in store.sessions(10) for name in ("third", "alice"))


async def test_nothing_to_keep_makes_no_session(store: BaseStore) -> None:
    store.keep(owner(), "prepare", [])
    await settled(store)
    assert store.sizes().sessions == 0


async def test_a_sound_store_is_not_degraded(store: BaseStore) -> None:
    assert store.degraded() is None


async def test_a_store_serves_before_it_is_open_and_closes_twice(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        await store.close()
        assert store.find("alice", "x") is None
