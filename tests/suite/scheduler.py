"""Which tests one process runs one after the other, and in which order, under ``pytest -n 2``."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadScopeScheduling

from tests.suite import durations

ROOT = Path(__file__).resolve().parents[2]
LARGE = "large"
"""The group of all files with large keys: they fit into the memory one after the other, but not
beside each other (bootstrap keys of another library alone have 16 GB)."""
TOGETHER = ("tests/atlasc/emit", "tests/faults")
"""Folders that are one group: their files share what takes long to make."""
_MARK = re.compile(r"pytest\.mark\.(encrypted|bootstrap|large)\b")


class Scheduler(LoadScopeScheduling):
    """Gives whole groups to processes, so that the fixtures of a group are made once; the longest
    group first, else one process would wait for the other. Where the time ends the run, the groups
    keep their order."""

    def _split_scope(self, nodeid: str) -> str:
        option = self.config.option
        return group(durations.file_of(nodeid), deep=option.deep or bool(option.slice))

    def _assign_work_unit(self, node: Any) -> None:
        if self.config.option.begin_until is None:
            self.workqueue.move_to_end(max(self.workqueue, key=self._length), last=False)
        super()._assign_work_unit(node)

    def _length(self, name: str) -> float:
        """Recorded seconds of a group's tests in this run."""
        table, option = durations.load(), self.config.option
        files = {durations.file_of(test) for test in self.workqueue[name]}
        return sum(
            (0.0 if option.slice else durations.seconds(table, file, deep=False))
            + (durations.seconds(table, file, deep=True) if option.deep or option.slice else 0.0)
            for file in files
        )


@cache
def group(file: str, *, deep: bool) -> str:
    """The group of the tests in a file."""
    if deep and _MARK.search((ROOT / file).read_text(encoding="utf-8")):
        return LARGE
    return next((name for name in TOGETHER if file.startswith(f"{name}/")), file)
