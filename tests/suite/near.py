"""The tests near what differs from main: ``make test-near``.

A test file is near by what it reads: imports of Python, includes of C++, and names of files that
stand in it as text. It is nearer still where it lies in the folder that mirrors the changed one.
The nearest files run, as many as fit into three minutes by the recorded durations. On a slow or a
busy machine the tests that have not begun by then are skipped, and counted.
"""

from __future__ import annotations

import argparse
import ast
import math
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.suite import durations
from tests.suite.imports import ROOT, imported, module_name, sources

SECONDS = 180
START = 40
"""Seconds until the first test runs."""
LAST = 10
"""Seconds before the end in which no test begins."""
PROCESSES = 2
PACKAGES = {
    "ir": "atlasc.ir", "passes": "atlasc.passes", "atlasc": "atlasc",
    "plugins/atlasc_comparisons": "atlasc_comparisons", "benchmarks": "benchmarks",
    "documentation": "documentation", "tests/helpers": "", "tests": "tests",
}  # fmt: skip
"""Import names of folders."""
MIRRORS = {"plugins/atlasc_comparisons": "tests/plugins", "docs": "tests/documentation"}
"""Where the tests of a folder lie, when it is not ``tests/`` and its own name."""
BINDINGS = {
    "runtime_cuda": "atlasc/runtime/native.py",
    "atlasc/polynomials/native": "atlasc/polynomials/fits/chebyshev.py",
}
"""The module through which Python reads the C++ of a folder."""
ALWAYS = ("tests/test_architecture.py", "tests/test_docs.py")
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
_CPP = {".cpp", ".hpp", ".h", ".cu", ".cuh"}


@dataclass(frozen=True)
class Choice:
    """Test files, nearest first.

    Attributes:
        near: what runs.
        left_out: what is near too, and does not fit into the time.
    """

    near: list[str]
    left_out: list[str]


def changed_files(base: str | None) -> tuple[str, list[str]]:
    """What is compared with, and the files that differ from it, new ones too."""
    if base is None:
        head = git("rev-parse", "HEAD")
        names = ("main", "origin/main")
        base = next((name for name in names if git("rev-parse", "-q", "--verify", name)), "HEAD")
        if git("rev-parse", base) == head and git("rev-parse", "-q", "--verify", "origin/main"):
            base = "origin/main"
    start = git("merge-base", base, "HEAD")
    if not start:
        sys.exit(f"git knows no commit that HEAD shares with {base}: give another as BASE=COMMIT")
    found = git("diff", "--name-only", start), git("ls-files", "--others", "--exclude-standard")
    return base, sorted({name for text in found for name in text.splitlines()})


def git(*arguments: str) -> str:
    """What git prints; empty where it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def choose(changed: Iterable[str], seconds: float = SECONDS) -> Choice:
    """The test files near some files of the repository."""
    changed = list(changed)
    near = distances(changed, readers())
    table = durations.load()

    def length(file: str) -> float:
        return durations.seconds(table, file, deep=False)

    ordered = sorted(near, key=lambda file: (near[file], length(file), file))
    choice, budget = Choice([], []), PROCESSES * (seconds - START)
    for file in ordered:
        # Exact sums: rounding must not decide about a file that just fits.
        total = math.fsum(length(file) for file in [*choice.near, file])
        # What was changed itself runs, however long it takes.
        fits = total <= budget or file in changed
        (choice.near if fits else choice.left_out).append(file)
    return choice


def distances(changed: Iterable[str], read_by: dict[str, set[str]]) -> dict[str, int]:
    """Test file -> number of steps from a changed file; 0 is the file itself or its own test."""
    found: dict[str, int] = {}
    changed = list(changed)
    for test in map(str, test_files()):
        if test in ALWAYS or any(is_own(test, file) for file in changed):
            found[test] = 0
        elif any(mirror(file) == str(Path(test).parent) for file in changed):
            found[test] = 1
    wave, seen, steps = set(changed), set(changed), 0
    while wave:
        for file in wave:
            if is_test(file):
                found[file] = min(found.get(file, steps), steps)
        wave = {reader for file in wave for reader in read_by.get(file, ())} - seen
        seen |= wave
        steps += 1
    return found


def is_test(file: str) -> bool:
    """Whether pytest collects it."""
    return file.startswith("tests/") and Path(file).name.startswith("test_")


def is_own(test: str, file: str) -> bool:
    """Whether a test file is named after a source and lies in its mirrored folder or below it."""
    return Path(test).is_relative_to(mirror(file)) and Path(test).stem == f"test_{Path(file).stem}"


def mirror(file: str) -> str:
    """The folder of the tests of a file's folder, or of the nearest parent that has one."""
    folder = str(Path(file).parent)
    for name, tests in MIRRORS.items():
        if folder == name or folder.startswith(f"{name}/"):
            folder = tests + folder[len(name) :]
    place = Path(folder if folder.startswith("tests") else f"tests/{folder}")
    while not (ROOT / place).is_dir():
        place = place.parent
    return str(place)


def readers() -> dict[str, set[str]]:
    """File -> files that read it: import, include or name it, or are below its conftest.py."""
    found: dict[str, set[str]] = {}
    for reader, read in [*python_edges(), *cpp_edges()]:
        found.setdefault(read, set()).add(reader)
    return found


def python_edges() -> Iterator[tuple[str, str]]:
    """Pairs of a Python file and a file that it reads."""
    modules: dict[str, Path] = {}
    for folder, package in PACKAGES.items():
        for path in sources(folder):
            modules.setdefault(module_name(folder, package, path), path)
    names = {path: name for name, path in modules.items()}
    native = {path.name: path for path in ROOT.glob("tests/runtime_cuda/**/*") if path.is_file()}
    for path, name in names.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for target in imported(name, path, ast.walk(tree), modules) & modules.keys():
            yield relative(path), relative(modules[target])
        if path.is_relative_to(ROOT / "tests"):
            words = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
            for word in words:
                named = native.get(word.rsplit("/")[-1]) if isinstance(word, str) else None
                if named is not None and named.suffix in _CPP:
                    yield relative(path), relative(named)
            for folder in path.parents:
                if (folder / "conftest.py").exists() and is_test(relative(path)):
                    yield relative(path), relative(folder / "conftest.py")


def cpp_edges() -> Iterator[tuple[str, str]]:
    """Pairs of a C++ file and a file that it includes; a header is read with its source, and all
    by the module that loads them."""
    runtime = ROOT / "runtime_cuda"
    roots = (runtime / "include", runtime, ROOT, ROOT / "tests/runtime_cuda/conformance")
    for folder, binding in BINDINGS.items():
        for path in (ROOT / folder).rglob("*"):
            yield binding, relative(path)
    for path in (*runtime.rglob("*"), *ROOT.glob("tests/runtime_cuda/**/*")):
        if path.suffix not in _CPP:
            continue
        for name in _INCLUDE.findall(path.read_text(encoding="utf-8")):
            header = next((r / name for r in (path.parent, *roots) if (r / name).exists()), None)
            if header is not None:
                yield relative(path), relative(header)
                if header.stem == path.stem:
                    yield relative(header), relative(path)


def relative(path: Path) -> str:
    """A path as git names it."""
    return str(path.resolve().relative_to(ROOT))


def test_files() -> list[Path]:
    """All files of tests."""
    return [path.relative_to(ROOT) for path in sorted(ROOT.glob("tests/**/test_*.py"))]


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--begin-until``."""
    parser.getgroup("atlasc").addoption(
        "--begin-until", type=float, help="seconds since 1970: later tests are skipped"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what begins too late, before its fixtures are made."""
    until = item.config.option.begin_until
    if until is not None and time.time() > until:
        pytest.skip("the time is over: make test runs it")


def main() -> int:
    """Say what is near, and run it; the exit code of pytest."""
    parser = argparse.ArgumentParser(prog="python -m tests.suite.near", description=__doc__)
    parser.add_argument("base", nargs="?", help="a commit to compare with (default: main)")
    parser.add_argument("--list", action="store_true", help="only print the files")
    options, more = parser.parse_known_args()
    begun = time.time()
    base, changed = changed_files(options.base)
    if not changed:
        print(f"nothing differs from {base}: give another commit, as in make test-near BASE=HEAD~1")
        return 0
    choice = choose(changed)
    if options.list:
        print("\n".join(choice.near))
        return 0
    print(f"{len(changed)} files differ from {base}; {len(choice.near)} test files are near")
    until = f"--begin-until={begun + SECONDS - LAST}"
    if choice.left_out:
        print(f"{len(choice.left_out)} more depend on them and do not fit: make test has them")
    command = [sys.executable, "-m", "pytest", "-n", str(PROCESSES), until, *more, *choice.near]
    return subprocess.run(command, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
