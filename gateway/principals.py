"""Principals as keyed hashes (first cut; the key file beside the store follows)."""

import hashlib
import secrets

from config.schema import Store


class Principals:
    """Turns credentials into names."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, kind: str, secret: str) -> str:
        """A keyed hash, hex."""
        text = f"{kind}\n{secret}".encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text, key=self._key, digest_size=16).hexdigest()


def load_principals(store: Store) -> Principals:
    """With a key of this process."""
    return Principals(secrets.token_bytes(32))
