"""Seconds of kernels by what they read, write and compute: a model fitted to a profile of an H200.

    python -m benchmarks.engine.kernel_seconds

prints its constants, and how far it is from what was measured and is no part of the profile.

A launch takes a latency, and seconds for each of the counts of its kind; nothing overlaps. The
profile (``h200_launches.json``) is of older kernels: transforms and conversions in integers, and
products of rotated ciphertexts of more instructions. `Model.today` has the constants of today's
kernels, of which none was measured:

* A transform in double precision takes fewer seconds, by what was measured for a transform alone.
* A product of a conversion in double precision takes fewer seconds, by the instructions of both.
  Ends of divisions, which are in double precision too, keep the seconds of integers.
* A kernel that ends transforms, multiplies by keys and begins transforms takes as long as its
  parts, less the bytes that lie between them.
* Kernels bounded by memory move bytes as slowly as the slowest of them did.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

RECORDED = Path(__file__).with_name("h200_launches.json")
LIMB = 2**16
"""Numbers of a limb of the largest ring."""
INTEGERS, DOUBLES = 1.55e-6, 0.92e-6
"""Seconds of the transform of a limb, of 480 at once. In integers it is measured. In doubles 0.85
was measured without the reductions that primes of 50 bits need, a twelfth of the operations."""
INSTRUCTIONS = 5.9 / 25
"""Machine instructions of a product of rotated ciphertexts, of those when it was measured."""
CONVERTED = 198 / 473
"""Issue slots of a number that is converted from eight primes, over those in integers when it was
measured: of the machine code for compute capability 9.0 (nvcc 13.0), on the path of eight primes.
Operations on doubles, conversions to doubles and multiply-adds of integers count as two, since the
GPU issues them at half the rate of others. Residues come from the cache for three limbs at once,
where each limb read them before: this third is no bound."""
FITTED = ("bootstrap_one", "bootstrap_two")
"""Bootstraps whose measured seconds the model has; the others check it."""
LARGE = 2e7
"""Bytes from which on a launch shows how fast memory is."""


class Launch(NamedTuple):
    """What the stand-in of a GPU counts (``tests/runtime_cuda/ckks/stand_in/arithmetic.hpp``).

    Attributes:
        times: launches that are alike.
        kernel: its type.
        blocks: of threads.
        bytes: read and written, each number once.
        forwards, backwards: numbers that go through half of a transform.
        products: of two words, for conversions and keys.
        rotated: products of rotated ciphertexts and plaintexts.
        gathered: times that a block waits for plaintexts, of all blocks.
        microseconds: measured for one; 0: not measured.
    """

    times: int
    kernel: str
    blocks: int
    bytes: float
    forwards: float = 0
    backwards: float = 0
    products: float = 0
    rotated: float = 0
    gathered: float = 0
    microseconds: float = 0


def kind_of(kernel: str) -> str:
    """The kind of a kernel: one set of constants."""
    if kernel.startswith("KeyRows"):
        return "rows of sums" if kernel.endswith("SumOfEach") else "rows"
    if kernel.startswith("Conversions"):
        return "conversions"
    kinds = {"InnerProduct": "keys", "HoistedProducts": "keys", "InnerProducts": "sums"}
    if kernel.startswith(("Pass", "RotatedTiles")):
        return "pass" if kernel.startswith("Pass") else "tiles"
    return kinds.get(kernel, "rest")


TERMS = {
    "pass": ("forwards", "backwards", "products", "bytes"),
    "keys": ("bytes",),
    "sums": ("bytes",),
    "tiles": ("bytes", "rotated", "gathered"),
    "rest": ("bytes",),
}
"""Kind -> the counts that its seconds grow with."""
Constants = Mapping[str, float]
"""Seconds of a launch (``latency``), and of each count."""


@dataclass(frozen=True)
class Model:
    """Seconds of launches.

    Attributes:
        kinds: the constants of each kind of kernel.
        gap: seconds between two launches.
        start: seconds of a bootstrap in which no kernel runs, beside the gaps.
    """

    kinds: Mapping[str, Constants]
    gap: float = 0.0
    start: float = 0.0

    def of(self, launch: Launch) -> float:
        """Seconds of one launch, without the gap."""
        constants = self.kinds[kind_of(launch.kernel)]
        counts = {"latency": 1.0, **launch._asdict()}
        return sum(each * counts[name] for name, each in constants.items())

    def seconds(self, launches: Iterable[Launch]) -> float:
        """Seconds of some launches, one after another."""
        return sum(one.times * (self.of(one) + self.gap) for one in launches)

    def of_bootstrap(self, launches: Iterable[Launch]) -> float:
        """Seconds of a bootstrap. That a CUDA graph has no start is not counted on."""
        return self.start + self.seconds(launches)

    def today(self, profile: Sequence[Launch]) -> Model:
        """The constants of today's kernels.

        Args:
            profile: the launches that the model is fitted to.
        """
        faster = (INTEGERS - DOUBLES) / 2 / LIMB
        passes = dict(self.kinds["pass"])
        for way in ("forwards", "backwards"):
            passes[way] -= faster
        ways = {way: passes[way] for way in ("forwards", "backwards")}
        large = [one for one in profile if kind_of(one.kernel) == "rest" and one.bytes >= LARGE]
        slowest = max(one.microseconds * 1e-6 / self.of(one) for one in large)
        tiles = dict(self.kinds["tiles"])
        tiles["rotated"] *= INSTRUCTIONS
        kinds = {
            **self.kinds,
            "pass": passes,
            "conversions": {**passes, "products": passes["products"] * CONVERTED},
            "tiles": tiles,
            "rest": {name: each * slowest for name, each in self.kinds["rest"].items()},
        }
        for rows, keys in (("rows", "keys"), ("rows of sums", "sums")):
            latency = passes["latency"] + self.kinds[keys]["latency"]
            kinds[rows] = {**ways, **self.kinds[keys], "latency": latency}
        return replace(self, kinds=kinds)


def fitted(profile: Sequence[Launch]) -> Model:
    """The constants that fit a profile, without gaps: not negative, with the least squares of
    errors, which count less for long launches.
    """
    from scipy.optimize import nnls

    kinds = {}
    for kind, terms in TERMS.items():
        launches = [one for one in profile if kind_of(one.kernel) == kind]
        rows = np.array([[1.0, *(getattr(one, term) for term in terms)] for one in launches])
        seconds = np.array([one.microseconds * 1e-6 for one in launches])
        times = np.array([one.times for one in launches])
        weights = np.sqrt(times / (seconds * np.maximum(seconds, 2e-5)))
        scales = rows.max(axis=0)
        found, _ = nnls(rows / scales * weights[:, None], seconds * weights)
        kinds[kind] = dict(zip(("latency", *terms), (found / scales).tolist(), strict=True))
    return Model(kinds)


@dataclass(frozen=True)
class Recorded:
    """What was measured on an H200, and the launches that were counted for it.

    Attributes:
        profile: launches with their microseconds: most of a bootstrap of two.
        bootstraps: name -> launches.
        calls: name and level -> launches of a call, with the set ``fourteen_levels``.
        milliseconds: name -> of a bootstrap, without a profiler.
    """

    profile: list[Launch]
    bootstraps: dict[str, list[Launch]]
    calls: dict[str, list[Launch]]
    milliseconds: dict[str, float]

    def model(self) -> Model:
        """Of the kernels that were measured. What they leave of bootstraps of one and of two is a
        start and gaps.
        """
        model, names = fitted(self.profile), FITTED
        left = [
            self.milliseconds[one] * 1e-3 - model.seconds(self.bootstraps[one]) for one in names
        ]
        launches = [sum(one.times for one in self.bootstraps[name]) for name in names]
        gap = (left[1] - left[0]) / (launches[1] - launches[0])
        return replace(model, gap=gap, start=left[0] - gap * launches[0])

    def today(self) -> Model:
        """Of today's kernels."""
        return self.model().today(self.profile)


def recorded(path: Path = RECORDED) -> Recorded:
    """Read what was measured."""
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))

    def named(group: Mapping[str, list[list[Any]]]) -> dict[str, list[Launch]]:
        return {name: [Launch(*one) for one in some] for name, some in group.items()}

    groups = {name: named(found[name]) for name in ("bootstraps", "calls")}
    profile = [Launch(*one) for one in found["profile"]]
    two = profile + [Launch(*one) for one in found["rest"]]
    bootstraps = {"bootstrap_two": two, **groups["bootstraps"]}
    return Recorded(profile, bootstraps, groups["calls"], found["milliseconds"])


def errors(of: Recorded) -> dict[str, float]:
    """Name of a bootstrap that the model is not fitted to -> predicted over measured seconds."""
    model = of.model()
    return {
        name: model.of_bootstrap(launches) * 1e3 / of.milliseconds[name]
        for name, launches in of.bootstraps.items()
        if name not in FITTED
    }


def main() -> None:
    """Print the constants and the errors."""
    of = recorded()
    for title, model in (("measured kernels", of.model()), ("today's kernels", of.today())):
        start = f"{model.start * 1e3:.2f} ms of a bootstrap"
        print(f"{title}: {start}, {model.gap * 1e6:.2f} us between launches, and for a launch")
        for kind, constants in model.kinds.items():
            parts = (
                f"{each * (1e6 if name == 'latency' else 1e12):.3g} "
                f"{'us' if name == 'latency' else 'ps for each of ' + name}"
                for name, each in constants.items()
            )
            print(f"  {kind:12} {', '.join(parts)}")
    print("predicted over measured:")
    for name, share in errors(of).items():
        print(f"  {name:20} {share:.3f}")


if __name__ == "__main__":
    main()
