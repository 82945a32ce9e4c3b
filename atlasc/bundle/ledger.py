"""What a client did with its key: the queries, the answers to them, and the shared numbers.

A server can send anything back. With the ledger a client accepts one answer to each of its own
queries, and no other. It is a file beside the secret key, one JSON object a line, that only grows.
The runtime library keeps it (``atlasc/ledger.hpp``), for this client as for that of an emitted C++
project.

A server that sends what it likes learns one bit from each answer: whether the client showed it or
refused it. So a key has a budget of refused answers, after which it is not used any more
(docs/security.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from atlasc.ir.errors import printable
from atlasc.runtime.native import load_library, translated

LEDGER = "ledger.jsonl"


def most_refusals() -> int:
    """Refused answers after which a key is not used any more."""
    return int(load_library().Ledger.MOST_REFUSALS)


def noted(doubt: str) -> str:
    """A reason for a doubt, as a ledger takes it."""
    return printable(doubt)[: load_library().Ledger.MOST_DOUBT]


@dataclass(frozen=True)
class Entry:
    """A query, or the answer to it.

    Attributes:
        query: name of the query.
        program: identity of the bundle.
        count: inputs of the query, or those that the answer says to be of.
        answer: SHA-256 of the answer; empty for a query.
    """

    query: str
    program: str
    count: int
    answer: str = ""


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
        with self._open() as ledger:
            ledger.check(astuple(answer))

    def add(self, query: Entry, doubt: str | None = None) -> None:
        """Note a query before it leaves the client.

        Args:
            doubt: why the bound on the errors may not hold for its answer; empty where the client
                knows of no reason, None where it did not look.

        Raises:
            AtlasError: too many answers were refused.
        """
        with self._open() as ledger:
            ledger.add(astuple(query), None if doubt is None else noted(doubt))

    def answer(self, answer: Entry) -> None:
        """Note an answer before it is decrypted, if :meth:`check` accepts it. What a server learns
        from the answer, it then learns once.

        Raises:
            AtlasError: as :meth:`check`.
        """
        with self._open() as ledger:
            ledger.answer(astuple(answer))

    def refuse(self, answer: Entry) -> None:
        """Note, before anything is said of it, that a decrypted answer is none."""
        with self._open() as ledger:
            ledger.refuse(astuple(answer))

    def refusals(self) -> int:
        """How many answers were refused."""
        with self._open() as ledger:
            return int(ledger.refusals())

    def require_shareable(self, answer: Entry, bits: int, shares: int) -> None:
        """Refuse what :meth:`share` would refuse; for before anything is decrypted."""
        with self._open() as ledger:
            ledger.require_shareable(astuple(answer), bits, shares)

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
        with self._open() as ledger:
            return int(ledger.share(astuple(answer), bits, shares))

    @contextmanager
    def _open(self) -> Iterator[Any]:
        """The library's ledger, locked against other processes and threads."""
        with translated():
            ledger = load_library().Ledger(str(self.folder))
            try:
                yield ledger
            finally:
                ledger.close()
