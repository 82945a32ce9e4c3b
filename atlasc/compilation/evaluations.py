"""Where the evaluations of a search lie: beside the output until it is written, then inside it."""

from __future__ import annotations

from pathlib import Path

from atlasc.files import require_file_place
from atlasc.ir.errors import AtlasError
from atlasc.ir.files.plain import read_text
from atlasc.passes.search.journal import MAX_JOURNAL, journal_beside

KEPT = "evaluations.jsonl"
"""In an output folder: every evaluation of its search."""


def journal_place(output: Path | None, named: Path | None = None) -> Path | None:
    """The journal of a search; None where nothing is kept, as there is no place for it.

    Args:
        output: the folder that will be written; where it is missing too, its parents are made.
        named: the place that the user named.

    Raises:
        AtlasError: the place cannot be written.
    """
    if named is not None:
        require_file_place(named)
        return named
    if output is None:
        return None
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AtlasError(f"cannot write to {output.parent}", why=str(error)) from None
    return journal_beside(output)


def kept_evaluations(output: Path, journal: Path | None) -> dict[str, str]:
    """Texts of the files that keep a journal in an output; none for one that the user named."""
    if journal != journal_beside(output):
        return {}
    return {KEPT: read_text(journal, MAX_JOURNAL, links=False)}


def drop_journal(output: Path, journal: Path | None) -> None:
    """Remove the journal of an output that is written and keeps its evaluations."""
    if journal is not None and journal == journal_beside(output):
        journal.unlink(missing_ok=True)
