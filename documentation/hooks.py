"""What the site needs beside ``docs/``: the notebooks as pages, and the files that pages link to.

MkDocs calls these functions (``hooks`` in ``mkdocs.yml``). The documents are written for a reader
of the repository: they link to sources and to each other by relative paths. The site must open
from a folder, without a network and without the repository, so it carries each file that a page
links to, under ``repository/``. ``README.md`` is its first page.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
FIRST = "README.md"
SEARCH = 'data-md-component="search" role="dialog"'
_LINK = re.compile(r"(?<!!)\[((?:[^][]|\[[^][]*\])*)\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_SCHEME = re.compile(r"[a-z]+:")


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages that do not lie in ``docs/`` as Markdown."""
    waiting = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    waiting += [f"docs/{file.src_uri}" for file in files if file.src_uri.endswith(".ipynb")]
    done: set[str] = set()
    waiting.append(FIRST)
    while waiting:
        source = waiting.pop()
        if source in done:
            continue
        done.add(source)
        text = markdown_of(source)
        waiting += [found for link in links_of(text) if (found := target_of(source, link)[0])]
        place = page_of(source)
        if not files.get_file_from_path(place):
            files.append(File.generated(config, place, content=text))
        if source.endswith(".ipynb"):
            notebook = files.get_file_from_path(source.removeprefix("docs/"))
            if notebook:
                files.remove(notebook)
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Point the links of a page at pages of the site."""
    source = source_of(page.file.src_uri)
    return outside_code(markdown, lambda text: _LINK.sub(lambda m: _link(m, source), text))


def on_post_page(output: str, *, page: Any, config: Any) -> str:
    """Name the search for screen readers, which the theme does not."""
    return output.replace(SEARCH, f'{SEARCH} aria-label="Search"')


def _link(found: re.Match[str], source: str) -> str:
    words, link = found.groups()
    if _SCHEME.match(link) or link.startswith("#"):
        return found[0]
    target, anchor = target_of(source, link)
    if not target:
        return found[0]  # MkDocs warns, and the build fails
    here = posixpath.dirname(page_of(source))
    return f"[{words}]({posixpath.relpath(page_of(target), here or '.')}{anchor})"


def target_of(source: str, link: str) -> tuple[str, str]:
    """The file of the repository that a link of a document leads to, and the anchor with its #.

    A folder stands for its README, if it has one. The file is empty if the link leaves the
    repository, stays on its page, or leads nowhere.
    """
    path, mark, anchor = link.partition("#")
    if _SCHEME.match(link) or not path:
        return "", ""
    place = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if (ROOT / place / "README.md").is_file():
        place = f"{place}/README.md"
    inside = not place.startswith("..") and (ROOT / place).exists()
    return (place if inside else ""), mark + anchor


def page_of(source: str) -> str:
    """The page of the site that holds a file of the repository."""
    if source == FIRST:
        return "index.md"
    if source.startswith("docs/"):
        return re.sub(r"\.ipynb$", ".md", source.removeprefix("docs/"))
    return f"repository/{source}" + ("" if source.endswith(".md") else ".md")


def source_of(page: str) -> str:
    """The file of the repository that a page of the site holds."""
    if page == "index.md":
        return FIRST
    if page.startswith("repository/"):
        place = page.removeprefix("repository/")
        return place if (ROOT / place).exists() else place.removesuffix(".md")
    notebook = f"docs/{page.removesuffix('.md')}.ipynb"
    return notebook if (ROOT / notebook).is_file() else f"docs/{page}"


def markdown_of(source: str) -> str:
    """A file of the repository as Markdown: as it is, a notebook, or a listing; or a folder."""
    if (ROOT / source).is_dir():
        names = sorted(path.name for path in (ROOT / source).iterdir())
        return f"# {source}\n\n" + "".join(f"- `{name}`\n" for name in names)
    text = (ROOT / source).read_text(encoding="utf-8")
    suffix = os.path.splitext(source)[1]
    if suffix == ".md":
        return text
    if suffix == ".ipynb":
        return notebook(text)
    return f"# {source}\n\n```{suffix.removeprefix('.') or 'text'}\n{text.rstrip()}\n```\n"


def notebook(text: str) -> str:
    """A notebook as Markdown: cells of text, of Python, and what was printed."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            shown = output.get("text") or output.get("data", {}).get("text/plain") or ()
            if shown:
                parts.append(f"```text\n{''.join(shown).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def links_of(markdown: str) -> list[str]:
    """The links of a page, without those in blocks of code."""
    return [link for _, link in _LINK.findall(_CODE.sub("", markdown))]


def outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """Markdown whose stretches outside blocks of code are changed."""
    kept, at = [], 0
    for code in _CODE.finditer(markdown):
        kept += [change(markdown[at : code.start()]), code[0]]
        at = code.end()
    return "".join([*kept, change(markdown[at:])])
