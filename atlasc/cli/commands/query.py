"""``atlasc query``: ask a service that ``atlasc serve`` runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atlasc.api.progress import progress
from atlasc.cli.output import print_json, print_table, say, show, warn
from atlasc.cli.parameters import JSON, STRICT, UNCHECKED, InputOptions
from atlasc.cli.results import end_with, outputs_record
from atlasc.compilation.declared import option, switch

if TYPE_CHECKING:
    from atlasc.remote.connection import Connection, RemoteAnswers


Url = Annotated[str, typer.Argument(metavar="URL", help="Service, such as https://host:8000.")]


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """A service, as its client finds and trusts it."""

    token_file: Path | None = option(
        "File with the token, readable by you alone [default: the variable ATLASC_TOKEN]."
    )
    folder: Path | None = option(
        "Folder for program and keys of this service [default: one in your data folder]."
    )
    model: str | None = option("Model, if the service answers several.")
    signed_by: Path | None = option(
        "Public key whose signature the program must have; the folder remembers it."
    )
    update: bool = switch("Take the service's new version of the program.")
    allow_simulation: bool = switch(
        "Take a program whose target encrypts nothing, to rehearse: the service sees all inputs."
    )
    tls_ca: Path | None = option("Certificates, PEM, to trust in place of the system's.")

    @property
    def token(self) -> str | None:
        """The token in the file; None without a file."""
        from atlasc.remote.link import read_token

        return None if self.token_file is None else read_token(self.token_file)

    def connect(self, url: str, token: str | None) -> Connection:
        """As :func:`atlasc.connect`, with the command line's progress."""
        from atlasc.remote.connection import connected
        from atlasc.remote.trust import Trust

        return connected(
            url, token=token, folder=self.folder, model=self.model,
            trust=Trust(self.signed_by, self.update, self.allow_simulation),
            authority=self.tls_ca, note=partial(show, "note"), steps=progress,
        )  # fmt: skip


def query(
    url: Url,
    inputs: InputOptions,
    service: ServiceOptions,
    output: Path | None = option("Write the outputs to this .npz file.", "-o"),
    strict: bool = STRICT,
    unchecked: bool = UNCHECKED,
    as_json: bool = JSON,
) -> None:
    """Encrypt inputs, have a service answer them, and decrypt the answers.

    The first time, the client's part of the program is downloaded and checked, keys are made and
    the evaluation keys are uploaded. The secret key stays in the folder. What the server sees in
    the clear is printed. A program whose target encrypts nothing is refused.

    Exit code 3 says that an input has no answer.
    """
    from atlasc.files import require_file_place, save_arrays

    if output is not None:
        require_file_place(output, ".npz", new=True)
    with service.connect(url, service.token) as connection:
        given = inputs.load(connection.bundle)
        found = connection.ask(given, strict=strict, unchecked=unchecked, note=warn, steps=progress)
    show("note", "these numbers are for your own use (docs/security.md)")
    if output is not None:
        save_arrays(output, found.shown(unchecked))
    hidden = set(found.left_out) | (set() if unchecked else set(found.refused))
    if as_json:
        names, labels = list(found.inputs.names), found.labels or None
        outputs = outputs_record(found.shown(True), hidden)
        refused = sorted(found.refused)
        print_json({"inputs": names, "labels": labels, "outputs": outputs, "refused": refused})
    else:
        _print(found, unchecked, output)
    end_with(found.refused, found.inputs.names, unchecked)


def _print(found: RemoteAnswers, unchecked: bool, output: Path | None) -> None:
    """A row for each input: its label, or the number of its best class, and the numbers."""
    for name, values in found.shown(unchecked).items():
        if values.ndim != 2:
            hint = "" if output else "; -o FILE.npz or --json gives the numbers"
            say(f"{name}: shape {list(values.shape)}{hint}")
            continue
        titles = found.classes or tuple(map(str, range(values.shape[1])))
        rows: list[list[object]] = []
        for row, numbers in enumerate(values):
            missing = bool((numbers != numbers).any())
            best = None if missing else titles[int(numbers.argmax())]
            shown = [None if missing else float(number) for number in numbers]
            rows.append([found.inputs.names[row], best, *shown])
        print_table(["input", "answer", *titles], rows, title=name)
