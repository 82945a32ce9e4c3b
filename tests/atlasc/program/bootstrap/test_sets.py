"""The parameters of a bootstrap: levels, moduli, scales, security."""

from __future__ import annotations

import pytest

from atlasc.program.bootstrap.sets import SETS
from atlasc.targets.phantom import PhantomParameters
from atlasc.targets.security import max_log_qp, security_bits


@pytest.mark.parametrize(("name", "between"), [("fourteen_levels", 14), ("fifteen_levels_40", 15)])
def test_levels_and_security(name: str, between: int) -> None:
    chosen, parameters = SETS[name], PhantomParameters.bootstrapped(name)
    assert chosen.top - chosen.cts_stages - chosen.eval_levels == chosen.levels
    assert parameters.max_level == parameters.bootstrap_level == chosen.levels
    assert parameters.bootstrap_level - parameters.bootstrap_from == between
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
    assert set(scales[: chosen.levels + 1]) == {chosen.scale_bits}
    assert scales[-1] == bits[0]


@pytest.mark.parametrize("name", SETS)
def test_squares_keep_their_scale_where_ciphertexts_are_multiplied(name: str) -> None:
    # By this rule the engine finds the levels whose scales follow the primes that there are: all
    # from the bottom up to the first one where it fails.
    chosen = SETS[name]
    scales, bits = chosen.log_scales, chosen.prime_bits
    first = next(
        level
        for level in range(1, len(bits))
        if 2 * scales[level] != scales[level - 1] + bits[level]
    )
    assert first == chosen.levels + chosen.eval_levels + 1
