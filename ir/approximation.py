"""The value of an op's attribute ``approximation``: an algorithm with its degrees and ranges.

The algorithms themselves belong to packages above the IR (``atlasc/polynomials``, plug-ins). The IR
checks, prints and reads their descriptions without knowing any of them.
"""

from __future__ import annotations

import dataclasses
from abc import ABC
from typing import Any, ClassVar

import numpy as np


class ApproximationAttribute(ABC):
    """Describes how polynomials replace a nonlinear op. Subclasses are frozen dataclasses.

    Attributes:
        family: of the ops that it replaces: "softmax", "norm" or "activation".
        algorithm: its name, unique in its family.
    """

    family: ClassVar[str]
    algorithm: ClassVar[str]

    def fields_set(self) -> dict[str, Any]:
        """The fields of the dataclass that are not None, by name."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        values = {field.name: getattr(self, field.name) for field in fields}
        return {name: value for name, value in values.items() if value is not None}

    def entries(self) -> dict[str, Any]:
        """The text form as a dictionary: the algorithm, then the fields that are set.

        Tuples are lists. Arrays stay arrays: the text refers to them by symbols.
        """
        entries = {name: _plain(value) for name, value in self.fields_set().items()}
        return {"algorithm": self.algorithm, **entries}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
