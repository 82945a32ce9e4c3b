"""The committed IR reference is what the declarations say."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from atlasc.ir.layout import Layout
from atlasc.ir.opdef import OPS
from atlasc.ir.text.parser import parse
from atlasc.ir.text.reference import render, render_names
from atlasc.ir.text.storage import print_module

DOCUMENT = Path(__file__).parents[2] / "docs" / "ir-reference.md"


def test_the_document_is_up_to_date() -> None:
    """After a change of a declaration: make docs"""
    assert DOCUMENT.read_text(encoding="utf-8") == render()


def test_it_names_every_op_with_its_attributes() -> None:
    text = render()
    for name, op in OPS.items():
        ends = "`" if not op.operands else " %"
        _, found, rest = text.partition(f"\n### `{name}{ends}")
        assert found
        section = rest.split("\n##")[0]
        assert op.summary in section
        assert ("*Nonlinear.*" in section) == op.nonlinear
        for attribute in op.attributes:
            assert f"| `{attribute.name}`{' (optional)' * attribute.optional} |" in section


def test_its_example_round_trips() -> None:
    example = render().split("```mlir\n")[1].split("```")[0]
    module = parse(example)
    assert parse(print_module(module)).ops[3].attributes == module.ops[3].attributes


def test_its_layout_example_is_right() -> None:
    text = "[d:2 g:1 b:0 t:2 | g.1:1 | b=1 t=3 g=4 d=3]"
    assert f"`{text}`" in render()
    layout = Layout.parse(text)
    assert (layout.slots, layout.ciphertexts) == (32, 2)
    index = np.indices(layout.shape)
    b, t, g, d = index
    named = dict(zip("btgd", index, strict=True))
    assert np.array_equal(layout.slot_of(named), d * 8 + g % 2 * 4 + t)
    assert np.array_equal(layout.ciphertext_of(named), g // 2)
    assert not b.any()


def test_the_names_of_ops_are_those_of_the_declarations() -> None:
    names = Path(__file__).parents[2] / "ir" / "ops" / "names.py"
    assert names.read_text(encoding="utf-8") == render_names(), "make docs"
