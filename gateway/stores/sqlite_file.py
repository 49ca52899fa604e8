"""The SQLite file as a file: made so that only its owner reads it, opened, judged, and moved aside when it is broken.

Theory of operation. Opening ends in one of four ways: a connection; :class:`Damaged` (the file is no database, or one whose
tables are not what we made: it may be moved aside); :class:`Foreign` (a sound database of some other program or version: it is
never touched); or an ``OSError`` or ``sqlite3.Error`` (the disk does not let us: try again later).

Opening and moving aside happen under an advisory lock on the folder, so of several processes one makes the tables, one moves
a broken file, and the others find what it left. A file is known by its inode: a process that holds a file which was moved or
deleted under it notices (:meth:`SqliteFile.in_place`) and opens the path anew. SQLite itself takes care not to delete the log
of a file that is no longer its own.

This file must never know what is in the tables.
"""

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

APPLICATION = 0x50484F52  # "PHOR", in the file's header
BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_FORMAT})
_PATIENCE = 5.0  # seconds for the folder's lock, and for the switch to WAL
_PAUSE = 0.02
BUSY_TIMEOUT = 0.5  # seconds a statement waits for another process; the disk thread tries again after that
_CORRUPT_KEPT = 3
_SETTINGS = (
    "PRAGMA secure_delete=ON",  # it holds people's text
    "PRAGMA trusted_schema=OFF",
    "PRAGMA cell_size_check=ON",
    "PRAGMA temp_store=MEMORY",  # no text in temporary files
    "PRAGMA cache_size=-2048",
    "PRAGMA journal_size_limit=0",
)


class Damaged(Exception):
    """The file is broken and of no use to anyone."""


class Foreign(Exception):
    """The file is sound but not ours to write."""


def code_of(error: sqlite3.Error) -> int:
    """SQLite's primary result code, 0 where there is none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def is_damage(error: BaseException) -> bool:
    """Whether this says that the file, not the disk or another process, is at fault."""
    return isinstance(error, Damaged) or (isinstance(error, sqlite3.Error) and code_of(error) in _DAMAGE)


@contextlib.contextmanager
def folder_lock(folder: Path, patience: float = _PATIENCE) -> Iterator[None]:
    """Hold the folder's lock among processes and threads. Raises :class:`TimeoutError` after ``patience`` seconds.

    Where the file system has no locks, goes on without.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError("another process holds the store's folder") from None
                time.sleep(_PAUSE)
            except OSError:
                break
        yield
    finally:
        os.close(descriptor)


class SqliteFile:
    """One path. Used by one thread."""

    def __init__(self, path: Path, schema: str, version: int) -> None:
        self.path = path
        self._schema = schema
        self._version = version
        self._inode = (0, 0)
        self._empty = True

    def open(self) -> sqlite3.Connection:
        """A connection to a file with our tables, made if need be. Raises as said above."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with folder_lock(self.path.parent):
            self._make_private()
            connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT, isolation_level=None)
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
        return connection

    def in_place(self) -> bool:
        """Whether the path still leads to the file that was opened."""
        with contextlib.suppress(OSError):
            status = self.path.stat()
            return (status.st_dev, status.st_ino) == self._inode
        return False

    def move_aside(self) -> Path | None:
        """Rename the file last opened, and its log, to ``<name>.corrupt-<n>``, mode 0600; the oldest such makes way.

        None where it is no longer in place (another process was faster). Raises ``OSError`` where it cannot be renamed.
        """
        with folder_lock(self.path.parent):
            if not self.in_place():
                return None
            aside = self._aside()
            for suffix in ("-wal", ""):  # the log first: it must never meet a new file of that name
                source = Path(f"{self.path}{suffix}")
                with contextlib.suppress(FileNotFoundError):
                    source.chmod(0o600)
                    source.replace(f"{aside}{suffix}")
            Path(f"{self.path}-shm").unlink(missing_ok=True)
            return aside

    def _make_private(self) -> None:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            status = os.fstat(descriptor)
            self._inode = (status.st_dev, status.st_ino)
            self._empty = status.st_size == 0
            if status.st_mode & 0o077:
                os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
        for suffix in ("-wal", "-shm"):  # made with the file's own mode; older ones may be wider
            with contextlib.suppress(FileNotFoundError):
                Path(f"{self.path}{suffix}").chmod(0o600)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        for statement in _SETTINGS:
            connection.execute(statement)
        if self._empty:
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # before anything is read or made, or never
        if not self._is_new(connection):
            self._judge(connection)
        self._switch_to_wal(connection)
        connection.execute("PRAGMA synchronous=NORMAL")
        if self._is_new(connection):
            made = f"PRAGMA application_id={APPLICATION}; PRAGMA user_version={self._version};"
            connection.executescript(f"BEGIN IMMEDIATE; {self._schema} {made} COMMIT;")

    def _is_new(self, connection: sqlite3.Connection) -> bool:
        return not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]

    def _judge(self, connection: sqlite3.Connection) -> None:
        """A file that holds tables: ours, someone else's, or damaged."""
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION:
            raise Foreign("it is a database of another program")
        if version != self._version:
            raise Foreign(f"it was made by another version of packhorse (format {version}, expected {self._version})")
        with contextlib.closing(sqlite3.connect(":memory:")) as model:
            model.executescript(self._schema)
            expected = _objects(model)
        if _objects(connection) != expected:
            raise Damaged("its tables are not the ones packhorse makes")

    def _switch_to_wal(self, connection: sqlite3.Connection) -> None:
        """The switch needs the file to itself and does not always wait for it; so wait here."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
                if mode == "wal":
                    return
                raise sqlite3.OperationalError(f"the file system does not allow a write-ahead log (mode {mode})")
            except sqlite3.OperationalError as error:
                if code_of(error) not in BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE)

    def _aside(self) -> Path:
        candidates = [Path(f"{self.path}.corrupt-{number}") for number in range(1, _CORRUPT_KEPT + 1)]
        free = next((each for each in candidates if not each.exists()), None)
        chosen = free or min(candidates, key=lambda each: each.stat().st_mtime)
        for suffix in ("", "-wal"):
            Path(f"{chosen}{suffix}").unlink(missing_ok=True)
        return chosen


def _objects(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    return set(connection.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_master"))
