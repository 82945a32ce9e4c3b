"""What a layer of BERT-base asks of a GPU, counted by a device that computes nothing.

    pytest -s tests/runtime_cuda/ckks/test_launches.py

prints the table of docs/backend-phantom.md.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from cpp_build import OPTIMISED, Builder

from atlasc.calibration.calibrate import nominal_calibration
from atlasc.emit.project import WEIGHTS, write_project
from atlasc.passes.approximation.approximate import apply_recipe
from atlasc.passes.pipeline import lower_nn
from atlasc.targets import find_target
from benchmarks.lowering import bert

from .conftest import HERE, PROGRAMS, builder

TOKENS = 128
LAUNCHES, BYTES = 63_400, 2.02e12
"""Today's counts, 63,356 and 2.018e12, rounded up. Lower them with each change that does."""


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory, cpp: Builder) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("launches")
    module, latency = bert(1, TOKENS), find_target("cuda").latency()
    approximated = apply_recipe(module, "is", nominal_calibration(module))
    lowered = lower_nn(approximated, latency.choose, None, None, latency.costs, True)
    write_project(folder / "project", lowered.program, lowered.parameters, "cuda")
    sources = folder / "project" / "src"
    traffic = str(HERE / "stand_in/traffic.hpp")
    more = (f"-I{sources}", "-DATLASC_PROGRAM=bert", "-include", traffic)
    build = builder(folder, cpp, OPTIMISED, *more)
    program = build(
        "launches", PROGRAMS / "launches.cpp", sources / "interface.cpp", sources / "program.cpp",
        device="cuda",
    )  # fmt: skip
    done = subprocess.run(
        [program, folder / "project" / WEIGHTS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def total(counted: dict[str, Any], fact: str) -> float:
    return sum(one[fact] for one in counted["kernels"].values())


def test_bytes_of_a_layer_of_bert_base(counted: dict[str, Any]) -> None:
    launches, read = total(counted, "launches"), total(counted, "bytes")
    for name, one in sorted(counted["kernels"].items(), key=lambda pair: -pair[1]["bytes"]):
        print(f"{name:24s} {one['launches']:8} launches {one['bytes'] / 1e9:10.1f} GB")
    print(f"{'all':24s} {launches:8} launches {read / 1e9:10.1f} GB")
    print(f"host {counted['host']:.2f} s, memory {counted['memory'] / 2**30:.1f} GiB")
    assert read <= BYTES


def test_launches_of_a_layer_of_bert_base(counted: dict[str, Any]) -> None:
    assert total(counted, "launches") <= LAUNCHES
