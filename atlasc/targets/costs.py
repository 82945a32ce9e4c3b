"""Cost tables: what the primitives of a backend cost, as somebody measured it, and what lies
between.

```
{"format": 1, "backend": "desilo", "library": "1.17.0", "date": "2026-11-21",
 "machine": {"processor": …, "threads": 2, "memory_gib": 23.4},
 "other_work": 0.02, "note": …,
 "bootstrap": {"seconds": 34, "key_seconds": 97, "measured": true},
 "sets": [{"parameters": {…}, "seconds": {"rotate": {"35": 0.9, "17": 0.3, …}, …}}, …]}
```

``seconds`` has seconds of one call by primitive and level; the primitives are those of the counting
engine and ``key``, which makes one evaluation key.

What lies between measured levels is fitted. A key switch at level l works with d digits on
p = r + k primes (r of the ciphertext, k special ones): d p products with the key, and about p
transforms before and after. Everything else is linear in the primes of the ciphertext. That is the
shape of a cost in the level; its few constants are fitted to the table for each ring degree, and at
measured parameter sets the fit is bent through the measured seconds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from atlasc.ir.bounds import MAX_LEVEL
from atlasc.ir.errors import AtlasError
from atlasc.ir.files.json_text import STRICT, Amount, parse_json
from atlasc.ir.files.plain import MIB, read_bytes
from atlasc.passes.execution.counting_engine import PRIMITIVES, Primitive
from atlasc.targets.chain import Chain
from atlasc.targets.machine import Machine, this_machine

VARIABLE = "ATLASC_COSTS"
"""Environment variable that names the table in use."""
MAX_TABLE = 16 * MIB
"""Bytes of a cost table, which has some 10 KiB."""
KEY = "key"
KEY_SWITCHES = ("rotate", "rotate_hoisted", "hoist", "mul", "square", KEY)
"""Primitives whose cost is of the digits of a key switch; all others are linear in the primes."""
Seconds = Annotated[float, Field(gt=0)]
Level = Annotated[int, Field(ge=0, le=MAX_LEVEL, strict=False)]
"""Names of JSON members are texts."""
_SORTED = AfterValidator(lambda seconds: dict(sorted(seconds.items())))


@dataclass(frozen=True)
class Measured:
    """Seconds of one call, by primitive and level, at a parameter set as its backend writes it."""

    __pydantic_config__ = STRICT

    parameters: Mapping[str, Any]
    seconds: Mapping[str, Annotated[Mapping[Level, Seconds], Field(min_length=1), _SORTED]]


@dataclass(frozen=True)
class Bootstrap:
    """Seconds of a bootstrap and of its key; not ``measured``: scaled from another machine's."""

    __pydantic_config__ = STRICT

    seconds: Seconds
    key_seconds: Seconds
    measured: bool


@dataclass(frozen=True)
class CostTable:
    """Measured costs of one backend on one machine; also the JSON form of the file.

    Attributes:
        backend: its name.
        library: version of the library behind it.
        machine: where it was measured.
        date: day of the measurement, ISO 8601.
        sets: by parameter set.
        bootstrap: None where the backend has none.
        other_work: share of the machine that other processes took meanwhile, 0 to 1; None where
            it is not known.
        note: a remark for readers.
        path: the file that it was read from; not part of the file.
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
        """The file's contents, a line for each fact and for each primitive."""
        facts = asdict(self)
        del facts["sets"], facts["path"]
        if self.other_work is not None:
            facts["other_work"] = round(self.other_work, 3)
        lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in facts.items()]
        sets = []
        for one in self.sets:
            rows = []
            for name, seconds in one.seconds.items():
                rounded = {str(level): float(f"{s:.4g}") for level, s in seconds.items()}
                rows.append(f"    {json.dumps(name)}: {json.dumps(rounded)}")
            body = ",\n".join(rows)
            parameters = json.dumps(one.parameters)
            sets.append(f'  {{"parameters": {parameters},\n   "seconds": {{\n{body}}}}}')
        all_sets = ",\n".join(sets)
        return "{\n" + ",\n".join(lines) + f',\n "sets": [\n{all_sets}\n ]\n}}\n'

    @classmethod
    def load(cls, path: Path) -> CostTable:
        """Read a file.

        Raises:
            AtlasError: it is not there, damaged, or of another format.
        """
        try:
            return replace(parse_json(read_bytes(path, MAX_TABLE), cls), path=path)
        except ValueError as error:
            raise _damaged(path, str(error)) from None


def _damaged(path: Path | None, why: str) -> AtlasError:
    return AtlasError(
        f"the cost table {path} is damaged",
        why=why,
        remedy="remove it, and measure again with atlasc calibrate-backend",
    )


class FittedCosts:
    """Costs by a cost table.

    Args:
        table: measured on some machine.
        read: a parameter set from what the table says of it.

    Raises:
        AtlasError: the table's parameter sets are not those of the backend.
    """

    def __init__(self, table: CostTable, read: Callable[[Mapping[str, Any]], Chain]) -> None:
        self.table = table
        try:
            self._sets = {read(one.parameters): one.seconds for one in table.sets}
        except AtlasError as error:
            raise _damaged(table.path, error.what) from None
        self._fits: dict[tuple[int, str], NDArray[np.float64]] = {}

    def cost(self, parameters: Chain, primitive: str, level: int) -> float:
        """Seconds of one call.

        Args:
            parameters: which engine.
            primitive: as the counting engine names it, or ``key``.
            level: of the lower operand; of the result of a bootstrap; that a key reaches.

        Raises:
            AtlasError: the table does not have the primitive.
        """
        if primitive == "bootstrap":
            return self._bootstrap().seconds
        fitted = self._fitted(parameters, primitive, level)
        sets = (parameters, parameters.cost_substitute)
        found = next((self._sets[one] for one in sets if one in self._sets), {})
        measured = found.get(primitive)
        if measured is None:
            return fitted
        known = {at: s / self._fitted(parameters, primitive, at) for at, s in measured.items()}
        levels = sorted(known)
        return fitted * float(np.interp(level, levels, [known[at] for at in levels]))

    def costs(self, parameters: Chain) -> dict[tuple[Primitive, int], float]:
        """Costs of all primitives at all levels, for ``Counts.seconds``."""
        table: dict[tuple[Primitive, int], float] = {
            (primitive, level): self.cost(parameters, primitive, level)
            for primitive in PRIMITIVES
            if primitive != "bootstrap"
            for level in range(parameters.max_level + 1)
        }
        if parameters.bootstrap_level is not None:
            table["bootstrap", parameters.bootstrap_level] = self._bootstrap().seconds
        return table

    def key_seconds(
        self,
        parameters: Chain,
        rotations: Mapping[int, int],
        relinearization_level: int | None = None,
    ) -> float:
        """Predicted time to make the keys of a program. ``rotations``: amount -> level."""
        levels = list(rotations.values())
        total = 0.0
        if parameters.bootstrap_level is not None:
            total = self._bootstrap().key_seconds
        elif relinearization_level is not None:
            levels.append(relinearization_level)
        return total + sum(self.cost(parameters, KEY, level) for level in levels)

    def _bootstrap(self) -> Bootstrap:
        if self.table.bootstrap is None:
            raise AtlasError(
                f"the cost table {self.table.path} does not tell what a bootstrap costs",
                remedy="measure it: for desilo with atlasc calibrate-backend --bootstrap",
            )
        return self.table.bootstrap

    def _fitted(self, parameters: Chain, primitive: str, level: int) -> float:
        key = (parameters.log_ring_degree, primitive)
        if key not in self._fits:
            self._fits[key] = self._fit(*key)
        return float(_terms(parameters, primitive, level) @ self._fits[key])

    def _fit(self, log_ring_degree: int, primitive: str) -> NDArray[np.float64]:
        """Constants of the shape, none negative: the least relative errors at one ring degree, or
        at all where none of it was measured.
        """
        from scipy.optimize import nnls

        rows = [
            (parameters, _terms(parameters, primitive, level) / seconds)
            for parameters, measured in self._sets.items()
            for level, seconds in measured.get(primitive, {}).items()
        ]
        if not rows:
            raise AtlasError(
                f"the cost table {self.table.path} has no seconds of {primitive}",
                remedy="measure again (docs/costs.md)",
            )
        same = [row for p, row in rows if p.log_ring_degree == log_ring_degree]
        matrix = np.array(same or [row for _, row in rows])
        return np.asarray(nnls(matrix, np.ones(len(matrix)))[0])


def _terms(parameters: Chain, primitive: str, level: int) -> NDArray[np.float64]:
    """The three numbers that the fitted constants multiply: products with a key, primes, 1."""
    scale = 2.0 ** (parameters.log_ring_degree - 16) * parameters.log_ring_degree / 16
    residues = float(parameters.residues(level))
    if primitive not in KEY_SWITCHES:
        return scale * np.array([0.0, residues, 1.0])
    primes = residues + parameters.special_primes
    return scale * np.array([parameters.digits(level) * primes, primes, 1.0])


# --- the table in use


def shipped_place(backend: str) -> Path:
    """The table that comes with atlasc."""
    return Path(__file__).parent / backend / "costs.json"


def own_place(backend: str) -> Path:
    """Where this user's table is kept: in the data folder of the XDG specification."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "atlasc" / "costs" / f"{backend}.json"


def active_table(backend: str, named: Path | None = None) -> CostTable | None:
    """The table by which times are predicted; None without one.

    The first of these that is of the backend: the file that is named (by ``--costs``), or else the
    one that ``ATLASC_COSTS`` names; the one that ``atlasc calibrate-backend`` wrote for this user;
    the one that comes with atlasc.

    Raises:
        AtlasError: the file that was named is not there, or a file is damaged.
    """
    named = _named(named)
    if named is not None and (table := load(named)).backend == backend:
        return table
    places = (own_place(backend), shipped_place(backend))
    return next((load(place) for place in places if place.exists()), None)


def _named(table: Path | None) -> Path | None:
    """The table that the user chose, for this call or by the environment."""
    named = os.environ.get(VARIABLE)
    return table or (Path(named) if named else None)


def cost_warning(backend: str, library: str | None, named: Path | None = None) -> str:
    """One line that says why predicted times may be wrong on this machine, and what to do; empty
    where nothing is wrong, or no table is in use.

    Args:
        backend: what is predicted for.
        library: version of its library that is installed; None where there is none.
        named: the table of ``--costs``.

    Raises:
        AtlasError: as :func:`active_table`.
    """
    table, named, here = active_table(backend, named), _named(named), this_machine()
    if table is None:
        return ""
    why = []
    if named is not None and table.path != named:
        why.append(f"{named} is of the target {load(named).backend} and is not used")
    if library is not None and table.library != library:
        why.append(f"version {table.library} was measured, {library} is installed")
    if not here.same_speed(table.machine):
        why.append(f"measured on {table.machine}, this machine has {here}")
    remedy = "measure this machine once with atlasc calibrate-backend"
    return f"predicted times may be wrong here ({'; '.join(why)}): {remedy}" if why else ""


def load(path: Path) -> CostTable:
    """A table, read once as long as its file stays as it is."""
    try:
        stamp = path.stat()
    except OSError:
        return CostTable.load(path)  # which says what is wrong
    return _load(path, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=8)
def _load(path: Path, modified: int, size: int) -> CostTable:
    return CostTable.load(path)
