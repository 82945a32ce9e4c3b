"""Ops of the ckks level for linear layers and rotary embeddings."""

from __future__ import annotations

from atlasc.ir.layout import Layout
from atlasc.ir.opdef import AttributeDef as A
from atlasc.ir.opdef import Site, require
from atlasc.ir.ops import rules
from atlasc.ir.ops.ckks import LAYOUT, PADDING, declare_ckks, first_layout
from atlasc.ir.ops.rows import bits_for, most_copies


def _linear_transform(site: Site) -> Layout:
    layout = site.attributes["layout"]
    outputs, inputs = rules.matrix_shape(site, "weight")
    for where, features in ((first_layout(site), inputs), (layout, outputs)):
        blocks, width = where.extent("g"), where.extent("d")
        fits = (blocks - 1) * width < features <= blocks * width
        weight = f"weight is [{outputs}, {inputs}], but {blocks} blocks of {width} features"
        require(fits, f"{weight} cannot be {features} features")
    rules.check_bias(site, outputs)
    if {"cos", "sin"} & set(site.attributes):
        _check_rotary(site, layout.extent("t"), layout)
    require(site.attributes["baby_steps"] >= 1, "baby_steps must be at least 1")
    alike = first_layout(site).one_token == layout.one_token
    require(alike, "a program of one token has no values of several tokens")
    _check_row_plan(site, first_layout(site), layout)
    return layout


def _check_row_plan(site: Site, source: Layout, target: Layout) -> None:
    """Check the diagonals of a row's weight, which are all computed."""
    if not source.one_token:
        require("copies" not in site.attributes, "copies are those of a row of one token")
        return
    batch = source.fields[-1].bits
    places = [one.period >> batch for one in (source, target)]
    copies, babies = site.attributes.get("copies", 1), site.attributes["baby_steps"]
    most = most_copies(source.slots >> batch, *places)
    require(
        copies in (1 << bit for bit in range(bits_for(most) + 1)), f"there are no {copies} copies"
    )
    steps = min(places) // copies // (1 + site.attributes.get("paired", False))
    require(steps >= babies and steps % babies == 0, f"{steps} steps are not {babies} baby steps")


def _check_rotary(site: Site, rows: int, layout: Layout) -> None:
    tables = [site.constant_shape(name) for name in ("cos", "sin") if name in site.attributes]
    both = tables == [(rows, layout.extent("d"))] * 2
    require(both, "a rotary embedding needs cos and sin, both [tokens, width of a head]")


declare_ckks("ckks.linear_transform",
             "weight · x + bias over the features, by diagonals with baby and giant steps.", "x",
             _linear_transform, A("weight", "symbol", "[out, in]"),
             A("bias", "symbol", "[out]", optional=True),
             A("cos", "symbol", "rotary table [n, d]", optional=True),
             A("sin", "symbol", "rotary table [n, d]", optional=True),
             *PADDING,
             A("baby_steps", "int", "rotations of the operand"),
             A("paired", "bool", "two diagonals share a complex plaintext", optional=True),
             A("copies", "int", "diagonals that one product computes in the copies of a row; more "
               "than 1 take a level", optional=True), LAYOUT,
             levels=lambda site: 2 if site.attributes.get("copies", 1) > 1 else 1)  # fmt: skip


def _rotary(site: Site) -> Layout:
    layout = first_layout(site)
    require(layout.field("d") is not None, f"the operand's layout {layout} has no axis d")
    if len(site.types) == 1:
        _check_rotary(site, layout.extent("t"), layout)
        return layout
    require(layout.field("t") is None, "a position is that of an operand of one token")
    _check_rotary(site, rules.check_position(site, 1, layout.extent("b")), layout)
    return layout


declare_ckks("ckks.rotary",
             "Rotary position embedding x·cos + rotate_half(x)·sin, by rotations within a head; "
             "with a position, a public mask that keeps one token, that of this token.",
             "x position?", _rotary, A("cos", "symbol", "rotary table [n, d]"),
             A("sin", "symbol", "rotary table [n, d]"), levels=1)  # fmt: skip
