"""The documents name files that exist, and their links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted(
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"))
    if path.is_file()
)
_PATH = re.compile(
    r"`((?:ir|passes|atlasc|tests|benchmarks|runtime_cuda|examples|docs|documentation)/[\w./-]*[\w/])`"
)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(document: Path) -> set[str]:
    """Anchors of a document's headings, as GitHub makes them."""
    text = _FENCE.sub("", document.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", title.lower()) for title in titles)
    return {re.sub(r"\s", "-", title.strip()) for title in plain}


def missing_paths(text: str) -> list[str]:
    """Paths of the repository that a text names and that do not exist."""
    return [path for path in _PATH.findall(text) if not (ROOT / path).exists()]


def broken_links(document: Path, text: str) -> list[str]:
    """Local links of a document that lead nowhere."""
    broken = []
    for link in _LINK.findall(_FENCE.sub("", text)):
        if "://" in link or link.startswith("mailto:"):
            continue
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors(target)
        ):
            broken.append(link)
    return broken


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_paths_and_links_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    assert missing_paths(text) == []
    assert broken_links(document, text) == []


def test_a_missing_path_and_a_broken_link_are_found() -> None:
    here = ROOT / "docs" / "architecture.md"
    assert missing_paths("see `passes/nothing/there.py` and `docs/architecture.md`") == [
        "passes/nothing/there.py"
    ]
    text = "[a](nothing.md) [b](#one-module-three-levels) [c](#nothing)"
    assert broken_links(here, text) == ["nothing.md", "#nothing"]


_FROM_AN_INDEX = re.compile(r"pip install (?:--?[\w-]+ )*[\"']?atlasc\b")


def test_nobody_is_told_to_install_atlasc_from_an_index() -> None:
    """Nobody has registered the name there: whoever does gets all who follow such words."""
    code = [*ROOT.glob("[aibep]*/**/*.py"), *ROOT.glob("atlasc/**/*.jinja")]
    files = [*DOCUMENTS, *ROOT.glob("docs/**/*.ipynb"), *ROOT.glob("packaging/*/*"), *code]
    assert len(files) > 500
    assert _FROM_AN_INDEX.search("pip install --upgrade 'atlasc[chat]'")
    told = [path for path in files if path.is_file() and _FROM_AN_INDEX.search(path.read_text())]
    assert told == []
