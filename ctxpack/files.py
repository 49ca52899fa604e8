"""Files as the tool reads and writes them: whole, as bytes, `-` for the standard streams."""

from __future__ import annotations

import os
import re
import sys
from typing import BinaryIO, Callable, Iterator, List, TextIO, Tuple, TypeVar, Union

from ctxpack.errors import ContextPackError

Part = TypeVar("Part")


class Misuse(Exception):
    """The command line asks for what cannot be: exit status 2."""


class Failure(Exception):
    """What was asked for went wrong: exit status 1."""


def read(path: str) -> bytes:
    """Return the bytes of a file, or of standard input for `-`. `Misuse` if there is no such file, `Failure` if it
    cannot be read."""
    try:
        if path == "-":
            return _binary(sys.stdin).read()
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise Misuse(f"{path}: {_why(error)}; give a file, or - for standard input") from error
    except ValueError as error:  # a NUL in the name
        raise Misuse(f"{path!a} is not a file name") from error
    except OSError as error:
        raise Failure(f"{path} cannot be read: {_why(error)}") from error


def read_as(path: str, parse: Callable[[bytes], Part]) -> Part:
    """Return what `parse` makes of the file; `Failure` naming the file where it refuses."""
    try:
        return parse(read(path))
    except ContextPackError as error:
        name = "standard input" if path == "-" else path
        raise Failure(f"{name} is refused, {error}.{_ADVICE.get(error.code, '')}") from error


_ADVICE = {
    "invalid_json": " Give a file made by `ctxpack pack` or `ctxpack delta`; a text is packed first.",
    "missing_field": " Check that packs and deltas are not exchanged.",
    "schema_mismatch": " Check that packs and deltas are not exchanged.",
    "not_canonical": " It was written anew by something else; send the bytes as they were made.",
    "invalid_utf8": " Content is UTF-8 text; convert it first.",
    "digest_mismatch": " It was changed or damaged; fetch it again.",
}


def write(path: str, data: bytes) -> None:
    """Write a file, or standard output for `-`. `Misuse` if its folder is missing, `Failure` if it cannot be written."""
    try:
        if path == "-":
            stream, rest = _binary(sys.stdout), memoryview(data)
            while rest:  # with PYTHONUNBUFFERED the stream is a raw one, which may take less than it is given
                rest = rest[stream.write(rest) :]
            stream.flush()
            return
        with open(path, "wb") as file:
            file.write(data)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise Misuse(f"{path}: {_why(error)}; give a file in a folder that exists, or - for standard output") from error
    except BrokenPipeError:
        raise
    except ValueError as error:
        raise Misuse(f"{path!a} is not a file name") from error
    except OSError as error:
        raise Failure(f"{path} cannot be written: {_why(error)}") from error


def turns_of(paths: List[str], turns: int) -> Iterator[bytes]:
    """Yield the text of every turn.

    A folder, or several files: each file is the whole text of one turn (of a folder in the order of names, numbers by
    value). One file: it grows to its full length in `turns` steps that end at line ends.
    """
    if len(paths) > 1:
        yield from map(read, paths)
    elif paths[0] != "-" and os.path.isdir(paths[0]):
        try:
            names = [name for name in os.listdir(paths[0]) if not name.startswith(".")]
        except OSError as error:
            raise Failure(f"{paths[0]} cannot be read: {_why(error)}") from error
        files = [os.path.join(paths[0], name) for name in sorted(names, key=_by_number)]
        files = [path for path in files if os.path.isfile(path)]
        if not files:
            raise Misuse(f"{paths[0]} holds no files; give a folder with one text a turn")
        yield from map(read, files)
    else:
        yield from grow(read(paths[0]), turns)


def grow(text: bytes, turns: int) -> Iterator[bytes]:
    """Yield `text` in at most `turns` steps of about as many lines each; the last is the whole. At least one."""
    ends = [place + 1 for place, byte in enumerate(text) if byte == 0x0A]
    if not text.endswith(b"\n"):
        ends.append(len(text))
    steps = min(turns, len(ends))
    for step in range(1, steps + 1):
        yield text[: ends[step * len(ends) // steps - 1]]


def _by_number(name: str) -> List[Tuple[int, Union[int, str]]]:
    parts = re.split(r"([0-9]+)", name)
    return [(1, int(part[:4000])) if part.isascii() and part.isdigit() else (0, part) for part in parts]


def _binary(stream: TextIO) -> BinaryIO:
    return stream.buffer


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__
