"""The cost table of the target ``cuda``: counted launches at the seconds of a model of an H200.

    python -m benchmarks.engine.scaled_costs             writes the table
    python -m benchmarks.engine.scaled_costs --errors    the model's seconds over those measured

The stand-in of a GPU (docs/gpu.md) counts the launches of the calls that a calibration times, and
of bootstraps, for each parameter set. Their seconds follow from a model that is fitted to a profile
of an H200 (`benchmarks.engine.kernel_seconds`), and those of primitives from the calls, by the same
equations as in a measurement (`benchmarks.engine.table`). Encryption, decryption and keys keep the
measured seconds of 60-bit primes (``h200_costs_60_bits.json``). A measurement on a GPU replaces the
table (docs/costs.md).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from atlasc.targets.cost_table import Bootstrap, CostTable, Measured, load, shipped_place
from atlasc.targets.costs import KEY, FittedCosts
from atlasc.targets.cpu.calibration import CpuCalibrator
from atlasc.targets.cuda import CudaParameters
from benchmarks.engine.kernel_seconds import Launch, Model, Recorded, errors, recorded
from benchmarks.gpu.building import build, place_of
from benchmarks.gpu.bundles import parameter_set
from benchmarks.gpu.commands import output_of
from benchmarks.gpu.machine import EMULATED

MEASURED = Path(__file__).with_name("h200_costs_60_bits.json")
SENT = 16e9
"""Bytes a second that the host sends to the device: a quarter of what PCIe 5.0 carries, and not
measured."""
NOTE = (
    "counted, not measured: today's launches, at the seconds of a model that is fitted to a "
    "profile of an H200; encrypt, decrypt and keys as measured with 60-bit primes "
    "(python -m benchmarks.engine.scaled_costs)"
)
SETS = (
    CudaParameters(14, 6, 1), CudaParameters(15, 14, 2), CudaParameters(16, 28, 6),
    CudaParameters.bootstrapped(),
)  # fmt: skip
CLIENTS = ("encrypt", "decrypt")
WAITS = ("mul_lazy", "mul_scalar")
"""Calls that launch nothing: a term of a sum is computed with the sum."""
OTHER = ("mul_plain", "add_plain", "transform_dense", "add_scalar", *WAITS)
"""Primitives whose calls do other work than when they were measured."""
LIMIT = 600


class WideParameters(CudaParameters):
    """What was measured: primes of up to 60 bits, and key switches with all special primes."""

    prime_bits = 60
    named = "fourteen_levels"

    def special_at(self, level: int) -> int:
        """All of them."""
        return self.special_primes


@dataclass(frozen=True)
class Counted:
    """What the stand-in counts of a call or a bootstrap.

    Attributes:
        launches: of kernels.
        sent: bytes that the host would send for a program. The vectors of calls have numbers of 64
            bits, and weights have 32.
    """

    launches: list[Launch]
    sent: float = 0.0

    @classmethod
    def of(cls, printed: Mapping[str, Any]) -> Counted:
        """What a line of the program ``launches`` says."""
        sent = printed["kernels"].get("copies", {}).get("bytes", 0.0)
        return cls([Launch(*one) for one in printed["launches"]], sent / 2)

    def seconds(self, model: Model) -> float:
        """As if nothing overlapped."""
        return model.seconds(self.launches) + self.sent / SENT


def counted(program: Path, *words: object) -> dict[str, Counted]:
    """Name -> what is counted by a command of the program ``launches``."""
    printed = output_of([program, *words], LIMIT).splitlines()
    lines = (json.loads(line) for line in printed)
    return {one["name"]: Counted.of(one) for one in lines}


def primitives(
    parameters: CudaParameters, calls: Mapping[str, Counted], model: Model, old: FittedCosts
) -> dict[str, dict[int, float]]:
    """Seconds of each primitive at the levels of the calls.

    Args:
        calls: name and level, as in "rotate 5" -> what is counted.
        old: the measured seconds of what is not counted.
    """
    seconds: dict[str, dict[int, float]] = {}
    for name, call in calls.items():
        action, level = name.split()
        seconds.setdefault(action, {})[int(level)] = call.seconds(model)
    limb, top = 8 * parameters.ring_degree, old.parameters.max_level
    for level in seconds["add"]:
        # Both factors of a product, or a term and its sum.
        read = Launch(1, "Combine", 0, 4 * limb * parameters.residues(level))
        latency = model.of(Launch(1, "Combine", 0, 0))
        for name in WAITS:
            seconds.setdefault(name, {})[level] = model.of(read) - latency
        for name in CLIENTS:
            seconds.setdefault(name, {})[level] = old.cost(name, min(level, top))
    made = dict.fromkeys(seconds["mul_plain"], 0.0)
    key = {parameters.max_level: old.cost(KEY, top)}
    return {KEY: key, **CpuCalibrator().costs({**seconds, "vectors": made})}


def made(launches: Path, sets: Path, of: Recorded, old: CostTable) -> CostTable:
    """The table by what a build of the stand-in counts.

    Args:
        launches: the program.
        sets: folder for the file of the set with a bootstrap.
        of: what was measured of kernels.
        old: what was measured of primitives.
    """
    model, shares = of.today(), errors_of_primitives(of)
    file = parameter_set(sets, 16)
    wide = [WideParameters.from_dict(one.parameters) for one in old.sets]
    olds = {(one.log_ring_degree, bool(one.bootstrap)): FittedCosts(old, one) for one in wide}
    measured = []
    for one in SETS:
        numbers = (one.log_ring_degree, one.max_level, one.special_primes)
        words = (file,) if one.bootstrap else numbers
        known = olds[one.log_ring_degree, bool(one.bootstrap)]
        calls = counted(launches, "calls", *words)
        found = primitives(one, calls, model, known)
        measured.append(Measured(one.to_dict(), raised(found, shares)))
    kinds = {
        name: model.of_bootstrap(one.launches)
        for name, one in counted(launches, "bootstraps", file).items()
    }
    assert old.bootstrap is not None
    bootstrap = Bootstrap(
        kinds["bootstrap_two"], old.bootstrap.key_seconds, False, kinds["bootstrap_one"],
        kinds["bootstrap_narrow_one"],
    )  # fmt: skip
    return replace(old, sets=tuple(measured), bootstrap=bootstrap, note=NOTE, path=None)


def raised(
    found: Mapping[str, Mapping[int, float]], shares: Mapping[str, Mapping[int, float]]
) -> dict[str, dict[int, float]]:
    """Prices that are not below what the model missed: where it gave a primitive fewer seconds than
    were measured, the price is as many times higher. The levels of both have the same order.
    """
    return {
        name: {
            level: seconds / min(1.0, share)
            for (level, seconds), share in zip(
                of_levels.items(), shares.get(name, dict.fromkeys(of_levels, 1.0)).values(),
                strict=True,
            )
        }
        for name, of_levels in found.items()
    }  # fmt: skip


def errors_of_primitives(of: Recorded) -> dict[str, dict[int, float]]:
    """Primitive -> level -> predicted over measured seconds, of the set that was profiled. Of an
    addition at a low level nothing was measured but noise.
    """
    old = load(MEASURED)
    one = next(one for one in old.sets if one.parameters["bootstrap"])
    parameters = WideParameters.from_dict(one.parameters)
    calls = {name: Counted(launches) for name, launches in of.calls.items()}
    found = primitives(parameters, calls, of.model(), FittedCosts(old, parameters))
    compared = set(found) - {*OTHER, *CLIENTS, KEY}
    return {
        name: {level: found[name][level] / one.seconds[name][level] for level in found[name]}
        for name in sorted(compared)
    }


def print_errors() -> None:
    """Predicted over measured seconds, of what the model is not fitted to."""
    of = recorded()
    for name, share in errors(of).items():
        print(f"{name:20} {share:.2f}")
    for name, shares in errors_of_primitives(of).items():
        print(
            f"{name:20} {' '.join(f'{share:5.2f} at {level}' for level, share in shares.items())}"
        )


def main() -> None:
    """Write the table that atlasc ships."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.engine.scaled_costs", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--folder", type=Path, default=Path("build/gpu"), help="for builds")
    parser.add_argument("--errors", action="store_true", help="print those of the model, and end")
    given = parser.parse_args()
    if given.errors:
        print_errors()
        return
    build("cuda", EMULATED, given.folder)
    launches = place_of("cuda", EMULATED, given.folder) / "launches"
    table = made(launches, given.folder / "bundles", recorded(), load(MEASURED))
    shipped_place("cuda").write_text(table.text(), encoding="utf-8")
    print(table.bootstrap)


if __name__ == "__main__":
    main()
