"""From what a user has (a file that grew, a folder of versions, a chat) to the texts of its turns. No sockets."""

import json
import mimetypes
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CUT = 40
"""Turns a growing file is cut into where nobody says how many."""

_PARAGRAPH = re.compile(r"\n(?:[ \t]*\n)+")
_HISTORIES = ("messages", "input")


class Misuse(Exception):
    """The input cannot be replayed; the message says what was expected."""


@dataclass(frozen=True)
class Turns:
    """What will be replayed."""

    what: str
    """One sentence on how the input was read."""
    content_type: str
    texts: tuple[bytes, ...]
    """The whole text of every turn, UTF-8."""


def load(path: Path, limit: int | None = None) -> Turns:
    """Read a file or folder. ``limit``: turns to cut a growing file into, or the first turns of anything else.

    Raises `Misuse` for what is not there, holds nothing, or is not UTF-8.
    """
    try:
        if path.is_dir():
            return _folder(path, limit)
        text = _utf8(path)
    except OSError as error:
        raise Misuse(f"cannot read {path}: {error.strerror}") from error
    if not text:
        raise Misuse(f"{path} is empty; expected a text that grew, a folder of versions, or a chat as JSON")
    if path.suffix in (".jsonl", ".ndjson"):
        found = _json_lines(text)
    elif path.suffix == ".json":
        found = _chat(_parsed(text))
    else:
        found = None
    if found is None:
        texts = growing(text, limit or CUT)
        return Turns(f"a file that grows over {len(texts)} turns", _kind(path), texts)
    what, texts = found
    return Turns(what, "application/json", texts[:limit])


def growing(text: str, turns: int) -> tuple[bytes, ...]:
    """Prefixes that end where paragraphs end, or lines where there are no paragraphs; at most ``turns``, evenly spread."""
    ends = [match.end() for match in _PARAGRAPH.finditer(text)]
    if len(ends) < 2:
        ends = [match.end() for match in re.finditer("\n", text)]
    if not ends or ends[-1] != len(text):
        ends.append(len(text))
    count = min(turns, len(ends))
    return tuple(text[: ends[(number + 1) * len(ends) // count - 1]].encode() for number in range(count))


def natural_order(path: Path) -> list[tuple[int, int, str]]:
    """A key under which ``v2`` comes before ``v10``."""
    parts = re.split(r"(\d+)", path.name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part.lower()) for part in parts if part]


def _folder(path: Path, limit: int | None) -> Turns:
    files = [entry for entry in path.iterdir() if entry.is_file() and not entry.name.startswith(".")]
    if not files:
        raise Misuse(f"{path} holds no files; expected one file for each version")
    files.sort(key=natural_order)
    chosen = files[:limit]
    what = f"a folder of {len(chosen)} versions, {chosen[0].name} to {chosen[-1].name}"
    return Turns(what, _kind(chosen[0]), tuple(_utf8(entry).encode() for entry in chosen))


def _utf8(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise Misuse(f"{path} is not UTF-8 text (byte {error.start}); packs and deltas are for text") from error


def _kind(path: Path) -> str:
    guessed = mimetypes.guess_type(path.name)[0] or "text/plain"
    return guessed if guessed == "application/json" else f"{guessed}; charset=utf-8"


def _parsed(text: str) -> object:
    try:
        parsed: object = json.loads(text)
    except ValueError:
        return None
    return parsed


def _is_message(value: object) -> bool:
    return isinstance(value, dict) and ("role" in value or "type" in value)


def _chat(document: object) -> tuple[str, tuple[bytes, ...]] | None:
    """A chat request (or a bare list of messages) as the histories its client sent; None for JSON of another kind."""
    if isinstance(document, list):
        document = {"messages": document}
    if not isinstance(document, dict):
        return None
    for name in _HISTORIES:
        messages = document.get(name)
        if isinstance(messages, list) and messages and all(map(_is_message, messages)):
            texts = tuple(_dumped({**document, name: messages[:end]}) for end in _ends(messages))
            return f"a conversation of {len(messages)} messages in {len(texts)} turns", texts
    return None


def _ends(messages: list[Mapping[str, Any]]) -> Iterable[int]:
    """Where requests ended: before every message of the assistant that follows one of somebody else, and at the end."""
    spoken = [message.get("role") == "assistant" or message.get("type") == "function_call" for message in messages]
    ends = [place for place in range(1, len(messages)) if spoken[place] and not spoken[place - 1]]
    return ends if ends and spoken[-1] else [*ends, len(messages)]


def _json_lines(text: str) -> tuple[str, tuple[bytes, ...]] | None:
    """Messages of one chat, or whole requests, one a line; None for other JSON lines, which then grow as a file does."""
    lines = [_parsed(line) for line in text.splitlines() if line.strip()]
    if all(isinstance(line, dict) and "role" in line for line in lines):
        return _chat(lines)
    if all(isinstance(line, dict) and any(isinstance(line.get(name), list) for name in _HISTORIES) for line in lines):
        return f"{len(lines)} chat requests, one a line", tuple(_dumped(line) for line in lines)
    return None


def _dumped(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
