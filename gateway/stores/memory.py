"""Bases in memory.

Theory of operation. Three kinds of thing, and who lets go of them:

* a *content* is held once a scope, however many exchanges and sessions of that scope keep it, and is found under each of its
  names. It lives as long as a living session holds it; `holders` counts how often each does;
* an *exchange* is the contents kept together for one route of one session. The last `keep` stay; older ones go first, and
  earlier still where the session is over its bytes;
* a *session* stands in one list ordered by last use. Being kept for or found in moves it to the young end; it goes from the
  old end, as a whole, when bytes or sessions are over their limit or when it was unused for `ttl`.

Every operation costs the same however much is held. What could take long is cut: an operation forgets a bounded number of
sessions. Where that does not make room enough, the new exchange is not kept (it costs bytes, and the next one has more luck);
expired sessions that were not yet forgotten are not found. A caller that was given a :class:`Base` may use it for as long as it
likes, because nothing is ever changed or freed under it.

This file must never know what a principal is, how a body was coded, or that there is a disk. It trusts its callers that names
are hashes of contents. One thread, that of the event loop; nothing here waits.
"""

import asyncio
import hashlib
import itertools
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace

from gateway.stores.bounds import Bounds, fitting
from middleware.stores import Base, Lookup, Owner, SessionSummary, StoreSizes

_FORGET_AT_ONCE = 500  # sessions an operation evicts at most: about 2 ms
_EXPIRE_AT_ONCE = 8  # expired sessions an operation takes along
_SWEEP_AT_ONCE = 200
_LONGEST_SWEEP_INTERVAL = 30.0

UseReport = Callable[[str, str], None]
"""Told the scope and session of what was found, now and then (at most 16 times a ``ttl``)."""


class _Session:
    __slots__ = ("bytes", "name", "reported", "routes", "scope", "used")

    def __init__(self, scope: str, name: str, used: float) -> None:
        self.scope = scope
        self.name = name
        self.used = used
        self.reported = used
        self.bytes = 0
        self.routes: dict[str, list[tuple[int, tuple[_Content, ...]]]] = {}


class _Content:
    __slots__ = ("base", "holders")

    def __init__(self, base: Base) -> None:
        self.base = base
        self.holders: dict[_Session, int] = {}


class MemoryStore:
    """A :class:`middleware.stores.BaseStore` that forgets at a restart. ``clock`` gives seconds and never goes back."""

    kind = "memory"

    def __init__(self, bounds: Bounds, clock: Callable[[], float] = time.monotonic, on_use: UseReport | None = None) -> None:
        self._bounds = bounds
        self._clock = clock
        self._on_use = on_use
        self._sessions: OrderedDict[tuple[str, str], _Session] = OrderedDict()
        self._contents: dict[tuple[str, str], _Content] = {}
        self._carriers: dict[str, int] = {}
        self._order = itertools.count()
        self._bases = 0
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} sessions={len(self._sessions)} bases={self._bases} base_bytes={self._bytes}>"

    # Asking

    def find(self, scope: str, name: str) -> Base | None:
        """The base of that name in that scope, and counts as a use of the session that held it last."""
        content = self._contents.get((scope, name))
        session = self._living_holder(content) if content is not None else None
        if content is None or session is None:
            return None
        self._use(session)
        return content.base

    def lookup(self, scope: str, name: str) -> Lookup:
        """``hit`` where :meth:`find` would find it. Changes nothing but that expired sessions may go."""
        content = self._contents.get((scope, name))
        if content is not None and self._living_holder(content) is not None:
            return "hit"
        own = (scope, name) in self._contents
        return "foreign" if self._carriers.get(name, 0) > own else "unknown"

    def fetch(self, scope: str, names: Sequence[str]) -> None:
        """Nothing: all there is, is in memory."""

    def sizes(self) -> StoreSizes:
        """What is held, expired sessions included until they are swept."""
        return StoreSizes(bases=self._bases, base_bytes=self._bytes, sessions=len(self._sessions))

    def sessions(self, limit: int) -> list[SessionSummary]:
        """The most recently used sessions, newest first."""
        now = self._clock()
        newest = itertools.islice(reversed(self._sessions.values()), max(limit, 0))
        return [_summary(session, now) for session in newest if not self._expired(session, now)]

    def degraded(self) -> str | None:
        """None: memory always works."""
        return None

    # Keeping

    def keep(self, owner: Owner, route: str, bases: Sequence[Base]) -> None:
        """Hold an exchange's bases. What is larger than a session may be is passed over; with nothing left it is only a use."""
        self.sweep(_EXPIRE_AT_ONCE)
        bases = fitting(bases, self._bounds.session_bytes)
        key = (owner.scope, owner.session)
        now = self._clock()
        session = self._sessions.get(key)
        if session is not None and self._expired(session, now):
            self._forget(session)
            session = None
        if not bases:
            if session is not None:
                self._use(session)
            return
        if session is None:
            session = self._sessions[key] = _Session(owner.scope, owner.session, now)
        else:
            self._sessions.move_to_end(key)
            session.used = session.reported = now
        self._add(session, route, bases)
        if not self._make_room(session):
            self._withdraw(session, route, -1)

    def restore(self, owner: Owner, used: float, exchanges: Sequence[tuple[str, Sequence[Base]]]) -> bool:
        """Bring back a session last used at ``used``, as the oldest of all; its exchanges come oldest first.

        Sessions are to be brought newest first. Returns False when there is no room for it; what is here already stays.
        """
        key = (owner.scope, owner.session)
        if key in self._sessions or used + self._bounds.ttl <= self._clock():
            return True
        if len(self._sessions) >= self._bounds.sessions:
            return False
        session = self._sessions[key] = _Session(owner.scope, owner.session, used)
        self._sessions.move_to_end(key, last=False)
        for route, bases in exchanges:
            if taken := fitting(bases, self._bounds.session_bytes):
                self._add(session, route, taken)
        fits = self._bytes <= self._bounds.total_bytes
        if not fits or not session.routes:
            self._forget(session)
        return fits

    def sweep(self, most: int = _SWEEP_AT_ONCE) -> int:
        """Forget up to ``most`` expired sessions; returns how many went."""
        now = self._clock()
        gone = 0
        while gone < most and self._sessions:
            oldest = next(iter(self._sessions.values()))
            if not self._expired(oldest, now):
                break
            self._forget(oldest)
            gone += 1
        return gone

    # Starting and ending

    async def open(self) -> None:
        """Sweep from now on also while nobody asks, so that no text outlives its time in an idle gateway."""
        if self._timer is None:
            self._sweep_again(asyncio.get_running_loop())

    async def close(self) -> None:
        """Stop sweeping and forget everything."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._sessions.clear()
        self._contents.clear()
        self._carriers.clear()
        self._bases = self._bytes = 0

    def _sweep_again(self, loop: asyncio.AbstractEventLoop) -> None:
        more = self.sweep() == _SWEEP_AT_ONCE
        pause = 0.01 if more else min(self._bounds.ttl / 4, _LONGEST_SWEEP_INTERVAL)
        self._timer = loop.call_later(max(pause, 0.01), self._sweep_again, loop)

    # Sessions

    def _expired(self, session: _Session, now: float) -> bool:
        return session.used + self._bounds.ttl <= now

    def _use(self, session: _Session) -> None:
        now = self._clock()
        session.used = now
        self._sessions.move_to_end((session.scope, session.name))
        if self._on_use is not None and now - session.reported >= self._bounds.ttl / 16:
            session.reported = now
            self._on_use(session.scope, session.name)

    def _living_holder(self, content: _Content) -> _Session | None:
        """The session that was last to keep this and has not expired; of those that have, a few are forgotten."""
        now = self._clock()
        for _ in range(_EXPIRE_AT_ONCE):
            session = next(reversed(content.holders), None)
            if session is None or not self._expired(session, now):
                return session
            self._forget(session)
        return None

    def _forget(self, session: _Session) -> None:
        del self._sessions[session.scope, session.name]
        for exchanges in session.routes.values():
            for _, contents in exchanges:
                for content in contents:
                    self._release(session, content)
        session.routes.clear()

    def _make_room(self, newest: _Session) -> bool:
        """Evict from the old end until the bounds hold. False where a bounded number of sessions was not enough."""
        for _ in range(_FORGET_AT_ONCE):
            if self._bytes <= self._bounds.total_bytes and len(self._sessions) <= self._bounds.sessions:
                return True
            oldest = next(iter(self._sessions.values()))
            if oldest is newest:
                return True  # alone, and no session is larger than all may be
            self._forget(oldest)
        return self._bytes <= self._bounds.total_bytes and len(self._sessions) <= self._bounds.sessions

    # Exchanges and contents

    def _add(self, session: _Session, route: str, bases: Sequence[Base]) -> None:
        contents = dict.fromkeys(self._content(session.scope, base) for base in bases)
        for content in contents:
            self._hold(session, content)
        exchanges = session.routes.setdefault(route, [])
        exchanges.append((next(self._order), tuple(contents)))
        if len(exchanges) > self._bounds.keep:
            self._withdraw(session, route, 0)
        while session.bytes > self._bounds.session_bytes:
            oldest = min(session.routes, key=lambda each: session.routes[each][0][0])
            self._withdraw(session, oldest, 0)

    def _withdraw(self, session: _Session, route: str, index: int) -> None:
        """Let go of one exchange; of the session too, if it was its last."""
        exchanges = session.routes[route]
        for content in exchanges.pop(index)[1]:
            self._release(session, content)
        if not exchanges:
            del session.routes[route]
        if not session.routes:
            self._forget(session)

    def _content(self, scope: str, base: Base) -> _Content:
        held = next((found for name in base.names if (found := self._contents.get((scope, name))) is not None), None)
        if held is None:
            held = _Content(base)
            self._bases += 1
            self._bytes += len(base.content)
            self._name(scope, held, base.names)
        elif held.base.names != base.names or held.base.pack is None:
            self._merge(scope, held, base)
        return held

    def _hold(self, session: _Session, content: _Content) -> None:
        count = content.holders.pop(session, 0)  # put back at the end: the last to keep it
        content.holders[session] = count + 1
        if not count:
            session.bytes += len(content.base.content)

    def _merge(self, scope: str, held: _Content, base: Base) -> None:
        """The same content came under further names, or with its pack."""
        new = tuple(name for name in base.names if (scope, name) not in self._contents)
        self._name(scope, held, new)
        held.base = replace(held.base, names=held.base.names + new, pack=held.base.pack or base.pack)

    def _name(self, scope: str, content: _Content, names: Sequence[str]) -> None:
        for name in names:
            if (scope, name) not in self._contents:
                self._contents[scope, name] = content
                self._carriers[name] = self._carriers.get(name, 0) + 1

    def _release(self, session: _Session, content: _Content) -> None:
        count = content.holders[session] - 1
        if count:
            content.holders[session] = count
            return
        del content.holders[session]
        session.bytes -= len(content.base.content)
        if content.holders:
            return
        self._bases -= 1
        self._bytes -= len(content.base.content)
        for name in content.base.names:
            if self._contents.get((session.scope, name)) is content:
                del self._contents[session.scope, name]
                carriers = self._carriers[name] - 1
                if carriers:
                    self._carriers[name] = carriers
                else:
                    del self._carriers[name]


def _summary(session: _Session, now: float) -> SessionSummary:
    distinct = {content for exchanges in session.routes.values() for _, contents in exchanges for content in contents}
    key = hashlib.blake2b(f"{session.scope}\0{session.name}".encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return SessionSummary(key, len(distinct), session.bytes, max(now - session.used, 0.0))
