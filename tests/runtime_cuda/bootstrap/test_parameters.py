"""The parameters of a bootstrap: levels, moduli, security."""

from __future__ import annotations

from bootstrap_core import Core

from atlasc.targets.phantom import PhantomParameters
from atlasc.targets.security import max_log_qp, security_bits


def test_levels_are_left(core: Core) -> None:
    facts = core.facts("budget")
    primes = len(facts["prime_bits"])
    spent = sum(facts["stages"]) + facts["levels"][0]
    assert (primes, facts["levels_left"]) == (28, [14])
    assert primes - 1 - spent == 14


def test_security_is_128_bits(core: Core) -> None:
    facts = core.facts("budget")
    specials = facts["special_primes"][0] * facts["special_bits"][0]
    assert facts["log_qp"] == [sum(facts["prime_bits"]) + specials]
    assert facts["log_qp"][0] <= max_log_qp(2**16)
    assert security_bits(2**16, facts["log_qp"][0]) == 128


def test_plaintexts_have_scales_that_fit_their_primes(core: Core) -> None:
    # A product by a plaintext goes from scale s at level l to s' one below: the plaintext's scale
    # is s' q_l / s, which must leave room for the entries of a matrix.
    facts = core.facts("budget")
    scales, bits = facts["log_scales"], facts["prime_bits"]
    assert len(scales) == len(bits)
    plaintexts = [
        scales[level - 1] + bits[level] - scales[level] for level in range(1, len(scales))
    ]
    assert min(plaintexts) > 37
    left = int(facts["levels_left"][0])
    assert set(scales[: left + 1]) == {46}
    middle = slice(left + int(facts["stages"][1]), len(bits) - int(facts["stages"][0]))
    assert set(scales[middle]) == set(facts["eval_bits"])
    assert scales[-1] == bits[0]


def test_python_has_the_same_set(core: Core) -> None:
    facts = core.facts("budget")
    parameters = PhantomParameters.bootstrapped("fourteen_levels")
    assert list(parameters.moduli.primes) == facts["prime_bits"]
    assert set(parameters.moduli.special) == set(facts["special_bits"])
    assert [parameters.special_primes] == facts["special_primes"]
    assert [parameters.log_qp] == facts["log_qp"]
    assert [parameters.max_level] == facts["levels_left"]
    assert parameters.moduli.scale == facts["log_scales"][0]
    assert parameters.security_bits == 128
    q0 = facts["prime_bits"][0] + facts["special_bits"][0]
    assert parameters.moduli.sparse == (facts["secret_weight"][0], q0)
