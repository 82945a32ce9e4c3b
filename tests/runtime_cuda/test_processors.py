"""Other processors and systems: aarch64 by a cross compiler and an emulator, macOS by a compiler.

What the two machines exchange is made on each of them and read on the other.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from cpp_build import OPTIMISED, ROOT, RUNTIME, SECONDS, Builder, require_compiler
from safetensors.numpy import load_file
from tiny_model import Tiny

from atlasc.bundle.folder import load_bundle
from atlasc.bundle.split import copy_part
from atlasc.emit.parameter_set import parameter_set
from atlasc.emit.project import save_inputs

from .ckks.test_bootstraps import require_refreshed
from .ckks.test_secrets import DIGESTS
from .exchange import Here, Keys, require_answered

HERE = Path(__file__).parent
TOOLCHAIN = RUNTIME / "cmake" / "aarch64-linux.cmake"
SYSTEM = Path("src/base/system.cpp")
ON_BOTH = {
    "dirent.h", "fcntl.h", "pthread.h", "sys/file.h", "sys/stat.h", "unistd.h",
    "cpuid.h", "immintrin.h", "pybind11/functional.h", "pybind11/numpy.h", "pybind11/pybind11.h",
    "pybind11/stl.h",
}  # fmt: skip
"""Headers that are none of C++ itself, and that both systems have, or both on x86-64."""
ON_ONE = (
    "prctl", "getrandom", "explicit_bzero", "renameat2", "RENAME_NOREPLACE", "fdatasync", "memfd",
    "madvise", "MADV_", "MAP_ANON", "/proc/", "__linux__", "__APPLE__", "O_TMPFILE", "O_PATH",
    "long double",
)  # fmt: skip
"""What a system has alone, or what has another size on each."""
SOURCES = sorted(
    path.relative_to(RUNTIME)
    for folder in ("ckks", "devices/host", "include", "programs", "python", "sim", "src")
    for path in (RUNTIME / folder).rglob("*.*")
    if path.suffix in (".cpp", ".hpp", ".cu")
)


def test_one_file_asks_for_the_system() -> None:
    """The header beside it may ask which one there is."""
    found = set()
    for source in SOURCES:
        text = re.sub(r"//.*", "", (RUNTIME / source).read_text())
        headers = re.findall(r"#include <(.+?\.h)>", text)
        if set(headers) - ON_BOTH or any(word in text for word in ON_ONE):
            found.add(source)
    assert found == {SYSTEM, SYSTEM.with_suffix(".hpp")}


def succeed(*command: Path | str, **more: str) -> str:
    """What a command prints."""
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=SECONDS, check=False,
        env=os.environ | more,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Aarch64:
    """The runtime for aarch64, built, and the emulator that runs it."""

    compiler = "aarch64-linux-gnu-g++"
    emulator = ("qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu")

    def __init__(self, build: Path, cpp: Builder) -> None:
        require_compiler()
        for name in (self.compiler, self.emulator[0]):
            if shutil.which(name) is None:
                pytest.skip(f"needs {name}: apt-get install g++-aarch64-linux-gnu qemu-user-static")
        self.build = build
        options = ("-DATLASC_ENGINE=cpu", f"-DCMAKE_TOOLCHAIN_FILE={TOOLCHAIN}")
        launcher = {"CMAKE_CXX_COMPILER_LAUNCHER": ";".join(cpp.launcher)}
        succeed("cmake", "-S", RUNTIME, "-B", build, *options, **launcher)
        succeed("cmake", "--build", build, "--parallel", "2")
        self.launcher = cpp.launcher

    def run(self, program: str, *words: Path | str, **more: str) -> str:
        return succeed(*self.emulator, self.build / program, *words, **more)

    def program(self, name: str, *sources: str) -> None:
        """Build a program of tests beside the roles."""
        folders = (ROOT, RUNTIME, RUNTIME / "include", RUNTIME / "devices/host")
        flags = (*OPTIMISED, *(f"-I{one}" for one in folders))
        objects = [self.build / f"{name}-{number}.o" for number in range(len(sources))]
        for source, target in zip(sources, objects):
            command = (*self.launcher, self.compiler, *flags, "-c", HERE / source, "-o", target)
            succeed(*command)
        linked = (*objects, self.build / "libatlasc_runtime.a", "-pthread")
        succeed(self.compiler, *linked, "-o", self.build / name)


@pytest.fixture(scope="module")
def aarch64(tmp_path_factory: pytest.TempPathFactory, cpp: Builder) -> Aarch64:
    return Aarch64(tmp_path_factory.mktemp("aarch64"), cpp)


@pytest.mark.deep("engines")
def test_aarch64_computes_what_the_conformance_suite_wants(aarch64: Aarch64) -> None:
    aarch64.program("conformance", "conformance/conformance.cpp", "conformance/programs.cpp")
    lines = aarch64.run("conformance", "leveled", "13", "2", "1").splitlines()
    assert sum(line.startswith("ok    ") for line in lines) == len(lines) > 20


@pytest.mark.deep("engines")
def test_aarch64_bootstraps(aarch64: Aarch64, tmp_path: Path) -> None:
    sources = ("ckks/programs/small_bootstrap.cpp", "conformance/programs.cpp")
    aarch64.program("small-bootstrap", *sources)
    path = tmp_path / "set"
    path.write_bytes(parameter_set("fifteen_levels_40", 11, (1, 32)))
    require_refreshed(aarch64.run("small-bootstrap", path, "9"), 18, (9,))


@pytest.mark.deep("engines")
def test_aarch64_makes_the_same_keys_of_the_same_entropy(aarch64: Aarch64) -> None:
    """Bit for bit, and a ciphertext too."""
    aarch64.program("secrets", "ckks/programs/secrets.cpp", "conformance/programs.cpp")
    text = aarch64.run("secrets", "digests", ATLASC_ENTROPY="1", ATLASC_THREADS="1")
    assert text.splitlines() == DIGESTS


@pytest.mark.deep("engines")
def test_aarch64_reads_and_refuses_changed_files(aarch64: Aarch64) -> None:
    """Its ``char`` has no sign."""
    aarch64.program("fuzz", *(f"fuzz/{name}.cpp" for name in ("fuzz", "program", "mutate")))
    corpus = ("--corpus", HERE / "fuzz/corpus")
    for reader in ("json", "header", "query", "answer", "secret", "program", "ledger"):
        given = ("--seed", "11", "--inputs", "40", "--reader", reader)
        assert "seed 11, 40 inputs" in aarch64.run("fuzz", *given, *corpus)


class Roles:
    """The two roles in C++ on aarch64, each with its part of the program alone."""

    def __init__(self, aarch64: Aarch64, tiny: Tiny, folder: Path) -> None:
        self._aarch64, self._tiny, self._folder = aarch64, tiny, folder
        for role in ("client", "server"):
            copy_part(tiny.bundle, role, folder / role)  # type: ignore[arg-type]

    def _run(self, role: str, *words: Path | str) -> None:
        self._aarch64.run(f"atlasc-{role}", "--program", self._folder / role, *words)

    def keygen(self, folder: Path) -> Keys:
        self._run("client", "keygen", "--output", folder)
        return Keys(folder / "secret.key", folder / "evaluation.key")

    def encrypt(self, keys: Keys, query: Path) -> None:
        bundle, inputs = load_bundle(self._tiny.bundle), self._folder / "inputs"
        given = bundle.load_inputs(self._tiny.data).take(range(bundle.batch))
        save_inputs(inputs, bundle.client, given.arrays)
        self._run("client", "encrypt", "--key", keys.secret, "--input", inputs, "--output", query)

    def execute(self, keys: Keys, query: Path, answer: Path) -> None:
        given = ("--keys", keys.evaluation, "--query", query)
        self._run("server", *given, "--output", answer)

    def decrypt(self, keys: Keys, answer: Path) -> Mapping[str, np.ndarray]:
        given, outputs = ("--key", keys.secret, "--answer", answer), self._folder / "outputs"
        self._run("client", "decrypt", *given, "--output", outputs)
        return load_file(outputs)


@pytest.mark.deep("projects")
def test_a_client_on_aarch64_and_a_server_on_x86_64(
    aarch64: Aarch64, tiny_cpu: Tiny, tmp_path: Path
) -> None:
    require_answered(tiny_cpu, Roles(aarch64, tiny_cpu, tmp_path), Here(tiny_cpu), tmp_path)


@pytest.mark.deep("projects")
def test_a_client_on_x86_64_and_a_server_on_aarch64(
    aarch64: Aarch64, tiny_cpu: Tiny, tmp_path: Path
) -> None:
    there = Roles(aarch64, tiny_cpu, tmp_path)
    require_answered(tiny_cpu, Here(tiny_cpu), there, tmp_path, [there])


@pytest.mark.deep("engines")
@pytest.mark.skipif(find_spec("ziglang") is None, reason="needs pip install ziglang==0.13.0.post1")
def test_the_roles_link_for_macos(tmp_path: Path) -> None:
    """With the headers of macOS and its list of symbols, which Zig carries. Nothing is run."""
    require_compiler()
    for tool, words in (("c++", "c++ -target aarch64-macos"), ("ar", "ar")):
        script = tmp_path / tool
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -m ziglang {words} "$@"\n')
        script.chmod(0o755)
    named = ("-DATLASC_ENGINE=cpu", "-DCMAKE_SYSTEM_NAME=Darwin", "-DCMAKE_RANLIB=/bin/true")
    tools = (f"-DCMAKE_CXX_COMPILER={tmp_path / 'c++'}", f"-DCMAKE_AR={tmp_path / 'ar'}")
    flags = ("-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS=-O0 -g0 -Werror")
    build = tmp_path / "build"
    succeed("cmake", "-S", RUNTIME, "-B", build, *named, *tools, *flags)
    succeed("cmake", "--build", build, "--parallel", "2")
    macho, arm64 = bytes.fromhex("cffaedfe"), bytes.fromhex("0c000001")
    for role in ("client", "server"):
        assert (build / f"atlasc-{role}").read_bytes().startswith(macho + arm64)
