"""A wheel for Linux on aarch64 that is built and tried on another processor.

Debian's cross compiler builds it, and the emulator of user programs (qemu) runs it. A Python for
aarch64 is given as a folder: Debian's packages, unpacked (docs/runtime.md).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLCHAIN = ROOT / "runtime_cuda" / "cmake" / "aarch64-linux.cmake"
TRIPLET = "aarch64-linux-gnu"
EMULATOR = "qemu-aarch64-static"
VARIABLES = f"_sysconfigdata__{TRIPLET}"
"""The module in which a Python for aarch64 keeps how it was built, such as names of extensions."""


@dataclass(frozen=True)
class Aarch64:
    """A Python for aarch64: the folder of its files, and its version, such as 3.11."""

    root: Path
    version: str

    @classmethod
    def at(cls, root: Path) -> Aarch64:
        """The Python in a folder; ends where it, the compiler or the emulator lacks a part."""
        root = root.resolve()
        found = next(iter(sorted(root.glob(f"usr/lib/python3.*/{VARIABLES}.py"))), None)
        version = found.parent.name.removeprefix("python") if found else "3.X"
        parts = {
            f"usr/lib/python{version}/{VARIABLES}.py": f"libpython{version}-stdlib",
            f"usr/include/python{version}/Python.h": f"libpython{version}-dev",
            f"usr/include/{TRIPLET}/python{version}/pyconfig.h": f"libpython{version}-dev",
            f"usr/bin/python{version}": f"python{version}-minimal",
        }
        lacking = [f"{root / one} (of {parts[one]})" for one in parts if not (root / one).is_file()]
        tools = {f"{TRIPLET}-g++": f"g++-{TRIPLET}", EMULATOR: "qemu-user-static"}
        lacking += [f"{one} (of {tools[one]})" for one in tools if not shutil.which(one)]
        if lacking:
            sys.exit(f"lacking for aarch64: {', '.join(lacking)}; docs/runtime.md has the packages")
        return cls(root, version)

    def building(self, place: Path) -> dict[str, str]:
        """The environment of a build, whose interpreter has the same version.

        ``place`` is a new folder for the variables of the build: the interpreter that runs cannot
        import them from a folder with modules for another processor.
        """
        place.mkdir()
        shutil.copy(self.root / f"usr/lib/python{self.version}" / f"{VARIABLES}.py", place)
        headers = self.root / "usr/include"
        return {
            "PYTHONPATH": str(place),
            "_PYTHON_HOST_PLATFORM": "linux-aarch64",
            "_PYTHON_SYSCONFIGDATA_NAME": VARIABLES,
            "CC": f"{TRIPLET}-gcc",
            "CXX": f"{TRIPLET}-g++",
            # Before the headers of the interpreter that runs.
            "CXXFLAGS": f"-I{headers / f'python{self.version}'} -I{headers}",
            "CMAKE_TOOLCHAIN_FILE": str(TOOLCHAIN),
        }

    def environment(self, place: Path) -> Path:
        """The interpreter of a new virtual environment, which the emulator runs.

        It is a script, so programs that start it, and the commands of packages, need not know.
        """
        base = self.root / "usr/bin"
        python = place / "bin" / "python"
        python.parent.mkdir(parents=True)
        (place / "lib" / f"python{self.version}" / "site-packages").mkdir(parents=True)
        (place / "pyvenv.cfg").write_text(f"home = {base}\n")
        command = f'{EMULATOR} -L {self.root} -0 "$0" {base}/python{self.version} "$@"'
        python.write_text(f"#!/bin/sh\nexec {command}\n")
        python.chmod(0o755)
        done = subprocess.run([python, "-c", "import ctypes, ssl, sqlite3"], capture_output=True)
        if done.returncode:
            said = done.stderr.decode().strip()
            sys.exit(f"the Python in {self.root} lacks a library (docs/runtime.md): {said}")
        return python
