"""The engine ``cpu`` in this process: conformance, leveled and with bootstraps."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance import EngineConformance, every_key

from atlasc.ir.errors import AtlasError
from atlasc.program.engine import Engine
from atlasc.program.key_plan import KeyPlan
from atlasc.targets.base import no_progress
from atlasc.targets.cpu.engine import CpuEngine
from atlasc.targets.cpu.parameters import CpuParameters


def fresh(parameters: CpuParameters) -> CpuEngine:
    """With all keys of the conformance suite."""
    return CpuEngine.fresh(parameters, every_key(parameters), no_progress)


class Leveled(EngineConformance):
    """The error of a rotation has a standard deviation of 2e-8 in a slot."""

    tolerance = 2e-7
    exact = 2e-7


class Bootstrapped(EngineConformance):
    """Two real ciphertexts share a bootstrap."""

    tolerance = 1e-6
    exact = 1e-6
    refreshed = 2e-5


def require_threads(engine: Engine[Any]) -> None:
    """Threads compute on one engine."""

    def squared(number: float) -> float:
        x = engine.encrypt(np.full(engine.slots, number))
        return float(np.abs(engine.decrypt(engine.square(x)) - number**2).max())

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(squared, np.linspace(-1, 1, 12))) < 1e-6


class TestLeveled(Leveled):
    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Engine[Any]:
        return fresh(CpuParameters.choose(3, 2**12))


class TestMoreDigits(Leveled):
    """A key switch of several digits, at another ring."""

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Engine[Any]:
        parameters = CpuParameters.choose(8, 2**13)
        assert parameters.digits(parameters.max_level) > 1
        return fresh(parameters)


@pytest.mark.deep("ciphertexts")
@pytest.mark.large
class TestBootstrapped(Bootstrapped):
    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Engine[Any]:
        return fresh(CpuParameters.bootstrapped())


def test_a_key_set_serves_a_program_that_needs_some_of_its_keys(tmp_path: Path) -> None:
    """Half of a key follows from a seed and from the place of the key among all."""
    parameters = CpuParameters.choose(3, 2**12)
    for role in ("client", "server"):
        (tmp_path / role).mkdir()
    all_keys = KeyPlan(dict.fromkeys((1, 2, 3, 10, 64), 3), 3, 3)
    CpuEngine.generate_to(parameters, all_keys, tmp_path, no_progress)
    client = CpuEngine.load("client", tmp_path / "client", parameters, None)
    vector = np.linspace(-1, 1, client.slots)
    sent = client.serialize(client.encrypt(vector))
    for some in (KeyPlan({10: 3, 64: 3}), KeyPlan({2: 3}, None, 3), KeyPlan({3: 3}, 3, None)):
        server = CpuEngine.load("server", tmp_path / "server", parameters, some)
        for amount in some.rotations:
            turned = server.serialize(server.rotate(server.deserialize(sent), amount))
            found = client.decrypt(client.deserialize(turned))
            assert np.abs(found - np.roll(vector, -amount)).max() < 1e-6


def checksum(words: np.ndarray) -> int:
    """FNV-1a over the words of a ciphertext."""
    total = 0xCBF29CE484222325
    for word in words.tolist():
        total = (total ^ word) * 0x100000001B3 % 2**64
    return total


@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize("excess", [0, 1, None])
def test_residues_that_are_not_below_their_prime_are_refused(
    place: int, excess: int | None
) -> None:
    """Each kind of kernel gave another result for them."""
    engine = fresh(CpuParameters.choose(3, 2**12))
    data = engine.serialize(engine.encrypt(np.ones(engine.slots), 0))
    header, words = data[:48], np.frombuffer(data[48:], np.uint64).copy()
    # Primes of 50 bits that are 1 modulo 2N, from above: that of level 0 follows the special ones.
    candidates = range(2**50 + 1, 0, -4 * engine.slots)
    primes = (q for q in candidates if pow(3, q - 1, q) == 1)
    prime = next(itertools.islice(primes, engine.parameters.special_primes, None))
    assert words.max() < prime

    def changed(value: int) -> bytes:
        words[place] = value
        return header[:40] + checksum(words).to_bytes(8, "little") + words.tobytes()

    engine.deserialize(changed(prime - 1))
    with pytest.raises(AtlasError, match="a residue that is not below its prime"):
        engine.deserialize(changed(2**64 - 1 if excess is None else prime + excess))


def test_a_set_below_128_bits_has_no_engine() -> None:
    for weak in (CpuParameters(13, 6, 1), CpuParameters.bootstrapped(log_ring_degree=13)):
        assert weak.security_bits < 128
        with pytest.raises(AtlasError, match="fewer than 128 bits of security"):
            CpuEngine.fresh(weak, KeyPlan({}), no_progress)


def test_a_fork_has_threads_of_its_own() -> None:
    """Threads of the parent are gone in a child, which must not wait for them."""
    engine = fresh(CpuParameters.choose(3, 2**12))
    x = engine.encrypt(np.ones(engine.slots))
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        found = engine.decrypt(engine.square(x))
        os._exit(0 if np.abs(found - 1).max() < 1e-6 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_threads_compute_on_one_engine() -> None:
    require_threads(fresh(CpuParameters.choose(3, 2**12)))


def test_an_engine_goes_with_its_last_reference() -> None:
    """Gigabytes of keys do not wait for the collector of cycles."""
    engine = fresh(CpuParameters.choose(3, 2**12))
    engine.decrypt(engine.square(engine.encrypt(np.ones(engine.slots))))
    known = weakref.ref(engine)
    gc.disable()
    try:
        del engine
        assert known() is None
    finally:
        gc.enable()
