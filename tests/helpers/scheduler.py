"""Which tests one process runs one after the other, and in which order, under ``pytest -n 2``."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).resolve().parents[2]
ENCRYPTED = "encrypted"
"""The group of all files with large keys: they fit into the memory one after the other, but not
beside each other (bootstrap keys alone have 16 GB)."""
FIRST = (
    ENCRYPTED,
    "tests/atlasc/emit",
    "tests/test_docs_run.py",
    "tests/fuzz/test_fuzz.py",
    "tests/runtime_cuda/ckks/test_engine.py",
    "tests/runtime_cuda/conformance/test_on_sim.py",
    "tests/passes/lowering/test_transformers.py",
    "tests/faults",
    "tests/atlasc/test_examples.py",
    "tests/benchmarks/search/test_command.py",
    "tests/atlasc/search/strategies/test_hybrid_latency.py",
    "tests/atlasc/cli/search/test_search_state.py",
    "tests/atlasc/test_reproducible.py",
    "tests/atlasc/latency/test_latency_model.py",
)
"""The groups that take longest, longest first: else one process would wait for the other. A folder
is one group: its files share what takes long to make."""
_MARK = re.compile(r"pytest\.mark\.(encrypted|bootstrap|large)\b")


class Scheduler(LoadScopeScheduling):
    """Gives whole groups to processes, so that the fixtures of a group are made once."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid.split("::")[0])

    def _assign_work_unit(self, node: Any) -> None:
        for name in FIRST:
            if name in self.workqueue:
                self.workqueue.move_to_end(name, last=False)
                break
        super()._assign_work_unit(node)


@cache
def group(file: str) -> str:
    """The group of the tests in a file."""
    if _MARK.search((ROOT / file).read_text(encoding="utf-8")):
        return ENCRYPTED
    return next((name for name in FIRST if file.startswith(name)), file)
