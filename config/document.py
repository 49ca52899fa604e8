"""A settings file as plain values, with the line of each.

Safe YAML only: text, numbers, booleans, null, lists and mappings. Refused, with the line: a key given twice, a key that is
not text, other tags, and documents that grow without bound (nesting, aliases, size). ``on`` and ``off`` stay the words they
were written as; ``yes``, ``no``, ``true`` and ``false`` are booleans. The schema takes either where it means a switch.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from config.errors import ConfigError, Problem, dotted

KeyPath = tuple[str | int, ...]
"""Where a value is: ``("routes", 1, "upstream")``."""

MAX_BYTES = 2**20
MAX_DEPTH = 32
MAX_NODES = 20_000

_TAG = "tag:yaml.org,2002:"
_MERGE = _TAG + "merge"
_SCALARS = frozenset(_TAG + name for name in ("str", "int", "float", "bool", "null"))
_QUOTED = re.compile(r"'([^']*)'")


@dataclass(slots=True)
class Document:
    """``values`` as read and ``lines``, the line of every key and list item."""

    values: Any = None
    lines: dict[KeyPath, int] = field(default_factory=dict)


def read_document(file: Path) -> Document:
    """The settings in ``file``; raises :class:`ConfigError` for what is not a readable settings document."""
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a file name"
        raise ConfigError([Problem(str(file), f"cannot be read: {reason.lower()}")]) from error
    if len(content) > MAX_BYTES:
        raise ConfigError([Problem(str(file), "expected a settings file, at most 1 MiB")])
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ConfigError([Problem("", "expected UTF-8 text", place=f"{file}:{line}")]) from error
    return parse_document(text, str(file))


def parse_document(text: str, name: str) -> Document:
    """The settings in ``text``; errors say ``name:line``."""
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None:
            return Document({})
        return _Builder(loader, name).build(root)
    except yaml.MarkedYAMLError as error:
        # The message alone: PyYAML's own text quotes the line, which may hold a secret.
        place = f"{name}:{error.problem_mark.line + 1}" if error.problem_mark else name
        fault = f"not YAML: {_QUOTED.sub(_short, error.problem or 'malformed')}"
        raise ConfigError([Problem("", fault, place=place)]) from None
    except (yaml.YAMLError, ValueError, ArithmeticError) as error:
        raise ConfigError([Problem("", f"not YAML: {_character(error)}", place=name)]) from None


def _short(quoted: re.Match[str]) -> str:
    return quoted[0] if len(quoted[1]) < 2 or quoted[1].startswith("<") else "..."


def _character(error: Exception) -> str:
    if isinstance(error, yaml.reader.ReaderError):
        return f"a character that YAML does not allow, at position {error.position}"
    return "an escape or number out of range"


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader up to its tree of nodes, with bounded depth."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        try:
            if self._depth > MAX_DEPTH:
                mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
                raise yaml.MarkedYAMLError(problem=f"nested deeper than {MAX_DEPTH}", problem_mark=mark)
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


class _Builder:
    """Turns nodes into values, noting lines; collects every problem before it raises."""

    def __init__(self, loader: _Loader, name: str) -> None:
        self._loader = loader
        self._name = name
        self._document = Document()
        self._problems: list[Problem] = []
        self._nodes = 0
        self._merging = 0

    def build(self, root: yaml.Node) -> Document:
        self._document.values = self._value(root, ())
        if self._problems:
            raise ConfigError(self._problems)
        return self._document

    def _count(self, node: yaml.Node, depth: int) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES or depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem="grows too large through its aliases", problem_mark=node.start_mark)

    def _value(self, node: yaml.Node, path: KeyPath) -> Any:
        self._count(node, len(path))
        if path:
            self._document.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        own: set[str] = set()
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                for key, value in self._merged(value_node, path).items():
                    values.setdefault(key, value)
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                self._problem(key_node, path, "expected keys that are text")
                continue
            key, inner = key_node.value, (*path, key_node.value)
            if key in own:
                self._problem(key_node, inner, "given twice")
            own.add(key)
            self._document.lines[inner] = key_node.start_mark.line + 1
            values[key] = self._value(value_node, inner)
        return values

    def _merged(self, node: yaml.Node, path: KeyPath) -> dict[str, Any]:
        """What ``<<`` takes over: a mapping, or several of which the first has the last word."""
        self._merging += 1
        self._count(node, self._merging)
        values: dict[str, Any] = {}
        for source in reversed(node.value) if isinstance(node, yaml.SequenceNode) else [node]:
            self._count(source, self._merging)
            if isinstance(source, yaml.MappingNode):
                values |= self._mapping(source, path)
            else:
                self._problem(source, path, "expected a mapping, or a list of mappings, after <<")
        self._merging -= 1
        return values

    def _scalar(self, node: yaml.Node, path: KeyPath) -> Any:
        if node.tag not in _SCALARS:
            if (
                node.tag == _TAG + "timestamp" and isinstance(node, yaml.ScalarNode) and node.style is None
            ):  # a date nobody asked for
                return node.value
            self._problem(node, path, "expected text, a number, a list or a mapping, without tags")
            return None
        if node.tag == _TAG + "bool" and node.value.lower() in ("on", "off"):
            return node.value.lower()
        try:
            return self._loader.construct_object(node)
        except (ValueError, KeyError, ArithmeticError, IndexError):
            self._problem(node, path, "not what its tag says, or a number out of range")
            return None

    def _problem(self, node: yaml.Node, path: KeyPath, fault: str) -> None:
        place = f"{self._name}:{node.start_mark.line + 1}"
        self._problems.append(Problem(dotted(path), fault, place=place))
