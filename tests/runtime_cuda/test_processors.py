"""Other processors and systems: aarch64 by a cross compiler and an emulator, macOS by a compiler.

What the two machines exchange is made on each of them and read on the other.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from cpp_build import OPTIMISED, ROOT, RUNTIME, SECONDS, Builder, require_compiler
from safetensors.numpy import load_file
from tiny_model import Tiny, simulated

import atlasc
from atlasc.bundle.folder import load_bundle
from atlasc.bundle.split import copy_part
from atlasc.emit.parameter_set import parameter_set
from atlasc.emit.project import save_inputs

from .ckks.test_bootstraps import require_refreshed
from .ckks.test_secrets import DIGESTS

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


@pytest.mark.deep("projects")
def test_a_client_on_aarch64_and_a_server_on_x86_64(
    aarch64: Aarch64, tiny_cpu: Tiny, tmp_path: Path
) -> None:
    """The server on aarch64 gives the same answer as well, byte for byte."""
    bundle = load_bundle(tiny_cpu.bundle)
    rows = list(range(bundle.batch))
    inputs, query, answer, outputs = (tmp_path / name for name in ("in", "query", "answer", "out"))
    save_inputs(inputs, bundle.client, bundle.load_inputs(tiny_cpu.data).take(rows).arrays)
    for role in ("client", "server"):
        copy_part(tiny_cpu.bundle, role, tmp_path / role)  # type: ignore[arg-type]
    keys, client = tmp_path / "keys", ("atlasc-client", "--program", tmp_path / "client")
    secret = ("--key", keys / "secret.key")
    aarch64.run(*client, "keygen", "--output", keys)
    aarch64.run(*client, "encrypt", *secret, "--input", inputs, "--output", query)
    server = atlasc.Server(tmp_path / "server", (keys / "evaluation.key").read_bytes())
    answer.write_bytes(server.execute(query.read_bytes()))
    aarch64.run(*client, "decrypt", *secret, "--answer", answer, "--output", outputs)
    found = load_file(outputs)
    for name, array in simulated(bundle, tiny_cpu.data, rows).items():
        np.testing.assert_allclose(found[name], array, atol=1e-4)
    asked = ("--keys", keys / "evaluation.key", "--query", query, "--output", tmp_path / "again")
    aarch64.run("atlasc-server", "--program", tmp_path / "server", *asked)
    assert (tmp_path / "again").read_bytes() == answer.read_bytes()


@pytest.mark.deep("projects")
def test_a_client_on_x86_64_and_a_server_on_aarch64(
    aarch64: Aarch64, tiny_cpu: Tiny, tmp_path: Path
) -> None:
    """Either client decrypts the answer with the key that was made on x86-64."""
    bundle = load_bundle(tiny_cpu.bundle)
    rows = list(range(bundle.batch))
    keys, query, answer = (tmp_path / name for name in ("keys", "query", "answer"))
    atlasc.keygen(tiny_cpu.bundle, keys)
    with np.load(tiny_cpu.data) as file:
        images = file["pixel_values"][rows]
    client = atlasc.Client(tiny_cpu.bundle, keys)
    query.write_bytes(bytes(client.encrypt(images)))
    asked = ("--keys", keys / "server/evaluation.key", "--query", query, "--output", answer)
    aarch64.run("atlasc-server", "--program", tiny_cpu.bundle, *asked)
    secret = ("--key", keys / "client/secret.key", "--answer", answer)
    told = ("--output", tmp_path / "outputs")
    aarch64.run("atlasc-client", "--program", tiny_cpu.bundle, "decrypt", *secret, *told)
    there, here = load_file(tmp_path / "outputs"), client.decrypt(answer.read_bytes()).outputs
    for name, array in simulated(bundle, tiny_cpu.data, rows).items():
        np.testing.assert_allclose(here[name], array, atol=1e-4)
        np.testing.assert_allclose(there[name], here[name], atol=1e-9)


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
