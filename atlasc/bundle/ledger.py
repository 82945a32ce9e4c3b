"""What a client did with its key: the queries, the answers to them, and the shared numbers.

A server can send anything back. With the ledger a client accepts one answer to each of its own
queries, and no other. It is a file beside the secret key, one JSON object a line, that only grows.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.files import MIB, Schema, Sha256, parse_json, read_bytes, require_private

LEDGER = "ledger.jsonl"
_LARGEST = 256 * MIB
QueryId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class Entry(Schema):
    """One line: a query was made, an answer to it was decrypted, or its numbers were shared.

    Attributes:
        event: which of these.
        query: name of the query.
        program: identity of the bundle.
        count: inputs of the query, or those that the answer says to be of.
        answer: SHA-256 of the answer; empty for a query.
        spent: of the key's budget of shared numbers, see :meth:`Ledger.share`.
    """

    event: Literal["query", "answer", "share"]
    query: QueryId
    program: Sha256
    count: Annotated[int, Field(ge=1, le=2**20)]
    answer: Sha256 | Literal[""] = ""
    spent: Annotated[float, Field(ge=0, le=1)] = 0.0


@dataclass(frozen=True)
class Ledger:
    """The ledger of one secret key. All methods raise AtlasError if it is damaged or not writable.

    Attributes:
        folder: where the key lies.
    """

    folder: Path

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / LEDGER

    def check(self, answer: Entry) -> None:
        """Refuse an answer unless it is the only one to a query of this key.

        Raises:
            AtlasError: no such query, another program or count, or a second answer.
        """
        with self._open() as (known, _):
            _expect(known, answer)

    def add(self, entry: Entry) -> None:
        """Note a query before it leaves the client, or an answer that was decrypted, if
        :meth:`check` accepts it.
        """
        with self._open() as (known, append):
            if entry.event != "query":
                _expect(known, entry)
            append(entry)

    def share(self, answer: Entry, bits: int, shares: int) -> int:
        """Note that the numbers of an answer leave the client, before they are shown, and count the
        answers that were shared, this one included.

        An answer that is shared at kappa ``bits`` as one of tau ``shares`` spends 2^-kappa / tau,
        in proportion to the divergence that :mod:`atlasc.client.sharing` allows; all of a key's may
        spend 2^-kappa.

        Raises:
            AtlasError: as :meth:`check`; the budget is spent.
        """
        cost, limit = 2.0**-bits / shares, 2.0**-bits
        with self._open() as (known, append):
            _expect(known, answer)
            spent = [entry.spent for entry in known if entry.event == "share"]
            if sum(spent) + cost > limit * (1 + 1e-9):
                raise AtlasError(
                    "these keys have shared as many answers as they may",
                    where=str(self.path),
                    why=f"{len(spent)} answers spent their budget at {bits} bits: a further one "
                    "may tell something of the secret key",
                    remedy="make new keys with atlasc keygen, and say with --shares beforehand how "
                    "many answers they are to share",
                )
            append(Entry(**{**dict(answer), "event": "share", "spent": cost}))
            return len(spent) + 1

    @contextmanager
    def _open(self) -> Iterator[tuple[list[Entry], Callable[[Entry], None]]]:
        """The entries and a function that adds one, locked against other processes."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(self.path, flags, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                require_private(self.path)
                content = read_bytes(self.path, _LARGEST, links=False)
                *lines, rest = content.split(b"\n")
                if rest:  # a process was killed, or the machine stopped, before the line was whole
                    os.ftruncate(descriptor, len(content) - len(rest))
                known = [self._parsed(number, line) for number, line in enumerate(lines, 1)]
                yield known, partial(_append, descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise AtlasError(
                f"the ledger {self.path} cannot be written",
                why=error.strerror or str(error),
                remedy="make room on the disk, or keep the keys in a folder that you may write to",
            ) from None

    def _parsed(self, number: int, line: bytes) -> Entry:
        remedy = "make new keys: with this ledger old answers could pass for new ones"
        with explained(f"line {number} of the ledger {self.path} is damaged", remedy=remedy):
            return parse_json(line, Entry)


def _append(descriptor: int, entry: Entry) -> None:
    """Add a whole line or none."""
    line = json.dumps(entry.model_dump()).encode() + b"\n"
    size = os.fstat(descriptor).st_size
    try:
        if os.write(descriptor, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def _expect(known: list[Entry], answer: Entry) -> None:
    """Raise AtlasError unless an answer is the only one to one of the known queries."""
    same = [entry for entry in known if entry.query == answer.query]
    why = ""
    if not same:
        why = f"none of the queries that this key encrypted is {answer.query[:8]}"
    elif (same[0].program, same[0].count) != (answer.program, answer.count):
        why = f"the query was for {same[0].count} inputs of the program {same[0].program[:8]}"
    if why:
        raise AtlasError(
            "this is not the answer to a query of these keys",
            why=why,
            remedy="use the keys and the bundle that the query was made with",
        )
    if any(entry.answer not in ("", answer.answer) for entry in same):
        raise AtlasError(
            f"the query {answer.query[:8]} was answered before, and differently",
            why="a query has one answer; a second one may be made to find out the secret key",
            remedy="use the first answer, or make a new query",
        )
