"""What is wrong with a disk, in words for a person. No path, no content: what SQLite says has neither."""

import errno
import sqlite3

from gateway.stores.sqlite_file import Foreign, code_of

_DAMAGED = "the store's file is damaged"
_BY_CODE = {
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CONSTRAINT: _DAMAGED,
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "the store's file cannot be written",
    sqlite3.SQLITE_PERM: "the store's file cannot be written",
    sqlite3.SQLITE_CANTOPEN: "the store's file cannot be opened",
    sqlite3.SQLITE_BUSY: "another process keeps the store's file locked",
    sqlite3.SQLITE_LOCKED: "another process keeps the store's file locked",
}
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def in_words(error: BaseException) -> str:
    """A clause such as ``the disk is full``."""
    if isinstance(error, Foreign):
        return f"the store's file is not touched, because {error}"
    if isinstance(error, sqlite3.Error):
        name = getattr(error, "sqlite_errorname", "SQLite")
        return _BY_CODE.get(code_of(error), f"the disk fails or is full ({name})")
    if isinstance(error, OSError):
        if error.errno in _FULL:
            return _BY_CODE[sqlite3.SQLITE_FULL]
        return f"the store's file cannot be used, {(error.strerror or str(error)).lower()}"
    return _DAMAGED
