"""The tokens and channels of a model that stand out, and what they cost."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from atlasc.calibration.calibrate import Outlier
from atlasc.calibration.streams import Streams, token_norms
from atlasc.ir.module import Module
from atlasc.passes.calibration.scale_tokens import APART, Factors
from atlasc.polynomials.range_levels import levels_of_inverse_root

MOST = 8
"""Greatest number of channels that are named."""


def outliers(module: Module, streams: Streams, factors: Factors) -> tuple[Outlier, ...]:
    """The kinds of tokens and the channels that reach `APART` times the median one before a norm.

    Args:
        module: nn module.
        streams: what goes into its norms, before the factors.
        factors: factors of tokens before norms (see `scale_tokens`).
    """
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    filled = any(op.name == "nn.fill_padding" for op in module.ops)
    kinds = _kinds(streams.kept, filled)
    for op in token_norms(module):
        name, epsilon = op.value.name, op.attributes["epsilon"]
        squares, channels = streams.squares[name], streams.channels[name]
        seen = squares * np.square(np.asarray(factors.get(name, 1.0))) + epsilon
        middle = float(np.median(squares[streams.kept]))
        for kind, where in kinds.items():
            if not where.any() or squares[where].max() < APART * middle:
                continue
            others = np.any([w for k, w in kinds.items() if k != kind], axis=0)
            more = _levels(seen, others | where) - _levels(seen, others)
            factor = float(np.broadcast_to(factors.get(name, 1.0), where.shape)[where].min())
            found[kind].append({
                "location": op.location, "factor": float(squares[where].max() / middle),
                "scaled": factor < 1, "levels": more,
            })  # fmt: skip
        usual = float(np.median(channels))
        for channel in np.flatnonzero(channels >= APART * usual) if usual else ():
            times = float(channels[channel] / usual)
            found[f"channel {channel}"].append({"location": op.location, "factor": times})
    named = [_outlier(what, places) for what, places in found.items()]
    tokens = [one for one in named if one.bits is None]
    channels_found = sorted((one for one in named if one.bits), key=lambda one: -one.factor)
    return (*tokens, *channels_found[:MOST])


def _outlier(what: str, places: list[dict[str, Any]]) -> Outlier:
    most = max(places, key=lambda place: place["factor"])
    channel = what.startswith("channel")
    return Outlier(
        what=what,
        location=most["location"],
        factor=most["factor"],
        norms=len(places),
        scaled=sum(place.get("scaled", False) for place in places),
        levels=None if channel else sum(place["levels"] for place in places),
        bits=float(np.log2(most["factor"])) if channel else None,
    )


def _kinds(kept: np.ndarray, filled: bool) -> dict[str, np.ndarray]:
    """Kind of token -> where it is, [N, n]. Padding that copies a token has no kind of its own."""
    order = np.cumsum(kept, axis=1)
    first = kept & (order == 1)
    last = kept & (order == order[:, -1:]) & ~first
    kinds = {"first token": first, "last token": last, "another token": kept & ~first & ~last}
    return kinds if filled else {**kinds, "padding": ~kept}


def _levels(seen: np.ndarray, where: np.ndarray) -> int:
    """Levels of a polynomial for 1/sqrt on the values at some places; 0 without any."""
    return levels_of_inverse_root(seen[where].min(), seen[where].max()) if where.any() else 0
