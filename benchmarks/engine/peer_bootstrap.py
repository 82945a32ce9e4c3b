"""A bootstrap of another library; runs in that library's environment, with nothing of atlasc.

    .venv-orion/bin/python benchmarks/engine/peer_bootstrap.py Lattigo --log-degree 16 --rounds 1

    python3.10 -m venv .venv-openfhe && .venv-openfhe/bin/pip install openfhe==1.6.1.0.22.4 numpy
    .venv-openfhe/bin/python benchmarks/engine/peer_bootstrap.py OpenFHE --log-degree 16

Lattigo is called through Orion, with the set of Orion's ResNets: ten levels of 40 bits, a secret of
192 nonzero coefficients, and Lattigo's own parameters of the bootstrap. OpenFHE has four levels,
which is what 128 bits leave at primes of 50 bits (smaller ones bring nothing back that is right),
three stages each way of the linear transforms, a uniform ternary secret.

One ciphertext is refreshed, with slots uniform in [-1, 1]. Prints one JSON object in the last line
of its standard output.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Library(NamedTuple):
    """What is asked of a library, at a ring and with keys that do not exist yet."""

    make_keys: Callable[[], object]
    encrypt: Callable[[np.ndarray], Any]
    bootstrap: Callable[[Any], Any]
    decrypt: Callable[[Any], np.ndarray]
    level: Callable[[Any], int]
    multiply: Callable[[Any], object]
    rotate: Callable[[Any], object]


def lattigo(log_degree: int) -> Library:
    """Lattigo, as Orion calls it."""
    import orion
    import torch

    scheme = orion.init_scheme(
        {
            "ckks_params": {
                "LogN": log_degree,
                "LogQ": [55] + [40] * 10,
                "LogP": [61] * 3,
                "LogScale": 40,
                "H": 192,
                "RingType": "Standard",
            },
            "boot_params": {"LogP": [61] * 8},
            "orion": {"margin": 2, "backend": "lattigo", "debug": False},
        }
    )
    return Library(
        lambda: scheme.bootstrapper.generate_bootstrapper(1 << (log_degree - 1)),
        lambda values: orion.encrypt(orion.encode(torch.tensor(values), 0)),
        lambda x: x.bootstrap(),
        lambda x: x.decrypt().decode().numpy(),
        lambda x: x.level(),
        lambda x: x * x,
        lambda x: x.roll(1),
    )


def openfhe(log_degree: int) -> Library:
    """OpenFHE's wheel."""
    import openfhe as library

    levels, level_bits, base_bits, budget = 4, 50, 57, [3, 3]
    secret, slots = library.SecretKeyDist.UNIFORM_TERNARY, 1 << (log_degree - 1)
    depth = levels + library.CryptoContext.GetBootstrapDepth(budget, secret)
    parameters = library.CCParamsCKKSRNS()
    parameters.SetSecretKeyDist(secret)
    parameters.SetSecurityLevel(library.SecurityLevel.HEStd_128_classic)
    parameters.SetRingDim(1 << log_degree)
    parameters.SetScalingTechnique(library.ScalingTechnique.FLEXIBLEAUTO)
    parameters.SetScalingModSize(level_bits)
    parameters.SetFirstModSize(base_bits)
    parameters.SetMultiplicativeDepth(depth)
    context = library.GenCryptoContext(parameters)
    for name in ("PKE", "KEYSWITCH", "LEVELEDSHE", "ADVANCEDSHE", "FHE"):
        context.Enable(getattr(library.PKESchemeFeature, name))
    context.EvalBootstrapSetup(budget)
    pair = context.KeyGen()

    def make_keys() -> None:
        context.EvalMultKeyGen(pair.secretKey)
        context.EvalRotateKeyGen(pair.secretKey, [1])
        context.EvalBootstrapKeyGen(pair.secretKey, slots)

    def encrypt(values: np.ndarray) -> Any:
        plaintext = context.MakeCKKSPackedPlaintext(values.tolist(), 1, depth - 1)
        return context.Encrypt(pair.publicKey, plaintext)

    def decrypt(x: Any) -> np.ndarray:
        answer = context.Decrypt(x, pair.secretKey)
        answer.SetLength(slots)
        return np.array(answer.GetRealPackedValue())

    return Library(
        make_keys,
        encrypt,
        context.EvalBootstrap,
        decrypt,
        lambda x: depth - x.GetLevel() - (x.GetNoiseScaleDeg() - 1),
        lambda x: context.EvalMult(x, x),
        lambda x: context.EvalRotate(x, 1),
    )


LIBRARIES = {"Lattigo": lattigo, "OpenFHE": openfhe}


def seconds_of(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the clock, and of all processors together."""
    start, processors = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - processors


def main() -> None:
    """Keys, bootstraps, a product and a rotation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("--log-degree", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    library = LIBRARIES[options.library](options.log_degree)
    keys, _ = seconds_of(library.make_keys)
    values = np.random.default_rng(1).uniform(-1, 1, 1 << (options.log_degree - 1))
    fresh = library.encrypt(values)
    refreshed = library.bootstrap(fresh)

    def least(work: Callable[[Any], object], x: Any) -> tuple[float, float]:
        return min(seconds_of(lambda: work(x)) for _ in range(options.rounds))

    wall, processors = least(library.bootstrap, fresh)
    library.rotate(refreshed)  # Orion makes a rotation's key when it is first wanted
    found = {
        "level": library.level(refreshed),
        "keys": keys,
        "bootstrap": wall,
        "cores": processors,
        "log2_error": float(np.log2(np.abs(library.decrypt(refreshed) - values).max())),
        "mul": least(library.multiply, refreshed)[0],
        "rotate": least(library.rotate, refreshed)[0],
    }
    print()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
