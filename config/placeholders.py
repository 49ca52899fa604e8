"""``${NAME}`` and ``${NAME:-default}`` in the text values of a settings file.

``${NAME}`` must be set; the default of ``${NAME:-default}`` also stands in for an empty variable, as in a shell, and may be
empty. ``$${`` writes a literal ``${``. What is read is text and is not looked at again.
"""

import re
from collections.abc import Mapping
from typing import Any

from config.document import KeyPath
from config.errors import Problem, dotted

_PLACEHOLDER = re.compile(r"\$\$\{|\$\{([^{}]*)\}|\$\{")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\Z", re.DOTALL)


def expand(value: Any, environ: Mapping[str, str], problems: list[Problem], path: KeyPath = ()) -> Any:
    """``value`` with every placeholder read from ``environ``; what cannot be is appended to ``problems`` with its key."""
    if isinstance(value, dict):
        return {key: expand(inner, environ, problems, (*path, key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [expand(inner, environ, problems, (*path, index)) for index, inner in enumerate(value)]
    if not isinstance(value, str) or "${" not in value:
        return value

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        name = _NAME.match(match[1] or "")
        if name is None:
            problems.append(Problem(dotted(path), "expected ${NAME} or ${NAME:-default}; a literal ${ is written $${"))
            return ""
        found = environ.get(name[1])
        if name[2] is not None:
            return found or name[2]
        if found is None:
            problems.append(Problem(dotted(path), f"the environment has no {name[1]}"))
            return ""
        return found

    return _PLACEHOLDER.sub(replace, value)
