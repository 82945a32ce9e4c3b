"""What a client asked and has not read yet, on its disk: no answer that was computed is lost.

Each call of ``query`` has a folder, locked while it runs. A query is noted before it is sent, its
job once there is one, and the encrypted answer before the service deletes it. The folder is removed
once the decrypted answers were taken. One that is left, because its process was killed, the service
was away or the disk was full, is taken by ``atlasc query --fetch``.
"""

from __future__ import annotations

import fcntl
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from atlasc.files import locked, write_private
from atlasc.ir.files import MIB, Amount, Count, Schema, Sha256, read_bytes, read_json
from atlasc.remote.wire import Name

RUN = "run.json"
LARGEST = 64 * MIB
"""Most bytes of a note: the names of all inputs."""


class Asked(Schema):
    """What a run asks.

    Attributes:
        program: identity of the program.
        names: of all inputs.
        left_out: number of an input that was not encrypted, as text -> why.
        sent: seconds since 1970.
    """

    format: Literal[1] = 1
    program: Sha256
    names: tuple[str, ...]
    left_out: dict[str, str]
    sent: Amount


class Part(Schema):
    """One query of a run.

    Attributes:
        query: its name.
        rows: numbers of its inputs.
        job: of the service; empty before the service has accepted the query.
    """

    query: Name
    rows: tuple[Count, ...]
    job: Name = ""


@dataclass
class Run:
    """A run; its folder is locked as long as this process works on it.

    Attributes:
        parts: the queries, in the order in which they were made.
    """

    folder: Path
    asked: Asked
    parts: list[Part]

    def begin(self, query: str, rows: Sequence[int]) -> int:
        """Note a query before it is sent; returns its number."""
        self.parts.append(Part(query=query, rows=tuple(map(int, rows))))
        self._note(len(self.parts) - 1)
        return len(self.parts) - 1

    def accepted(self, number: int, job: str) -> None:
        """Note the job of a query."""
        self.parts[number] = self.parts[number].model_copy(update={"job": job})
        self._note(number)

    def keep(self, number: int, answer: bytes) -> None:
        """Write an encrypted answer to the disk."""
        write_private(self._place(number, "answer"), lambda draft: draft.write_bytes(answer))

    def answer(self, number: int, limit: int) -> bytes | None:
        """The encrypted answer to a query; None before it is here."""
        place = self._place(number, "answer")
        return read_bytes(place, limit, links=False) if place.exists() else None

    def has(self, number: int) -> bool:
        """Whether the encrypted answer to a query is here."""
        return self._place(number, "answer").exists()

    def remove(self) -> None:
        """Forget the run: its answers were taken."""
        (self.folder / RUN).unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _note(self, number: int) -> None:
        text = self.parts[number].model_dump_json()
        write_private(self._place(number, "json"), lambda draft: draft.write_text(text))

    def _place(self, number: int, suffix: str) -> Path:
        return self.folder / f"{number:08}.{suffix}"


@contextmanager
def new_run(
    folder: Path, program: str, names: Sequence[str], left_out: Mapping[int, str]
) -> Iterator[Run]:
    """A new run in the folder of all runs; what it leaves there is removed if nothing was sent."""
    asked = Asked(
        program=program, names=tuple(names), sent=time.time(),
        left_out={str(number): why for number, why in left_out.items()},
    )  # fmt: skip
    place = folder / secrets.token_hex(8)
    with ExitStack() as stack:
        while not place.exists():  # another process may remove it before it is locked
            place.mkdir(mode=0o700, parents=True)
            with suppress(FileNotFoundError):
                stack.enter_context(locked(place))
        write_private(place / RUN, lambda draft: draft.write_text(asked.model_dump_json()))
        run = Run(place, asked, [])
        try:
            yield run
        finally:
            if not any(part.job for part in run.parts):
                run.remove()


@contextmanager
def left_runs(folder: Path) -> Iterator[list[Run]]:
    """The runs that no process works on, the oldest first; locked until the block ends."""
    found: list[Run] = []
    with ExitStack() as stack:
        for place in sorted(folder.glob("*/")) if folder.is_dir() else ():
            try:
                stack.enter_context(locked(place, fcntl.LOCK_NB))
            except OSError:
                continue
            if not (place / RUN).exists():  # of a process that was killed in its first moment
                shutil.rmtree(place, ignore_errors=True)
                continue
            asked = read_json(place / RUN, Asked, "the note of a run", LARGEST, links=False)
            parts = [
                read_json(one, Part, "the note of a query", LARGEST, links=False)
                for one in sorted(place.glob("*[0-9].json"))
            ]
            found.append(Run(place, asked, parts))
        yield sorted(found, key=lambda run: run.asked.sent)
