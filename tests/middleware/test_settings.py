"""Units, switches, and what every section of the settings has in common."""

import contextlib
from typing import Annotated, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from middleware.settings import Seconds, Settings, Size, switch_words


class Section(Settings):
    """A section."""

    size: Size = 1
    """Bytes of it."""
    time: Seconds = 1.0
    """Seconds of it."""
    mode: Annotated[Literal["off", "on", "asked"], switch_words] = "off"
    """What it does."""


@pytest.mark.parametrize(
    ("given", "size"),
    [
        (0, 0), (4096, 4096), ("0", 0), ("4096", 4096), ("4096B", 4096), ("1KB", 1000), ("1kb", 1000), ("1KiB", 1024),
        ("16MiB", 2**24), ("16 MiB", 2**24), (" 1GiB ", 2**30), ("1.5MB", 1_500_000), ("0.5KiB", 512), ("2gib", 2**31),
        ("1.5 KiB", 1536),
    ],
)  # fmt: skip
def test_sizes(given: object, size: int) -> None:
    assert Section.model_validate({"size": given}).size == size


@pytest.mark.parametrize(
    "given",
    [
        -1,
        "-1",
        "",
        " ",
        "MiB",
        "1 TiB",
        "1M",
        "1.5",
        "0.3B",
        "1,5MB",
        "1e3",
        "1_000",
        "16MiBs",
        "1" * 30,
        1.5,
        None,
        [],
        "inf",
    ],
)
def test_what_is_no_size(given: object) -> None:
    with pytest.raises(ValidationError) as refused:
        Section.model_validate({"size": given})
    assert refused.value.errors()[0]["loc"] == ("size",)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (0, 0), (0.5, 0.5), (30, 30), ("30", 30), ("0.5", 0.5), ("500ms", 0.5), ("500 ms", 0.5), ("250us", 0.00025),
        ("30s", 30), ("2m", 120), ("2min", 120), ("2h", 7200), ("1.5h", 5400), ("1d", 86400), ("1D", 86400),
    ],
)  # fmt: skip
def test_times(given: object, seconds: float) -> None:
    assert Section.model_validate({"time": given}).time == pytest.approx(seconds)


@pytest.mark.parametrize(
    "given", [-1, "-1s", "", "s", "1w", "1 month", "1:30", "nan", "inf", float("nan"), float("inf"), None, []]
)
def test_what_is_no_time(given: object) -> None:
    with pytest.raises(ValidationError) as refused:
        Section.model_validate({"time": given})
    assert refused.value.errors()[0]["loc"] == ("time",)


@settings(deadline=None)
@given(st.text())
def test_any_text_is_a_quantity_or_refused_as_one(text: str) -> None:
    for key in ("size", "time"):
        with contextlib.suppress(ValidationError):
            assert getattr(Section.model_validate({key: text}), key) >= 0


@pytest.mark.parametrize(("given", "word"), [(True, "on"), (False, "off"), ("on", "on"), ("off", "off"), ("asked", "asked")])
def test_a_switch_takes_what_yaml_makes_of_its_words(given: object, word: str) -> None:
    assert Section.model_validate({"mode": given}).mode == word


@pytest.mark.parametrize("given", ["yes", "ON", 1, 0, None, "", "true"])
def test_a_switch_takes_nothing_else(given: object) -> None:
    with pytest.raises(ValidationError):
        Section.model_validate({"mode": given})


def test_a_section_is_frozen_and_takes_no_key_it_does_not_know() -> None:
    section = Section()
    with pytest.raises(ValidationError):
        section.size = 5  # type: ignore[misc]
    with pytest.raises(ValidationError, match="sise"):
        Section.model_validate({"sise": 5})


def test_defaults_are_validated_like_anything_else() -> None:
    class Wrong(Settings):
        """A section whose default cannot be."""

        size: Size = -1
        """Bytes of it."""

    with pytest.raises(ValidationError):
        Wrong()


def test_the_docstring_of_a_field_is_its_description() -> None:
    assert Section.model_fields["size"].description == "Bytes of it."
