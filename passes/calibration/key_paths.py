"""From the scores of a softmax back to the linear layer that makes its keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.passes.calibration.measure import nonlinear_ops
from atlasc.passes.framework.pass_base import Report

MOVES = ("nn.reshape", "nn.transpose", "nn.repeat")
"""Ops that copy or move elements and do not change them."""


@dataclass(frozen=True, eq=False)
class KeyPath:
    """Keys of one softmax that a bias can shift.

    Attributes:
        softmax, scores, linear: the softmax, the product of queries and keys, and the linear layer
            that makes the keys.
        groups: [H] which heads share their keys, numbered from 0.
        features: [G, d] for each group, the linear layer's outputs that are its keys.
        gains: [H, d] what a bias of 1 adds to the keys, times what that adds to the scores for a
            query of 1.
    """

    softmax: Op
    scores: Op
    linear: Op
    groups: np.ndarray
    features: np.ndarray
    gains: np.ndarray


class _NoPathError(Exception):
    """Why the keys of a softmax cannot be shifted."""


def key_paths(module: Module, report: Report) -> list[KeyPath]:
    """The softmaxes on encrypted data whose keys a bias can shift.

    The report says why others are left out.
    """
    users, found = module.users(), []
    for op in nonlinear_ops(module):
        if op.name == "nn.softmax":
            try:
                found.append(_path(module, op, users))
            except _NoPathError as error:
                report.say(f"{op.location}: keys stay as they are, {error}")
    return found


def _path(module: Module, softmax: Op, users: dict[Value, list[Op]]) -> KeyPath:
    factor = 1.0
    scores = softmax.operands[0].op
    while scores.name in ("nn.scale", "nn.add_constant"):
        if scores.name == "nn.scale":
            if isinstance(scores.attributes["factor"], Symbol):
                raise _NoPathError("its scores have different factors")
            factor *= scores.attributes["factor"]
        scores = scores.operands[0].op
    if scores.name != "nn.matmul" or len(scores.value.tensor.shape) != 4:
        raise _NoPathError(f"its scores come from {scores.name}, not from queries and keys")
    chain: list[Op] = []
    keys = scores.operands[1]
    while True:
        if len(users[keys]) != 1:
            raise _NoPathError("they are used elsewhere")
        above = keys.op
        if above.name == "nn.linear":
            break
        if above.name == "nn.rotary":
            raise _NoPathError("a rotary embedding rotates them by their positions")
        if above.name not in (*MOVES, "nn.scale", "nn.add_constant"):
            raise _NoPathError(f"they come from {above.name}, not from a linear layer")
        chain.append(above)
        keys = above.operands[0]
    features, gains = _moved(module, keys, chain[::-1], scores.attributes["transpose_b"])
    rows, groups = np.unique(features, axis=0, return_inverse=True)
    if len(np.unique(rows)) != rows.size:
        raise _NoPathError("its heads share a part of their features")
    return KeyPath(softmax, scores, above, groups.reshape(-1), rows, gains * factor)


def _moved(
    module: Module, made: Value, chain: list[Op], transpose_b: bool
) -> tuple[np.ndarray, np.ndarray]:
    """[H, d] the outputs of the linear layer that become the keys, and what each is multiplied by.

    The ops of the chain themselves move the numbers of the features and of the tokens.
    """
    shape = made.tensor.shape
    tokens = np.broadcast_to(np.arange(np.prod(shape[:-1])).reshape(*shape[:-1], 1), shape)
    numbers = np.broadcast_to(np.arange(shape[-1]), shape)
    factors: np.ndarray = np.ones(shape)
    for op in chain:
        site, evaluate = op.site(module.symbols), op.definition.evaluate
        assert evaluate is not None
        if op.name in MOVES:
            tokens, numbers = evaluate(site, tokens), evaluate(site, numbers)
        if op.name != "nn.add_constant":
            factors = evaluate(site, factors)
    arrays: list[np.ndarray] = [tokens, numbers, factors]
    if not transpose_b:
        arrays = [np.swapaxes(array, -1, -2) for array in arrays]
    tokens, numbers, factors = arrays
    batch, _, length, _ = tokens.shape
    in_order = np.arange(batch * length).reshape(batch, 1, length, 1)
    for array, expected in zip(arrays, (in_order, numbers[:1, :, :1], factors[:1, :, :1])):
        if not np.array_equal(array, np.broadcast_to(expected, array.shape)):
            raise _NoPathError("its heads are no division of the features")
    return numbers[0, :, 0], factors[0, :, 0]
