from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.commands import check_config


def test_good_settings(command: Callable[..., tuple[int, str, str]], settings_file: Callable[[str], Path]) -> None:
    file = settings_file("routes:\n- {name: a, upstream: http://u}\n- {name: b, match: /b, upstream: http://u}\n")
    assert command(check_config, file) == (0, f"{file}: good; routes a (/), b (/b); memory store\n", "")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "routes: [{name: a, upstream: http://u}]\nstoer: {}\n",
            "packhorse.yaml:2: stoer: is not a setting; the nearest is store",
        ),
        ("routes: [{name: a, upstream: 'u:9'}]\n", "packhorse.yaml:1: routes.0.upstream: expected http://host[:port][/path]"),
        ("routes: [\n", "not YAML: "),
        ("", "routes: is required: What is behind the gateway"),
    ],
)
def test_bad_settings(
    text: str, told: str, command: Callable[..., tuple[int, str, str]], settings_file: Callable[[str], Path]
) -> None:
    code, out, err = command(check_config, settings_file(text))
    assert (code, out) == (2, "")
    assert told in err


def test_a_missing_file(command: Callable[..., tuple[int, str, str]]) -> None:
    assert command(check_config, "/no/such.yaml") == (2, "", "/no/such.yaml: cannot be read: no such file or directory\n")


def test_the_environment_counts(command: Callable[..., tuple[int, str, str]], settings_file: Callable[[str], Path]) -> None:
    file = settings_file("routes: [{name: a, upstream: http://u}]\n")
    code, _, err = command(check_config, file, PACKHORSE_DRAIN="never")
    assert code == 2
    assert err.startswith("environment PACKHORSE_DRAIN: drain: expected a time")
