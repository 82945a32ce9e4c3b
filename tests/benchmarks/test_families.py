"""The command that takes tiny models of all families through the compiler."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.families.__main__ import show
from benchmarks.families.base_shapes import SHAPES, write_config
from benchmarks.families.further import FURTHER
from benchmarks.families.models import FAMILIES, INPUTS, LENGTH, Family
from benchmarks.families.page import PAGE, measured, render
from benchmarks.families.stages import attempt

EVERY: dict[str, Family] = {**FAMILIES, **FURTHER}


def test_there_are_36_families_and_59_further_architectures() -> None:
    assert (len(FAMILIES), len(FURTHER), len(EVERY)) == (36, 59, 95)
    models = {family.model for family in FAMILIES.values()}
    assert models.isdisjoint(family.model for family in FURTHER.values())


@pytest.mark.parametrize("name", EVERY)
def test_inputs_fit_the_family(name: str) -> None:
    family = EVERY[name]
    arrays = family.inputs()
    assert arrays[family.input_name].shape == (INPUTS, *family.shape)
    if family.kind == "ids":
        kept = arrays["attention_mask"].sum(axis=1)
        assert kept.max() == LENGTH > kept.min() > 0


def test_a_family_is_built_twice_alike() -> None:
    one, other = (FAMILIES["gpt2"].build().state_dict() for _ in range(2))
    assert all((one[name] == other[name]).all() for name in one)


def test_an_outcome_has_the_stages_and_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    fine = attempt(FAMILIES["gpt2"], "trace")
    assert fine.reached == ("load", "trace") and fine.traced < 1e-5 and not fine.refusal
    refused = attempt(FURTHER["fnet"], "trace")
    assert refused.reached == ("load",) and "aten.fft_fftn" in refused.refusal
    assert np.isnan(refused.traced)
    show({"gpt2": fine, "broken": refused})
    printed = capsys.readouterr().out
    assert "2 load, 1 trace, 0 lower, 0 compile" in printed
    assert "\nbroken: " in printed


@pytest.mark.deep("recipes")
@pytest.mark.parametrize("name", EVERY)
def test_a_family_is_traced_or_refused_as_the_page_says(name: str) -> None:
    said = measured()["tiny" if name in FAMILIES else "further"][name]
    found = attempt(EVERY[name], "trace")
    assert list(found.reached) == said["reached"][: len(found.reached)]
    if "trace" in found.reached:
        assert found.traced < 1e-5
    else:
        assert found.refusal == said["refusal"]


def test_the_page_has_all_families_and_is_current() -> None:
    known = measured()
    assert [*known["tiny"]] == [*FAMILIES] == [*SHAPES]
    assert {*known["further"]} == {*FURTHER}
    assert {*known["base"]} <= {*SHAPES}
    page = PAGE.read_text(encoding="utf-8")
    assert page == render(), "make docs"
    equal = re.search(r"\*\*(\d+) of 59 are equal\.\*\*", page)
    assert equal is not None and int(equal[1]) >= 40


@pytest.mark.parametrize("name", FAMILIES)
def test_the_config_of_a_true_shape_is_read_back(name: str, tmp_path: Path) -> None:
    from transformers import AutoConfig

    write_config(name, tmp_path)
    config = AutoConfig.from_pretrained(tmp_path)
    for setting, value in SHAPES[name].settings.items():
        assert getattr(config, setting) == value, setting


def test_an_unknown_family_is_refused() -> None:
    command = [sys.executable, "-m", "benchmarks.families", "nothing"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2 and "no family nothing; there are bert," in result.stderr
