"""What every Settings class shares: frozen, no unknown keys, and values with units.

A size is bytes: ``262144``, ``256KiB``, ``16MiB``, ``1.5MB``. A time is seconds: ``0.5``, ``500ms``, ``2h``. YAML reads bare
``on`` and ``off`` as booleans, so a choice that has those words takes both spellings (:func:`switch_words`).
"""

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

_SIZES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_TIMES = {"": 1.0, "s": 1.0, "ms": 0.001, "us": 1e-6, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*\Z")


def _quantity(value: Any, units: dict[str, Any], example: str) -> Any:
    if not isinstance(value, str):
        return value
    match = _QUANTITY.match(value)
    if match is None or match[2].lower() not in units:
        raise ValueError(f"expected {example}, got {value!r}")
    return float(match[1]) * units[match[2].lower()]


def _size(value: Any) -> Any:
    number = _quantity(value, _SIZES, "a size such as 256KiB, 16MiB or plain bytes")
    if isinstance(number, float):
        if not 0 <= number < 2**63 or number != int(number):
            raise ValueError(f"expected a whole number of bytes such as 256KiB, 16MiB or 4096, got {value!r}")
        return int(number)
    return number


def _time(value: Any) -> Any:
    return _quantity(value, _TIMES, "a time such as 500ms, 30s, 2h or plain seconds")


Size = Annotated[int, BeforeValidator(_size), Field(ge=0)]
"""Bytes."""
Seconds = Annotated[float, BeforeValidator(_time), Field(ge=0, allow_inf_nan=False)]
"""Seconds."""


def _words(value: Any) -> Any:
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


switch_words = BeforeValidator(_words)
"""For ``Literal["off", ...]``: takes YAML's ``off``/``on`` booleans as the words they were written as."""


class Settings(BaseModel):
    """A frozen section of the settings; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True)
