"""The Python module of a built project: the same answers as the Python simulation, in process."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cpp_build import Builder
from tiny_model import Tiny

from atlasc.bundle.folder import load_bundle
from atlasc.ir.errors import AtlasError
from atlasc.run.built import BuiltProgram, module_place
from tests.atlasc.cli.command import refused, run
from tests.atlasc.emit.cpp import BATCH, DIGITS, Project, build

DATA = DIGITS / "test.npz"


pytestmark = pytest.mark.deep("projects")


@pytest.fixture(scope="module")
def digits(digits: Project, cpp: Builder, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The project with its Python module."""
    return build(digits.bundle, tmp_path_factory.mktemp("built") / "project", cpp, "--python")


@pytest.fixture(scope="module")
def built(digits: Project) -> BuiltProgram:
    return BuiltProgram(digits.folder, load_bundle(digits.bundle))


@pytest.mark.parametrize("count", [1, BATCH + 1])
def test_run_on_a_built_project(digits: Project, count: int) -> None:
    given = (digits.bundle, "--input", DATA, "--count", count, "--json")
    found = json.loads(run("run", *given, "--project", digits.folder).out)
    expected = json.loads(run("run", *given).out)
    assert found["target"] == "sim, C++"
    assert np.shape(found["outputs"]["logits"]) == (count, 10)
    for name, values in expected["outputs"].items():
        np.testing.assert_allclose(found["outputs"][name], values, atol=1e-9)
    assert found["max_error"] < 1e-9
    assert all(seconds > 0 for seconds in found["phases"].values())


def test_client_and_server_are_apart(built: BuiltProgram, digits: Project, tmp_path: Path) -> None:
    module = built.module
    module.keygen(str(tmp_path / "keys"), built.interface)
    client = module.Client(str(tmp_path / "keys" / "secret.key"), built.interface)
    server = module.Server(str(tmp_path / "keys" / "evaluation.key"), str(digits.program))
    bundle = load_bundle(digits.bundle)
    rows = bundle.load_inputs(DATA).take(range(BATCH)).arrays
    query = client.encrypt(bundle.client.prepare(rows))
    answer = server.execute(query)
    del query, server
    outputs, wrong = client.decrypt(answer)
    assert outputs["logits"].shape == (BATCH, 10)
    assert wrong == {}


def test_errors_have_all_parts(built: BuiltProgram, digits: Project, tmp_path: Path) -> None:
    module = built.module
    module.keygen(str(tmp_path / "keys"), built.interface)
    module.keygen(str(tmp_path / "others"), built.interface)
    client = module.Client(str(tmp_path / "keys" / "secret.key"), built.interface)
    server = module.Server(str(tmp_path / "others" / "evaluation.key"), str(digits.program))
    with pytest.raises(module.Error) as caught:
        client.encrypt({})
    what, where, why, remedy = caught.value.args
    assert (what[-10:], where, why) == ("is missing", "", "")
    assert "atlasc embed" in remedy
    bundle = load_bundle(digits.bundle)
    prepared = bundle.client.prepare(bundle.load_inputs(DATA).take([0]).arrays)
    with pytest.raises(module.Error, match="belongs to other keys"):
        server.execute(client.encrypt(prepared))
    with pytest.raises(module.Error, match="exists already"):
        module.keygen(str(tmp_path / "keys"), built.interface)


def test_errors_of_the_engine_reach_the_user(built: BuiltProgram, digits: Project) -> None:
    bundle = load_bundle(digits.bundle)
    arrays = bundle.load_inputs(DATA).take([0]).arrays
    large = {name: array * 1e3 for name, array in arrays.items()}
    with pytest.raises(AtlasError, match="input 0 is not encrypted"):
        built.run(large, {})
    with pytest.raises(AtlasError, match="bootstrap is impossible") as caught:
        built.run(large, {}, unchecked=True)
    assert caught.value.where.startswith("vit.layers.0")


def test_what_is_no_module_of_the_bundle(digits: Project, tiny: Tiny, tmp_path: Path) -> None:
    given = ("run", digits.bundle, "--input", DATA, "--count", 1)
    assert "exclude each other" in refused(*given, "--project", digits.folder, "--target", "sim")
    (tmp_path / "build").mkdir()
    assert "has no Python module" in refused(*given, "--project", tmp_path)
    place = module_place(digits.folder)
    assert place is not None
    (tmp_path / "build" / place.name).write_bytes(b"nothing")
    assert "cannot be loaded" in refused(*given, "--project", tmp_path)
    other = ("run", tiny.bundle, "--input", tiny.data, "--count", 1)
    message = refused(*other, "--project", digits.folder)
    assert "was built from another program" in message
