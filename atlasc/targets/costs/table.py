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
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from atlasc.ir.bounds import MAX_LEVEL
from atlasc.ir.errors import AtlasError
from atlasc.ir.files.json_text import STRICT, Amount, Schema, parse_json
from atlasc.ir.files.plain import MIB, read_bytes
from atlasc.targets.machine import Machine

FORMAT = 1
MAX_TABLE = 16 * MIB
"""Bytes of a cost table, which has some 10 KiB."""
Seconds = Annotated[float, Field(gt=0)]
Level = Annotated[int, Field(ge=0, le=MAX_LEVEL, strict=False)]
"""Names of JSON members are texts."""
_SORTED = AfterValidator(lambda seconds: dict(sorted(seconds.items())))


@dataclass(frozen=True)
class Measured:
    """Seconds of one parameter set.

    Attributes:
        parameters: as the backend writes them.
        seconds: of one call, by primitive and level.
    """

    __pydantic_config__ = STRICT

    parameters: Mapping[str, Any]
    seconds: Mapping[str, Annotated[Mapping[Level, Seconds], Field(min_length=1), _SORTED]]


@dataclass(frozen=True)
class Bootstrap:
    """Seconds of a bootstrap and of its key.

    Attributes:
        seconds: of one bootstrap.
        key_seconds: of its key.
        measured: False where they were scaled from another machine's.
    """

    __pydantic_config__ = STRICT

    seconds: Seconds
    key_seconds: Seconds
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
        text = read_bytes(path, MAX_TABLE)
        try:
            data = parse_json(text, _File)
        except ValueError as error:
            raise damaged(path, str(error)) from None
        return cls(
            data.backend, data.library, data.machine, data.date, data.sets, data.bootstrap,
            data.other_work, data.note, path,
        )  # fmt: skip


def damaged(path: Path | None, why: str) -> AtlasError:
    """The error for a file whose contents make no sense."""
    return AtlasError(
        f"the cost table {path} is damaged",
        why=why,
        remedy="remove it, and measure again with atlasc calibrate-backend",
    )


class _File(Schema):
    """The JSON form of a cost table."""

    format: Literal[1]
    backend: str
    library: str
    machine: Machine
    date: str
    other_work: Amount | None = None
    note: str = ""
    bootstrap: Bootstrap | None
    sets: Annotated[tuple[Measured, ...], Field(min_length=1)]


def _set_text(one: Measured) -> str:
    """A parameter set with one line for each primitive."""
    lines = [
        f"    {json.dumps(name)}: {json.dumps({str(n): float(f'{s:.4g}') for n, s in v.items()})}"
        for name, v in one.seconds.items()
    ]
    body = ",\n".join(lines)
    return f'  {{"parameters": {json.dumps(one.parameters)},\n   "seconds": {{\n{body}}}}}'
