"""What the primitives of a backend cost, as somebody measured it: the file of a cost table.

```
{"format": 1, "backend": "desilo", "library": "1.17.0", "date": "2026-11-21",
 "machine": {"processor": …, "threads": 2, "memory_gib": 23.4},
 "other_work": 0.02, "note": …,
 "bootstrap": {"seconds": 34, "key_seconds": 97, "measured": true},
 "sets": [{"parameters": {…}, "seconds": {"rotate": {"35": 0.9, "17": 0.3, …}, …}}, …]}
```

``seconds`` has seconds of one call by primitive and level; the primitives are those of the counting
engine and ``key``, which makes one key. What lies between measured levels is the backend's affair.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from atlasc.backends.machine import Machine
from atlasc.ir.errors import AtlasError

FORMAT = 1


@dataclass(frozen=True)
class Measured:
    """Seconds of one parameter set.

    Attributes:
        parameters: as the backend writes them.
        seconds: of one call, by primitive and level.
    """

    parameters: Mapping[str, Any]
    seconds: Mapping[str, Mapping[int, float]]


@dataclass(frozen=True)
class Bootstrap:
    """Seconds of a bootstrap and of its key.

    Attributes:
        seconds: of one bootstrap.
        key_seconds: of its key.
        measured: False where they were scaled from another machine's.
    """

    seconds: float
    key_seconds: float
    measured: bool


@dataclass(frozen=True)
class CostTable:
    """Measured costs of one backend on one machine.

    Attributes:
        backend: its name.
        library: version of the library behind it.
        machine: where it was measured.
        date: day of the measurement, ISO 8601.
        sets: by parameter set.
        bootstrap: None where the backend has none.
        other_work: share of the machine that other processes took meanwhile, 0 to 1; None where
            nobody knows.
        note: for whoever reads it.
        path: the file that it was read from.
    """

    backend: str
    library: str
    machine: Machine
    date: str
    sets: tuple[Measured, ...]
    bootstrap: Bootstrap | None = None
    other_work: float | None = None
    note: str = ""
    path: Path | None = field(default=None, compare=False)

    def text(self) -> str:
        """The file's contents."""
        header = {
            "format": FORMAT,
            "backend": self.backend,
            "library": self.library,
            "machine": self.machine.to_dict(),
            "date": self.date,
            "other_work": None if self.other_work is None else round(self.other_work, 3),
            "note": self.note,
            "bootstrap": None if self.bootstrap is None else asdict(self.bootstrap),
        }
        lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in header.items()]
        sets = ",\n".join(_set_text(one) for one in self.sets)
        return "{\n" + ",\n".join(lines) + f',\n "sets": [\n{sets}\n ]\n}}\n'

    @classmethod
    def load(cls, path: Path) -> CostTable:
        """Read a file.

        Raises:
            AtlasError: it is not there, damaged, or of another format.
        """
        try:
            content = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise AtlasError(
                f"the cost table {path} cannot be read",
                why=str(error),
                remedy="give the file that atlasc calibrate-backend wrote",
            ) from None
        try:
            return _parse(json.loads(content), path)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            why = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            raise damaged(path, why) from None


def damaged(path: Path | None, why: str) -> AtlasError:
    """The error for a file whose contents make no sense."""
    return AtlasError(
        f"the cost table {path} is damaged",
        why=why,
        remedy="remove it, and measure again with atlasc calibrate-backend",
    )


def _parse(data: Any, path: Path) -> CostTable:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else None
        raise ValueError(f"its format is {found!r}, this atlasc reads {FORMAT}")
    machine = data["machine"]
    sets = tuple(
        Measured(dict(one["parameters"]), {n: _levels(n, v) for n, v in one["seconds"].items()})
        for one in data["sets"]
    )
    if not sets:
        raise ValueError("it has no parameter set")
    bootstrap = data["bootstrap"]
    return CostTable(
        str(data["backend"]),
        str(data["library"]),
        Machine(
            str(machine["processor"]), int(machine["threads"]), _positive(machine["memory_gib"])
        ),
        str(data["date"]),
        sets,
        None
        if bootstrap is None
        else Bootstrap(
            _positive(bootstrap["seconds"]),
            _positive(bootstrap["key_seconds"]),
            bool(bootstrap["measured"]),
        ),
        data.get("other_work"),
        str(data.get("note", "")),
        path,
    )


def _levels(primitive: str, seconds: Mapping[str, Any]) -> dict[int, float]:
    if not seconds:
        raise ValueError(f"{primitive} has no level")
    return {level: _positive(seconds[str(level)]) for level in sorted(map(int, seconds))}


def _positive(value: Any) -> float:
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{value} is not a positive number")
    return number


def _set_text(one: Measured) -> str:
    """A parameter set with one line for each primitive."""
    lines = [
        f"    {json.dumps(name)}: {json.dumps({str(n): float(f'{s:.4g}') for n, s in v.items()})}"
        for name, v in one.seconds.items()
    ]
    body = ",\n".join(lines)
    return f'  {{"parameters": {json.dumps(one.parameters)},\n   "seconds": {{\n{body}}}}}'
