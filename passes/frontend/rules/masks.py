"""Masks: a softmax that drops keys.

The meaning of a mask is not derived from its expression. The expression is evaluated on probes, and
must drop whole keys. Tokens that a mask keeps are read in ``pooling``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from atlasc.ir.bounds import line_of
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Value
from atlasc.ir.ops.masks import positions, visible
from atlasc.passes.frontend.exported.constants import evaluate, to_numpy
from atlasc.passes.frontend.exported.graph import (
    PUBLIC_INPUT,
    Node,
    is_node,
    place,
    shape,
)
from atlasc.passes.frontend.exported.positions import probe_masks, require_texts
from atlasc.passes.frontend.importer import Importer, Refusal

if TYPE_CHECKING:
    import torch

SAME = 1e-6  # share of what is added to scores by which roundings change it
DROPPED = -1e4  # what is added to scores drops a key, at or below this
SOFTMAX_ELSEWHERE = (
    "only the softmax over the keys of attention is compiled, and one along the last axis at the "
    "very end of the model, which the client applies: return the logits"
)
PRIVATE_BIAS = (
    "only a constant is added to scores of attention, or a product with the queries: "
    "h @ k.mT + h @ r.mT is h @ (k + r).mT; this bias is computed from private values"
)

MASKED_SCORES = ("scores + mask", "masked_fill(scores, dropped, low)", "where(mask, scores, low)")
"""Forms in which models put a mask into scores; a True in ``dropped`` drops a key."""


class Meaning(NamedTuple):
    """What a mask does to scores: with ``by_mask``, it drops key j of sentence b if the public
    mask[b, j] is 0; with ``causal``, key j for a query i < j; with a ``window``, keys that are so
    many tokens away or more. It adds a ``bias`` to the others: [heads, queries, keys] or with 1 in
    their place; or ``slopes``, [heads], times the place of a key among those that the mask keeps.
    """

    by_mask: bool
    causal: bool
    window: int = 0
    bias: np.ndarray | None = None
    slopes: np.ndarray | None = None

    def fits(self, mask: np.ndarray, found: np.ndarray) -> bool:
        """Whether it keeps what was found under a public mask, [batch, heads, queries, keys].

        Under a window, what queries of padding see is not compared: nothing reads them.
        """
        queries, keys = (np.arange(extent) for extent in found.shape[2:])
        keep = visible(queries, keys, self.causal, self.window)
        if self.by_mask:
            keep = keep & mask.astype(bool)[:, None, None, :]
        differs = np.broadcast_to(keep, found.shape) != found
        if self.window and self.by_mask:
            differs = differs & mask.astype(bool)[:, None, :, None]
        return not differs.any()

    @property
    def attributes(self) -> dict[str, Any]:
        """Of the softmax."""
        return {"causal": self.causal or None, "window": self.window or None}


def drops_keys(importer: Importer, mask: Any, low: Any) -> bool:
    """Whether a mask of scores drops keys; it writes ``low`` to keys, or is added if ``low`` is
    None.

    A constant that only adds small values (a position bias) is no mask and stays a sum.
    """
    if low is None:  # a sum
        known = importer.kinds[mask] == "constant" and not importer.is_absent(mask)
        drops = known and not _parts(importer.tensor(mask)).keep.all()
        return importer.kinds[mask] == "mask" or drops
    if is_node(low):
        known = importer.kinds[low] == "constant" and not importer.is_absent(low)
        array = importer.array(low) if known else np.empty(0)
        low = array.max() if array.size else np.inf
    return bool(low <= DROPPED)


def emit_softmax(
    importer: Importer,
    scores: Node | Value,
    mask: Node | None = None,
    inverted: bool = False,
    causal: bool = False,
    zero: Node | None = None,
) -> Value:
    """Emit nn.softmax with the mask operand and the causal attribute that a mask means.

    With ``inverted``, a True in the mask drops a key. With ``zero`` the mask is what an expression
    of scores becomes if this private node is 0. Raises as ``meaning``.
    """
    value = importer.value(scores)
    _require_scores(value)
    extents = value.tensor.shape
    source = value.op
    while source.name not in ("nn.linear", "nn.matmul") and source.operands:
        source = source.operands[0].op
    if len(extents) not in (3, 4) or (len(extents) == 3 and source.name == "nn.linear"):
        raise Refusal(SOFTMAX_ELSEWHERE)  # of features, or of scores that pool no tokens
    if len(extents) == 3:  # batch and heads share one axis
        batch = importer.batch
        apart = [batch, extents[0] // batch, *extents[1:]]
        value = importer.add("nn.reshape", value, shape=apart)
        weights = _emit(importer, value, mask, inverted, causal, zero)
        return importer.add("nn.reshape", weights, shape=list(extents))
    return _emit(importer, value, mask, inverted, causal, zero)


def _require_scores(value: Value) -> None:
    """Refuse a softmax of other values than products of queries and keys, beside constants."""
    if not _has_product(value):
        raise Refusal(SOFTMAX_ELSEWHERE)
    while value.op.name != "nn.matmul":
        if len(value.op.operands) > 1 and value.op.name != "nn.add_positions":
            bias = next((v for v in value.op.operands if not _has_product(v)), value)
            raise Refusal(f"{PRIVATE_BIAS}, at {line_of(bias.op.location)}")
        value = value.op.operands[0]


def _has_product(value: Value) -> bool:
    """Whether a product of private values is a part of a value, with no layer in between."""
    if value.op.name in ("nn.matmul", "nn.linear"):
        return value.op.name == "nn.matmul"
    return any(map(_has_product, value.op.operands))


def _emit(
    importer: Importer,
    value: Value,
    mask: Node | None,
    inverted: bool,
    causal: bool,
    zero: Node | None,
) -> Value:
    public = importer.mask_input
    if mask is None:
        return importer.add("nn.softmax", value, causal=causal or None)
    if zero is None:
        _require_public(importer, mask)
    key = (mask, inverted, value.tensor.shape)
    if key not in importer.mask_meanings:

        def masked(probe: np.ndarray) -> torch.Tensor:
            import torch

            inputs = {} if public is None else {public: torch.from_numpy(probe)}
            if zero is not None:
                inputs[zero] = torch.zeros(shape(zero), dtype=zero.meta["val"].dtype)
            tensor = evaluate(mask, {**importer.known, **inputs})
            if tensor.is_meta:  # it adds weights that are absent
                tensor = evaluate(mask, {**importer.with_ones(), **inputs})
            batch, *others, keys = value.tensor.shape
            if others[-1] == 1 and tensor.ndim < 4 and tensor.numel() == batch * keys:
                tensor = tensor.reshape(batch, 1, 1, keys)  # a mask of tokens
            if tensor.ndim == 3:  # batch and heads share one axis, or it is of heads alone
                shared = len(tensor) == math.prod(value.tensor.shape[:2])
                first = value.tensor.shape[:2] if shared else (1, len(tensor))
                tensor = tensor.reshape(*first, *tensor.shape[1:])
            return ~tensor if inverted else tensor

        if public is not None:
            require_texts(public, importer.node)
        depends = public is not None and importer.kinds[mask] != "constant"
        probes = probe_masks(*shape(public)) if public is not None and depends else []
        where = place(importer.node)
        importer.mask_meanings[key] = meaning(masked, probes, value.tensor.shape, where)
    found = importer.mask_meanings[key]
    if found.bias is not None:
        bias = importer.constant("scores.bias", found.bias)
        value = importer.add("nn.add_constant", value, value=bias)
    if found.slopes is not None and public is not None:
        slopes = importer.constant("scores.slopes", found.slopes)
        value = importer.add("nn.add_positions", value, importer.input(public), slopes=slopes)
    operands = [importer.input(public)] if public is not None and found.by_mask else []
    found = found._replace(causal=causal or found.causal)
    return importer.add("nn.softmax", value, *operands, **found.attributes)


def _require_public(importer: Importer, mask: Node) -> None:
    """Refuse a mask that is computed from a private input: the server must know it.

    Raises:
        AtlasError: it is; it names the input, and what may be public.
    """
    if importer.kinds[mask] in ("constant", "mask"):
        return
    pending, seen = [mask], set[Node]()
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            pending += node.all_input_nodes
    private = [n for one, n in importer.inputs.items() if one in seen and n != PUBLIC_INPUT]
    raise AtlasError(
        f"an attention mask is computed from the private input {', '.join(private)}",
        where=place(mask),
        why=f"the server must know which keys are padding, and only an input called {PUBLIC_INPUT} "
        "is public",
        remedy=f"let forward take {PUBLIC_INPUT}, which is 1 for each real token, and write "
        f"{PUBLIC_INPUT} == 0 for what is true at padding; texts have it by themselves, and beside "
        f"arrays of ids give it as an array: ids != 0",
    )


def zeros_in_padding(importer: Importer, *operands: Node) -> Value | None:
    """x · mask[..., None] with a public mask writes zeros: the client does, or nobody needs them
    (`without_zeros`). None for other products.
    """
    import torch

    public = importer.mask_input
    kinds = [importer.kinds[one] for one in operands]
    if public is None or sorted(kinds) != ["data", "mask"]:
        return None
    x, mask = operands if kinds[0] == "data" else operands[::-1]
    if len(shape(x)) != 3 or shape(public) != shape(x)[:2]:
        return None
    for probe in probe_masks(*shape(public)):
        found = evaluate(mask, {**importer.known, public: torch.from_numpy(probe)})
        wide = torch.broadcast_to(found, shape(x)) if found.ndim <= 3 else None
        if wide is None or not np.array_equal(to_numpy(wide)[..., 0], probe):
            return None
        if (wide != wide[..., :1]).any():
            return None
    importer.zeroed.append(place(importer.node))
    return importer.add("nn.zero_padding", x, importer.input(public))


class _Parts(NamedTuple):
    """A boolean or additive mask: the keys that it keeps, and what it adds to their scores; of both
    [batch, heads, queries, keys] or with 1 in their place.
    """

    keep: np.ndarray
    added: np.ndarray


def _parts(tensor: torch.Tensor) -> _Parts:
    array = to_numpy(tensor)
    array = array.reshape((1,) * (4 - array.ndim) + array.shape)
    if array.dtype == bool:
        return _Parts(array, np.zeros((1, 1, 1, 1), np.float32))
    keep = array > DROPPED
    return _Parts(keep, np.where(keep, array, 0).astype(np.float32))


def meaning(
    evaluate: Callable[[np.ndarray], torch.Tensor],
    probes: Sequence[np.ndarray],
    scores: tuple[int, ...],
    where: str,
) -> Meaning:
    """Meaning of a mask expression.

    Args:
        evaluate: gives the boolean or additive mask for a public mask, broadcastable to the scores.
        probes: public masks to evaluate; none if the mask is constant.
        scores: shape [batch, heads, queries, keys].
        where: place of the mask, for messages.

    Raises:
        AtlasError: the mask does more than to drop keys by the public mask, causality and a window,
            and to add constants, or slopes times places (ALiBi).
    """
    by_mask = (False, True) if probes else (False,)
    candidates = list[Meaning]()
    bias: _Bias | None = _Bias()
    slopes: np.ndarray | None = None
    for number, probe in enumerate(probes or [np.ones((1, 1), dtype=np.int64)]):
        parts = _parts(evaluate(probe))
        bias = bias and bias.joined(parts)
        actual = np.broadcast_to(parts.keep, scores)
        if number == 0:  # the first probe keeps all tokens
            windows = (0, _window(actual))
            candidates = [Meaning(*one) for one in product(by_mask, (False, True), windows)]
            slopes = _slopes(parts, scores[1]) if probes else None
        if slopes is not None and not _adds_places(parts, slopes, probe):
            slopes = None
        candidates = [one for one in candidates if one.fits(probe, actual)]
    if candidates and bias is None and slopes is not None:
        return candidates[0]._replace(slopes=slopes.astype(np.float32))
    if not candidates or bias is None:
        why = "it drops keys other than those with mask 0, later ones and distant ones"
        if bias is None:
            why = "what it adds to the scores of kept keys depends on the mask"
        raise AtlasError(
            "an attention mask has a meaning that the softmax op cannot express",
            where=where,
            why=why,
            remedy="only padding masks, causal masks, sliding windows and constants that are added "
            "are compiled",
        )
    return candidates[0]._replace(bias=bias.value)


def _slopes(parts: _Parts, heads: int) -> np.ndarray:
    """By how much each key gets more than the key before, for each head: of the last query, which
    sees all keys under the first probe.
    """
    first, second = (parts.added[0, :, -1, min(key, parts.added.shape[-1] - 1)] for key in (0, 1))
    return np.broadcast_to(second - first, (heads,))


def _adds_places(parts: _Parts, slopes: np.ndarray, mask: np.ndarray) -> bool:
    """Whether keys get slopes times their places among those that a public mask keeps."""
    places = slopes[:, None, None] * positions(mask)[:, None, None, :]
    rest = np.where(parts.keep, parts.added - places, 0)
    return bool(np.abs(rest).max() <= SAME * np.abs(places).max())


def _window(keep: np.ndarray) -> int:
    """The window in which [batch, heads, tokens, tokens] are kept; 0 if it holds all."""
    *_, queries, keys = np.nonzero(keep)
    window = int(np.abs(queries - keys).max(initial=0)) + 1
    return window if window < keep.shape[-1] == keep.shape[-2] else 0


class _Bias(NamedTuple):
    """What masks add to the scores of kept keys, for all sentences.

    Attributes:
        added: [heads, queries, keys] or with 1 in their place.
        seen: where a key was kept.
    """

    added: np.ndarray = np.zeros((1, 1, 1), np.float32)
    seen: np.ndarray = np.zeros((1, 1, 1), bool)

    def joined(self, parts: _Parts) -> _Bias | None:
        """The bias with a further mask; None if they contradict each other."""
        found = self
        for keep, added in zip(*np.broadcast_arrays(*parts), strict=True):
            if (np.where(found.seen & keep, added - found.added, 0) != 0).any():
                return None
            both = np.where(found.seen, found.added, added)
            found = _Bias(both, found.seen | keep)
        return found

    @property
    def value(self) -> np.ndarray | None:
        """The bias without axes along which it does not vary; None if all keys of a query get the
        same, which changes no weight.
        """
        value = self.added
        for axis in range(value.ndim):
            if (value == value.take([0], axis)).all():
                value = value.take([0], axis)
        return value if value.shape[-1] > 1 else None
