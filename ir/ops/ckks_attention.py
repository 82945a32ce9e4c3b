"""Ops of the ckks level for attention: products of two ciphertexts, and masks of keys."""

from __future__ import annotations

from atlasc.ir import rules
from atlasc.ir.layout import REPLICATED, Layout
from atlasc.ir.opdef import AttributeDef as A
from atlasc.ir.opdef import RuleError, Site, declare
from atlasc.ir.ops.ckks import LAYOUT, ciphertext, first_layout, parse_layout
from atlasc.ir.ops.nn import CAUSAL, QUERY
from atlasc.ir.types import CiphertextType, TensorType

QK_LEVELS = 3  # masks of the rotations, product, packing mask
PV_LEVELS = 3  # extraction mask (at the level of V's rotation masks), product, last rotation masks
ROW_LEVELS = 3  # of both products with one query: the product, two masks


def _scores(site: Site) -> CiphertextType:
    if first_layout(site, 0) != first_layout(site, 1):
        raise RuleError("queries and keys must have one layout")
    layout = parse_layout(site)
    _check_mask(site, 2, layout)
    return ciphertext(site, layout, QK_LEVELS)


def _weights(site: Site) -> CiphertextType:
    _check_mask(site, 1, first_layout(site))
    return ciphertext(site, first_layout(site))


def _check_mask(site: Site, operand: int, scores: Layout) -> None:
    if scores.field("s") is None:
        raise RuleError(f"scores have an axis s, the layout {scores} has none")
    rules.check_query(site, scores.extent("t" if scores.field("t") else "s"))
    if len(site.types) > operand:
        mask = site.types[operand]
        wanted = (scores.extent("b"), scores.extent("t" if scores.field("t") else "s"))
        if not isinstance(mask, TensorType) or mask.shape != wanted:
            raise RuleError(f"the mask must be a public tensor of shape {wanted}, not {mask}")


def _context(site: Site) -> CiphertextType:
    weights, values = first_layout(site, 0), first_layout(site, 1)
    if weights.field("s") is None or values.field("d") is None:
        raise RuleError("it takes weights with an axis s and values with an axis d")
    return ciphertext(site, parse_layout(site), PV_LEVELS)


def _row_scores(site: Site) -> CiphertextType:
    query, keys = first_layout(site, 0), first_layout(site, 1)
    if query != keys.without(("t",), REPLICATED):
        raise RuleError(f"the query must be replicated over the tokens of the keys, not {query}")
    layout = parse_layout(site)
    _check_mask(site, 2, layout)
    return ciphertext(site, layout, ROW_LEVELS)


def _row_context(site: Site) -> CiphertextType:
    weights, values = first_layout(site, 0), first_layout(site, 1)
    if weights.field("s") is None or weights.field("t") or values.field("t") is None:
        raise RuleError("it takes the weights of one query and values of all tokens")
    return ciphertext(site, values.one_row, ROW_LEVELS)


declare("ckks.ct_matmul_qk",
        "Scores q·kᵀ in diagonal packing; masked keys become ``fill``.",
        "q k mask?", _scores, CAUSAL,
        A("fill", "float", "value of a masked score"), LAYOUT,
        levels=lambda site: QK_LEVELS)  # fmt: skip
declare("ckks.mask_zero", "Sets masked keys and padding keys, which all hold ``value``, to 0.",
        "weights mask?", _weights, CAUSAL, QUERY,
        A("value", "float", "what every masked weight holds"))  # fmt: skip
declare("ckks.ct_matmul_pv", "Context p·v of diagonally packed weights.", "p v",
        _context, LAYOUT, levels=lambda site: PV_LEVELS)  # fmt: skip
declare("ckks.row_scores",
        "Scores q·kᵀ of one query, replicated over its tokens; masked keys become ``fill``.",
        "q k mask?", _row_scores, CAUSAL, QUERY,
        A("fill", "float", "value of a masked score"), LAYOUT,
        levels=lambda site: ROW_LEVELS)  # fmt: skip
declare("ckks.row_context", "Context p·v of the weights of one query.", "p v", _row_context,
        levels=lambda site: ROW_LEVELS)  # fmt: skip
