"""What a user believes of a service, and what a client's folder remembers of it.

The folder keeps the target and the maker's public key, which no service changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from atlasc.bundle import signing
from atlasc.bundle.manifest import Manifest
from atlasc.files import write_text
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import Schema, Sha256
from atlasc.remote.wire import Name, ProgramFacts
from atlasc.targets import find_target

RECORD = "service.json"


class Record(Schema):
    """What a folder is for.

    Attributes:
        url, model: of the service.
        program: the one that was taken last.
        target: of all programs of this folder; empty in folders of earlier versions.
        signed_by: public key of the maker, whose signature each program must have; empty for none.
    """

    url: Name
    model: Name
    program: Sha256
    target: Name = ""
    signed_by: Annotated[str, Field(max_length=signing.LARGEST_KEY)] = ""


@dataclass(frozen=True)
class Trust:
    """What a user believes of a service.

    Attributes:
        signed_by: file with the public key whose signature the program must have.
        update: take another program than before.
        allow_simulation: take a program whose target does not encrypt.
    """

    signed_by: Path | None = None
    update: bool = False
    allow_simulation: bool = False

    def key(self, folder: Path, record: Record | None) -> str:
        """The public key that a program of a folder must be signed with; empty for any program.

        Raises:
            AtlasError: the folder is for programs of another key.
        """
        known = "" if record is None else record.signed_by
        if self.signed_by is None:
            return known
        given = signing.read_public_key(self.signed_by)
        if known not in ("", given) and not self.update:
            raise AtlasError(
                f"{folder} is for programs that another key signed",
                why=f"{self.signed_by} is not the public key that was given first",
                remedy="leave --signed-by out, give another folder, or give --update as well to "
                "trust this key from now on",
            )
        return given


def write_record(folder: Path, url: str, facts: ProgramFacts, target: str, key: str) -> None:
    """Remember the program that a folder is for, its target, and the public key of its maker."""
    record = Record(url=url, model=facts.model, program=facts.program, target=target, signed_by=key)
    write_text(folder / RECORD, record.model_dump_json(indent=1) + "\n")


def require_pinned(folder: Path, record: Record, facts: ProgramFacts) -> None:
    """Refuse another target than that of the folder; the bundle's own is compared with it later."""
    if record.target and facts.target != record.target:
        raise AtlasError(
            f"{folder} is for programs of the target {record.target}, and the service names "
            f"{facts.target}",
            why="the target decides whether anything is encrypted, so a service cannot change it",
            remedy="ask whoever runs the service; if you expect this, give another folder",
        )


def require_encrypted(manifest: Manifest, trust: Trust) -> None:
    """Refuse a program whose target encrypts nothing, unless the user allows it."""
    if not trust.allow_simulation and not find_target(manifest.target).encrypted:
        raise AtlasError(
            f"the service would see every input: its target {manifest.target} encrypts nothing",
            why="it is for rehearsals; the keys, queries and answers only look like real ones",
            remedy="ask whoever runs the service for a program that encrypts; to rehearse with "
            "inputs that anybody may see, give --allow-simulation (in Python "
            "allow_simulation=True)",
        )
