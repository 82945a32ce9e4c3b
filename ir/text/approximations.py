"""Approximations in the text form: ``{algorithm = "chebyshev", degree = 15, range = [-4.0, 4.0]}``.

Arrays of an approximation are symbols in the text, and are stored beside it.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Iterable, Mapping
from functools import cache
from types import ModuleType
from typing import Any, ClassVar, get_origin, get_type_hints

import numpy as np
from pydantic import ConfigDict, InstanceOf, TypeAdapter, ValidationError

from atlasc.ir.approximation import ApproximationAttribute
from atlasc.ir.bounds import MAX_COEFFICIENTS
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Op, family_of
from atlasc.ir.opdef import Symbol
from atlasc.ir.plugins import loaded, misnamed, plugins

GROUP = "atlasc.algorithms"
"""Entry points that are modules with approximations; atlasc declares its own like any package."""
NAME = r"[a-z][a-z0-9_ -]{0,62}"
"""The names of algorithms, which stand in programs."""


@cache
def algorithms() -> dict[tuple[str, str], type[ApproximationAttribute]]:
    """The classes of all installed approximations, by family and algorithm.

    Raises:
        AtlasError: a package's module cannot be used, or two packages have the same algorithm.
    """
    found: dict[tuple[str, str], type[ApproximationAttribute]] = {}
    for entry in plugins(GROUP).values():
        for cls in _classes(loaded(entry, _fault)):
            other = found.setdefault((cls.family, cls.algorithm), cls)
            if other is not cls:
                raise AtlasError(
                    f"two packages have the {cls.family} algorithm {cls.algorithm!r}",
                    why=f"{cls.__module__} and {other.__module__}",
                    remedy="uninstall one of them",
                )
    return found


def _classes(module: ModuleType) -> list[type[ApproximationAttribute]]:
    """The approximations of a module: classes that name an algorithm of their own."""
    classes = (found for found in vars(module).values() if isinstance(found, type))
    return [
        cls
        for cls in classes
        if issubclass(cls, ApproximationAttribute) and "algorithm" in vars(cls)
    ]


def _fault(found: object) -> str:
    """Why the object of a plug-in is no module of approximations; empty if it is."""
    if not isinstance(found, ModuleType):
        return "it is no module"
    faults = (
        f"{cls.__name__}: {why}"
        for cls in _classes(found)
        if (why := misnamed(cls.algorithm, NAME))
    )
    return next(faults, "")


def read_approximation(
    op_name: str, entries: Mapping[str, Any], symbols: Mapping[str, np.ndarray] | None = None
) -> ApproximationAttribute:
    """The approximation of an op from the entries of its text form.

    Args:
        op_name: such as ``nn.gelu``.
        symbols: the arrays that symbols in the entries name.

    Raises:
        AtlasError: the op takes none; an unknown algorithm; an unknown or missing entry, or one
            that is out of range.
    """
    family, rest = family_of(op_name), dict(entries)
    algorithm = rest.pop("algorithm", None)
    cls = algorithms().get((family, algorithm)) if isinstance(algorithm, str) else None
    if cls is None:
        known = sorted(name for of, name in algorithms() if of == family)
        raise AtlasError(
            f"{op_name} knows no approximation algorithm {algorithm!r}",
            remedy=f"use one of {', '.join(known)}; those of published systems are in the package "
            "atlasc-comparisons (plugins/)",
        )
    names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    unknown = sorted(set(rest) - set(names))
    if unknown:
        raise AtlasError(
            f"the approximation {algorithm!r} of {op_name} has no entry {unknown[0]!r}",
            remedy=f"its entries are {', '.join(names)}",
        )
    try:
        checks = _checks(cls)
        return cls(
            **{name: _field(name, v, symbols or {}, checks[name]) for name, v in rest.items()}
        )
    except (TypeError, ValueError) as error:
        raise AtlasError(
            f"the approximation {algorithm!r} of {op_name} is not complete, or not right",
            why=str(error),
        ) from None


@cache
def _checks(cls: type[ApproximationAttribute]) -> dict[str, TypeAdapter[Any]]:
    """Checks of the fields of an approximation, by their declared types."""
    strict = ConfigDict(strict=True)
    return {
        name: TypeAdapter(InstanceOf[np.ndarray])
        if get_origin(hint) is np.ndarray
        else TypeAdapter(hint, config=strict)
        for name, hint in get_type_hints(cls).items()
        if get_origin(hint) is not ClassVar
    }


def _field(
    name: str, value: Any, symbols: Mapping[str, np.ndarray], check: TypeAdapter[Any]
) -> Any:
    """A field from its entry; a ValueError says what is wrong with it."""
    plain = _plain(name, value, symbols)
    try:
        return check.validate_python(plain)
    except ValidationError as error:
        message = error.errors()[0]["msg"]
        raise ValueError(f"{name} is {reprlib.repr(value)}: {message}") from None


def _plain(name: str, value: Any, symbols: Mapping[str, np.ndarray]) -> Any:
    """Lists become tuples and symbols arrays. Integers are degrees and counts: a large one would
    be fitted for days.
    """
    if isinstance(value, int) and abs(value) >= MAX_COEFFICIENTS:
        raise ValueError(f"{name} is {value}, more than {MAX_COEFFICIENTS - 1}")
    if isinstance(value, list | tuple):
        return tuple(_plain(name, item, symbols) for item in value)
    if not isinstance(value, Symbol):
        return value
    if value.name not in symbols:
        raise ValueError(f"the array {value} is missing")
    return np.asarray(symbols[value.name])


Stored = dict[str, tuple[Symbol, np.ndarray]]
"""Arrays of an approximation with their symbols, by entry."""


def approximation_arrays(ops: Iterable[Op], taken: Iterable[str] = ()) -> dict[Op, Stored]:
    """The arrays of the approximations of ops, by op, under symbols that start with the op's result
    (``@gelu_3.coefficients``) and are not taken.
    """
    taken, found = set(taken), dict[Op, Stored]()
    for op in ops:
        carried = op.attributes.get("approximation")
        for entry, value in () if carried is None else carried.fields_set().items():
            if isinstance(value, np.ndarray):
                name = f"{op.value.name}.{entry}"
                while name in taken:
                    name += "_"
                taken.add(name)
                found.setdefault(op, {})[entry] = Symbol(name), value
    return found
