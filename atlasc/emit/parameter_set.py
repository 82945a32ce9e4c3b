"""Writes parameter sets with a bootstrap, and the functions of their bootstraps, as C++ files.

python -m atlasc.emit.parameter_set FILE [--set fifteen_levels_40] [--log-degree 16] [--copies 32]

The runtime library carries the file ``runtime_cuda/parameters/fifteen_levels_40.safetensors``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from atlasc.emit.project import RUNTIME
from atlasc.program.record_arrays import record_arrays
from atlasc.targets.ckks.parameters import CkksParameters

CARRIED = "fifteen_levels_40"
"""Name of the set that the library carries."""
PLACE = RUNTIME / "parameters" / f"{CARRIED}.safetensors"


def parameter_set(name: str, log_degree: int = 16, copies: Sequence[int] = (1,)) -> bytes:
    """The content of a file for ``read_parameter_set`` of ``atlasc/parameter_sets.hpp``.

    Args:
        name: name of a set with a bootstrap.
        log_degree: log2 of the ring degree; rings below 2^16 are for tests only.
        copies: for each kind of bootstrap, how often slots repeat.
    """
    from safetensors.numpy import save

    parameters = CkksParameters.bootstrapped(name, log_degree)
    moduli = parameters.moduli
    numbers = {
        "slots": [parameters.slots],
        "level": [parameters.max_level],
        "primes": moduli.primes,
        "special": moduli.special,
        "scale": [moduli.scale],
        "log_scales": parameters.log_scales,
        "keys": parameters.needs.key_levels,
        "rotations": [part for pair in parameters.needs.shared.items() for part in pair],
    }
    arrays = {one: np.array(values, np.float64) for one, values in numbers.items()}
    circuits = [parameters.circuit(parameters.slots // many) for many in copies]
    functions = [function for circuit in circuits for function in circuit]
    return save(arrays | record_arrays(functions), {"set": name})


def main() -> None:
    """Write a set to a new file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--set", default=CARRIED)
    parser.add_argument("--log-degree", type=int, default=16)
    parser.add_argument("--copies", type=int, nargs="+", default=[1])
    given = parser.parse_args()
    given.file.write_bytes(parameter_set(given.set, given.log_degree, given.copies))


if __name__ == "__main__":
    main()
