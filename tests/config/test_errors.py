import pytest

from config.errors import ConfigError, Problem, dotted, nearest, shown


def test_a_problem_is_one_line() -> None:
    problem = Problem("store.knd", "is not a setting", "5", "store.kind", "f.yaml:3")
    assert str(problem) == "f.yaml:3: store.knd: is not a setting, given 5; the nearest is store.kind"
    error = ConfigError([problem, Problem("a", "is required")])
    assert str(error).splitlines() == [str(problem), "a: is required"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "nothing"),
        (True, "True"),
        ("it's", '"it\'s"'),
        ("tab\there", "'tab\\there'"),
        ("\ud800", "'\\ud800'"),
        ("x" * 200, "'" + "x" * 76 + "..."),
        ({"secret": 1}, "a mapping"),
        (["secret"], "a list"),
        (10**400, "a huge number"),
        ("https://me:pw@h/p?k=v#f", "'https://(hidden)@h/p?(hidden)'"),
        ("what? no://", "'what?(hidden) no://'"),
        ("why?", "'why?'"),
    ],
)
def test_what_was_given_is_shown_safely(value: object, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("routes", 1, "upstream"), "routes.1.upstream"),
        (("a b",), "'a b'"),
        (("a\nb", "c"), "'a\\nb'.c"),
        (("token:x",), "'token:...'"),
        (("x" * 200,), "'" + "x" * 76 + "..."),
    ],
)
def test_keys(path: tuple[str | int, ...], text: str) -> None:
    assert dotted(path) == text


def test_the_nearest_name() -> None:
    known = ["min_bytes", "max_bytes", "links"]
    assert [nearest(name, known) for name in ("min-bytes", "Links", "min", "xyzzy", "x")] == [
        "min_bytes", "links", "min_bytes", None, None,
    ]  # fmt: skip
