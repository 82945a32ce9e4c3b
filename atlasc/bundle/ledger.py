"""The ledger of a client's key: its queries, their answers, and the numbers that were shared.

A server can send anything back. With the ledger a client accepts one answer to each of its own
queries, and no other answer. The ledger is a file beside the secret key: one JSON object a line,
and it only grows. The runtime library keeps it (``atlasc/ledger.hpp``), for this client as for the
client of an emitted C++ project.

A dishonest server learns one bit from each answer: whether the client showed it or refused it, and
of a text whether it ended there. So a key has a budget of answers that were refused or ended a
text, after which the key is not used any more (docs/security.md).
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
    """Number of answers, refused or the visible end of a text, after which a key is not used any
    more.
    """
    return int(load_library().Ledger.MOST_REFUSALS)


def noted(doubt: str) -> str:
    """The reason for a doubt, in the form that the ledger takes."""
    return printable(doubt)[: load_library().Ledger.MOST_DOUBT]


@dataclass(frozen=True)
class Entry:
    """A query, or the answer to it.

    Attributes:
        query: name of the query.
        program: identity of the bundle.
        count: number of inputs of the query, or the number that the answer claims.
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
        folder: folder of the key.
    """

    folder: Path

    @property
    def path(self) -> Path:
        """The file of the ledger."""
        return self.folder / LEDGER

    def check(self, answer: Entry) -> None:
        """Refuse an answer unless it is the only one to a query of this key.

        Raises:
            AtlasError: there is no such query, the program or the count differs, the query has an
                answer already, or the budget of refused answers is spent.
        """
        with self._open() as ledger:
            ledger.check(astuple(answer))

    def add(self, query: Entry, doubt: str | None = None) -> None:
        """Note a query before it leaves the client.

        Args:
            query: the query.
            doubt: why the bound on the errors may not hold for its answer; empty if the client
                knows no reason, None if it did not check.

        Raises:
            AtlasError: the budget of refused answers is spent.
        """
        with self._open() as ledger:
            ledger.add(astuple(query), None if doubt is None else noted(doubt))

    def answer(self, answer: Entry) -> None:
        """Note an answer before it is decrypted, if :meth:`check` accepts it. A server can then
        learn from the answer only once.

        Raises:
            AtlasError: as :meth:`check`.
        """
        with self._open() as ledger:
            ledger.answer(astuple(answer))

    def refuse(self, answer: Entry) -> None:
        """Note that a decrypted answer is refused, before anything about it is shown."""
        with self._open() as ledger:
            ledger.refuse(astuple(answer))

    def refusals(self) -> int:
        """Number of refused answers."""
        with self._open() as ledger:
            return int(ledger.refusals())

    def end(self, answer: Entry) -> None:
        """Note, before the server can see it, that a text ends with a decrypted answer."""
        with self._open() as ledger:
            ledger.end(astuple(answer))

    def ended(self) -> int:
        """Number of texts whose end the server could see."""
        with self._open() as ledger:
            return int(ledger.ended())

    def require_shareable(self, answer: Entry, bits: int, shares: int) -> None:
        """Refuse, before anything is decrypted, an answer that :meth:`share` would refuse."""
        with self._open() as ledger:
            ledger.require_shareable(astuple(answer), bits, shares)

    def share(self, answer: Entry, bits: int, shares: int) -> int:
        """Note, before they are shown, that the numbers of an answer leave the client.

        Returns how many answers were shared, this one included.

        An answer that is shared at kappa ``bits`` as one of tau ``shares`` spends 2^-kappa / tau,
        in proportion to the divergence that :mod:`atlasc.client.sharing` allows. All shared answers
        of a key together may spend 2^-kappa.

        Raises:
            AtlasError: as :meth:`check`; the bound on the errors may not hold for the query, the
                answer was refused, or the budget is spent.
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
