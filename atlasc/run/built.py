"""The Python module of a built project: client and server in this process, on its engine."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from atlasc.bundle.folder import Bundle
from atlasc.client.checks import functions_of
from atlasc.client.program import batches
from atlasc.emit.project import INTERFACE, PROGRAM
from atlasc.ir.errors import AtlasError, explained
from atlasc.run.session import RunResult, Stopwatch, joined
from atlasc.runtime.native import translated
from atlasc.targets.program import identity_of

_PATTERN = "atlasc_*.so"


def module_place(project: Path) -> Path | None:
    """The module that was built in a project; None if there is none."""
    return min((project / "build").glob(_PATTERN), default=None)


class BuiltProgram:
    """A bundle's program on the engine of a built project, with that engine's keys and ciphertexts.

    Attributes:
        module: the Python module of the project.

    Raises:
        AtlasError: no module was built, it cannot be loaded, or it belongs to another program.
    """

    def __init__(self, project: Path, bundle: Bundle) -> None:
        place = module_place(project)
        if place is None:
            raise AtlasError(
                f"{project} has no Python module",
                why=f"no {_PATTERN} in its folder build",
                remedy="build the project with -DATLASC_PYTHON=ON, or emit with --build --python",
            )
        # Two programs of one model have the same module name, but different places.
        name = f"{place.resolve().parent}.{place.name.partition('.')[0]}"
        spec = importlib.util.spec_from_file_location(name, place)
        assert spec is not None and spec.loader is not None
        remedy = "build the project again for this Python, on this machine"
        with explained(f"the module {place} cannot be loaded", remedy=remedy):
            self.module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(self.module)
        self.client, self.program = bundle.client, str(project / PROGRAM)
        self.interface = str(project / INTERFACE)
        with translated(self.module):
            identity = self.module.identity(self.interface)
        if identity != identity_of(bundle.program):
            raise AtlasError(
                f"{place} was built from another program than {bundle.folder}",
                remedy="emit the bundle again and build it",
            )

    def run(
        self,
        arrays: Mapping[str, np.ndarray],
        expected: Mapping[str, np.ndarray],
        unchecked: bool = False,
    ) -> RunResult:
        """Make keys, encrypt, execute and decrypt, to try a program; see
        :func:`atlasc.run.session.run`.
        """
        watch, parts = Stopwatch(), []
        refused: dict[int, float] = {}
        # The secret key lies in a private folder and is deleted with it.
        with tempfile.TemporaryDirectory() as folder, translated(self.module):
            keys = Path(folder) / "keys"
            self.module.keygen(str(keys), self.interface)
            client = self.module.Client(str(keys / "secret.key"), self.interface)
            server = self.module.Server(str(keys / "evaluation.key"), self.program)
            watch.lap("keys")
            for start, rows in batches(arrays, self.client.batch):
                query = client.encrypt(self.client.prepare(rows), unchecked)
                watch.lap("encrypt")
                answer = server.execute(query)
                watch.lap("execute")
                outputs, wrong = client.decrypt(answer)
                parts.append(outputs)
                refused |= {start + row: share for row, share in wrong.items()}
                watch.lap("decrypt")
        facts = dict(expected), watch.seconds, f"{self.module.engine}, C++"
        functions = functions_of(self.client.interface)
        return RunResult(joined(parts), refused, *facts, functions=functions)
