"""The faults that the mutation check plants fit the code as it is."""

from __future__ import annotations

import json

from benchmarks.mutation.__main__ import FAULTS, ROOT


def test_the_text_of_each_fault_stands_once_in_its_file() -> None:
    faults = json.loads(FAULTS.read_text())
    counts = {one["id"]: (ROOT / one["file"]).read_text().count(one["old"]) for one in faults}
    assert counts == dict.fromkeys(range(1, len(faults) + 1), 1)
