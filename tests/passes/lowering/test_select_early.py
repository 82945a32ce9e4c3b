"""select-early: IR text in, IR text out; the outputs stay what they are."""

from __future__ import annotations

import numpy as np
import pytest
from packed import run_packed
from short_text import dedent, poly, short
from small_transformers import Builder, Shape

from atlasc.calibration.calibrate import nominal_calibration
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.passes.approximation.approximate import apply_recipe
from atlasc.passes.framework.pass_base import Cost, Report, run_passes
from atlasc.passes.lowering.gather_sums import GatherSums
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
from atlasc.passes.lowering.select_early import SelectEarly
from atlasc.passes.pipeline import to_poly
from atlasc.program.costs import critical_path, program_costs
from atlasc.targets.sim import SimEngine

RANDOM = np.random.default_rng(0)
ARRAYS = {
    "w": 0.3 * RANDOM.normal(size=(6, 6)),
    "up": 0.3 * RANDOM.normal(size=(20, 6)),
    "down": 0.3 * RANDOM.normal(size=(6, 20)),
    "places": RANDOM.normal(size=(3, 6)),
    "cos": RANDOM.normal(size=(3, 2)),
    "sin": RANDOM.normal(size=(3, 2)),
}
X = {"x": RANDOM.normal(size=(1, 3, 6)), "mask": np.array([[1.0, 0, 1]])}
ATTENTION = """%q = poly.linear %x {weight = @w}
    %h = poly.reshape %q {shape = [1, 3, 3, 2]}
    %t = poly.transpose %h {permutation = [0, 2, 1, 3]}
    %r = poly.rotary %t {cos = @cos, sin = @sin}
    %k = poly.linear %x {weight = @w}
    %i = poly.reshape %k {shape = [1, 3, 3, 2]}
    %u = poly.transpose %i {permutation = [0, 2, 1, 3]}
    %s = poly.matmul %r, %u {transpose_b = true}
    %f = poly.mask_fill %s {causal = true, fill = -1.0}
    %e = poly.square %f
    %z = poly.mask_zero %e {causal = true, value = 1.0}
    %n = poly.row_sum %z
    %p = poly.mul %z, %n
    %o = poly.matmul %p, %u {transpose_b = false}
    %v = poly.transpose %o {permutation = [0, 2, 1, 3]}
    %m = poly.reshape %v {shape = [1, 3, 6]}
    %l = poly.linear %m {weight = @w}
    %a = poly.add %l, %x"""


def early(body: str) -> Module:
    """The rewritten module; it means what it meant."""
    module = poly(body, ARRAYS, (1, 3, 6))
    after = run_passes(module, [SelectEarly()])
    wanted = interpret(module, X)
    for name, array in interpret(after, X).items():
        np.testing.assert_allclose(array, wanted[name], rtol=0, atol=1e-12)
    return after


def test_only_the_query_of_attention_is_selected() -> None:
    after = early(f"""{ATTENTION}
        %y = poly.select %a {{axis = 1, index = 1}}
        poly.output %y {{name = "y"}}""")
    assert short(after) == dedent("""
        %0 = poly.select %x {axis = 1, index = 1}
        %1 = poly.linear %0 {weight = @w}
        %2 = poly.reshape %1 {shape = [1, 1, 3, 2]}
        %3 = poly.transpose %2 {permutation = [0, 2, 1, 3]}
        %4 = poly.rotary %3 {cos = @cos.row, sin = @sin.row}
        %k = poly.linear %x {weight = @w}
        %i = poly.reshape %k {shape = [1, 3, 3, 2]}
        %u = poly.transpose %i {permutation = [0, 2, 1, 3]}
        %5 = poly.matmul %4, %u {transpose_b = true}
        %6 = poly.mask_fill %5 {causal = true, fill = -1.0, query = 1}
        %7 = poly.square %6
        %8 = poly.mask_zero %7 {causal = true, value = 1.0, query = 1}
        %9 = poly.row_sum %8
        %10 = poly.mul %8, %9
        %11 = poly.matmul %10, %u {transpose_b = false}
        %12 = poly.transpose %11 {permutation = [0, 2, 1, 3]}
        %13 = poly.reshape %12 {shape = [1, 6]}
        %14 = poly.linear %13 {weight = @w}
        %15 = poly.add %14, %0
        poly.output %15 {name = "y"}""")
    assert after.symbols["cos.row"].tolist() == ARRAYS["cos"][1:2].tolist()


def test_what_all_tokens_are_read_of_is_selected_from() -> None:
    after = early("""%a = poly.add_constant %x {value = @places}
        %b = poly.square %a
        %c = poly.center %b
        %m = poly.mean %b {axis = 1}
        %y = poly.select %c {axis = 1, index = 2}
        poly.output %m {name = "m"}
        poly.output %y {name = "y"}""")
    assert short(after) == dedent("""
        %a = poly.add_constant %x {value = @places}
        %b = poly.square %a
        %0 = poly.select %b {axis = 1, index = 2}
        %1 = poly.center %0
        %m = poly.mean %b {axis = 1}
        poly.output %m {name = "m"}
        poly.output %1 {name = "y"}""")


def test_two_tokens_are_two_rows_of_what_both_need() -> None:
    after = early("""%a = poly.add_constant %x {value = @places}
        %l = poly.linear %a {weight = @up}
        %e = poly.chebyshev %l {coefficients = [0.5, 0.25], domain = [-9.0, 9.0]}
        %y = poly.select %e {axis = 1, index = 0}
        %z = poly.select %e {axis = 1, index = 2}
        poly.output %y {name = "y"}
        poly.output %z {name = "z"}""")
    names = [op.name.removeprefix("poly.") for op in after.ops]
    one = ["select", "add_constant", "linear", "chebyshev"]
    assert sorted(names) == sorted(["input", *one, *one, "output", "output"])
    assert {tuple(array.shape) for name, array in after.symbols.items() if "places" in name} == {
        (6,)
    }


@pytest.mark.parametrize(
    "body",
    [
        "%y = poly.mean %x {axis = 1}",
        "%y = poly.select %x {axis = 1, index = 1}",
        "%a = poly.square %x\n%y = poly.select %a {axis = 2, index = 1}",
        "%a = poly.transpose %x {permutation = [0, 2, 1]}\n"
        "%y = poly.select %a {axis = 1, index = 1}",
    ],
)
def test_programs_that_stay(body: str) -> None:
    module = poly(f'{body}\npoly.output %y {{name = "y"}}', ARRAYS, (1, 3, 6))
    report = Report()
    after = SelectEarly().run(module, report)
    assert [op.name for op in after.ops] == [op.name for op in module.ops]
    assert report.lines == ["0 ops are computed for one token"]


def test_a_magnitude_stays_a_bound() -> None:
    after = early("""%a = poly.square %x {magnitude = 0.75}
        %b = poly.double %a {times = 1, magnitude = 0.5}
        %m = poly.mean %a {axis = 1}
        %y = poly.select %b {axis = 1, index = 0}
        poly.output %m {name = "m"}
        poly.output %y {name = "y"}""")
    found = {op.name: op.attributes.get("magnitude") for op in after.ops}
    assert found["poly.select"] == 0.75
    assert found["poly.double"] == 0.5


@pytest.mark.parametrize("slots", [8, 16, 32, 128])
def test_one_row_is_one_ciphertext(slots: int) -> None:
    """Blocks of two features: ten of them in the hidden layer, which would be up to ten
    ciphertexts of all tokens.
    """
    after = early(f"""{ATTENTION}
        %c = poly.linear %a {{weight = @up}}
        %d = poly.chebyshev %c {{coefficients = [0.5, 0.25, 0.125], domain = [-1.0, 1.0]}}
        %g = poly.linear %d {{weight = @down}}
        %b = poly.square %g
        %j = poly.row_sum %b
        %w = poly.mul %g, %j
        %y = poly.select %w {{axis = 1, index = 2}}
        poly.output %y {{name = "y"}}""")
    packed = run_passes(after, [Pack(slots)])
    result = run_packed(packed, X, SimEngine(slots, critical_path(packed).total))
    np.testing.assert_allclose(result["y"], interpret(after, X)["y"], atol=1e-9)
    widths = [op.value.ciphertext.ciphertexts for op in packed.ops if op.name == "ckks.chebyshev"]
    assert widths == [max(1, 10 // (slots // 2) + (10 % (slots // 2) > 0))]


def test_the_last_block_of_bert_for_a_classifier() -> None:
    """The figures of docs/kernels.md: BERT-base, 128 tokens, the recipe `is`."""
    shape = Shape(1, 128, 12, 64, 3072, layers=2, pre_norm=False, mask=True)
    module = Builder(shape, 0).build()
    module.symbols = {
        name: np.broadcast_to(np.float64(0.01), array.shape)
        for name, array in module.symbols.items()
    }
    poly = to_poly(apply_recipe(module, "is", nominal_calibration(module)))[1]
    found = []
    for steps in ([], [SelectEarly()]):
        packed = run_passes(poly, [*steps, Pack(32768), *([] if steps else [GatherSums()])])
        placed = run_passes(packed, [PlaceBootstraps(14, True, 2)])
        counts = program_costs(placed).by(lambda op: op.layer)[1]
        found.append((counts.bootstraps, counts.key_switches, counts.ciphertext_products))
    assert found == [(12, 2095, 927), (9, 817, 251)]


@pytest.mark.parametrize(("cost", "kept"), [((1.0, 4), True), ((2.0, 3), True), ((2.0, 4), False)])
def test_it_is_kept_where_the_program_costs_no_more(cost: Cost, kept: bool) -> None:
    """The bootstraps count first, then the levels."""
    assert SelectEarly().pays(cost, lambda: (2.0, 3), None) is kept
