"""What README of a submission says: the program's figures, its security, and what was measured."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

import atlasc
from atlasc.bundle.sent import sent_of, size_text
from atlasc.targets.machine import this_machine
from atlasc.targets.security import Secret, max_log_qp
from benchmarks.he_bert.stages import INSTANCES

TEMPLATE = Path(__file__).with_name("submission.md.jinja")
BESIDE = "ADPS16"
"""The archive's cost model of the core SVP, which decides nothing."""
COSTS = (
    "depth", "levels_total", "bootstraps", "key_switches", "rotation_keys", "slots", "seconds",
    "key_seconds", "memory_bytes", "machine",
)  # fmt: skip


def facts_of(
    program: atlasc.Program, model: str, quality: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Everything that README says of a program, as JSON values.

    Args:
        program: compiled, whole.
        model: name of the model, as whoever compiles it again gives it.
        quality: see :func:`quality_of`.
    """
    bundle, manifest = program.bundle, program.bundle.manifest
    parameters, settings, costs = bundle.parameters, manifest.settings, dict(manifest.costs)
    moduli, sent = parameters.moduli, sent_of(bundle)
    client = (op.name.removeprefix("nn.") for op in bundle.client.embed.ops)
    return {
        "atlasc": manifest.atlasc,
        "engine": program.target,
        "model": model,
        "tokens": manifest.sequence_length,
        "batch": manifest.batch,
        "recipe": settings.get("recipe"),
        "error": settings.get("error"),
        "agreement": settings.get("agreement"),
        "calibration_inputs": manifest.data.get("inputs"),
        "client": [name for name in dict.fromkeys(client) if name not in ("input", "output")],
        "head": bundle.client.head is not None,
        "public": bundle.client.public,
        "costs": {name: costs.get(name) for name in COSTS},
        "parameters": {
            "ring_degree": parameters.ring_degree,
            "primes": moduli.primes,
            "special": moduli.special,
            "scale": moduli.scale,
            "levels": parameters.max_level,
            "bootstrap": bool(parameters.bootstrap),
            "limit": max_log_qp(parameters.ring_degree),
        },
        "estimator": manifest.security["estimator"],
        "secrets": [secret_of(secret) for secret in parameters.secrets],
        "sent": {} if sent is None else asdict(sent.bytes),
        "quality": quality,
    }


def secret_of(secret: Secret) -> dict[str, Any]:
    """A secret with its archived estimates: bits by attack, under the cost models that decide, and
    the least under the core SVP, which decides nothing; None where the archive has none.
    """
    found = secret.estimate
    every = dict(found.get("all", {}))
    core = every.pop(BESIDE, None)
    return {
        "published": secret.published,
        "log_q": secret.log_q,
        "weight": secret.weight,
        "bits": found.get("bits"),
        "estimated_log_q": found.get("log_q"),
        "attacks": [
            {"attack": attack, "cost_model": model, "bits": bits}
            for model, attacks in every.items()
            for attack, bits in attacks.items()
        ],
        "core_svp": None if core is None else min(core.values()),
    }


def quality_of(program: atlasc.Program, labelled: str) -> dict[str, Any]:
    """Accuracy on labelled pairs in the clear, by stage of the evaluation.

    Raises:
        AtlasError: the pairs are refused, or have no labels.
    """
    found = program.evaluate(labelled)
    return {
        "inputs": found.inputs,
        "stages": [
            {"stage": one.stage, "accuracy": one.accuracy, "agreement": one.agreement}
            for one in found.figures
        ],
    }


def measured_in(folder: Path) -> dict[str, Any]:
    """The harness's records in its folder ``measurements``, with this machine.

    Raises:
        AtlasError: there is no record, or one is damaged.
    """
    instances = []
    for name in INSTANCES:
        runs = [record_in(path) for path in sorted((folder / name).glob("results-*.json"))]
        if runs:
            instances.append({"name": name, "runs": len(runs)} | summary_of(runs))
    if not instances:
        raise atlasc.AtlasError(
            f"{folder} has no records of the harness",
            why=f"none of its folders {', '.join(INSTANCES)} has a results-1.json",
            remedy="run the harness first: python3 harness/run_submission.py 0 --num_runs 3",
        )
    machine = this_machine()
    return {"machine": f"{machine}, {machine.memory_gib:.0f} GiB", "instances": instances}


def record_in(path: Path) -> dict[str, Any]:
    """A record of the harness.

    Raises:
        AtlasError: it has not what the harness writes.
    """
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        seconds = {
            part: {step: float(text.removesuffix("s")) for step, text in record[part].items()}
            for part in ("Timing", "Server Reported")
        }
        return {
            "seconds": seconds["Timing"],
            "server": seconds["Server Reported"],
            "sizes": dict(record["Bandwidth"]),
            "quality": {
                kind: f"{one['correct_predictions']} of {one['total_samples']}"
                for kind, one in record.get("Quality", {}).items()
            },
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise atlasc.AtlasError(f"{path} is no record of the harness", why=repr(error)) from error


def summary_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean seconds and the sizes of several runs, and how many answers of each were right."""

    def mean(part: str) -> dict[str, float]:
        return {step: sum(run[part][step] for run in runs) / len(runs) for step in runs[0][part]}

    return {
        "seconds": mean("seconds"),
        "server": mean("server"),
        "sizes": runs[-1]["sizes"],
        "quality": {kind: [run["quality"][kind] for run in runs] for kind in runs[0]["quality"]},
    }


def readme(facts: dict[str, Any], measured: dict[str, Any] | None = None) -> str:
    """README of a submission.

    Args:
        facts: see :func:`facts_of`, with the name of the archive of sources.
        measured: see :func:`measured_in`; None: nothing was measured yet.
    """
    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    environment.filters["size"] = size_text
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        **facts, measured=measured
    )
