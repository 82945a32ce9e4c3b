"""libatlasc as it is installed: its package, its headers and its examples, without Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cpp_build import OPTIMISED, RUNTIME, SECONDS, Builder, require_compiler
from safetensors.numpy import load_file
from tiny_model import Tiny

import atlasc
from atlasc.bundle.folder import load_bundle
from atlasc.bundle.split import copy_part
from atlasc.emit.parameter_set import CARRIED, PLACE, parameter_set
from atlasc.emit.project import save_inputs
from atlasc.run.session import simulate
from atlasc.run.timing import Timing
from atlasc.version import __version__


def succeed(*command: Path | str, given: str = "", **options: object) -> str:
    """What a command prints; ``given`` is its standard input."""
    done = subprocess.run(
        list(map(str, command)), input=given, capture_output=True, text=True, timeout=SECONDS,
        check=False, **options,
    )  # type: ignore[call-overload]  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory, cpp: Builder) -> Path:
    """An installed tree."""
    require_compiler()
    folder = tmp_path_factory.mktemp("install")
    environment = {**os.environ, **cpp.environment(OPTIMISED)}
    named = ("-DATLASC_ENGINE=cpu", f"-DCMAKE_INSTALL_PREFIX={folder / 'prefix'}")
    options = [f"-D{name}={environment[name]}" for name in environment if name.startswith("CMAKE_")]
    succeed("cmake", "-S", RUNTIME, "-B", folder / "library", *named, *options, env=environment)
    succeed("cmake", "--build", folder / "library", "--parallel", "2", env=environment)
    succeed("cmake", "--install", folder / "library")
    shutil.rmtree(folder / "library")  # the package names nothing in it
    return folder / "prefix"


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory, prefix: Path) -> Path:
    """The examples of the installed tree, built in another folder where nothing else is."""
    copy = tmp_path_factory.mktemp("examples") / "examples"
    shutil.copytree(prefix / "share/atlasc/examples", copy)
    alone = {"PATH": os.environ["PATH"], "CXX": require_compiler()}
    found = f"-DCMAKE_PREFIX_PATH={prefix}"
    succeed("cmake", "-S", copy, "-B", copy / "build", found, env=alone)
    succeed("cmake", "--build", copy / "build", "--parallel", "2", env=alone)
    return copy / "build"


def refused(*command: Path | str) -> str:
    """The error of a command that refuses its input."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 2, done.stdout + done.stderr
    return done.stderr


@pytest.mark.deep("projects")
def test_the_installed_roles_take_a_bundle(prefix: Path, tiny_cpu: Tiny, tmp_path: Path) -> None:
    """Each with its part alone; the answer is that of a server in Python, byte for byte."""
    for role in ("client", "server"):
        copy_part(tiny_cpu.bundle, role, tmp_path / role)  # type: ignore[arg-type]
    client = (prefix / "bin/atlasc-client", "--program", tmp_path / "client")
    server = (prefix / "bin/atlasc-server", "--program", tmp_path / "server")
    inputs, keys, query = (tmp_path / name for name in ("inputs.safetensors", "keys", "query"))
    bundle = load_bundle(tiny_cpu.bundle)
    given = bundle.load_inputs(tiny_cpu.data).take(range(bundle.batch))
    save_inputs(inputs, bundle.client, given.arrays)
    succeed(*client, "keygen", "--output", keys)
    named = ("--key", keys / "secret.key", "--input", inputs, "--output", query)
    succeed(*client, "encrypt", *named)
    asked = ("--keys", keys / "evaluation.key", "--query", query)
    succeed(*server, *asked, "--output", tmp_path / "answer", "--timing", tmp_path / "times.json")
    opened = ("--key", keys / "secret.key", "--answer", tmp_path / "answer")
    succeed(*client, "decrypt", *opened, "--output", tmp_path / "outputs.safetensors")
    python = atlasc.Server(tmp_path / "server", (keys / "evaluation.key").read_bytes())
    assert python.execute(query.read_bytes()) == (tmp_path / "answer").read_bytes()
    outputs = load_file(tmp_path / "outputs.safetensors")
    wanted = simulate(bundle.client, bundle.poly, given.arrays)
    for name, array in wanted.items():
        assert abs(outputs[name] - array).max() < 1e-4
    timing = Timing.load(tmp_path / "times.json", bundle)
    assert len(timing.ops) == len(bundle.program.ops)

    # What is not a program, or not the one that the keys and the query are of.
    assert "of which program?" in refused(client[0], "keygen", "--output", tmp_path / "more")
    message = refused(server[0], "--program", keys / "evaluation.key", *asked, "--output", "x")
    assert "has no program" in message
    message = refused(client[0], "--program", tmp_path / "none", "keygen", "--output", "x")
    assert "none" in message
    path = tmp_path / "server/server/program.safetensors"
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    assert "other numbers" in refused(*server, *asked, "--output", tmp_path / "again")
    path.write_bytes(content[:-100])
    assert "damaged" in refused(*server, *asked, "--output", tmp_path / "again")


@pytest.mark.deep("projects")
def test_client_and_server_exchange_files(examples: Path, tmp_path: Path) -> None:
    options = {"cwd": tmp_path, "env": {}}
    succeed(examples / "client", "keygen", "keys", **options)
    numbers = "0.1 0.2 0.3 0.4 0.5 0.6 0.7 -0.8"
    succeed(examples / "client", "encrypt", "keys", "query", given=numbers, **options)
    succeed(examples / "server", "keys/evaluation.key", "query", "answer", **options)
    found = succeed(examples / "client", "decrypt", "keys", "answer", **options)
    assert float(found) == pytest.approx(0.7, abs=1e-5)  # 0 * 0.1 / 8 + ... - 7 * 0.8 / 8
    assert (tmp_path / "keys/secret.key").stat().st_mode & 0o777 == 0o600
    command = [examples / "client", "decrypt", "keys", "query"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "is no answer" in done.stderr


@pytest.mark.deep("projects")
@pytest.mark.large
def test_the_carried_parameters_bootstrap(examples: Path) -> None:
    found = succeed(examples / "bootstrap", env={})
    level, error = re.fullmatch(r"level (\d+), error (\S+)\n", found).groups()  # type: ignore[union-attr]
    assert int(level) == 18
    assert float(error) < 1e-4


def test_the_library_carries_what_the_compiler_makes() -> None:
    """``python -m atlasc.emit.parameter_set`` writes it again."""
    assert PLACE.read_bytes() == parameter_set(CARRIED)


def test_the_package_has_the_version_of_the_compiler() -> None:
    assert f"VERSION {__version__} " in (RUNTIME / "CMakeLists.txt").read_text()


def test_examples_are_short() -> None:
    for place in (RUNTIME / "examples").glob("*.[ch]pp"):
        assert len(place.read_text().splitlines()) < 40, place.name
