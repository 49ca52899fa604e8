"""Principals: the same name for the same secret, under a key that is made once and never shown."""

import logging
import pickle
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from config.schema import Store
from gateway.principals import Principals, key_path, load_or_create_key, load_principals

KEY = bytes(range(32))


def test_a_hash_is_stable_and_says_nothing() -> None:
    principals = Principals(KEY)
    name = principals.of("credentials", "Authorization=Bearer sk-secret")
    assert name == Principals(KEY).of("credentials", "Authorization=Bearer sk-secret")
    assert len(name) == 32
    assert set(name) <= set("0123456789abcdef")


def test_key_kind_and_secret_all_count() -> None:
    principals = Principals(KEY)
    names = [
        principals.of("a", "bc"), principals.of("ab", "c"), principals.of("a", "b"), principals.of("a", ""),
        principals.of("1:a", "b"), principals.of("", "a"), Principals(KEY[::-1]).of("a", "bc"),
    ]  # fmt: skip
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("secret", ["é", "\udcff", "\0", "x" * 100_000, "a\ud800"])
def test_any_text_is_taken(secret: str) -> None:
    assert Principals(KEY).of("kind", secret) != Principals(KEY).of("kind", secret + "?")


def test_the_key_does_not_show() -> None:
    principals = Principals(KEY)
    assert repr(principals) == "<Principals>"
    with pytest.raises(TypeError):
        pickle.dumps(principals)
    with pytest.raises(ValueError) as caught:
        Principals(b"short secret")
    assert "secret" not in str(caught.value)


def test_the_key_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "store.key"
    key = load_or_create_key(path)
    assert len(key) == 32
    assert load_or_create_key(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_key_open_to_others_is_closed_to_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "store.key"
    key = load_or_create_key(path)
    path.chmod(0o644)
    assert load_or_create_key(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key.hex() not in caplog.text


@pytest.mark.parametrize("content", [b"", b"half a key", b"x" * 33])
def test_what_is_no_key_is_replaced_and_said(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "store.key"
    path.write_bytes(content)
    key = load_or_create_key(path)
    assert load_or_create_key(path) == key
    assert len(caplog.records) == 2


def test_processes_that_start_at_once_get_the_same_key(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from gateway.principals import load_or_create_key\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "print(load_or_create_key(Path(sys.argv[1])).hex())"
    )
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "store.key")],
            cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(6)
    ]  # fmt: skip
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    assert len({worker.communicate(timeout=30)[0] for worker in workers}) == 1
    assert all(worker.returncode == 0 for worker in workers)


def test_the_sqlite_store_keeps_its_key_and_the_memory_store_forgets_it(tmp_path: Path) -> None:
    kept = Store(kind="sqlite", path=tmp_path / "bases.sqlite3")
    assert load_principals(kept).of("a", "b") == load_principals(kept).of("a", "b")
    assert key_path(kept.path) == tmp_path / "bases.sqlite3.key"
    forgotten = Store(kind="memory", path=tmp_path / "other.sqlite3")
    assert load_principals(forgotten).of("a", "b") != load_principals(forgotten).of("a", "b")
    assert list(tmp_path.iterdir()) == [tmp_path / "bases.sqlite3.key"]


def test_a_key_that_cannot_be_kept_is_one_of_the_process(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("not a folder")
    principals = load_principals(Store(kind="sqlite", path=tmp_path / "file" / "bases.sqlite3"))
    assert len(principals.of("a", "b")) == 32
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
