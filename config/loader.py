"""From a settings file, the environment and the command line to one frozen configuration.

Read, lay over each other, validate, check across sections: everything that can fail fails here, all of it at once, and names
the key. The last word has the command line, then ``PACKHORSE_*``, then the file, then the defaults of the schema.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.changes import changed_restart_keys, non_default
from config.crosschecks import crosscheck
from config.document import KeyPath, read_document
from config.environment import environment_assignments
from config.errors import ConfigError, Problem, nearest
from config.keys import OPTIONS, find
from config.layers import Assignment, Layers
from config.placeholders import expand
from config.schema import Configuration
from config.validation import by_place, rest_of, unprintable, validate

__all__ = ["DEFAULT_ROUTES", "ConfigError", "Loaded", "changed_restart_keys", "load", "non_default", "read"]

UPSTREAM, VARIABLE = "upstream", "PACKHORSE_UPSTREAM"
"""The one override that is no key, and its variable: ``--upstream`` makes all routes."""

DEFAULT_ROUTES = (
    {"name": "chat-completions", "match": "/v1/chat/completions", "kind": "openai"},
    {"name": "completions", "match": "/v1/completions", "kind": "openai"},
    {"name": "responses", "match": "/v1/responses", "kind": "openai"},
    {"name": "messages", "match": "/v1/messages", "kind": "anthropic"},
    {"name": "rest", "match": "/", "kind": "prepare"},
)
"""The routes of a gateway that was only told its upstream: chat paths are chat routes, the rest prepare."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration and where each of its values was given (``file:line``, ``environment NAME``, ``command line``)."""

    configuration: Configuration
    places: dict[KeyPath, str]

    def place(self, path: KeyPath) -> str | None:
        """Where the value at ``path`` was given; None for a default."""
        return self.places.get(path)


def load(file: Path | None, *, environ: Mapping[str, str], overrides: Mapping[str, Any]) -> Configuration:
    """The settings in force.

    ``overrides`` are those of the command line, by dotted key (``{"listen": "127.0.0.1:0"}``); ``upstream`` makes the routes,
    in place of any others; one that is None was not given. Raises :class:`ConfigError`, and nothing else, with all problems.
    """
    return read(file, environ=environ, overrides=overrides).configuration


def read(file: Path | None, *, environ: Mapping[str, str], overrides: Mapping[str, Any]) -> Loaded:
    """As :func:`load`, with where each value was given."""
    problems: list[Problem] = []
    layers = _from_file(file, environ, problems)
    if isinstance(layers.values, dict):
        routes = _upstream_routes(environ, overrides)
        layers.lay(routes)
        layers.lay(a for a in environment_assignments(environ, problems) if not routes or a.path != routes[0].path)
        layers.lay(_command_line(overrides, problems))
        if file is None and "routes" not in layers.values:
            raise ConfigError([*problems, Problem("routes", "expected --upstream URL, or --config FILE with routes")])
    problems += unprintable(layers)
    configuration, refused = validate(layers)
    known = {problem.key for problem in problems}
    problems += [problem for problem in refused if problem.key not in known]
    failed = {problem.key.partition(".")[0] for problem in problems}
    checked = rest_of(layers, failed) if failed else configuration
    if checked is not None:
        problems += crosscheck(checked, layers.place, failed)
    if configuration is None or problems:
        raise ConfigError(sorted(problems, key=by_place))
    return Loaded(configuration, layers.places)


def _from_file(file: Path | None, environ: Mapping[str, str], problems: list[Problem]) -> Layers:
    if file is None:
        return Layers({})
    document = read_document(file)
    places = {path: f"{file}:{line}" for path, line in document.lines.items()}
    unread: list[Problem] = []
    values = expand(document.values, environ, unread)
    layers = Layers({} if values is None else values, places)
    for problem in unread:
        path = tuple(int(part) if part.isdigit() else part for part in problem.key.split("."))
        problems.append(Problem(problem.key, problem.fault, place=layers.place(path)))
    return layers


def _upstream_routes(environ: Mapping[str, str], overrides: Mapping[str, Any]) -> list[Assignment]:
    """The routes that ``--upstream`` or its variable makes: in place of any others, but to be refined by their keys."""
    given = ((overrides.get(UPSTREAM), "command line --upstream"), (environ.get(VARIABLE), f"environment {VARIABLE}"))
    for upstream, place in given:
        if upstream:
            return [Assignment(("routes",), [{**route, "upstream": upstream} for route in DEFAULT_ROUTES], place)]
    return []


def _command_line(overrides: Mapping[str, Any], problems: list[Problem]) -> list[Assignment]:
    assignments: list[Assignment] = []
    for key, value in overrides.items():
        if key == UPSTREAM or value is None:
            continue
        path: KeyPath = tuple(int(part) if part.isascii() and part.isdigit() else part for part in key.split("."))
        if find(path) is None:
            near = nearest(key, (option.key for option in OPTIONS))
            problems.append(Problem(key, "is not a setting", nearest=near, place="command line"))
        else:
            assignments.append(Assignment(path, value, "command line"))
    return assignments
