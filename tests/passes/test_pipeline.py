"""The pipeline as a list: declarations that fit each other, and everything that reads the list."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path

import pytest
from small_transformers import Builder, Shape, approximate, inputs_for

from atlasc.analyses.bounds import with_bounds
from atlasc.compilation.lowering import lower_module
from atlasc.compilation.options import TargetOptions
from atlasc.compilation.single_stages import inspect_module
from atlasc.compilation.stage_options import InspectOptions
from atlasc.ir.errors import AtlasError
from atlasc.ir.facts import ANALYSES, KEY_PLAN, MAGNITUDES, NOISE_GAINS
from atlasc.ir.module import Module
from atlasc.passes import pipeline
from atlasc.passes.framework.pass_base import (
    Pass,
    Report,
    is_option,
    run_passes,
)
from atlasc.passes.pipeline import (
    COMPUTE,
    FOLDING,
    LOWERING,
    PIPELINE,
    to_poly,
)
from atlasc.passes.registry import TABLE_MARKS as MARKS
from atlasc.passes.registry import describe, passes, passes_table, with_passes_table
from atlasc.progress import steps_of

ARCHITECTURE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"


def test_every_pass_takes_what_the_one_before_it_gives() -> None:
    for before, after in pairwise(PIPELINE):
        assert after.takes == (before.gives or before.takes), after.name
    assert list(passes())[: len(PIPELINE)] == [kind.name for kind in PIPELINE]


def test_what_runs_by_itself_is_split_at_the_first_choice() -> None:
    chosen = [kind for kind in PIPELINE if kind.when != "settings"]
    assert [*FOLDING, *LOWERING] == chosen
    assert all(kind.when == "always" for kind in FOLDING)
    assert LOWERING[0].when == "cheaper"


def test_analyses_can_be_computed_before_they_are_needed() -> None:
    for analysis in (MAGNITUDES, NOISE_GAINS):
        users = [at for at, kind in enumerate(PIPELINE) if analysis in kind.needs]
        assert users, analysis.name
        for user in users:  # on the way back to a module of its level no pass loses it
            at = user
            while PIPELINE[at].takes != analysis.level:
                at -= 1
                assert analysis in PIPELINE[at].keeps, (analysis.name, PIPELINE[at].name)
    assert set(COMPUTE) | {KEY_PLAN} == set(ANALYSES)
    assert KEY_PLAN in PIPELINE[-1].makes


def test_data_are_no_options() -> None:
    for kind in PIPELINE:
        listed = describe(kind)[0]
        for field in fields(kind):  # type: ignore[arg-type]
            assert (f"{field.name.replace('_', '-')}=" in listed) == is_option(field)
    assert "costs" not in describe(passes()["place-bootstraps"])[0]
    assert "model" not in describe(passes()["rotation-keys"])[0]


def test_the_documents_show_the_list() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    assert with_passes_table(text) == text, "python -m atlasc.passes.registry docs/architecture.md"
    assert text.count(MARKS[0]) == text.count(MARKS[1]) == 1
    assert all(f"[`{name}`]" in passes_table() for name in passes())


@dataclass(frozen=True)
class Forgetful(Pass):
    """Returns the module as it is."""

    name = "forgetful"
    takes = "poly"
    keeps = (MAGNITUDES,)

    def run(self, module: Module, report: Report) -> Module:
        return module


@pytest.mark.parametrize("analysis", ANALYSES)
def test_what_a_pass_does_not_keep_is_removed(analysis) -> None:
    module = Module("m", "poly", attributes=dict.fromkeys(analysis.of_module, 1))
    entry = {"name": "x", "shape": [1, 2], "side": "server", "dtype": "f64"}
    facts = {name: "x" if name == "holds" else 0.5 for name in analysis.of_ops}
    x = module.add("poly.input", [], {**entry, **facts})
    module.add("poly.output", [x], {"name": "y"})
    after = run_passes(module, [Forgetful()])
    assert analysis.is_known(module)
    assert analysis.is_known(after) == (analysis is MAGNITUDES)
    assert after.ops[0].attributes["name"] == "x"


def test_a_pass_that_forgets_what_calibration_told_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After packing nothing can compute it again."""

    @dataclass(frozen=True)
    class Late(Forgetful):
        name = "late"
        takes = "ckks"

    module, inputs = Builder(Shape(pre_norm=False), 0).build(), inputs_for(Shape(), 1)
    approximate(module, inputs)
    at = LOWERING.index(passes()["gather-sums"])
    monkeypatch.setattr(pipeline, "LOWERING", [*LOWERING[:at], Late, *LOWERING[at:]])
    with pytest.raises(AtlasError, match="the pass late does not keep the noise gains") as caught:
        lower_module(module, inputs, TargetOptions(target="sim"))
    assert "keeps = (MAGNITUDES, NOISE_GAINS)" in (caught.value.remedy or "")


def test_a_bootstrapped_op_that_tells_nothing_is_named() -> None:
    """A pass that keeps the magnitudes, and makes an op without them."""
    module, inputs = Builder(Shape(layers=2, pre_norm=False), 0).build(), inputs_for(Shape(), 1)
    approximate(module, inputs)
    lowered = lower_module(module, inputs, TargetOptions(target="sim"))
    (refreshed, *_) = (op for op in lowered.program.ops if op.name == "ckks.bootstrap")
    source = refreshed.operands[0].op
    del source.attributes["holds"]
    with pytest.raises(AtlasError, match=f"{source.name} %{source.value.name} is bootstrapped"):
        with_bounds(lowered.poly, lowered.program, inputs)


@pytest.mark.parametrize("layers", [1, 2])
def test_passes_are_never_more_than_their_total(layers: int) -> None:
    """Passes that are kept by their cost count too."""
    shape = Shape(layers=layers, pre_norm=False, classes=3)
    module, inputs = Builder(shape, 0).build(), inputs_for(shape, 1)
    approximate(module, inputs)
    seen: list[tuple[int, int | None]] = []
    steps = steps_of(lambda what, done, total: seen.append((done, total)))
    lower_module(module, inputs, TargetOptions(target="sim"), steps)
    inspect_module(to_poly(module)[1], InspectOptions(target="sim"), steps)
    totals = [(done, total) for done, total in seen if total is not None]
    assert len(totals) > 9 and all(0 <= done <= total for done, total in totals)
    assert any(done == total for done, total in totals)
