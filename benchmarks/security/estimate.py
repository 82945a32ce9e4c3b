"""The security table and every secret in use, by the lattice estimator; the archive it makes.

    sage -python benchmarks/security/estimate.py --estimator PATH
        [--output atlasc/targets/estimates/lattice.json] [--only sparse|sets|table]

PATH is a clone of https://github.com/malb/lattice-estimator, which needs Sage (passagemath's wheels
do: ``pip install passagemath-standard-no-symbolics passagemath-symbolics``) and is not part of this
project. Estimates that the archive has already are kept if they are of the same commit.

Samples are unlimited, the error has a standard deviation of 3.19. Dense secrets: uniform ternary,
by uSVP, MATZOV's dual hybrid attack and BDD. Sparse ones: by the hybrid attacks that guess zeros,
primal and dual, each with a search of all candidates and with a meet in the middle. The cost model
is MATZOV, the estimator's default; for the first two also BDGL16, which the guidelines of eprint
2024/463 use. Bits are the least of all these. ADPS16, the "core SVP" that leaves out all but one
call of a sieve, is listed beside them. With two cores it takes an hour.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from atlasc.targets.phantom import PhantomParameters
from atlasc.targets.security import max_log_qp
from atlasc_comparisons.desilo.parameters import BOOTSTRAPPED, LEVELED

ERROR = 3.19
SLOW, QUICK, BESIDE = "MATZOV", "BDGL16", "ADPS16"
Instance = tuple[int, int, int | None]
"""Ring degree, log2 of the modulus, weight."""
Attack = Callable[[], Any]


def instances(only: str | None) -> Iterator[Instance]:
    """The sparse secrets in use; the sets that bootstrap and the largest leveled one of each ring;
    the table's limit at each of these rings. What is smaller at a ring is harder to break."""
    leveled = [*LEVELED, *map(PhantomParameters.choose, range(40))]
    largest = {p.ring_degree: p for p in sorted(leveled, key=lambda p: p.log_qp)}
    sets = [PhantomParameters.bootstrapped("fourteen_levels"), BOOTSTRAPPED, *largest.values()]
    secrets = [secret for chosen in sets for secret in chosen.secrets]
    for weighted, part in ((True, "sparse"), (False, "sets")):
        if only in (None, part):
            for secret in secrets:
                if (secret.weight is not None) == weighted:
                    yield secret.ring_degree, math.ceil(secret.log_q), secret.weight
    if only in (None, "table"):
        yield from ((degree, max_log_qp(degree), None) for degree in sorted(largest))


def costs(estimator: Any, instance: Instance) -> dict[str, dict[str, float]]:
    """Cost model -> attack -> bits."""
    degree, log_q, weight = instance
    lwe, noise = estimator.LWE, estimator.ND
    secret = (
        noise.UniformMod(3)
        if weight is None
        else noise.SparseTernary(weight // 2, weight - weight // 2)
    )
    problem = lwe.Parameters(
        n=degree, q=2**log_q, Xs=secret, Xe=noise.DiscreteGaussian(ERROR), m=math.inf
    )
    models = (SLOW, QUICK, BESIDE) if weight is None else (SLOW,)
    result: dict[str, dict[str, float]] = {}
    for name in models:
        found = attacks(lwe, problem, getattr(estimator.RC, name), weight is not None)
        chosen = found if name == SLOW else found[:2]
        result[name] = {
            attack: bits
            for attack, run in chosen
            if math.isfinite(bits := round(math.log2(float(run()["rop"])), 2))
        }
    return result


def attacks(lwe: Any, problem: Any, model: Any, sparse: bool) -> list[tuple[str, Attack]]:
    """Names and estimates, the quick ones first."""
    primal = partial(lwe.primal_hybrid, problem, red_cost_model=model)
    if not sparse:
        return [
            ("usvp", partial(lwe.primal_usvp, problem, red_cost_model=model)),
            ("dual_hybrid", partial(lwe.dual_hybrid, problem, red_cost_model=model)),
            ("bdd", partial(lwe.primal_bdd, problem, red_cost_model=model)),
        ]
    module = importlib.import_module("estimator.lwe_dual")
    dual = partial(module.dual_hybrid, problem, red_cost_model=model)
    return [
        ("dual_mitm_hybrid", partial(dual, mitm_optimization=True)),
        ("dual_hybrid", dual),
        ("bdd_mitm_hybrid", partial(primal, mitm=True, babai=True)),
        ("bdd_hybrid", partial(primal, mitm=False, babai=False)),
    ]


def entry(instance: Instance, found: dict[str, dict[str, float]]) -> dict[str, Any]:
    """A line of the archive. Bits are rounded down."""
    bits, attack, model = min(
        (bits, attack, model)
        for model, attacked in found.items()
        for attack, bits in attacked.items()
        if model != BESIDE
    )
    degree, log_q, weight = instance
    return {
        "ring_degree": degree,
        "log_q": log_q,
        "weight": weight,
        "bits": math.floor(bits * 10) / 10,
        "attack": attack,
        "cost_model": model,
        "all": found,
    }


def versions(path: Path) -> dict[str, str]:
    """Of what estimates."""
    commit = subprocess.run(
        ["git", "-C", str(path), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    )
    return {
        "name": "lattice-estimator (https://github.com/malb/lattice-estimator)",
        "commit": commit.stdout.strip(),
        "sage": importlib.import_module("sage.version").version,
        "date": datetime.date.today().isoformat(),
    }


def main() -> None:
    """Estimate what the archive lacks, and write it after each estimate."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--estimator", type=Path, required=True)
    parser.add_argument(
        "--output", type=Path, default=Path("atlasc/targets/estimates/lattice.json")
    )
    parser.add_argument("--only", choices=("sparse", "sets", "table"))
    options = parser.parse_args()
    sys.path.insert(0, str(options.estimator))
    estimator = importlib.import_module("estimator")
    archive: dict[str, Any] = {"estimator": versions(options.estimator), "estimates": []}
    if options.output.exists():
        old = json.loads(options.output.read_text())
        if old["estimator"]["commit"] == archive["estimator"]["commit"]:
            archive = old
    known = {(e["ring_degree"], e["log_q"], e["weight"]) for e in archive["estimates"]}
    for instance in dict.fromkeys(instances(options.only)):
        if instance in known:
            continue
        start = time.perf_counter()
        archive["estimates"].append(line := entry(instance, costs(estimator, instance)))
        archive["estimates"].sort(key=lambda e: (e["weight"] or 0, e["ring_degree"], e["log_q"]))
        options.output.parent.mkdir(exist_ok=True)
        options.output.write_text(json.dumps(archive, indent=1) + "\n")
        degree, log_q, weight = instance
        print(
            f"N = 2^{degree.bit_length() - 1}, log q {log_q}, "
            f"{'dense' if weight is None else f'h = {weight}'}: {line['bits']} bits "
            f"({line['attack']}, {line['cost_model']}); {time.perf_counter() - start:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
