"""libatlasc as it is installed: its package, its headers and its examples, without Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cpp_build import OPTIMISED, RUNTIME, SECONDS, Builder, require_compiler

from atlasc.emit.parameter_set import CARRIED, PLACE, parameter_set
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
def examples(tmp_path_factory: pytest.TempPathFactory, cpp: Builder) -> Path:
    """The examples of an installed tree, built in another folder where nothing else is."""
    compiler, folder = require_compiler(), tmp_path_factory.mktemp("install")
    environment = {**os.environ, **cpp.environment(OPTIMISED)}
    named = ("-DATLASC_ENGINE=cpu", f"-DCMAKE_INSTALL_PREFIX={folder / 'prefix'}")
    options = [f"-D{name}={environment[name]}" for name in environment if name.startswith("CMAKE_")]
    succeed("cmake", "-S", RUNTIME, "-B", folder / "library", *named, *options, env=environment)
    succeed("cmake", "--build", folder / "library", "--parallel", "2", env=environment)
    succeed("cmake", "--install", folder / "library")
    copy = folder / "examples"
    shutil.copytree(folder / "prefix/share/atlasc/examples", copy)
    shutil.rmtree(folder / "library")  # the package names nothing in it
    alone = {"PATH": os.environ["PATH"], "CXX": compiler}
    prefix = f"-DCMAKE_PREFIX_PATH={folder / 'prefix'}"
    succeed("cmake", "-S", copy, "-B", copy / "build", prefix, env=alone)
    succeed("cmake", "--build", copy / "build", "--parallel", "2", env=alone)
    return copy / "build"


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
