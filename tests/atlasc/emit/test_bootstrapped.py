"""An emitted program whose bootstraps are computed, not copied: CtS, EvalMod and StC on the
simulation's slots, with the rotation keys and the levels of a real engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cpp_build import Builder

from atlasc.compilation.lowering import plan_keys
from atlasc.emit.project import write_project
from atlasc.program.costs import program_costs
from atlasc.targets.phantom import PhantomParameters
from tests.atlasc.emit.cpp import Project, answers, refused, reseal, with_runtime
from tests.atlasc.emit.small_programs import Case, small_program

NAME = "encoder"
COPIED, COMPUTED = 1e-9, 2.0**-19
"""Greatest differences to the Python simulation; the second is the bound on the error of one
bootstrap (docs/bootstrapping.md), which values below 1 stay far from."""


def phantom_case() -> tuple[Case, PhantomParameters]:
    """Two layers in a ring that is too small to be secure."""
    case = small_program(NAME)
    parameters = PhantomParameters.bootstrapped(
        "fourteen_levels", case.parameters.slots.bit_length()
    )
    assert parameters.slots == case.parameters.slots
    return replace(case, program=plan_keys(case.program, parameters)), parameters


@pytest.fixture(scope="module")
def project(digits: Project, cpp: Builder, tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("bootstrapped")
    case, parameters = phantom_case()
    write_project(folder / "project", case.program, parameters)
    return with_runtime(folder / "project", digits, cpp)


def largest_error(project: Project, folder: Path) -> float:
    from safetensors.numpy import save_file

    case, _ = phantom_case()
    save_file(case.inputs, folder / "in.safetensors")
    found = answers(project, folder / "in.safetensors", folder)
    return max(float(np.abs(found[n] - values).max()) for n, values in case.expected().items())


@pytest.mark.deep("projects")
def test_bootstraps_are_computed(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, _ = phantom_case()
    bootstraps = program_costs(case.program).total.bootstraps
    assert bootstraps >= 4
    for folder in ("copied", "computed"):
        (tmp_path / folder).mkdir()
    assert largest_error(project, tmp_path / "copied") <= COPIED
    monkeypatch.setenv("ATLASC_SIM_BOOTSTRAP", "algorithm")
    error = largest_error(project, tmp_path / "computed")
    print(f"{bootstraps} bootstraps: largest error {error:.2g}")
    assert COPIED < error <= COMPUTED


@pytest.mark.deep("projects")
def test_every_key_of_the_bootstrap_is_the_clients_to_make(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.numpy import load_file

    largest_error(project, tmp_path)
    _, parameters = phantom_case()
    key = tmp_path / "keys" / "evaluation.key"
    rotations = load_file(key)["rotations"]
    reach = {int(amount): int(level) for amount, level in rotations}
    for amount, level in parameters.needs.shared.items():
        assert reach[amount] >= level
    top = rotations[:, 1].argmax()
    assert rotations[top, 1] == len(parameters.moduli.primes) - 1
    rotations[top, 1] -= 1
    reseal(key, lambda header, data: data.update(rotations=rotations.tobytes()))
    given = ("--keys", "keys/evaluation.key", "--program", project.program, "--query", "query")
    message = refused([*project.server, *given, "--output", "new"], tmp_path)
    assert "lacks a rotation key that the program needs" in message


@pytest.mark.deep("projects")
def test_it_is_refused_where_the_algorithm_is_not_known(
    digits: Project, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest_error(project, tmp_path)
    given = ("--keys", "keys/evaluation.key", "--program", project.program, "--query", "query")
    monkeypatch.setenv("ATLASC_SIM_BOOTSTRAP", "yes")
    message = refused([*project.server, *given, "--output", "new"], tmp_path)
    assert "ATLASC_SIM_BOOTSTRAP is neither unset nor algorithm" in message
