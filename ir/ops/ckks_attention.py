"""Ops of the ckks level for attention: products of two ciphertexts, and masked keys."""

from __future__ import annotations

from collections.abc import Callable

from atlasc.ir.layout import REPLICATED, Layout
from atlasc.ir.opdef import AttributeDef as A
from atlasc.ir.opdef import RuleError, Site, require
from atlasc.ir.ops import rules
from atlasc.ir.ops.ckks import LAYOUT, cache_of, declare_ckks, first_layout
from atlasc.ir.ops.masks import CAUSAL, QUERY, WINDOW
from atlasc.ir.ops.poly import FILL, LOG_KEYS, SCORE_BIAS, SLOPES

QK_LEVELS = 3  # masks of the rotations, product, packing mask
PV_LEVELS = 3  # extraction mask (at the level of V's rotation masks), product, last rotation masks
ROW_LEVELS = 3  # of both products with one query: the product, two masks
# With features in the low bits, where rotations by tokens need no masks:
LOW_PV_LEVELS = 2  # extraction mask, product
LOW_ROW_SCORE_LEVELS, LOW_ROW_CONTEXT_LEVELS = 2, 1  # the product; for scores one mask
# With keys and values by diagonals, beside the level of a skewed row:
CACHED_SCORE_LEVELS, CACHED_CONTEXT_LEVELS = 2, 1  # the product; for scores one mask
MOVED_LEVELS = 3  # of keys and values of a window that become ones by diagonals: linear transforms


def _masked(site: Site, operand: int, scores: Layout) -> Layout:
    """The layout of scores, to which the query and the mask, from an operand on, must fit."""
    if scores.field("s") is None:
        raise RuleError(f"scores have an axis s, the layout {scores} has none")
    keys = scores.extent("t" if scores.field("t") else "s")
    rules.check_query(site, keys)
    queries = keys if scores.field("t") else 1
    rules.check_score_bias(site, (scores.extent("g"), queries, keys))
    rules.check_slopes(site, scores.extent("g"))
    for mask in site.types[operand:]:
        rules.check_mask(mask, (scores.extent("b"), keys))
    return scores


def _scores(site: Site) -> Layout:
    same = first_layout(site, 0) == first_layout(site, 1)
    require(same, "queries and keys must have one layout")
    return _masked(site, 2, site.attributes["layout"])


declare_ckks("ckks.ct_matmul_qk",
             "Scores q·kᵀ in diagonal packing; visible and masked ones as in ``poly.mask_fill``.",
             "q k mask?", _scores, CAUSAL, WINDOW, FILL, LOG_KEYS, SCORE_BIAS, SLOPES, LAYOUT,
             levels=QK_LEVELS)  # fmt: skip
declare_ckks(
    "ckks.mask_fill",
    "Adds ``fill`` to masked keys and padding keys, and to visible ones what "
    "``poly.mask_fill`` adds.",
    "scores mask?",
    lambda site: _masked(site, 1, first_layout(site)),
    CAUSAL,
    WINDOW,
    QUERY,
    FILL,
    LOG_KEYS,
    SCORE_BIAS,
    SLOPES,
)
declare_ckks("ckks.mask_zero",
             "Sets masked keys and padding keys, which all hold ``value``, to 0.",
             "weights mask?", lambda site: _masked(site, 1, first_layout(site)), CAUSAL, WINDOW,
             QUERY,
             A("value", "float", "what every masked weight holds"))  # fmt: skip


def _context(site: Site) -> Layout:
    weights, values = first_layout(site, 0), first_layout(site, 1)
    fits = weights.field("s") is not None and values.field("d") is not None
    require(fits, "it takes weights with an axis s and values with an axis d")
    return site.attributes["layout"]


def _context_levels(site: Site) -> int:
    return LOW_PV_LEVELS if site.attributes["layout"].features_low else PV_LEVELS


declare_ckks("ckks.ct_matmul_pv", "Context p·v of diagonally packed weights.", "p v",
             _context, LAYOUT, levels=_context_levels)  # fmt: skip


def _row_levels(low: int, cached: int) -> Callable[[Site], int]:
    """Levels of a product with one query; the second operand is all keys or all values. With keys
    or values by diagonals it takes ``cached`` levels, and one more if the row is skewed.
    """

    def levels(site: Site) -> int:
        layout = first_layout(site, 1)
        if layout.one_token:
            return cached + cache_of(layout).skewed
        return low if layout.features_low else ROW_LEVELS

    return levels


def _at_tokens(site: Site) -> Layout:
    source, layout = first_layout(site), site.attributes["layout"]
    cache, several = cache_of(layout), not source.one_token
    fits = cache.fits_window(source) if several else cache.fits(source)
    require(fits, f"{source} has no rows of {layout}")
    mask = site.types[1]
    tokens = layout.extent("t") if cache.keys else getattr(mask, "shape", (0, 0))[-1]
    tokens = source.extent("t") if several else tokens
    rules.check_mask(mask, (layout.extent("b"), tokens))
    require(-(-tokens // cache.tokens) == cache.parts, f"{tokens} tokens do not fit {layout}")
    return layout


def _at_tokens_levels(site: Site) -> int:
    """One mask, and one more where a row of keys is skewed."""
    if not first_layout(site).one_token:
        return MOVED_LEVELS
    cache = cache_of(site.attributes["layout"])
    return 1 + (cache.keys and cache.skewed)


declare_ckks("ckks.at_tokens",
             "A row of one token, at the token of keys or values that a public mask keeps; 0 at "
             "the others. Or keys or values of a window, at the tokens that the mask keeps.",
             "x mask", _at_tokens, LAYOUT,
             levels=_at_tokens_levels)  # fmt: skip


def _row_scores(site: Site) -> Layout:
    query, keys = first_layout(site, 0), first_layout(site, 1)
    if keys.one_token:
        cache = cache_of(keys)
        same = cache.keys and cache.fits(query) and cache.scores() == site.attributes["layout"]
        require(same, f"a query {query} has no such scores with {keys}")
        return _masked(site, 2, site.attributes["layout"])
    if query != keys.without(("t",), REPLICATED):
        raise RuleError(f"the query must be replicated over the tokens of the keys, not {query}")
    return _masked(site, 2, site.attributes["layout"])


declare_ckks("ckks.row_scores",
             "Scores q·kᵀ of one query, replicated over its tokens, as in ``poly.mask_fill``.",
             "q k mask?", _row_scores, CAUSAL, WINDOW, QUERY, FILL, LOG_KEYS, SCORE_BIAS,
             SLOPES, LAYOUT,
             levels=_row_levels(LOW_ROW_SCORE_LEVELS, CACHED_SCORE_LEVELS))  # fmt: skip


def _row_context(site: Site) -> Layout:
    weights, values = first_layout(site, 0), first_layout(site, 1)
    if values.one_token:
        cache = cache_of(values)
        scores = cache.scores()
        same = (scores.fields, scores.outer) == (weights.fields, weights.outer)
        require(not cache.keys and same, f"the weights {weights} are not those of {values}")
        return cache.row()
    one_query = weights.field("s") is not None and not weights.field("t")
    whole = one_query and values.field("t") is not None
    require(whole, "it takes the weights of one query and values of all tokens")
    return values.one_row


declare_ckks("ckks.row_context", "Context p·v of the weights of one query.", "p v", _row_context,
             levels=_row_levels(LOW_ROW_CONTEXT_LEVELS, CACHED_CONTEXT_LEVELS))  # fmt: skip
