"""Compiles and runs emitted programs, as their users would."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpp_build import OPTIMISED, ROOT, SANITIZERS, SECONDS, WARNINGS, Builder, require_compiler
from typer.testing import CliRunner

from atlasc.cli import app

DIGITS = ROOT / "examples" / "digits_vit"
BATCH = 2
STRICT = ("-std=c++17", "-O1", *WARNINGS)


@dataclass(frozen=True)
class Project:
    """An emitted project.

    Attributes:
        bundle: what it was emitted from.
        folder: the project.
        client, server: commands that start the executables.
    """

    bundle: Path
    folder: Path
    client: tuple[str, ...]
    server: tuple[str, ...]

    @property
    def program(self) -> Path:
        """The file of the program, for the server."""
        return self.folder / "program.safetensors"

    @property
    def runtime(self) -> Path:
        """The runtime that was built with it."""
        return self.folder / "build" / "runtime" / "libatlasc_runtime.a"


def has_sanitizers(folder: Path) -> bool:
    """Whether the compiler brings their libraries."""
    source = folder / "empty.cpp"
    source.write_text("int main() { return 0; }\n")
    command = [require_compiler(), str(source), *SANITIZERS, "-o", str(folder / "empty")]
    return subprocess.run(command, capture_output=True).returncode == 0


def emit_and_build(folder: Path, cpp: Builder) -> Project:
    """The digits' Vision Transformer under the recipe ``is``; warnings are errors."""
    bundle, project = folder / "bundle", folder / "project"
    data = DIGITS / "calibration.npz"
    options = ["--data", data, "--recipe", "is", "--batch", BATCH, "--target", "sim"]
    command_line("compile", DIGITS / "model", *options, "-o", bundle)
    return build(bundle, project, cpp)


def build(bundle: Path, project: Path, cpp: Builder, *options: str) -> Project:
    """The project of a bundle, emitted and built."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in cpp.environment(OPTIMISED).items():
            environment.setenv(name, value)
        command_line("emit", bundle, "-o", project, "--build", *options)
    built = project / "build"
    client = (str(built / "client"), "--program", str(project / "interface.safetensors"))
    return Project(bundle, project, client, (str(built / "server"),))


def with_runtime(folder: Path, built: Project, cpp: Builder) -> Project:
    """A project that was written, with the client and the runtime of one that was built."""
    include = f"-I{ROOT / 'runtime_cuda' / 'include'}"
    sources = [*(folder / "src" / name for name in ("server.cpp", "program.cpp")), built.runtime]
    server = compiled(cpp, sources, folder / "server", include)
    client = (built.client[0], "--program", str(folder / "interface.safetensors"))
    return Project(folder, folder, client, (str(server),))


def command_line(*arguments: object) -> str:
    """What a command of atlasc prints."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, f"{result.stderr}\n{result.exception!r}"
    return result.stdout


def compiled(cpp: Builder, sources: Sequence[Path], output: Path, *options: str) -> Path:
    """An executable of some sources; warnings are errors."""
    return cpp.program(output, sources, (*STRICT, *options))


def run(command: Sequence[object], cwd: Path) -> str:
    """What a program says on standard error; it must succeed."""
    done = _run(command, cwd)
    assert done.returncode == 0, done.stderr
    return done.stderr


def refused(command: Sequence[object], cwd: Path, code: int = 2) -> str:
    """The message of a program that must fail with an exit code."""
    done = _run(command, cwd)
    assert done.returncode == code, f"{done.returncode}: {done.stderr}"
    assert done.stderr.startswith("error: ")
    return done.stderr


def _run(command: Sequence[object], cwd: Path) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=SECONDS)


def reseal(path: Path, change: Callable[[dict[str, Any], dict[str, bytes]], None]) -> None:
    """Change header and arrays of a sealed file, and seal it again, as a forger would."""
    content = path.read_bytes()
    size = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:size])
    data = {
        name: content[size + facts["data_offsets"][0] : size + facts["data_offsets"][1]]
        for name, facts in header.items()
        if name != "__metadata__"
    }
    del data["~sha256"]
    change(header, data)
    names, at = sorted(data), 0
    data["~sha256"] = bytes(32 * (len(names) + 1))
    for name in (*names, "~sha256"):
        facts = header.setdefault(name, {"dtype": "U8"})
        if facts["dtype"] == "U8":
            facts["shape"] = [len(data[name])]
        facts["data_offsets"] = [at, at + len(data[name])]
        at += len(data[name])
    for name in header.keys() - data.keys() - {"__metadata__"}:
        del header[name]
    text = json.dumps(header).encode()
    parts = [text, *(data[name] for name in names)]
    seal = [hashlib.sha256(part).digest() for part in parts]
    path.write_bytes(b"".join([len(text).to_bytes(8, "little"), *parts, *seal]))


def answers(project: Project, inputs: Path, cwd: Path) -> dict[str, np.ndarray]:
    """Keys, encryption, execution and decryption, each by a process of its own."""
    from safetensors.numpy import load_file

    client, server = project.client, project.server
    run([*client, "keygen", "--output", "keys"], cwd)
    secret, weights = ("--key", "keys/secret.key"), ("--program", project.program)
    run([*client, "encrypt", *secret, "--input", inputs, "--output", "query"], cwd)
    keys = ("--keys", "keys/evaluation.key")
    run([*server, *keys, *weights, "--query", "query", "--output", "answer"], cwd)
    run([*client, "decrypt", *secret, "--answer", "answer", "--output", "out.safetensors"], cwd)
    return load_file(cwd / "out.safetensors")


def digit_answers(project: Project, cwd: Path, count: int = 1) -> dict[str, np.ndarray]:
    """Answers to the first images of the digits' test set; keys and messages stay in ``cwd``."""
    inputs = cwd / "in.safetensors"
    data = ("--input", DIGITS / "test.npz", "--count", count)
    command_line("embed", project.bundle, *data, "-o", inputs)
    return answers(project, inputs, cwd)
