"""place-bootstraps and rotation-keys: IR text in, IR text out. ``placement/`` tests the choice."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from short_text import poly, short

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.ir.opdef import OPS, RuleError, Site
from atlasc.ir.types import CiphertextType
from atlasc.passes.framework.pass_base import Report, run_passes
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
from atlasc.passes.lowering.rotation_keys import RotationKeys
from atlasc.program.costs import program_costs
from atlasc.program.key_plan import KeyPlan, key_plan

RESIDUAL = """%a = poly.square %x
    %b = poly.square %a
    %c = poly.square %b
    %d = poly.add %c, %x
    poly.output %d {name = "y"}"""


def packed(body: str, magnitudes: dict[str, float] | None = None) -> Module:
    module = poly(body, {"w": np.ones((3, 3)), "w5": np.ones((5, 3))})
    for op in module.ops:
        if magnitudes is not None and op.result is not None:
            op.attributes["magnitude"] = magnitudes.get(op.result.name, 0.5)
    return run_passes(module, [Pack(16)])


def test_without_need_no_bootstrap() -> None:
    """A fresh ciphertext is made no higher than its readers want it."""
    after = run_passes(packed(RESIDUAL), [PlaceBootstraps(levels=5)])
    assert "ckks.bootstrap" not in short(after)
    types = [op.result.type for op in after.ops if op.result is not None]
    levels = [t.level for t in types if isinstance(t, CiphertextType)]
    assert levels == [3, 2, 1, 0, 0, 0]
    assert after.attributes["levels"] == 5
    assert after.attributes["bootstrap"] is True


def test_a_value_with_two_readers_is_refreshed_once() -> None:
    after = run_passes(packed("""%a = poly.square %x
        %b = poly.square %a
        %c = poly.square %b
        %d = poly.square %b
        %e = poly.mul %c, %d
        poly.output %e {name = "y"}"""), [PlaceBootstraps(levels=2)])  # fmt: skip
    assert [op.name for op in after.ops].count("ckks.bootstrap") == 1


def test_a_value_outside_the_range_of_a_bootstrap_is_not_refreshed() -> None:
    """%a is 3 at most, so the bootstrap moves to %b."""
    where = {}
    for largest in (0.5, 3.0):
        after = run_passes(packed(RESIDUAL, {"a": largest}), [PlaceBootstraps(levels=2)])
        (bootstrap,) = [op for op in after.ops if op.name == "ckks.bootstrap"]
        where[largest] = bootstrap.operands[0].op.operands[0].op.name
    assert where == {0.5: "ckks.input", 3.0: "ckks.square"}


def test_unseen_inputs_have_room_where_a_placement_leaves_it() -> None:
    """%a fills more of the range than it should, so the bootstrap moves; where all values do, one
    of them is bootstrapped all the same, but none that fills all of the range if another does not.
    """
    where = {}
    for name, magnitudes in {
        "one": {"a": 0.9},
        "all": dict.fromkeys("xabcd", 0.9),
        "least": {**dict.fromkeys("xacd", 1.0), "b": 0.9},
    }.items():
        after = run_passes(packed(RESIDUAL, magnitudes), [PlaceBootstraps(levels=2)])
        (bootstrap,) = [op for op in after.ops if op.name == "ckks.bootstrap"]
        where[name] = bootstrap.operands[0].op.attributes["holds"]
    assert where == {"one": "b", "all": "a", "least": "b"}


@pytest.mark.parametrize(("a", "b", "place"), [(5.0, 4.0, "b"), (4.0, 5.0, "a")])
def test_of_equal_placements_the_one_of_least_error_is_taken(
    a: float, b: float, place: str
) -> None:
    """Bootstraps of %c, %d and %x err less, but allow no placement: the search for the least limit
    on an error begins where there is none.
    """
    module = packed(RESIDUAL, {})
    gains = {"a": a, "b": b, "c": 1.0, "d": 2.0, "x": 3.0}
    for op in module.ops:
        if (name := str(op.attributes.get("holds", ""))) in gains:
            op.attributes["noise_gain"] = gains[name]
    after = run_passes(module, [PlaceBootstraps(levels=2, error=1.0)])
    (bootstrap,) = [op for op in after.ops if op.name == "ckks.bootstrap"]
    assert bootstrap.operands[0].op.attributes["holds"] == place


def test_where_every_place_is_outside_the_range() -> None:
    magnitudes = dict.fromkeys("xabcd", 3.0)
    with pytest.raises(AtlasError, match="would have to be bootstrapped") as caught:
        run_passes(packed(RESIDUAL, magnitudes), [PlaceBootstraps(levels=2)])
    assert "its magnitude is 3.0" in caught.value.why


@pytest.mark.parametrize(("square", "bootstraps", "seconds"), [(1.0, 2, 3.0), (0.0, 1, 0.0)])
def test_seconds_come_before_the_fewest_bootstraps(
    square: float, bootstraps: int, seconds: float
) -> None:
    """Bootstraps that cost nothing let every square run at level 1, where that saves seconds; else
    one is enough.
    """
    costs: dict[Any, float] = defaultdict(float, {("square", n): square * n for n in range(3)})
    report = Report()
    step = PlaceBootstraps(levels=2, costs=costs)
    after = step.run(packed(RESIDUAL), report)
    assert [op.name for op in after.ops].count("ckks.bootstrap") == bootstraps
    assert report.lines[0].startswith(f"{seconds:.1f} s predicted, {bootstraps} bootstraps")


def test_two_ciphertexts_share_a_bootstrap() -> None:
    """Nine features in blocks of three: three ciphertexts, refreshed by two bootstraps."""
    body = """%l = poly.linear %x {weight = @w9}
        %a = poly.square %l
        %b = poly.square %a
        poly.output %b {name = "y"}"""
    module = run_passes(poly(body, {"w9": np.ones((9, 3))}), [Pack(8)])
    counts = []
    for batch in (1, 2):
        report = Report()
        after = PlaceBootstraps(levels=2, batch=batch).run(module, report)
        assert after.attributes["bootstrap_batch"] == batch
        counts.append(program_costs(after).total.bootstraps)
        assert report.lines[0].startswith(f"{counts[-1]} bootstraps")
    assert counts == [3, 2]
    with pytest.raises(AtlasError, match="cannot be 0"):
        run_passes(module, [PlaceBootstraps(levels=2, batch=0)])


def test_a_program_that_does_not_fit_without_bootstraps() -> None:
    with pytest.raises(AtlasError):
        run_passes(packed(RESIDUAL), [PlaceBootstraps(levels=2, bootstrap=False)])


@pytest.mark.parametrize("levels", [0, -1])
def test_levels_that_allow_nothing(levels: int) -> None:
    with pytest.raises(AtlasError):
        run_passes(packed(RESIDUAL), [PlaceBootstraps(levels=levels)])


def test_bootstraps_are_placed_once() -> None:
    after = run_passes(packed(RESIDUAL), [PlaceBootstraps(levels=2)])
    with pytest.raises(AtlasError, match="is there already"):
        run_passes(after, [PlaceBootstraps(levels=2)])


def test_operands_of_every_op_are_at_one_level() -> None:
    body = """%l = poly.linear %x {weight = @w}
        %a = poly.chebyshev %l {coefficients = [0.0, 0.5, 0.25, 0.125], domain = [-1.0, 1.0]}
        %b = poly.mul %a, %l
        %c = poly.add %b, %x
        %m = poly.linear %c {weight = @w}
        %d = poly.chebyshev %m {coefficients = [0.0, 0.5, 0.25], domain = [-1.0, 1.0]}
        %e = poly.add %d, %c
        poly.output %e {name = "y"}
        poly.output %b {name = "z"}"""
    after = run_passes(packed(body), [PlaceBootstraps(levels=4)])
    for op in after.ops:
        levels = {v.type.level for v in op.operands if isinstance(v.type, CiphertextType)}
        assert len(levels) < 2


def test_rotation_keys_are_those_that_are_used() -> None:
    """16 slots: two copies of 4 places at stride 2, so the sum turns by 2 and 4."""
    module = packed("""%q = poly.square %x
        %s = poly.row_sum %q
        %y = poly.mul %x, %s
        poly.output %y {name = "y"}""")
    report = Report()
    placed = run_passes(module, [PlaceBootstraps(levels=3)])
    after = RotationKeys().run(placed, report)
    assert after.attributes["rotations"] == [[2, 1], [4, 1]]
    assert after.attributes["relinearization_level"] == 2
    assert key_plan(after) == KeyPlan({2: 1, 4: 1}, 2, None)
    assert report.lines == ["2 rotation keys, relinearization to level 2"]
    assert short(after) == short(placed)


def test_a_program_without_products_needs_no_keys() -> None:
    module = run_passes(packed('poly.output %x {name = "y"}'), [PlaceBootstraps(1), RotationKeys()])
    assert key_plan(module) == KeyPlan({}, None, None)


def test_a_narrow_bootstrap_is_placed_where_slots_repeat() -> None:
    """The sum over features is the same in all of them: its slots repeat."""
    body = """%a = poly.square %x
        %s = poly.row_sum %a
        %b = poly.mul %x, %s
        poly.output %b {name = "y"}"""
    costs: dict[Any, float] = defaultdict(float, {("bootstrap", 1): 5.0, ("bootstrap_one", 1): 5.0})
    costs["bootstrap_narrow", 1] = 2.0
    found = {}
    for narrow in (0, 2):
        report = Report()
        step = PlaceBootstraps(levels=1, costs=costs, error=0.25, narrow=narrow)
        after = step.run(packed(body), report)
        [found[narrow]] = [op for op in after.ops if op.name == "ckks.bootstrap"]
        assert report.lines[0].startswith(f"{2.0 if narrow else 5.0} s predicted, 1 bootstraps")
        total = program_costs(after).total
        assert (total.count("bootstrap_narrow"), total.bootstraps) == (narrow // 2, 1)
    assert "period" not in found[0].attributes
    layout = found[2].operands[0].ciphertext.layout
    assert found[2].attributes["period"] == layout.period < layout.slots


SHARED = """%a = poly.square %x
    %s = poly.row_sum %a
    %p = poly.chebyshev %s {coefficients = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8],
        domain = [-1.0, 1.0]}
    %y = poly.mul %x, %p
    poly.output %y {name = "y"}""".replace(",\n        ", ", ")


@pytest.mark.parametrize(
    ("levels", "rotation", "copies"), [(6, 0.2, 2), (5, 0.2, None), (6, 99.0, None)]
)
def test_copies_share_a_polynomial_where_that_saves_time(
    levels: int, rotation: float, copies: int | None
) -> None:
    """Not if a level is missing, nor if rotations cost more than products."""
    costs: dict[Any, float] = defaultdict(lambda: 0.1)
    costs |= {("rotate", at): rotation for at in range(levels + 1)}
    module = packed(SHARED)
    placement, nodes = (step := PlaceBootstraps(levels, False, costs=costs)).solve(module)
    after = run_passes(module, [step])
    [sum_] = [op for op in after.ops if op.name == "ckks.chebyshev"]
    assert sum_.attributes.get("copies") == copies
    assert sum_.value.ciphertext.level == 1
    assert ("copies = 2" in short(after)) == (copies == 2)
    counted = program_costs(after).total
    assert counted.seconds(costs) == pytest.approx(placement.cost)
    assert placement.others == ({nodes[module.ops[-3]]} if copies else set())
    assert program_costs(after).path.total == 5  # the level that a copy takes was left over


@pytest.mark.parametrize(("error", "shared"), [(1e-5, 1), (1e-2, 0)])
def test_copies_share_nothing_where_errors_matter(error: float, shared: int) -> None:
    """A bootstrap is cheap, and makes room for the level; but its error counts."""
    costs: dict[Any, float] = defaultdict(lambda: 0.1)
    module = packed(SHARED, {})
    for op in module.ops:
        op.attributes["noise_gain"] = 1.0
    after = run_passes(module, [PlaceBootstraps(levels=5, costs=costs, error=error)])
    assert sum("copies" in op.attributes for op in after.ops) == shared
    assert [op.name for op in after.ops].count("ckks.bootstrap") == shared


def test_copies_share_nothing_without_costs() -> None:
    after = run_passes(packed(SHARED), [PlaceBootstraps(levels=6)])
    assert not any("copies" in op.attributes for op in after.ops)


def test_a_period_must_fit_the_layout() -> None:
    body = """%a = poly.square %x
        %s = poly.row_sum %a
        %b = poly.mul %x, %s
        poly.output %b {name = "y"}"""
    step = PlaceBootstraps(levels=1, narrow=2)
    for name, periods in (("ckks.square", (1, 2, 4)), ("ckks.rotate_sum", (3, 0, -4, 16, 1))):
        module = run_passes(packed(body), [step])
        [op] = [op for op in module.ops if op.name == name]
        for period in periods:
            site = Site([op.value.type], {"level": 1, "period": period}, {})
            with pytest.raises(RuleError, match="do not repeat"):
                OPS["ckks.bootstrap"].infer(site)
