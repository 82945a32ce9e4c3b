"""How far a family comes: loaded, traced, lowered, compiled; with the error of each stage."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import atlasc
from atlasc.ir.interpreter import interpret
from atlasc.loading.data import inputs_of
from atlasc.loading.loaded_model import LoadedModel
from atlasc.loading.model_files.huggingface import quiet_transformers
from atlasc.loading.models import load_model
from atlasc.passes.frontend.trace import trace
from benchmarks.families.models import LENGTH, Family

STAGES = ("load", "trace", "lower", "compile")
RECIPE = "is"
"""Settings of the stage ``lower``; the stage ``compile`` searches for its own."""
ANSWERED = 8
"""Inputs that are answered, of other values than those of calibration."""
SHORT = 5
"""Tokens of the shorter texts on which a module is compared."""
SEEDS = {"calibration": 0, "answers": 1}


@dataclass
class Outcome:
    """What became of a family.

    Attributes:
        reached: the stages that succeeded, in order.
        traced: greatest difference of the nn module from HuggingFace.
        packed: greatest difference of the packed simulation from the polynomials.
        answered: inputs that were answered, of `ANSWERED`; the others leave a range, and say so.
        answer: mean difference of these answers from HuggingFace, as a share of how the outputs
            vary (`variation`).
        chosen: the same on the inputs of the search: the error that was chosen.
        levels, bootstraps: of the lowered program.
        refusal: the error that ended it; empty if all stages succeeded.
    """

    reached: tuple[str, ...] = ()
    traced: float = float("nan")
    packed: float = float("nan")
    answered: int = 0
    answer: float = float("nan")
    chosen: float = float("nan")
    levels: int = 0
    bootstraps: int = 0
    refusal: str = ""


def attempt(family: Family, last: str) -> Outcome:
    """Take a family through the stages up to ``last``; the first error ends it."""
    outcome = Outcome()
    with TemporaryDirectory() as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from torch.export
        steps = _Attempt(family, Path(scratch), outcome)
        for stage in STAGES[: STAGES.index(last) + 1]:
            try:
                getattr(steps, stage)()
            except Exception as error:
                outcome.refusal = refusal_of(error)
                return outcome
            outcome.reached += (stage,)
    return outcome


def refusal_of(error: Exception) -> str:
    """The message of an error, without the places of this machine."""
    known = isinstance(error, atlasc.AtlasError)
    text = str(error) if known else f"{type(error).__name__}: {error}"
    return re.sub(r"/\S*/site-packages/", "", text)


class _Attempt:
    """The stages of one family; each one is a method, and reads what those before it left."""

    def __init__(self, family: Family, folder: Path, outcome: Outcome) -> None:
        self.family, self.folder, self.outcome = family, folder, outcome
        self.original = family.build()
        self.model: Any = None

    def load(self) -> None:
        """As a user loads it: from a folder, with data of another file."""
        with quiet_transformers():
            self.original.save_pretrained(self.folder / "model")
        self.model = load_model(self.folder / "model")

    def trace(self) -> None:
        """The nn module answers as HuggingFace does; of texts, at two lengths."""
        whole = self.family.inputs(2, SEEDS["answers"])
        shorter = {name: array[:, :SHORT] for name, array in whole.items()}
        loaded: LoadedModel = self.model
        errors = []
        for arrays in (whole, shorter) if self._length else (whole,):
            module = trace(loaded.module, arrays, name="tiny")
            found, expected = interpret(module, arrays), answers(self.original, arrays)
            errors += [
                float(np.abs(found[name] - expected[name])[_told(arrays, found[name])].max())
                for name in found
            ]
        self.outcome.traced = max(errors)

    def lower(self) -> None:
        """A program under a recipe; packed it computes what the polynomials do."""
        self._compiled(recipe=RECIPE, max_error=1e9)

    def compile(self) -> None:
        """A program without options of the settings."""
        self._compiled()

    def _compiled(self, **options: Any) -> None:
        data = inputs_of(self.family.inputs(), self.model, self._length)
        program = atlasc.compile(
            self.folder / "model", data, target="sim", sequence_length=self._length, **options
        )
        arrays = self.family.inputs(ANSWERED, SEEDS["answers"])
        ran, outcome = program.run(arrays), self.outcome
        expected, facts = answers(self.original, arrays), program.bundle.manifest
        varies, costs = facts.settings["variation"], facts.costs
        answered = [row for row in range(ANSWERED) if row not in ran.unanswered]
        some = {name: array[answered] for name, array in arrays.items()}
        apart = [
            float(np.abs(values[answered] - expected[name][answered])[_told(some, values)].mean())
            for name, values in ran.outputs.items()
        ]
        outcome.packed, outcome.answered = ran.max_error, len(answered)
        outcome.answer, outcome.chosen = max(apart) / varies, facts.settings["error"] / varies
        outcome.levels = int(costs["levels_total"])
        outcome.bootstraps = int(costs["bootstraps"])

    @property
    def _length(self) -> int | None:
        return LENGTH if self.family.kind == "ids" else None


def answers(model: Any, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs of the torch model."""
    import torch

    with torch.no_grad():
        outputs = model(**{name: torch.from_numpy(array) for name, array in arrays.items()})
    return {k: v.numpy() for k, v in outputs.items() if isinstance(v, torch.Tensor)}


def _told(arrays: Mapping[str, np.ndarray], values: np.ndarray) -> Any:
    """Which elements of an output count: not those of padding."""
    mask = arrays.get("attention_mask")
    return ... if mask is None or values.ndim < 3 else mask.astype(bool)
