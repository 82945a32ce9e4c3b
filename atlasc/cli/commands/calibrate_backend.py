"""``atlasc calibrate-backend``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from atlasc.cli.errors import warn
from atlasc.cli.output import print_table
from atlasc.cli.progress import progress
from atlasc.compilation.declared import option

if TYPE_CHECKING:
    from atlasc.targets.cost_table import CostTable

SHOWN = ("rotate", "rotate_hoisted", "mul", "mul_plain", "rescale", "encrypt", "decrypt")


def calibrate_backend(
    target: str = option("desilo", "Whose primitives: desilo."),
    output: Path | None = option(None, "Write this .json instead of the user's own table.", "-o"),
    quick: bool = option(False, "A minute: fewer parameter sets and levels."),
    bootstrap: bool = option(False, "Measure a bootstrap too: 16 GB, 3 minutes more."),
    note: str = option("", "A remark to keep in the table."),
) -> None:
    """Measure what the primitives of a target cost on this machine.

    Predicted times follow the table from then on. Do it while the machine does nothing else: the
    threads of a backend wait for each other. A table in another place is used with --costs FILE, or
    where the environment variable ATLASC_COSTS names it.
    """
    from atlasc.files import require_file_place, write_text
    from atlasc.targets import find_target
    from atlasc.targets.cost_table import load, own_place, shipped_place
    from atlasc.targets.costs import ratio

    chosen = find_target(target)
    calibrate = chosen.calibration()
    place = own_place(target) if output is None else output
    if output is None:
        place.parent.mkdir(parents=True, exist_ok=True)
    require_file_place(place, ".json")
    with progress("measuring", total=100) as step:
        table = calibrate(step.report, quick=quick, bootstrap=bootstrap, note=note)
    write_text(place, table.text())
    _show(table)
    shipped = load(shipped_place(target))
    times = ratio(table, shipped, chosen.parameters)
    print(f"{times:.3g} times the table that comes with atlasc ({shipped.machine})")
    if table.note:
        warn(table.note)
    print(f"written to {place}")


def _show(table: CostTable) -> None:
    rows = []
    for one in table.sets:
        parameters = one.parameters
        name = f"2^{parameters['log_ring_degree']}, {parameters['special_primes']}"
        name += ", bootstrapping" if parameters.get("bootstrap") else ""
        for level in sorted(one.seconds["rotate"], reverse=True):
            rows.append([name, level, *(one.seconds[p].get(level) for p in SHOWN)])
    print_table(["ring, special primes", "level", *SHOWN], rows, title=f"seconds: {table.machine}")
    if table.bootstrap is not None:
        how = "measured" if table.bootstrap.measured else "scaled"
        print(
            f"bootstrap {table.bootstrap.seconds:.3g} s, its key "
            f"{table.bootstrap.key_seconds:.3g} s ({how})"
        )
