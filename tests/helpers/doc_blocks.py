"""The code blocks of the documents: found, checked, and run as a reader would run them.

A block without a language is commands of a shell, ``python`` is Python, and any other language is
only shown. A block of commands or Python that is not run has a comment before it that says why::

    <!-- not run: needs a GPU -->
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<why>[^\n]+?) -->\n\n?)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_FOLDERS = ("atlasc/", "benchmarks/", "docs/", "examples/", "ir/", "passes/", "tests/")
_STARTS = ("atlasc ", "make ", "pip ", "pytest ", "python ")
_ASSIGNED = re.compile(r"^\w+=")


@dataclass(frozen=True)
class Block:
    """A code block.

    Attributes:
        page: relative to the repository.
        line: of its first line, from 1.
        language: as written after the fence; "" is a shell's.
        text: what it says.
        not_run: why no test runs it; empty for one that is run.
    """

    page: str
    line: int
    language: str
    text: str
    not_run: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """All code blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    name = str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else page.name
    return [
        Block(
            name,
            text.count("\n", 0, found.start("text")) + 1,
            found["language"],
            found["text"],
            found["why"] or "",
        )
        for found in _BLOCK.finditer(text)
    ]


def lines_of(text: str) -> list[str]:
    """Lines of a shell without comments; a line that ends in a backslash goes on."""
    joined = text.replace("\\\n", " ")
    return [
        line for line in (re.sub(r"(^|\s)#.*", "", it).strip() for it in joined.split("\n")) if line
    ]


def calls_of(text: str) -> Iterator[list[str]]:
    """The words of each simple command, also of those in loops and substitutions."""
    for line in lines_of(text):
        for part in re.split(r"&&|\|\||[;()]|\|(?=\s*\w+\s)", re.sub(r"[][]", " ", line)):
            words = (
                shlex.split(part.rstrip('"$= '), comments=True) if part.count('"') % 2 == 0 else []
            )
            while words and (_ASSIGNED.match(words[0]) or words[0] == "do"):
                words = words[1:]
            if words:
                yield words


def faults(block: Block) -> list[str]:
    """What is wrong with a block that can be seen without running it."""
    if block.language == "python":
        try:
            compile(block.text, str(block), "exec")
        except SyntaxError as error:
            return [f"{block}: {error}"]
        return []
    if block.language:
        shown = [line for line in block.text.split("\n") if line.startswith(_STARTS)]
        return [
            f"{block}: {line!r} looks like a command, in a block of {block.language}"
            for line in shown
        ]
    return [f"{block}: {fault}" for words in calls_of(block.text) for fault in _faults_of(words)]


def _faults_of(words: list[str]) -> Iterator[str]:
    match words:
        case ["atlasc", *arguments]:
            yield from _faults_of_atlasc(arguments)
        case ["make", *arguments]:
            yield from _faults_of_make(arguments)
        case ["python", "-m", module, *_]:
            if not module_exists(module):
                yield f"there is no module {module}"
    for word in words:
        if word.startswith(_FOLDERS) and "*" not in word and not (ROOT / word).exists():
            yield f"{word} does not exist"


def module_exists(name: str) -> bool:
    """Whether ``python -m`` finds a module."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _faults_of_atlasc(arguments: list[str]) -> Iterator[str]:
    """Unknown commands and options, as the command line itself finds them."""
    import click
    from typer.main import get_command

    from atlasc.cli import app

    root = get_command(app)
    context = click.Context(root, info_name="atlasc")
    if arguments[:1] in (["--help"], ["--version"]):
        return
    command = root.get_command(context, arguments[0])  # type: ignore[attr-defined]
    if command is None:
        yield f"atlasc has no command {arguments[0]}"
        return
    inner = click.Context(command, parent=context, info_name=arguments[0])
    try:
        command.make_parser(inner).parse_args(arguments[1:])
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        yield f"atlasc {arguments[0]}: {error.format_message()}"


def _faults_of_make(arguments: list[str]) -> Iterator[str]:
    """Targets and variables that the Makefile does not have."""
    rules = (ROOT / "Makefile").read_text(encoding="utf-8")
    for word in arguments:
        name, assigned, _ = word.partition("=")
        pattern = rf"^{re.escape(name)} *\?=" if assigned else rf"^{re.escape(name)}:"
        if not re.search(pattern, rules, re.MULTILINE):
            yield f"the Makefile has no {name}"


def filled(words: list[str], variables: Mapping[str, str]) -> list[str]:
    """Words with ``$NAME`` and stand-ins for words in capitals (``MODEL``)."""
    known = [re.sub(r"\$(\w+)", lambda m: variables[m[1]], word) for word in words]
    return [variables.get(word, word) for word in known]
