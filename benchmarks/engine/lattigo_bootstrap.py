"""A bootstrap of Lattigo, through Orion; runs in Orion's environment and imports nothing of atlasc.

    .venv-orion/bin/python benchmarks/engine/lattigo_bootstrap.py --log-degree 16 --rounds 1

The set is that of Orion's ResNets: ten levels of 40 bits, a secret of 192 nonzero coefficients, and
Lattigo's own parameters of the bootstrap. One ciphertext is refreshed, with slots uniform in
[-1, 1]. Prints one JSON object in the last line of its standard output.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import orion
import torch

LEVELS, LEVEL_BITS, BASE_BITS, SPECIAL_BITS, SPECIAL = 10, 40, 55, 61, 3
BOOTSTRAP_SPECIAL = 8


def seconds_of(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the clock, and of all processors together."""
    start, processors = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - processors


def main() -> None:
    """Keys, bootstraps, a product and a rotation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log-degree", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    scheme = orion.init_scheme(
        {
            "ckks_params": {
                "LogN": options.log_degree,
                "LogQ": [BASE_BITS] + [LEVEL_BITS] * LEVELS,
                "LogP": [SPECIAL_BITS] * SPECIAL,
                "LogScale": LEVEL_BITS,
                "H": 192,
                "RingType": "Standard",
            },
            "boot_params": {"LogP": [SPECIAL_BITS] * BOOTSTRAP_SPECIAL},
            "orion": {"margin": 2, "backend": "lattigo", "debug": False},
        }
    )
    slots = 1 << (options.log_degree - 1)
    keys, _ = seconds_of(lambda: scheme.bootstrapper.generate_bootstrapper(slots))
    values = torch.tensor(np.random.default_rng(1).uniform(-1, 1, slots))
    fresh = orion.encrypt(orion.encode(values, 0))
    refreshed = fresh.bootstrap()
    again = [seconds_of(fresh.bootstrap) for _ in range(options.rounds)]
    wall, processors = min(again)
    error = float((refreshed.decrypt().decode() - values).abs().max())
    products = [seconds_of(lambda: refreshed * refreshed)[0] for _ in range(options.rounds)]
    rotations = [seconds_of(lambda: refreshed.roll(1))[0] for _ in range(options.rounds + 1)]
    found = {
        "level": refreshed.level(), "keys": keys, "bootstrap": wall, "cores": processors,
        "log2_error": float(np.log2(error)), "mul": min(products), "rotate": min(rotations),
    }  # fmt: skip
    print()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
