"""What stays of a search that ends early in Python, so that it can go on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from atlasc.api.words import warned
from atlasc.compilation.fronts import ranges_beside
from atlasc.ir.errors import AtlasError
from atlasc.search.journal import journal_beside


@contextmanager
def resumable(output: Path, journal: Path | None) -> Iterator[None]:
    """Keep the evaluations of a search that the block does not end, and say how to go on.

    Args:
        output: the temporary folder of the program, beside which the evaluations lie.
        journal: the caller's own place for them, which stays anyway; None without one.
    """
    try:
        yield
    except (KeyboardInterrupt, AtlasError) as error:
        kept = journal or _moved(journal_beside(output))
        if kept is not None and kept.is_file():
            said = f"the same call with journal={str(kept)!r} continues from its evaluations"
            if isinstance(error, KeyboardInterrupt):
                error.args = (said,)
            else:
                warned(f"the search is kept: {said}")
        raise


def _moved(journal: Path) -> Path | None:
    """The new place of a journal and of the ranges beside it; None if there are no evaluations."""
    if not journal.is_file() or journal.read_bytes().count(b"\n") < 2:
        return None
    place = Path(mkdtemp(prefix="atlasc-search-")) / "evaluations.jsonl"
    for source, target in ((journal, place), (ranges_beside(journal), ranges_beside(place))):
        if source.is_file():
            shutil.move(source, target)
    return place
