"""Quick and deep tests: what ``make test`` runs, what it leaves to ``make test-deep``, and the
twenty slices of the deep run, of which each merge runs one (CONTRIBUTING.md).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

from tests.suite import durations

SLICES = 20
REASONS = {
    "library": "real ciphertexts of another library, desilofhe: gigabytes of keys",
    "ciphertexts": "long programs on real ciphertexts of our engine",
    "engines": "one check on several devices or kernels",
    "sanitizers": "C++ under a sanitizer or the race detector",
    "projects": "emitted C++ projects, or installations, each built anew",
    "recipes": "all recipes, families or forms of a model, of which the quick run takes some",
    "search": "searches that evaluate many settings",
    "pages": "pages whose commands other tests run on smaller models",
    "examples": "larger or fresh examples of what the quick run tries on smaller ones",
    "cluster": "a Ray cluster on this machine",
    "benchmarks": "whole commands of benchmarks",
    "looks": "a page in each size and theme",
    "faults": "killed processes, full disks, too little memory, attacks",
}
"""Why a test is deep: the word of its mark, ``pytest.mark.deep("engines")``."""

_LEFT = pytest.StashKey["Counter[str]"]()

settings.register_profile(
    "quick", max_examples=25, deadline=None, derandomize=True, print_blob=True
)
# hypothesis itself would take the same examples each time where the variable CI is set.
settings.register_profile(
    "deep", max_examples=100, deadline=None, derandomize=False, print_blob=True
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--deep`` and ``--slice``."""
    group = parser.getgroup("atlasc")
    group.addoption(
        "--deep", action="store_true", help="all tests, and fresh random examples (make test-deep)"
    )
    group.addoption(
        "--slice", type=int, choices=range(1, SLICES + 1), metavar=f"1..{SLICES}",
        help="the deep tests of one slice, and the property tests of its files",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Choose between the same examples at each run and fresh ones."""
    option = config.option
    settings.load_profile("deep" if option.deep or option.slice else "quick")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Summary(config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Drop what this run leaves to others (in place); a test that was asked for by name stays."""
    for item in items:
        if item.get_closest_marker("encrypted") or item.get_closest_marker("bootstrap"):
            item.add_marker(pytest.mark.deep("library"))
        reason = deep_reason(item)
        if reason is not None and reason not in REASONS:
            raise pytest.UsageError(f"{item.nodeid} is deep for no known reason: {reason!r}")
    if config.option.slice:
        slices = slices_of({durations.file_of(item.nodeid) for item in items})
        kept = [
            item
            for item in items
            if (deep_reason(item) or has_examples(item))
            and slices[durations.file_of(item.nodeid)] == config.option.slice
        ]
    elif config.option.deep:
        kept = items[:]
    else:
        named = [word for word in config.args if "::" in word]
        kept = [
            item
            for item in items
            if not deep_reason(item) or any(item.nodeid.startswith(name) for name in named)
        ]
    chosen = set(kept)
    dropped = [item for item in items if item not in chosen]
    items[:] = kept
    if dropped:
        config.hook.pytest_deselected(items=dropped)
    left = Counter(reason for item in dropped if (reason := deep_reason(item)))
    if hasattr(config, "workerinput"):
        config.workeroutput["deep tests left out"] = dict(left)
    else:
        config.stash[_LEFT] = left


class Summary:
    """Says after the last test what was not run, and how a failed slice is run again."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take the count of a worker; that of each is the same."""
        self.config.stash[_LEFT] = Counter(node.workeroutput.get("deep tests left out", {}))

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, exitstatus: int
    ) -> None:
        """Print both."""
        number = self.config.option.slice
        if number:
            terminalreporter.section(f"slice {number} of {SLICES} of the deep tests")
            if exitstatus:
                terminalreporter.line(f"this slice alone: make test-deep SLICE={number}")
                terminalreporter.line("one test: .venv/bin/pytest --deep FILE::TEST")
        left = self.config.stash.get(_LEFT, Counter())
        if left and not number:
            terminalreporter.section("deep tests, which make test-deep runs")
            for reason, count in sorted(left.items()):
                terminalreporter.line(f"{count:5} {reason}: {REASONS[reason]}")


def deep_reason(item: pytest.Item) -> str | None:
    """The word of its mark; None of a quick test."""
    mark = item.get_closest_marker("deep")
    return None if mark is None else str(mark.args[0] if mark.args else "")


def has_examples(item: pytest.Item) -> bool:
    """Whether it is a property test, which has fresh examples in a deep run."""
    return getattr(getattr(item, "obj", None), "is_hypothesis_test", False)


def slices_of(files: Iterable[str]) -> dict[str, int]:
    """The slice of each file, 1 to ``SLICES``: the longest first, each into the slice that is
    shortest so far. It follows from the recorded seconds and the names alone."""
    recorded = durations.load()
    length = {file: durations.seconds(recorded, file, deep=True) for file in files}
    shortest = [(0.0, number) for number in range(1, SLICES + 1)]
    found = {}
    for file in sorted(length, key=lambda name: (-length[name], name)):
        total, number = heapq.heappop(shortest)
        found[file] = number
        heapq.heappush(shortest, (total + length[file], number))
    return found
