"""Result-type rules shared by the op declarations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from atlasc.ir.bounds import MAX_TIMES
from atlasc.ir.opdef import RuleError, Site, require
from atlasc.ir.types import Side, TensorType


def tensor(site: Site, shape: tuple[int, ...]) -> TensorType:
    """Float tensor: encrypted if any operand is, else the client's if any operand is."""
    sides = {operand.side for operand in site.types}
    side: Side = "server" if "server" in sides else "client" if "client" in sides else "public"
    return TensorType(tuple(int(n) for n in shape), side)


def last_extent(site: Site) -> int:
    """Extent of the operand's last axis."""
    require(site.shape(), "the operand has no axes")
    return site.shape()[-1]


def over_last_axis(site: Site) -> TensorType:
    """Type of the first operand, which has a last axis."""
    last_extent(site)
    return same_as_first(site)


def same_as_first(site: Site) -> TensorType:
    """Type of the first operand, on the joint side."""
    return tensor(site, site.shape())


def broadcast(site: Site, *shapes: tuple[int, ...]) -> TensorType:
    """NumPy broadcasting of the operand shapes and of further shapes."""
    return tensor(site, broadcast_shapes(*(operand.shape for operand in site.types), *shapes))


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """NumPy broadcasting, or a RuleError."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise RuleError(f"shapes {' and '.join(map(str, shapes))} do not broadcast") from None


def constant_broadcast(*names: str) -> Callable[[Site], TensorType]:
    """Rule of an op whose constants, where given, must broadcast to its operand's shape."""

    def infer(site: Site) -> TensorType:
        for name in (name for name in names if name in site.attributes):
            shape = site.constant_shape(name)
            fits = broadcast(site, shape).shape == tuple(site.shape())
            require(fits, f"{name} of shape {shape} does not broadcast to {site.shape()}")
        return same_as_first(site)

    return infer


def check_bias(site: Site, outputs: int) -> None:
    """Refuse a bias of another shape than ``[outputs]``."""
    bias = site.constant_shape("bias") if "bias" in site.attributes else (outputs,)
    require(bias == (outputs,), f"bias has shape {bias}, not ({outputs},)")


def matrix_shape(site: Site, name: str) -> tuple[int, int]:
    """Shape of a matrix attribute."""
    shape = site.constant_shape(name)
    require(len(shape) == 2, f"{name} must be a matrix, not of shape {shape}")
    return shape[0], shape[1]


def check_times(site: Site) -> None:
    """Refuse doublings that no number survives."""
    times = site.attributes["times"]
    require(0 <= times <= MAX_TIMES, f"times = {times} is not from 0 to {MAX_TIMES}")


def check_query(site: Site, tokens: int) -> None:
    """Refuse a query that is none of the tokens, and a window without keys."""
    query = site.attributes.get("query", 0)
    require(0 <= query < tokens, f"query {query} is none of {tokens} tokens")
    window = site.attributes.get("window", 1)
    require(window >= 1, f"a window of {window} tokens has no key")


def check_score_bias(site: Site, scores: tuple[int, ...]) -> None:
    """Refuse a bias that does not broadcast to scores [heads, queries, keys]."""
    bias = site.constant_shape("bias") if "bias" in site.attributes else (1, 1, 1)
    fits = len(bias) == 3 and all(one in (1, n) for one, n in zip(bias, scores))
    require(fits, f"bias of shape {bias} does not broadcast to scores {scores}")


def check_slopes(site: Site, heads: int) -> None:
    """Refuse slopes that are not one a head, or that lack the mask whose tokens they count."""
    if "slopes" in site.attributes:
        shape = site.constant_shape("slopes")
        require(shape == (heads,), f"slopes of shape {shape} are not one for each of {heads} heads")
        public = any(getattr(one, "side", "") == "public" for one in site.types)
        require(public, "slopes count the tokens of a public mask")


def check_mask(mask: object, wanted: tuple[int, int]) -> None:
    """Refuse what is no public mask [batch, tokens] of these extents."""
    fits = isinstance(mask, TensorType) and mask.shape == wanted and mask.side != "server"
    require(fits, f"the mask must be a public tensor of shape {wanted}, not {mask}")


def check_position(site: Site, operand: int, batch: int) -> int:
    """The tokens of an operand that must be a public mask [batch, tokens]."""
    mask = site.types[operand]
    shape = mask.shape if isinstance(mask, TensorType) else ()
    require(len(shape) == 2, f"a mask must be [batch, tokens], not {mask}")
    check_mask(mask, (batch, shape[1]))
    return int(shape[1])


def keys_mask(site: Site) -> TensorType:
    """scores [B,H,queries,keys] with an optional public mask [B,keys]; type of the scores."""
    shape = site.shape()
    require(len(shape) == 4, f"scores must be [batch, heads, queries, keys], not {shape}")
    for mask in site.types[1:]:
        wanted = (shape[0], shape[3])
        require(mask.shape == wanted, f"mask has shape {mask.shape}, not {wanted}")
        require(mask.side != "server", "the mask must be public or on the client, not encrypted")
    check_query(site, shape[3])
    return TensorType(shape, site.types[0].side)
