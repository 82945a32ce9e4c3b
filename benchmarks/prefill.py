"""Predicted costs of a decoder's window, of its prefill and of a step after it.

``python -m benchmarks.prefill CONFIG --sequence-length 128``; a config without weights is enough.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from atlasc.compilation.lowering import key_model
from atlasc.compilation.single_stages import bare_module
from atlasc.compilation.stage_options import InspectOptions
from atlasc.ir.module import Module
from atlasc.latency.model import LatencyTarget
from atlasc.passes.approximation.approximate import apply_recipe, nominal_calibration
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.generation.decode_step import DecodeStep
from atlasc.passes.generation.prefill import Prefill, for_step
from atlasc.passes.lowering.rotation_keys import RotationKeys
from atlasc.passes.pipeline import lower_poly, to_poly
from atlasc.program.costs import program_costs
from atlasc.progress import silent
from atlasc.report.summary import costs_summary
from atlasc.targets import find_target
from atlasc.targets.parameters import ParameterSet

SHOWN = ("seconds", "bootstraps", "key_switches", "plaintext_products", "rotation_keys")


def lowered(poly: Module, target: str) -> tuple[Module, ParameterSet]:
    """The packed program with all rotation keys, and its parameters."""
    latency = LatencyTarget.of(find_target(target))
    _, program, parameters = lower_poly(poly, latency.choose, None, latency.costs)
    assert isinstance(parameters, ParameterSet)
    return run_passes(program, [RotationKeys(None, key_model(parameters))]), parameters


def main() -> None:
    """Print one line a program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("--sequence-length", type=int, default=64)
    parser.add_argument("--target", default="cpu")
    given = parser.parse_args()
    bare = bare_module(given.config, InspectOptions(sequence_length=given.sequence_length), silent)
    _, window = to_poly(apply_recipe(bare, "is", nominal_calibration(bare)))
    step = lowered(run_passes(window, [DecodeStep()]), given.target)
    prefill = lowered(for_step(run_passes(window, [Prefill()]), step[0]), given.target)
    programs = {"window": lowered(window, given.target), "prefill": prefill, "step": step}
    for name, (program, parameters) in programs.items():
        summary = costs_summary(program_costs(program), parameters, None)
        figures = ", ".join(f"{key.replace('_', ' ')} {summary[key]:,.0f}" for key in SHOWN)
        memory = sum(summary["memory"].values()) / 2**30
        same = "" if parameters == step[1] else ", other parameters than the step"
        print(f"{name}: {figures}, memory {memory:.1f} GiB{same}")


if __name__ == "__main__":
    main()
