"""A parameter set of the bootstrap, with its record, as a file for C++ programs without a program.

python tests/helpers/bootstrap_file.py FILE [--set fourteen_levels] [--log-degree 16]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from atlasc.passes.execution.record_arrays import record_arrays
from atlasc.targets.phantom import PhantomParameters


def write_bootstrap(path: Path, name: str = "fourteen_levels", log_degree: int = 16) -> Path:
    """Write what ``bootstrapped`` of tests/runtime_cuda/conformance/programs.hpp reads."""
    parameters = PhantomParameters.bootstrapped(name, log_degree)
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
    circuits = [parameters.circuit(slots) for slots in (parameters.slots, parameters.slots // 32)]
    save_file(arrays | record_arrays([*circuits[0], *circuits[1]]), path, {"set": name})
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--set", default="fourteen_levels")
    parser.add_argument("--log-degree", type=int, default=16)
    options = parser.parse_args()
    write_bootstrap(options.file, options.set, options.log_degree)
