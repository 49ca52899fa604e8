"""``PACKHORSE_*`` variables as settings.

``PACKHORSE_LISTEN`` is ``listen``; two underscores step into a section, so ``PACKHORSE_STORE__KIND`` is ``store.kind`` and
``PACKHORSE_ROUTES__0__UPSTREAM`` is ``routes.0.upstream``. A single value is taken as it stands; a list or a section is written
as YAML (``PACKHORSE_DELTAS__LINKS='[weak]'``). An empty variable is as good as none. Any other name that begins with
``PACKHORSE_`` is an error, except :data:`RESERVED` and those that Kubernetes and Docker links set for a service named
``packhorse``.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from config.document import KeyPath, parse_document
from config.errors import ConfigError, Problem, nearest
from config.keys import ANY, OPTIONS, Option, find
from config.layers import Assignment

PREFIX = "PACKHORSE_"
RESERVED = {
    "PACKHORSE_CONFIG": "the settings file, as --config",
    "PACKHORSE_UPSTREAM": "the upstream of all routes, as --upstream",
    "PACKHORSE_CORPORA": "a folder of material for tests and benchmarks; nothing to the gateway",
    "PACKHORSE_VECTORS": "a folder of Context Pack cases for the tests; nothing to the gateway",
    "PACKHORSE_NO_SKIPS": "makes a skipped test a failed one; nothing to the gateway",
}
"""Names that are not keys of the settings, and what they mean."""

_SERVICE = re.compile(r"PACKHORSE(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|NAME|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)\Z")
_SWITCHES = {"yes": True, "true": True, "no": False, "false": False}


def environment_assignments(environ: Mapping[str, str], problems: list[Problem]) -> list[Assignment]:
    """The settings that the environment makes, sections before what is in them; unknown names go to ``problems``."""
    found: list[Assignment] = []
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in RESERVED or environ[name] == "":
            continue
        path = _path(name.removeprefix(PREFIX))
        option = find(path)
        if option is None:
            if not _is_service(name, environ[name]):
                problems.append(Problem(name, "is not a setting", nearest=_nearest(name), place="environment"))
            continue
        try:
            found.append(Assignment(path, _value(environ[name], option), f"environment {name}"))
        except ConfigError as error:
            problems.extend(Problem(name, problem.fault, place="environment") for problem in error.problems)
    return found


def variable(option: Option) -> str:
    """The variable that sets an option; the first item of a list stands for all."""
    return PREFIX + "__".join("0" if part == ANY else part.upper() for part in option.path)


def _path(name: str) -> KeyPath:
    parts = name.lower().split("__")
    return tuple(int(part) if part.isascii() and part.isdigit() and len(part) < 4 else part for part in parts)


def _is_service(name: str, value: str) -> bool:
    return bool(_SERVICE.match(name)) and (not name.endswith("_PORT") or "://" in value or name.endswith("SERVICE_PORT"))


def _value(text: str, option: Option) -> Any:
    if option.shape.listed or option.shape.section is not None:
        return parse_document(text, "environment").values
    if option.shape.choices:
        return _SWITCHES.get(text.lower(), text)
    return text


def _nearest(name: str) -> str | None:
    found = nearest(name.removeprefix(PREFIX), (known.removeprefix(PREFIX).lower() for known in _known_names()))
    return PREFIX + found.upper() if found else None


def _known_names() -> Iterator[str]:
    yield from RESERVED
    for option in OPTIONS:
        yield variable(option)
