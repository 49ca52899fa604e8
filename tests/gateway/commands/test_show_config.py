from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from config.loader import load
from gateway.commands import show_config

PROFILES = sorted((Path(__file__).parents[3] / "config").glob("*.yaml"))
Command = Callable[..., tuple[int, str, str]]

TEXT = """\
routes:
  - {name: "on", match: /v1, upstream: "http://u:9/x", host: "$${H}: #x"}
admin: {listen: 0.0.0.0:81, token: sk-secret-of-the-admin}
access: {keys: [{name: a, key: sk-secret-of-a-caller}]}
deltas:
  wait: 250ms
  links: []
"""


def test_each_setting_says_where_it_was_given(command: Command, settings_file: Callable[[str], Path]) -> None:
    file = settings_file(TEXT)
    code, out, _ = command(show_config, "--config", file, PACKHORSE_SESSIONS__MAX="7")
    assert code == 0
    lines = {" ".join(line.split()) for line in out.splitlines()}
    assert lines >= {
        "listen: 127.0.0.1:8080 # default",
        f"- name: 'on' # {file}:2",
        f"upstream: http://u:9/x # {file}:2",
        f"wait: 250ms # {file}:6",
        f"links: [] # {file}:7",
        "min_bytes: 256 # default",
        "max: 7 # environment PACKHORSE_SESSIONS__MAX",
    }


def test_secrets_are_hidden(command: Command, settings_file: Callable[[str], Path]) -> None:
    file = settings_file(TEXT)
    for options in ([], ["--json"]):
        _, out, _ = command(show_config, "--config", file, *options)
        assert "sk-secret" not in out
        assert out.count("(hidden)") == 2


@pytest.mark.parametrize("profile", [*PROFILES, None], ids=lambda file: file.name if file else "no secrets")
def test_what_is_shown_is_a_settings_file(
    profile: Path | None, command: Command, settings_file: Callable[[str], Path], tmp_path: Path
) -> None:
    without = "".join(line for line in TEXT.splitlines(keepends=True) if "secret" not in line)
    file = profile or settings_file(without)
    _, out, _ = command(show_config, "--config", file)
    shown = tmp_path / "shown.yaml"
    shown.write_text(out, encoding="utf-8")
    assert load(shown, environ={}, overrides={}) == load(file, environ={}, overrides={})


def test_json_has_plain_numbers_and_places(command: Command) -> None:
    code, out, _ = command(show_config, "--upstream", "http://u", "--json")
    shown = orjson.loads(out)
    assert code == 0
    assert shown["settings"]["deltas"]["max_bytes"] == 16 * 2**20
    assert shown["settings"]["admin"]["token"] is None
    assert shown["places"]["deltas.max_bytes"] == "default"
    assert shown["places"]["routes.0.upstream"] == "command line --upstream"


def test_the_command_line_is_shown_as_such(command: Command) -> None:
    _, out, _ = command(show_config, "--upstream", "http://u", "--listen", "127.0.0.1:1", "--admin-listen", "off")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "listen: 127.0.0.1:1 # command line" in lines
    assert "listen: 'off' # command line" in lines


def test_settings_that_cannot_be_used(command: Command) -> None:
    assert command(show_config) == (2, "", "routes: expected --upstream URL, or --config FILE with routes\n")


def test_the_file_may_be_named_by_the_environment(command: Command, settings_file: Callable[[str], Path]) -> None:
    code, out, _ = command(show_config, PACKHORSE_CONFIG=str(settings_file(TEXT)))
    assert code == 0
    assert "250ms" in out
