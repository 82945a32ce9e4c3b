"""Where the cost table of a backend is found, and whether it suits this machine.

The first of these that exists: the file that ``ATLASC_COSTS`` names (the option ``--costs`` sets
it), the one that ``atlasc calibrate-backend`` wrote for this user, the one that comes with atlasc.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from atlasc.targets.costs.table import CostTable
from atlasc.targets.machine import this_machine

VARIABLE = "ATLASC_COSTS"
_SHIPPED = Path(__file__).parent.parent


def shipped_place(backend: str) -> Path:
    """The table that comes with atlasc."""
    return _SHIPPED / backend / "costs.json"


def own_place(backend: str) -> Path:
    """Where this user's table is kept: in the data folder of the XDG specification."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "atlasc" / "costs" / f"{backend}.json"


def active_table(backend: str) -> CostTable:
    """The table by which times are predicted.

    Raises:
        AtlasError: the file that was named is not there, or damaged.
    """
    table = _found(backend)
    return table if table.backend == backend else load(shipped_place(backend))


def known_table(backend: str) -> CostTable | None:
    """The same for a backend of which maybe nobody measured a table; None where there is none.

    Raises:
        AtlasError: the file that was named is not there, or a file is damaged.
    """
    named = os.environ.get(VARIABLE)
    if named and (table := load(Path(named))).backend == backend:
        return table
    places = (own_place(backend), shipped_place(backend))
    return next((load(place) for place in places if place.exists()), None)


def doubts(backend: str, library: str | None) -> list[str]:
    """Why times predicted for this backend on this machine may be wrong.

    Args:
        backend: what is predicted for.
        library: version of its library that is installed; None where there is none.

    Raises:
        AtlasError: as :func:`active_table`.
    """
    table, here = _found(backend), this_machine()
    if table.backend != backend:
        return [
            f"{table.path} is of the target {table.backend}, not {backend}: the table that comes "
            "with atlasc is used"
        ]
    found = []
    if library is not None and table.library != library:
        found.append(f"it was measured with version {table.library}, {library} is installed")
    if not here.same_speed(table.machine):
        found.append(f"it was measured on {table.machine}, this machine has {here}")
    return found


def load(path: Path) -> CostTable:
    """A table, read once as long as its file stays as it is."""
    try:
        stamp = path.stat()
    except OSError:
        return CostTable.load(path)  # which says what is wrong
    return _load(path, stamp.st_mtime_ns, stamp.st_size)


def _found(backend: str) -> CostTable:
    named = os.environ.get(VARIABLE)
    if named:
        return load(Path(named))
    own = own_place(backend)
    return load(own if own.exists() else shipped_place(backend))


@lru_cache(maxsize=8)
def _load(path: Path, modified: int, size: int) -> CostTable:
    return CostTable.load(path)
