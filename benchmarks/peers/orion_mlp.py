"""The Transformer MLP under Orion; runs in Orion's own environment and imports nothing of atlasc.

    .venv-orion/bin/python benchmarks/peers/orion_mlp.py model.npz --log-ring-degree 14

``model.npz`` holds up, up_bias, down, down_bias (``torch.nn.Linear`` convention), inputs
``x [rows, features]``, and degree and margin of the fit of GELU. Prints one JSON object in the last
line of its standard output.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from pathlib import Path

import numpy as np
import orion
import orion.nn
import torch

LEVEL_BITS, BASE_BITS, SPECIAL_BITS = 40, 55, 61


class Mlp(orion.nn.Module):
    """down(gelu(up(x)))."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        super().__init__()
        hidden, features = arrays["up"].shape
        self.up = orion.nn.Linear(features, hidden)
        self.gelu = orion.nn.GELU(degree=int(arrays["degree"]))
        self.down = orion.nn.Linear(hidden, features)
        for layer, name in ((self.up, "up"), (self.down, "down")):
            layer.weight.data = torch.tensor(arrays[name], dtype=torch.float32)
            layer.bias.data = torch.tensor(arrays[f"{name}_bias"], dtype=torch.float32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rows of features to rows of features."""
        return self.down(self.gelu(self.up(x)))


def scheme(log_ring_degree: int, levels: int, margin: float) -> dict[str, dict[str, object]]:
    """CKKS parameters with a dense ternary secret, as desilofhe's, and one special prime."""
    ring = 1 << log_ring_degree
    return {
        "ckks_params": {
            "LogN": log_ring_degree,
            "LogQ": [BASE_BITS] + [LEVEL_BITS] * levels,
            "LogP": [SPECIAL_BITS],
            "LogScale": LEVEL_BITS,
            "H": 2 * ring // 3,
            "RingType": "Standard",
        },
        "orion": {"margin": margin, "backend": "lattigo", "debug": False},
    }


def peak_memory() -> int:
    """Bytes: the most that this process has held at once."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) << 10


def main() -> None:
    """Compile, encrypt, run, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--log-ring-degree", type=int, default=14)
    parser.add_argument("--rows", type=int, default=1, help="rows in one run")
    arguments = parser.parse_args()
    with np.load(arguments.model) as file:
        arrays = dict(file)
    network = Mlp(arrays)
    x = torch.tensor(arrays["x"], dtype=torch.float32)
    levels = 2 + math.ceil(math.log2(int(arrays["degree"]) + 1))
    parameters = scheme(arguments.log_ring_degree, levels, float(arrays["margin"]))

    started = time.perf_counter()
    orion.init_scheme(parameters)
    network.eval()
    orion.fit(network, x)
    one = x[: arguments.rows]
    for module in network.modules():  # the batch of the run, not that of the calibration
        for name in ("input_shape", "output_shape", "fhe_input_shape", "fhe_output_shape"):
            if hasattr(module, name):
                shape = getattr(module, name)
                setattr(module, name, torch.Size((len(one), *shape[1:])))
    level = orion.compile(network)
    compiled = time.perf_counter()
    query = orion.encrypt(orion.encode(one, level))
    network.he()
    ready, processor = time.perf_counter(), time.process_time()
    answer = network(query)
    finished, spent = time.perf_counter(), time.process_time() - processor
    decrypted = answer.decrypt().decode()
    network.eval()
    wanted = polynomial_mlp(arrays, np.asarray(one, dtype=np.float64), network.gelu)
    clear = network(one).detach().numpy()
    backend, layers = network.scheme.backend, (network.up, network.down)
    transforms = [t for layer in layers for t in layer.transform_ids.values()]
    rotations = [len(backend.GetLinearTransformRotationKeys(t)) for t in transforms]
    bits = BASE_BITS + LEVEL_BITS * levels + SPECIAL_BITS
    print()
    print(json.dumps({
        "log_ring_degree": arguments.log_ring_degree,
        "log_qp": bits,
        "rows": len(one),
        "levels": level - answer.level(),
        "bootstraps": 0,
        "rotations": sum(rotations) + sum(layer.output_rotations for layer in layers),
        "plaintext_products": sum(
            len(block) for layer in layers for block in layer.diagonals.values()
        ),
        "compile_seconds": compiled - started,
        "seconds": finished - ready,
        "processor_seconds": spent,
        "domain": (network.gelu.low, network.gelu.high),
        "error": float(np.abs(decrypted.numpy() - wanted).max()),
        "error_to_gelu": float(np.abs(decrypted.numpy() - clear).max()),
        "peak_memory": peak_memory(),
    }))  # fmt: skip


def polynomial_mlp(arrays: dict[str, np.ndarray], x: np.ndarray, gelu: object) -> np.ndarray:
    """The MLP with the polynomial that Orion evaluates, in float64."""
    hidden = x @ arrays["up"].T + arrays["up_bias"]
    argument = (2 * hidden - gelu.low - gelu.high) / (gelu.high - gelu.low)
    activated = np.polynomial.chebyshev.chebval(argument, gelu.coeffs)
    return activated @ arrays["down"].T + arrays["down_bias"]


if __name__ == "__main__":
    main()
