"""The GPU of this machine, and the programs that build an engine for it."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu.commands import output_of
from benchmarks.gpu.outcome import Failed

QUERY = "name,compute_cap,memory.total,driver_version"
SECONDS = 60

Find = Callable[[str], "str | None"]


@dataclass(frozen=True)
class Machine:
    """Where the parts run.

    Attributes:
        name: of the GPU, or "emulated".
        capability: of the GPU, as in sm_90: "90"; empty if emulated.
        memory_mib: of the GPU.
        driver, cuda: versions of the driver, and of nvcc.
        nvcc: its path; empty if there is none.
        missing: why nothing can be built here; empty if it can.
        threads: of the processor.
    """

    name: str
    capability: str = ""
    memory_mib: int = 0
    driver: str = ""
    cuda: str = ""
    nvcc: str = ""
    missing: str = ""
    threads: int = os.cpu_count() or 1

    @property
    def emulated(self) -> bool:
        """Whether kernels run on the processor."""
        return not self.capability

    @property
    def slug(self) -> str:
        """The name as that of a file."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")


EMULATED = Machine("emulated")


def find_program(name: str) -> str | None:
    """The path of a program: on the PATH, beside this Python, or where CUDA installs itself."""
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    beside = [Path(sys.executable).parent, *(Path(root) / "bin" for root in roots if root)]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(map(str, beside)))


def find_machine(find: Find = find_program, emulate: bool = False) -> Machine:
    """The first GPU of this machine; ``EMULATED`` if there is none.

    A GPU that no engine can be built for is found, with the reason: figures of another kind must
    not take the place of its own.

    Args:
        find: gives the path of a program by its name.
        emulate: do not look for a GPU.
    """
    missing = "" if find("cmake") else "cmake is not there: pip install cmake, or the system's own"
    smi = None if emulate else find("nvidia-smi")
    try:
        rows = output_of([smi, f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"], SECONDS) \
            if smi else ""  # fmt: skip
        name, capability, memory, driver = (cell.strip() for cell in rows.split("\n")[0].split(","))
        capability, size = capability.replace(".", ""), int(memory)
    except (Failed, ValueError):  # there is a driver, and no GPU
        return Machine(EMULATED.name, missing=missing)
    nvcc = find("nvcc") or ""
    cuda = ""
    if not nvcc:
        missing = missing or "nvcc is not there: CUDA's compiler builds the engine"
    else:
        try:
            found = re.search(r"release ([\d.]+)", output_of([nvcc, "--version"], SECONDS))
            cuda = found[1] if found else ""
            missing = missing or ("" if cuda else f"{nvcc} does not say its version")
        except Failed as error:
            missing = missing or f"{nvcc} does not work: {error}"
    return Machine(name, capability, size, driver, cuda, nvcc, missing)
