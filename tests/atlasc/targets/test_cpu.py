"""The engine ``cpu`` in this process: conformance, leveled and with bootstraps."""

from __future__ import annotations

import gc
import hashlib
import itertools
import json
import os
import signal
import struct
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
from tests.sealed_files import Array, opened, sealed


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


def test_a_changed_key_is_refused(tmp_path: Path) -> None:
    """In each of its digits, which are read one after another."""
    parameters = CpuParameters.choose(8, 2**13)
    for role in ("client", "server"):
        (tmp_path / role).mkdir()
    CpuEngine.generate_to(parameters, KeyPlan({1: 8}), tmp_path, no_progress)
    path = tmp_path / "server" / "evaluation.key"
    index = path.with_name("keys.json")
    whole = path.read_bytes()
    metadata, arrays = opened(whole)
    (name, key), digits = arrays.popitem(), parameters.digits(8)
    assert not arrays and digits > 2
    start = whole.index(key.data)

    def refused(content: bytes) -> str:
        path.write_bytes(content)
        facts = json.loads(index.read_text())
        facts["files"] = {path.name: hashlib.sha256(content).hexdigest()}
        index.write_text(json.dumps(facts))
        with pytest.raises(AtlasError) as error:
            CpuEngine.load("server", path.parent, parameters, KeyPlan({1: 8}))
        return str(error.value)

    for digit in range(digits):
        at = start + (digit + 1) * len(key.data) // digits - 1
        changed = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        assert f"array {name} does not match its checksum" in refused(changed)
        assert "it is truncated" in refused(whole[:at])
        # A seal is no secret: whoever makes a file can give it residues that are none.
        data = key.data[: at - start - 15] + b"\xff" * 16 + key.data[at - start + 1 :]
        forged = sealed(metadata, {name: Array("U8", (len(data),), data)})
        assert f"its key {name}" in refused(forged)


def checksum(words: np.ndarray) -> int:
    """FNV-1a over the words of a ciphertext."""
    total = 0xCBF29CE484222325
    for word in words.tolist():
        total = (total ^ word) * 0x100000001B3 % 2**64
    return total


FORMS = {"unpacked": (0, 2, 64), "packed": (1, 2, 50), "seeded": (2, 1, 50)}
"""Form of a ciphertext -> its number, its parts, and the bits that a residue takes."""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", [0, -1])
def test_residues_that_are_not_below_their_prime_are_refused(place: int, form: str) -> None:
    """Each kind of kernel gave another result for them."""
    engine = fresh(CpuParameters.choose(3, 2**12))
    header = engine.serialize(engine.encrypt(np.ones(engine.slots), 0))[:36]
    # Primes of 50 bits that are 1 modulo 2N, from above: that of level 0 follows the special ones.
    candidates = range(2**50 + 1, 0, -4 * engine.slots)
    primes = (q for q in candidates if pow(3, q - 1, q) == 1)
    prime = next(itertools.islice(primes, engine.parameters.special_primes, None))
    number, parts, width = FORMS[form]

    def changed(value: int, size: int = 0) -> bytes:
        residues = np.zeros(parts * engine.parameters.ring_degree, np.uint64)
        residues[place] = value
        bits = residues[:, None] >> np.arange(width, dtype=np.uint64) & np.uint64(1)
        data = np.packbits(bits.astype(np.uint8), bitorder="little").tobytes()
        data += bytes(range(32)) * (form == "seeded") + bytes(size)
        words = np.frombuffer(data, np.uint64)
        return header + struct.pack("<IQ", number, checksum(words)) + data

    engine.deserialize(changed(prime - 1))
    for value in (prime, prime + 1, 2**width - 1):
        with pytest.raises(AtlasError, match="a residue that is not below its prime"):
            engine.deserialize(changed(value))
    for size in (8, 4096):
        with pytest.raises(AtlasError, match="damaged"):
            engine.deserialize(changed(0, size))


@pytest.mark.parametrize("level", [0, 3])
def test_a_seed_stands_for_half_of_a_fresh_ciphertext(level: int) -> None:
    engine = fresh(CpuParameters.choose(3, 2**12))
    vector = np.linspace(-1, 1, engine.slots)
    x = engine.encrypt(vector, level)
    data, again = engine.serialize(x), engine.serialize(engine.encrypt(vector, level))
    computed = engine.serialize(engine.add_plain(x, 0.0))
    bits = sum(engine.parameters.moduli.primes[: level + 1]) * engine.parameters.ring_degree
    assert len(data) == 48 + bits // 8 + 32
    assert len(computed) == 48 + 2 * bits // 8
    assert data[-32:] != again[-32:]
    for sent in (data, computed):
        assert np.abs(engine.decrypt(engine.deserialize(sent)) - vector).max() < 1e-6
    words = np.frombuffer(data[48:], np.uint64).copy()
    words[-1] ^= np.uint64(1)  # a seed that a forger chose gives another ciphertext
    forged = data[:40] + struct.pack("<Q", checksum(words)) + words.tobytes()
    with pytest.raises(AtlasError, match="does not decrypt to anything"):
        engine.decrypt(engine.deserialize(forged))
    with pytest.raises(AtlasError, match="damaged"):
        engine.deserialize(data[:48] + words.tobytes())


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
