"""Who pays, as a name that can be stored: a keyed hash, of no use without the key.

Theory of operation. The key is 32 random bytes. For the sqlite store it lies in a file beside it, made once, mode 0600: the
hashes on disk mean the same after a restart and in every process. For the memory store it lives as long as the process. Secrets
come in, hashes go out; neither secrets nor the key are kept anywhere else, shown in a repr or logged.
"""

import contextlib
import logging
import os
import secrets
from hashlib import blake2b
from pathlib import Path

from config.schema import Store
from gateway.stores.sqlite_file import folder_lock

log = logging.getLogger("packhorse.store")

KEY_BYTES = 32
_HASH_BYTES = 16


class Principals:
    """Hashes under one key. Raises :class:`ValueError` for a key that is not 32 bytes."""

    __slots__ = ("_keyed",)

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"the key that hashes principals is {KEY_BYTES} bytes")
        self._keyed = blake2b(key=key, digest_size=_HASH_BYTES)

    def __repr__(self) -> str:
        return "<Principals>"

    def __reduce__(self) -> str:
        raise TypeError("the key of principals does not leave the process")

    def of(self, kind: str, secret: str) -> str:
        """32 lower-case hex digits, the same for the same kind and secret. Takes any text, lone surrogates too."""
        hashed = self._keyed.copy()
        label = kind.encode("utf-8", "surrogatepass")
        hashed.update(b"%d:%b" % (len(label), label))
        hashed.update(secret.encode("utf-8", "surrogatepass"))
        return hashed.hexdigest()


def load_principals(store: Store) -> Principals:
    """Principals for a store: by the key beside it, or by one that the process forgets.

    Where the key's file cannot be read or made, logs that and goes on with such a key: what the disk holds is then not found.
    """
    if store.kind == "memory":
        return Principals(secrets.token_bytes(KEY_BYTES))
    path = key_path(store.path)
    try:
        return Principals(load_or_create_key(path))
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        log.warning("the key of principals cannot be kept in %s (%s): stored bases end with this process", path, reason)
        return Principals(secrets.token_bytes(KEY_BYTES))


def key_path(store: Path) -> Path:
    """Where the key of a store's file lies: beside it."""
    return store.with_name(store.name + ".key")


def load_or_create_key(path: Path) -> bytes:
    """The key in that file; made, whole and mode 0600, if there is none. Of several processes at once, all get the same.

    A file that is not a key is replaced. Raises ``OSError``.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with folder_lock(path.parent):
        key = _read(path)
        if key is None:
            _make(path)
            key = _read(path)
    if key is None:
        raise OSError(f"{path} changes while it is read")
    return key


def _read(path: Path) -> bytes | None:
    """The key, or None where there is none; what is no key is removed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        key = os.read(descriptor, KEY_BYTES + 1)
        if os.fstat(descriptor).st_mode & 0o077:
            log.warning("%s was open to others: now only its owner reads it", path)
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
    if len(key) == KEY_BYTES:
        return key
    log.error("%s is not a key: it is made anew, and what was stored under the old one is not found", path)
    path.unlink()
    return None


def _make(path: Path) -> None:
    """Write a new key beside, then link it into place: there is never half a key, and the first one stays."""
    beside = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, secrets.token_bytes(KEY_BYTES))
        os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):
            os.link(beside, path)
    finally:
        os.close(descriptor)
        beside.unlink(missing_ok=True)
