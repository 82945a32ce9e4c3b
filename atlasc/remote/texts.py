"""Text that a service generates: its client keeps the text, and the service keys and values."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from atlasc.api.generation import client_of
from atlasc.api.roles import Client
from atlasc.api.session import Answering, TextSession
from atlasc.bundle.messages import Message
from atlasc.generation.client import TextClient
from atlasc.generation.ends import Generated
from atlasc.generation.prompt import Prompted
from atlasc.generation.steps import TextBundles, alone
from atlasc.ir.errors import AtlasError, counted
from atlasc.ir.files import MIB
from atlasc.progress import ProgressCallback
from atlasc.remote.link import Link, address
from atlasc.remote.programs import Texts
from atlasc.remote.wire import FINISHED, JobStatus

LONGEST_POLL = 1.0
"""Most seconds between two looks at a job."""


class LostText(AtlasError):
    """The service computed no answer to a query of a text."""


class RemoteServer:
    """Has a service answer the queries of texts.

    An answer stays on the service until the next query: who was killed before it was read sends the
    same query again, and gets the same answer.

    Args:
        link: the service.
        programs: the client's parts of the programs of a text.
        keys: id of the client's keys on the service.
    """

    def __init__(self, link: Link, programs: TextBundles, keys: str) -> None:
        self._link, self._programs, self._keys, self._last = link, programs, keys, ""

    def answer(self, request: bytes, progress: ProgressCallback | None = None) -> bytes:
        """The answer to a query.

        Raises:
            LostText: its job failed.
            AtlasError: the service refuses, or cannot be reached.
        """
        self.close()
        program = self._programs.of_message(request)
        place = address("jobs", keys=self._keys, program=program.manifest.program)
        headers = {"Content-Type": "application/octet-stream"}
        job, pause = self._link.send("POST", place, JobStatus, request, headers=headers), 0.02
        while job.state not in FINISHED:
            if progress is not None:
                ahead = counted(job.ahead, "job ahead", "jobs ahead")
                progress(ahead if job.ahead else job.state, job.done, 100)
            time.sleep(pause)
            pause = min(1.5 * pause, LONGEST_POLL)
            job = self._link.get(address("jobs", job.id), JobStatus)
        if job.state != "done":
            fault = job.fault
            raise LostText(
                fault.error if fault is not None else f"the job of a token is {job.state}",
                why=fault.why if fault is not None else "",
                remedy=fault.remedy if fault is not None else "",
            )
        self._last = address("jobs", job.id)
        limit = Message.largest("answer", program)
        return self._link.fetch("GET", f"{self._last}/answer", limit=limit)

    def close(self) -> None:
        """Have the service delete the last answer, which was read."""
        last, self._last = self._last, ""
        if last:
            with suppress(AtlasError):  # it is deleted after a time
                self._link.fetch("DELETE", last, limit=MIB)


class RemoteSession(TextSession):
    """A text of one or more turns, which a service computes; see :class:`TextSession`.

    The service sees when queries end, so each turn asks for a fixed number of tokens.

    Args:
        client: the role of the step, with the client's keys.
        server: the service.
        texts: the programs.
        folder: the client's folder of the text: a new one, or one that goes on; None keeps nothing.
        options: of :class:`TextSession`.
    """

    _until_end = False

    def __init__(
        self,
        client: Client,
        server: RemoteServer,
        texts: Texts,
        folder: Path | None = None,
        **options: Any,
    ) -> None:
        super().__init__(client.bundle, folder, **options)
        self._client, self._service, self._texts = client, server, texts

    def _opened(self, given: Prompted | None, tokens: int | None) -> tuple[TextClient, Answering]:
        if self._roles is None:
            folder, known = self._kept, self._exists
            if folder is not None and known:
                self._stack.enter_context(alone(folder, "session"))
            programs, lack = self._texts
            client = TextClient(
                programs, partial(client_of, self._client), folder, given,
                self._sampling, steps=tokens, window=self._window,
            )  # fmt: skip
            if folder is not None and not known:
                self._stack.enter_context(alone(folder, "session"))
            self._stack.callback(self._service.close)
            if lack:
                self._note(f"each token of the prompt takes a step: {lack}", "")
            if client.computes_prompt and programs.prefill is None:
                client.anew()  # it was begun with a prefill
            self._begin(client, self._service)
        return super()._opened(given, tokens)

    def _written(self, tokens: int | None) -> Generated:
        try:
            return super()._written(tokens)
        except LostText as error:
            assert self._roles is not None, "a query was sent"
            cost = self._roles[0].cost(afresh=True)
            again = (
                "--anew has the service compute all tokens of the session, from new ciphertexts "
                f"({cost}); in Python go_on() follows it"
            )
            error.remedy = "; ".join(filter(None, (error.remedy, again)))
            raise
