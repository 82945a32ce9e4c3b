"""What runs on the machines of a Ray cluster: one actor is one worker.

An actor gets the server's part of the bundles, evaluation keys and queries as bytes, and returns
answers as bytes; encrypted keys and values of a text go both ways. It shares no disk with the
service, whose copy is the one that lasts. It leaves no file behind, unless it is killed in a text.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from atlasc.bundle.folder import PREFILL, STEP, listed_bundle
from atlasc.bundle.manifest import MANIFEST
from atlasc.bundle.messages import Message
from atlasc.files import scratch_folder
from atlasc.generation.server import CACHE
from atlasc.ir.errors import AtlasError
from atlasc.service.texts import Opened, open_programs
from atlasc.service.workers.base import Loadable, Record
from atlasc.service.workers.executor import Executor, memory_budget
from atlasc.version import __version__

Files = Mapping[str, np.ndarray]
"""Name of a file in a folder -> its content, ``uint8``."""


class Ran(NamedTuple):
    """A job that an actor ran.

    Attributes:
        record: how it went.
        loaded: which keys are loaded.
        answer: bytes of the answer, if there is one.
        text: name of the text after it and the file of its keys and values, if it belongs to one.
    """

    record: Record
    loaded: Sequence[tuple[str, str]]
    answer: np.ndarray | None = None
    text: tuple[str, np.ndarray] | None = None


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
        self,
        job: str,
        program: str,
        key: str,
        query: np.ndarray,
        evaluation: np.ndarray | None,
        session: str = "",
        kept: np.ndarray | None = None,
    ) -> Ran:
        """Answer one query.

        Args:
            job, program, key: as of :class:`atlasc.service.workers.base.Order`.
            query: its bytes, ``uint8``.
            evaluation: those of ``evaluation.key``; None if these keys are loaded here.
            session: name of the text that the query belongs to; empty if it belongs to none.
            kept: the file of its keys and values; None before the first query.
        """
        answers: list[np.ndarray] = []
        texts: list[tuple[str, np.ndarray]] = []

        def save(answer: Message) -> None:
            answers.append(np.frombuffer(answer.to_bytes(), np.uint8))

        def content() -> AbstractContextManager[memoryview]:
            if evaluation is None:
                raise RuntimeError(f"the keys {key} are not loaded here")
            return nullcontext(evaluation.data)

        @contextmanager
        def place_of(name: str, tokens: int) -> Iterator[Path]:
            with scratch_folder("atlasc-texts") as scratch:
                place = scratch / session
                place.mkdir()
                if kept is not None:
                    kept.tofile(place / CACHE)
                yield place
                (place,) = scratch.iterdir()
                texts.append((place.name, np.fromfile(place / CACHE, np.uint8)))

        self._now.pop("progress", None)
        given = (job, program, key, query.tobytes(), content, save, place_of)
        record = self._executor.run(*given)
        loaded = self._now.get("keys", ())
        return Ran(record, loaded, next(iter(answers), None), next(iter(texts), None))

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
