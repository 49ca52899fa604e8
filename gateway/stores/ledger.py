"""Bases in SQLite: the same bounds as in memory, kept by the tables themselves.

Theory of operation. A *session* has *exchanges* (numbered as they were written), an exchange *holds* contents, a *content* has
names. Deleting goes downwards by trigger: a session takes its exchanges along, an exchange its holds, the last hold its
content, a content its names. So evicting is one DELETE, no content outlives its holders, and what is counted in `totals`
(again by trigger, in the same transaction) is true for every process that writes the file.

Nothing read back is trusted: each content carries a seal, SHA-256 over its scope, its names and its bytes. A row whose seal
does not fit is deleted and was never there; so no damaged text, and none under a wrong name or for the wrong principal, leaves
this file.

Methods raise ``sqlite3.Error``; a transaction that did not end well is rolled back as a whole. This file must never know about
threads, event loops, or what to do about a disk that fails.
"""

import contextlib
import hashlib
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence

from gateway.stores.bounds import Bounds
from gateway.stores.records import Found, Kept, Remembered, Wanted
from middleware.stores import Base, Owner, StoreSizes

VERSION = 1
SCHEMA = """
CREATE TABLE session (
  id INTEGER PRIMARY KEY, scope TEXT NOT NULL, name TEXT NOT NULL, used REAL NOT NULL, UNIQUE (scope, name));
CREATE INDEX session_by_use ON session (used);
CREATE TABLE exchange (id INTEGER PRIMARY KEY AUTOINCREMENT, session INTEGER NOT NULL, route TEXT NOT NULL);
CREATE INDEX exchange_by_session ON exchange (session, route, id);
CREATE TABLE hold (exchange INTEGER NOT NULL, content INTEGER NOT NULL, PRIMARY KEY (exchange, content)) WITHOUT ROWID;
CREATE INDEX hold_by_content ON hold (content, exchange);
CREATE TABLE content (
  id INTEGER PRIMARY KEY, scope TEXT NOT NULL, names TEXT NOT NULL, seal BLOB NOT NULL, size INTEGER NOT NULL,
  body BLOB NOT NULL);
CREATE TABLE name (scope TEXT NOT NULL, name TEXT NOT NULL, content INTEGER NOT NULL, PRIMARY KEY (scope, name)) WITHOUT ROWID;
CREATE INDEX name_by_content ON name (content);
CREATE TABLE totals (
  id INTEGER PRIMARY KEY CHECK (id = 1), bases INTEGER NOT NULL, bytes INTEGER NOT NULL, sessions INTEGER NOT NULL);
INSERT INTO totals VALUES (1, 0, 0, 0);
CREATE TRIGGER session_made AFTER INSERT ON session BEGIN UPDATE totals SET sessions = sessions + 1; END;
CREATE TRIGGER session_gone AFTER DELETE ON session BEGIN
  UPDATE totals SET sessions = sessions - 1; DELETE FROM exchange WHERE session = OLD.id; END;
CREATE TRIGGER exchange_gone AFTER DELETE ON exchange BEGIN DELETE FROM hold WHERE exchange = OLD.id; END;
CREATE TRIGGER hold_gone AFTER DELETE ON hold WHEN NOT EXISTS (SELECT 1 FROM hold WHERE content = OLD.content) BEGIN
  DELETE FROM content WHERE id = OLD.content; END;
CREATE TRIGGER content_made AFTER INSERT ON content BEGIN UPDATE totals SET bases = bases + 1, bytes = bytes + NEW.size; END;
CREATE TRIGGER content_gone AFTER DELETE ON content BEGIN
  UPDATE totals SET bases = bases - 1, bytes = bytes - OLD.size; DELETE FROM name WHERE content = OLD.id; END;
"""
_SPARE_PAGES = 64  # free pages that are left in the file
_VACUUM_AT_ONCE = 1024
_UPSERT_SESSION = """INSERT INTO session (scope, name, used) VALUES (?, ?, ?)
ON CONFLICT (scope, name) DO UPDATE SET used = max(used, excluded.used)"""
_PAST_KEEP = """DELETE FROM exchange WHERE session = ?1 AND route = ?2 AND id <=
(SELECT id FROM exchange WHERE session = ?1 AND route = ?2 ORDER BY id DESC LIMIT 1 OFFSET ?3)"""
_SESSION_BYTES = """SELECT coalesce(sum(size), 0) FROM content WHERE id IN
(SELECT content FROM hold JOIN exchange ON exchange.id = hold.exchange WHERE exchange.session = ?)"""
_OLDEST_EXCHANGE = "DELETE FROM exchange WHERE id = (SELECT min(id) FROM exchange WHERE session = ? HAVING count(*) > 1)"
_EVICT = "DELETE FROM session WHERE id = (SELECT id FROM session WHERE id != ? ORDER BY used LIMIT 1)"
_EXPIRE = "DELETE FROM session WHERE id IN (SELECT id FROM session WHERE used <= ? ORDER BY used LIMIT ?)"
_LAST_HOLDER = """SELECT session.name FROM hold JOIN exchange ON exchange.id = hold.exchange
JOIN session ON session.id = exchange.session WHERE hold.content = ? AND session.used > ? ORDER BY hold.exchange DESC LIMIT 1"""
_RECENT = "SELECT id, scope, name, used FROM session WHERE used > ? ORDER BY used DESC LIMIT ?"
_CONTENT = "SELECT id, scope, names, seal, body FROM content WHERE id = ?"


class Ledger:
    """The tables of one connection."""

    def __init__(self, connection: sqlite3.Connection, bounds: Bounds) -> None:
        self._connection = connection
        self._bounds = bounds

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def write(self, exchanges: Sequence[Kept], touched: Iterable[tuple[str, str, float]] = ()) -> StoreSizes:
        """Write exchanges and times of use in one transaction, within the bounds; returns what the file then holds."""
        with self._transaction():
            for exchange in exchanges:
                self._write_one(exchange)
            for scope, name, used in touched:
                self._run("UPDATE session SET used = max(used, ?) WHERE scope = ? AND name = ?", used, scope, name)
            return self._sizes()

    def expire(self, now: float, most: int) -> int:
        """Forget up to ``most`` sessions unused for the time to live; returns how many went."""
        return self._run(_EXPIRE, now - self._bounds.ttl, most).rowcount

    def read(self, wanted: Wanted, now: float) -> list[Found]:
        """What the disk holds of these names, by the session that kept it last."""
        found: dict[str, dict[int, Base]] = {}
        for name in wanted.names:
            row = self._run("SELECT content FROM name WHERE scope = ? AND name = ?", wanted.scope, name).fetchone()
            holder = row and self._run(_LAST_HOLDER, row[0], now - self._bounds.ttl).fetchone()
            if holder is None:
                continue
            base = self._load(row[0], wanted.scope)
            if base is not None and name in base.names:
                found.setdefault(holder[0], {})[row[0]] = base
        return [Found(Owner(wanted.scope, session), list(bases.values())) for session, bases in found.items()]

    def recent(self, now: float, most_bytes: int, seconds: float, most_sessions: int = 10_000) -> list[Remembered]:
        """The sessions used last, newest first, until one of the limits is reached."""
        deadline = time.monotonic() + seconds
        remembered: list[Remembered] = []
        for key, scope, name, used in self._run(_RECENT, now - self._bounds.ttl, most_sessions).fetchall():
            exchanges, size = self._exchanges(key, scope, most_bytes)
            most_bytes -= size
            if most_bytes < 0 or time.monotonic() > deadline:
                break
            if exchanges:
                remembered.append(Remembered(Owner(scope, name), used, exchanges))
        return remembered

    def sizes(self) -> StoreSizes:
        """What the file holds, for all processes that write it."""
        return self._sizes()

    def tidy(self) -> bool:
        """Give space back to the disk and empty the log, which still has what was deleted.

        False where something is left to do: a reader is in the way, or there is much to give back.
        """
        free, pages = (self._run(f"PRAGMA {what}").fetchone()[0] for what in ("freelist_count", "page_count"))
        excess = free - max(_SPARE_PAGES, pages // 8)
        if excess > 0:
            self._connection.executescript(f"PRAGMA incremental_vacuum({min(excess, _VACUUM_AT_ONCE)})")  # execute stops at one
        (patience,) = self._run("PRAGMA busy_timeout").fetchone()
        self._run("PRAGMA busy_timeout=0")  # it would keep all writers waiting while it waits for a reader
        try:
            busy: int = self._run("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        finally:
            self._run(f"PRAGMA busy_timeout={patience}")
        return not busy and excess <= _VACUUM_AT_ONCE

    def probe(self) -> None:
        """Raise ``sqlite3.Error`` unless a little can be written."""
        with self._transaction():
            rows = [(f"probe {number}", "x" * 1000) for number in range(32)]
            self._connection.executemany("INSERT INTO name VALUES (?, ?, 0)", rows)
            self._run("DELETE FROM name WHERE content = 0")

    # Writing

    def _write_one(self, kept: Kept) -> None:
        owner = kept.owner
        self._run(_UPSERT_SESSION, owner.scope, owner.session, kept.used)
        (session,) = self._run("SELECT id FROM session WHERE scope = ? AND name = ?", owner.scope, owner.session).fetchone()
        exchange = self._run("INSERT INTO exchange (session, route) VALUES (?, ?)", session, kept.route).lastrowid
        for base in kept.bases:
            self._run("INSERT OR IGNORE INTO hold VALUES (?, ?)", exchange, self._content(owner.scope, base))
        self._run(_PAST_KEEP, session, kept.route, self._bounds.keep)
        while self._run(_SESSION_BYTES, session).fetchone()[0] > self._bounds.session_bytes:
            if not self._run(_OLDEST_EXCHANGE, session).rowcount:
                break
        while self._over() and self._run(_EVICT, session).rowcount:
            pass

    def _content(self, scope: str, base: Base) -> int:
        """The row of this content; written if no row of this scope has one of its names."""
        for name in base.names:
            row = self._run("SELECT content FROM name WHERE scope = ? AND name = ?", scope, name).fetchone()
            if row is not None:
                return self._with_names(row[0], scope, base)
        names = "\n".join(base.names)
        values = (scope, names, _seal(scope, names, base.content), len(base.content), base.content)
        content = self._run("INSERT INTO content (scope, names, seal, size, body) VALUES (?, ?, ?, ?, ?)", *values).lastrowid
        assert content is not None
        self._name(scope, base.names, content)
        return content

    def _with_names(self, content: int, scope: str, base: Base) -> int:
        (known,) = self._run("SELECT names FROM content WHERE id = ?", content).fetchone()
        new = [name for name in base.names if name not in known.split("\n")]
        if new:
            names = "\n".join([known, *new])
            self._run("UPDATE content SET names = ?, seal = ? WHERE id = ?", names, _seal(scope, names, base.content), content)
            self._name(scope, new, content)
        return content

    def _name(self, scope: str, names: Sequence[str], content: int) -> None:
        rows = [(scope, name, content) for name in names]
        self._connection.executemany("INSERT OR IGNORE INTO name VALUES (?, ?, ?)", rows)

    def _over(self) -> bool:
        sizes = self._sizes()
        return sizes.base_bytes > self._bounds.total_bytes or sizes.sessions > self._bounds.sessions

    # Reading

    def _load(self, content: int, scope: str) -> Base | None:
        """A content whose seal fits, else None and the row is gone."""
        row = self._run(_CONTENT, content).fetchone()
        if row is None:
            return None
        _, own_scope, names, seal, body = row
        if own_scope == scope and isinstance(body, bytes) and _seal(scope, names, body) == seal:
            return Base(body, tuple(names.split("\n")))
        self._run("DELETE FROM hold WHERE content = ?", content)
        return None

    def _exchanges(self, session: int, scope: str, most: int) -> tuple[list[tuple[str, list[Base]]], int]:
        """A session's exchanges, oldest first, and their bytes; stops, over ``most``, where they are more."""
        exchanges: list[tuple[str, list[Base]]] = []
        loaded: dict[int, Base] = {}
        size = 0
        for exchange, route in self._run("SELECT id, route FROM exchange WHERE session = ? ORDER BY id", session).fetchall():
            bases = []
            for (content,) in self._run("SELECT content FROM hold WHERE exchange = ?", exchange).fetchall():
                base = loaded.get(content) or self._load(content, scope)
                if base is None:
                    continue
                size += 0 if content in loaded else len(base.content)
                loaded[content] = base
                bases.append(base)
            if bases:
                exchanges.append((route, bases))
            if size > most:
                break
        return exchanges, size

    # SQL

    def _sizes(self) -> StoreSizes:
        bases, size, sessions = self._run("SELECT bases, bytes, sessions FROM totals").fetchone()
        return StoreSizes(bases, size, sessions)

    def _run(self, statement: str, *values: object) -> sqlite3.Cursor:
        return self._connection.execute(statement, values)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._run("BEGIN IMMEDIATE")
        try:
            yield
            self._run("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    self._run("ROLLBACK")
            raise


def _seal(scope: str, names: str, body: bytes) -> bytes:
    head = f"{len(scope.encode('utf-8', 'surrogatepass'))} {scope} {names}\n\n"
    digest = hashlib.sha256(head.encode("utf-8", "surrogatepass"))
    digest.update(body)
    return digest.digest()
