"""The generated pages of the reference are what the code says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import atlasc
from atlasc.cli import SECTIONS
from atlasc.passes.pipeline import PIPELINE
from atlasc.passes.registry import ALONE
from atlasc.service import endpoints, v2
from documentation import errors, markdown
from documentation.__main__ import PAGES

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_up_to_date(name: str) -> None:
    """After a change of the code: make docs"""
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name]()


def test_nothing_else_is_in_the_folder() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(PAGES)


def test_all_commands_names_passes_and_endpoints_are_there() -> None:
    pages = {name: (FOLDER / name).read_text(encoding="utf-8") for name in PAGES}
    for target in (one for targets in SECTIONS.values() for one in targets):
        command = target.partition(":")[2].replace("_", "-")
        assert f"\n### atlasc {command}\n" in pages["commands.md"]
    for name in atlasc.__all__:
        assert name.startswith("_") or f"\n## `{name}`\n" in pages["api.md"]
    for kind in (*PIPELINE, *ALONE):
        assert f"\n## `{kind.name}`\n" in pages["passes.md"]
    for route in (*v2.router.routes, *endpoints.router.routes):
        assert route.path.replace(":path", "") in pages["protocol.md"]  # type: ignore[attr-defined]


def test_a_message_is_read_off_the_source() -> None:
    source = """
raise AtlasError(
    f"{folder.name} has {len(rows)} rows" if rows else "there are no rows",
    why="one | two " + f"of {', '.join(names)}",
    remedy=remedy,
)
raise Refusal(409, "another program")
"""
    assert list(errors._rows(ast.parse(source))) == [
        ("⟨name⟩ has ⟨number of rows⟩ rows / there are no rows", "one \\| two of ⟨names⟩", ""),
        ("another program", "", ""),
    ]


def test_the_page_of_errors_has_messages_that_users_see() -> None:
    page = (FOLDER / "errors.md").read_text(encoding="utf-8")
    assert "| the compiler's libraries are not installed here |" in page
    found = errors.messages()
    calls = sum(
        len(re.findall(r"\b(?:AtlasError|Refusal)\(\n", path.read_text(encoding="utf-8")))
        for path in errors._sources()
    )
    assert len(found) > 0.9 * calls > 300
    for row in found:
        if row.cause or row.remedy:
            cells = r" \| ".join(f".*{re.escape(text)}.*" for text in row)
            assert re.search(rf"^\| {cells} \|$", page, re.MULTILINE), row


def test_an_error_stands_where_its_reader_looks() -> None:
    """By its folder, so that a new module has a heading; an option by its name."""
    place = Path("atlasc/loading/texts/new.py")
    assert errors.heading_of(place, "a text is empty") == "Inputs, labels and data"
    assert errors.heading_of(place, "--long is for texts") == errors.OPTIONS
    with pytest.raises(LookupError, match="atlasc/new/module.py has no heading"):
        errors.heading_of(Path("atlasc/new/module.py"), "a text is empty")
    places = [place for places in errors.HEADINGS.values() for place in places]
    assert len(set(places)) == len(places)
    assert all((errors.ROOT / place).exists() for place in places)


def test_errors_of_one_message_have_one_row() -> None:
    rows = [
        errors.Row("the file is full", "one", "wait"),
        errors.Row("⟨name⟩ is damaged", "", "copy it"),
        errors.Row("the file is full", "two", "wait"),
    ]
    assert errors.merged(rows) == [
        ("⟨name⟩ is damaged", "", "copy it"),
        ("the file is full", "(1) one (2) two", "wait"),
    ]


def test_a_docstring_becomes_lists() -> None:
    text = """What ``x`` does, see :class:`atlasc.Client`.

Args:
    one: the first,
        on two lines.
    two: the second.

Raises:
    AtlasError: never.
"""
    assert markdown.docstring(text) == (
        "What `x` does, see `atlasc.Client`.\n\n**Args**\n\n- `one`: the first,\n  on two lines.\n"
        "- `two`: the second.\n\n**Raises**\n\n- `AtlasError`: never."
    )
