"""Noise gains against errors that were really added, and what placement makes of them."""

from __future__ import annotations

import numpy as np
import pytest
from short_text import poly
from small_transformers import Builder, Shape, approximate, inputs_for

from atlasc.analyses.observed import with_noise_gains
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module, Op
from atlasc.ir.opdef import Site
from atlasc.passes.framework.pass_base import Report, run_passes
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.place_bootstraps import DEARER, TOLERANCE, PlaceBootstraps
from atlasc.passes.pipeline import client_module, to_poly

ERROR = 1e-5
DRAWS = 40


def transformer(shape: Shape) -> tuple[Module, dict[str, np.ndarray]]:
    """A folded poly module with gains, and its inputs."""
    module, inputs = Builder(shape, 3).build(), inputs_for(shape, 4)
    approximate(module, inputs)
    _, folded = to_poly(module, inputs)
    return folded, {**inputs, **interpret(client_module(module), inputs)}


def shaken(module: Module, inputs: dict[str, np.ndarray], chosen: Op) -> float:
    """Change of the outputs by errors in the result of one op: root mean square, in their size."""
    rng, values = np.random.default_rng(0), {}
    exact = interpret(module, inputs, observe=values.__setitem__)
    right = values[chosen]
    change = 0.0

    def shake(op: Op, site: Site, arrays: list[np.ndarray]) -> np.ndarray | None:
        return values[op] if op is chosen else None

    for _ in range(DRAWS):
        values[chosen] = right + ERROR * rng.normal(size=right.shape)
        moved = interpret(module, inputs, override=shake)
        change += sum(float(np.square(moved[name] - exact[name]).sum()) for name in exact)
    size = sum(float(np.square(array).sum()) for array in exact.values())
    return float(np.sqrt(change / DRAWS / size))


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(Shape(layers=2, classes=0), marks=pytest.mark.deep("examples")),
        Shape(rms=True, causal=True),
    ],
)
def test_gains_tell_what_errors_do(shape: Shape) -> None:
    """Both are estimates: with other random numbers each differs by as much."""
    module, inputs = transformer(shape)
    values = [op for op in module.ops if op.result is not None]
    gains = [op.attributes.get("noise_gain", 0.0) for op in values]
    assert max(gains) > 100 * min(gain for gain in gains if gain > 0)
    # Where the first derivative vanishes, as by a softmax's invariance, the second one shows.
    ops = [op for op, gain in zip(values, gains, strict=True) if gain > max(gains) / 100]
    assert len(ops) > 30
    ratios = [op.attributes["noise_gain"] * ERROR / shaken(module, inputs, op) for op in ops]
    assert np.exp(np.mean(np.log(ratios))) == pytest.approx(1.0, abs=0.2)
    assert min(ratios) > 0.4
    assert max(ratios) < 2.5


def test_what_nobody_reads_has_no_gain() -> None:
    """Hidden states of padding tokens are no answers."""
    shape = Shape(batch=2, mask=True, classes=0)
    module, inputs = transformer(shape)
    last = [op for op in module.ops if op.result is not None][-1]
    kept = float(inputs["mask"].sum()) * shape.features
    (output,) = interpret(module, inputs).values()
    real = output * inputs["mask"][:, :, None]
    (end,) = module.outputs
    factor = np.asarray(end.site(module.symbols).constant("factor")) * np.ones(shape.features)
    gain = np.sqrt(kept * np.square(factor).mean() / np.square(real).sum())
    assert last.attributes["noise_gain"] == pytest.approx(gain, rel=0.02)


def test_an_output_says_what_a_change_is_in_its_own_units() -> None:
    module, inputs = transformer(Shape())
    (output,) = module.outputs
    (answer,) = interpret(module, inputs).values()
    size = np.sqrt(np.square(answer).mean())
    # At least that of all inputs together, at most that of one that errors change alone.
    assert 0.98 * size <= output.attributes["noise_gain"] <= np.sqrt(len(answer)) * size * 1.02


def chain(gains: dict[str, float], means: dict[str, float] | None = None) -> Module:
    """Six squares, one after the other, on packed values."""
    body = "\n".join(
        f"%{new} = poly.square %{old}" for old, new in zip("xabcde", "abcdef", strict=True)
    )
    module = poly(f'{body}\npoly.output %f {{name = "y"}}')
    for op in module.ops:
        if op.result is not None:
            op.attributes["magnitude"] = 0.9
            op.attributes["noise_gain"] = gains.get(op.result.name, 1.0)
            op.attributes["mean"] = (means or {}).get(op.result.name, 0.0)
    return run_passes(module, [Pack(16)])


def bootstrapped(module: Module, **options: float) -> tuple[list[int], Report]:
    """Positions, among the squares, of those whose results are bootstrapped."""
    report = Report()
    placed = PlaceBootstraps(levels=4, **options).run(module, report)  # type: ignore[arg-type]
    squares = [op.result for op in placed.ops if op.name == "ckks.square"]
    refreshed = [op.operands[0] for op in placed.ops if op.name == "ckks.bootstrap"]
    return [squares.index(value) for value in refreshed], report


def test_a_bootstrap_moves_to_where_its_error_does_less() -> None:
    """Levels run out after %d, and the cheapest place is as late as can be."""
    loud = {"d": 500.0, "c": 400.0, "b": 20.0}
    assert bootstrapped(chain(loud))[0] == [3]
    places, report = bootstrapped(chain(loud), error=ERROR)
    assert places == [1]
    assert "errors of bootstraps change the outputs by 2.0e-04 of their size" in report.lines


def test_a_mean_counts_as_an_error() -> None:
    means = {"d": 0.9, "c": 0.1}
    assert bootstrapped(chain({}, means), error=ERROR)[0] == [3]
    assert bootstrapped(chain({}, means), error=ERROR, cubic=2 * TOLERANCE)[0] == [1]


def test_what_is_loud_everywhere_goes_where_it_is_least() -> None:
    """More than the tolerance, and no dearer than allowed."""
    assert DEARER < 2  # two bootstraps instead of one
    loud = {"b": 900.0, "c": 700.0, "d": 800.0}
    assert bootstrapped(chain(loud), error=ERROR)[0] == [2]


def test_without_gains_nothing_changes() -> None:
    module = poly('%a = poly.square %x\n%b = poly.square %a\npoly.output %b {name = "y"}')
    packed = run_passes(module, [Pack(16)])
    one = run_passes(packed, [PlaceBootstraps(levels=1)])
    other = run_passes(packed, [PlaceBootstraps(levels=1, error=ERROR)])
    assert [str(op) for op in one.ops] == [str(op) for op in other.ops]


def test_gains_of_a_short_answer_are_exact() -> None:
    """Derivatives of elements that share operands, which random signs would mix."""
    weight = np.random.default_rng(0).normal(size=(4, 3))
    body = '%a = poly.linear %x {weight = @w}\npoly.output %a {name = "y"}'
    x = np.random.default_rng(1).normal(size=(5, 2, 3))
    gained = with_noise_gains(poly(body, {"w": weight}, x.shape), {"x": x})
    jacobian = np.sqrt(x[..., 0].size * np.square(weight).sum())
    expected = jacobian / np.sqrt(np.square(x @ weight.T).sum())
    assert gained.inputs[0].attributes["noise_gain"] == float(f"{expected:.2g}")


def test_gains_of_nothing() -> None:
    """Outputs that are all zero have no size to compare with."""
    module = poly('%a = poly.scale %x {factor = 0.0}\npoly.output %a {name = "y"}')
    gained = with_noise_gains(module, {"x": np.ones((1, 2, 3))})
    assert all("noise_gain" not in op.attributes for op in gained.ops)
