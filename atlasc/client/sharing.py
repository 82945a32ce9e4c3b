"""Answers that may be passed on: decrypted numbers with noise that hides the secret key.

The runtime library computes the noise, draws it and rounds (``atlasc/sharing.hpp``, which has the
analysis and its sources), for this client as for that of an emitted C++ project.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from atlasc.client.checks import Answers
from atlasc.runtime.interface import Interface
from atlasc.runtime.native import load_library, translated

BITS = 30
"""kappa, at least: ``LEAST_BITS`` of the library, for defaults before it is loaded."""


class Flood(NamedTuple):
    """The noise and the rounding of one output.

    Attributes:
        deviation: standard deviation of the noise, in units of the answer.
        decimals: places after the point that are kept; negative: rounded before the point.
        digits: decimal digits of the greatest magnitude that are left.
    """

    deviation: float
    decimals: int
    digits: int


@dataclass(frozen=True, repr=False)
class SharedAnswers(Answers):
    """Answers that may be passed on, with noise and rounded; no outputs where an answer of the
    batch is refused.

    Attributes:
        flooding: the noise of each output.
        number: how many answers these keys have shared, this one included.
    """

    flooding: dict[str, Flood]
    number: int


def floods(interface: Interface, count: int, bits: int = BITS, shares: int = 1) -> dict[str, Flood]:
    """By output name of a program; empty where it has no bound.

    The answers to ``count`` inputs are passed on together, at kappa ``bits``, as one of tau
    ``shares`` under one key.
    """
    return named_floods(load_library().floods(interface, count, bits, shares))


def safe_digits(interface: Interface) -> int | None:
    """Digits of one input's answer that may be passed on; None where the program has no bound."""
    return min((flood.digits for flood in floods(interface, 1).values()), default=None)


def require_digits(
    interface: Interface, count: int, bits: int = BITS, shares: int = 1
) -> dict[str, Flood]:
    """``floods``, checked before anything is decrypted.

    Raises:
        AtlasError: too few bits, no bound, or an output of which no digit is left.
    """
    with translated():
        found = load_library().require_digits(interface, count, bits, shares)
    return named_floods(found)


def named_floods(found: Mapping[str, tuple[Any, ...]]) -> dict[str, Flood]:
    """What the library says of outputs."""
    return {name: Flood(*numbers) for name, numbers in found.items()}
