"""``atlasc inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atlasc.cli import options
from atlasc.cli.errors import warn
from atlasc.cli.output import JsonFlag, print_json, print_table
from atlasc.cli.progress import progress

if TYPE_CHECKING:
    from atlasc.inspection import Inspection

COLUMNS = (
    ("layer", "layer"),
    ("depth", "depth"),
    ("levels", "levels"),
    ("levels_total", "all levels"),
    ("bootstraps", "bootstraps"),
    ("key_switches", "key switches"),
    ("plaintext_products", "× plaintext"),
    ("ciphertext_products", "× ciphertext"),
    ("rotation_keys", "rotation keys"),
)


def inspect(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH",
            help="Bundle, .air file, model or config directory.",
            show_default=False,
        ),
    ],
    recipe: options.Recipe = "is",
    sequence_length: options.SequenceLength = None,
    batch: options.Batch = 1,
    graph: Annotated[
        Path | None,
        typer.Option("--graph", help="Write a drawing of the program (.svg).", show_default=False),
    ] = None,
    ops: Annotated[
        bool, typer.Option("--ops", help="List every module of the model, not only its layers.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print what a program or a model costs: levels, bootstraps, keys, memory.

    A model or a bare config is lowered for it under a recipe with nominal ranges.
    """
    from atlasc.files import require_file_place

    if graph is not None:
        require_file_place(graph, ".svg")
    from atlasc.inspection import inspect as look
    from atlasc.passes.approximation.recipes import recipe as find_recipe
    from atlasc.summary import module_costs

    find_recipe(recipe)
    found = look(path, recipe=recipe, sequence_length=sequence_length, batch=batch, steps=progress)
    if graph is not None:
        from atlasc.drawing import draw_program
        from atlasc.files import write_text

        write_text(graph, draw_program(found.program, found.costs))
    modules = module_costs(found.costs, found.parameters) if ops else []
    if as_json:
        extra = {"per_module": modules} if ops else {}
        print_json({**found.summary, "nominal_ranges": found.nominal, **extra})
        return
    _show(found, modules)
    if found.nominal:
        warn("the ranges are nominal", "  why: costs need no data; compile measures real ranges")


def _show(found: Inspection, modules: list[dict[str, Any]]) -> None:
    summary = found.summary
    columns = [(key, title) for key, title in COLUMNS if key != "depth" or summary["depth"]]
    rows = [
        ["outside" if row["layer"] is None else row["layer"], *(row[key] for key, _ in columns[1:])]
        for row in summary["per_layer"]
    ]
    rows = [[str(row[0]), *row[1:]] for row in _folded(rows)]
    print_table([title for _, title in columns], rows)
    if modules:
        keys = ("bootstraps", "key_switches", "plaintext_products", "ciphertext_products")
        print_table(
            ("module", "ops", *(title for key, title in COLUMNS if key in keys)),
            [
                (row["location"], ", ".join(row["parts"]), *(row[key] for key in keys))
                for row in modules
            ],
        )
    for line in summary_lines(summary):
        print(line)


def _folded(rows: list[list[Any]]) -> list[list[Any]]:
    """Neighbouring layers with equal figures become one row, ``1–10``."""
    folded: list[list[Any]] = []
    first: list[Any] = []
    for row in rows:
        if folded and row[1:] == folded[-1][1:] and "outside" not in (row[0], first[0]):
            folded[-1] = [f"{first[0]}–{row[0]}, each", *row[1:]]
        else:
            folded.append(list(row))
            first = row
    return folded


def summary_lines(summary: dict[str, Any]) -> list[str]:
    """A program's costs as a few lines of text."""
    depth = "" if summary["depth"] is None else f"depth {summary['depth']}, "
    outside = f" (+{summary['levels_outside']} outside)" if summary["levels_outside"] else ""
    lines = [
        f"{depth}levels of nonlinear ops {summary['levels']}{outside}, "
        f"all levels {summary['levels_total']}",
        f"bootstraps {summary['bootstraps']}, key switches {summary['key_switches']}, products "
        f"with plaintexts {summary['plaintext_products']}, of ciphertexts "
        f"{summary['ciphertext_products']}",
    ]
    if summary["memory_bytes"] is not None:
        lines.append(
            f"{summary['rotation_keys']} rotation keys, about "
            f"{summary['memory_bytes'] / 2**30:.1f} GiB of memory, "
            f"{summary['security_bits']} bits of security"
        )
    if summary["seconds"] is not None:
        lines.append(f"about {_duration(summary['seconds'])} on two cores (predicted)")
    return lines


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} seconds"
