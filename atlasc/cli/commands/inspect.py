"""``atlasc depth``, ``inspect`` and ``calibrate-backend``: what programs and primitives cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atlasc.api.progress import progress
from atlasc.cli.output import (
    bar,
    is_silenced,
    print_json,
    print_product,
    print_table,
    say,
    warn,
)
from atlasc.cli.parameters import FILE, JSON, Model
from atlasc.cli.results import list_outliers, print_summary, show_timing, warn_of_costs
from atlasc.compilation.declared import option, switch
from atlasc.compilation.options import BatchOptions, ModelOptions
from atlasc.compilation.stage_options import InspectOptions
from atlasc.targets import DEFAULT

if TYPE_CHECKING:
    from atlasc.compilation.single_stages import Inspection
    from atlasc.passes.approximation.approximate import Depth
    from atlasc.targets.cost_table import CostTable

COUNTS = {
    "bootstraps": "bootstraps",
    "key_switches": "key switches",
    "plaintext_products": "× plaintext",
    "ciphertext_products": "× ciphertext",
}
COLUMNS = {
    "depth": "depth",
    "levels": "levels of nonlinear ops",
    "levels_total": "all levels",
    **COUNTS,
    "rotation_keys": "rotation keys",
    "memory_bytes": "GiB",
    "seconds": "seconds",
}
"""Keys of the figures to titles of columns."""
PRIMITIVES = ("rotate", "rotate_hoisted", "mul", "mul_plain", "rescale", "encrypt", "decrypt")
"""Primitives whose seconds are shown."""


def depth(
    model: Model,
    options: ModelOptions,
    recipe: str = option("is, nexus, thor, moai, arion or polaris.", default="is"),
    as_json: bool = JSON,
) -> None:
    """Print the multiplicative depth of a model under a recipe.

    The depth is that of the Transformer blocks, as papers count it. Ops outside the blocks (a final
    norm, a pooler, a head) are listed apart. A config without weights is enough.
    """
    from atlasc.polynomials.recipes import recipe as find_recipe

    find_recipe(recipe)
    from atlasc.compilation.single_stages import bare_module
    from atlasc.passes.approximation.approximate import apply_recipe, depth_of

    bare = BatchOptions(**vars(options))
    found = depth_of(apply_recipe(bare_module(model, bare, progress), recipe))
    total, outside = found.blocks, found.outside
    if not found.per_layer:
        total, outside = outside, 0
    if as_json:
        layers = [{"layer": layer, "depth": count} for layer, count in found.per_layer.items()]
        keys = ("op", "location", "layer", "depth")
        print_json(
            {
                "depth": total,
                "depth_outside": outside,
                "levels_by_formula": found.levels,
                "recipe": recipe,
                "per_layer": layers,
                "ops": [{key: getattr(op, key) for key in keys} for op in found.ops],
            }
        )
    elif is_silenced():
        print_product(str(total))
    else:
        _show_depth(found, recipe, total, outside)


def _show_depth(found: Depth, recipe: str, total: int, outside: int) -> None:
    kinds = Counter((op.op, op.depth) for op in found.ops if op.layer is not None)
    rows = [(op, count, each, count * each) for (op, each), count in kinds.items()]
    if rows:
        print_table(("op", "in blocks", "depth of one", "depth"), rows)
    apart = [(op.op, op.location, op.depth) for op in found.ops if op.layer is None]
    if apart:
        print_table(("outside the blocks", "module", "depth"), apart)
    blocks = f"{len(found.per_layer)} blocks" if found.per_layer else "no blocks"
    more = f", and {outside} outside the blocks" if outside else ""
    print(f"depth {total} under the recipe {recipe} ({blocks}){more}")


def inspect(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH",
            help="Bundle, .air file, model or config directory.",
        ),
    ],
    options: InspectOptions,
    graph: Path | None = option("Write a drawing of the program (.svg)."),
    primitives: Path | None = option(
        "Write the program in primitives (.txt): the calls of every op to an engine.",
    ),
    upload: float = option("Speed of a client's upload in Mbit/s.", default=20.0),
    ops: bool = switch("List every module of the model, not only its layers."),
    timing: Path | None = option(
        "Measured times of a run of this bundle (.timing.json; a C++ server writes it with "
        "--timing), to show beside the predicted ones.",
    ),
    as_json: bool = JSON,
) -> None:
    """Print what a program or a model costs: levels, bootstraps, keys, memory.

    If PATH is a model or a bare config, it is first lowered under a recipe with nominal ranges.
    """
    from atlasc.bundle.folder import load_bundle
    from atlasc.bundle.split import held_role
    from atlasc.compilation.single_stages import inspect as look
    from atlasc.files import require_file_place, write_text
    from atlasc.ir.errors import AtlasError
    from atlasc.program.execute import Functions
    from atlasc.program.function import EngineParameters
    from atlasc.report.summary import module_costs
    from atlasc.run.timing import Timing

    if graph is not None:
        require_file_place(graph, ".svg")
    if primitives is not None:
        require_file_place(primitives, ".txt")
    measured = None
    if timing is not None:
        whole = load_bundle(Path(path), held_role(Path(path)))
        measured = Timing.load(timing, whole, options.costs)
    if not 0 < upload < float("inf"):
        raise AtlasError("--upload is no speed", remedy="give Mbit/s, more than 0")
    found = look(path, options, progress)
    sent = None if found.sent is None else replace(found.sent, upload=upload)
    found.summary["sent"] = None if sent is None else sent.to_dict()
    if found.summary["seconds"] is not None:
        warn_of_costs(found.target, options.costs)
    if graph is not None:
        from atlasc.report.drawing import draw_program

        write_text(graph, draw_program(found.program, found.costs, found.summary, found.parameters))
    if primitives is not None:
        write_text(
            primitives, Functions(found.program, EngineParameters.of(found.parameters)).text()
        )
    modules = module_costs(found.costs, found.parameters) if ops else []
    if as_json:
        extra: dict[str, Any] = {"per_module": modules} if ops else {}
        extra["outliers"] = [asdict(one) for one in found.outliers]
        if measured is not None:
            extra["timing"] = {"target": measured.target, **measured.summary()}
        print_json({**found.summary, "nominal_ranges": found.nominal, **extra})
        return
    _show(found, modules)
    if sent is not None:
        say(f"what a client sends and gets: {sent}")
    list_outliers(found.outliers)
    if measured is not None:
        show_timing(measured)
    if found.nominal:
        warn("the ranges are nominal", "  why: costs need no data; compile measures real ranges")


def _show(found: Inspection, modules: list[dict[str, Any]]) -> None:
    summary = found.summary
    columns = {key: title for key, title in COLUMNS.items() if key != "depth" or summary["depth"]}
    print_table(("layer", *columns.values()), _layers(summary["per_layer"], list(columns)))
    moved = ["GB moved"] if summary["device_bytes"] is not None else []  # on a GPU
    print_table(
        ("op", "ops", *COUNTS.values(), *moved, "seconds", "%", ""),
        [
            (
                row["kind"], row["ops"], *(row[key] for key in COUNTS),
                *(round(row["device_bytes"] / 1e9, 3) for _ in moved), row["seconds"],
                None if row["share"] is None else round(100 * row["share"], 1), bar(row["share"]),
            )
            for row in summary["per_kind"]
        ],
    )  # fmt: skip
    if modules:
        print_table(
            ("module", "ops", *COUNTS.values()),
            [
                (row["location"], ", ".join(row["parts"]), *(row[key] for key in COUNTS))
                for row in modules
            ],
        )
    print_summary(summary)


def _layers(layers: list[dict[str, Any]], keys: list[str]) -> list[list[Any]]:
    """A row for each layer. Neighbours with equal figures share a row: ``1–10, each``."""

    def figures(layer: dict[str, Any]) -> tuple[Any, ...]:
        # Rounded, because the figures of equal layers differ in their last digits.
        memory, seconds = layer["memory_bytes"], layer["seconds"]
        rounded = {"memory_bytes": memory and float(f"{memory / 2**30:.3g}")}
        rounded |= {"seconds": seconds and float(f"{seconds:.4g}")}
        return layer["layer"] is None, *({**layer, **rounded}[key] for key in keys)

    rows: list[list[Any]] = []
    for (outside, *values), group in groupby(layers, figures):
        names = [layer["layer"] for layer in group]
        name = str(names[0]) if len(names) == 1 else f"{names[0]}–{names[-1]}, each"
        rows.append(["outside" if outside else name, *values])
    return rows


def calibrate_backend(
    target: str = option("Target to measure: cpu or desilo.", default=DEFAULT),
    output: Path | None = option("Write this .json instead of the user's own table.", "-o"),
    quick: bool = switch("A minute: fewer parameter sets and levels."),
    bootstrap: bool = switch("Measure a bootstrap too: 6 GB; for desilo 16 GB and minutes."),
    note: str = option("A remark to keep in the table.", default=""),
    as_json: bool = JSON,
) -> None:
    """Measure the seconds of a target's primitives on this machine.

    From then on, predicted times use the measured table. Measure while the machine does nothing
    else: the threads of a backend wait for each other. To use another table, give --costs
    FILE or set the environment variable ATLASC_COSTS.
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
    shipped = load(shipped_place(target))
    times = ratio(table, shipped, chosen.parameters)
    if as_json:
        print_json({"file": str(place), "times_the_shipped_table": times})
        return
    _show_table(table)
    print(f"{times:.3g} times the table that comes with atlasc ({shipped.machine})")
    if table.note:
        warn(table.note)
    print(f"written to {place}")


def _show_table(table: CostTable) -> None:
    rows = []
    for one in table.sets:
        parameters = one.parameters
        name = f"2^{parameters['log_ring_degree']}, {parameters['special_primes']}"
        name += ", bootstrapping" if parameters.get("bootstrap") else ""
        for level in sorted(one.seconds["rotate"], reverse=True):
            rows.append([name, level, *(one.seconds[p].get(level) for p in PRIMITIVES)])
    print_table(
        ["ring, special primes", "level", *PRIMITIVES], rows, title=f"seconds: {table.machine}"
    )
    if table.bootstrap is not None:
        how = "measured" if table.bootstrap.measured else "scaled"
        print(
            f"bootstrap {table.bootstrap.seconds:.3g} s, its key "
            f"{table.bootstrap.key_seconds:.3g} s ({how})"
        )


def fronts(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FRONT...", help="Folders that search wrote.")
    ],
    output: Path = FILE,
    cost: str = option(
        "Cost to compare: depth, levels or latency.",
        default="",
        unset="what all searches minimised, else depth",
    ),
    as_json: bool = JSON,
) -> None:
    """Show the fronts of several searches in one chart, on a page.

    Its table has the least cost of each search within three errors.
    """
    from atlasc.compilation.fronts import load_front
    from atlasc.files import require_file_place, write_text
    from atlasc.ir.errors import AtlasError
    from atlasc.report.charts import SERIES
    from atlasc.report.fronts_page import LIMITS, fronts_html, least_cost
    from atlasc.search.points import COSTS, Cost

    require_file_place(output, ".html", new=True)
    if len(folders) > len(SERIES):
        raise AtlasError(f"a chart shows {len(SERIES)} fronts", remedy="give fewer folders")
    if cost and cost not in COSTS:
        raise AtlasError(f"--cost cannot be {cost!r}", remedy=f"use one of {', '.join(COSTS)}")
    loaded = [(str(folder), load_front(folder).front) for folder in folders]
    minimised = {front.cost for _, front in loaded}
    usual: Cost = minimised.pop() if len(minimised) == 1 else "depth"
    chosen = next((one for one in COSTS if one == cost), usual)
    for name, front in loaded:
        if chosen == "latency" and any(point.seconds is None for point in front.points):
            raise AtlasError(
                f"the front {name} has points without predicted seconds",
                remedy="compare depth or levels, or search again",
            )
    write_text(output, fronts_html(loaded, chosen))
    if as_json:
        least = {name: [least_cost(front, chosen, e) for e in LIMITS] for name, front in loaded}
        print_json({"cost": chosen, "errors": list(LIMITS), "least": least})
    else:
        say(f"{len(loaded)} fronts: {output}")
