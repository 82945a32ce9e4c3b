"""What was measured, beside what is predicted."""

from __future__ import annotations

import json
from typing import Any

from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.cli.output import print_table, say
from atlasc.compilation.single_stages import inspect_bundle
from atlasc.program.key_plan import key_plan
from atlasc.run.timing import Timing
from atlasc.targets import find_target
from atlasc.targets.ckks.engine import generation_bytes, key_bytes
from atlasc.targets.costs import fitted_costs
from atlasc.targets.cpu.parameters import CpuParameters
from atlasc.targets.parameters import require_set
from benchmarks.bert_base.steps import STEPS, Options

GIB, MIB = 2.0**30, 2.0**20
WITHIN = 0.15
"""How far the measured seconds of the whole may be from the predicted ones, as a share of these."""


def figures(options: Options) -> dict[str, Any]:
    """All figures of a finished run, as JSON values."""
    bundle = load_bundle(options.place("program"))
    steps = {name: json.loads(options.figures(name).read_text("utf-8")) for name in STEPS}
    spent = steps["execution"]
    whole = timed(bundle, spent["op_seconds"])
    cores = {row["kind"]: row["measured"] for row in timed(bundle, spent["op_cores"])["per_kind"]}
    for row in whole["per_kind"]:
        row["cores"] = cores[row["kind"]]
    known = [(seconds, share) for seconds, share in spent["others"] if share is not None]
    elapsed = sum(seconds for seconds, _ in known)
    steps["execution"]["seconds"] = whole["measured"]
    return {
        "steps": {
            name: {fact: found[fact] for fact in ("seconds", "memory")}
            for name, found in steps.items()
        },
        "predicted": predicted(bundle),
        "execution": whole | {"cores": sum(cores.values())},
        "processes": len(spent["others"]),
        "other_work": sum(s * share for s, share in known) / elapsed if elapsed else None,
        "bytes": {name: steps[name]["bytes"] for name in ("keys", "query")},
        "errors": steps["answer"]["errors"],
        "refused": steps["answer"]["refused"],
    }


def timed(bundle: Bundle, seconds: list[float]) -> dict[str, Any]:
    """Measured beside predicted seconds, by kind of op; see ``Timing.summary``."""
    program, parameters = bundle.program, bundle.parameters
    return Timing.of(program, parameters, bundle.target, 1, seconds).summary()


def predicted(bundle: Bundle) -> dict[str, Any]:
    """Predictions by the cost table in use: seconds, and bytes of memory and of files."""
    summary, plan = inspect_bundle(bundle).summary, key_plan(bundle.program)
    parameters = require_set(bundle.parameters, CpuParameters)
    costs = fitted_costs(parameters)
    assert costs is not None  # a table of cpu comes with atlasc
    return {
        "machine": summary["machine"],
        "threads": costs.table.machine.threads,
        "warning": find_target(bundle.target).cost_warning(),
        "seconds": {"keys": summary["key_seconds"], "execution": summary["seconds"]},
        "memory": {
            "keys": generation_bytes(parameters, plan),
            "execution": summary["memory_bytes"],
        },
        "bytes": {
            "keys": key_bytes(parameters, plan) // 2,
            "query": sum(
                one.ciphertexts * parameters.ciphertext_bytes(one.level)
                for one in bundle.interface.inputs
            ),
        },
        "bootstraps": summary["bootstraps"],
    }


def show(found: dict[str, Any]) -> None:
    """Print the figures as tables."""
    guess, whole = found["predicted"], found["execution"]
    print_table(
        ("step", "seconds", "predicted s", "peak GiB", "predicted GiB"),
        [
            (name, one["seconds"], guess["seconds"].get(name), one["memory"] / GIB,
             in_units(guess["memory"].get(name), GIB))
            for name, one in found["steps"].items()
        ],
    )  # fmt: skip
    print_table(
        ("op", "ops", "predicted s", "measured s", "predicted / measured", "core s"),
        [
            [row[key] for key in ("kind", "ops", "predicted", "measured", "ratio", "cores")]
            for row in whole["per_kind"]
        ],
    )
    print_table(
        ("file", "MiB", "predicted MiB"),
        [(name, size / MIB, guess["bytes"][name] / MIB) for name, size in found["bytes"].items()],
    )
    print_table(
        ("error to", "greatest", "mean", "1 − cosine", "greatest output"),
        [(name, *one.values()) for name, one in found["errors"].items()],
    )
    if found["refused"]:
        say("the answer cannot be right: numbers of it are too large")
    say(sentence(found))


def sentence(found: dict[str, Any]) -> str:
    """The whole execution in a few lines."""
    guess, whole = found["predicted"], found["execution"]
    apart = whole["measured"] / whole["predicted"] - 1
    held = "within" if abs(apart) <= WITHIN else "not within"
    threads = guess["threads"]
    lines = [
        f"the whole: predicted {whole['predicted']:.4g} s on {guess['machine']}, measured "
        f"{whole['measured']:.4g} s, which is {apart:+.0%}, {held} {WITHIN:.0%}",
        f"{whole['cores']:.4g} core s; in the predicted time {threads} threads have "
        f"{threads * whole['predicted']:.4g}",
    ]
    if guess["warning"]:
        lines.append(guess["warning"])
    if found["processes"] > 1:
        lines.append(f"it took {found['processes']} processes, each of which encodes its diagonals")
    if found["other_work"] is not None:
        lines.append(f"other work took {found['other_work']:.0%} of the machine meanwhile")
    return "\n".join(lines)


def in_units(size: float | None, unit: float) -> float | None:
    """Bytes in another unit."""
    return None if size is None else size / unit
