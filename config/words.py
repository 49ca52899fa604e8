"""Types and values of the schema as a person writes them in a settings file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from annotated_types import Ge, Gt, Le, Lt

from config.errors import HIDDEN
from config.keys import Option, Shape

_TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "a file name"}
_SIZES = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_TIMES = (("h", 3600.0), ("m", 60.0), ("s", 1.0), ("ms", 0.001))


def expected(option: Option, *, item: bool = False) -> str:
    """What the option takes, after "expected". ``item``: what one item of its list takes."""
    if option.shape.section is not None:
        return "a list of mappings" if option.shape.listed and not item else "a mapping"
    one = _one(option.shape)
    return f"a list of {one}" if option.shape.listed and not item else one


def written(value: Any, shape: Shape) -> str:
    """A value as it stands in a file, with a unit where it has one; reading it gives ``value`` back."""
    if value is None:
        return "none"
    if isinstance(value, tuple | list):
        return f"[{', '.join(written(inner, shape) for inner in value)}]"
    if shape.is_size:
        return next((f"{value // unit}{name}" for name, unit in _SIZES if value and value % unit == 0), str(value))
    if shape.is_time:
        return _time(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def shown_value(value: Any, option: Option) -> str:
    """A value of an option as :func:`written`, unless it is a secret."""
    return HIDDEN if option.secret and value is not None else written(value, option.shape)


def _time(value: float) -> str:
    for name, unit in _TIMES:
        count = round(value / unit)
        if count and count * unit == value:
            return f"{count}{name}"
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)


def _one(shape: Shape) -> str:
    if shape.choices:
        return alternatives([str(choice) for choice in shape.choices])
    if shape.is_size:
        return "a size such as 256KiB, 16MiB or plain bytes"
    if shape.is_time:
        return "a time such as 500ms, 30s, 2h or plain seconds"
    return _TYPES.get(shape.kind, "a value") + bounds(shape)


def alternatives(words: Sequence[str]) -> str:
    """``a, b or c``."""
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def bounds(shape: Shape) -> str:
    """The limits of a number or text, such as `` from 1 to 64``; empty where there are none."""
    found: dict[str, Any] = {}
    for mark in shape.metadata:
        if isinstance(mark, Ge | Gt):
            found["least"] = mark.ge if isinstance(mark, Ge) else f"over {mark.gt}"
        elif isinstance(mark, Le | Lt):
            found["most"] = mark.le if isinstance(mark, Le) else f"under {mark.lt}"
        for name in ("pattern", "min_length", "max_length"):
            value = getattr(mark, name, None)
            if value is not None:
                found[name] = value
    text = ""
    if "least" in found and "most" in found:
        text = f" from {found['least']} to {found['most']}"
    elif "least" in found:
        text = f" of at least {found['least']}"
    elif "most" in found:
        text = f" of at most {found['most']}"
    if "min_length" in found:
        text += f" of at least {found['min_length']} characters"
    if "max_length" in found:
        text += f" of at most {found['max_length']} characters"
    return text + (f" that matches {found['pattern']}" if "pattern" in found else "")
