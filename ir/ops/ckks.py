"""Ops of the ckks level: macro ops on packed ciphertexts.

A backend's engine has only products, sums, rotations and bootstraps; the kernels of the lowering
expand a macro op into those when it is executed or counted, or its cost is predicted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from atlasc.ir import rules
from atlasc.ir.bounds import is_shape
from atlasc.ir.layout import REPLICATED, UNUSED, Layout
from atlasc.ir.opdef import AttributeDef as A
from atlasc.ir.opdef import RuleError, Site, declare, one_level
from atlasc.ir.ops.nn import CENTRED, FACTOR, OUTPUT_MAP
from atlasc.ir.ops.poly import chebyshev_levels
from atlasc.ir.types import CiphertextType, TensorType

Rule = Callable[[Site], CiphertextType]
FIRST_ROW = A("first_row", "bool", "zero in all tokens but the first", optional=True)
PADDING = (
    A("copy_padding", "bool", "padding blocks copy block 0 (else they are zero)", optional=True),
    FIRST_ROW,
)
HIDDEN = ("b", "t", "g", "d")
"""Axes of a hidden state's layout."""
LAYOUT = A("layout", "string", "packing of the result")


def parse_layout(site: Site) -> Layout:
    """The layout attribute, checked."""
    try:
        return Layout.parse(site.attributes["layout"])
    except ValueError as error:
        raise RuleError(str(error)) from None


def operand_level(site: Site) -> int | None:
    """The common level of all ciphertext operands."""
    levels = {t.level for t in site.types if isinstance(t, CiphertextType)}
    if len(levels) > 1:
        raise RuleError(f"operands are at different levels {sorted(levels, key=str)}")
    return levels.pop() if levels else None


def below(site: Site, consumed: int) -> int | None:
    """Level of the result of an op that consumes levels."""
    level = operand_level(site)
    if level is None:
        return None
    if level < consumed:
        raise RuleError(f"it consumes {consumed} levels, its operands have {level}")
    return level - consumed


def ciphertext(site: Site, layout: Layout, consumed: int = 0) -> CiphertextType:
    """Result type with a layout, ``consumed`` levels below the operands."""
    return CiphertextType(layout, below(site, consumed))


def first_layout(site: Site, operand: int = 0) -> Layout:
    """Layout of a ciphertext operand."""
    if not isinstance(site.types[operand], CiphertextType):
        raise RuleError(f"operand {operand} must be a ciphertext, not {site.types[operand]}")
    return site.types[operand].layout


def unary(levels: int) -> Rule:
    """Rule of an op that keeps the layout."""
    return lambda site: ciphertext(site, first_layout(site), levels)


def _join(one: Layout, other: Layout) -> Layout:
    """Layout of an elementwise op: equal, or one is replicated where the other has an axis."""
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


def _elementwise(levels: int) -> Rule:
    def infer(site: Site) -> CiphertextType:
        return ciphertext(site, _join(first_layout(site, 0), first_layout(site, 1)), levels)

    return infer


def _input(site: Site) -> CiphertextType:
    layout, shape = parse_layout(site), site.attributes["shape"]
    if tuple(axis for axis, _ in layout.extents) != HIDDEN:
        _check_unpacked(layout, shape)
    elif (
        len(shape) < 2
        or not is_shape(shape)
        or (shape[0], math.prod(shape[1:-1])) != layout.shape[:2]
        or shape[-1] > math.prod(layout.shape[2:])
    ):
        raise RuleError(f"no tensor of shape {shape} fits into the layout {layout}")
    return CiphertextType(layout, site.attributes.get("level"))


def _check_unpacked(layout: Layout, shape: list[int]) -> None:
    """Check that the layout holds a tensor of the shape, without the padding features."""
    elements = math.prod(layout.shape)
    if shape and "d" in dict(layout.extents):
        features = math.prod(layout.shape[-2:])
        elements = elements // features * min(features, shape[-1])
    if not shape or not is_shape(shape) or math.prod(shape) != elements:
        raise RuleError(f"no tensor of shape {shape} lies in the layout {layout}")


def _result(site: Site) -> CiphertextType:
    return CiphertextType(parse_layout(site), site.attributes.get("level"))


def _public_input(site: Site) -> TensorType:
    return TensorType(tuple(site.attributes["shape"]), "public")


def _linear_transform(site: Site) -> CiphertextType:
    layout = parse_layout(site)
    outputs, inputs = rules.matrix_shape(site, "weight")
    for where, features in ((first_layout(site), inputs), (layout, outputs)):
        blocks, width = where.extent("g"), where.extent("d")
        if not (blocks - 1) * width < features <= blocks * width:
            raise RuleError(
                f"weight is [{outputs}, {inputs}], but {blocks} blocks of {width} features cannot "
                f"be {features} features"
            )
    if "bias" in site.attributes and site.constant_shape("bias") != (outputs,):
        raise RuleError(f"bias has shape {site.constant_shape('bias')}, not ({outputs},)")
    tables = [site.constant_shape(name) for name in ("cos", "sin") if name in site.attributes]
    if tables and tables != [(layout.extent("t"), layout.extent("d"))] * 2:
        raise RuleError("a rotary embedding needs cos and sin, both [tokens, width of a head]")
    if site.attributes["baby_steps"] < 1:
        raise RuleError("baby_steps must be at least 1")
    return ciphertext(site, layout, 1)


def _replicate(site: Site) -> CiphertextType:
    source, layout = first_layout(site), parse_layout(site)
    if layout not in (source.one_row, source.without((UNUSED,), REPLICATED)):
        raise RuleError(f"the layout {layout} does not replicate {source}")
    return ciphertext(site, layout)


def _chebyshev(site: Site) -> CiphertextType:
    return ciphertext(site, first_layout(site), chebyshev_levels(site))


def _double(site: Site) -> CiphertextType:
    rules.check_times(site)
    return ciphertext(site, first_layout(site))


def _rotate_sum(site: Site) -> CiphertextType:
    layout, axes = first_layout(site), tuple(site.attributes["axes"])
    for axis in axes:
        if axis not in dict(layout.extents):
            raise RuleError(f"the operand's layout {layout} has no axis {axis}")
    # A sum that ends in the top bits wraps around the ciphertext and so reaches every slot.
    remaining = [field.axis for field in layout.fields if field.bits]
    while remaining and remaining[0] in (*axes, REPLICATED):
        remaining.pop(0)
    wraps = not set(axes) & set(remaining)
    return ciphertext(site, layout.without(axes, REPLICATED if wraps else UNUSED))


def _select(site: Site) -> CiphertextType:
    layout, axis = first_layout(site), site.attributes["axis"]
    if layout.field(axis) is None:
        raise RuleError(f"the operand's layout {layout} has no slot field for axis {axis}")
    if not 0 <= site.attributes["index"] < layout.extent(axis):
        raise RuleError(f"axis {axis} has no index {site.attributes['index']}")
    return ciphertext(site, layout.without((axis,), UNUSED))


def _mul_plain(site: Site) -> CiphertextType:
    if "layout" not in site.attributes:
        return ciphertext(site, first_layout(site), 1)
    layout = parse_layout(site)
    if not _covers(layout, first_layout(site)):
        raise RuleError(f"layout {layout} does not cover {first_layout(site)}")
    return ciphertext(site, layout, 1)


def _gather(site: Site) -> CiphertextType:
    layout = first_layout(site)
    if layout.gathered is None:
        raise RuleError(f"the copies in the layout {layout} have no room for its ciphertexts")
    return ciphertext(site, layout.gathered, 1)


def _spread(site: Site) -> CiphertextType:
    layout = parse_layout(site)
    if layout.gathered != first_layout(site):
        raise RuleError(f"{first_layout(site)} is not the layout {layout} in one ciphertext")
    return ciphertext(site, layout, 1)


def _set_level(site: Site) -> CiphertextType:
    source, level = site.types[0], site.attributes["level"]
    if not isinstance(source, CiphertextType):
        raise RuleError("the operand must be a ciphertext")
    if level < 0:
        raise RuleError(f"there is no level {level}")
    return replace(source, level=level)


def _drop(site: Site) -> CiphertextType:
    result = _set_level(site)
    level = operand_level(site)
    if level is not None and not 0 <= site.attributes["level"] <= level:
        raise RuleError(f"cannot drop from level {level} to {site.attributes['level']}")
    return result


def _output(site: Site) -> None:
    shape = site.attributes["shape"]
    _check_unpacked(first_layout(site), shape)
    tensor = Site([TensorType(tuple(shape))], site.attributes, site.symbols)
    for name in ("factor", "shift"):
        if name in site.attributes:
            rules.constant_broadcast(name)(tensor)


declare("ckks.input", "Encrypted input.", "", _input, A("name", "name", "name in the data"),
        LAYOUT, A("shape", "ints", "extents of the tensor"), FACTOR, CENTRED,
        A("level", "int", "level of the fresh ciphertexts", optional=True))  # fmt: skip
declare("ckks.result", "A result of the server, in the client's part of a program.", "", _result,
        A("name", "string", "name of the result"), LAYOUT, A("shape", "ints", "extents"),
        A("level", "int", "level", optional=True))  # fmt: skip
declare("ckks.public_input", "Plaintext that the server sees.", "", _public_input,
        A("name", "name", "name in the data"), A("shape", "ints", "extents"))  # fmt: skip
declare("ckks.output", "Encrypted result.", "x", _output, A("name", "name", "name"),
        A("shape", "ints", "extents of the tensor"), *OUTPUT_MAP)  # fmt: skip
declare("ckks.linear_transform",
        "weight · x + bias over the features, by diagonals with baby and giant steps.", "x",
        _linear_transform, A("weight", "symbol", "[out, in]"),
        A("bias", "symbol", "[out]", optional=True),
        A("cos", "symbol", "rotary table [n, d]", optional=True),
        A("sin", "symbol", "rotary table [n, d]", optional=True),
        *PADDING,
        A("baby_steps", "int", "rotations of the operand"),
        A("paired", "bool", "two diagonals share a complex plaintext", optional=True), LAYOUT,
        levels=one_level)  # fmt: skip
declare("ckks.add", "Sum.", "a b", _elementwise(0))
declare("ckks.sub", "Difference.", "a b", _elementwise(0))
declare("ckks.double", "x · 2^times by additions.", "x", _double, A("times", "int", "doublings"))
declare("ckks.add_plain", "Sum with a plaintext.", "x", unary(0),
        A("value", "scalar or symbol", "broadcast to the packed tensor"), *PADDING)  # fmt: skip
declare("ckks.mul", "Product, relinearised and rescaled.", "a b", _elementwise(1),
        levels=one_level)  # fmt: skip
declare("ckks.square", "Square, relinearised and rescaled.", "x", unary(1), levels=one_level)
declare("ckks.mul_plain", "Product with a plaintext, rescaled.", "x", _mul_plain,
        A("value", "scalar or symbol", "broadcast to the packed tensor"),
        A("zero_padding", "bool", "zero in padding rows (else they copy row 0)", optional=True),
        FIRST_ROW,
        A("layout", "string", "of the result, where a replicated operand grows an axis",
          optional=True),
        levels=one_level)  # fmt: skip
declare("ckks.chebyshev", "Chebyshev sum on (−1, 1), Paterson–Stockmeyer.", "x", _chebyshev,
        A("coefficients", "floats or symbol", "[degree + 1] or [features, degree + 1], T₀ first"),
        levels=chebyshev_levels)  # fmt: skip
declare("ckks.rotate_sum", "Sum over axes by rotations, and over ciphertexts.", "x", _rotate_sum,
        A("axes", "strings", "axes that are summed"))  # fmt: skip
declare("ckks.select", "Keep one index along an axis; other slots hold anything.", "x", _select,
        A("axis", "string", "axis"), A("index", "int", "from 0"))  # fmt: skip
declare("ckks.replicate",
        "Copies one token into the slots of all tokens, which must be zero before.",
        "x", _replicate, LAYOUT)  # fmt: skip
declare("ckks.gather",
        "Moves all ciphertexts of a replicated value into one, in the slots of some copies.",
        "x", _gather, levels=one_level)  # fmt: skip
declare("ckks.spread", "The inverse of ``gather``.", "x", _spread, LAYOUT,
        levels=one_level)  # fmt: skip
declare("ckks.bootstrap", "Refresh to a level.", "x", _set_level,
        A("level", "int", "level of the result"))  # fmt: skip
declare("ckks.drop", "Drop to a lower level.", "x", _drop,
        A("level", "int", "level of the result"))  # fmt: skip
