"""An execution that outlives its process: its live ciphertexts in a file, and what it has spent.

The file holds ciphertexts alone: a server can write it, and learns nothing from it. It is written
aside and then renamed, one ciphertext after the other, so that saving takes little memory.
"""

from __future__ import annotations

import hashlib
import json
import resource
import sys
import time
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from glob import iglob
from pathlib import Path
from typing import Any

import numpy as np

import atlasc
from atlasc.api.roles import Server
from atlasc.files import write_private
from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.files import sha256_of
from atlasc.ir.module import Module
from atlasc.program.execute import Execution
from atlasc.runtime.engine import RoleEngine
from atlasc.targets.machine import ROOT, OtherWork

FACTS = "facts.json"


@dataclass
class Spent:
    """What an execution has taken so far, in all its processes.

    Attributes:
        op_seconds, op_cores: wall-clock and processor seconds of each op that is done.
        memory: the most that one of the processes held, in bytes.
        others: of each process its seconds, and the share of the machine that other work took.
    """

    op_seconds: list[float] = field(default_factory=list)
    op_cores: list[float] = field(default_factory=list)
    memory: int = 0
    others: list[tuple[float, float | None]] = field(default_factory=list)


class Meter:
    """Adds what this process takes to what the earlier ones took."""

    def __init__(self, spent: Spent) -> None:
        self.spent = spent
        self._others, self._work, self._started = list(spent.others), OtherWork(), time.monotonic()

    def add(self, seconds: float, cores: float) -> None:
        """An op is done."""
        self.spent.op_seconds.append(seconds)
        self.spent.op_cores.append(cores)

    def read(self) -> Spent:
        """All that was spent, up to now."""
        now = time.monotonic() - self._started, self._work.share()
        self.spent.memory = max(self.spent.memory, peak_memory())
        self.spent.others = [*self._others, now]
        return self.spent


@dataclass(frozen=True)
class SavedState:
    """The file of an execution.

    Attributes:
        path: of the file.
        identity: of what it belongs to, by name; see :func:`identity`.
    """

    path: Path
    identity: Mapping[str, str]

    def save(self, run: Execution[Any], engine: RoleEngine[Any], spent: Spent) -> None:
        """Write the file; an older one is replaced.

        Raises:
            AtlasError: it cannot be written.
        """
        live = {value.name: made for value, made in run.values.items() if value.encrypted}
        facts = {
            "identity": dict(self.identity),
            "position": run.position,
            "live": {name: len(made) for name, made in live.items()},
            "spent": asdict(spent),
        }

        def write(draft: Path) -> None:
            with zipfile.ZipFile(draft, "w") as archive:
                archive.writestr(FACTS, json.dumps(facts))
                for name, made in live.items():
                    for number, ciphertext in enumerate(made):
                        archive.writestr(f"{name}/{number}", engine.serialize(ciphertext))

        write_private(self.path, write)

    def restore(
        self,
        run: Execution[Any],
        engine: RoleEngine[Any],
        program: Module,
        public: Mapping[str, np.ndarray],
    ) -> Spent:
        """Bring a new run to the saved position, if there is a file. Returns what was spent.

        Args:
            public: the public inputs by name; the file has none.

        Raises:
            AtlasError: the file belongs to another program, query, version or other keys, or is
                damaged.
        """
        if not self.path.exists():
            return Spent()
        remedy = "delete it, and the execution starts from the beginning"
        explain = explained("the saved state cannot be read", self.path, remedy)
        with explain, zipfile.ZipFile(self.path) as archive:
            facts = json.loads(archive.read(FACTS))
            self._require(facts["identity"])
            run.position = facts["position"]
            for op in program.ops[: run.position]:
                if op.name == "ckks.public_input":
                    run.values[op.value] = public[op.attributes["name"]]
                elif op.result is not None and (count := facts["live"].get(op.value.name)):
                    parts = (archive.read(f"{op.value.name}/{n}") for n in range(count))
                    run.values[op.value] = [engine.deserialize(part) for part in parts]
        return Spent(**facts["spent"])

    def _require(self, found: Mapping[str, str]) -> None:
        """Refuse the state of something else."""
        other = [name for name, digest in self.identity.items() if found.get(name) != digest]
        if other:
            raise AtlasError(
                "the saved state belongs to another execution",
                where=str(self.path),
                why=f"it was made with another {', '.join(other)}",
                remedy="delete it, and the execution starts from the beginning",
            )


def identity(server: Server, query: Path) -> dict[str, str]:
    """What decides the ciphertexts of an execution and their times: digests by name."""
    return {
        "program": server.bundle.identity,
        "key pair": server.engine.identity,
        "query": sha256_of(query),
        "version of atlasc": _code(),
    }


def _code() -> str:
    """SHA-256 of atlasc's modules, the compiled ones too."""
    root, state = Path(atlasc.__file__).parent, hashlib.sha256()
    for pattern in ("**/*.py", "**/*.so"):
        for name in sorted(iglob(pattern, root_dir=root, recursive=True)):
            state.update(name.encode() + (root / name).read_bytes())
    return state.hexdigest()


def peak_memory() -> int:
    """The most memory that this process has held, in bytes (VmHWM).

    ``getrusage`` would tell the memory of the process that started this one, if that was larger.
    """
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    status = (ROOT / "proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
