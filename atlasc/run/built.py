"""The Python module of a built project: client and server in this process, on its engine."""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from atlasc.bundle.folder import Bundle
from atlasc.client.program import batches, rows_of
from atlasc.emit.interface import identity_of
from atlasc.emit.project import WEIGHTS
from atlasc.ir.errors import AtlasError
from atlasc.run.session import PHASES, RunResult

Result = TypeVar("Result")
_PATTERN = "atlasc_*.so"


def module_place(project: Path) -> Path | None:
    """The module that was built in a project; None where there is none."""
    return next(iter(sorted((project / "build").glob(_PATTERN))), None)


@dataclass(frozen=True)
class BuiltProgram:
    """A program whose keys and ciphertexts are those of the engine that it was built with.

    Attributes:
        project: folder of the project.
        module: what was built from it.
    """

    project: Path
    module: ModuleType

    @classmethod
    def load(cls, project: Path, bundle: Bundle) -> BuiltProgram:
        """The module of a project.

        Args:
            project: what ``atlasc emit`` wrote, built.
            bundle: what it was emitted from.

        Raises:
            AtlasError: no module was built, it cannot be loaded, or it is of another program.
        """
        place = module_place(project)
        if place is None:
            raise AtlasError(
                f"{project} has no Python module",
                why=f"no {_PATTERN} in its folder build",
                remedy="build it with -DATLASC_PYTHON=ON, or emit with --build --python",
            )
        name = place.name.partition(".")[0]
        spec = importlib.util.spec_from_file_location(name, place)
        assert spec is not None and spec.loader is not None
        try:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        except ImportError as error:
            raise AtlasError(
                f"the module {place} cannot be loaded",
                why=str(error),
                remedy="build the project again for this Python, on this machine",
            ) from None
        if module.program != identity_of(bundle.program):
            raise AtlasError(
                f"{place} was built from another program than {bundle.folder}",
                remedy="emit the bundle again and build it",
            )
        return cls(project, module)

    @property
    def engine(self) -> str:
        """Name of the engine that is linked."""
        return str(self.module.engine)

    def run(
        self,
        bundle: Bundle,
        arrays: Mapping[str, np.ndarray],
        expected: Mapping[str, np.ndarray],
    ) -> RunResult:
        """Key generation, encryption, execution and decryption, for a try-out.

        Args:
            bundle: prepares raw inputs.
            arrays: raw inputs by name; more than a batch are answered in several runs.
            expected: the polynomial simulation of the inputs.

        Raises:
            AtlasError: of the inputs, or of the engine.
        """
        seconds = dict.fromkeys(PHASES, 0.0)

        def timed(phase: str, call: Callable[..., Result], *arguments: Any) -> Result:
            started = time.perf_counter()
            try:
                return call(*arguments)
            except self.module.Error as error:
                what, where, why, remedy = error.args
                raise AtlasError(what, where=where, why=why, remedy=remedy) from None
            finally:
                seconds[phase] += time.perf_counter() - started

        parts: list[dict[str, np.ndarray]] = []
        # The secret key lies in a folder that only its owner reads, and goes with it.
        with tempfile.TemporaryDirectory() as folder:
            keys = Path(folder) / "keys"
            timed("keys", self.module.keygen, str(keys))
            client = timed("keys", self.module.Client, str(keys / "secret.key"))
            places = str(keys / "evaluation.key"), str(self.project / WEIGHTS)
            server = timed("keys", self.module.Server, *places)
        for _, rows in batches(arrays, bundle.client.batch):
            prepared = {
                name: np.ascontiguousarray(tensor[: rows_of(rows)], dtype=np.float64)
                for name, tensor in bundle.client.prepare(rows).items()
            }
            query = timed("encrypt", client.encrypt, prepared)
            answer = timed("execute", server.execute, query)
            parts.append(timed("decrypt", client.decrypt, answer))
        outputs = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return RunResult(outputs, dict(expected), seconds, f"{self.engine}, C++")
