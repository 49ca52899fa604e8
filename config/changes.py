"""What an operator should be told of a configuration: what is not as it comes, and what a reload cannot change."""

from config.document import KeyPath
from config.errors import dotted
from config.keys import find, leaves
from config.schema import Configuration
from config.words import shown_value

RESTART_KEYS: dict[str, str] = {
    "listen": "the listener is bound once",
    "tls": "the listener is bound with its certificate",
    "admin.listen": "the operator's listener is bound once",
    "store": "the store is opened once",
    "bases.total_bytes": "the store was opened with it",
    "bases.max_bytes": "the store was opened with it",
    "bases.keep": "the store was opened with it",
    "bases.ttl": "the store was opened with it",
    "sessions.max": "the store was opened with it",
    "limits.headers": "the parsers of open connections have it",
    "limits.keep_alive": "open connections have it",
}
"""Keys (sections with all that is in them) that cannot be swapped in a running process, and why."""


def non_default(configuration: Configuration) -> list[str]:
    """``key=value`` of every option that differs from its default, secrets hidden; ``routes`` by name alone.

    Meant for the log line at start-up: an upgrade that changes a default shows as a key that appears or goes.
    """
    found = [f"routes=[{', '.join(route.name for route in configuration.routes)}]"]
    for path, value in leaves(configuration):
        option = find(path)
        if option is not None and path[0] != "routes" and value != option.default:
            found.append(f"{dotted(path)}={shown_value(value, option)}")
    return found


def changed_restart_keys(old: Configuration, new: Configuration) -> list[str]:
    """The keys that differ and need a new process; a reload that names any is refused as a whole."""
    before, after = dict(leaves(old)), dict(leaves(new))
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    return sorted({dotted(path) for path in changed if needs_restart(path)})


def needs_restart(path: KeyPath) -> bool:
    """Whether the key is one that a running process keeps."""
    key = dotted(path)
    return any(key == fixed or key.startswith(fixed + ".") for fixed in RESTART_KEYS)
