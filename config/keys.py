"""The settings schema as a list of options: what each key means, takes and defaults to.

Everything here is read from the schema itself, so that a new section or option is known to the environment, to error
messages, to ``show-config`` and to the reference page without being named again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from config.schema import Configuration
from middleware.settings import Seconds, Size

ANY = "*"
"""Stands for the index of a list in the path of an option."""

_SECRET_WORDS = frozenset({"token", "key", "secret", "password"})
_TUPLES = (tuple, list, set, frozenset)


@dataclass(frozen=True, slots=True)
class Shape:
    """A type of the schema without its wrapping: ``None``, ``Annotated`` and a list around it are told apart from it."""

    kind: Any
    metadata: tuple[Any, ...]
    listed: bool
    optional: bool

    @property
    def section(self) -> type[BaseModel] | None:
        """The settings class, where this is a section (or a list of them)."""
        return self.kind if isinstance(self.kind, type) and issubclass(self.kind, BaseModel) else None

    @property
    def choices(self) -> tuple[Any, ...]:
        """What a choice may be; empty for anything else."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def is_size(self) -> bool:
        """Whether the value is a number of bytes."""
        return self.metadata[:1] == get_args(Size)[1:2]

    @property
    def is_time(self) -> bool:
        """Whether the value is a number of seconds."""
        return self.metadata[:1] == get_args(Seconds)[1:2]

    @property
    def is_text(self) -> bool:
        """Whether any text is taken as it stands."""
        return self.kind in (str, Path)


@dataclass(frozen=True, slots=True)
class Option:
    """One key of the schema. ``default`` is absent (``...``) where the key must be given."""

    path: tuple[str, ...]
    shape: Shape
    meaning: str
    default: Any

    @property
    def key(self) -> str:
        """Dotted, with ``*`` for the index of a list."""
        return ".".join(self.path)

    @property
    def secret(self) -> bool:
        """Whether the value must never be shown: text whose name ends in token, key, secret or password."""
        return self.shape.kind is str and self.path[-1].rsplit("_", 1)[-1] in _SECRET_WORDS


def options(model: type[BaseModel] = Configuration) -> Iterator[Option]:
    """Every key of the schema, sections before what is in them, in the order of declaration."""
    return _walk(model, (), {})


def find(path: Sequence[str | int]) -> Option | None:
    """The option that a path with list indexes names, or None."""
    return _BY_PATH.get(general(path))


def within(path: Sequence[str | int]) -> list[Option]:
    """The option at ``path`` and every one below it."""
    found = general(path)
    return [option for option in OPTIONS if option.path[: len(found)] == found]


def names_at(path: Sequence[str | int]) -> list[str]:
    """The keys that a section at ``path`` has."""
    found = general(path)
    return [o.path[-1] for o in OPTIONS if o.path[:-1] == found and o.path[-1] != ANY]


def general(path: Sequence[str | int]) -> tuple[str, ...]:
    """The path of the option that a path with list indexes names."""
    return tuple(ANY if isinstance(part, int) else part for part in path)


def _walk(model: type[BaseModel], prefix: tuple[str, ...], defaults: dict[str, Any]) -> Iterator[Option]:
    for name, field in model.model_fields.items():
        path = (*prefix, name)
        shape = shape_of(field.annotation, tuple(field.metadata))
        default = defaults.get(name, _default(field))
        yield Option(path, shape, (field.description or "").strip(), default)
        if shape.section is not None:
            inner = (*path, ANY) if shape.listed else path
            yield from _walk(shape.section, inner, fields(default) if isinstance(default, BaseModel) else {})


def fields(section: BaseModel) -> dict[str, Any]:
    """The values of a section by name. (``dict(section)`` fails for one that has a field named ``keys``.)"""
    return {name: getattr(section, name) for name in type(section).model_fields}


def _default(field: FieldInfo) -> Any:
    return ... if field.is_required() else field.get_default(call_default_factory=True, validated_data={})


def shape_of(annotation: Any, metadata: tuple[Any, ...] = (), *, listed: bool = False, optional: bool = False) -> Shape:
    """The shape of a field's annotation. Of a union the first member that is not ``None`` counts."""
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin is Annotated:
        return shape_of(arguments[0], metadata + arguments[1:], listed=listed, optional=optional)
    if origin in (Union, UnionType):
        members = [member for member in arguments if member is not NoneType]
        optional = optional or len(members) < len(arguments)
        return shape_of(members[0], metadata, listed=listed, optional=optional)
    if origin in _TUPLES:
        return shape_of(arguments[0], (), listed=True, optional=optional)
    return Shape(annotation, metadata, listed, optional)


def leaves(configuration: BaseModel) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every value of a configuration that is no section, with its path; a list of plain values is one."""
    return _leaves(fields(configuration), ())


def _leaves(values: dict[str, Any], prefix: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    for name, value in values.items():
        path: tuple[str | int, ...] = (*prefix, name)
        option = find(path)
        if option is None or option.shape.section is None or value is None:
            yield path, value
        elif option.shape.listed:
            for index, item in enumerate(value):
                yield from _leaves(fields(item), (*path, index))
            if not value:
                yield path, value
        else:
            yield from _leaves(fields(value), path)


OPTIONS: tuple[Option, ...] = tuple(options())
"""The options of :class:`config.schema.Configuration`."""

_BY_PATH = {option.path: option for option in OPTIONS}
