"""gather-sums: IR text in, IR text out; the program means the same."""

from __future__ import annotations

import numpy as np
import pytest
from short_text import dedent, module_of, short

from atlasc.ir.errors import AtlasError
from atlasc.ir.layout import Layout
from atlasc.ir.module import Module
from atlasc.passes.framework.pass_base import Report, run_passes
from atlasc.passes.lowering.gather_sums import GatherSums
from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
from atlasc.program.costs import critical_path, program_costs
from atlasc.program.execute import execute
from atlasc.targets.sim import SimEngine

THREE = "[s:3 g:1 b:0 t:1 | g.1:2 | b=1 g=5 s=8 t=2]"
"""Five heads, two in a ciphertext of 32 slots: three ciphertexts."""
SUMS = "[*:3 g:1 b:0 t:1 | g.1:2 | b=1 g=5 t=2]"
ITERATION = """%s = ckks.rotate_sum %x {axes = ["s"]}
    %a = ckks.add_plain %s {value = -0.25}
    %p = ckks.chebyshev %a {coefficients = [0.5, 0.5, 0.25]}
    %y = ckks.mul %x, %p
    ckks.output %y {name = "y", shape = SHAPE}"""


def program(body: str, layout: str = THREE, shape: list[int] | None = None) -> Module:
    shape = shape or list(Layout.parse(layout).shape)
    entry = f'%x = ckks.input {{name = "x", layout = "{layout}", shape = {shape}}}'
    body = body.replace("SHAPE", str(shape))
    module = module_of("ckks", f"{entry}\n{body}")
    module.attributes["slots"] = Layout.parse(layout).slots
    return module


def run(module: Module, slots: np.ndarray) -> np.ndarray:
    levels = critical_path(module).total
    engine = SimEngine(module.attributes["slots"], levels)
    encrypted = {"x": [engine.encrypt(vector) for vector in slots]}
    result = execute(engine, module, encrypted)["y"]
    return np.stack([engine.decrypt(ciphertext) for ciphertext in result])


def test_a_polynomial_of_sums_runs_once() -> None:
    module, report = program(ITERATION), Report()
    after = GatherSums().run(module, report)
    assert short(after) == dedent(f"""
        %s = ckks.rotate_sum %x {{axes = ["s"]}}
        %0 = ckks.gather %s
        %1 = ckks.add_plain %0 {{value = -0.25}}
        %2 = ckks.chebyshev %1 {{coefficients = [0.5, 0.5, 0.25]}}
        %3 = ckks.spread %2 {{layout = "{SUMS}"}}
        %y = ckks.mul %x, %3
        ckks.output %y {{name = "y", shape = [1, 5, 8, 2]}}""")
    assert report.lines == ["1 sums are brought into one ciphertext each"]
    assert critical_path(after).total == critical_path(module).total + 2
    x = np.random.default_rng(0).uniform(-0.1, 0.1, (3, 32))
    np.testing.assert_allclose(run(after, x), run(module, x), atol=1e-12)


LOW = "[t:1 b:0 s:3 g:1 | g.1:2 | b=1 g=5 s=8 t=2]"
"""The same with features in the low bits."""
LOW_SUMS = LOW.replace("s:3", "*:3").replace("s=8 ", "")
COPIED = f"""%i = ckks.mul_plain %s {{value = 1.0, only_first = true}}
    %c = ckks.replicate %i {{layout = "{LOW_SUMS}"}}
    %a = ckks.add_plain %c"""
LOW_ITERATION = ITERATION.replace("%a = ckks.add_plain %s", COPIED)


def test_sums_in_the_low_bits_are_gathered_before_they_are_copied() -> None:
    """The mask that a copy would take is the mask of its place."""
    module = program(LOW_ITERATION, LOW)
    after = run_passes(module, [GatherSums()])
    assert short(after) == dedent(f"""
        %s = ckks.rotate_sum %x {{axes = ["s"]}}
        %0 = ckks.gather %s
        %1 = ckks.add_plain %0 {{value = -0.25}}
        %2 = ckks.chebyshev %1 {{coefficients = [0.5, 0.5, 0.25]}}
        %3 = ckks.spread %2 {{layout = "{LOW_SUMS}"}}
        %y = ckks.mul %x, %3
        ckks.output %y {{name = "y", shape = [1, 5, 8, 2]}}""")
    assert critical_path(after).total == critical_path(module).total + 1
    x = np.random.default_rng(0).uniform(-0.1, 0.1, (3, 32))
    np.testing.assert_allclose(run(after, x), run(module, x), atol=1e-12)


TOKENS = "[t:2 b:1 d:1 g:1 | g.1:2 | b=2 g=5 t=4 d=2]"
ROW_SUMS = "[*:2 b:1 *:1 g:1 | g.1:2 | b=2 g=5]"
ONE_TOKEN = f"""%t = ckks.select %x {{layout_axis = "t", index = 0}}
    %u = ckks.mul_plain %t {{value = 1.0, only_first = true}}
    %r = ckks.replicate %u {{layout = "{TOKENS.replace("t:2", "*:2").replace(" t=4", "")}"}}
    %s = ckks.rotate_sum %r {{axes = ["d"]}}"""
"""One token in the slots of four: a sum over its features leaves two fields that hold copies."""


def test_a_sum_whose_copies_are_not_the_room_for_ciphertexts_is_copied_first() -> None:
    """Features hold the sum in their first slot alone; ciphertexts move into the tokens' slots."""
    module = program(f"""{ONE_TOKEN}
        %i = ckks.mul_plain %s {{value = 1.0, only_first = true}}
        %c = ckks.replicate %i {{layout = "{ROW_SUMS}"}}
        %p = ckks.chebyshev %c {{coefficients = [0.5, 0.5, 0.25]}}
        %y = ckks.mul %r, %p
        ckks.output %y {{name = "y", shape = [2, 10]}}""", TOKENS, [2, 4, 10])  # fmt: skip
    after = run_passes(module, [GatherSums()])
    names = [op.name.removeprefix("ckks.") for op in after.ops]
    assert names[-7:] == [
        *("mul_plain", "replicate", "gather", "chebyshev", "spread", "mul", "output")
    ]  # fmt: skip
    x = np.random.default_rng(0).uniform(-0.1, 0.1, (3, 32))
    np.testing.assert_allclose(run(after, x), run(module, x), atol=1e-12)


def test_other_unused_slots_are_refused() -> None:
    with pytest.raises(AtlasError, match="unused slots that are not room for ciphertexts"):
        program(f"{ONE_TOKEN}\n%g = ckks.gather %s", TOKENS, [2, 4, 10])


@pytest.mark.parametrize(("iteration", "layout"), [(ITERATION, THREE), (LOW_ITERATION, LOW)])
def test_a_place_without_a_ciphertext_stays_in_the_range(iteration: str, layout: str) -> None:
    """Three ciphertexts in four places: where a zero would be, the polynomial is told the first."""
    after = run_passes(program(iteration, layout), [GatherSums()])
    engine, seen = SimEngine(32, 8), {}
    slots = np.random.default_rng(1).uniform(0.1, 0.2, (3, 32))
    encrypted = {"x": [engine.encrypt(vector) for vector in slots]}
    execute(engine, after, encrypted, observe=lambda op, values: seen.update({op.name: values}))
    (gathered,) = seen["ckks.gather"]
    assert engine.decrypt(gathered).min() > 0.5


def test_arithmetic_of_gathered_values_stays_in_one_ciphertext() -> None:
    """A Newton step: 1/x by x and a first guess."""
    after = run_passes(program("""%s = ckks.rotate_sum %x {axes = ["s"]}
        %p = ckks.chebyshev %s {coefficients = [0.5, 0.5, 0.25]}
        %m = ckks.mul %s, %p
        %n = ckks.sub %p, %m
        %d = ckks.double %n {times = 1}
        %q = ckks.square %d
        %z = ckks.mul %x, %q
        %w = ckks.mul %z, %s
        ckks.output %w {name = "y", shape = SHAPE}"""), [GatherSums()])  # fmt: skip
    names = [op.name.removeprefix("ckks.") for op in after.ops]
    assert names == [
        *("input", "rotate_sum", "gather", "chebyshev", "mul", "sub", "double", "square"),
        *("spread", "mul", "mul", "output"),
    ]  # fmt: skip
    assert after.ops[-2].operands[1].op.name == "ckks.rotate_sum"


@pytest.mark.parametrize(
    ("layout", "why"),
    [
        ("[s:3 g:1 b:0 t:1 |  | b=1 g=2 s=8 t=2]", "one ciphertext is all there is"),
        ("[s:1 g:1 b:0 t:1 | g.1:2 | b=1 g=5 s=2 t=2]", "two copies do not make room for three"),
    ],
)
def test_sums_that_stay(layout: str, why: str) -> None:
    module = program(ITERATION, layout)
    assert short(run_passes(module, [GatherSums()])) == short(module), why


def test_a_sum_that_no_polynomial_reads_stays() -> None:
    module = program("""%s = ckks.rotate_sum %x {axes = ["s"]}
        %y = ckks.mul %x, %s
        ckks.output %y {name = "y", shape = SHAPE}""")
    assert short(run_passes(module, [GatherSums()])) == short(module)


def test_one_bootstrap_refreshes_the_sums_of_all_heads() -> None:
    """Two squares leave no level of four for the product; three ciphertexts are two bootstraps."""
    squares = """%0 = ckks.square %x
        %1 = ckks.square %0"""
    module = program(f"{squares}\n{ITERATION.replace('rotate_sum %x', 'rotate_sum %1')}")
    bootstraps = []
    for steps in ([], [GatherSums()]):
        placed = run_passes(module, [*steps, PlaceBootstraps(4, True, 2)])
        bootstraps.append(program_costs(placed).total.bootstraps)
    assert bootstraps == [2, 1]
