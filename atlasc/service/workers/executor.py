"""What computes inside a worker: programs, and the keys of the latest tenants."""

from __future__ import annotations

import gc
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from atlasc.api.roles import Server
from atlasc.bundle.folder import Bundle
from atlasc.bundle.messages import Message
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import GIB
from atlasc.service.faults import fault_of
from atlasc.service.texts import Opened, OpenText, text_answer
from atlasc.service.workers.base import Record, Tell
from atlasc.targets.machine import available_bytes

if TYPE_CHECKING:
    from typing_extensions import Buffer

OpenKeys = Callable[[], "AbstractContextManager[Buffer]"]
"""Gives the content of ``evaluation.key`` while its context lasts."""


class Cancelled(Exception):
    """The job that runs was cancelled."""


class Executor:
    """Programs, and the keys that are loaded for them.

    Args:
        open_program: opens a program by its identity; called for each query.
        sizes: identity of a program -> bytes of its loaded keys.
        budget: bytes that loaded keys may take together.
        tell: is told the progress of a job, and which keys are loaded.
    """

    def __init__(
        self,
        open_program: Callable[[str], Opened],
        sizes: Mapping[str, int],
        budget: int,
        tell: Tell,
    ) -> None:
        self._open, self._sizes, self._budget, self._tell = open_program, sizes, budget, tell
        self._loaded: OrderedDict[tuple[str, str], Server] = OrderedDict()
        self.cancelled: set[str] = set()

    def run(
        self,
        job: str,
        program: str,
        key: str,
        query: Path | bytes,
        evaluation: OpenKeys,
        save: Callable[[Message], None],
        place_of: OpenText | None = None,
    ) -> Record:
        """Answer one query.

        Args:
            job: name of the job, as it may be cancelled by.
            program, key: what the query belongs to.
            query: the query, or its file.
            evaluation: opens the keys, if they are not loaded.
            save: takes the answer.
            place_of: gives the folder of a text of these keys; needed for programs of texts.

        Returns:
            How it went: ``done``, ``failed`` or ``cancelled``.

        Raises:
            AtlasError: the device will do no more work for this process.
        """
        started, told = time.monotonic(), -1

        def progress(what: str, done: int, total: int | None) -> None:
            nonlocal told
            self._check(job)
            if done > told:
                told = done
                self._tell({"progress": done})

        try:
            self._check(job)
            bundle, text = self._open(program)
            message = Message.read(query, "query", bundle)
            server = self._server(bundle, program, key, evaluation)
            if place_of is not None and text is not None:
                made = text_answer(place_of, text, server, message.to_bytes(), progress)
                save(Message.read(made, "answer", bundle))
            else:
                answer, _ = server.answer(message, progress)
                save(answer)
        except Cancelled:
            return {"cancelled": True}
        except AtlasError as error:
            # What a lost device fails at is no fault of the job: another process may answer it.
            if (program, key) in self._loaded:
                self._loaded[program, key].engine.wait()
            return {"failed": fault_of(error).model_dump()}
        except MemoryError:
            why = {"error": "the job could not be computed", "why": "memory is too small"}
            return {"failed": why}
        finally:
            self.cancelled.discard(job)
        return {"done": time.monotonic() - started}

    @property
    def loaded_bytes(self) -> int:
        """Bytes of the loaded keys, by the prediction."""
        return sum(self._sizes[program] for program, _ in self._loaded)

    def forget(self, key: str) -> None:
        """Free keys that their tenant deleted."""
        for loaded in [one for one in self._loaded if one[1] == key]:
            del self._loaded[loaded]
        gc.collect()
        self._tell_keys()

    def _check(self, job: str) -> None:
        if job in self.cancelled:
            raise Cancelled

    def _server(self, bundle: Bundle, program: str, key: str, evaluation: OpenKeys) -> Server:
        """The server with these keys; the least recently used others make room for them."""
        if (program, key) in self._loaded:
            self._loaded.move_to_end((program, key))
            return self._loaded[program, key]
        new = self._sizes[program]
        while self._loaded and new + sum(self._sizes[p] for p, _ in self._loaded) > self._budget:
            self._loaded.popitem(last=False)
            gc.collect()
        with evaluation() as content:
            server = self._loaded[program, key] = Server(bundle, content)
        self._tell_keys()
        return server

    def _tell_keys(self) -> None:
        self._tell({"keys": list(self._loaded)})


def memory_budget(
    sizes: Mapping[str, int], given: int | None, sharing: int = 1, gpu: int | None = None
) -> int:
    """Bytes that the loaded keys of one worker may take.

    Args:
        sizes: name of a model -> bytes of one tenant's loaded keys.
        given: what the user allows; None: half of what is free.
        sharing: workers that share what is free.
        gpu: bytes of the GPU in whose memory the keys lie; None: they lie in this machine's.

    Raises:
        AtlasError: the keys of one tenant of a program do not fit.
    """
    free = available_bytes() if gpu is None else gpu
    budget = given if given is not None else (free or 8 * GIB) // 2 // sharing
    if gpu is not None and budget > gpu:
        raise AtlasError(
            "--memory is more than the GPU has",
            why=f"it is {budget / GIB:.1f} GiB of {gpu / GIB:.1f}",
            remedy="give less: ciphertexts and weights need room beside the keys",
        )
    for model, size in sizes.items():
        if size > budget:
            raise AtlasError(
                f"the keys of one tenant of {model} do not fit into the memory"
                + (" of the GPU" if gpu is not None else ""),
                why=f"they take {size / GIB:.1f} GiB of {budget / GIB:.1f}",
                remedy="give more with --memory, or compile with a smaller key-memory of --target",
            )
    return budget
