import pytest

from config.environment import environment_assignments, variable
from config.errors import Problem
from config.keys import OPTIONS, find
from config.loader import ConfigError, load

UP = {"upstream": "http://u"}


@pytest.mark.parametrize(
    ("name", "text", "key", "value"),
    [
        ("PACKHORSE_LISTEN", "[::1]:0", "listen", "[::1]:0"),
        ("PACKHORSE_STORE__KIND", "sqlite", "store.kind", "sqlite"),
        ("PACKHORSE_SESSIONS__MAX", "7", "sessions.max", 7),
        ("PACKHORSE_DELTAS__MAX_BYTES", "1KiB", "deltas.max_bytes", 1024),
        ("PACKHORSE_GZIP_COMPARISON__CPU_SHARE", "0.5", "gzip_comparison.cpu_share", 0.5),
        ("PACKHORSE_DELTAS__LINKS", "[weak]", "deltas.links", ("weak",)),
        ("PACKHORSE_LOG__ACCESS", "off", "log.access", "off"),
        ("PACKHORSE_LOG__ACCESS", "No", "log.access", "off"),
        ("PACKHORSE_LOG__ACCESS", "false", "log.access", "off"),
        ("PACKHORSE_FORWARDED", "no", "forwarded", "off"),
        ("PACKHORSE_ADMIN__TOKEN", "1234567890", "admin.token", "1234567890"),
        ("PACKHORSE_ADMIN__LISTEN", "off", "admin.listen", "off"),
        ("PACKHORSE_ROUTES__4__KIND", "plain", "routes.4.kind", "plain"),
        ("PACKHORSE_ROUTES__4__STRIP_PREFIX", "yes", "routes.4.strip_prefix", True),
        ("PACKHORSE_TRUSTED_PROXIES", "[10.0.0.0/8, '::1']", "trusted_proxies", ("10.0.0.0/8", "::1")),
    ],
)
def test_variables_set_options(name: str, text: str, key: str, value: object) -> None:
    found: object = load(None, environ={name: text}, overrides=UP)
    for part in key.split("."):
        found = found[int(part)] if isinstance(found, tuple) else getattr(found, part)
    assert found == value


def test_a_section_as_yaml_is_refined_by_its_keys() -> None:
    environ = {"PACKHORSE_STORE__PATH": "b", "PACKHORSE_STORE": "{kind: sqlite, path: a}"}
    store = load(None, environ=environ, overrides=UP).store
    assert (store.kind, str(store.path)) == ("sqlite", "b")


def test_an_empty_variable_is_as_good_as_none() -> None:
    assert load(None, environ={"PACKHORSE_LISTEN": "", "PACKHORSE_NONSENSE": ""}, overrides=UP).listen == "127.0.0.1:8080"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("PACKHORSE_STORE_KIND", "x",
         "environment: PACKHORSE_STORE_KIND: is not a setting; the nearest is PACKHORSE_STORE__KIND"),
        ("PACKHORSE_LISTN", "x", "environment: PACKHORSE_LISTN: is not a setting; the nearest is PACKHORSE_LISTEN"),
        ("PACKHORSE_UPSTRAEM", "x", "environment: PACKHORSE_UPSTRAEM: is not a setting; the nearest is PACKHORSE_UPSTREAM"),
        ("PACKHORSE_XYZZY", "x", "environment: PACKHORSE_XYZZY: is not a setting"),
        ("PACKHORSE_PORT", "8080", "environment: PACKHORSE_PORT: is not a setting"),
        ("PACKHORSE_DELTAS__LINKS", "[weak",
         "environment: PACKHORSE_DELTAS__LINKS: not YAML: expected ',' or ']', but got '<stream end>'"),
        ("PACKHORSE_DELTAS__LINKS", "weak", "environment PACKHORSE_DELTAS__LINKS: deltas.links: "
         "expected a list of weak, metered or normal, given 'weak'"),
        ("PACKHORSE_SESSIONS__MAX", "0", "environment PACKHORSE_SESSIONS__MAX: sessions.max: "
         "expected a whole number of at least 1, given '0'"),
        ("PACKHORSE_LISTEN", "a\udcffb:1",
         "environment PACKHORSE_LISTEN: listen: expected text without control characters"),
        ("PACKHORSE_ADMIN__TOKEN", "[sk-secret\x00",
         "environment PACKHORSE_ADMIN__TOKEN: admin.token: expected text without control characters"),
    ],
)  # fmt: skip
def test_variables_that_are_wrong(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, environ={name: text}, overrides=UP)
    assert str(caught.value) == message


def test_what_kubernetes_sets_for_a_service_of_that_name_is_left_alone() -> None:
    environ = {
        "PACKHORSE_SERVICE_HOST": "10.0.0.1", "PACKHORSE_SERVICE_PORT": "8080", "PACKHORSE_SERVICE_PORT_HTTP": "8080",
        "PACKHORSE_PORT": "tcp://10.0.0.1:8080", "PACKHORSE_PORT_8080_TCP": "tcp://10.0.0.1:8080",
        "PACKHORSE_PORT_8080_TCP_ADDR": "10.0.0.1", "PACKHORSE_PORT_8080_TCP_PROTO": "tcp",
        "PACKHORSE_ADMIN_SERVICE_HOST": "10.0.0.2", "PACKHORSE_ADMIN_PORT": "tcp://10.0.0.2:8081",
        "PACKHORSE_CONFIG": "/etc/packhorse.yaml", "HOME": "/root",
    }  # fmt: skip
    problems: list[Problem] = []
    assert environment_assignments(environ, problems) == []
    assert problems == []


def test_every_option_has_a_variable_that_finds_it() -> None:
    for option in OPTIONS:
        name = variable(option)
        parts = [int(part) if part.isdigit() else part for part in name.removeprefix("PACKHORSE_").lower().split("__")]
        assert find(parts) is option
