"""From plain values to the schema, every refusal in our words."""

import re
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from config.document import KeyPath
from config.errors import HIDDEN, Problem, dotted, nearest, shown
from config.keys import OPTIONS, Option, find, general, names_at, within
from config.layers import Layers
from config.schema import Configuration
from config.words import expected

_KEY_FIRST = re.compile(r"([a-z_]+(?:\.[a-z0-9_]+)*): (.*)\Z", re.DOTALL)
_HARMLESS = re.compile(r"[A-Za-z_-]{1,20}\Z")
_ECHO = re.compile(r", (?:got|given) .*\Z", re.DOTALL)


def validate(layers: Layers) -> tuple[Configuration | None, list[Problem]]:
    """The configuration, or None with all that the schema refuses."""
    if not isinstance(layers.values, dict):
        return None, [Problem("", "expected a mapping of settings", shown(layers.values))]
    try:
        return Configuration.model_validate(layers.values), []
    except ValidationError as error:
        details = error.errors(include_url=False)
        problems = [problem for detail in details if (problem := _problem(detail, layers)) is not None]
        return None, problems
    except ArithmeticError:  # pydantic passes on what a validator raises, unless it is a ValueError
        return None, [Problem("", "a number is out of range")]


def rest_of(layers: Layers, failed: set[str]) -> Configuration | None:
    """What is left without the failed sections, so that their neighbours can still be checked; None if nothing is."""
    if not isinstance(layers.values, dict):
        return None
    values = {key: value for key, value in layers.values.items() if key not in failed}
    if "routes" not in values:
        values["routes"] = [{"name": "none", "upstream": "http://localhost"}]
    try:
        return Configuration.model_validate(values)
    except (ValidationError, ArithmeticError):
        return None


def unprintable(layers: Layers) -> list[Problem]:
    """Text that no setting may hold: control characters and halves of characters, as broken input leaves them."""
    return [Problem(dotted(path), "expected text without control characters", place=layers.place(path))
            for path in _bad_text(layers.values, ())]  # fmt: skip


def conceals(path: KeyPath) -> bool:
    """Whether the value at ``path`` is a secret, or stands where one belongs."""
    return any(option.secret for option in within(path)) if path else False


def by_place(problem: Problem) -> tuple[str, int]:
    """Order of problems: the file's, what has no line first."""
    name, _, line = (problem.place or "").rpartition(":")
    return (name, int(line)) if line.isdigit() else (problem.place or "", 0)


def _problem(detail: ErrorDetails, layers: Layers) -> Problem | None:
    path: KeyPath = tuple(detail["loc"])
    kind = detail["type"]
    if kind == "value_error" and not path:
        return _across(detail, layers)
    if kind == "too_short" and detail["input"]:  # an echo of the items that failed
        return None
    if kind == "extra_forbidden":
        return _unknown(path, layers)
    option, item = find(path), False
    if option is None and path and isinstance(path[-1], int):
        option, item = find(path[:-1]), True
    given = HIDDEN if conceals(path) else shown(detail["input"])
    if kind == "missing":
        meaning = f": {_plain(option.meaning)}" if option and option.meaning else ""
        return Problem(dotted(path), f"is required{meaning}", place=layers.place(path))
    return Problem(dotted(path), _fault(detail, option, item), given, place=layers.place(path))


def _unknown(path: KeyPath, layers: Layers) -> Problem:
    """A key that the schema does not have. Beside a secret, one that may be the secret itself is not named."""
    section, name = path[:-1], str(path[-1])
    near = nearest(name.partition(":")[0], names_at(section))
    key = dotted((*section, near)) if near else None
    beside = any(option.secret and option.path[:-1] == general(section) for option in OPTIONS)
    shown_path = path if not beside or _HARMLESS.match(name) else (*section, HIDDEN)
    return Problem(dotted(shown_path), "is not a setting", nearest=key, place=layers.place(path))


def _fault(detail: ErrorDetails, option: Option | None, item: bool) -> str:
    kind = detail["type"]
    if kind == "value_error" and not (option and option.secret):
        return _ECHO.sub("", str(detail.get("ctx", {}).get("error", "not valid")))
    if option is None:
        return "not valid"
    if kind == "too_short":
        return "expected at least one"
    if kind == "string_type" and isinstance(detail["input"], bool | int | float):
        return f"expected text in quotes: {_plain(option.meaning)}"
    return f"expected {expected(option, item=item)}"


def _across(detail: ErrorDetails, layers: Layers) -> Problem:
    text = str(detail.get("ctx", {}).get("error", "not valid"))
    match = _KEY_FIRST.match(text)
    if match is None:
        return Problem("", text)
    path = tuple(int(part) if part.isdigit() else part for part in match[1].split("."))
    return Problem(match[1], match[2], place=layers.place(path))


def _plain(meaning: str) -> str:
    return meaning.replace("``", "").rstrip(".")


def _bad_text(value: Any, path: KeyPath) -> list[KeyPath]:
    if isinstance(value, dict):
        return [bad for key, inner in value.items() for bad in _bad_text(inner, (*path, key))]
    if isinstance(value, list):
        return [bad for index, inner in enumerate(value) for bad in _bad_text(inner, (*path, index))]
    return [path] if isinstance(value, str) and _is_bad(value) else []


def _is_bad(text: str) -> bool:
    return any(ord(c) < 32 or ord(c) == 127 or 0xD800 <= ord(c) <= 0xDFFF for c in text)
