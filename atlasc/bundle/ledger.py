"""What a client did with its key: the queries, the answers to them, and the shared numbers.

A server can send anything back. With the ledger a client accepts one answer to each of its own
queries, and no other. It is a file beside the secret key, one JSON object a line, that only grows.
The client of an emitted C++ project keeps the same file (``queries.hpp``).

A server that sends what it likes learns one bit from each answer: whether the client showed it or
refused it. So a key has a budget of refused answers, after which it is not used any more
(docs/security.md).
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
REFUSALS = 16
"""Refused answers after which a key is not used any more; as in ``queries.cpp``."""
DOUBT = 400
"""Most characters of the reason for a doubt."""
_UNKNOWN = "the ledger does not say whether its inputs are like those of calibration"
_LARGEST = 256 * MIB
QueryId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class Entry(Schema):
    """One line: a query was made, an answer to it is to be decrypted, was refused after that, or
    its numbers were shared.

    Attributes:
        event: which of these.
        query: name of the query.
        program: identity of the bundle.
        count: inputs of the query, or those that the answer says to be of.
        answer: SHA-256 of the answer; empty for a query.
        spent: of the key's budget of shared numbers, see :meth:`Ledger.share`.
        doubt: of a query, why the bound on the errors may not hold for its answer; empty where the
            client knows of no reason, None where it did not look.
    """

    event: Literal["query", "answer", "refused", "share"]
    query: QueryId
    program: Sha256
    count: Annotated[int, Field(ge=1, le=2**20)]
    answer: Sha256 | Literal[""] = ""
    spent: Annotated[float, Field(ge=0, le=1)] = 0.0
    doubt: Annotated[str, Field(max_length=DOUBT)] | None = None


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
            AtlasError: no such query, another program or count, a second answer, or a new one after
                too many were refused.
        """
        with self._open() as (known, _):
            _expect(known, answer)

    def add(self, entry: Entry) -> None:
        """Note a query before it leaves the client, or an answer before it is decrypted, if
        :meth:`check` accepts it. What a server learns from the answer, it then learns once.

        Raises:
            AtlasError: as :meth:`check`; a query after too many answers were refused.
        """
        with self._open() as (known, append):
            if entry.event == "query":
                _require_usable(known)
            else:
                _expect(known, entry)
            if entry not in known:  # an answer that is read again
                append(entry)

    def refuse(self, answer: Entry) -> None:
        """Note, before anything is said of it, that a decrypted answer is none."""
        refused = answer.model_copy(update={"event": "refused"})
        with self._open() as (known, append):
            if refused not in known:
                append(refused)

    def refusals(self) -> int:
        """How many answers were refused."""
        with self._open() as (known, _):
            return _refusals(known)

    def require_shareable(self, answer: Entry, bits: int, shares: int) -> None:
        """Refuse what :meth:`share` would refuse; for before anything is decrypted."""
        with self._open() as (known, _):
            self._spent(known, answer, bits, shares)

    def share(self, answer: Entry, bits: int, shares: int) -> int:
        """Note that the numbers of an answer leave the client, before they are shown, and count the
        answers that were shared, this one included.

        An answer that is shared at kappa ``bits`` as one of tau ``shares`` spends 2^-kappa / tau,
        in proportion to the divergence that :mod:`atlasc.client.sharing` allows; all of a key's may
        spend 2^-kappa.

        Raises:
            AtlasError: as :meth:`check`; the bound on the errors may not hold for the query, or the
                answer was refused; the budget is spent.
        """
        with self._open() as (known, append):
            spent = self._spent(known, answer, bits, shares)
            cost = 2.0**-bits / shares
            append(Entry(**{**dict(answer), "event": "share", "spent": cost}))
            return len(spent) + 1

    def _spent(self, known: list[Entry], answer: Entry, bits: int, shares: int) -> list[float]:
        """What the shared answers spent; raises AtlasError unless one more may be shared."""
        _expect(known, answer)
        _require_bounded(known, answer)
        cost, limit = 2.0**-bits / shares, 2.0**-bits
        spent = [entry.spent for entry in known if entry.event == "share"]
        if sum(spent) + cost > limit * (1 + 1e-9):
            raise AtlasError(
                "these keys have shared as many answers as they may",
                where=str(self.path),
                why=f"{len(spent)} answers spent their budget at {bits} bits: a further one may "
                "tell something of the secret key",
                remedy="make new keys with atlasc keygen, and say with --shares beforehand how "
                "many answers they are to share",
            )
        return spent

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
    facts = entry.model_dump(exclude_defaults=True)
    line = json.dumps(facts, ensure_ascii=False).encode() + b"\n"  # as the C++ client reads it
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
    if all(entry.event == "query" for entry in same):  # one that was read before tells nothing new
        _require_usable(known)


def _refusals(known: list[Entry]) -> int:
    return sum(entry.event == "refused" for entry in known)


def _require_usable(known: list[Entry]) -> None:
    """Raise AtlasError once too many answers were refused."""
    if (refused := _refusals(known)) >= REFUSALS:
        raise AtlasError(
            "these keys are used up",
            why=f"{refused} answers to their queries were refused after they were decrypted; each "
            "refusal may tell a server that sends false answers something of the secret key",
            remedy="make new keys with atlasc keygen, and give the server its part of them. Find "
            "out first why answers were refused: inputs unlike those of calibration "
            "(atlasc check-input tells), or a server that computes something else",
        )


def _require_bounded(known: list[Entry], answer: Entry) -> None:
    """Raise AtlasError where the bound on the errors of an answer may not hold."""
    same = [entry for entry in known if entry.query == answer.query]
    why = next((_UNKNOWN if e.doubt is None else e.doubt for e in same if e.event == "query"), "")
    if any(entry.event == "refused" for entry in same):
        why = "the answer was refused before"
    if why:
        raise AtlasError(
            f"the answer to the query {answer.query[:8]} is not shared",
            why=f"{why}; the bound on its errors may not hold, and then the noise that is added "
            "would not hide the secret key",
            remedy="use its exact numbers for yourself alone, or share a decision, such as the "
            "class; encrypt such inputs in queries of their own, so that the others can be shared",
        )
