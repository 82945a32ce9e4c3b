"""The parameters of a bootstrap: levels, moduli, scales, security."""

from __future__ import annotations

import pytest

from atlasc.program.bootstrap.sets import SETS
from atlasc.targets.phantom import PhantomParameters
from atlasc.targets.security import max_log_qp, security_bits


@pytest.mark.parametrize("name", SETS)
def test_levels_and_security(name: str) -> None:
    chosen, parameters = SETS[name], PhantomParameters.bootstrapped(name)
    spent = chosen.cts_stages + chosen.eval_levels + chosen.stc_stages
    assert chosen.top - spent == chosen.levels_left == parameters.max_level == 14
    log_qp = sum(chosen.prime_bits) + chosen.special_primes * chosen.special_bits
    assert parameters.log_qp == log_qp <= max_log_qp(2**16)
    assert parameters.security_bits == security_bits(2**16, log_qp) == 128
    sparse = chosen.secret_weight, chosen.base_bits + chosen.special_bits
    assert parameters.moduli.sparse == sparse


@pytest.mark.parametrize("name", SETS)
def test_plaintexts_have_scales_that_fit_their_primes(name: str) -> None:
    # A product by a plaintext goes from scale s at level l to s' one below: the plaintext's scale
    # is s' q_l / s, which must leave room for the entries of a matrix.
    chosen = SETS[name]
    scales, bits = chosen.log_scales, chosen.prime_bits
    assert len(scales) == len(bits)
    plaintexts = [
        scales[level - 1] + bits[level] - scales[level] for level in range(1, len(scales))
    ]
    assert min(plaintexts) > 33
    left = chosen.levels_left
    assert set(scales[: left + 1]) == {chosen.scale_bits}
    middle = slice(left + chosen.stc_stages, len(bits) - chosen.cts_stages)
    *reduction, square, first = scales[middle]
    assert {*reduction, square - chosen.square_bits, first} == {chosen.eval_bits}
    assert scales[-1] == bits[0]


@pytest.mark.parametrize("name", SETS)
def test_squares_keep_their_scale_where_ciphertexts_are_multiplied(name: str) -> None:
    # By this rule the engine finds the levels whose scales follow the primes that there are.
    chosen = SETS[name]
    scales, bits = chosen.log_scales, chosen.prime_bits
    kept = [
        level
        for level in range(1, len(bits))
        if 2 * scales[level] == scales[level - 1] + bits[level]
    ]
    first = chosen.levels_left + chosen.stc_stages + 1
    reduction = range(first, first + chosen.eval_levels)
    assert set(kept) >= {*range(1, chosen.levels_left + 1), *reduction}
