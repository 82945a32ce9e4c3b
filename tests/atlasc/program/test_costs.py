"""Costs read off a program, against counts made by hand."""

from __future__ import annotations

import numpy as np
from short_text import poly

from atlasc.ir.module import Module
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
from atlasc.program.costs import critical_path, program_costs

ARRAYS = {"w": np.ones((6, 6)), "small": np.ones((2, 6)), "big": np.ones((12, 6))}


def packed(body: str, slots: int = 64) -> Module:
    """6 features in blocks of 3 (or as wide as the narrowest layer), 3 tokens in places for 4."""
    return run_passes(poly(body, ARRAYS, (1, 3, 6)), [Pack(slots)])


def counts(body: str, slots: int = 64) -> tuple[int, int, int]:
    """(key switches, products with plaintexts, products of ciphertexts)"""
    total = program_costs(packed(body, slots)).total
    return total.key_switches, total.plaintext_products, total.ciphertext_products


def test_a_sum_over_features_doubles() -> None:
    """Blocks of 6 features take 8 places: 3 rotations. And one relinearisation."""
    body = '%s = poly.row_sum %x\n%y = poly.mul %x, %s\npoly.output %y {name = "y"}'
    assert counts(body) == (4, 0, 1)


def test_a_sum_over_ciphertexts_is_an_addition() -> None:
    """Four blocks of 3 features in two ciphertexts: the same 2 + 1 rotations, once."""
    body = """%h = poly.linear %x {weight = @big}
        %r = poly.row_sum %h
        %l = poly.linear %x {weight = @small}
        %y = poly.mul %l, %r
        poly.output %y {name = "y"}"""
    module = packed(body, 16)
    (total,) = [op for op in module.ops if op.name == "ckks.rotate_sum"]
    assert module.attributes["slots"] == 16
    blocks = total.operands[0].ciphertext.ciphertexts
    made = program_costs(module).per_op[total]
    assert made.count("rotate") == 2  # blocks of 2 features, 2 of them in a ciphertext
    assert made.count("add") == blocks - 1 + 2


def test_a_square_matrix_takes_every_diagonal_once() -> None:
    """6 features in 8 places: 8 diagonals in 4 pairs, by 2 baby and 2 giant steps, of which the
    first turn nothing; a rotation makes pairs of the operand, a conjugation takes the result apart.
    """
    body = '%y = poly.linear %x {weight = @w}\npoly.output %y {name = "y"}'
    assert counts(body) == (1 + 1 + 1 + 1, 4, 0)


def test_attention() -> None:
    """2 heads of width 3, in one ciphertext; 3 tokens in places for 4, so 4 diagonals: 2 skewed
    copies (B = 2), diagonals 2 and 3 in the imaginary part, and a single start, 0, which turns
    nothing.

    Copies: of the keys turned by 0, 1, 2 and 3 only 0 takes no rotation, the others take 2; 7 masks
    each. Then for q·kᵀ a rotation of the second copy and one of the queries, 2 products with one
    relinearisation, a sum over 2 groups; 2 masks, because a padding key needs the conjugate;
    another conjugate and a rotation to take the parts to their places.
    p·v: a rotation puts the weights together, 1 mask, a sum over 2 groups, a rotation of it, 2
    products with one relinearisation, a conjugate. Without placement the values are at a higher
    level than the weights, and each of their 2 copies is brought down.
    """
    body = """%h = poly.reshape %x {shape = [1, 3, 2, 3]}
        %t = poly.transpose %h {permutation = [0, 2, 1, 3]}
        %s = poly.matmul %t, %t {transpose_b = true}
        %f = poly.mask_fill %s {fill = -1.0}
        %o = poly.matmul %f, %t {transpose_b = false}
        %v = poly.transpose %o {permutation = [0, 2, 1, 3]}
        %y = poly.reshape %v {shape = [1, 3, 6]}
        poly.output %y {name = "y"}"""
    costs = program_costs(packed(body))
    scores, context = (
        next(counts for op, counts in costs.per_op.items() if op.name == f"ckks.ct_matmul_{name}")
        for name in ("qk", "pv")
    )
    assert scores.key_switches == 3 * 2 + 2 + 1 + 1 + 1 + 2
    assert scores.plaintext_products == 2 * 7 + 2
    assert context.key_switches == 3 * 2 + 1 + 1 + 1 + 1 + 1
    assert context.plaintext_products == 2 * 7 + 1 + 2
    assert scores.ciphertext_products == context.ciphertext_products == 2
    assert costs.path[:2] == (0, 3 + 3)


def test_levels_of_the_critical_path() -> None:
    """Nonlinear are the ops with a ``part``; the shallow branch does not count."""
    body = """%l = poly.linear %x {weight = @w} loc "encoder.layer.0.dense"
        %a = poly.chebyshev %l {coefficients = [0.0, 0.5, 0.25, 0.125, 0.5], domain = [-1.0, 1.0], part = "gelu"} loc "encoder.layer.0.act"
        %b = poly.mul %a, %l {part = "gelu"} loc "encoder.layer.0.act"
        %m = poly.linear %b {weight = @w} loc "encoder.layer.1.dense"
        %c = poly.square %x {part = "gelu"} loc "encoder.layer.1.act"
        %d = poly.add %m, %c loc "encoder.layer.1"
        %e = poly.linear %d {weight = @w} loc "classifier"
        poly.output %e {name = "y"}"""  # noqa: E501
    path = critical_path(packed(body))
    assert (path.nonlinear, path.total) == (3 + 1, 1 + 3 + 1 + 1 + 1)
    assert path.per_layer == {0: (4, 5), 1: (0, 1), None: (0, 1)}
    costs = program_costs(packed(body))
    assert costs.path == (4, 7, path.per_layer)


def test_counts_by_layer_add_up() -> None:
    body = """%l = poly.linear %x {weight = @w} loc "layer.0"
        %m = poly.linear %l {weight = @w} loc "layer.1"
        %n = poly.square %m loc "head"
        poly.output %n {name = "y"}"""
    costs = program_costs(packed(body))
    layers = costs.by(lambda op: op.layer)
    assert {layer: c.key_switches for layer, c in layers.items()} == {0: 4, 1: 4, None: 1}
    assert costs.total.key_switches == 9
    assert costs.rotation_keys().keys() == set(costs.total.rotation_levels)


def test_bootstraps_and_levels_of_a_placed_program() -> None:
    body = """%a = poly.square %x
        %b = poly.square %a
        %c = poly.square %b
        poly.output %c {name = "y"}"""
    module = run_passes(packed(body), [PlaceBootstraps(levels=2)])
    costs = program_costs(module)
    assert costs.total.bootstraps == 1
    assert costs.path.total == 3
    tops = {level for (_, level) in costs.total.primitives}
    assert max(tops) <= 2


def test_a_program_without_its_arrays_costs_the_same() -> None:
    """Zeros stand in for weights and coefficients; the counts must not take them for sparse."""
    from atlasc.ir.text.parser import parse
    from atlasc.ir.text.storage import print_module

    arrays = {**ARRAYS, "c": np.random.default_rng(0).normal(size=32)}
    module = run_passes(
        poly("""%l = poly.linear %x {weight = @w}
        %e = poly.chebyshev %l {coefficients = @c, domain = [-1.0, 1.0]}
        poly.output %e {name = "y"}""", arrays, (1, 3, 6)),
        [Pack(64)],
    )  # fmt: skip
    bare = parse(print_module(module))
    assert program_costs(bare).total.primitives == program_costs(module).total.primitives
