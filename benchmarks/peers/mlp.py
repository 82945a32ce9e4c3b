"""The MLP of a Transformer block, down(gelu(up(x))), as Orion and the compiler both take it."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.ir.module import Module
from atlasc.ir.scalar_functions import function
from atlasc.polynomials.algorithms.chebyshev import ActivationApproximation
from atlasc.targets.machine import require_memory
from atlasc_comparisons.desilo.engine import DesiloEngine
from atlasc_comparisons.desilo.keys import KeySet
from benchmarks.peers.layer import Layer
from benchmarks.peers.measure import measure, say
from benchmarks.peers.programs import OurProgram

MARGIN = 1.1
"""Half-width of the range of GELU, in units of what 64 rows of random features need."""
CALIBRATION_ROWS = 64


@dataclass(frozen=True)
class Mlp:
    """An MLP with random weights.

    Attributes:
        features, hidden: extents.
        degree: of the polynomial for GELU.
    """

    features: int
    hidden: int
    degree: int = 31

    @property
    def name(self) -> str:
        """Its shape."""
        return f"{self.features}→{self.hidden}→{self.features}"

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """Weights in ``torch.nn.Linear``'s convention, calibration rows ``x``."""
        random = np.random.default_rng(0)
        up = random.normal(size=(self.hidden, self.features)) / np.sqrt(self.features)
        down = random.normal(size=(self.features, self.hidden)) / np.sqrt(self.hidden)
        arrays = {
            "up": up,
            "up_bias": 0.1 * random.normal(size=self.hidden),
            "down": down,
            "down_bias": 0.1 * random.normal(size=self.features),
            "x": random.normal(size=(CALIBRATION_ROWS, self.features)),
        }
        return {name: array.astype(np.float32) for name, array in arrays.items()}

    @cached_property
    def domain(self) -> tuple[float, float]:
        """Range of GELU, by Orion's rule: the observed one, widened about its centre."""
        hidden = self.arrays["x"] @ self.arrays["up"].T + self.arrays["up_bias"]
        low, high = float(hidden.min()), float(hidden.max())
        centre, half = (low + high) / 2, (high - low) / 2
        return centre - MARGIN * half, centre + MARGIN * half

    def layer(self, rows: int) -> Layer:
        """As an nn module that carries its approximation, for so many rows at once."""
        module = Module("mlp", "nn")
        shape = [1, rows, self.features]
        x = module.add(
            "nn.input", [], {"name": "x", "shape": shape, "side": "client", "dtype": "f64"}
        )
        x = self._linear(module, module.add("nn.encrypt", [x]), "up")
        approximation = ActivationApproximation(self.degree, self.domain)
        x = module.add("nn.gelu", [x], {"approximation": approximation}, "mlp")
        x = self._linear(module, x, "down")
        module.add("nn.output", [x], {"name": "hidden"})
        return Layer(self.name, module, {"x": self.arrays["x"][None, :rows].astype(np.float64)})

    def _linear(self, module: Module, x: Any, name: str) -> Any:
        arrays = {key: self.arrays[key].astype(np.float64) for key in (name, f"{name}_bias")}
        symbols = {
            "weight": module.constant(f"{name}.weight", arrays[name]),
            "bias": module.constant(f"{name}.bias", arrays[f"{name}_bias"]),
        }
        return module.add("nn.linear", [x], symbols, f"mlp.{name}")

    def cleartext(self, rows: int) -> np.ndarray:
        """With GELU itself."""
        arrays = {name: array.astype(np.float64) for name, array in self.arrays.items()}
        hidden = function("gelu").numpy(arrays["x"][:rows] @ arrays["up"].T + arrays["up_bias"])
        return hidden @ arrays["down"].T + arrays["down_bias"]


def ours(mlp: Mlp, rows: int) -> dict[str, Any]:
    """Compile and run on ``desilo``."""
    started = time.perf_counter()
    program = OurProgram(mlp.layer(rows))
    keys = KeySet.generate(program.parameters, program.plan)
    compiled = time.perf_counter() - started
    found = measure(program, DesiloEngine(keys))
    counts = program.counts
    return {
        **found,
        "log_ring_degree": program.parameters.log_ring_degree,
        "log_qp": program.parameters.log_qp,
        "rows": rows,
        "levels": program.levels,
        "rotations": counts.count("rotate", "rotate_hoisted"),
        "plaintext_products": counts.plaintext_products,
        "compile_seconds": compiled,
        "error_to_gelu": float(np.abs(program.expected - mlp.cleartext(rows)).max())
        + found["error"],
    }


def orion(
    mlp: Mlp, log_ring_degree: int, memory: int, python: Path, folder: Path
) -> dict[str, Any]:
    """Compile and run for one row under Orion, in its own environment.

    Args:
        mlp, log_ring_degree: what, and in which ring.
        memory: bytes that it is known to need.
        python: of the environment.
        folder: for the weights.

    Raises:
        AtlasError: there is less memory.
    """
    require_memory(memory, f"Orion on {mlp.name}")
    model = folder / f"mlp-{mlp.features}-{mlp.hidden}.npz"
    np.savez(model, **mlp.arrays, degree=np.array(mlp.degree), margin=np.array(MARGIN))
    command = [str(python), str(Path(__file__).with_name("orion_mlp.py")), str(model)]
    command += ["--log-ring-degree", str(log_ring_degree)]
    say(f"Orion: {mlp.name}, N = 2^{log_ring_degree}")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        killed = ": killed, for lack of memory most likely" if done.returncode == -9 else ""
        raise SystemExit(f"Orion ended with {done.returncode}{killed}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])
