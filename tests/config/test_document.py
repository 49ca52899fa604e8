from pathlib import Path

import pytest

from config.document import MAX_BYTES, parse_document, read_document
from config.errors import ConfigError


def refused(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_document(text, "f.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("# nothing\n", {}),
        ("a: on\nb: Off\nc: yes\nd: no\ne: true\n", {"a": "on", "b": "off", "c": True, "d": False, "e": True}),
        ("a: 1\nb: 1.5\nc: 16MiB\nd: null\ne: [x, 2]\n", {"a": 1, "b": 1.5, "c": "16MiB", "d": None, "e": ["x", 2]}),
        ("a: 2026-01-31\n", {"a": "2026-01-31"}),
        ("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\n", {"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 2}}),
        ("a: &a {x: 1}\nb: &b {x: 2, z: 0}\nc: {<<: [*a, *b]}\n",
         {"a": {"x": 1}, "b": {"x": 2, "z": 0}, "c": {"x": 1, "z": 0}}),
        ("a: {x: 3, <<: {x: 1}}\n", {"a": {"x": 3}}),
        ("\ufeffa: 1\n", {"a": 1}),
    ],
)  # fmt: skip
def test_values(text: str, values: object, tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(text, encoding="utf-8")
    assert read_document(file).values == values


def test_lines_of_keys_and_items() -> None:
    document = parse_document("a:\n  - b: 1\n    c:\n      - 5\n  - 2\n", "f")
    assert document.lines == {
        ("a",): 1, ("a", 0): 2, ("a", 0, "b"): 2, ("a", 0, "c"): 3, ("a", 0, "c", 0): 4, ("a", 1): 5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3: a: given twice"),
        ("a:\n  b: 1\n  b: 1\n", "f.yaml:3: a.b: given twice"),
        ("a: 1\n{}: 2\n", "f.yaml:2: expected keys that are text"),
        ("a: 1\n- b", "f.yaml:2: not YAML: expected <block end>, but found '-'"),
        ("{[x]: 1}", "f.yaml:1: expected keys that are text"),
        ("a: !!python/object:os.system x", "f.yaml:1: a: expected text, a number, a list or a mapping, without tags"),
        ("a: !secret x", "f.yaml:1: a: expected text, a number, a list or a mapping, without tags"),
        ("a: !!int x", "f.yaml:1: a: not what its tag says, or a number out of range"),
        ("a: !!bool x", "f.yaml:1: a: not what its tag says, or a number out of range"),
        ("a: " + "9" * 5000, "f.yaml:1: a: not what its tag says, or a number out of range"),
        ("a: *nobody", "f.yaml:1: not YAML: found undefined alias ..."),
        ("a: [1", "f.yaml:1: not YAML: expected ',' or ']', but got '<stream end>'"),
        ("a: 'x", "f.yaml:1: not YAML: found unexpected end of stream"),
        ("a: 1\n--- \nb: 1", "f.yaml:2: not YAML: but found another document"),
        ('a: "\\UFFFFFFFF"', "f.yaml: not YAML: an escape or number out of range"),
        ("a: \x01", "f.yaml: not YAML: a character that YAML does not allow, at position 3"),
        ("a: {<<: 5}", "f.yaml:1: a: expected a mapping, or a list of mappings, after <<"),
        ("[" * 100 + "]" * 100, "f.yaml:1: not YAML: nested deeper than 32"),
        ("a: &a [*a]", "f.yaml:1: not YAML: grows too large through its aliases"),
        ("a: &a {<<: *a}", "f.yaml:1: not YAML: grows too large through its aliases"),
    ],
)
def test_what_is_refused_and_where(text: str, message: str) -> None:
    assert refused(text) == message


def test_aliases_cannot_grow_without_bound() -> None:
    laughs = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    assert "grows too large" in refused(laughs)
    merges = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12))
    assert "grows too large" in refused(merges)


def test_a_line_with_a_secret_is_not_quoted() -> None:
    for text in (
        "token: [sk-secret-1",
        "token: *sk-secret-1",
        "token: !sk-secret-1 x",
        "token: 'sk-secret-1",
        "- sk-secret-1\nx",
    ):
        assert "sk-secret" not in refused(text)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: 1\nb: \xff\n", "expected UTF-8 text"),
        (b"#" * (MAX_BYTES + 1), "at most 1 MiB"),
    ],
)
def test_files_that_are_no_settings(content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_document(file)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"), [("missing", "no such file"), (".", "is a directory"), ("a\0b", "not a file name")]
)
def test_files_that_cannot_be_read(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_document(tmp_path / name)
    assert message in str(caught.value)
