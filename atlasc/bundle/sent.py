"""What a client sends and gets, in bytes and seconds, before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from atlasc.bundle.folder import Bundle
from atlasc.ir.module import Module
from atlasc.program.key_plan import key_plan
from atlasc.runtime.interface import Interface, interface_of, keys_of
from atlasc.targets import find_target
from atlasc.targets.base import SentBytes
from atlasc.targets.parameters import ParameterSet

UPLOAD = 20.0
"""Speed of an upload in Mbit/s, where none is given: that of many connections of homes."""
MANY = 1000
"""Answers whose bytes and seconds are told together."""


@dataclass(frozen=True)
class Sent:
    """The exact bytes of a program's files, and what follows from them.

    Attributes:
        bytes: of keys, of a query and of its answer.
        batch: inputs of a query; the bytes are those of a full one.
        seconds: of one run on the server; None if they are not predicted.
        upload: speed of the upload, in Mbit/s.
    """

    bytes: SentBytes
    batch: int
    seconds: float | None = None
    upload: float = UPLOAD

    @property
    def queries(self) -> int:
        """Queries for ``MANY`` answers."""
        return -(-MANY // self.batch)

    def upload_seconds(self, size: int) -> float:
        """Seconds that so many bytes take to the service."""
        return 8 * size / (1e6 * self.upload)

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON values."""
        known, queries = self.bytes, self.queries
        return {
            "key_bytes": known.keys,
            "query_bytes": known.query,
            "answer_bytes": known.answer,
            "inputs": self.batch,
            "upload_mbit": self.upload,
            "key_upload_seconds": self.upload_seconds(known.keys),
            "query_upload_seconds": self.upload_seconds(known.query),
            "answers": MANY,
            "answers_queries": queries,
            "answers_query_bytes": queries * known.query,
            "answers_answer_bytes": queries * known.answer,
            "answers_seconds": None if self.seconds is None else queries * self.seconds,
        }

    def __str__(self) -> str:
        known, queries = self.bytes, self.queries
        inputs = "" if self.batch == 1 else f" of {self.batch} inputs"
        keys, query = (self.upload_seconds(size) for size in (known.keys, known.query))
        seconds = "" if self.seconds is None else f", {queries * self.seconds:.3g} s of compute"
        return (
            f"evaluation keys {size_text(known.keys)}, sent once ({keys:.3g} s at "
            f"{self.upload:g} Mbit/s); a query{inputs} {size_text(known.query)} ({query:.3g} s), "
            f"its answer {size_text(known.answer)}; {MANY:,} answers: {queries:,} queries, "
            f"{size_text(queries * known.query)} up, {size_text(queries * known.answer)} down"
            f"{seconds}"
        )


def sent_of(bundle: Bundle, interface: Interface | None = None) -> Sent | None:
    """What a client of a bundle sends and gets; None where the target cannot tell.

    Args:
        bundle: the program.
        interface: of its role; by default that of the client.
    """
    found = interface or bundle.interface
    sizes = find_target(bundle.target).sent_bytes(bundle.parameters, keys_of(found), found)
    seconds = dict(bundle.manifest.costs).get("seconds")
    known = float(seconds) if isinstance(seconds, (int, float)) else None
    return None if sizes is None else Sent(sizes, found.batch, known)


def told_sizes(bundle: Bundle) -> str:
    """A line on what a client sends and gets, for whoever makes keys or meets a service; empty
    where the target cannot tell.
    """
    found = sent_of(bundle)
    return "" if found is None else f"  sizes: {found}"


def sent_by(
    program: Module, parameters: ParameterSet | None, target: str, seconds: float | None
) -> Sent | None:
    """The same of a lowered program on a target; None where the target or the set is not known."""
    if parameters is None or not program.inputs:
        return None
    interface = interface_of(program)
    sizes = find_target(target).sent_bytes(parameters, key_plan(program), interface)
    return None if sizes is None else Sent(sizes, interface.batch, seconds)


def size_text(size: int) -> str:
    """Bytes in the unit of the field, with three digits: kB, MB or GB."""
    for unit, whole in (("GB", 1e9), ("MB", 1e6)):
        if size >= whole:
            return f"{size / whole:.3g} {unit}"
    return f"{size / 1e3:.3g} kB"
