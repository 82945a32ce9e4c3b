"""atlasc beside others: the naive program of an encoder layer, and Orion on a Transformer's MLP.

    python -m benchmarks.peers                        counts and predicted seconds; Orion, minutes
    python -m benchmarks.peers --run                  MiniLM's layer on ciphertexts: an hour, 20 GB
    python -m benchmarks.peers --front build/front    with searched settings too

``make bench-peers`` sets up Orion's own environment first. What was run is kept in build/peers, and
the same command goes on with what is missing; remove the folder to run all again.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from atlasc.api.progress import progress
from atlasc.cli.output import print_table
from atlasc.targets.machine import require_memory
from benchmarks.peers.layer import Layer, bert_base, minilm
from benchmarks.peers.measure import desilo_engines, kept, run_all
from benchmarks.peers.mlp import Mlp, orion, ours
from benchmarks.peers.programs import NaiveProgram, OurProgram, Program

ORION = Path(".venv-orion/bin/python")
ORION_RUNS = (
    (Mlp(128, 512), 14, 6 << 30),
    (Mlp(128, 512), 15, 11 << 30),
    (Mlp(384, 1536), 14, 13 << 30),
)
"""Shapes, log₂ of the ring degree for Orion, bytes that it needs; the compiler chooses its own."""
ROWS = 64


def main() -> None:
    """Command line."""
    arguments = parsed()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    layers = [encoder_layers(arguments, name) for name in arguments.models.split(",") if name]
    for programs in layers:
        show_costs(programs)
    if arguments.run or arguments.run_lazy:
        for programs in layers:
            if programs[0].layer.inputs is not None:
                chosen = [p for p in programs if arguments.run_lazy or not is_lazy(p)]
                run(chosen, arguments.folder / f"minilm-{arguments.tokens}.json")
    if arguments.mlp:
        mlps(arguments)


def parsed() -> argparse.Namespace:
    """Arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--models", default="minilm,bert", help="layers to count")
    parser.add_argument("--tokens", type=int, default=64, help="of a text for MiniLM")
    parser.add_argument("--bert-tokens", type=int, default=128)
    parser.add_argument("--recipe", default="is")
    parser.add_argument("--front", type=Path, help="of MiniLM, from atlasc search -o")
    parser.add_argument("--max-error", type=float, default=1e-2, help="picks from the front")
    parser.add_argument("--run", action="store_true", help="MiniLM's layer on ciphertexts")
    parser.add_argument("--run-lazy", action="store_true", help="the naive one's lazy products too")
    parser.add_argument("--folder", type=Path, default=Path("build/peers"), help="for results")
    parser.add_argument("--no-mlp", dest="mlp", action="store_false", help="leave Orion out")
    parser.add_argument("--orion", type=Path, default=ORION, help="Python that has Orion")
    return parser.parse_args()


def encoder_layers(arguments: argparse.Namespace, name: str) -> list[Program]:
    """The programs of one model's layer."""
    if name == "bert":
        return lowered(bert_base(arguments.bert_tokens, arguments.recipe, progress))
    programs = lowered(minilm(arguments.tokens, arguments.recipe, {}, progress))
    if arguments.front is not None:
        options = {"front": arguments.front, "max_error": arguments.max_error}
        searched = minilm(arguments.tokens, None, options, progress)
        programs.append(OurProgram(searched, f"atlasc, error ≤ {arguments.max_error:g}"))
    return programs


def lowered(layer: Layer) -> list[Program]:
    """The naive programs and ours, with one parameter set."""
    with progress(f"lowering a layer of {layer.name}"):
        program = OurProgram(layer)
        naive = [NaiveProgram(layer, program.parameters, lazy) for lazy in (False, True)]
        return [*naive, program]


def is_lazy(program: Program) -> bool:
    """Whether it is the naive program with lazy products."""
    return isinstance(program, NaiveProgram) and program.lazy


def show_costs(programs: list[Program]) -> None:
    """The table of what was counted."""
    naive = programs[0]
    rows = []
    for program in programs:
        counts = program.counts
        rows.append([
            program.name, program.levels, counts.bootstraps, counts.key_switches,
            counts.plaintext_products, counts.ciphertext_products, len(program.plan.rotations),
            program.memory / 2**30, program.seconds, naive.seconds / program.seconds,
        ])  # fmt: skip
    columns = ["program", "levels", "bootstraps", "key switches", "plaintext products",
               "ciphertext products", "rotation keys", "GiB", "predicted s",
               "times faster"]  # fmt: skip
    print_table(columns, rows, title=f"One encoder layer of {naive.layer.name}, counted")


def run(programs: list[Program], results: Path) -> None:
    """Run all programs on ciphertexts and print what was measured beside what was predicted."""
    for program in programs:
        print(
            f"{program.name}: about {program.seconds / 60:.0f} minutes and "
            f"{program.memory / 2**30:.1f} GiB are predicted"
        )
    require_memory(max(program.memory for program in programs), "the keys of these programs")
    cheapest_first = sorted(programs, key=lambda program: program.seconds)
    done = run_all(cheapest_first, results, desilo_engines(programs))
    naive = done[programs[0].name]["seconds"]
    rows = [
        [program, found["seconds"], found["processor_seconds"], found["predicted"],
         naive / found["seconds"], found["error"], found["largest"], found["peak_memory"] / 2**30]
        for program, found in done.items()
    ]  # fmt: skip
    columns = ["program", "s", "core s", "predicted s", "times faster", "error", "largest value",
               "peak GiB"]  # fmt: skip
    print_table(columns, rows, title="The same, encrypted with desilo")


def mlps(arguments: argparse.Namespace) -> None:
    """The MLP of a Transformer block under Orion and here."""
    if not arguments.orion.exists():
        raise SystemExit(f"{arguments.orion} was not found; make bench-peers installs Orion there")
    results = arguments.folder / "mlp.json"
    rows = []
    for mlp, log_ring_degree, memory in ORION_RUNS:
        name = f"Orion {mlp.name} {log_ring_degree}"
        start = partial(orion, mlp, log_ring_degree, memory, arguments.orion, arguments.folder)
        rows.append(mlp_row(mlp, "Orion", kept(results, name, start)))
    for mlp in dict.fromkeys(mlp for mlp, _, _ in ORION_RUNS):
        for count in (1, ROWS):
            found = kept(results, f"atlasc {mlp.name} {count}", partial(ours, mlp, count))
            rows.append(mlp_row(mlp, "atlasc", found))
    columns = ["MLP", "program", "log N", "log QP", "rows", "levels", "bootstraps", "rotations",
               "plaintext products", "set up s", "s", "core s", "s a row", "predicted s", "error",
               "error to GELU", "peak GiB"]  # fmt: skip
    print_table(columns, rows, title="down(gelu(up(x))), degree 31, no bootstrap, encrypted")


def mlp_row(mlp: Mlp, program: str, found: dict[str, Any]) -> list[Any]:
    """A line of the table."""
    return [
        mlp.name, program, found["log_ring_degree"], round(found["log_qp"]), found["rows"],
        found["levels"], found["bootstraps"], found["rotations"], found["plaintext_products"],
        found["compile_seconds"], found["seconds"], found["processor_seconds"],
        found["seconds"] / found["rows"],
        found.get("predicted"), found["error"], found["error_to_gelu"],
        found["peak_memory"] / 2**30,
    ]  # fmt: skip


if __name__ == "__main__":
    main()
