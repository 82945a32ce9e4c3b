"""A wheel for Linux on aarch64: a cross compiler builds it, an emulator installs and runs it.

What the two machines exchange is made on each of them and read on the other.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest
from cpp_build import ROOT, SECONDS, Builder, require_compiler
from tiny_model import Tiny

from atlasc.bundle.folder import load_bundle
from tests.runtime_cuda.exchange import Here, Keys, require_answered

PYTHON = "ATLASC_AARCH64_PYTHON"
"""The variable with the folder of a Python for aarch64 (docs/runtime.md)."""


class Installed(NamedTuple):
    """A wheel, and the interpreter of the environment that has it."""

    wheel: Path
    python: Path

    def atlasc(self, *words: Path | str) -> str:
        """What a command prints."""
        given = [self.python.with_name("atlasc"), *map(str, words)]
        done = subprocess.run(
            given, capture_output=True, text=True, timeout=SECONDS, check=False, env=ENVIRONMENT
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


ENVIRONMENT = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def packaging() -> ModuleType:
    """The module behind ``make wheels``, which imports its neighbours as a script does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "packaging"))
        import wheels

    return wheels


@pytest.fixture(scope="module")
def installed(
    packaging: ModuleType, cpp: Builder, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    require_compiler()
    if PYTHON not in os.environ:
        pytest.skip(f"needs a Python for aarch64, in the folder that {PYTHON} names")
    foreign = packaging.Aarch64.at(Path(os.environ[PYTHON]))
    interpreter = shutil.which(f"python{foreign.version}")
    if interpreter is None:
        pytest.skip(f"needs python{foreign.version}, the version in {foreign.root}")
    place = tmp_path_factory.mktemp("aarch64-wheel")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CMAKE_CXX_COMPILER_LAUNCHER", ";".join(cpp.launcher))
        wheel = packaging.build(interpreter, place, place / "dist", foreign=foreign)
    return Installed(wheel, packaging.install(interpreter, place / "empty", wheel, foreign))


def test_a_folder_without_a_python_is_one_message(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "packaging" / "wheels.py", "--aarch64", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and not done.stdout
    [line] = done.stderr.splitlines()
    assert line.startswith("lacking for aarch64:") and "docs/runtime.md" in line
    for part in ("_sysconfigdata__aarch64-linux-gnu.py", "pyconfig.h", "Python.h"):
        assert part in line


@pytest.mark.deep("projects")
def test_the_wheel_says_what_it_fits(installed: Installed) -> None:
    """Both modules are for aarch64, and the tag has the oldest C library that they load with."""
    assert installed.wheel.name.endswith("_aarch64.whl") and "manylinux_2_" in installed.wheel.name
    with zipfile.ZipFile(installed.wheel) as file:
        modules = [one for one in file.namelist() if one.endswith(".so")]
        assert len(modules) == 2
        for one in modules:
            assert one.endswith("-aarch64-linux-gnu.so")
            assert file.read(one)[18:20] == b"\xb7\x00"  # EM_AARCH64


class Commands:
    """The two roles by the commands of the installation on aarch64."""

    def __init__(self, installed: Installed, tiny: Tiny) -> None:
        self._atlasc, self._tiny = installed.atlasc, tiny

    def keygen(self, folder: Path) -> Keys:
        self._atlasc("keygen", self._tiny.bundle, "--keys", folder)
        return Keys(folder / "client" / "secret.key", folder / "server" / "evaluation.key")

    def encrypt(self, keys: Keys, query: Path) -> None:
        rows = f"0-{load_bundle(self._tiny.bundle).batch - 1}"
        given = ("--input", self._tiny.data, "--index", rows, "-o", query)
        self._atlasc("encrypt", self._tiny.bundle, "--keys", keys.secret.parent, *given)

    def execute(self, keys: Keys, query: Path, answer: Path) -> None:
        given = ("--keys", keys.evaluation.parent, "--query", query, "-o", answer)
        self._atlasc("execute", self._tiny.bundle, *given)

    def decrypt(self, keys: Keys, answer: Path) -> Mapping[str, np.ndarray]:
        found = answer.with_name("found.npz")
        given = ("--keys", keys.secret.parent, "--answer", answer, "-o", found)
        self._atlasc("decrypt", self._tiny.bundle, *given)
        with np.load(found) as file:
            return dict(file)


@pytest.mark.deep("projects")
def test_a_client_on_aarch64_and_a_server_on_x86_64(
    installed: Installed, tiny_cpu: Tiny, tmp_path: Path
) -> None:
    here = Here(tiny_cpu)
    require_answered(tiny_cpu, Commands(installed, tiny_cpu), here, tmp_path, [here])


@pytest.mark.deep("projects")
def test_a_client_on_x86_64_and_a_server_on_aarch64(
    installed: Installed, tiny_cpu: Tiny, tmp_path: Path
) -> None:
    there = Commands(installed, tiny_cpu)
    require_answered(tiny_cpu, Here(tiny_cpu), there, tmp_path, [there])
