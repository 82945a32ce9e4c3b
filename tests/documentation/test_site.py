"""The site is built without a warning, opens from a folder, and asks no server for anything."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from documentation import hooks
from tests.atlasc.report.browser import SIZES, THEMES, chromium, missing, serious

ROOT = hooks.ROOT
FETCHING = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}
"""Tags whose address a browser fetches by itself."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def build(folder: Path, config: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    """What ``make site`` does. With ``-q`` MkDocs would not count warnings, and never fail."""
    # The theme's maker announces a successor on standard error.
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-f", config, "-d", folder],
        capture_output=True, text=True, check=False, env=quiet, cwd=ROOT,
    )  # fmt: skip


class Fetched(HTMLParser):
    """The addresses that a browser fetches, and the texts of paragraphs outside of code."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs).get(FETCHING.get(tag, ""))
        if found and dict(attrs).get("rel") != "canonical":
            self.addresses.append(found)


def test_no_page_asks_a_server(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        addresses = Fetched(page.read_text(encoding="utf-8")).addresses
        assert addresses
        assert [one for one in addresses if "//" in one] == [], page
        if page.name != "404.html":  # this one is for servers, with absolute paths
            assert all((page.parent / one.partition("?")[0]).exists() for one in addresses)
    sheets = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert not any(re.search(r"url\(\s*[\"']?(?:https?:)?//", sheet) for sheet in sheets)


def test_lists_and_tables_are_rendered(site: Path) -> None:
    """A list needs an empty line before it, unlike on GitHub."""
    raw = re.compile(r"<p>(?:(?!</p>).)*?\n(?:[-*] |\d+\. |\| )", re.DOTALL)
    for page in site.rglob("*.html"):
        text = re.sub(r"<pre.*?</pre>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert raw.search(text) is None, page


@pytest.mark.skipif(bool(missing()), reason=missing() or "there is a browser")
def test_it_opens_from_a_folder_and_can_be_searched(site: Path) -> None:
    asked: list[str] = []
    with chromium() as browser:
        for theme in THEMES:
            page = browser.new_context(color_scheme=theme).new_page()
            page.on("request", lambda request: asked.append(request.url))
            page.goto((site / "how-to" / "write-a-pass.html").as_uri())
            assert serious(page) == [], theme
        page.fill("input[name=query]", "bootstrap")
        page.wait_for_selector(".md-search-result__item")
    assert asked
    assert all(url.startswith((site.as_uri(), "data:", "blob:", "about:")) for url in asked)


CUT_OFF = """() => Array.from(document.querySelectorAll("pre, pre > code"))
  .filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent)"""


@pytest.mark.skipif(bool(missing()), reason=missing() or "there is a browser")
def test_no_code_is_cut_off(site: Path) -> None:
    """The pages with the longest lines of commands and of Python, as wide and as narrow."""
    widest = sorted(site.rglob("*.html"), key=_longest_line, reverse=True)[:4]
    with chromium() as browser:
        for (width, height), theme in zip(SIZES.values(), THEMES, strict=True):
            view = {"width": width, "height": height}
            page = browser.new_context(color_scheme=theme, viewport=view).new_page()
            for file in (site / "index.html", *widest):
                page.goto(file.as_uri())
                assert page.locator("pre").count() > 0
                assert page.evaluate(CUT_OFF) == [], (file, width)


def _longest_line(page: Path) -> int:
    """Letters of the longest line of the code blocks."""
    blocks = re.findall(r"<pre.*?</pre>", page.read_text(encoding="utf-8"), re.DOTALL)
    text = re.sub(r"<[^>]*>", "", "\n".join(blocks))
    return max(map(len, text.split("\n")))


def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path) -> None:
    """A repository of its own: the hooks find files beside their folder."""
    for folder in ("docs/assets", "documentation"):
        (tmp_path / folder).mkdir(parents=True)
    for file in (
        "documentation/hooks.py",
        "docs/assets/iframe-worker.js",
        "docs/assets/site.css",
    ):
        shutil.copy(ROOT / file, tmp_path / file)
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[0]
    (tmp_path / "mkdocs.yml").write_text(f"{settings}\nnav: [index.md]\n")
    (tmp_path / "README.md").write_text("[a](source.py)\n")
    (tmp_path / "source.py").write_text("1 + 1\n")
    assert build(tmp_path / "site", tmp_path / "mkdocs.yml").returncode == 0
    assert (tmp_path / "site" / "repository" / "source.py.html").is_file()
    (tmp_path / "README.md").write_text("# A\n\n[a](nothing.md) [b](#nothing)\n")
    (tmp_path / "docs" / "lost.md").write_text("")
    done = build(tmp_path / "site", tmp_path / "mkdocs.yml")
    assert done.returncode == 1
    assert all(fault in done.stderr for fault in ("nothing.md", "#nothing", "lost.md"))


def test_links_lead_to_pages_of_the_site() -> None:
    assert hooks.target_of("docs/a.md", "../passes/registry.py") == ("passes/registry.py", "")
    assert hooks.target_of("README.md", "docs/search.md#inputs") == ("docs/search.md", "#inputs")
    assert hooks.target_of("README.md", "examples/") == ("examples/README.md", "")
    assert hooks.target_of("README.md", "../outside.md") == ("", "")
    assert hooks.target_of("README.md", "https://desilo.ai") == ("", "")
    for source in ("README.md", "docs/search.md", "docs/tutorials/text.ipynb", "ir/module.py"):
        assert hooks.source_of(hooks.page_of(source)) == source
    assert hooks._link(hooks._LINK.search("[x](../SECURITY.md#a)"), "docs/security.md") == (  # type: ignore[arg-type]
        "[x](repository/SECURITY.md#a)"
    )


def test_a_notebook_becomes_a_page() -> None:
    cells = (
        '{"cells": [{"cell_type": "markdown", "source": ["# A\\n", "b"]}, {"cell_type": "code", '
        '"source": ["1 + 1"], "outputs": [{"data": {"text/plain": ["2"]}}]}]}'
    )
    assert hooks.notebook(cells) == "# A\nb\n\n```python\n1 + 1\n```\n\n```text\n2\n```\n"
