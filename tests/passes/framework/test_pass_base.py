"""Pipelines as text, reports, and the verifier behind every pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import LEVELS, Module
from atlasc.ir.types import TensorType
from atlasc.passes.framework.pass_base import (
    Pass,
    Report,
    levels_of,
    parse_pipeline,
    run_passes,
)


@dataclass(frozen=True)
class Plain(Pass):
    """A pass without options."""

    name: ClassVar[str] = "plain"
    takes = "poly"

    def run(self, module: Module, report: Report) -> Module:
        report.say("nothing to do")
        return module


@dataclass(frozen=True)
class Tuned(Pass):
    """A pass with options of every kind."""

    name: ClassVar[str] = "tuned-2"
    takes = "poly"
    slot_count: int = 8
    ratio: float = 0.5
    deep: bool = False
    limit: int | None = None
    bound: float | None = 1.0
    label: str = "a"

    def run(self, module: Module, report: Report) -> Module:
        return module


@dataclass(frozen=True)
class Spoil(Pass):
    """A pass with a fault: it leaves a wrong type behind."""

    name: ClassVar[str] = "spoil"
    takes = "poly"

    def run(self, module: Module, report: Report) -> Module:
        module.ops[0].value.type = TensorType((9,))
        return module


AVAILABLE: dict[str, type[Pass]] = {kind.name: kind for kind in (Plain, Tuned, Spoil)}


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("", []),
        ("  ", []),
        ("plain", [Plain()]),
        (" plain , tuned-2 ", [Plain(), Tuned()]),
        ("tuned-2{}", [Tuned()]),
        ("tuned-2{slot-count=-3},plain", [Tuned(slot_count=-3), Plain()]),
        ("tuned-2{ slot_count = 4 , deep=true}", [Tuned(slot_count=4, deep=True)]),
        ("tuned-2{ratio=1e-3,limit=7,bound=none}", [Tuned(ratio=1e-3, limit=7, bound=None)]),
        ("tuned-2{limit=none,deep=False,label=b c}", [Tuned(label="b c")]),
    ],
)
def test_pipelines(text: str, passes: list[Pass]) -> None:
    assert parse_pipeline(text, AVAILABLE) == passes


def test_the_text_of_a_pass_reads_back() -> None:
    for step in (Plain(), Tuned(slot_count=3, ratio=1e-9, deep=True, limit=4, bound=None)):
        assert parse_pipeline(str(step), AVAILABLE) == [step]
    assert str(Plain()) == "plain"


@pytest.mark.parametrize(
    ("text", "message", "where"),
    [
        ("plain,,plain", "cannot read the pipeline at ',plain'", "column 7"),
        ("plain plain", "cannot read the pipeline", "column 1"),
        ("Plain", "cannot read the pipeline", "column 1"),
        ("plain,tuned-2{deep=true", "cannot read the pipeline at 'tuned-2{deep=true'", "column 7"),
        ("plain,tuned-2{deep={}}", "cannot read the pipeline", "column 7"),
        ("plain,", "the pipeline ends with a comma", "column 6"),
        ("plane", "there is no pass 'plane'", ""),
        ("plain{x=1}", "pass plain has no option 'x'", ""),
        ("tuned-2{name=x}", "pass tuned-2 has no option 'name'", ""),
        ("tuned-2{slot-count=2.5}", "option slot-count of pass tuned-2 cannot be '2.5'", ""),
        ("tuned-2{slot-count=none}", "option slot-count of pass tuned-2 cannot be 'none'", ""),
        ("tuned-2{slot-count}", "option slot-count of pass tuned-2 cannot be ''", ""),
        ("tuned-2{ratio=half}", "option ratio of pass tuned-2 cannot be 'half'", ""),
        ("tuned-2{ratio=nan}", "option ratio of pass tuned-2 cannot be 'nan'", ""),
        ("tuned-2{deep=1}", "option deep of pass tuned-2 cannot be '1'", ""),
        ("tuned-2{limit=x}", "option limit of pass tuned-2 cannot be 'x'", ""),
        ("tuned-2{deep=true,deep=false}", "option deep of pass tuned-2 is given twice", ""),
    ],
)
def test_faults_of_a_pipeline(text: str, message: str, where: str) -> None:
    with pytest.raises(AtlasError) as caught:
        parse_pipeline(text, AVAILABLE)
    assert message in caught.value.what
    assert where in caught.value.where


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("pack{most-sums=0}", "1 to"),
        ("place-bootstraps{levels=-1}", "0 to 1000"),
        ("place-bootstraps{levels=1000000}", "0 to 1000"),
        ("place-bootstraps{batch=0}", "1 to"),
        ("place-bootstraps{error=-0.5}", "0 or more"),
        ("place-bootstraps{lowest=-1}", "0 to 1000"),
        ("place-bootstraps{lanes=0}", "1 to"),
    ],
)
def test_a_number_has_bounds(text: str, why: str) -> None:
    """Nobody is told of a bug in a pass, or waits for memory, because of a number."""
    from atlasc.passes.registry import passes

    name, option = text.rstrip("}").replace("=", "{").split("{")[:2]
    with pytest.raises(AtlasError, match=f"option {option} of pass {name} cannot be") as caught:
        parse_pipeline(text, passes())
    assert why in caught.value.why


def test_each_pass_refuses_modules_of_other_levels() -> None:
    """From Python as from `atlasc opt`: no pass reads attributes that its module does not have."""
    from atlasc.passes.registry import passes

    modules = {level: Module("m", level) for level in LEVELS}
    for name, kind in passes().items():
        for level in set(LEVELS) - set(levels_of(kind)):
            with pytest.raises(AtlasError, match=f"^{name} works on .* at the {level} level"):
                run_passes(modules[level], [kind()])
    with pytest.raises(AtlasError, match="no attribute slots"):
        run_passes(modules["ckks"], [passes()["rotation-keys"]()])


def test_every_registered_pass_has_a_text() -> None:
    from atlasc.passes.registry import passes

    for name, kind in passes().items():
        assert parse_pipeline(name, passes()) == [kind()]
        assert parse_pipeline(str(kind()), passes()) == [kind()]


def program() -> Module:
    module = Module("m", "poly")
    entry = {"name": "x", "shape": [1, 2], "side": "server", "dtype": "f64"}
    x = module.add("poly.input", [], entry)
    module.add("poly.output", [x], {"name": "y"})
    return module


def test_passes_run_in_order_and_report() -> None:
    seen: list[tuple[str, list[str]]] = []
    run_passes(
        program(),
        [Plain(), Tuned()],
        after_each=lambda step, module, report: seen.append((step.name, report.lines)),
    )
    assert seen == [("plain", ["nothing to do"]), ("tuned-2", [])]


def test_the_verifier_names_the_pass_that_spoiled_a_module() -> None:
    with pytest.raises(AtlasError, match="after spoil: poly.input: its result has type"):
        run_passes(program(), [Plain(), Spoil(), Plain()])
