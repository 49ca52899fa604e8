import pytest

from config.errors import Problem
from config.placeholders import expand

ENVIRON = {"HOST": "h", "EMPTY": "", "NESTED": "${HOST}"}


@pytest.mark.parametrize(
    ("value", "expanded"),
    [
        ("http://${HOST}/x", "http://h/x"),
        ("${HOST}${HOST}", "hh"),
        ("${MISSING:-d}", "d"),
        ("${MISSING:-http://a:80/?x}", "http://a:80/?x"),
        ("${MISSING:-}", ""),
        ("${EMPTY}", ""),
        ("${EMPTY:-d}", "d"),
        ("${HOST:-d}", "h"),
        ("${NESTED}", "${HOST}"),
        ("$${HOST}", "${HOST}"),
        ("$HOST $ {HOST}", "$HOST $ {HOST}"),
        (["${HOST}", {"k": "${HOST}"}], ["h", {"k": "h"}]),
        (5, 5),
        (None, None),
    ],
)
def test_what_is_read(value: object, expanded: object) -> None:
    problems: list[Problem] = []
    assert expand(value, ENVIRON, problems) == expanded
    assert problems == []


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [{"b": "${MISSING}"}]}, "a.0.b: the environment has no MISSING"),
        ({"a": "${}"}, "a: expected ${NAME} or ${NAME:-default}; a literal ${ is written $${"),
        ({"a": "${HOST"}, "a: expected ${NAME} or ${NAME:-default}; a literal ${ is written $${"),
        ({"a": "${HOST-x}"}, "a: expected ${NAME} or ${NAME:-default}; a literal ${ is written $${"),
    ],
)
def test_what_cannot_be_read_names_key_and_variable(value: object, message: str) -> None:
    problems: list[Problem] = []
    expand(value, ENVIRON, problems)
    assert [str(problem) for problem in problems] == [message]
