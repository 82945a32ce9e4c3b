"""The table of derived keys counts what a plan says, and times a server that derives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from short_text import poly

from atlasc.compilation.lowering import plan_keys
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
from atlasc.program.key_plan import HOPS, key_plan
from atlasc.targets.cpu.parameters import CpuParameters
from benchmarks.engine.derived_keys import programs_of, row, seconds_to_read

SET = CpuParameters(14, 5, 2)


def test_a_row_of_a_program_that_derives(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).uniform(-1, 1, (16, 16)).astype(np.float32)
    text = poly(
        "%a = poly.mul %x, %x\n%b = poly.mul %a, %a\n%c = poly.mul %b, %b\n%d = poly.mul %c, %c\n"
        '%y = poly.linear %d {weight = @w}\npoly.output %y {name = "y"}',
        {"w": weight}, (1, 8, 16),
    )  # fmt: skip
    program = run_passes(text, [Pack(SET.slots, True), PlaceBootstraps(5, False)])
    found = programs_of("small", plan_keys(program, SET), SET)
    plan = key_plan(found[1][1])
    rows = [row(*one) for one in found]
    assert [one[0] for one in rows] == ["small", "small, derived"]
    amounts = len(set(plan.derivation.roots.values()))
    assert rows[0][1:4] == [str(len(plan.rotations)), "0", "0"]
    assert rows[1][1:4] == [str(len(plan.rotations)), str(len(plan.derivation.roots)), str(amounts)]
    assert 1 <= int(rows[1][4]) <= HOPS
    for at, (_, planned, parameters) in enumerate(found):
        wall, core = seconds_to_read(planned, parameters, tmp_path / str(at))
        assert min(wall, core) > 0
        size = (tmp_path / str(at) / "server" / "evaluation.key").stat().st_size
        assert rows[at][6] == f"{size / 1e6:.0f}"
