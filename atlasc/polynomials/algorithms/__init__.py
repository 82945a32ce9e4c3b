"""The approximation algorithms, and the way back from an op's attribute to its approximation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from types import ModuleType
from typing import Any, get_type_hints

import numpy as np

from atlasc.ir.bounds import MAX_COEFFICIENTS
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Op
from atlasc.ir.opdef import Symbol
from atlasc.ir.plugins import loaded, plugins
from atlasc.polynomials.algorithms import chebyshev
from atlasc.polynomials.description import Approximation, family_of

GROUP = "atlasc.algorithms"
"""Entry points that are modules with approximations."""


@cache
def algorithms() -> dict[tuple[str, str], type[Approximation]]:
    """By family and name: those of this package, and of installed ones.

    Raises:
        AtlasError: an installed package's cannot be used.
    """
    further = [loaded(entry, _no_module) for entry in plugins(GROUP).values()]
    return {
        (cls.family, cls.algorithm): cls
        for module in (*further, chebyshev)
        for cls in vars(module).values()
        if isinstance(cls, type) and issubclass(cls, Approximation) and "algorithm" in vars(cls)
    }


def _no_module(found: object) -> str:
    return "" if isinstance(found, ModuleType) else "it is no module"


def carried_by(op: Op, symbols: Mapping[str, np.ndarray]) -> Approximation:
    """The approximation in an op's `approximation` attribute.

    Raises:
        AtlasError: the op carries none, or one that `from_attribute` refuses.
    """
    if "approximation" not in op.attributes:
        raise AtlasError(
            f"{op.name} has no approximation",
            where=op.location,
            why="under CKKS only polynomials can be evaluated",
            remedy="apply a recipe or a search result first",
        )
    return from_attribute(op.name, op.attributes["approximation"], symbols)


def from_attribute(
    op_name: str, attribute: dict[str, Any], symbols: Mapping[str, np.ndarray] | None = None
) -> Approximation:
    """The approximation that an `approximation` attribute stands for; its arrays are symbols.

    Raises:
        AtlasError: an unknown algorithm, an unknown or missing entry, or a value out of range.
    """
    family, entries = family_of(op_name), dict(attribute)
    algorithm = entries.pop("algorithm", None)
    cls = algorithms().get((family, algorithm)) if isinstance(algorithm, str) else None
    if cls is None:
        known = sorted(name for of, name in algorithms() if of == family)
        raise AtlasError(
            f"{op_name} knows no approximation algorithm {algorithm!r}",
            remedy=f"use one of {', '.join(known)}; those of published systems are in the package "
            "atlasc-comparisons (plugins/)",
        )
    names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    unknown = sorted(set(entries) - set(names))
    if unknown:
        raise AtlasError(
            f"the approximation {algorithm!r} of {op_name} has no entry {unknown[0]!r}",
            remedy=f"its entries are {', '.join(names)}",
        )
    try:
        hints = get_type_hints(cls)
        for name, value in entries.items():
            if hints[name] is int and type(value) is not int:
                raise ValueError(f"{name} is not an integer")
            entries[name] = _checked(name, value, symbols or {})
        return cls(**entries)
    except (TypeError, ValueError) as error:
        raise AtlasError(
            f"the approximation {algorithm!r} of {op_name} is not complete, or not right",
            why=str(error),
        ) from None


def _checked(name: str, value: Any, symbols: Mapping[str, np.ndarray]) -> Any:
    """Lists become tuples and symbols arrays. Integers are degrees and counts: a large one would
    be fitted for days.
    """
    if isinstance(value, int) and abs(value) >= MAX_COEFFICIENTS:
        raise ValueError(f"{name} is {value}, more than {MAX_COEFFICIENTS - 1}")
    if isinstance(value, list | tuple):
        return tuple(_checked(name, item, symbols) for item in value)
    return symbols[value.name] if isinstance(value, Symbol) else value
