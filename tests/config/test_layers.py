from typing import Any

import pytest

from config.layers import Assignment, Layers, paths_of


@pytest.mark.parametrize(
    ("values", "path", "after"),
    [
        ({}, ("a",), {"a": 1}),
        ({}, ("a", "b", "c"), {"a": {"b": {"c": 1}}}),
        ({"a": None}, ("a", "b"), {"a": {"b": 1}}),
        ({"a": {"x": 0}}, ("a", "b"), {"a": {"x": 0, "b": 1}}),
        ({"a": [0, 0]}, ("a", 1), {"a": [0, 1]}),
        ({"a": [0]}, ("a", 1), {"a": [0, 1]}),
        ({"a": [{"x": 0}]}, ("a", 0, "x"), {"a": [{"x": 1}]}),
        ({"a": [{"x": 0}]}, ("a", 1, "x"), {"a": [{"x": 0}, {"x": 1}]}),
        ({}, ("a", 0, "x"), {"a": [{"x": 1}]}),
        ({"a": {"x": 0}}, ("a",), {"a": 1}),
    ],
)
def test_a_value_is_laid_over_what_is_there(values: dict[str, Any], path: tuple[str | int, ...], after: dict[str, Any]) -> None:
    layers = Layers(values)
    layers.lay([Assignment(path, 1, "above")])
    assert layers.values == after
    assert layers.places == {path: "above"}
    assert layers.value(path) == 1


@pytest.mark.parametrize(
    ("values", "path"),
    [({"a": 5}, ("a", "b")), ({"a": []}, ("a", 1)), ({"a": {}}, ("a", 0)), ({"a": "text"}, ("a", 0)), ({"a": []}, ("a", "b"))],
)
def test_a_barred_way_is_left_to_the_schema(values: dict[str, Any], path: tuple[str | int, ...]) -> None:
    layers = Layers(values, {("a",): "file:1"})
    layers.lay([Assignment(path, 1, "above")])
    assert layers.places == {("a",): "file:1"}
    assert layers.value(("a",)) == values["a"]


def test_the_place_of_what_was_replaced_is_forgotten() -> None:
    layers = Layers({"a": [{"x": 0}]}, {("a",): "f:1", ("a", 0): "f:2", ("a", 0, "x"): "f:2", ("ab",): "f:3"})
    layers.lay([Assignment(("a",), [{"y": 1}], "above")])
    assert layers.places == {("a",): "above", ("a", 0): "above", ("a", 0, "y"): "above", ("ab",): "f:3"}
    assert layers.place(("a", 0, "z")) == "above"
    assert layers.place(("z",)) is None


def test_paths() -> None:
    assert list(paths_of({"b": [1, {"c": 2}]}, ("a",))) == [
        ("a",),
        ("a", "b"),
        ("a", "b", 0),
        ("a", "b", 1),
        ("a", "b", 1, "c"),
    ]
