"""What runs on the machines of a Ray cluster: one actor is one worker.

An actor gets the server's part of the bundles, evaluation keys and queries as bytes, and returns
answers as bytes: it shares no disk with the service. It leaves no file behind.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from atlasc.bundle.folder import PREFILL, STEP, listed_bundle
from atlasc.bundle.manifest import MANIFEST
from atlasc.bundle.messages import Message
from atlasc.ir.errors import AtlasError
from atlasc.service.texts import Opened, open_programs
from atlasc.service.workers.base import Loadable, Record
from atlasc.service.workers.executor import Executor, memory_budget
from atlasc.version import __version__

Files = Mapping[str, np.ndarray]
"""Name of a file in a folder -> its content, ``uint8``."""


class RayActor:
    """A worker of a cluster. ``look`` and ``cancel`` are called while ``run`` runs.

    Args:
        processors: threads that it computes with.
    """

    def __init__(self, processors: int) -> None:
        os.umask(0o077)
        os.environ["ATLASC_THREADS"] = str(processors)
        self._now: dict[str, Any] = {}

    def open(
        self,
        programs: Mapping[str, Loadable],
        parts: Mapping[str, Files],
        memory: int | None,
        sharing: int,
        version: str,
    ) -> tuple[int, str]:
        """Take programs; returns the process id, and the name of the machine.

        Args:
            programs: identity of a program -> the program.
            parts: folder of a bundle -> its :func:`part_of`.
            memory: bytes that loaded keys may take; None: half of what is free here, divided by
            sharing: the workers of one machine.
            version: of the service's atlasc.

        Raises:
            AtlasError: see :func:`fitting_budget`.
        """
        budget = fitting_budget(programs, memory, sharing, version)
        opened = {name: one for files in parts.values() for name, one in _opened(files).items()}
        needed = {program: one.loaded_bytes for program, one in programs.items()}
        self._executor = Executor(opened.__getitem__, needed, budget, self._now.update)
        return os.getpid(), socket.gethostname()

    def run(
        self, job: str, program: str, key: str, query: np.ndarray, evaluation: np.ndarray | None
    ) -> tuple[Record, Sequence[tuple[str, str]], np.ndarray | None]:
        """Answer one query.

        Args:
            job, program, key: as of :class:`atlasc.service.workers.base.Order`.
            query: its bytes, ``uint8``.
            evaluation: those of ``evaluation.key``; None if these keys are loaded here.

        Returns:
            How it went, which keys are loaded, and the bytes of the answer if there is one.
        """
        answers: list[np.ndarray] = []

        def save(answer: Message) -> None:
            answers.append(np.frombuffer(answer.to_bytes(), np.uint8))

        def content() -> AbstractContextManager[memoryview]:
            if evaluation is None:
                raise RuntimeError(f"the keys {key} are not loaded here")
            return nullcontext(evaluation.data)

        self._now.pop("progress", None)
        record = self._executor.run(job, program, key, query.tobytes(), content, save)
        return record, self._now.get("keys", ()), answers[0] if answers else None

    def look(self) -> Record:
        """Hundredths of the job that runs, and all keys that are loaded."""
        return dict(self._now)

    def cancel(self, job: str) -> None:
        """Stop a job before its next op."""
        self._executor.cancelled.add(job)

    def forget(self, key: str) -> Sequence[tuple[str, str]]:
        """Free keys that their tenant deleted; returns those that are still loaded."""
        self._executor.forget(key)
        return self._now.get("keys", ())


def fitting_budget(
    programs: Mapping[str, Loadable], memory: int | None, sharing: int, version: str
) -> int:
    """Bytes that the loaded keys of one worker of this machine may take; see :meth:`RayActor.open`.

    Raises:
        AtlasError: this machine has another version of atlasc; or the keys of one tenant of a
            program do not fit into its memory.
    """
    if version != __version__:
        raise AtlasError(
            f"{socket.gethostname()} has another version of atlasc than the service",
            why=f"it has {__version__}, the service {version}",
            remedy="install the same version on all machines of the cluster",
        )
    sizes = {one.model: one.loaded_bytes for one in programs.values()}
    return memory_budget(sizes, memory, sharing)


def part_of(folder: Path) -> Files:
    """The server's part of a bundle, as bytes; of one with a step, those of step and prefill."""
    bundle = listed_bundle(folder, "server")
    inner = (f"{STEP}/", f"{PREFILL}/") if bundle.has_step else ("",)
    parts = tuple(f"{place}{what}" for place in inner for what in ("server/", MANIFEST))
    names = {MANIFEST, *(name for name in bundle.manifest.files if name.startswith(parts))}
    return {name: np.fromfile(bundle.folder / name, np.uint8) for name in sorted(names)}


def _opened(files: Files) -> dict[str, Opened]:
    """A bundle, checked against its manifest and read, so that its files can be removed again."""
    with TemporaryDirectory(prefix="atlasc-") as folder:
        for name, content in files.items():
            (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
            content.tofile(Path(folder) / name)
        found = open_programs(Path(folder))
        for bundle, _ in found.values():
            _ = bundle.server, bundle.parameters, bundle.interface
    return found
