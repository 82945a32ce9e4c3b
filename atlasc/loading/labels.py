"""True labels of inputs as numbers: classes by the model's own names, or values."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from atlasc.ir.final_functions import finished
from atlasc.loading.inputs import Inputs
from atlasc.simulation.agreement import Measure

THRESHOLD = 0.5
"""Probability from which on an input has a label, where each label counts by itself."""
LISTED = 5
"""Greatest number of class names that a message lists."""


@dataclass(frozen=True)
class Labels:
    """Labels of N inputs.

    Attributes:
        values: [N] class numbers, or values; NaN for inputs without a usable label.
        faults: row -> why its label cannot be used; inputs without a label are not listed.
    """

    values: np.ndarray
    faults: Mapping[int, str]

    @property
    def known(self) -> int:
        """Number of inputs with a usable label."""
        return int(np.isfinite(self.values).sum())


def labels_of(inputs: Inputs, config: Any, measure: Measure, outputs: int) -> Labels:
    """The labels of inputs, for a model.

    Args:
        inputs: the inputs with their labels.
        config: config of the model, with the names of its classes; None if it has no config.
        measure: "class" takes integers, and names in the config's ``label2id`` or ``id2label``;
            "values" takes numbers, if an answer is a single number.
        outputs: numbers in an answer; for classes, the number of classes.
    """
    given = [None] * len(inputs) if inputs.labels is None else inputs.labels.tolist()
    names = class_names(config)
    values, faults = np.full(len(given), np.nan), {}
    for row, label in enumerate(given):
        if _missing(label):
            continue
        if measure == "class":
            found, fault = _class(label, names, outputs)
        elif measure == "values" and outputs == 1:
            number = _number(label)
            found, fault = number, f"the label {label!r} is not a number" if number is None else ""
        else:
            fault = (
                f"the label {str(label)!r} cannot be compared with an answer of {outputs} numbers"
                + (" for each token" if measure == "tokens" else "")
            )
            found = None
        if found is None:
            faults[row] = fault
        else:
            values[row] = found
    return Labels(values, faults)


def class_names(config: Any) -> dict[str, int]:
    """Class name -> class number, from the config of a model."""
    found: dict[str, int] = {}
    for number, name in _entries(getattr(config, "id2label", None)):
        found[str(name)] = int(number)
    for name, number in _entries(getattr(config, "label2id", None)):
        found[str(name)] = int(number)
    return found


def names_of_classes(config: Any, count: int) -> list[str]:
    """The names of ``count`` classes; a class without a name in the config has its number."""
    known = {number: name for name, number in class_names(config).items()}
    return [known.get(number, str(number)) for number in range(count)]


def gives_several(config: Any) -> bool:
    """Whether each label of a model counts by itself, so that an input may have several."""
    return getattr(config, "problem_type", None) == "multi_label_classification"


def probabilities(values: np.ndarray, function: str | None) -> np.ndarray:
    """The probability of each label by itself, from answers [N, labels] after a final function."""
    return values if function == "sigmoid" else finished("sigmoid", values)


def several_labels(shares: np.ndarray, names: Sequence[str]) -> list[str | None]:
    """The labels of inputs with probabilities [N, labels]: all from ``THRESHOLD`` on, joined by
    commas; None without an answer.
    """
    return [
        None if np.isnan(row).any()
        else ", ".join(name for name, share in zip(names, row, strict=True) if share >= THRESHOLD)
        for row in shares
    ]  # fmt: skip


def _entries(table: Any) -> list[tuple[Any, Any]]:
    """Pairs from a table, as far as they are a name and a number in either order."""
    members = table.items() if isinstance(table, Mapping) else []
    return [
        (one, other)
        for one, other in members
        if any(str(value).isdecimal() and len(str(value)) < 9 for value in (one, other))
        and (str(one).isdecimal() or type(other) is int)
    ]


def _class(label: Any, names: Mapping[str, int], count: int) -> tuple[float | None, str]:
    number = names.get(label) if isinstance(label, str) else None
    if number is None and isinstance(label, str):
        alike = {n for name, n in names.items() if name.casefold() == label.strip().casefold()}
        number = alike.pop() if len(alike) == 1 else None
    if number is None and not names and isinstance(label, str):
        # The names that transformers gives to classes without names.
        label = re.sub(r"^LABEL_(?=\d{1,8}$)", "", label)
    if number is None:
        value = _number(label)
        number = int(value) if value is not None and value.is_integer() else None
    if number is None:
        listed = ", ".join(map(repr, list(names)[:LISTED])) + (
            ", ..." if len(names) > LISTED else ""
        )
        return None, f"the model has no class {label!r}" + (f"; it has {listed}" if names else "")
    if not 0 <= number < count:
        return None, f"the model has no class {number}; it has 0 to {count - 1}"
    return float(number), ""


def _number(label: Any) -> float | None:
    if not isinstance(label, bool | int | float | str):
        return None
    try:
        value = float(label)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def _missing(label: Any) -> bool:
    return label is None or label == "" or (isinstance(label, float) and math.isnan(label))
