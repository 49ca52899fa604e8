"""Property: whatever happens, both books hold the bounds, agree with each other, and never give a wrong or a stranger's base."""

import contextlib
import sqlite3
from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.stores import Clock, base, name_of, owner

from gateway.stores import Bounds, MemoryStore
from gateway.stores.bounds import fitting
from gateway.stores.ledger import SCHEMA, Ledger
from gateway.stores.records import Kept, Wanted

SCOPES = ("alice", "bob")
TEXTS = [letter * size for letter in "abcdefgh" for size in (1, 7, 30, 90)]
BOUNDS = st.builds(
    Bounds,
    keep=st.integers(1, 3),
    session_bytes=st.integers(20, 120),
    total_bytes=st.integers(60, 300),
    ttl=st.sampled_from([5.0, 50.0]),
    sessions=st.integers(1, 5),
)


class Stores(RuleBasedStateMachine):
    """A memory store and the tables of the sqlite store, told the same."""

    @initialize(bounds=BOUNDS)
    def begin(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.clock = Clock()
        self.memory = MemoryStore(bounds, self.clock)
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.connection.executescript(SCHEMA)
        self.ledger = Ledger(self.connection, bounds)
        self.kept: defaultdict[str, set[str]] = defaultdict(set)

    def teardown(self) -> None:
        with contextlib.suppress(AttributeError):
            self.connection.close()

    @rule(
        scope=st.sampled_from(SCOPES),
        session=st.sampled_from("xyz"),
        route=st.sampled_from(("prepare", "chat")),
        texts=st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3),
    )
    def keep(self, scope: str, session: str, route: str, texts: list[str]) -> None:
        self.passes(1)
        bases = [base(text) for text in texts]
        self.kept[scope].update(each.names[0] for each in bases)
        self.memory.keep(owner(session, scope), route, bases)
        taken = fitting(bases, self.bounds.session_bytes)  # the sqlite store hands over no more than these
        exchanges = [Kept(owner(session, scope), route, self.clock.now, taken)] if taken else []
        self.ledger.write(exchanges, [(scope, session, self.clock.now)])

    @rule(seconds=st.sampled_from([1, 3, 60]))
    def passes(self, seconds: int) -> None:
        self.clock.now += seconds
        self.memory.sweep(1000)
        self.ledger.expire(self.clock.now, 1000)

    @rule(scope=st.sampled_from(SCOPES), text=st.sampled_from(TEXTS))
    def find(self, scope: str, text: str) -> None:
        name = base(text).names[0]
        looked_up = self.memory.lookup(scope, name)
        on_disk = [each for found in self.ledger.read(Wanted(scope, (name,)), self.clock.now) for each in found.bases]
        assert (looked_up == "hit") == bool(on_disk)
        for found in on_disk:
            assert name_of(found.content) == name
            assert name in self.kept[scope]
        if looked_up == "hit":
            in_memory = self.memory.find(scope, name)
            assert in_memory is not None
            assert name_of(in_memory.content) == name
            assert name in self.kept[scope]
            self.same_use()

    def same_use(self) -> None:
        """A find is a use of one session; tell the tables which."""
        newest = next(reversed(self.memory._sessions.values()))
        self.clock.now += 1
        newest.used = self.clock.now
        self.ledger.write([], [(newest.scope, newest.name, self.clock.now)])

    @invariant()
    def bounds_hold(self) -> None:
        if not hasattr(self, "memory"):
            return
        sizes = self.memory.sizes()
        assert sizes == self.ledger.sizes()
        assert sizes.base_bytes <= self.bounds.total_bytes
        assert sizes.sessions <= self.bounds.sessions
        for summary in self.memory.sessions(100):
            assert summary.base_bytes <= self.bounds.session_bytes
            assert summary.bases > 0
        counted = self.connection.execute("SELECT count(*), coalesce(sum(length(body)), 0) FROM content").fetchone()
        assert counted == (sizes.bases, sizes.base_bytes)


Stores.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestStores = Stores.TestCase
