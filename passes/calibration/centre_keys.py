"""``centre-keys``: adds a vector to all keys of a head, so that the sums of rows vary less.

A softmax over keys does not change if a function of the query is added to its row. A vector w that
is added to all keys of a head adds q·w to the row of query q. It is free, because it goes into the
bias of the keys' linear layer. w is chosen to cancel the part of the logarithm of the row's sum
that depends linearly on q. Outputs stay the same up to rounding; the ranges on which exp and 1/sqrt
must be approximated become smaller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from atlasc.calibration.calibrate import Calibration
from atlasc.calibration.measure import (
    HALVINGS,
    TEMPERATURES,
    blas_threads,
    chunk_size,
    input_count,
    nonlinear_ops,
    row_sums,
)
from atlasc.calibration.ranges import EXP_RANGE, LEAST_MARGIN
from atlasc.ir.interpreter import Interpreter
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Site, Symbol
from atlasc.ir.ops.masks import keep_mask
from atlasc.ir.rewriting import Rewriter
from atlasc.passes.calibration.calibrated_pass import CalibratedPass, other_model
from atlasc.passes.framework.pass_base import Report

RIDGE = 1e-4
"""Ridge added to the queries' second moments, as a share of their mean, so that directions in which
queries hardly vary stay as they are."""
FEWEST_INPUTS = 30
"""Least number of inputs; with fewer the vectors need not suit new inputs."""
MOST_INPUTS = 128
"""Greatest number of inputs; more do not help: on MiniLM 32 do nearly as well."""
SAMPLE = 32
"""Number of inputs whose rows are kept, to measure by how much their range shrinks."""
LEAST_RANGE = 1.0
"""Range of log-sums of rows below which keys need no centring."""
LEAST_GAIN = 0.1
"""Share by which the range must shrink; otherwise the keys stay as they are."""
SUFFIX = "_centred"
"""Suffix of the names of softmaxes with centred keys. Their scores differ, so a calibration of the
original module does not fit."""

MOVES = ("nn.reshape", "nn.transpose", "nn.repeat")
"""Ops that copy or move elements and do not change them."""

Shifts = Mapping[str, Sequence[float] | np.ndarray]
"""Result name of a softmax -> vector that is added to its keys: [outputs] of the linear layer that
makes the keys."""


@dataclass(frozen=True)
class CentreKeys(CalibratedPass):
    """Add to all keys of a head the vector that a calibration chose for it; outputs stay the same.

    Attributes:
        ranges: JSON file of a calibration; without it the pass does nothing.
    """

    name = "centre-keys"

    def changed(self, module: Module, calibration: Calibration, report: Report) -> Module:
        """Nn module to nn module."""
        for op in nonlinear_ops(module):
            if op.name == "nn.softmax" and op.value.name not in calibration.keys:
                report.say(f"{op.location}: the calibration leaves the keys as they are")
        return with_centred_keys(module, calibration.keys)


def with_centred_keys(module: Module, shifts: Shifts) -> Module:
    """A new module with the same outputs, with these vectors added to its keys.

    Keys that are already centred stay as they are.

    Raises:
        AtlasError: the vectors belong to another module.
    """
    done = {op.value.name for op in nonlinear_ops(module)}
    shifts = {name: shift for name, shift in shifts.items() if f"{name}{SUFFIX}" not in done}
    paths = {path.softmax.value.name: path for path in key_paths(module, Report())}
    rewriter, biases = Rewriter(module), {}
    for name, shift in shifts.items():
        linear = paths[name].linear if name in paths else None
        if linear is None or len(shift) != linear.value.tensor.shape[-1]:
            raise other_model(f"the keys of %{name} cannot be centred")
        weight = linear.attributes["weight"].name
        old = linear.attributes.get("bias", Symbol(f"{weight}.bias"))
        bias = np.asarray(shift) + module.symbols.get(old.name, 0)
        bias = bias.astype(module.symbols[weight].dtype)
        biases[linear] = {"bias": rewriter.module.constant(f"{old.name}.centred", bias)}
    for op in module.ops:
        attributes = {**op.attributes, **biases.get(op, {})}
        if op.result is not None and op.result.name in shifts:
            rewriter.values[op.result] = rewriter.module.add(
                op.name, rewriter.operands(op), attributes, op.location, f"{op.result.name}{SUFFIX}"
            )
        else:
            rewriter.copy(op, attributes=attributes)
    rewriter.module.symbols = rewriter.module.arrays_used()
    return rewriter.module


def key_shifts(
    module: Module,
    arrays: Mapping[str, np.ndarray],
    *,
    report: Report | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, np.ndarray]:
    """The vectors to add to the keys of each softmax so that the sums of its rows vary least.

    For every head the vector w minimises the squares of T_i - q_i·w - c over all rows i of all
    inputs, with one constant c for all heads (the softmax's shift), where T_i = 2^h log sum_j
    exp(score_ij / 2^h) + 2^h log(keys / visible keys). 2^h is the temperature of the first row sum
    of an iterative softmax with h + 1 iterations, the fewest that the widest row allows.

    Args:
        module: nn module.
        arrays: inputs by name, [N, ...]; fewer than 30 leave all keys as they are, of more than 128
            some are used.
        report: receives what was done for each softmax, or why not.
        progress: called with (inputs done, all used inputs).

    Raises:
        AtlasError: there are no inputs.
    """
    report = report or Report()
    count = input_count(module, arrays)
    if count < FEWEST_INPUTS:
        report.say(f"keys stay as they are, because {count} inputs are fewer than {FEWEST_INPUTS}")
        return {}
    some = np.linspace(0, count - 1, min(count, MOST_INPUTS)).astype(int)
    arrays = {name: array[some] for name, array in arrays.items()}
    shifts: dict[str, np.ndarray] = {}
    paths = key_paths(module, report)
    with blas_threads(1):
        solved = [one.solve() for one in _observe(module, paths, arrays, progress)]
    for path, (w, temperature, before, after) in zip(paths, solved, strict=True):
        done = before >= LEAST_RANGE and after <= (1 - LEAST_GAIN) * before
        if done:
            shift = np.zeros(path.linear.value.tensor.shape[-1])
            shift[path.features] = -w
            shifts[path.softmax.value.name] = shift
        report.say(
            f"{path.softmax.location}: keys {'centred' if done else 'stay as they are'}, at "
            f"temperature {temperature} the rows' log-sums have a range of {after:.3g} "
            f"instead of {before:.3g}"
        )
    return shifts


class Moments:
    """Sums over rows, which determine the least squares of one softmax at every temperature.

    Memory does not depend on the number of inputs.
    """

    def __init__(self, path: KeyPath) -> None:
        groups, width = path.features.shape
        self.path, self.rows, self.width = path, np.zeros(groups), 0.0
        self.second = np.zeros((groups, width, width))
        self.first = np.zeros((groups, width))
        self.products = np.zeros((HALVINGS + 1, groups, width))
        self.sums = np.zeros((HALVINGS + 1, groups))
        self.sample: list[tuple[np.ndarray, np.ndarray]] = []

    def add(
        self,
        queries: np.ndarray,
        scores: np.ndarray,
        keep: np.ndarray | None,
        own: np.ndarray | None = None,
    ) -> None:
        """Add queries [N, H, n, d] and scores [N, H, n, n] of some inputs; `keep` broadcasts to the
        scores. `own` [N, n] leaves out the queries of padding that copies a token: so many equal
        rows would outweigh all others.
        """
        least, top, sums = row_sums(scores, keep)
        some = np.isfinite(top)  # a query that sees no key has no row
        if own is not None:
            some &= own[:, None, :].astype(bool)
        self.width = max(self.width, float((top - least)[some].max(initial=0.0)))
        logs = (sums[..., 1 : HALVINGS + 2] + sums[..., :1]) * TEMPERATURES
        for head, group in enumerate(self.path.groups):
            rows = some[:, head]
            q = queries[:, head][rows] * self.path.gains[head]
            targets = logs[:, head][rows].astype(np.float64)
            self.rows[group] += len(q)
            self.second[group] += q.T @ q
            self.first[group] += q.sum(axis=0)
            self.products[:, group] += targets.T @ q
            self.sums[:, group] += targets.sum(axis=0)
        if sum(len(logs) for _, logs in self.sample) < SAMPLE:
            logs[~some] = np.nan
            kept = queries[:SAMPLE].astype(np.float32), logs[:SAMPLE].astype(np.float32)
            self.sample.append(kept)

    def solve(self) -> tuple[np.ndarray, int, float, float]:
        """The vectors w [G, d] that fit the log-sums, their temperature 2^h, and the ranges of the
        sample's log-sums without and with w.

        h = k - 1 for the least number k of iterations whose exponential holds the widest row.
        """
        widest = self.width * (1 + 2 * LEAST_MARGIN) / (EXP_RANGE[1] - EXP_RANGE[0])
        halvings = min(math.ceil(math.log2(max(widest, 2.0))) - 1, HALVINGS)
        width = self.first.shape[1]
        ridge = RIDGE * np.trace(self.second, axis1=1, axis2=2) / width
        ridge[ridge == 0] = 1.0  # queries that are zero predict nothing
        normal = self.second + ridge[:, None, None] * np.eye(width)
        right = np.stack([self.products[halvings], self.first], axis=-1)
        ahead, back = np.moveaxis(np.linalg.solve(normal, right), -1, 0)
        # w = ahead - c back; the constant c, common to all heads, makes the residuals' mean 0.
        total, rows = self.sums[halvings].sum(), self.rows.sum()
        free = max(rows - np.sum(self.first * back), 1e-12 * max(rows, 1.0))
        w = ahead - (total - np.sum(self.first * ahead)) / free * back
        logs = np.concatenate([logs[..., halvings] for _, logs in self.sample])
        factors = w[self.path.groups] * self.path.gains
        predicted = [np.einsum("nhid,hd->nhi", q, factors) for q, _ in self.sample]
        both = np.stack([logs, logs - np.concatenate(predicted)]).reshape(2, -1) / 2**halvings
        before, after = (np.nanmax(both, axis=1) - np.nanmin(both, axis=1)).tolist()
        return w, 2**halvings, before, after


def _observe(
    module: Module,
    paths: list[KeyPath],
    arrays: Mapping[str, np.ndarray],
    progress: Callable[[int, int], None] | None,
) -> list[Moments]:
    """Evaluate the cleartext model in float32, in chunks, and sum up what the paths need."""
    if not paths:
        return []
    filled = any(op.name == "nn.fill_padding" for op in module.ops)
    products = {path.scores: path for path in paths}
    moments = {path.softmax: Moments(path) for path in paths}
    queries: dict[KeyPath, np.ndarray] = {}

    def record(op: Op, site: Site, operands: list[np.ndarray]) -> None:
        if op in products:
            queries[products[op]] = operands[0]
        if op in moments:
            known, keep = moments[op], keep_mask(site, *operands)
            own = operands[1] if filled and len(operands) > 1 else None
            known.add(queries.pop(known.path).astype(np.float64), operands[0], keep, own)

    interpreter = Interpreter(module, np.float32, override=record)
    count, size = input_count(module, arrays), chunk_size(module)
    for start in range(0, count, size):
        with np.errstate(all="ignore"):
            interpreter.run({name: array[start : start + size] for name, array in arrays.items()})
        if progress is not None:
            progress(min(start + size, count), count)
    return list(moments.values())


@dataclass(frozen=True, eq=False)
class KeyPath:
    """Keys of one softmax that a bias can shift.

    Attributes:
        softmax, scores, linear: the softmax, the product of queries and keys, and the linear layer
            that makes the keys.
        groups: [H] group of each head, numbered from 0; heads of a group share their keys.
        features: [G, d] for each group, the outputs of the linear layer that are its keys.
        gains: [H, d] how much a bias of 1 changes the scores, for a query of 1.
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
    while scores.name in ("nn.scale", "nn.add_constant", "nn.add_positions"):
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
            raise _NoPathError("the keys are used elsewhere")
        above = keys.op
        if above.name == "nn.linear":
            break
        if above.name == "nn.rotary":
            raise _NoPathError("a rotary embedding rotates the keys by their positions")
        if above.name not in (*MOVES, "nn.scale", "nn.add_constant"):
            raise _NoPathError(f"the keys come from {above.name}, not from a linear layer")
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
            raise _NoPathError("its heads do not divide the features")
    return numbers[0, :, 0], factors[0, :, 0]
