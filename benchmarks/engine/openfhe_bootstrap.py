"""A bootstrap of OpenFHE; runs where its wheel imports, and imports nothing of atlasc.

    python3.10 -m venv .venv-openfhe && .venv-openfhe/bin/pip install openfhe==1.6.1.0.22.4 numpy
    .venv-openfhe/bin/python benchmarks/engine/openfhe_bootstrap.py --log-degree 16 --rounds 1

Four levels, which is what 128 bits leave at primes of 50 bits (smaller ones bring nothing back that
is right), three stages each way of the linear transforms, a uniform ternary secret. One ciphertext
is refreshed, with slots uniform in [-1, 1]. Prints one JSON object in the last line of its standard
output.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import openfhe

LEVELS, LEVEL_BITS, BASE_BITS = 4, 50, 57
BUDGET = [3, 3]


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
    secret = openfhe.SecretKeyDist.UNIFORM_TERNARY
    depth = LEVELS + openfhe.CryptoContext.GetBootstrapDepth(BUDGET, secret)
    parameters = openfhe.CCParamsCKKSRNS()
    parameters.SetSecretKeyDist(secret)
    parameters.SetSecurityLevel(openfhe.SecurityLevel.HEStd_128_classic)
    parameters.SetRingDim(1 << options.log_degree)
    parameters.SetScalingTechnique(openfhe.ScalingTechnique.FLEXIBLEAUTO)
    parameters.SetScalingModSize(LEVEL_BITS)
    parameters.SetFirstModSize(BASE_BITS)
    parameters.SetMultiplicativeDepth(depth)
    context = openfhe.GenCryptoContext(parameters)
    features = openfhe.PKESchemeFeature
    for name in ("PKE", "KEYSWITCH", "LEVELEDSHE", "ADVANCEDSHE", "FHE"):
        context.Enable(getattr(features, name))
    context.EvalBootstrapSetup(BUDGET)
    slots = 1 << (options.log_degree - 1)
    pair = context.KeyGen()

    def make_keys() -> None:
        context.EvalMultKeyGen(pair.secretKey)
        context.EvalRotateKeyGen(pair.secretKey, [1])
        context.EvalBootstrapKeyGen(pair.secretKey, slots)

    keys, _ = seconds_of(make_keys)
    values = np.random.default_rng(1).uniform(-1, 1, slots)
    plaintext = context.MakeCKKSPackedPlaintext(values.tolist(), 1, depth - 1)
    fresh = context.Encrypt(pair.publicKey, plaintext)
    refreshed = context.EvalBootstrap(fresh)
    wall, processors = min(
        seconds_of(lambda: context.EvalBootstrap(fresh)) for _ in range(options.rounds)
    )
    answer = context.Decrypt(refreshed, pair.secretKey)
    answer.SetLength(slots)
    error = float(np.abs(np.array(answer.GetRealPackedValue()) - values).max())
    rounds = range(options.rounds)
    products = [seconds_of(lambda: context.EvalMult(refreshed, refreshed))[0] for _ in rounds]
    rotations = [seconds_of(lambda: context.EvalRotate(refreshed, 1))[0] for _ in rounds]
    found = {
        "level": depth - refreshed.GetLevel() - (refreshed.GetNoiseScaleDeg() - 1), "keys": keys,
        "bootstrap": wall, "cores": processors, "log2_error": float(np.log2(error)),
        "mul": min(products), "rotate": min(rotations),
    }  # fmt: skip
    print()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
