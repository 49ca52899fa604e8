"""The reference page is what the schema says, and every settings example of the repository loads."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from config.keys import OPTIONS
from config.loader import load
from config.reference import BEGIN, END, PAGE, main, page, tables
from config.schema import Configuration

ROOT = Path(__file__).parent.parent.parent
REQUIRED = re.compile(r"(?<!\$)\$\{(\w+)\}")
FENCED = re.compile(r"^```ya?ml\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_the_reference_page_is_what_the_schema_says() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "run make docs (python -m config.reference)"
    assert main(["--check"]) == 0


def test_every_option_is_on_the_page() -> None:
    made = tables()
    for option in OPTIONS:
        if option.shape.section is None:
            assert f"| `{option.path[-1]}` | " in made, option.key


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="no markers"):
        page("# Nothing\n")
    assert page(f"a\n{BEGIN}old{END}\nb").startswith("a\n")


def _is_settings(text: str) -> bool:
    """Whether YAML speaks of our settings: a mapping with a key of ours, and not a compose file, rule file or manifest."""
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError:
        return "routes:" in text
    foreign = {"services", "groups", "apiVersion", "scrape_configs", "rule_files", "global", "datasources", "providers"}
    return isinstance(tree, dict) and bool(tree.keys() & Configuration.model_fields.keys()) and not tree.keys() & foreign


def _examples() -> Iterator[tuple[str, str]]:
    for folder in ("config", "deploy"):
        for file in sorted([*(ROOT / folder).rglob("*.yaml"), *(ROOT / folder).rglob("*.yml")]):
            text = file.read_text(encoding="utf-8")
            if folder == "config" or _is_settings(text):
                yield str(file.relative_to(ROOT)), text
    for file in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for number, match in enumerate(FENCED.finditer(file.read_text(encoding="utf-8") if file.exists() else "")):
            if _is_settings(match[1]):
                yield f"{file.relative_to(ROOT)}, block {number + 1}", match[1]


@pytest.mark.parametrize(("where", "text"), [pytest.param(*example, id=example[0]) for example in _examples()])
def test_every_example_loads(where: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no more environment than it cannot do without; one that shows only a part gets its routes from ``--upstream``."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "example.yaml"
    file.write_text(text, encoding="utf-8")
    overrides = {} if "routes:" in text else {"upstream": "http://127.0.0.1:9000"}
    environ = dict.fromkeys(REQUIRED.findall(text), "http://placeholder.example")
    assert load(file, environ=environ, overrides=overrides).routes, where


@pytest.mark.parametrize("profile", ["drop-in", "metered-mobile", "rag-prepare"])
def test_profiles_take_their_upstream_from_the_environment(profile: str) -> None:
    routes = load(ROOT / "config" / f"{profile}.yaml", environ={"UPSTREAM": "http://mine"}, overrides={}).routes
    assert "http://mine" in [route.upstream for route in routes]
