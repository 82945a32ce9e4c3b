"""Inputs of kinds that a program was not compiled on: how many are unsafe, and what that costs?

    python -m benchmarks.fidelity.other_kinds                 # digits series lakes
    python -m benchmarks.fidelity.other_kinds digits --journals build/other-kinds

Searches each model with the defaults of `compile`, for `cpu`, on inputs of one kind. Then it counts
the unsafe ones among inputs of other kinds (exploded, or another answer than the model's although
the model decides), under three settings:

    picked     the cheapest setting within the error, on the calibrated ranges
    distant    what `compile` makes of it: at most 5% dearer, with ranges that reach further and
               higher degrees where inputs of other kinds are lost first
    is         the setting `is`, on the calibrated ranges

Bootstraps beyond their range are not counted, because nothing is lowered. The digits are those of
`examples/digits_vit`. The series are days of readings of three sensors, and their small Transformer
of two layers, which tells how fast they vary, is trained here in half a minute; the lakes are those
of `benchmarks.brought`.

Exit code 1: more than half of the unsafe ones of a model are left, or it costs more than 5%.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.api.progress import progress
from atlasc.calibration.calibrate import Calibration
from atlasc.calibration.room import with_room
from atlasc.cli.output import print_json, print_table
from atlasc.compilation.compile import distant
from atlasc.compilation.options import CompileOptions
from atlasc.compilation.prepare import PreparedModel, prepare
from atlasc.compilation.search import search
from atlasc.passes.approximation.approximate import settings_approximations
from atlasc.search.distance import PRICE
from atlasc.search.front import Front
from atlasc.search.points import Point
from atlasc.search.strategies import DEFAULT, find_strategy
from atlasc.search.validation import Validator
from benchmarks.brought.models import MODELS

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits_vit"
INPUTS = 200
"""Of each kind."""
DAYS, SENSORS, READINGS, CLASSES = 8, 3, 4, 4
STEPS, BATCH, TRAINING, CALIBRATION = 600, 64, 4000, 400


@dataclass(frozen=True)
class Case:
    """A model, the data that it is compiled on, and inputs of other kinds by their name."""

    model: Any
    data: Any
    tried: Mapping[str, dict[str, np.ndarray]]


def digits() -> Case:
    """Images of digits: with more contrast, inverted, and noisy."""
    with np.load(DIGITS / "test.npz") as file:
        images = file["pixel_values"][:INPUTS]
    noise = np.random.default_rng(0).normal(size=images.shape)
    tried = {"contrast": 1.6 * images, "inverted": 1 - images, "noisy": images + 0.4 * noise}
    return Case(
        str(DIGITS / "model"), DIGITS / "calibration.npz",
        {name: {"pixel_values": one.astype(np.float32)} for name, one in tried.items()},
    )  # fmt: skip


def series() -> Case:
    """Readings of sensors: larger ones, with a trend, and noisy."""
    import torch
    from torch import nn

    class Sensors(nn.Module):
        def __init__(self, width: int = 32) -> None:
            super().__init__()
            self.first = nn.Linear(SENSORS * READINGS, width)
            self.days = nn.Parameter(0.1 * torch.randn(DAYS, width))
            layer = nn.TransformerEncoderLayer(width, 4, 64, 0.0, "gelu", batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.last = nn.Linear(width, CLASSES)

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            mean = self.encoder(self.first(values) + self.days).mean(1)
            return self.last(mean)  # type: ignore[no-any-return]

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Sensors()
    optimiser = torch.optim.AdamW(model.parameters(), 3e-3)
    values, classes = map(torch.tensor, readings(TRAINING, 1))
    for _ in range(STEPS):
        some = torch.randint(0, TRAINING, (BATCH,))
        loss = nn.functional.cross_entropy(model(values[some]), classes[some])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    kinds = {"larger": {"scale": 1.5}, "trend": {"trend": 1.5}, "noisy": {"noise": 1.0}}
    tried = {
        name: {"values": readings(INPUTS, 11 + number, **kind)[0]}
        for number, (name, kind) in enumerate(kinds.items())
    }
    return Case(model.eval(), {"values": readings(CALIBRATION, 3)[0]}, tried)


def readings(
    count: int, seed: int, *, scale: float = 1.0, noise: float = 0.3, trend: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Waves of four frequencies, [count, days, readings of all sensors]; and which it is."""
    random = np.random.default_rng(seed)
    classes = random.integers(0, CLASSES, count)
    time = (np.arange(DAYS * READINGS) / (DAYS * READINGS))[None, :, None]
    periods = 2.0 ** classes[:, None, None]
    phases = random.uniform(0, 2 * np.pi, (count, 1, 1)) + 0.7 * np.arange(SENSORS)
    sizes = random.lognormal(0, 0.3, (count, 1, SENSORS)) * scale
    waves = sizes * np.sin(2 * np.pi * periods * time + phases)
    waves += trend * random.normal(size=(count, 1, SENSORS)) * time
    waves += noise * random.normal(size=waves.shape)
    waves += 0.3 * random.normal(size=(count, 1, SENSORS))
    return waves.reshape(count, DAYS, -1).astype(np.float32), classes


def lakes() -> Case:
    """Reflectances of lakes: of another sensor, brighter, and with clouds over single months."""
    model = MODELS["lakes"]()
    others, known = (model.rows(INPUTS, 21, shifted=far).inputs for far in (True, False))
    clouds = np.random.default_rng(0).random((*known.shape[:2], 1)) < 0.2
    tried = {"sensor": others, "brighter": 2.0 * known, "clouds": np.where(clouds, 1.2, known)}
    return Case(
        model.module, {"x": model.rows(CALIBRATION, 1).inputs},
        {name: {"x": np.asarray(one, np.float32)} for name, one in tried.items()},
    )  # fmt: skip


CASES: dict[str, Callable[[], Case]] = {case.__name__: case for case in (digits, series, lakes)}


def measured(case: Case, journal: Path | None = None) -> dict[str, Any]:
    """Seconds, errors and unsafe inputs of each kind under the three settings."""
    options = CompileOptions(target="cpu")
    prepared = prepare(case.model, case.data, options, progress)
    modest = find_strategy(DEFAULT).modest(options.budget)
    front = search(prepared, options, progress, pick=options.pick, budget=modest, journal=journal)
    picked, expert = options.pick(front), front.expert
    assert expert is not None
    found = distant(prepared, options, front, picked, progress)
    ranges = prepared.calibration
    points = {
        "picked": (picked, ranges),
        "distant": (found.point, with_room(ranges, found.room)),
        "is": (expert, ranges),
    }
    return {
        "settings": {
            name: {"seconds": point.seconds, **unsafe(case, prepared, front, point, of)}
            for name, (point, of) in points.items()
        },
        "allowed error": options.wanted(front).error,
        "errors": {name: point.error for name, (point, _) in points.items()},
        "room": found.room,
    }


def unsafe(
    case: Case, prepared: PreparedModel, front: Front, point: Point, ranges: Calibration
) -> dict[str, int]:
    """Number of unsafe inputs of each kind."""
    approximations = settings_approximations(
        prepared.module, point.settings, ranges, front.parametrisation
    )
    counts = {}
    for name, arrays in case.tried.items():
        validator = Validator(
            prepared.module, arrays, measure=front.measure, varying=front.variation
        )
        counts[name] = validator.measure(approximations, point.error).unsafe
    return counts


def fault(result: Mapping[str, Any]) -> str:
    """What is missed; empty if nothing is."""
    before, after = (dict(result["settings"][name]) for name in ("picked", "distant"))
    seconds = after.pop("seconds") / before.pop("seconds")
    if seconds > 1 + PRICE:
        return f"it costs {seconds - 1:.1%} more seconds"
    left, all_before = sum(after.values()), sum(before.values())
    return f"{left} of {all_before} unsafe inputs are left" if 2 * left > all_before else ""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", help=f"{', '.join(CASES)} [default: all]")
    parser.add_argument("--journals", type=Path, help="folder; searches go on from there")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    if unknown := sorted(set(chosen.models) - set(CASES)):
        parser.error(f"no such model: {unknown}")
    if chosen.journals is not None:
        chosen.journals.mkdir(parents=True, exist_ok=True)
    results = {}
    for name in chosen.models or CASES:
        journal = None if chosen.journals is None else chosen.journals / f"{name}.journal"
        result = results[name] = measured(CASES[name](), journal)
        if not chosen.json:
            columns = list(result["settings"]["picked"])
            rows = [
                [setting, result["errors"][setting], *(of[column] for column in columns)]
                for setting, of in result["settings"].items()
            ]
            print_table(["setting", "error", *columns], rows, title=f"{name}: unsafe of {INPUTS}")
    if chosen.json:
        print_json(results)
    faults = [f"{name}: {why}" for name, result in results.items() if (why := fault(result))]
    print("\n".join(faults))
    raise SystemExit(1 if faults else 0)


if __name__ == "__main__":
    main()
