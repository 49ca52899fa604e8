"""What a probe of ``packhorse doctor`` found."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "degraded", "failed"]
"""``degraded``: the gateway serves, but not all it could. ``failed``: it, or a route of it, does not."""


@dataclass(frozen=True, slots=True)
class Finding:
    """``what`` was probed, its ``state``, a ``detail``, and what to do about it (``advice``, empty when ok)."""

    what: str
    state: State
    detail: str
    advice: str = ""
