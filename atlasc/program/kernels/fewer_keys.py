"""Linear transforms with fewer rotation keys, for a client that may send few bytes.

A step of a ``transform`` takes a key of its own. Three changes need fewer amounts, and give the
same results:

* Baby steps are halved: the upper half rotates the operand once, and then goes on as the lower half
  does. That is a rotation and a decomposition more for each operand.
* Giant steps of a result are a chain, where their differences are fewer amounts (Horner's rule).
* A result with one giant step is rotated after the transform. Such a rotation may be composed of
  others (:mod:`atlasc.program.rotation_plan`).
"""

from __future__ import annotations

from math import gcd
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from atlasc.program.transform_work import chain_amounts


class FewerKeys(NamedTuple):
    """The changed terms of a transform.

    Attributes:
        places: result, giant step, operand and baby step of each term, ``[terms, 4]``.
        turn: rotation of all operands, which are operands once more behind themselves; 0: none.
        chained: see `Engine.transform`.
        after: rotation of each result.
    """

    places: NDArray[Any]
    turn: int
    chained: bool
    after: list[int]


def with_fewer_keys(places: NDArray[Any], operands: int, slots: int) -> FewerKeys:
    """Terms that need fewer amounts.

    Args:
        places: as in the result; terms of one sum are neighbours.
        operands: number of operands.
        slots: slots of a ciphertext.
    """
    result, giant, operand, baby = places.T
    giant, baby = giant % slots, baby % slots
    turn = _half(baby, slots)
    upper = (turn > 0) & (baby >= turn)
    operand, baby = operand + operands * upper, np.where(upper, baby - turn, baby)
    count = 1 + int(result.max())
    steps = [list(dict.fromkeys(giant[result == one].tolist())) for one in range(count)]
    after = [some[0] if len(some) == 1 else 0 for some in steps]
    giant = np.where(np.array([len(some) == 1 for some in steps])[result], 0, giant)
    several = [some for some in steps if len(some) > 1]
    own = {amount for some in several for amount in some} - {0}
    linked = {amount for some in several for amount in chain_amounts(some, slots)} - {0}
    changed = np.stack([result, giant, operand, baby], axis=1)
    return FewerKeys(changed, turn, len(linked) < len(own), after)


def _half(baby: NDArray[Any], slots: int) -> int:
    """What divides the amounts of baby steps into halves of which the upper one repeats the lower
    one, or a part of it; 0 if that saves no key.
    """
    amounts = np.unique(baby)
    step = gcd(slots, *amounts.tolist())
    half = step << (int(amounts.max()) // step).bit_length() - 1 if amounts.max() else 0
    lower = {int(one) % half for one in amounts} - {0} if half else set()
    return half if len(lower) + 1 < len({*amounts.tolist()} - {0}) else 0
