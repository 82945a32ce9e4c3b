"""A cost table from what the program `primitives` measured, where Python runs no engine: on a GPU.

    primitives DEVICE MEMORY_GIB bootstrapped SET > one.json      (docs/backend-phantom.md)
    python -m benchmarks.engine.table one.json two.json -o costs.json

Each file is one parameter set. The calls are those that `atlasc calibrate-backend` makes, and the
seconds of their parts follow by the same equations.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atlasc.files import write_text
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import STRICT, parse_json, read_bytes
from atlasc.targets import find_target
from atlasc.targets.ckks.parameters import CkksParameters
from atlasc.targets.cost_table import MAX_TABLE, Bootstrap, CostTable, Level, Measured, Seconds
from atlasc.targets.costs import KEY
from atlasc.targets.cpu.calibration import CpuCalibrator
from atlasc.targets.machine import Machine
from atlasc.version import __version__


@dataclass(frozen=True)
class Keys:
    """Seconds to make a file of evaluation keys, and its bytes: half of those in memory, since a
    seed makes the other half.
    """

    __pydantic_config__ = STRICT

    seconds: Seconds
    bytes: int


@dataclass(frozen=True)
class Actions:
    """The JSON form of what `primitives` prints: seconds of each call, by name and level."""

    __pydantic_config__ = STRICT

    backend: str
    machine: Machine
    date: str
    keys: Keys
    bootstrap: Bootstrap | None
    parameters: Mapping[str, Any]
    seconds: Mapping[str, Mapping[Level, Seconds]]


def table_of(measured: Sequence[Actions]) -> CostTable:
    """The table of sets that one machine has measured.

    Raises:
        AtlasError: there is no set, or they belong to several backends or machines.
    """
    if len({(one.backend, str(one.machine)) for one in measured}) != 1:
        raise AtlasError(
            "these measurements make no table",
            why="they belong to several engines or machines, or there are none",
            remedy="measure all parameter sets on one machine",
        )
    first = measured[0]
    kind = find_target(first.backend).parameters
    sets = []
    for one in measured:
        parameters = kind.from_dict(one.parameters)
        assert isinstance(parameters, CkksParameters)
        top = parameters.max_level
        key = one.keys.seconds * parameters.key_bytes(top) / (2 * one.keys.bytes)
        # The vectors of a sum are there before it is measured.
        made = dict.fromkeys(one.seconds["mul_plain"], 0.0)
        costs = CpuCalibrator().costs({**one.seconds, "vectors": made})
        sets.append(Measured(parameters.to_dict(), {KEY: {top: key}, **costs}))
    bootstrap = next((one.bootstrap for one in measured if one.bootstrap), None)
    return CostTable(first.backend, __version__, first.machine, first.date, tuple(sets), bootstrap)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.engine.table", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("measured", type=Path, nargs="+", help="what `primitives` printed")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the table to write")
    given = parser.parse_args()
    try:
        found = [parse_json(read_bytes(path, MAX_TABLE), Actions) for path in given.measured]
        write_text(given.output, table_of(found).text())
    except (AtlasError, ValueError) as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
