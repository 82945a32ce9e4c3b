"""The Python module of a built project: client and server in this process, on its engine."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np

from atlasc.bundle.folder import Bundle
from atlasc.client.program import batches, rows_of
from atlasc.emit.interface import identity_of
from atlasc.emit.project import WEIGHTS
from atlasc.ir.errors import AtlasError, explained
from atlasc.run.session import RunResult, Stopwatch, joined

_PATTERN = "atlasc_*.so"


def module_place(project: Path) -> Path | None:
    """The module that was built in a project; None where there is none."""
    return min((project / "build").glob(_PATTERN), default=None)


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
        """The module of a project that was built from a bundle.

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
        spec = importlib.util.spec_from_file_location(place.name.partition(".")[0], place)
        assert spec is not None and spec.loader is not None
        remedy = "build the project again for this Python, on this machine"
        with explained(f"the module {place} cannot be loaded", remedy=remedy):
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
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
        """Key generation, encryption, execution and decryption, for a try-out; arguments as of
        :func:`atlasc.run.session.run`.

        Raises:
            AtlasError: of the inputs, or of the engine.
        """
        watch, parts = Stopwatch(), []
        try:
            # The secret key lies in a folder that only its owner reads, and goes with it.
            with tempfile.TemporaryDirectory() as folder:
                keys = Path(folder) / "keys"
                self.module.keygen(str(keys))
                client = self.module.Client(str(keys / "secret.key"))
                weights = str(self.project / WEIGHTS)
                server = self.module.Server(str(keys / "evaluation.key"), weights)
            watch.lap("keys")
            for _, rows in batches(arrays, bundle.client.batch):
                prepared = {
                    name: np.ascontiguousarray(tensor[: rows_of(rows)], dtype=np.float64)
                    for name, tensor in bundle.client.prepare(rows).items()
                }
                query = client.encrypt(prepared)
                watch.lap("encrypt")
                answer = server.execute(query)
                watch.lap("execute")
                parts.append(client.decrypt(answer))
                watch.lap("decrypt")
        except self.module.Error as error:
            what, where, why, remedy = error.args
            raise AtlasError(what, where=where, why=why, remedy=remedy) from None
        facts = dict(expected), watch.seconds, f"{self.engine}, C++"
        return RunResult(joined(parts), {}, *facts)
