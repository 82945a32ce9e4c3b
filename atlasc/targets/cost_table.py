"""Cost tables: measured seconds of the primitives of a backend.

```
{"format": 1, "backend": "desilo", "library": "1.17.0", "date": "2026-11-21",
 "machine": {"processor": …, "threads": 2, "memory_gib": 23.4},
 "other_work": 0.02, "note": …,
 "bootstrap": {"seconds": 34, "key_seconds": 97, "measured": true, "one_seconds": null},
 "sets": [{"parameters": {…}, "seconds": {"rotate": {"35": 0.9, "17": 0.3, …}, …}}, …]}
```

``seconds`` maps primitives and levels to seconds of one call. The primitives are those of the
counting engine, and ``key``, which makes one evaluation key.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from atlasc.ir.bounds import MAX_LEVEL
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import MIB, STRICT, Amount, parse_json, read_bytes
from atlasc.ir.plugins import plugins
from atlasc.targets.machine import Machine, this_machine

VARIABLE = "ATLASC_COSTS"
"""Environment variable that names the table in use."""
MAX_TABLE = 16 * MIB
"""Greatest size in bytes of a cost table; usual tables have some 10 KiB."""
Seconds = Annotated[float, Field(gt=0)]
Level = Annotated[int, Field(ge=0, le=MAX_LEVEL, strict=False)]
"""Names of JSON members are texts, so integers are parsed from them."""
_SORTED = AfterValidator(lambda seconds: dict(sorted(seconds.items())))


@dataclass(frozen=True)
class Measured:
    """Seconds of one call, by primitive and level, at a parameter set in its backend's notation."""

    __pydantic_config__ = STRICT

    parameters: Mapping[str, Any]
    seconds: Mapping[str, Annotated[Mapping[Level, Seconds], Field(min_length=1), _SORTED]]


@dataclass(frozen=True)
class Bootstrap:
    """Seconds of a bootstrap and of its key.

    Attributes:
        seconds: seconds of a full batch.
        key_seconds: seconds to make the key.
        measured: False if the numbers were scaled from another machine's.
        one_seconds: seconds for a ciphertext without a partner; None: as for a batch.
        narrow_seconds: seconds for slots that repeat 32 times; None: as ``one_seconds``.
    """

    __pydantic_config__ = STRICT

    seconds: Seconds
    key_seconds: Seconds
    measured: bool
    one_seconds: Seconds | None = None
    narrow_seconds: Seconds | None = None


@dataclass(frozen=True)
class CostTable:
    """Measured costs of one backend on one machine; also the JSON form of the file.

    Attributes:
        backend: name of the backend.
        library: version of the library behind the backend.
        machine: the machine of the measurement.
        date: day of the measurement, ISO 8601.
        sets: measured seconds of each parameter set.
        bootstrap: seconds of a bootstrap; None if the backend has none.
        other_work: share of the machine, 0 to 1, that other processes took meanwhile; None if it
            is not known.
        note: a remark for readers.
        path: the file that the table was read from; not part of the file.
    """

    __pydantic_config__ = STRICT

    backend: str
    library: str
    machine: Machine
    date: str
    sets: Annotated[tuple[Measured, ...], Field(min_length=1)]
    bootstrap: Bootstrap | None = None
    other_work: Amount | None = None
    note: str = ""
    format: Literal[1] = 1
    path: Path | None = field(default=None, compare=False)

    def text(self) -> str:
        """The content of the file: a line for each fact and for each primitive; four digits."""
        facts = asdict(replace(self, path=None))
        del facts["path"]
        for one in facts["sets"]:
            for name, seconds in one["seconds"].items():
                one["seconds"][name] = {at: float(f"{s:.4g}") for at, s in seconds.items()}
        if self.other_work is not None:
            facts["other_work"] = round(self.other_work, 3)
        text = json.dumps(facts, indent=1)
        text = re.sub(r"\{[^{}]*\}", lambda innermost: re.sub(r"\n *", " ", innermost[0]), text)
        return text + "\n"


def damaged(path: Path | None, why: str) -> AtlasError:
    """The error for a file that cannot be used."""
    return AtlasError(
        f"the cost table {path} is damaged",
        why=why,
        remedy="remove the file, and measure again with atlasc calibrate-backend",
    )


def load(path: Path) -> CostTable:
    """Read a table.

    Raises:
        AtlasError: the file is missing, damaged, or of another format.
    """
    try:
        return replace(parse_json(read_bytes(path, MAX_TABLE), CostTable), path=path)
    except ValueError as error:
        raise damaged(path, str(error)) from None


# --- the table in use


def shipped_place(backend: str) -> Path:
    """The table that comes with atlasc."""
    here = Path(__file__).parent
    ours = (here / backend).is_dir() or (here / f"{backend}.py").exists()
    if not ours and (entry := plugins("atlasc.targets").get(backend)) is not None:
        found = find_spec(entry.module)
        if found is not None and found.origin is not None:
            return Path(found.origin).parent / "costs.json"
    return here / backend / "costs.json"


def own_place(backend: str) -> Path:
    """The place of this user's table: in the data folder of the XDG specification."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "atlasc" / "costs" / f"{backend}.json"


def active_table(backend: str, named: Path | None = None) -> CostTable | None:
    """The table that predicts times; None without a table.

    The first of these tables that belongs to the backend is used: the named file (``--costs``), or
    otherwise the file that ``ATLASC_COSTS`` names; the table that ``atlasc calibrate-backend``
    wrote for this user; the table that comes with atlasc.

    Raises:
        AtlasError: the named file is missing, or a file is damaged.
    """
    named = _named(named)
    if named is not None and (table := load(named)).backend == backend:
        return table
    places = (own_place(backend), shipped_place(backend))
    return next((load(place) for place in places if place.exists()), None)


def _named(table: Path | None) -> Path | None:
    """The table that the user chose, for this call or with the environment variable."""
    named = os.environ.get(VARIABLE)
    return table or (Path(named) if named else None)


def cost_warning(backend: str, library: str | None, named: Path | None = None) -> str:
    """One line that says why predicted times may be wrong on this machine, and what to do.

    Empty if nothing is wrong or no table is in use.

    Args:
        backend: the backend whose times are predicted.
        library: installed version of the backend's library; None if it is not installed.
        named: the table given with ``--costs``.

    Raises:
        AtlasError: as :func:`active_table`.
    """
    table, named, here = active_table(backend, named), _named(named), this_machine()
    if table is None:
        return ""
    why = []
    if named is not None and table.path != named:
        why.append(f"{named} belongs to the target {load(named).backend} and is not used")
    if library is not None and table.library != library:
        why.append(f"version {table.library} was measured, but {library} is installed")
    if str(here) != str(table.machine):
        why.append(f"measured on {table.machine}, but this machine has {here}")
    remedy = "measure this machine once with atlasc calibrate-backend"
    return f"predicted times may be wrong here ({'; '.join(why)}): {remedy}" if why else ""
