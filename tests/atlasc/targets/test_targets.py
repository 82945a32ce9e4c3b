"""What every target of the list keeps: its parameter sets, costs, memory, and its engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance import EngineConformance, rotations

from atlasc.bundle.sealed import facts_of
from atlasc.emit.project import ENGINES
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.ir.text.parser import parse
from atlasc.ir.text.storage import print_module
from atlasc.ir.verifier import fault_of
from atlasc.program.counting_engine import COST_KINDS
from atlasc.program.engine import Engine
from atlasc.program.key_plan import KeyPlan
from atlasc.program.rotation_plan import RotationPlan
from atlasc.runtime.native import load_library
from atlasc.targets import find_target, target_names
from atlasc.targets.base import Gpu, no_progress
from atlasc.targets.ckks.engine import KeyedTarget
from atlasc.targets.costs import costs_of
from atlasc.targets.parameters import ParameterSet
from atlasc.targets.program import parameters_of, with_matching_parameters, with_parameters

NEEDS = [(0, 1), (3, 2**13), (12, 2**14), (30, 1), (60, 2**15)]
"""Levels and slots."""


def placed(parameters: ParameterSet) -> Module:
    """An empty program with all keys of the conformance suite."""
    top = parameters.max_level
    facts: dict[str, Any] = {"slots": parameters.slots, "levels": top}
    facts["bootstrap"] = parameters.bootstrap_level is not None
    plan = RotationPlan(dict.fromkeys(rotations(parameters.slots), top))
    facts |= plan.attributes()
    facts |= {"relinearization_level": top, "conjugation_level": top}
    return Module("m", "ckks", attributes=facts)


@pytest.mark.parametrize("name", target_names())
def test_a_target_is_whole(name: str) -> None:
    target = find_target(name)
    assert target.name == name and target.summary
    assert target.runtime_engine in ENGINES
    with pytest.raises(AtlasError, match="no parameters with 262144 slots"):
        target.parameters.choose(3, 2**18)


@pytest.mark.parametrize("name", target_names())
@pytest.mark.parametrize(("levels", "slots"), NEEDS)
def test_parameter_sets(name: str, levels: int, slots: int) -> None:
    target = find_target(name)
    found = target.parameters.choose(levels, slots)
    assert found.slots >= slots and found.security_bits >= 128
    assert found.bootstrap or found.max_level >= levels
    assert len(found.moduli.primes) >= found.residues(found.max_level)
    assert found.log_qp == sum(found.moduli.primes) + sum(found.moduli.special)
    assert target.parameters.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    again = target.parameters.matching(found.slots, found.max_level, bool(found.bootstrap))
    assert again is not None and again.max_level == found.max_level
    costs = costs_of(found)
    for primitive in COST_KINDS:
        if not primitive.startswith("bootstrap"):
            assert 0 < costs[primitive, 0] <= costs[primitive, found.max_level]
    parts = found.memory_parts({1: 0}, 0)
    assert parts["rotation_keys"] in (0, found.key_bytes(0))
    assert sum(parts.values()) > found.ciphertext_bytes(found.max_level)


@pytest.mark.parametrize("name", target_names())
@pytest.mark.parametrize("damage", [{"special_primes": 0}, {"more": 1}, {"log_ring_degree": "16"}])
def test_damaged_parameters_are_refused(name: str, damage: dict[str, Any]) -> None:
    target = find_target(name)
    with pytest.raises(AtlasError):
        target.parameters.from_dict(target.parameters.choose(3).to_dict() | damage)


@pytest.mark.parametrize("name", target_names())
def test_a_program_carries_its_parameters(name: str) -> None:
    target = find_target(name)
    for parameters in (target.parameters.choose(3), target.parameters.bootstrapped()):
        program = placed(parameters)
        assert parameters_of(program) is None
        text = print_module(with_parameters(program, target, parameters))
        assert parameters_of(parse(text, {})) == parameters
        assert parameters_of(with_matching_parameters(program, target)) is not None
        other = with_parameters(placed(target.parameters.choose(12, 2**14)), target, parameters)
        with pytest.raises(AtlasError, match="was not lowered for the parameters"):
            parameters_of(other)


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ('target = "../x", parameters = {a = 1}', "target is not the name of a target"),
        ('target = "gpu", parameters = {a = 1}', "there is no target 'gpu'"),
        ('target = "sim", parameters = {a = [1, 2]}', "parameters is not"),
        ('target = "sim", parameters = {a = 1}', "the parameters of cpu cannot be read"),
        ('target = "phantom", parameters = {log_ring_degree = 900000}', "cannot be read"),
    ],
)
def test_hostile_parameters_in_a_text_are_refused(facts: str, why: str) -> None:
    module = parse(f"module @m : ckks {{slots = 8192, levels = 3, {facts}}} {{\n}}\n", {})
    found = fault_of(module.attributes)
    if not found:
        with pytest.raises(AtlasError) as caught:
            parameters_of(module)
        found = str(caught.value)
    assert why in found


@pytest.mark.parametrize("name", ["cpu", "cuda", "phantom"])
def test_an_engine_that_was_not_installed_is_said_with_the_remedy(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_library(), "engines", ("sim",))
    target = find_target(name)
    parameters, plan = target.parameters.choose(3), KeyPlan({})
    for call in (
        target.check,
        lambda: target.make_engine(placed(parameters), parameters, no_progress),
        lambda: target.generate_keys(parameters, plan, tmp_path, no_progress),
        lambda: target.role_engine("client", tmp_path, parameters),
        lambda: target.role_engine("server", tmp_path, parameters, plan),
        lambda: target.server_engine(b"", parameters, plan),
    ):
        with pytest.raises(AtlasError, match=f"no engine for {name} here") as caught:
            call()
        assert f"ATLASC_ENGINE={name}" in caught.value.remedy
        assert name == "cpu" or "atlasc emit" in caught.value.remedy
    assert not any(tmp_path.iterdir())


def test_a_missing_gpu_is_said_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an installation that has the engine."""
    library = load_library()
    why = "cudaGetDeviceCount: cudaErrorNoDevice, no CUDA-capable device is detected"

    def devices(engine: str) -> list[tuple[str, int]]:
        assert engine == "cuda"
        raise library.Error("there is no CUDA device", "", why, "run where one is")

    monkeypatch.setattr(library, "engines", ("cpu", "cuda", "sim"))
    monkeypatch.setattr(library, "devices", devices, raising=False)
    target = find_target("cuda")
    parameters, plan = target.parameters.choose(3), KeyPlan({})
    for call in (
        target.check,
        target.gpus,
        lambda: target.make_engine(placed(parameters), parameters, no_progress),
        lambda: target.role_engine("server", tmp_path, parameters, plan),
        lambda: target.server_engine(b"", parameters, plan),
    ):
        with pytest.raises(AtlasError, match="there is no CUDA device") as caught:
            call()
        assert caught.value.why == why and caught.value.remedy == "run where one is"
    assert not target.here and not any(tmp_path.iterdir())
    assert find_target("cpu").gpus() == []
    monkeypatch.setattr(library, "devices", lambda engine: [("a card", 80)])
    assert target.here and target.gpus() == [Gpu("a card", 80)]


@pytest.mark.parametrize("name", ["cuda", "phantom"])
def test_a_client_of_a_gpu_has_the_engine_of_the_processors(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files name the engine of the server, and an installation for processors suffices."""
    target = find_target(name)
    assert isinstance(target, KeyedTarget)
    parameters = target.parameters.choose(1)
    plan = KeyPlan({1: 1}, relinearization_level=1)
    for role in ("client", "server"):
        (tmp_path / role).mkdir()
    target.generate_keys(parameters, plan, tmp_path, no_progress)
    client = target.role_engine("client", tmp_path / "client", parameters)
    slots = np.linspace(-1, 1, parameters.slots)
    for file in ("client/secret.key", "server/evaluation.key"):
        assert facts_of(tmp_path / file)["engine"] == name
    with pytest.raises(AtlasError, match=f"no engine for {name} here"):
        target.role_engine("server", tmp_path / "server", parameters, plan)
    monkeypatch.setattr(target.keyed, "built_on", "cpu")  # a server that has the device
    server = target.role_engine("server", tmp_path / "server", parameters, plan)
    x = server.deserialize(client.serialize(client.encrypt(slots, 1)))
    product = client.deserialize(server.serialize(server.mul(x, server.rotate(x, 1))))
    np.testing.assert_allclose(client.decrypt(product), slots * np.roll(slots, -1), atol=1e-4)
    other = {"cuda": "phantom", "phantom": "cuda"}[name]
    monkeypatch.setattr(type(parameters), "device", other)
    with pytest.raises(AtlasError, match=f"holds no evaluation keys of the {other} engine"):
        target.role_engine("server", tmp_path / "server", parameters, plan)


class TestSim(EngineConformance):
    """The engine that ``atlasc run`` makes."""

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Engine[Any]:
        target = find_target("sim")
        parameters = target.parameters.choose(3)
        return target.make_engine(placed(parameters), parameters, no_progress)
