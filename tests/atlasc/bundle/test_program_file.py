"""A program as a file: what servers play, and what they refuse."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from tiny_model import Tiny

from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.bundle.manifest import INTERFACE_FILE, PROGRAM_FILE
from atlasc.bundle.program_file import StoredProgram
from atlasc.bundle.program_writer import stored_program
from atlasc.client.program import encrypt_all
from atlasc.ir.errors import AtlasError
from atlasc.program.engine import Engine
from atlasc.program.execute import Functions, execute
from atlasc.program.function import EngineParameters
from atlasc.program.key_plan import key_plan
from atlasc.program.kinds import OUTSIDE
from atlasc.program.record_arrays import RECORD, Recorded, record_arrays
from atlasc.runtime.interface import interface_of, keys_of, read_interface
from atlasc.targets import find_target
from atlasc.targets.base import no_progress


@pytest.fixture(params=["tiny", "texts"])
def bundle(request: pytest.FixtureRequest) -> Bundle:
    """A program of images, and one of texts with a public mask."""
    found = request.getfixturevalue(request.param)
    return load_bundle(found.bundle if isinstance(found, Tiny) else found / "bundle")


def inputs_of(bundle: Bundle) -> dict[str, np.ndarray]:
    """Inputs that fit, by chance."""
    chance, arrays = np.random.default_rng(3), {}
    for op in bundle.client.embed.inputs:
        shape, ids = op.attributes["shape"], op.attributes["dtype"].startswith("int")
        arrays[op.attributes["name"]] = (
            chance.integers(0, 2, shape) if ids else chance.standard_normal(shape) / 4
        )
    for one in bundle.interface.publics:
        arrays[one.name] = np.ones(one.shape, np.int64)
    return arrays


def played(bundle: Bundle, play: Callable[..., Any]) -> dict[str, np.ndarray]:
    """Output name -> decrypted slots, on the simulation."""
    engine = find_target("sim").make_engine(bundle.program, bundle.parameters, no_progress)
    packed = bundle.client.query(inputs_of(bundle), unchecked=True)
    results = play(engine, encrypt_all(engine, packed), packed.public)
    return {name: np.stack([engine.decrypt(c) for c in cs]) for name, cs in results.items()}


def test_a_stored_program_answers_as_its_module(bundle: Bundle) -> None:
    wanted = played(bundle, lambda engine, *given: execute(engine, bundle.program, *given))
    for found in (bundle.server, stored_program(bundle.program, bundle.parameters, "")):
        answers = played(bundle, found.play)
        assert answers.keys() == wanted.keys()
        for name, slots in wanted.items():
            np.testing.assert_array_equal(answers[name], slots)


def test_an_engine_without_the_runtime_plays_the_functions(bundle: Bundle) -> None:
    """Instruction by instruction, as an engine of another library does."""

    def play(engine: Any, *given: Any) -> Any:
        engine.play_recorded = lambda *call: Engine.play_recorded(engine, *call)
        return bundle.server.play(engine, *given)

    wanted = played(bundle, bundle.server.play)
    for name, slots in played(bundle, play).items():
        np.testing.assert_allclose(slots, wanted[name], rtol=0, atol=1e-12)


def test_functions_come_back_from_their_arrays(bundle: Bundle) -> None:
    """What was read is written again, number by number; roles are numbers, so no array is known to
    be a mask.
    """
    shape = EngineParameters.of(bundle.parameters)
    own = list(dict.fromkeys(Functions(bundle.program, shape).named().values()))
    recorded = Recorded(record_arrays(own), shape)
    found = list(recorded.functions.values())
    assert recorded.names == {one.name for one in own}
    assert [one.name for one in found] == [one.name for one in own]
    for one, other in zip(found, own, strict=True):
        assert len(one.roles) == len(other.roles)
        assert [i.primitive for i in one.code] == [i.primitive for i in other.code]
        assert [i[3:] for i in one.code] == [i[3:] for i in other.code]
        assert (one.results, one.released) == (other.results, other.released)
    again = record_arrays(found)
    for name in RECORD[1:]:
        np.testing.assert_array_equal(again[name], recorded.arrays[name])


def members(one: object) -> set[str]:
    return {name for name in dir(one) if not name.startswith("_")}


def test_the_interface_is_that_of_the_module(bundle: Bundle) -> None:
    stored, program = bundle.server, bundle.program
    assert keys_of(stored.interface) == key_plan(program)
    assert stored.interface.model == program.name
    wanted = interface_of(program)
    for part in ("inputs", "publics", "outputs"):
        for one, other in zip(getattr(stored.interface, part), getattr(wanted, part), strict=True):
            for name in members(one) - {"factor", "shift"}:  # which a client's file has
                assert getattr(one, name) == getattr(other, name)
    for one, other in zip(bundle.interface.outputs, wanted.outputs, strict=True):
        assert (one.factor, one.shift) == (other.factor, other.shift)
    ops = [op for op in program.ops if op.name not in OUTSIDE]
    assert [one.name for one in stored.calls] == [op.name for op in ops]
    assert [one.location for one in stored.calls] == [op.location for op in ops]


def test_a_server_parses_no_ir(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(*given: Any) -> Any:
        raise AssertionError("a server parses IR")

    monkeypatch.setattr("atlasc.ir.text.storage.parse", parse)
    part = load_bundle(bundle.folder, "server")
    assert part.server.calls and part.interface.outputs


def test_a_missing_input_is_named(bundle: Bundle) -> None:
    engine = find_target("sim").make_engine(bundle.program, bundle.parameters, no_progress)
    with pytest.raises(AtlasError, match="input .* is missing"):
        bundle.server.play(engine, {}, {})


# --- files that lie


Lie = Callable[[Path], object]
"""Changes the program's file."""


def _rewrite(path: Path, change: Callable[[dict[str, np.ndarray], dict[str, str]], object]) -> None:
    arrays = load_file(path)
    with safe_open(path, "np") as file:
        facts = file.metadata()
    change(arrays, facts)
    save_file(arrays, path, facts)


def other_text(change: Callable[[dict[str, Any]], object], name: str = "program") -> Lie:
    """Another text, with the digest of it."""

    def written(arrays: dict[str, np.ndarray], facts: dict[str, str]) -> None:
        text = json.loads(arrays[name].tobytes())
        change(text)
        arrays[name] = np.frombuffer(json.dumps(text).encode(), np.uint8)
        facts["sha256"] = hashlib.sha256(arrays[name].tobytes()).hexdigest()

    return lambda path: _rewrite(path, written)


def _first(**members: object) -> Lie:
    return other_text(lambda text: text["calls"][0].update(members))


def _output(**members: object) -> Lie:
    return other_text(lambda text: text["outputs"][0].update(members))


def _input(**members: object) -> Lie:
    return other_text(lambda text: text["inputs"][0].update(members))


def _publish_an_array(text: dict[str, Any]) -> None:
    (name, *_) = (name for call in text["calls"] for name in call["arrays"])
    text["publics"].append({"name": name, "shape": [1, 1]})


def _without(name: str) -> Lie:
    return lambda path: _rewrite(path, lambda arrays, facts: arrays.pop(name))


def _without_weights(path: Path) -> None:
    text = json.loads(load_file(path)["program"].tobytes())
    names = [name for call in text["calls"] for name in call["arrays"]]
    _without(names[0])(path)


def _cut(share: float) -> Lie:
    return lambda path: path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


def _clients(path: Path) -> None:
    shutil.copyfile(path.parents[1] / "client/interface.safetensors", path)


LIES: dict[str, tuple[Lie, str]] = {
    "cut header": (_cut(1e-4), "truncated"),
    "cut": (_cut(0.5), "truncated"),
    "client's file": (_clients, "has no program"),
    "changed text": (
        lambda path: _rewrite(path, lambda arrays, facts: facts.update(sha256="0" * 64)),
        "its text is not the one that was written",
    ),
    "version": (other_text(lambda t: t.update(format=1)), "format 1"),
    "no version": (other_text(lambda t: t.pop("format")), "format 0"),
    "no code": (_without("record/code"), "no array 'record/code'"),
    "no names": (_without("record/names"), "no array 'record/names'"),
    "no weights": (_without_weights, "which is not there"),
    "function": (_first(function="system"), "call 0 is of the function 'system'"),
    "array": (_first(arrays=["/etc/passwd"]), "call 0 is of the array '/etc/passwd'"),
    "value to come": (_first(operands=[9]), "call 0 is of the value 9"),
    "output": (_output(value=10**6), "is of the value 1000000"),
    "no value": (other_text(lambda t: t["outputs"][0].pop("value")), "an output has no value"),
    "an output twice": (
        other_text(lambda t: t["outputs"].append(t["outputs"][0])),
        "two outputs have the same name",
    ),
    "an input twice": (
        other_text(lambda t: t["inputs"].append(t["inputs"][0])),
        "two inputs have the same name",
    ),
    "name of a public input": (
        other_text(lambda t: t["publics"].append({"name": "record/code", "shape": [1, 1]})),
        "name that is not allowed",
    ),
    "array and public": (other_text(_publish_an_array), "is an array and a public input"),
    "negative value": (_first(operands=[-1]), "a value is not an integer"),
    "text for a number": (_first(operands=["0"]), "a value is not an integer"),
    "no calls": (other_text(lambda t: t.pop("calls")), "its text lacks calls"),
    "another member": (other_text(lambda t: t.update(run="rm")), "has the member 'run'"),
    "another member of a call": (_first(run="rm"), "has the member 'run'"),
    "another engine": (other_text(lambda t: t.update(engine="sim")), "the engine 'sim', which is"),
    "no slots": (other_text(lambda t: t["parameters"].pop("slots")), "its text lacks slots"),
    "no state": (
        other_text(lambda t: t["inputs"][0].update(prefix="gone")),
        "the array 'gone', which is not there",
    ),
    "layout of another kind": (_input(layout={"text": "x"}), "a value is not a string"),
    "no layout": (_input(layout="[x]"), "is not [fields | fields | extents]"),
    "null": (_input(layout=None), "is damaged"),
}
SHAPE = EngineParameters(8, 1)


@pytest.mark.parametrize("name", LIES)
def test_a_file_that_lies_is_refused(tiny: Tiny, tmp_path: Path, name: str) -> None:
    lie, said = LIES[name]
    folder = Path(shutil.copytree(tiny.bundle, tmp_path / "bundle"))
    path, identity = folder / PROGRAM_FILE, load_bundle(folder).manifest.program
    other_text(lambda text: None)(path)
    StoredProgram.read(path, identity, SHAPE)
    lie(path)
    with pytest.raises(AtlasError) as caught:
        StoredProgram.read(path, identity, SHAPE)
    assert caught.value.what.startswith(f"file {path} ") and caught.value.remedy
    assert said in f"{caught.value.what} {caught.value.why}"


def test_a_file_of_another_program_is_refused(tiny: Tiny) -> None:
    with pytest.raises(AtlasError, match="of another program"):
        StoredProgram.read(tiny.bundle / PROGRAM_FILE, "0" * 64, SHAPE)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"function": "system"}, "'system', which is no function of a client"),
        ({"function": "\udcff"}, "is damaged"),
        ({"layout": "[x]"}, "is not [fields | fields | extents]"),
        ({"factor": {"array": "gone"}}, "gone"),
        ({"run": "rm"}, "has the member 'run'"),
    ],
)
def test_an_interface_that_lies_is_refused(
    tiny: Tiny, tmp_path: Path, members: dict[str, Any], said: str
) -> None:
    path, identity = tmp_path / "x.safetensors", load_bundle(tiny.bundle).manifest.program
    shutil.copyfile(tiny.bundle / INTERFACE_FILE, path)
    read_interface(path, identity)
    with pytest.raises(AtlasError, match="is of another program"):
        read_interface(path, "0" * 64)
    other_text(lambda text: text["outputs"][0].update(members), "interface")(path)
    with pytest.raises(AtlasError) as caught:
        read_interface(path, identity)
    assert caught.value.what.startswith(f"file {path} ") and caught.value.remedy
    assert said in f"{caught.value.what} {caught.value.why}"


def test_a_record_that_ends_too_early_is_refused(tiny: Tiny) -> None:
    bundle = load_bundle(tiny.bundle)
    arrays = dict(bundle.server.recorded.arrays)
    arrays["record/code"] = arrays["record/code"][:-8]
    with pytest.raises(AtlasError, match="record of a program cannot be read"):
        _ = Recorded(arrays, EngineParameters.of(bundle.parameters)).functions
