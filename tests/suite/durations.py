"""How long the tests of each file took when they were last recorded: ``durations.json``.

The table orders the files of a run (the longest first), cuts the deep run into slices and says
how many of the tests near a change fit into some minutes. No test depends on it: a file that is not
in it counts as a short one. ``make test-deep PYTEST_ARGS=--record-durations`` writes it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

TABLE = Path(__file__).with_name("durations.json")
ROOT = TABLE.parents[2]
UNKNOWN = 2.0
"""Seconds of a file that is not in the table."""

Table = dict[str, tuple[float, float]]
"""Of each file: seconds of its quick tests, and of its deep ones, fixtures included."""


@cache
def load() -> Table:
    """The table, as it was when this process began."""
    return {file: (quick, deep) for file, (quick, deep) in json.loads(TABLE.read_text()).items()}


def seconds(table: Table, file: str, *, deep: bool) -> float:
    """Of the quick tests of a file, or of its deep ones."""
    return table[file][deep] if file in table else UNKNOWN


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--record-durations``."""
    parser.getgroup("atlasc").addoption(
        "--record-durations", action="store_true", help="write tests/suite/durations.json"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Measure in the process that sees all reports, which is not a worker of xdist."""
    if config.option.record_durations and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())


def file_of(nodeid: str) -> str:
    """The file of a test."""
    return nodeid.split("::")[0]


class Recorder:
    """A plug-in of pytest that measures a run, and renews what it measured in the table."""

    def __init__(self) -> None:
        self.measured: dict[tuple[str, bool], float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one part of a test: its fixtures, itself, or what ends them."""
        self.measured[file_of(report.nodeid), "deep" in report.keywords] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Write the table; what this run left out stays as it was."""
        table = dict(load())
        for (file, deep), total in self.measured.items():
            quick_and_deep = list(table.get(file, (0.0, 0.0)))
            quick_and_deep[deep] = round(total, 1)
            table[file] = (quick_and_deep[0], quick_and_deep[1])
        lines = [
            f"{json.dumps(file)}: {json.dumps(table[file])}"
            for file in sorted(table)
            if (ROOT / file).exists()
        ]
        TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
