"""``atlasc query``: ask a service that ``atlasc serve`` runs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atlasc.api.progress import progress
from atlasc.cli.output import print_json, print_table, product, say, show, warn
from atlasc.cli.parameters import INPUT_FILES, JSON, STRICT, UNCHECKED, InputOptions
from atlasc.cli.results import (
    NO_ANSWER,
    end_with,
    outputs_record,
    print_labels,
    print_spans,
    spans_record,
)
from atlasc.compilation.declared import flag, option, switch
from atlasc.ir.errors import AtlasError, counted

if TYPE_CHECKING:
    from atlasc.remote.answers import RemoteAnswers
    from atlasc.remote.connection import Connection


SERVICE = "Service"
"""Section of the help."""
Url = Annotated[str, typer.Argument(metavar="URL", help="Service, such as https://host:8000.")]


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """A service, as its client finds and trusts it."""

    token_file: Path | None = option(
        "File with the token, readable by you alone.",
        unset="the variable ATLASC_TOKEN",
        section=SERVICE,
    )
    folder: Path | None = option(
        "Folder for program and keys of this service.",
        unset="one in your data folder",
        section=SERVICE,
    )
    model: str | None = option("Model, if the service answers several.", section=SERVICE)
    signed_by: Path | None = option(
        "Public key whose signature the program must have; the folder remembers it.",
        section=SERVICE,
    )
    update: bool = switch("Take the service's new version of the program.", section=SERVICE)
    allow_simulation: bool = switch(
        "Take a program whose target encrypts nothing, to rehearse: the service sees all inputs.",
        section=SERVICE,
    )
    tls_ca: Path | None = option(
        "Certificates, PEM, to trust in place of the system's.", section=SERVICE
    )

    def require_unused(self) -> None:
        """Refuse all of these where no service is asked.

        Raises:
            AtlasError: one was given.
        """
        for one in fields(self):
            if getattr(self, one.name) != one.default:
                raise AtlasError(
                    f"{flag(one.name)} has no effect without a service",
                    remedy="give the address of one, such as https://host:8000, or leave it out",
                )

    @property
    def token(self) -> str | None:
        """The token in the file; None without a file."""
        from atlasc.remote.link import read_token

        return None if self.token_file is None else read_token(self.token_file)

    def connect(
        self, url: str, token: str | None, upload: bool = True, text: bool | None = None
    ) -> Connection:
        """As :func:`atlasc.remote.connection.connected`, with the command line's progress."""
        from atlasc.remote.connection import connected
        from atlasc.remote.trust import Trust

        return connected(
            url, token=token, folder=self.folder, model=self.model,
            trust=Trust(self.signed_by, self.update, self.allow_simulation),
            authority=self.tls_ca, upload=upload, text=text, note=partial(show, "note"),
            steps=progress,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Asked(InputOptions):
    """Inputs to ask, or none."""

    data: Path | None = option(  # type: ignore[assignment]
        f"Inputs: {INPUT_FILES} them. Not with --fetch or --forget.", "--input"
    )


def query(
    url: Url,
    inputs: Asked,
    service: ServiceOptions,
    output: Path | None = option("Write the outputs to this .npz file.", "-o"),
    fetch: bool = switch("Take the answers to what was asked before and not read."),
    forget: bool = switch("Have the service delete your keys and jobs."),
    strict: bool = STRICT,
    unchecked: bool = UNCHECKED,
    as_json: bool = JSON,
) -> None:
    """Encrypt inputs, have a service answer them, and decrypt the answers.

    The first time, the client's part of the program is downloaded and checked, keys are made and
    the evaluation keys are uploaded. The secret key stays in the folder. What the server sees in
    the clear is printed. A program whose target encrypts nothing is refused. Answers that wait
    there or on the service, because the command was killed or the service was away, are taken by
    --fetch. The address is reached directly: proxies of the environment (HTTPS_PROXY) are not used.

    Exit code 3 says that an input has no answer.
    """
    from atlasc.files import require_file_place

    _require_one(inputs.data, fetch, forget)
    if output is not None:
        require_file_place(output, ".npz", new=True)

    def took(found: RemoteAnswers) -> None:
        _deliver(found, unchecked, output, as_json)

    asks = not (fetch or forget)
    with service.connect(url, service.token, asks, text=False if asks else None) as connection:
        if forget:
            jobs, keys = connection.forget()
            say(f"the service forgot {counted(jobs, 'job', 'jobs')} and "
                f"{counted(keys, 'set', 'sets')} of keys; your secret key stays here")  # fmt: skip
            return
        if fetch:
            found = connection.fetch(note=warn, took=took, steps=progress)
        else:
            given = inputs.load(connection.bundle)
            found = connection.ask(
                given, strict=strict, unchecked=unchecked, note=warn, steps=progress, took=took
            )
    if found is None:
        say("there is nothing to fetch")
        return
    end_with(found.refused, found.inputs.names, unchecked)
    if found.lost:
        raise typer.Exit(NO_ANSWER)


def _require_one(data: Path | None, fetch: bool, forget: bool) -> None:
    if (data is not None) + fetch + forget != 1:
        raise AtlasError(
            "there is nothing to ask"
            if data is None and not (fetch or forget)
            else "--input, --fetch and --forget exclude each other",
            remedy="give one of --input, --fetch and --forget",
        )


def _deliver(found: RemoteAnswers, unchecked: bool, output: Path | None, as_json: bool) -> None:
    """Write and print answers; results are never quiet."""
    from atlasc.files import save_arrays

    show("note", "these numbers are for your own use (docs/security.md)")
    if output is not None:
        save_arrays(output, found.numbers(unchecked))
    hidden = set(found.left_out) | set(found.lost) | (set() if unchecked else set(found.refused))
    if as_json:
        names, labels = list(found.inputs.names), found.labels or None
        outputs = outputs_record(found.numbers(True), hidden)
        refused, lost = sorted(found.refused), {str(row): why for row, why in found.lost.items()}
        print_json(
            {"inputs": names, "labels": labels, "spans": spans_record(found.spans),
             "outputs": outputs, "refused": refused, "lost": lost}
        )  # fmt: skip
    elif output is None:
        with product():
            _print(found, unchecked, output)
    else:
        _print(found, unchecked, output)


def _print(found: RemoteAnswers, unchecked: bool, output: Path | None) -> None:
    """A row for each input: the span that answers it; or its label, or the number of its best
    class, and the numbers.
    """
    if found.spans is not None:
        print_spans(found.inputs.names, found.spans)
        return
    for name, values in found.numbers(unchecked).items():
        if values.ndim != 2:
            hint = "" if output else "; -o FILE.npz or --json gives the numbers"
            say(f"{name}: shape {list(values.shape)}{hint}")
            continue
        titles = found.classes or tuple(map(str, range(values.shape[1])))
        if found.several:
            function = found.answers.functions.get(name)
            print_labels(name, values, function, titles, found.inputs.names)
            continue
        rows: list[list[object]] = []
        for row, numbers in enumerate(values):
            missing = bool((numbers != numbers).any())
            best = None if missing else titles[int(numbers.argmax())]
            shown = [None if missing else float(number) for number in numbers]
            rows.append([found.inputs.names[row], best, *shown])
        print_table(["input", "answer", *titles], rows, title=name)
