"""What client and server refuse: a message and exit code 2, and nothing left behind."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.atlasc.emit.cpp import Project, digit_answers, refused, reseal, run


@pytest.fixture(scope="module")
def done(digits: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which everything went well; nobody may change its files."""
    folder = tmp_path_factory.mktemp("done")
    digit_answers(digits, folder)
    run([*digits.client, "keygen", "--output", "others"], folder)
    return folder


@pytest.fixture
def folder(done: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(done, tmp_path / "done"))


def encrypt(project: Project, folder: Path, **other: object) -> str:
    given = {"key": "keys/secret.key", "input": "in.safetensors", "output": "new"} | other
    options = [word for name, value in given.items() for word in (f"--{name}", value)]
    return refused([*project.client, "encrypt", *options], folder)


def execute(project: Project, folder: Path, **other: object) -> str:
    given = {"keys": "keys/evaluation.key", "program": project.program, "query": "query"}
    given |= {"output": "new"} | other
    options = [word for name, value in given.items() for word in (f"--{name}", value)]
    return refused([*project.server, *options], folder)


def decrypt(project: Project, folder: Path, **other: object) -> str:
    given = {"key": "keys/secret.key", "answer": "answer", "output": "new"} | other
    options = [word for name, value in given.items() for word in (f"--{name}", value)]
    return refused([*project.client, "decrypt", *options], folder)


def facts(**changed: str) -> Callable[[dict[str, Any], dict[str, bytes]], None]:
    """A change of metadata for ``reseal``."""
    return lambda header, data: header["__metadata__"].update(changed)


def test_the_secret_key_is_for_its_owner_alone(done: Path) -> None:
    assert (done / "keys" / "secret.key").stat().st_mode & 0o077 == 0


def test_the_simulation_says_that_it_encrypts_nothing(digits: Project, tmp_path: Path) -> None:
    command = [*digits.client, "keygen", "--output", "keys"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stderr
    assert "SIMULATION: this engine encrypts nothing" in said
    assert "a simulated key, which protects nothing" in said
    assert "keep it\n" not in said


def test_other_keys(digits: Project, folder: Path) -> None:
    message = execute(digits, folder, keys="others/evaluation.key")
    assert "a ciphertext belongs to other keys" in message
    assert "where: file query: " in message
    message = decrypt(digits, folder, key="others/secret.key")
    assert "not the answer to a query of these keys" in message
    assert "none of the queries that this key encrypted" in message
    assert not (folder / "new").exists()


def test_a_key_of_the_other_role(digits: Project, folder: Path) -> None:
    assert "holds no evaluation keys" in execute(digits, folder, keys="keys/secret.key")
    assert "holds no secret key" in decrypt(digits, folder, key="keys/evaluation.key")


def test_query_and_answer_are_told_apart(digits: Project, folder: Path) -> None:
    assert "is no query" in execute(digits, folder, query="answer")
    assert "is no answer" in decrypt(digits, folder, answer="query")


@pytest.mark.parametrize("share", [0.0, 0.00001, 0.5, 0.999])
def test_a_truncated_query(digits: Project, folder: Path, share: float) -> None:
    whole = (folder / "query").read_bytes()
    (folder / "query").write_bytes(whole[: int(share * len(whole))])
    message = execute(digits, folder)
    assert "file query is damaged" in message
    assert "truncated" in message


def test_files_of_another_program(digits: Project, folder: Path) -> None:
    content = digits.program.read_bytes()
    start = content.index(b'"program":"') + len(b'"program":"')
    (folder / "other").write_bytes(content[:start] + b"0" * 8 + content[start + 8 :])
    assert "another" in execute(digits, folder, program="other")
    reseal(folder / "query", facts(program="0" * 64))
    assert "another compiled program" in execute(digits, folder)


def test_keys_of_other_parameters(digits: Project, folder: Path) -> None:
    key = folder / "keys" / "evaluation.key"
    reseal(key, facts(parameters="16384 slots"))
    message = execute(digits, folder)
    assert "was made for other parameters" in message
    assert "make keys with this program's client" in message


def test_a_missing_rotation_key(digits: Project, folder: Path) -> None:
    def without_one(header: dict[str, Any], data: dict[str, bytes]) -> None:
        data["rotations"] = data["rotations"][16:]
        header["rotations"]["shape"][0] -= 1

    reseal(folder / "keys" / "evaluation.key", without_one)
    assert "lacks a rotation key that the program needs" in execute(digits, folder)


def test_inputs_of_another_shape(digits: Project, folder: Path) -> None:
    from safetensors.numpy import load_file, save_file

    ((name, tensor),) = load_file(folder / "in.safetensors").items()
    wrong = {"few features": tensor[..., 1:], "many inputs": np.concatenate([tensor] * 3)}
    for array in (*wrong.values(), tensor[:0]):
        save_file({name: np.ascontiguousarray(array)}, folder / "wrong")
        assert "has not the shape of the program" in encrypt(digits, folder, input="wrong")
    save_file({"other": tensor}, folder / "nameless")
    assert "has no array" in encrypt(digits, folder, input="nameless")


def test_nothing_is_overwritten(digits: Project, folder: Path) -> None:
    assert "the output query exists already" in encrypt(digits, folder, output="query")
    assert "the output answer exists already" in execute(digits, folder, output="answer")
    message = refused([*digits.client, "keygen", "--output", "keys"], folder)
    assert "the output keys exists already" in message


def test_places_that_cannot_be_written(digits: Project, folder: Path) -> None:
    assert "cannot write to no/folder" in encrypt(digits, folder, output="no/folder")
    message = refused([*digits.client, "keygen", "--output", "no/folder"], folder)
    assert "cannot make the folder" in message


def test_missing_files_and_options(digits: Project, folder: Path) -> None:
    assert "file nowhere not found" in execute(digits, folder, query="nowhere")
    assert "there is no option --colour" in execute(digits, folder, colour="red")
    assert "the option --keys is missing" in refused(digits.server, folder)
    assert "needs a value" in refused([*digits.client, "keygen", "--output"], folder)
    assert "which command?" in refused(digits.client, folder)


def test_an_input_outside_the_ranges_is_said(digits: Project, folder: Path) -> None:
    """The numbers explode, as they would under encryption; the simulation says so."""
    from safetensors.numpy import load_file, save_file

    ((name, tensor),) = load_file(folder / "in.safetensors").items()
    save_file({name: tensor * 1e3}, folder / "large")
    secret = ("--key", "keys/secret.key")
    command = [*digits.client, "encrypt", *secret, "--input", "large", "--output", "q"]
    assert "input 0 is not encrypted" in refused(command, folder)
    run([*command, "--unchecked"], folder)
    message = execute(digits, folder, query="q")
    assert "bootstrap is impossible" in message
    assert "where: vit.layers.0" in message
