"""``--target cpu``: encrypted on our own engine, in this process, without a library for Python."""

from __future__ import annotations

import hashlib
import json
import resource
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cpp_build import OPTIMISED, Builder
from safetensors.numpy import load_file
from tiny_model import Tiny

from atlasc.api.roles import Server
from atlasc.bundle.folder import load_bundle
from atlasc.ir.errors import AtlasError
from atlasc.run.built import BuiltProgram
from atlasc.targets.cpu import CpuParameters
from tests.atlasc.cli.command import run


@pytest.fixture(scope="module")
def project(tiny_cpu: Tiny, tmp_path_factory: pytest.TempPathFactory, cpp: Builder) -> Path:
    """The C++ client, server and Python module of the program."""
    folder = tmp_path_factory.mktemp("project") / "project"
    with pytest.MonkeyPatch.context() as environment:
        for name, value in cpp.environment(OPTIMISED).items():
            environment.setenv(name, value)
        run("emit", tiny_cpu.bundle, "--build", "--python", "-o", folder)
    return folder


@pytest.fixture(scope="module")
def keys(tiny_cpu: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys") / "keys"
    run("keygen", tiny_cpu.bundle, "--keys", folder)
    return folder


def answer(tiny_cpu: Tiny, *more: object) -> np.ndarray:
    """To its first input."""
    words = ("--input", tiny_cpu.data, "--index", 0, "--json", *more)
    return np.array(json.loads(run("run", tiny_cpu.bundle, *words).out)["outputs"]["output"])


def require_right(found: np.ndarray, tiny_cpu: Tiny) -> None:
    """Encrypted, and right."""
    exact = answer(tiny_cpu, "--target", "sim")
    errors = np.abs(found - exact)
    assert 0 < errors.max() < 1e-4 * max(1.0, np.abs(exact).max())


def test_an_answer_is_encrypted_and_right(tiny_cpu: Tiny) -> None:
    require_right(answer(tiny_cpu), tiny_cpu)


@pytest.mark.deep("projects")
def test_an_answer_of_a_project_is_encrypted_and_right(
    tiny_cpu: Tiny, project: Path, tmp_path: Path
) -> None:
    require_right(answer(tiny_cpu, "--project", project), tiny_cpu)
    # A process may hold the modules of several programs: here a copy stands for the second.
    bundle = load_bundle(tiny_cpu.bundle)
    other = shutil.copytree(project, tmp_path / "other")
    first, second = BuiltProgram(project, bundle), BuiltProgram(other, bundle)
    assert first.module is not second.module


@pytest.mark.deep("projects")
def test_python_and_cpp_have_the_same_files(
    tiny_cpu: Tiny, project: Path, keys: Path, tmp_path: Path
) -> None:
    """Keys, queries and answers of one are taken by the other."""
    build, weights = project / "build", project / "program.safetensors"
    secret, evaluation = keys / "client" / "secret.key", keys / "server" / "evaluation.key"

    def cpp(*words: object) -> None:
        done = subprocess.run([*map(str, words)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def server(query: Path, answer: Path) -> None:
        cpp(
            build / "server", "--keys", evaluation, "--program", weights,
            "--query", query, "--output", answer,
        )  # fmt: skip

    run(
        "encrypt", tiny_cpu.bundle, "--keys", keys, "--input", tiny_cpu.data, "--index", 0,
        "-o", tmp_path / "query",
    )  # fmt: skip
    server(tmp_path / "query", tmp_path / "answer")
    given = ("--keys", keys, "--query", tmp_path / "query", "-o", tmp_path / "python answer")
    run("execute", tiny_cpu.bundle, *given)
    assert (tmp_path / "answer").read_bytes() == (tmp_path / "python answer").read_bytes()
    words = ("--keys", keys, "--answer", tmp_path / "answer", "--json")
    found = json.loads(run("decrypt", tiny_cpu.bundle, *words).out)
    require_right(np.array(found["outputs"]["output"]), tiny_cpu)

    run("embed", tiny_cpu.bundle, "--input", tiny_cpu.data, "--index", 0,
        "-o", tmp_path / "in.safetensors")  # fmt: skip
    client = (build / "client", "--program", project / "interface.safetensors")
    cpp(*client, "encrypt", "--key", secret, "--input", tmp_path / "in.safetensors",
        "--output", tmp_path / "cpp query")  # fmt: skip
    run("execute", tiny_cpu.bundle, "--keys", keys, "--query", tmp_path / "cpp query",
        "-o", tmp_path / "cpp answer")  # fmt: skip
    cpp(*client, "decrypt", "--key", secret, "--answer", tmp_path / "cpp answer",
        "--output", tmp_path / "out.safetensors")  # fmt: skip
    require_right(load_file(tmp_path / "out.safetensors")["output"], tiny_cpu)


def test_evaluation_keys_are_private_and_those_of_the_index(
    tiny_cpu: Tiny, keys: Path, tmp_path: Path
) -> None:
    """A file of another key generation, which is whole, is refused; as is one without a digest."""
    folder = shutil.copytree(keys / "server", tmp_path / "server")
    evaluation, index = folder / "evaluation.key", folder / "keys.json"
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    facts = json.loads(index.read_text())
    digest = hashlib.sha256(evaluation.read_bytes()).hexdigest()
    assert facts["files"] == {"evaluation.key": digest}
    bundle = load_bundle(tiny_cpu.bundle)
    Server(bundle, folder)
    Server(bundle, evaluation.read_bytes())
    content = bytearray(evaluation.read_bytes())
    content[-1] ^= 1
    evaluation.write_bytes(content)
    with pytest.raises(AtlasError, match=r"evaluation\.key is missing or damaged") as caught:
        Server(bundle, folder)
    assert "its SHA-256 is not the one in keys.json" in caught.value.why
    content[-1] ^= 1
    evaluation.write_bytes(content)
    index.write_text(json.dumps({**facts, "files": {}}))
    with pytest.raises(AtlasError, match=r"evaluation\.key is missing or damaged"):
        Server(bundle, folder)


def test_primes_are_of_50_bits_at_most() -> None:
    for parameters in (CpuParameters.choose(8), CpuParameters.choose(30)):
        assert max(parameters.moduli.primes + parameters.moduli.special) <= 50
        assert parameters.security_bits >= 128
    bootstrapped = CpuParameters.bootstrapped()
    assert bootstrapped.security_bits >= 128 and bootstrapped.log_qp == 1738
    top = len(bootstrapped.moduli.primes) - 1
    assert bootstrapped.residues(top) == top + 1 + 3, "three levels of EvalMod have two primes"


@pytest.mark.deep("projects")
def test_too_little_memory_is_told_before_keys_are_loaded(
    tiny_cpu: Tiny, project: Path, keys: Path, tmp_path: Path
) -> None:
    """A budget, and a process's own limit; the server says how much it needs."""
    query = tmp_path / "query"
    run("encrypt", tiny_cpu.bundle, "--keys", keys, "--input", tiny_cpu.data, "--index", 0,
        "-o", query)  # fmt: skip
    words = (
        project / "build" / "server", "--keys", keys / "server" / "evaluation.key",
        "--program", project / "program.safetensors", "--output", tmp_path / "answer",
    )  # fmt: skip

    def said(*more: object, limit: int = resource.RLIM_INFINITY) -> str:
        done = subprocess.run(
            [*map(str, (*words, *more))], capture_output=True, text=True, preexec_fn=lambda:
            resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY)),
        )  # fmt: skip
        assert done.returncode == 2 and not (tmp_path / "answer").exists()
        return done.stderr

    message = said("--query", query, "--device-memory", "8M")
    assert "too little memory for the keys" in message and "of which there are 8 MiB" in message
    needed = int(message.partition("it needs ")[2].partition(" ")[0])
    found = said("--query", query, limit=(needed // 2 + 16) << 20)
    assert f"it needs {needed} MiB" in found
    assert "not found" in said("--query", tmp_path / "other", "--device-memory", "1M")
