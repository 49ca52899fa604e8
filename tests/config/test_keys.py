from typing import Annotated, Literal

from annotated_types import Ge, Gt, Lt
from pydantic import Field

from config.keys import OPTIONS, find, names_at, options
from config.schema import Configuration
from config.words import alternatives, bounds, expected, written
from middleware.settings import Seconds, Settings, Size


class Inner(Settings):
    """Inside."""

    password: str = "x"
    """A secret."""
    most: Size | None = None
    """Bytes."""


class Outer(Settings):
    """Outside."""

    inner: Inner = Inner(password="y")
    """A section."""
    each: tuple[Inner, ...] = ()
    """Sections."""
    choice: Literal["a", "b", "c"] | None = None
    """One of three."""
    share: Annotated[float, Ge(0), Lt(1)] = 0.5
    """A share."""


def test_options_are_read_from_any_schema() -> None:
    assert [(o.key, o.default if o.shape.section is None else "", expected(o), o.secret) for o in options(Outer)] == [
        ("inner", "", "a mapping", False),
        ("inner.password", "y", "text", True),
        ("inner.most", None, "a size such as 256KiB, 16MiB or plain bytes", False),
        ("each", "", "a list of mappings", False),
        ("each.*.password", "x", "text", True),
        ("each.*.most", None, "a size such as 256KiB, 16MiB or plain bytes", False),
        ("choice", None, "a, b or c", False),
        ("share", 0.5, "a number from 0 to under 1", False),
    ]


def test_every_option_has_a_meaning_that_ends() -> None:
    assert [o.key for o in OPTIONS if not o.meaning.endswith(".")] == []


def test_what_the_schema_has_is_found() -> None:
    assert set(names_at(())) == set(Configuration.model_fields)
    option = find(("routes", 3, "upstream"))
    assert option is not None
    assert option.key == "routes.*.upstream"
    assert find(("routes", "upstream")) is None


def test_the_secrets_of_the_schema() -> None:
    secrets = {option.key for option in OPTIONS if option.secret}
    assert {"admin.token", "access.keys.*.key"} <= secrets
    assert "tls.key" not in secrets


def test_values_are_written_as_a_person_would() -> None:
    class Units(Settings):
        size: Size = 0
        time: Seconds = 0
        flag: bool = False

    size, time, flag = (option.shape for option in options(Units))
    assert [written(value, size) for value in (0, 1, 1000, 1024, 3 * 2**20, 2**30)] == [
        "0",
        "1",
        "1000",
        "1KiB",
        "3MiB",
        "1GiB",
    ]
    assert [written(value, time) for value in (0.0, 0.5, 1.0, 90.0, 120.0, 7200.0, 0.0001, 1 / 3)] == [
        "0", "500ms", "1s", "90s", "2m", "2h", "0.0001", "0.3333333333333333",
    ]  # fmt: skip
    for text, value in ((written(v, time), v) for v in (0.001, 0.3, 1.1, 59.0, 1 / 3, 86400.0, 0.057)):
        assert Units.model_validate({"time": text}).time == value
    assert [written(value, flag) for value in (True, False, None)] == ["true", "false", "none"]


def test_words() -> None:
    assert [alternatives(words) for words in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a or b", "a, b or c"]

    class Bounded(Settings):
        over: Annotated[int, Gt(1)] = 2
        short: Annotated[str, Field(max_length=3)] = ""

    assert [bounds(option.shape) for option in options(Bounded)] == [" of at least over 1", " of at most 3 characters"]
