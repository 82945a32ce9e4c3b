"""Ops of the ckks level: macro ops on packed ciphertexts.

A backend's engine has only products, sums, rotations and bootstraps; the kernels of the lowering
expand a macro op into those when it is executed or counted, or its cost is predicted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from atlasc.ir.bounds import is_shape
from atlasc.ir.layout import REPLICATED, UNUSED, Layout
from atlasc.ir.opdef import AttributeDef as A
from atlasc.ir.opdef import RuleError, Site, Symbol, declare, require
from atlasc.ir.ops import rules
from atlasc.ir.ops.masks import LAST, LAST_NEEDS_MASK
from atlasc.ir.ops.poly import chebyshev_levels
from atlasc.ir.ops.rows import Cache, bits_for
from atlasc.ir.ops.tensors import (
    CENTRED,
    FACTOR,
    OUTPUT_MAP,
    PREFIX,
    STATE,
    check_prefix,
    require_function,
    require_level,
)
from atlasc.ir.types import CiphertextType, TensorType

ONLY_FIRST = A("only_first", "bool", "zero in unused slots: only their index 0 stays",
               optional=True)  # fmt: skip
PADDING = (
    A("copy_padding", "bool", "padding blocks copy block 0 (else they are zero)", optional=True),
    ONLY_FIRST,
)
HIDDEN = ("b", "t", "g", "d")
"""Axes of a hidden state's layout."""
LAYOUT = A("layout", "layout", "packing of the result")


def declare_ckks(
    name: str,
    summary: str,
    operands: str,
    rule: Callable[[Site], Layout],
    *attributes: A,
    levels: int | Callable[[Site], int] = 0,
) -> None:
    """Declare an op whose result has the rule's layout and lies ``levels`` below its operands."""

    def infer(site: Site) -> CiphertextType:
        layout, consumed = rule(site), levels if isinstance(levels, int) else levels(site)
        entry = operand_level(site)
        if entry is None:
            return CiphertextType(layout)
        require(entry >= consumed, f"it consumes {consumed} levels, its operands have {entry}")
        return CiphertextType(layout, entry - consumed)

    declare(name, summary, operands, infer, *attributes, levels=levels)


def operand_level(site: Site) -> int | None:
    """The common level of all ciphertext operands."""
    levels = {t.level for t in site.types if isinstance(t, CiphertextType)}
    if len(levels) > 1:
        raise RuleError(f"operands are at different levels {sorted(levels, key=str)}")
    return levels.pop() if levels else None


def first_layout(site: Site, operand: int = 0) -> Layout:
    """Layout of a ciphertext operand."""
    if not isinstance(site.types[operand], CiphertextType):
        raise RuleError(f"operand {operand} must be a ciphertext, not {site.types[operand]}")
    return site.types[operand].layout


def _input(site: Site) -> CiphertextType:
    layout, shape = site.attributes["layout"], site.attributes["shape"]
    require(Cache.has(layout) or "prefix" not in site.attributes, "only state has a prefix")
    if Cache.has(layout):
        _check_cache(cache_of(layout), shape)
        (batch, tokens, features), heads = shape, layout.extent("g")
        check_prefix(site, (batch, heads, tokens, features // heads))
    elif tuple(axis for axis, _ in layout.extents) != HIDDEN:
        _check_unpacked(layout, shape)
    elif (
        len(shape) < 2
        or not is_shape(shape)
        or (shape[0], math.prod(shape[1:-1])) != layout.shape[:2]
        or shape[-1] > math.prod(layout.shape[2:])
    ):
        raise RuleError(f"no tensor of shape {shape} fits into the layout {layout}")
    return _result(site)


def cache_of(layout: Layout) -> Cache:
    """The keys or values that a layout is one of."""
    try:
        return Cache.of(layout)
    except ValueError as error:
        raise RuleError(str(error)) from None


def _check_unpacked(layout: Layout, shape: list[int]) -> None:
    """Check that the layout holds a tensor of the shape, without the padding features."""
    elements = math.prod(layout.shape)
    if shape and "d" in dict(layout.extents):
        features = math.prod(layout.shape[-2:])
        elements = elements // features * min(features, shape[-1])
    if not shape or not is_shape(shape) or math.prod(shape) != elements:
        raise RuleError(f"no tensor of shape {shape} lies in the layout {layout}")


def _check_cache(cache: Cache, shape: list[int]) -> None:
    """Check that keys or values of a shape [batch, tokens, features] have their layout."""
    batch, tokens, features = shape if len(shape) == 3 and is_shape(shape) else (0, 0, 0)
    of, heads = cache.layout.extent, cache.layout.extent("g")
    kept = of("t") if cache.keys else -(-tokens // cache.tokens) * cache.tokens
    width = features // heads if cache.keys else of("d")
    same = (batch, kept, features) == (of("b"), tokens if cache.keys else of("s"), heads * width)
    fits = bits_for(max(width, 1)) == bits_for(cache.width)
    require(same and fits, f"no tensor of shape {shape} lies in the layout {cache.layout}")


def _result(site: Site) -> CiphertextType:
    return CiphertextType(site.attributes["layout"], site.attributes.get("level"))


declare("ckks.input", "Encrypted input.", "", _input, A("name", "name", "name in the data"),
        LAYOUT, A("shape", "ints", "extents of the tensor"), FACTOR, CENTRED, STATE, PREFIX,
        A("level", "int", "level of the fresh ciphertexts", optional=True))  # fmt: skip
declare("ckks.result", "A result of the server, in the client's part of a program.", "", _result,
        A("name", "string", "name of the result"), LAYOUT, A("shape", "ints", "extents"),
        A("level", "int", "level", optional=True))  # fmt: skip
declare("ckks.public_input", "Plaintext that the server sees.", "",
        lambda site: TensorType(tuple(site.attributes["shape"]), "public"),
        A("name", "name", "name in the data"), A("shape", "ints", "extents"))  # fmt: skip


def _output(site: Site) -> None:
    shape, layout = site.attributes["shape"], first_layout(site)
    if Cache.has(layout):
        _check_cache(cache_of(layout), shape)
    else:
        _check_unpacked(layout, shape)
    tensor = Site([TensorType(tuple(shape))], site.attributes, site.symbols)
    rules.constant_broadcast("factor", "shift")(tensor)
    require_function(site)
    require_level(site)
    level = operand_level(site)
    kept = level is None or site.attributes.get("level", level) == level
    require(kept, f"its ciphertexts are at level {level}")


declare("ckks.output", "Encrypted result.", "x", _output, A("name", "name", "name"),
        A("shape", "ints", "extents of the tensor"), *OUTPUT_MAP)  # fmt: skip


def _elementwise(site: Site) -> Layout:
    """Equal layouts, or one is replicated where the other has an axis."""
    one, other = first_layout(site, 0), first_layout(site, 1)
    for a, b in ((one, other), (other, one)):
        if a == b or _covers(a, b):
            return a
    raise RuleError(f"layouts {one} and {other} do not align")


def _covers(full: Layout, reduced: Layout) -> bool:
    if len(full.fields) != len(reduced.fields):
        return False
    aligned = all(
        f == r or (r.axis == REPLICATED and f.bits == r.bits)
        for f, r in zip(full.fields, reduced.fields, strict=True)
    )
    outer = set(reduced.outer) <= set(full.outer)
    return aligned and outer and dict(reduced.extents).items() <= dict(full.extents).items()


declare_ckks("ckks.add", "Sum.", "a b", _elementwise)
declare_ckks("ckks.sub", "Difference.", "a b", _elementwise)


def _double(site: Site) -> Layout:
    rules.check_times(site)
    return first_layout(site)


declare_ckks("ckks.double", "x · 2^times by additions.", "x", _double,
             A("times", "int", "doublings"))  # fmt: skip
declare_ckks("ckks.add_plain", "Sum with a plaintext.", "x", first_layout,
             A("value", "scalar or symbol", "broadcast to the packed tensor"),
             *PADDING)  # fmt: skip
declare_ckks("ckks.mul", "Product, relinearized and rescaled.", "a b", _elementwise, levels=1)
declare_ckks("ckks.square", "Square, relinearized and rescaled.", "x", first_layout, levels=1)


def _mul_plain(site: Site) -> Layout:
    source = first_layout(site)
    for mask in site.types[1:]:
        rules.check_mask(mask, (source.extent("b"), source.extent("t")))
        alone = not {"zero_padding", "only_first", "layout"} & set(site.attributes)
        require(alone, "with a mask there is nothing to say about padding or layout")
        require(not isinstance(site.attributes["value"], Symbol), "with a mask value is a number")
    require(not site.attributes.get("last") or len(site.types) > 1, LAST_NEEDS_MASK)
    layout = site.attributes.get("layout", source)
    if layout != source and not _covers(layout, source):
        raise RuleError(f"layout {layout} does not cover {source}")
    return layout


declare_ckks("ckks.mul_plain",
             "Product with a plaintext, rescaled; with a mask the value is times the share of each "
             "token, 1 / kept tokens or 0.", "x mask?", _mul_plain,
             A("value", "scalar or symbol", "broadcast to the packed tensor"), LAST,
             A("zero_padding", "bool", "zero in padding tokens (else they copy token 0)",
               optional=True),
             *PADDING,
             A("layout", "layout", "of the result, where a replicated operand grows an axis",
               optional=True),
             levels=1)  # fmt: skip


def _chebyshev(site: Site) -> Layout:
    layout, copies = first_layout(site), site.attributes.get("copies")
    if copies is not None:
        shape = site.constant_shape("coefficients")
        require(len(shape) == 1, "copies share a sum whose coefficients are one vector")
        power = copies >= 2 and not copies & (copies - 1)
        require(power and 2 * copies <= 1 << chebyshev_levels(site),
                f"{copies} copies cannot share a sum of {shape[-1]} coefficients")  # fmt: skip
        require(copies <= layout.copies, f"the operand has {layout.copies} copies, not {copies}")
    return layout


declare_ckks("ckks.chebyshev", "Chebyshev sum on (−1, 1), Paterson–Stockmeyer.", "x", _chebyshev,
             A("coefficients", "floats or symbol",
               "[degree + 1] or [features, degree + 1], T₀ first"),
             A("copies", "int", "copies of the operand that share the sum, for one level more",
               optional=True),
             levels=lambda site: chebyshev_levels(site) + ("copies" in site.attributes),
             )  # fmt: skip


def _rotate_sum(site: Site) -> Layout:
    layout, axes = first_layout(site), tuple(site.attributes["axes"])
    for axis in axes:
        if axis not in dict(layout.extents):
            raise RuleError(f"the operand's layout {layout} has no axis {axis}")
    # A sum that ends in the top bits wraps around the ciphertext and so reaches every slot.
    remaining = [field.axis for field in layout.fields if field.bits]
    if layout.copies_first:
        remaining = [axis for axis in remaining if axis != "b"]
    while remaining and remaining[0] in (*axes, REPLICATED):
        remaining.pop(0)
    wraps = not set(axes) & set(remaining)
    return layout.without(axes, REPLICATED if wraps else UNUSED)


declare_ckks("ckks.rotate_sum", "Sum over axes by rotations, and over ciphertexts.", "x",
             _rotate_sum, A("axes", "strings", "axes that are summed"))  # fmt: skip


def _select(site: Site) -> Layout:
    layout = first_layout(site)
    axis, index = site.attributes["layout_axis"], site.attributes["index"]
    if layout.field(axis) is None:
        raise RuleError(f"the operand's layout {layout} has no slot field for axis {axis}")
    require(0 <= index < layout.extent(axis), f"axis {axis} has no index {index}")
    return layout.without((axis,), UNUSED)


declare_ckks("ckks.select", "Keep one index along an axis; other slots hold anything.", "x",
             _select, A("layout_axis", "string", "axis of the layout"),
             A("index", "int", "from 0"))  # fmt: skip


def _replicate(site: Site) -> Layout:
    source, layout = first_layout(site), site.attributes["layout"]
    if layout not in (source.one_row, source.without((UNUSED,), REPLICATED)):
        raise RuleError(f"the layout {layout} does not replicate {source}")
    return layout


declare_ckks("ckks.replicate",
             "Copies index 0 of unused fields into their other slots, which must be zero before: "
             "one token into the slots of all tokens, a sum into the slots of its features.",
             "x", _replicate, LAYOUT)  # fmt: skip


def _gather(site: Site) -> Layout:
    layout = first_layout(site)
    gathered = layout.without((UNUSED,), REPLICATED).gathered
    if gathered is None:
        raise RuleError(f"the copies in the layout {layout} have no room for its ciphertexts")
    if layout.unused_beside_copies:
        raise RuleError(f"the layout {layout} has unused slots that are not room for ciphertexts")
    return gathered


declare_ckks("ckks.gather",
             "Moves all ciphertexts of a replicated value into one, in the slots of some copies; "
             "where those are unused, index 0 is copied. No other slots may be unused.",
             "x", _gather, levels=1)  # fmt: skip


def _spread(site: Site) -> Layout:
    layout = site.attributes["layout"]
    if layout.gathered != first_layout(site):
        raise RuleError(f"{first_layout(site)} is not the layout {layout} in one ciphertext")
    return layout


declare_ckks("ckks.spread", "The inverse of ``gather``.", "x", _spread, LAYOUT, levels=1)


def _set_level(site: Site) -> CiphertextType:
    source, level = site.types[0], site.attributes["level"]
    if not isinstance(source, CiphertextType):
        raise RuleError("the operand must be a ciphertext")
    require(level >= 0, f"there is no level {level}")
    return replace(source, level=level)


def _refreshed(site: Site) -> CiphertextType:
    result = _set_level(site)
    period, (slots, least) = (
        site.attributes.get("period"),
        (result.layout.slots, result.layout.period),
    )
    if period is not None:
        fits = period in (1 << bit for bit in range(slots.bit_length() - 1)) and period % least == 0
        require(fits, f"the slots of the operand do not repeat after {period}, half of all or less")
    return result


declare("ckks.bootstrap", "Refresh to a level.", "x", _refreshed,
        A("level", "int", "level of the result"),
        A("period", "int", "slots after which the operand repeats: a narrow bootstrap",
          optional=True))  # fmt: skip


def _drop(site: Site) -> CiphertextType:
    result, level = _set_level(site), operand_level(site)
    lower = level is None or site.attributes["level"] <= level
    require(lower, f"cannot drop from level {level} to {site.attributes['level']}")
    return result


declare("ckks.drop", "Drop to a lower level.", "x", _drop,
        A("level", "int", "level of the result"))  # fmt: skip
