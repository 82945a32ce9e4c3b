"""``atlasc inspect``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atlasc.cli import options
from atlasc.cli.errors import warn
from atlasc.cli.output import JsonFlag, bar, print_json, print_table
from atlasc.cli.progress import progress
from atlasc.cli.timing_table import show_timing

if TYPE_CHECKING:
    from atlasc.report.inspection import Inspection
    from atlasc.run.timing import Timing

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
    ("memory_bytes", "GiB"),
    ("seconds", "seconds"),
)
KIND_COLUMNS = (
    ("bootstraps", "bootstraps"),
    ("key_switches", "key switches"),
    ("plaintext_products", "× plaintext"),
    ("ciphertext_products", "× ciphertext"),
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
    timing: Annotated[
        Path | None,
        typer.Option(
            "--timing",
            help="Times of a run of this bundle (.timing.json; of a C++ server --timing), to show "
            "beside the predicted ones.",
            show_default=False,
        ),
    ] = None,
    costs: options.Costs = None,
    target: options.ForTarget = "desilo",
    device_memory: options.DeviceMemory = None,
    as_json: JsonFlag = False,
) -> None:
    """Print what a program or a model costs: levels, bootstraps, keys, memory.

    A model or a bare config is lowered for it under a recipe with nominal ranges.
    """
    from atlasc.files import require_file_place

    if graph is not None:
        require_file_place(graph, ".svg")
    from atlasc.compilation.key_planning import check_device_memory
    from atlasc.figures.summary import module_costs
    from atlasc.passes.approximation.recipes import recipe as find_recipe
    from atlasc.report.inspection import inspect as look
    from atlasc.targets import find_target

    find_recipe(recipe)
    check_device_memory(device_memory, None, find_target(target))
    measured = None if timing is None else _measured(path, timing)
    found = look(
        path, recipe=recipe, sequence_length=sequence_length, batch=batch, steps=progress,
        target=target, device_memory=device_memory,
    )  # fmt: skip
    if found.summary["seconds"] is not None:
        options.warn_of_costs(target)
    if graph is not None:
        from atlasc.files import write_text
        from atlasc.report.drawing import draw_program

        primitive_costs = None if found.parameters is None else found.parameters.measured_costs()
        write_text(graph, draw_program(found.program, found.costs, found.summary, primitive_costs))
    modules = module_costs(found.costs, found.parameters) if ops else []
    if as_json:
        extra: dict[str, Any] = {"per_module": modules} if ops else {}
        if measured is not None:
            extra["timing"] = measured.summary()
        print_json({**found.summary, "nominal_ranges": found.nominal, **extra})
        return
    _show(found, modules)
    if measured is not None:
        show_timing(measured)
    if found.nominal:
        warn("the ranges are nominal", "  why: costs need no data; compile measures real ranges")


def _measured(path: str, timing: Path) -> Timing:
    from atlasc.bundle.folder import load_bundle
    from atlasc.run.timing import Timing

    return Timing.load(timing, load_bundle(Path(path)))


def _show(found: Inspection, modules: list[dict[str, Any]]) -> None:
    summary = found.summary
    columns = [(key, title) for key, title in COLUMNS if key != "depth" or summary["depth"]]
    rows = [
        ["outside" if row["layer"] is None else row["layer"], *_figures(row, columns[1:])]
        for row in summary["per_layer"]
    ]
    rows = [[str(row[0]), *row[1:]] for row in _folded(rows)]
    print_table([title for _, title in columns], rows)
    _show_kinds(summary["per_kind"])
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


def _figures(row: dict[str, Any], columns: Sequence[tuple[str, str]]) -> list[Any]:
    """Values of a row; equal layers have equal ones, whatever the last digits."""
    values = dict(row)
    if row["memory_bytes"] is not None:
        values["memory_bytes"] = float(f"{row['memory_bytes'] / 2**30:.3g}")
    if row["seconds"] is not None:
        values["seconds"] = float(f"{row['seconds']:.4g}")
    return [values[key] for key, _ in columns]


def _show_kinds(kinds: list[dict[str, Any]]) -> None:
    """Where the time goes."""
    heads = ("op", "ops", *(title for _, title in KIND_COLUMNS), "seconds", "%", "")
    print_table(
        heads,
        [
            (
                row["kind"], row["ops"], *(row[key] for key, _ in KIND_COLUMNS), row["seconds"],
                None if row["share"] is None else round(100 * row["share"], 1), bar(row["share"]),
            )
            for row in kinds
        ],
    )  # fmt: skip


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
    if summary["bootstrap_error"]:
        lines.append(
            f"errors of bootstraps change the outputs by {summary['bootstrap_error']:.1e} of their "
            "size (root mean squares)"
        )
    if summary["safe_digits"] is not None:
        lines.append(
            f"digits of one answer that may be passed on, at 30 bits: {summary['safe_digits']}"
        )
    lines.append(_keys_line(summary))
    if summary["memory"] is not None:
        lines.append(_memory_line(summary["memory"]))
        lines.append(_security_line(summary["security_bits"], summary["moduli"]))
    if summary["seconds"] is not None:
        lines.append(
            f"predicted on {summary['machine']}: {_duration(summary['seconds'])}, after "
            f"{_duration(summary['key_seconds'])} for the keys"
        )
    elif summary["memory"] is not None:
        lines.append(
            "no cost table for phantom: seconds are not predicted (benchmarks on the GPU make one, "
            "for --costs)"
        )
    return lines


def _security_line(bits: int, moduli: dict[str, Any]) -> str:
    """What the parameters are, and how large what they make is at the program's top level."""
    return (
        f"{bits} bits of security: N = 2^{moduli['ring_degree'].bit_length() - 1}, log2(QP) "
        f"{moduli['log_qp']:.0f}, {moduli['special_primes']} special primes, {moduli['digits']} "
        f"digits (dnum); a key of {moduli['key_bytes'] / 2**20:.0f} MiB, a ciphertext of "
        f"{moduli['ciphertext_bytes'] / 2**20:.1f} MiB"
    )


def _keys_line(summary: dict[str, Any]) -> str:
    others = [
        f"{how} {summary[key]}"
        for key, how in (
            ("composed_rotations", "amounts composed of others"),
            ("bootstrap_rotations", "amounts turned with the bootstrap key"),
        )
        if summary[key]
    ]
    return ", ".join([f"rotation keys {summary['rotation_keys']}", *others])


def _memory_line(parts: dict[str, int]) -> str:
    """``about 19.2 GiB of memory: rotation keys 4.0, ciphertexts 1.1, …``, the largest first."""
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    listed = ", ".join(
        f"{name.replace('_', ' ')} {size / 2**30:.2f}" for name, size in ordered if size
    )
    return f"about {sum(parts.values()) / 2**30:.1f} GiB of memory: {listed}"


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} seconds"
