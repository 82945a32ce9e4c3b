"""``atlasc.connect``: ask a service as if the model ran here; only ciphertexts leave."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from atlasc.api.admission import admit
from atlasc.api.errors import atlas_errors
from atlasc.api.progress import steps_for
from atlasc.api.roles import Client, check_target, note_simulation
from atlasc.api.words import warned
from atlasc.bundle.folder import Bundle
from atlasc.bundle.sent import told_sizes
from atlasc.client.in_clear import told
from atlasc.generation.steps import publics_of
from atlasc.ir.errors import AtlasError, counted, listed
from atlasc.ir.files import MIB
from atlasc.ir.ops.tensors import POSITION
from atlasc.loading import LONG
from atlasc.loading.inputs import Inputs
from atlasc.progress import Note, ProgressCallback, Steps, silent
from atlasc.remote.answers import RemoteAnswers, together
from atlasc.remote.asking import Asking, NoAnswer, Saw, cancelled, not_lost
from atlasc.remote.folders import default_folder
from atlasc.remote.keys import own_keys, upload_keys
from atlasc.remote.link import Link, address
from atlasc.remote.programs import (
    Texts,
    chosen_program,
    client_part,
    require_kind,
    text_part,
)
from atlasc.remote.runs import Run, left_runs, new_run
from atlasc.remote.texts import RemoteServer, RemoteSession
from atlasc.remote.trust import Trust, write_record
from atlasc.remote.wire import FINISHED, Config, JobStatus, KeyStatus, ProgramFacts

TOKEN_VARIABLE = "ATLASC_TOKEN"
RUNS = "open"
"""Folder of what was asked and not read yet."""
ROUNDS = 10
"""Times that jobs are listed and deleted: another process may ask meanwhile."""


def unseen(kind: str, content: bytes) -> None:
    """Show what the service sees to nobody."""


Took = Callable[[RemoteAnswers], None]


def kept(found: RemoteAnswers) -> None:
    """The caller has the answers, and needs no file of them."""


class Connection:
    """A service that has this client's keys. Use :func:`connect`.

    Attributes:
        facts: what the service says of the program.
        bundle: the client's part of the program.
        client: encrypts and decrypts.
        keys: id of the client's keys on the service.
        texts: the programs of its texts; None for a program that generates none.
    """

    def __init__(
        self,
        link: Link,
        facts: ProgramFacts,
        bundle: Bundle,
        client: Client,
        keys: str,
        folder: Path,
        texts: Texts | None = None,
    ) -> None:
        self._link, self.facts, self.bundle, self.texts = link, facts, bundle, texts
        self.client, self.keys, self._runs = client, keys, folder / RUNS

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

        The numbers are for the client's own use, as those of :meth:`Client.decrypt`. Inputs whose
        jobs failed have none: ``lost`` says why. What was asked and not read, :meth:`fetch` takes.

        Args:
            inputs: texts, arrays, tensors or a path; inputs beyond one batch become further jobs.
            long: treatment of texts that are too long; see :meth:`Client.encrypt`.
            strict: refuse all inputs if one would be left out.
            unchecked: encrypt inputs that are far larger than those of calibration.
            note: called with what a user should know of the inputs.
            progress: see :func:`atlasc.compile`.

        Raises:
            AtlasError: no input is fit, or none has an answer; the service refuses, or cannot be
                reached.
        """
        with atlas_errors():
            require_kind(self.facts.model, self.texts is not None, text=False)
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
        took: Took = kept,
        keep: bool = True,
    ) -> RemoteAnswers:
        """As :meth:`query`, with inputs that were read already.

        Args:
            saw: called with each query before it is sent, and with each answer before it is
                decrypted.
            took: called with the answers. If it fails, or this process is killed meanwhile, the
                answers stay in the folder (:meth:`fetch`).
            keep: whether answers wait for :meth:`fetch` if this call fails; else it cancels them.
        """
        note_simulation(check_target(self.bundle, "client"), note)
        admitted = admit(self.bundle, inputs, note, strict=strict, unchecked=unchecked, steps=steps)
        program, batch, count = self.facts.program, self.bundle.batch, len(admitted.inputs)
        with new_run(self._runs, program, inputs.names, admitted.left_out) as run:
            asking = Asking(self._link, self.bundle, self.keys, run, note, saw)
            with not_lost(run) if keep else cancelled(asking):
                with steps("encrypting and sending", total=count) as step:
                    for start in range(0, count, batch):
                        chosen = range(start, min(start + batch, count))
                        arrays = admitted.inputs.take(chosen).arrays
                        query = self.client.query(arrays, unchecked=unchecked, doubt=admitted.doubt)
                        asking.send(query, [admitted.rows[row] for row in chosen])
                        step.report("", chosen.stop, count)
                found = self._answers(asking, inputs, admitted.left_out, steps)
                took(found)
                if not asking.unread:
                    run.remove()
                return found

    def fetch(
        self,
        *,
        note: Note = warned,
        took: Took = kept,
        steps: Steps = silent,
    ) -> RemoteAnswers | None:
        """Answers to what was asked before, and not read: a process was killed, or the service was
        away. Inputs of several calls of :meth:`query` follow each other, without their arrays.
        None if there is nothing.

        Raises:
            AtlasError: the service refuses, or cannot be reached; answers cannot be decrypted.
        """
        found: list[RemoteAnswers] = []
        taken: list[Run] = []
        with atlas_errors(), left_runs(self._runs) as runs:
            for run in runs:
                if run.asked.program != self.facts.program:
                    note(
                        f"{counted(len(run.parts), 'query', 'queries')} to another version of the "
                        "program stay in the folder",
                        "  what to do: fetch them where that version is served, or --forget them",
                    )
                    continue
                asking = Asking(self._link, self.bundle, self.keys, run, note, unseen)
                asking.find_jobs()
                left_out = {int(number): why for number, why in run.asked.left_out.items()}
                try:
                    found.append(
                        self._answers(asking, Inputs({}, run.asked.names), left_out, steps)
                    )
                except NoAnswer as lost:
                    note(lost.what, "  why: " + listed(run.asked.names))
                if not asking.unread:
                    taken.append(run)
            whole = together(found) if found else None
            if whole is not None:
                took(whole)
            for run in taken:
                run.remove()
        return whole

    def session(self, folder: str | Path | None = None, **options: Any) -> RemoteSession:
        """A text of several turns, if the service generates text: :class:`RemoteSession`."""
        require_kind(self.facts.model, self.texts is not None, text=True)
        assert self.texts is not None
        server = RemoteServer(self._link, self.texts.programs, self.keys)
        options = {"note": warned, "errors": atlas_errors} | options
        return RemoteSession(self.client, server, self.texts, _path(folder), **options)

    def forget(self) -> tuple[int, int]:
        """Have the service forget this client: its jobs and keys; and forget here what was asked
        and not read. The client's own keys stay, and are uploaded again by the next connection.

        Returns:
            The numbers of jobs and of sets of keys that the service had.

        Raises:
            AtlasError: the service refuses, or cannot be reached.
        """
        with atlas_errors(), left_runs(self._runs) as runs:
            jobs = 0
            for _ in range(ROUNDS):
                known = [
                    job
                    for job in self._link.get(address("jobs"), list[JobStatus])
                    if job.state not in FINISHED or job.answer_bytes
                ]
                for job in known:
                    self._link.fetch("DELETE", address("jobs", job.id), limit=MIB)
                jobs += len(known)
                if not known:
                    break
            else:
                raise AtlasError(
                    "the service has jobs after each time that they were deleted",
                    remedy="ask whoever runs the service",
                )
            keys = self._link.get(address("keys"), list[KeyStatus])
            for key in keys:
                self._link.fetch("DELETE", address("keys", key.id), limit=MIB)
            for run in runs:
                run.remove()
        return jobs, len(keys)

    def _answers(
        self,
        asking: Asking,
        inputs: Inputs,
        left_out: Mapping[int, str],
        steps: Steps,
    ) -> RemoteAnswers:
        """Wait for the answers of a run, and decrypt them."""
        count = len(asking.run.parts)
        label = f"waiting for {counted(count, 'answer', 'answers')}"
        with steps(label, total=100 * count) as step:
            asking.wait(step)
        # The service has no part in what comes now, whatever its answers are.
        with steps("decrypting", total=count) as step:
            rows, answers = asking.decrypt(self.client.decrypt, step)
        lost = asking.lost_rows
        if lost:
            asking.note(
                f"{counted(len(lost), 'input has', 'inputs have')} no answer",
                "  why: " + listed([f"{inputs.names[row]}: {why}" for row, why in lost.items()]),
            )
        return RemoteAnswers.of(self.bundle, inputs, rows, answers, left_out, lost)

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
    upload: bool = True,
    text: bool | None = None,
    steps: Steps,
) -> Connection:
    """As :func:`connect`, with progress by steps.

    Args:
        upload: have the service take the keys.
        text: whether the program is to generate text, or not to; another one is refused before keys
            are made and sent. None: any.
    """
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
    new = record is None or record.program != facts.program
    texts, generates = None, POSITION in publics_of(bundle)
    if text is not None:
        require_kind(facts.model, generates, text=text)
    if generates:
        key, take = trust.key(place, record), new or trust.update
        texts = text_part(link, facts, place, bundle, key, take=take, steps=steps)
    if new:
        note(told(bundle.client.interface), told_sizes(bundle))
    keys = own_keys(bundle, facts, place, steps)
    write_record(place, link.url, facts, bundle.target, trust.key(place, record))
    with steps("loading keys"):
        client = Client(bundle, keys)
    name = upload_keys(link, config, facts, bundle, keys, steps) if upload else ""
    return Connection(link, facts, bundle, client, name, place, texts)


def _only_model(config: Config, url: str) -> str:
    models = {one.model for one in config.programs}
    if len(models) != 1:
        raise AtlasError(
            f"{url} answers several models",
            why=f"its models are {', '.join(sorted(models))}",
            remedy="choose one of them with --model",
        )
    return models.pop()
