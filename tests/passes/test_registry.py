"""Passes that no compilation runs: at several levels, and from other packages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from short_text import poly, short

from atlasc.compilation.single_stages import optimised
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.passes import registry
from atlasc.passes.framework.pass_base import Pass, Report, parse_pipeline
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.pipeline import packed
from atlasc.passes.registry import ALONE, levels_of, passes
from atlasc.targets import find_target

BARE = """%a = poly.square %x
    %b = poly.add %a, %x
    poly.output %b {name = "y"}"""
SEEN = """%a = poly.square %x {magnitude = 0.25, mean = 0.1, noise_gain = 2.0}
    %b = poly.add %a, %x {magnitude = 0.75}
    poly.output %b {name = "y", magnitude = 0.75}"""


@dataclass(frozen=True)
class Outside(Pass):
    """Of another package."""

    name = "outside"
    takes = ("nn", "poly", "ckks")

    def run(self, module: Module, report: Report) -> Module:
        report.say("seen")
        return module


def program(level: str, body: str) -> Module:
    """The ops on an input of shape [1, 2, 3]; packed, where the level is ckks."""
    module = poly(body)
    return module if level == "poly" else packed(module, Pack(64))


def ignore(step: Pass, module: Module, report: Report) -> None:
    """After each pass."""


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Entry points of the group; what is added before ``passes()`` is asked is found."""
    entries: list[Any] = []
    passes.cache_clear()
    monkeypatch.setattr(registry, "plugins", lambda group: {one.name: one for one in entries})
    yield entries
    passes.cache_clear()


def entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, registry.GROUP)


def test_what_calibration_saw_is_removed_at_each_level() -> None:
    step = parse_pipeline("forget-calibration", passes())
    assert levels_of(ALONE[0]) == ("poly", "ckks")
    for level in levels_of(ALONE[0]):
        seen, bare = (program(level, body) for body in (SEEN, BARE))
        assert "magnitude" in short(seen) and "magnitude" not in short(bare)
        assert short(optimised(seen, step, find_target("sim"), ignore)) == short(bare)
    with pytest.raises(
        AtlasError, match="works on poly and ckks modules, but @m is at the nn level"
    ):
        optimised(Module("m", "nn"), step, find_target("sim"), ignore)


def test_a_package_registers_a_pass(installed: list[Any]) -> None:
    installed.append(entry("outside", f"{__name__}:Outside"))
    assert passes()["outside"].name == "outside"
    reports: list[str] = []
    optimised(
        program("poly", SEEN), parse_pipeline("outside", passes()), find_target("sim"),
        lambda step, module, report: reports.extend(report.lines),
    )  # fmt: skip
    assert reports == ["seen"]


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("gone", "nowhere.to.be.found:Pass", "ModuleNotFoundError"),
        ("number", "math:pi", "no class of atlasc.passes.framework.pass_base.Pass"),
        ("twice", "atlasc.passes.lowering.pack:Pack", "its name pack is taken"),
    ],
)
def test_what_is_no_pass_is_said(installed: list[Any], name: str, value: str, why: str) -> None:
    installed.append(entry(name, value))
    with pytest.raises(
        AtlasError, match=f"{name} of an installed package cannot be used"
    ) as caught:
        passes()
    assert why in caught.value.why and value in caught.value.where
