"""Parameter sets for Phantom-FHE: security, memory, costs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from atlasc.ir.errors import AtlasError
from atlasc.program.counting_engine import COST_KINDS, counts_of
from atlasc.targets import find_target
from atlasc.targets.cost_table import Bootstrap, CostTable, Measured
from atlasc.targets.costs import fitted_costs, relative_costs
from atlasc.targets.cpu.parameters import CpuParameters
from atlasc.targets.machine import Machine
from atlasc.targets.phantom import PhantomParameters
from atlasc.targets.security import max_log_qp

BOOTSTRAPPED = PhantomParameters.bootstrapped("fourteen_levels")


@pytest.mark.parametrize("levels", [0, 1, 3, 7, 14, 17, 25, 35, 38])
@pytest.mark.parametrize("slots", [1, 2**13, 2**15])
def test_every_choice_is_secure(levels: int, slots: int) -> None:
    found = PhantomParameters.choose(levels, slots)
    assert found.security_bits >= 128
    assert found.log_qp <= max_log_qp(found.ring_degree)
    assert found.slots >= slots
    assert found.bootstrap or found.max_level >= levels
    # A digit is no larger than the special primes: else the noise of a key switch grows.
    bits, most = found.moduli.primes, sum(found.moduli.special)
    for level in range(len(bits)):
        least = math.ceil(sum(bits[: level + 1]) / most)
        assert least <= found.digits(level) <= math.ceil((level + 1) / found.special_primes)


def test_small_programs_get_small_rings_and_deep_ones_bootstrap() -> None:
    assert PhantomParameters.choose(2).log_ring_degree == 13
    assert PhantomParameters.choose(15).log_ring_degree == 15
    assert PhantomParameters.choose(60) == BOOTSTRAPPED
    assert (BOOTSTRAPPED.max_level, BOOTSTRAPPED.bootstrap_level) == (17, 17)
    assert BOOTSTRAPPED.bootstrap_from == 3
    assert (BOOTSTRAPPED.dnum, BOOTSTRAPPED.log_qp) == (6, 1740)


def test_fewer_than_128_bits_are_never_chosen() -> None:
    tempting = PhantomParameters(13, 7, 1)
    assert tempting.security_bits < 128
    assert PhantomParameters.choose(7).log_ring_degree > 13
    with pytest.raises(AtlasError, match="no parameters with 65536 slots"):
        PhantomParameters.choose(3, 2**16)


def test_what_the_engine_does_not_take_is_refused() -> None:
    with pytest.raises(
        AtlasError, match="does not support these parameters(.|\n)*it has 9 special primes"
    ):
        PhantomParameters(15, 9, 9)
    with pytest.raises(AtlasError, match="no bootstrap parameters 'many'"):
        PhantomParameters(16, 14, 4, "many")
    with pytest.raises(AtlasError, match="cannot be read"):
        PhantomParameters.from_dict({"levels": 3})


@pytest.mark.parametrize("parameters", [BOOTSTRAPPED, PhantomParameters.choose(9)])
def test_manifests_read_back(parameters: PhantomParameters) -> None:
    assert find_target("phantom").parameters.from_dict(parameters.to_dict()) == parameters


def test_needs_of_a_bootstrap() -> None:
    needs, (one, two) = BOOTSTRAPPED.needs, BOOTSTRAPPED.circuit(BOOTSTRAPPED.slots)
    assert len(needs.rotations) == len(needs.shared) == 38
    assert needs.key_levels == (25, 25)
    # docs/bootstrapping.md: 11 relinearisations for each of the two parts, rotations of the stages,
    # and a conjugation.
    rotations = 2 * (10 + 14 + 14)
    for function in (one, two):
        # Diagonals of the largest stage do not repeat. The others lack one of 64 in two stages, and
        # the engine multiplies by zero.
        assert counts_of(function).count("transform_dense") == 2 * 32
        assert counts_of(function).count("transform_product") == 2 * (64 + 64)
    for parts, function in enumerate((one, two), 1):
        # The third power is that of two factors at different levels.
        assert counts_of(function).count("mul_scalar") == parts * (22 + 1)
        assert counts_of(function).count("mul", "square") == parts * 11
        assert counts_of(function).key_switches == parts * 11 + rotations + 1


def test_memory_parts() -> None:
    key = BOOTSTRAPPED.key_bytes
    assert key(28) == 2 * 6 * 1740 * 2**16 // 8  # docs/bootstrapping.md: 171 MB
    assert key(17) == 2 * 3 * (57 + 17 * 46 + 300) * 2**16 // 8  # docs/backend-phantom.md: 56 MB
    assert key(0) < key(3) < key(14)
    shared = min(BOOTSTRAPPED.needs.rotations)
    parts = BOOTSTRAPPED.memory_parts({shared: 14, 12345: 3}, 14, None, {None: {14: 2}}, 10**9)
    assert parts["rotation_keys"] == key(3)  # the other one is the bootstrap's
    shared = BOOTSTRAPPED.needs.shared
    assert min(shared.values()) >= BOOTSTRAPPED.max_level
    rotations = sum(map(key, shared.values()))
    back = 17 * key(28) // 6  # of a digit each: from the sparse secret, and of sixteen copies
    assert parts["bootstrap_keys"] == rotations + back + key(0)
    assert parts["other_keys"] == 2 * key(25)
    assert parts["ciphertexts"] == 2 * BOOTSTRAPPED.ciphertext_bytes(14)
    leveled = PhantomParameters.choose(9)
    parts = leveled.memory_parts({1: 9}, 9, None, {None: {9: 1}})
    assert parts["other_keys"] == leveled.key_bytes(9)
    assert "bootstrap_keys" not in parts


def test_relative_costs_grow_with_the_level() -> None:
    costs = relative_costs(BOOTSTRAPPED)
    assert costs["rotate", 17] == 1.0
    for primitive in COST_KINDS:
        assert primitive.startswith("bootstrap") or costs[primitive, 0] < costs[primitive, 17]
    # Of the engine cpu both are measured: 223 rotations at level 14.
    assert 80 < relative_costs(CpuParameters.bootstrapped())["bootstrap", 18] < 400
    hoisted = costs["hoist", 17] + 7 * costs["rotate_hoisted", 17]
    assert hoisted < 7 * costs["rotate", 17]


def test_a_table_from_the_gpu_gives_its_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fitted_costs(BOOTSTRAPPED) is None  # the table in use is of desilo
    names = [name for name in (*COST_KINDS, "key") if not name.startswith("bootstrap")]
    work = relative_costs(BOOTSTRAPPED)
    seconds = {
        name: {level: 0.01 * work.get((name, level), 1.0) for level in (1, 7, 17)}  # type: ignore[call-overload]
        for name in names
    }
    table = CostTable(
        "phantom", "test", Machine("GPU", 1, 40.0), "2026-01-01",
        (Measured(BOOTSTRAPPED.to_dict(), seconds),), Bootstrap(0.5, 20.0, True),
    )  # fmt: skip
    (tmp_path / "phantom.json").write_text(table.text())
    monkeypatch.setenv("ATLASC_COSTS", str(tmp_path / "phantom.json"))
    costs = fitted_costs(BOOTSTRAPPED)
    assert costs is not None
    assert costs.cost("rotate", 17) == pytest.approx(0.01)
    assert costs.costs()["bootstrap", 17] == 0.5
    assert costs.key_seconds({5: 17}) == pytest.approx(20.01)
