"""Values that are kept, and which of them go when memory is short."""

from __future__ import annotations

import numpy as np

from atlasc.ir.module import Module
from atlasc.simulation.simulate import Snapshots

MODULE = Module("m", "nn")
VALUE = MODULE.add("nn.input", [], {"name": "x", "shape": [1], "side": "client", "dtype": "f64"})
TEN = {VALUE: np.zeros(10, np.uint8)}


def test_the_least_recently_used_go_first() -> None:
    snapshots = Snapshots(30)
    for key in (1, 2, 3):
        snapshots.store(key, TEN)
    snapshots.touch([1])
    snapshots.store(4, TEN)
    assert [snapshots.load(key) is not None for key in (1, 2, 3, 4)] == [True, False, True, True]


def test_what_leads_to_a_value_stays() -> None:
    snapshots = Snapshots(20)
    snapshots.store(1, TEN)
    snapshots.store(2, TEN, [1])
    snapshots.store(3, TEN, [1, 2])
    assert snapshots.load(3) is None
    snapshots.touch([1, 2])
    snapshots.store(4, TEN)
    assert snapshots.load(1) is not None, "the beginning, which more settings share, went last"
    assert snapshots.load(2) is None
