"""``decrypt --share``: what is said, and what is asked before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from atlasc.cli.errors import show
from atlasc.ir.errors import AtlasError

if TYPE_CHECKING:
    from atlasc.bundle.folder import Bundle
    from atlasc.bundle.ledger import Ledger, Named
    from atlasc.client.answers import Answers


def note_exact() -> None:
    """Say what exact numbers are for."""
    show("note", "these numbers are for your own use; --share makes some that may be passed on")


def require_shareable(bundle: Bundle, bits: int, shares: int, unchecked: bool) -> None:
    """Refuse before anything is decrypted.

    Raises:
        AtlasError: no digit could be shared; or with ``--unchecked``.
    """
    from atlasc.client.sharing import require_digits

    if unchecked:
        raise AtlasError(
            "--share and --unchecked exclude each other",
            why="no bound holds for an answer that is none",
            remedy="leave one of them out",
        )
    require_digits(bundle.client.interface, 1, bits, shares)


def shared(
    answers: Answers, bundle: Bundle, ledger: Ledger, named: Named, bits: int, shares: int
) -> Answers:
    """The answers with their noise, after they were counted.

    Args:
        answers: exact ones, of which each is an answer: the bound holds for no other.
        bundle: its client's part is enough.
        ledger: of the client's keys.
        named: the answer that they are from.
        bits: of statistical security.
        shares: answers that the keys are to share in all.

    Raises:
        AtlasError: no digit is left for so many inputs, or the keys shared all that they may.
    """
    from dataclasses import replace

    from atlasc.client.sharing import require_digits, share

    count = len(next(iter(answers.outputs.values())))
    flooding = require_digits(bundle.client.interface, count, bits, shares)
    number = ledger.share(named, bits, shares)
    for name, flood in flooding.items():
        show(
            "note",
            f"{name}: {flood.digits} digits are left and may be passed on, at {bits} bits",
            f"  noise of {flood.deviation:.2g} hides the error of encryption; answer {number} of "
            f"{shares} that these keys share",
        )
    return replace(answers, outputs=share(answers.outputs, flooding))
