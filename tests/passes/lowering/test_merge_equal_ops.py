"""Ops that differ in anything are not merged; the example of the pass has those that are."""

from __future__ import annotations

import numpy as np
from short_text import dedent, poly, short

from atlasc.passes.framework.pass_base import Report
from atlasc.passes.lowering.merge_equal_ops import MergeEqualOps

ARRAYS = {"w": np.eye(3), "v": 2 * np.eye(3)}


def merged(body: str) -> tuple[str, list[str]]:
    report = Report()
    return short(MergeEqualOps().run(poly(body, ARRAYS), report)), report.lines


def test_each_merged_op_is_reported() -> None:
    """The part that an op was expanded from does not matter."""
    _, said = merged("""%a = poly.square %x
        %b = poly.square %x {part = "softmax"}
        %c = poly.add %a, %b
        poly.output %c {name = "y"}""")
    assert [line.split(" (")[0] for line in said] == ["%b"]


def test_other_constants_operands_and_outputs_stay() -> None:
    body = """%a = poly.linear %x {weight = @w}
        %b = poly.linear %x {weight = @v}
        %c = poly.linear %a {weight = @v}
        %d = poly.sub %a, %b
        %e = poly.sub %b, %a
        %f = poly.add %d, %e
        %g = poly.add %f, %c
        poly.output %g {name = "y"}
        poly.output %g {name = "z"}"""
    after, said = merged(body)
    assert after == dedent(body)
    assert not said
