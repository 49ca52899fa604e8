from collections.abc import Callable
from pathlib import Path

import pytest

from config.keys import OPTIONS, leaves
from config.loader import DEFAULT_ROUTES, ConfigError, load, read

Write = Callable[[str], Path]
ROUTES = "routes: [{name: all, upstream: http://u}]\n"


@pytest.mark.parametrize(
    ("file", "environ", "overrides", "listen", "place"),
    [
        ("", {}, {}, "127.0.0.1:8080", None),
        ("listen: f:1\n", {}, {}, "f:1", "packhorse.yaml:2"),
        ("listen: f:1\n", {"PACKHORSE_LISTEN": "e:1"}, {}, "e:1", "environment PACKHORSE_LISTEN"),
        ("listen: f:1\n", {"PACKHORSE_LISTEN": "e:1"}, {"listen": "c:1"}, "c:1", "command line"),
        ("listen: f:1\n", {"PACKHORSE_LISTEN": "e:1"}, {"listen": None}, "e:1", "environment PACKHORSE_LISTEN"),
        ("listen: ${L}\n", {"L": "x:1"}, {}, "x:1", "packhorse.yaml:2"),
    ],
)
def test_the_last_word(
    file: str, environ: dict[str, str], overrides: dict[str, str], listen: str, place: str | None, settings_file: Write
) -> None:
    loaded = read(settings_file(ROUTES + file), environ=environ, overrides=overrides)
    assert loaded.configuration.listen == listen
    found = loaded.place(("listen",))
    assert (Path(found).name if found and place and "yaml" in place else found) == place


def test_sections_are_merged_and_lists_replaced(settings_file: Write) -> None:
    file = settings_file(ROUTES + "deltas: {links: [normal], min_bytes: 1}\n")
    environ = {"PACKHORSE_DELTAS__LINKS": "[weak]", "PACKHORSE_DELTAS__WAIT": "1s", "PACKHORSE_ROUTES__0__KIND": "plain"}
    loaded = load(file, environ=environ, overrides={"deltas.max_bytes": "1KiB"})
    assert loaded.deltas.model_dump() | {} == {
        "links": ("weak",), "min_bytes": 1, "max_bytes": 1024, "wait": 1.0,
    }  # fmt: skip
    assert [(route.name, route.kind) for route in loaded.routes] == [("all", "plain")]


@pytest.mark.parametrize(("environ", "overrides"), [({}, {"upstream": "http://u"}), ({"PACKHORSE_UPSTREAM": "http://u"}, {})])
def test_without_a_file_chat_paths_are_chat_routes(environ: dict[str, str], overrides: dict[str, str]) -> None:
    loaded = load(None, environ=environ, overrides=overrides)
    assert {(route.match, route.kind) for route in loaded.routes} == {
        ("/v1/chat/completions", "openai"), ("/v1/completions", "openai"), ("/v1/responses", "openai"),
        ("/v1/messages", "anthropic"), ("/", "prepare"),
    }  # fmt: skip
    assert {route.upstream for route in loaded.routes} == {"http://u"}
    assert loaded.store.kind == "memory"


def test_upstream_replaces_the_routes_of_a_file(settings_file: Write) -> None:
    file = settings_file(ROUTES + "drain: 1s\n")
    loaded = load(file, environ={}, overrides={"upstream": "http://other"})
    assert len(loaded.routes) == len(DEFAULT_ROUTES)
    assert loaded.drain == 1.0


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({}, "routes: expected --upstream URL, or --config FILE with routes"),
        ({"upstream": ""}, "routes: expected --upstream URL, or --config FILE with routes"),
        ({"upstream": "http://u", "lisen": "x"}, "command line: lisen: is not a setting; the nearest is listen"),
        ({"upstream": "u"}, "command line --upstream: routes.0.upstream: expected http://host[:port][/path], https://... or "
                            "unix:/path/to/socket, given 'u'"),
    ],
)  # fmt: skip
def test_command_lines_that_are_wrong(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, environ={}, overrides=overrides)
    assert message in str(caught.value).splitlines()


@pytest.mark.parametrize("word", ["on", "On", "'on'", "yes", "true"])
def test_switches_take_every_spelling(word: str, settings_file: Write) -> None:
    text = f"routes: [{{name: all, upstream: http://u, strip_prefix: {word}}}]\nlog: {{access: {word}}}\n"
    loaded = load(settings_file(text), environ={}, overrides={})
    assert loaded.routes[0].strip_prefix is True
    assert loaded.log.access == "on"


def test_off_is_a_word_where_text_is_meant(settings_file: Write) -> None:
    text = "routes: [{name: all, upstream: http://u, forwarded: off}]\nadmin: {listen: off}\nforwarded: no\n"
    loaded = load(settings_file(text), environ={}, overrides={})
    assert (loaded.admin.listen, loaded.forwarded, loaded.routes[0].forwarded) == ("off", "off", "off")


def test_every_default_is_known_to_the_list_of_options() -> None:
    loaded = load(None, environ={}, overrides={"upstream": "http://u"})
    values = {path: value for path, value in leaves(loaded) if path[0] != "routes"}
    for option in OPTIONS:
        if option.path in values and option.shape.section is None:
            assert values[option.path] == option.default, option.key


def test_the_command_lines_upstream_outdoes_the_environments_routes_but_is_refined_by_it() -> None:
    environ = {
        "PACKHORSE_ROUTES": "[{name: x, upstream: http://x}]",
        "PACKHORSE_UPSTREAM": "http://x",
        "PACKHORSE_ROUTES__0__LINK": "weak",
    }
    routes = load(None, environ=environ, overrides={"upstream": "http://u"}).routes
    assert len(routes) == len(DEFAULT_ROUTES)
    assert {route.upstream for route in routes} == {"http://u"}
    assert routes[0].link == "weak"
