"""What a layer of BERT-base asks of a GPU, counted by a device that computes nothing.

    pytest -s tests/runtime_cuda/ckks/test_launches.py

prints the table of docs/backend-phantom.md.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cpp_build import OPTIMISED, Builder

from atlasc.calibration.calibrate import nominal_calibration
from atlasc.emit.project import PROGRAM, write_project
from atlasc.ir.module import Module
from atlasc.latency.model import LatencyTarget
from atlasc.passes.approximation.approximate import apply_recipe
from atlasc.program.costs import program_costs, shape_of
from atlasc.program.counting_engine import counts_of
from atlasc.program.execute import Functions
from atlasc.report.summary import memory_parts
from atlasc.targets import find_target
from atlasc.targets.ckks.traffic import bytes_moved, traffic_of
from atlasc.targets.cost_table import load, shipped_place
from atlasc.targets.costs import BOOTSTRAPS
from atlasc.targets.parameters import NARROWER, ParameterSet
from benchmarks.engine.kernel_seconds import recorded
from benchmarks.engine.scaled_costs import MEASURED, made
from benchmarks.lowering import bert, in_packing

from .conftest import HERE, PROGRAMS, builder
from .test_engine import CONFORMANCE

TOKENS = 128
BOUNDS = {"low": (10_850, 0.724e12), "top": (30_280, 1.280e12)}
"""Launches and bytes with features in the low slot bits and in the top ones: today's counts,
rounded up. Lower them with each change that does. Other prices place other bootstraps: by counted
prices the program with features in the top bits has more of two ciphertexts (4, 13 and 14, by
price table after price table), more launches, and moves less."""
HOST = {"low": 7_250, "top": 22_580}
"""Launches that the host makes where bootstraps are graphs, each of them one launch."""


def launches_program(folder: Path, cpp: Builder) -> Path:
    """Nothing is computed, so half of the time would go into making it fast."""
    traffic = str(HERE / "stand_in/traffic.hpp")
    build = builder(folder, cpp, OPTIMISED, "-Og", "-include", traffic)
    parts = (PROGRAMS / "launches.cpp", CONFORMANCE / "programs.cpp")
    return build("launches", *parts, device="cuda")


@pytest.fixture(scope="module", params=BOUNDS)
def counted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cpp: Builder
) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp(f"launches-{request.param}")
    module = bert(1, TOKENS)
    approximated = apply_recipe(module, "is", nominal_calibration(module))
    latency = LatencyTarget.of(find_target("cuda"))
    program, parameters = in_packing(approximated, latency, request.param == "low")
    write_project(folder / "project", program, parameters, "cuda")
    binary = launches_program(folder, cpp)

    def run(*memory: str) -> dict[str, Any]:
        command = [binary, "program", folder / "project" / PROGRAM, *memory]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    whole = run()
    costs = program_costs(program)
    predicted = sum(memory_parts(costs.total, parameters, costs).values())
    traffic = traffic_of(parameters)
    assert traffic is not None
    moved = bytes_moved(costs.total, traffic)
    facts = {"packing": request.param, "predicted": predicted, "moved": moved}
    facts["transforms"] = transforms(program, parameters)
    facts["in less"] = run(str(whole["memory"] - 2**28))
    return {**facts, **whole, "repeated": run("graphs")}


def transforms(program: Module, parameters: ParameterSet) -> int:
    """How often some baby steps are made for all sums that the device holds at once."""
    one, two = parameters.circuit(parameters.slots)
    narrow, _ = parameters.circuit(parameters.slots >> NARROWER)
    kinds = dict(zip(BOOTSTRAPS, (two, one, narrow), strict=True))
    found = 0
    for _, function in Functions(program, shape_of(program), costs_only=True).calls():
        works = [one.plaintexts[0] for one in function.code if one.primitive == "transform"]
        found += sum(-(-work.steps // work.most_sums) for work in works)  # type: ignore[union-attr]
        for kind, circuit in kinds.items():
            stages = sum(one.primitive == "transform" for one in circuit.code)
            found += stages * counts_of(function).count(kind)
    return found


def total(counted: dict[str, Any], fact: str) -> float:
    return sum(one[fact] for one in counted["kernels"].values())


@pytest.mark.deep("engines")
def test_work_of_a_layer_of_bert_base(counted: dict[str, Any]) -> None:
    launches, read = total(counted, "launches"), total(counted, "bytes")
    print(f"\nfeatures in the {counted['packing']} slot bits")
    for name, one in sorted(counted["kernels"].items(), key=lambda pair: -pair[1]["bytes"]):
        print(f"{name:24s} {one['launches']:8} launches {one['bytes'] / 1e9:10.1f} GB")
    print(f"{'all':24s} {launches:8} launches {read / 1e9:10.1f} GB")
    print(f"host {counted['host']:.2f} s, memory {counted['memory'] / 2**30:.1f} GiB")
    repeated = counted["repeated"]
    by_host = total(repeated, "launches") - repeated["in graphs"] + repeated["graphs"]
    print(
        f"with {repeated['graphs']} graphs: {by_host:.0f} launches of the host, "
        f"memory {repeated['memory'] / 2**30:.1f} of {counted['predicted'] / 2**30:.1f} GiB"
    )
    assert by_host <= HOST[counted["packing"]]
    assert repeated["memory"] <= counted["predicted"]
    assert counted["kernels"]["RotatedTiles"]["launches"] == counted["transforms"]
    if counted["packing"] == "low":  # other transforms have few sums
        fewer = counted["in less"]
        assert fewer["kernels"]["RotatedTiles"]["launches"] > counted["transforms"]
    most_launches, most_bytes = BOUNDS[counted["packing"]]
    assert launches <= most_launches
    assert read <= most_bytes
    assert counted["memory"] <= counted["predicted"]
    assert counted["moved"] == pytest.approx(read, rel=0.08)


@pytest.mark.deep("engines")
def test_the_table_is_what_its_script_writes(tmp_path: Path, cpp: Builder) -> None:
    launches = launches_program(tmp_path, cpp)
    shipped = load(shipped_place("cuda"))
    found = made(launches, tmp_path, recorded(), load(MEASURED))
    assert found.note == shipped.note
    for one, other in zip(found.sets, shipped.sets, strict=True):
        assert one.parameters == other.parameters and set(one.seconds) == set(other.seconds)
        for name, seconds in one.seconds.items():
            assert seconds == pytest.approx(other.seconds[name], rel=1e-3), name
    assert found.bootstrap is not None and shipped.bootstrap is not None
    for name in ("seconds", "one_seconds", "narrow_seconds"):
        of_both = getattr(found.bootstrap, name), getattr(shipped.bootstrap, name)
        assert of_both[0] == pytest.approx(of_both[1], rel=1e-3)
