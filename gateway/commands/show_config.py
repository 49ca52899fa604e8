"""``packhorse show-config``: the settings in force, and beside each where it was given. Secrets are hidden.

What it prints as YAML is itself a settings file (secrets aside). ``--json`` prints ``settings`` and ``places`` by dotted key.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Any

import orjson
import yaml
from pydantic import BaseModel

from config.document import KeyPath
from config.errors import HIDDEN, ConfigError, dotted
from config.keys import Option, fields, find, leaves
from config.loader import Loaded
from config.words import written
from gateway.commands.settings import add_settings_arguments, read_settings, report

_COMMENT_AT = 56
_INDENT = "  "


def add_arguments(parser: ArgumentParser) -> None:
    """The command's arguments."""
    add_settings_arguments(parser)
    parser.add_argument("--json", action="store_true", help="JSON: settings, and places by key")


def run(args: Namespace) -> int:
    """Print, and answer the exit code: 2 where the settings cannot be used."""
    try:
        loaded = read_settings(args)
    except ConfigError as error:
        return report(error)
    sys.stdout.write(as_json(loaded) if args.json else as_yaml(loaded))
    return 0


def as_yaml(loaded: Loaded) -> str:
    """The settings as a file, one line a key, with a comment each: a place, or ``default``."""
    return "".join(_lines(loaded.configuration, (), loaded))


def as_json(loaded: Loaded) -> str:
    """``{"settings": {...}, "places": {"listen": "default", ...}}``, sizes in bytes and times in seconds."""
    settings = loaded.configuration.model_dump(mode="json")
    places: dict[str, str] = {}
    for path, _ in leaves(loaded.configuration):
        option = find(path)
        places[dotted(path)] = loaded.place(path) or "default"
        if option is not None and option.secret:
            _hide(settings, path)
    return orjson.dumps({"settings": settings, "places": places}, option=orjson.OPT_INDENT_2).decode() + "\n"


def _hide(settings: Any, path: KeyPath) -> None:
    for part in path[:-1]:
        settings = settings[part]
    if settings[path[-1]] is not None:
        settings[path[-1]] = HIDDEN


def _lines(section: BaseModel, prefix: KeyPath, loaded: Loaded) -> Iterator[str]:
    indent = _INDENT * len(prefix)
    for name, value in fields(section).items():
        path = (*prefix, name)
        option = find(path)
        if option is None:
            continue
        if isinstance(value, BaseModel):
            yield f"{indent}{name}:\n"
            yield from _lines(value, path, loaded)
        elif option.shape.section is not None and value:
            yield f"{indent}{name}:\n"
            for index, item in enumerate(value):
                yield from _item(item, (*path, index), loaded)
        else:
            yield _with_place(f"{indent}{name}: {_value(value, option)}", loaded.place(path))


def _item(item: BaseModel, path: KeyPath, loaded: Loaded) -> Iterator[str]:
    """The lines of a list's item: its first begins with the dash."""
    dash = _INDENT * (len(path) - 1) + "- "
    for number, line in enumerate(_lines(item, path, loaded)):
        yield line if number else dash + line[len(dash) :]


def _value(value: Any, option: Option) -> str:
    if option.secret and value is not None:
        return _scalar(HIDDEN)
    if value is None:
        return "null"
    if isinstance(value, tuple | list):
        return f"[{', '.join(_scalar(written(item, option.shape), listed=True) for item in value)}]"
    text = written(value, option.shape)
    return text if isinstance(value, bool | int | float) else _scalar(text)


def _scalar(text: str, *, listed: bool = False) -> str:
    """One text, quoted only where YAML would read it as something else; ``${`` is written so that it stays."""
    value: str | list[str] = [text.replace("${", "$${")] if listed else text.replace("${", "$${")
    dumped: str = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True)
    return dumped.strip()[1:-1] if listed else dumped.removesuffix("...\n").strip()


def _with_place(line: str, place: str | None) -> str:
    return f"{line:<{_COMMENT_AT}} # {place or 'default'}\n"
