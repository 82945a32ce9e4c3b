"""``atlasc.connect``: ask a service as if the model ran here; only ciphertexts leave."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from atlasc.api.admission import admit
from atlasc.api.errors import atlas_errors
from atlasc.api.progress import steps_for
from atlasc.api.roles import Client, check_target, note_simulation
from atlasc.api.words import warned
from atlasc.bundle.folder import Bundle
from atlasc.bundle.messages import Message
from atlasc.client.checks import Answers
from atlasc.client.in_clear import told
from atlasc.compilation.steps import Note, ProgressCallback, Step, Steps, silent
from atlasc.ir.errors import AtlasError, counted
from atlasc.ir.files import MIB
from atlasc.loading import LONG
from atlasc.loading.inputs import Inputs
from atlasc.loading.labels import class_names, names_of_classes
from atlasc.remote.keys import own_keys, upload_keys
from atlasc.remote.link import Link, address
from atlasc.remote.programs import chosen_program, client_part
from atlasc.remote.trust import Trust, write_record
from atlasc.remote.wire import FINISHED, Config, JobStatus, ProgramFacts
from atlasc.run.session import joined, placed

TOKEN_VARIABLE = "ATLASC_TOKEN"
DAY = 86400.0
"""Seconds for which a queue that is full is asked again."""
LONGEST_POLL = 5.0
"""Most seconds between two looks at a job."""
Saw = Callable[[str, bytes], None]
"""``saw("query" or "answer", content)``: what the service sees of a job."""


def unseen(kind: str, content: bytes) -> None:
    """Show what the service sees to nobody."""


@dataclass(frozen=True, repr=False)
class RemoteAnswers:
    """Answers of a service.

    Attributes:
        inputs: all given inputs.
        rows: numbers of the inputs that were encrypted.
        answers: their answers, in the order of ``rows``.
        left_out: number of an input that was not encrypted -> why.
        classes: names of the classes, if the model has names; else empty.
    """

    inputs: Inputs
    rows: tuple[int, ...]
    answers: Answers
    left_out: Mapping[int, str]
    classes: tuple[str, ...]

    def __repr__(self) -> str:
        """Numbers of inputs alone: inputs and answers are private."""
        return f"<RemoteAnswers: {counted(len(self.rows), 'input', 'inputs')} answered>"

    @property
    def refused(self) -> dict[int, float]:
        """Number of an input whose answer cannot be right -> share of its numbers outside."""
        return {self.rows[row]: share for row, share in self.answers.refused.items()}

    @property
    def outputs(self) -> dict[str, np.ndarray]:
        """Output name -> answers ``[inputs, ...]``; NaN in rows without an answer."""
        return self.shown()

    def shown(self, unchecked: bool = False) -> dict[str, np.ndarray]:
        """As ``outputs``; ``unchecked`` also shows answers that cannot be right."""
        shown = self.answers.shown(unchecked)
        return {name: placed(y, self.rows, len(self.inputs)) for name, y in shown.items()}

    @property
    def labels(self) -> list[str | None]:
        """The name of the best class of each input; None without an answer. Empty if the model has
        no classes with names.
        """
        if not self.classes:
            return []
        (scores,) = self.outputs.values()
        missing = np.isnan(scores).any(axis=1)
        return [
            None if lost else self.classes[int(row.argmax())]
            for row, lost in zip(np.nan_to_num(scores), missing, strict=True)
        ]


class Connection:
    """A service that has this client's keys. Use :func:`connect`.

    Attributes:
        facts: what the service says of the program.
        bundle: the client's part of the program.
        client: encrypts and decrypts.
        keys: id of the client's keys on the service.
    """

    def __init__(
        self, link: Link, facts: ProgramFacts, bundle: Bundle, client: Client, keys: str
    ) -> None:
        self._link, self.facts, self.bundle = link, facts, bundle
        self.client, self.keys = client, keys

    def query(
        self,
        inputs: object,
        *,
        long: str = LONG[0],
        strict: bool = False,
        unchecked: bool = False,
        note: Note = warned,
        progress: ProgressCallback | bool | None = None,
    ) -> RemoteAnswers:
        """Encrypt inputs, have them answered, and decrypt the answers.

        The numbers are for the client's own use, as those of :meth:`Client.decrypt`.

        Args:
            inputs: texts, arrays, tensors or a path; inputs beyond one batch become further jobs.
            long: treatment of texts that are too long; see :meth:`Client.encrypt`.
            strict: refuse all inputs if one would be left out.
            unchecked: encrypt inputs that are far larger than those of calibration.
            note: called with what a user should know of the inputs.
            progress: see :func:`atlasc.compile`.

        Raises:
            AtlasError: no input is fit; the service refuses, or cannot be reached; or as
                :meth:`Client.decrypt`.
        """
        with atlas_errors():
            given = self.bundle.load_inputs(inputs, long, partial=True).tell(note)
            return self.ask(
                given, strict=strict, unchecked=unchecked, note=note, steps=steps_for(progress)
            )

    def ask(
        self,
        inputs: Inputs,
        *,
        strict: bool = False,
        unchecked: bool = False,
        note: Note,
        steps: Steps = silent,
        saw: Saw = unseen,
    ) -> RemoteAnswers:
        """As :meth:`query`, with inputs that were read already; ``saw`` is called with each query
        before it is sent, and with each answer before it is decrypted.
        """
        note_simulation(check_target(self.bundle), note)
        admitted = admit(self.bundle, inputs, note, strict=strict, unchecked=unchecked, steps=steps)
        jobs: list[JobStatus] = []
        batch, count = self.bundle.batch, len(admitted.inputs)
        try:
            with steps("encrypting and sending", total=count) as step:
                for start in range(0, count, batch):
                    part = admitted.inputs.take(list(range(start, min(start + batch, count))))
                    query = self.client.query(
                        part.arrays, unchecked=unchecked, doubt=admitted.doubt
                    )
                    content = query.to_bytes()
                    saw("query", content)
                    jobs.append(self._submit(content))
                    step.report("", min(start + batch, count), count)
            label = f"waiting for {counted(len(jobs), 'answer', 'answers')}"
            with steps(label, total=100 * len(jobs)) as step:
                contents = [
                    self._content(job, step, 100 * number, saw) for number, job in enumerate(jobs)
                ]
        except BaseException:
            for job in jobs:
                with suppress(AtlasError):
                    self._delete(job)
            raise
        # The service has no part in what comes now, whatever its answers are.
        with steps("decrypting"):
            answers = [self.client.decrypt(content) for content in contents]
        outputs = joined([one.outputs for one in answers])
        refused = {
            start + row: share
            for start, one in zip(range(0, count, batch), answers, strict=True)
            for row, share in one.refused.items()
        }
        whole = Answers(outputs, refused, functions=answers[0].functions)
        classes = classes_of(self.bundle, outputs)
        return RemoteAnswers(inputs, admitted.rows, whole, admitted.left_out, classes)

    def close(self) -> None:
        """Close the connection; jobs that wait go on."""
        self._link.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _submit(self, query: bytes) -> JobStatus:
        place = address("jobs", keys=self.keys, program=self.facts.program)
        headers = {"Content-Type": "application/octet-stream"}
        return self._link.send("POST", place, JobStatus, query, headers=headers, queue=DAY)

    def _content(self, job: JobStatus, step: Step, before: int, saw: Saw) -> bytes:
        """Wait for an answer, fetch it, and have the service delete it.

        All answers are deleted before one is decrypted: what the client asks of the service must
        not depend on what it read. ``before`` is the progress of earlier jobs.
        """
        place, pause = address("jobs", job.id), 0.1
        while job.state not in FINISHED:
            time.sleep(pause)
            pause = min(1.5 * pause, LONGEST_POLL)
            job = self._link.get(place, JobStatus)
            waiting = counted(job.ahead, "job ahead", "jobs ahead") if job.ahead else job.state
            step.report(waiting, before + min(job.done, 99), step.total)
        if job.state != "done":
            fault = job.fault
            raise AtlasError(
                f"the service has no answer: {fault.error if fault else job.state}",
                why=fault.why if fault else "",
                remedy=(fault.remedy if fault else "") or "ask again",
            )
        limit = Message.largest("answer", self.bundle)
        content = self._link.fetch("GET", f"{place}/answer", limit=limit)
        with suppress(AtlasError):
            self._delete(job)
        saw("answer", content)
        step.report("", before + 100, step.total)
        return content

    def _delete(self, job: JobStatus) -> None:
        self._link.fetch("DELETE", address("jobs", job.id), limit=MIB, patience=0.0)


def connect(
    url: str,
    *,
    token: str | None = None,
    folder: str | Path | None = None,
    model: str | None = None,
    signed_by: str | Path | None = None,
    update: bool = False,
    allow_simulation: bool = False,
    authority: str | Path | None = None,
    note: Note = warned,
    progress: ProgressCallback | bool | None = None,
) -> Connection:
    """Connect to a service that ``atlasc serve`` runs.

    The first time, the client's part of the program is downloaded and checked, keys are made, and
    the evaluation keys are uploaded. The secret key stays in the folder. From then on the folder is
    for this program: another one is refused, with all differences, unless ``update`` is set. The
    target stays, and so does the key of ``signed_by``.

    Args:
        url: such as ``https://host:8000``.
        token: of the tenant; by default the environment variable ``ATLASC_TOKEN``.
        folder: folder for the program and the keys; by default one of the user's data folder.
        model: needed the first time, if the service answers several.
        signed_by: public key of the maker, whose signature the bundle must have; the folder
            remembers it.
        update: take another program than the folder has.
        allow_simulation: take a program whose target encrypts nothing, to rehearse.
        authority: certificates (PEM) that are trusted in place of the system's.
        note: called with what the server sees in the clear, when a program is first met.
        progress: see :func:`atlasc.compile`.

    Raises:
        AtlasError: the service cannot be reached or refuses; its program is damaged, not signed,
            not the one of the folder, encrypts nothing, or asks for a private input in the clear;
            or as :func:`keygen`.
    """
    with atlas_errors():
        return connected(
            url, token=token, folder=_path(folder), model=model,
            trust=Trust(_path(signed_by), update, allow_simulation),
            authority=_path(authority), note=note, steps=steps_for(progress),
        )  # fmt: skip


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)


def connected(
    url: str,
    *,
    token: str | None,
    folder: Path | None,
    model: str | None,
    trust: Trust,
    authority: Path | None,
    note: Note,
    steps: Steps,
) -> Connection:
    """As :func:`connect`, with progress by steps."""
    given = token or os.environ.get(TOKEN_VARIABLE, "")
    if not given:
        raise AtlasError(
            "there is no token for the service",
            remedy=f"give --token-file, or set {TOKEN_VARIABLE}",
        )
    link = Link(url, given, authority)
    config = link.get(address("config"), Config, patience=0.0)
    place = folder or default_folder(link.url, model or _only_model(config, link.url))
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts, record = chosen_program(config, place, link.url, model)
    if trust.update:
        facts = next(one for one in config.programs if one.model == facts.model)
    bundle = client_part(link, facts, place, record, trust=trust, steps=steps)
    if record is None or record.program != facts.program:
        note(told(bundle.client.interface), "")
    keys = own_keys(bundle, facts, place, steps)
    write_record(place, link.url, facts, bundle.target, trust.key(place, record))
    with steps("loading keys"):
        client = Client(bundle, keys)
    name = upload_keys(link, config, facts, bundle, keys, steps)
    return Connection(link, facts, bundle, client, name)


def default_folder(url: str, model: str) -> Path:
    """The folder for a model of a service, in the user's data folder."""
    return data_folder("services", url) / _file_name(model)


def data_folder(kind: str, url: str) -> Path:
    """What a client keeps of one kind for a service, in the user's data folder."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return data / "atlasc" / kind / _file_name(url.partition("://")[2])


def _file_name(words: str) -> str:
    """Words of a service as a name in this folder, never as a path to another one."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", words).lstrip(".") or "-"


def _only_model(config: Config, url: str) -> str:
    models = {one.model for one in config.programs}
    if len(models) != 1:
        raise AtlasError(
            f"{url} answers several models",
            why=f"its models are {', '.join(sorted(models))}",
            remedy="choose one of them with --model",
        )
    return models.pop()


def classes_of(bundle: Bundle, outputs: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Names of the classes, where one output has a number for each class that the model names."""
    shapes = [values.shape for values in outputs.values()]
    known = class_names(bundle.model.config)
    if len(shapes) != 1 or len(shapes[0]) != 2 or len(set(known.values())) != shapes[0][1]:
        return ()
    return tuple(names_of_classes(bundle.model.config, shapes[0][1]))
