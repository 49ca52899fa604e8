import pytest

from config.changes import RESTART_KEYS, changed_restart_keys, non_default
from config.keys import find
from config.loader import load
from config.schema import Configuration


def loaded(**overrides: object) -> Configuration:
    given = {key.replace("__", "."): value for key, value in overrides.items()}
    return load(None, environ={}, overrides={"upstream": "http://u"} | given)


def test_defaults_are_not_worth_a_word() -> None:
    assert non_default(loaded()) == ["routes=[chat-completions, completions, responses, messages, rest]"]


def test_what_is_not_as_it_comes_is_told_without_secrets() -> None:
    configuration = loaded(
        deltas__min_bytes="1KiB", drain=90, admin__token="sk-secret-of-the-admin", deltas__links=["weak"],
        access__keys=[{"name": "a", "key": "sk-secret-of-a-caller"}],
    )  # fmt: skip
    assert sorted(non_default(configuration)[1:]) == [
        "access.keys.0.key=(hidden)", "access.keys.0.name=a", "admin.token=(hidden)",
        "deltas.links=[weak]", "deltas.min_bytes=1KiB", "drain=90s",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        ({}, []),
        ({"drain": 5, "deltas__min_bytes": 5}, []),
        ({"upstream": "http://other"}, []),
        ({"listen": "127.0.0.1:9"}, ["listen"]),
        ({"admin__listen": "off"}, ["admin.listen"]),
        ({"admin__token": "x" * 20}, []),
        ({"store__kind": "sqlite", "store__memory": 5, "drain": 1}, ["store.kind", "store.memory"]),
        ({"sessions__max": 5}, ["sessions.max"]),
    ],
)
def test_what_a_reload_cannot_change(change: dict[str, object], keys: list[str]) -> None:
    assert changed_restart_keys(loaded(), loaded(**change)) == keys
    assert changed_restart_keys(loaded(**change), loaded()) == keys


def test_a_certificate_that_comes_or_goes_needs_a_restart() -> None:
    plain = loaded()
    secured = Configuration.model_validate(plain.model_dump() | {"tls": {"certificate": "a", "key": "b"}})
    assert "tls" in changed_restart_keys(plain, secured) or "tls.certificate" in changed_restart_keys(plain, secured)


def test_the_keys_that_need_a_restart_exist() -> None:
    assert [key for key in RESTART_KEYS if find(key.split(".")) is None] == []
