"""``--target cpu``: encrypted on our own engine, in this process, without a library for Python."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny_model import Tiny, make_tiny

from atlasc.bundle.folder import load_bundle
from atlasc.run.built import BuiltProgram
from atlasc.targets.cpu import CpuParameters
from tests.atlasc.cli.command import refused, run


@pytest.fixture(scope="module")
def leveled(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny(tmp_path_factory.mktemp("leveled"), "cpu")


def test_an_answer_is_encrypted_and_right(leveled: Tiny, tmp_path: Path) -> None:
    assert "emit --build --python" in refused("keygen", leveled.bundle, "--keys", tmp_path / "keys")
    project = tmp_path / "project"
    run("emit", leveled.bundle, "--build", "--python", "-o", project)
    words = ("run", leveled.bundle, "--project", project, "--input", leveled.data, "--index", 0)
    found = json.loads(run(*words, "--json").out)
    simulated = json.loads(
        run("run", leveled.bundle, "--input", leveled.data, "--index", 0, "--target", "sim",
            "--json").out
    )  # fmt: skip
    for name, rows in simulated["outputs"].items():
        exact = np.array(rows)
        errors = np.abs(np.array(found["outputs"][name]) - exact)
        assert 0 < errors.max() < 1e-4 * max(1.0, np.abs(exact).max()), "encrypted, and right"
    # A process may hold the modules of several programs: here a copy stands for the second.
    bundle = load_bundle(leveled.bundle)
    other = shutil.copytree(project, tmp_path / "other")
    first, second = BuiltProgram(project, bundle), BuiltProgram(other, bundle)
    assert first.module is not second.module


def test_primes_are_of_50_bits_at_most() -> None:
    for parameters in (CpuParameters.choose(8), CpuParameters.choose(30)):
        assert max(parameters.moduli.primes + parameters.moduli.special) <= 50
        assert parameters.security_bits >= 128
    bootstrapped = CpuParameters.bootstrapped()
    assert bootstrapped.security_bits >= 128 and bootstrapped.log_qp == 1650
    top = len(bootstrapped.moduli.primes) - 1
    assert bootstrapped.residues(top) == top + 1 + 7, "EvalMod's levels have two primes"
