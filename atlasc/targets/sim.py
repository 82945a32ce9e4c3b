"""The target ``sim``: cleartext slots that behave like ciphertexts, for tests and rehearsals.

The engine is exact, fast, has no keys, and is strict about levels: it is the oracle of every test
of the lowering. It refuses what a real backend could not do, or would do silently wrong: a product
at level 0, values outside the range of a bootstrap, values that no longer fit the last modulus, a
rotation for which the plan has no key. With a :class:`~atlasc.targets.parameters.NoiseModel` each
primitive adds the error that CKKS adds, so that a program's precision can be judged in
milliseconds.

Parameter sets, costs and errors are those of ``cpu``, so that it shows what would be run. Client
and server may be rehearsed on it: folders of keys and files of ciphertexts have the places and the
checks of real ones, and each of them says that it hides nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, reduce
from itertools import accumulate
from operator import add
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.passes.execution.engine import Plaintext, Vector, is_narrow
from atlasc.passes.lowering.rotation_keys import KeyPlan, rotation_reach
from atlasc.targets.base import Progress, RoleEngine, Target
from atlasc.targets.cpu import TARGET as cpu
from atlasc.targets.key_folders import Role, read_index, write_bytes, write_index
from atlasc.targets.noise import NoiseModel
from atlasc.targets.parameters import ParameterSet

LOG_CAPACITY, LOG_SCALE = 19.0, 40
"""log2 of the largest absolute value that fits at level 0 (base modulus over scale, less a bit for
the sign), and of the scale: the bits that each level adds."""
NOTE = "SIMULATION: nothing is encrypted; this hides nothing and protects nobody"
"""In every file that a person may open."""

Slots: TypeAlias = NDArray[Any]
"""float64, or complex128 within an op."""


@dataclass(slots=True, eq=False)
class SimCiphertext:
    """Slots and the level at which they stand. Immutable by convention; use the engine."""

    values: Slots
    level: int


class SimEngine(RoleEngine[SimCiphertext]):
    """An engine on float64 arrays.

    Args:
        slots, max_level, bootstrap_level: see :class:`Engine`.
        bootstrap_batch: where it is 2, an imaginary part of one ciphertext spoils the other, as in
            a real bootstrap of two.
        noise: None computes exactly (in float64).
        seed: of the noise; the same program with the same seed gives the same result.
        bootstrap_range: largest absolute slot value that may enter a bootstrap.
        rotation_keys: amount -> highest level at which it may be used, as the plan of rotation
            keys has it; None allows every amount.
    """

    target = "sim"

    def __init__(
        self,
        slots: int,
        max_level: int,
        bootstrap_level: int | None = None,
        bootstrap_batch: int = 1,
        *,
        noise: NoiseModel | None = None,
        seed: int = 0,
        bootstrap_range: float = 1.0,
        rotation_keys: Mapping[int, int] | None = None,
    ) -> None:
        super().__init__(slots, max_level, bootstrap_level, bootstrap_batch)
        self.noise, self.bootstrap_range = noise or NoiseModel(), bootstrap_range
        self.rotation_keys = rotation_keys
        self._random = np.random.default_rng(seed)

    # --- in and out

    def _encrypt(self, vector: Slots, level: int) -> SimCiphertext:
        self._require_fit("encrypt", vector, level)
        return SimCiphertext(self._noisy(vector.copy(), self.noise.fresh), level)

    def decrypt(self, ciphertext: SimCiphertext) -> Vector:
        """The slots.

        Raises:
            AtlasError: a value does not fit the modulus of its level: a real ciphertext would
                have wrapped around, and would decrypt to garbage.
        """
        self._require_secret("decrypt")
        self._require_fit("decrypt", ciphertext.values.real, ciphertext.level)
        return self._noisy(ciphertext.values, self.noise.settle).real.copy()

    def _require_fit(self, primitive: str, slots: Slots, level: int) -> None:
        self._require_readable(primitive, slots, level, LOG_CAPACITY + LOG_SCALE * level)

    def serialize(self, ciphertext: SimCiphertext) -> bytes:
        """A safetensors file with slots, level and identity, whose header says that they are not
        encrypted."""
        from safetensors.numpy import save

        arrays = {
            "slots": np.ascontiguousarray(ciphertext.values.real),
            "level": np.array(ciphertext.level, dtype=np.int64),
            "keys": np.frombuffer(bytes.fromhex(self.identity), np.uint8),
        }
        return save(arrays, {"note": NOTE})

    def deserialize(self, data: bytes) -> SimCiphertext:
        from safetensors.numpy import load

        wanted = {"slots": ("<f8", (self.slots,)), "level": ("<i8", ()), "keys": ("|u1", (16,))}
        why = f"it has not {self.slots} slots and a level up to {self.max_level}"
        try:
            arrays = load(data)
        except Exception as error:  # SafetensorError, and whatever NumPy makes of odd types
            arrays, why = {}, (str(error).splitlines() or [type(error).__name__])[0]
        found = {name: (array.dtype.str, array.shape) for name, array in arrays.items()}
        if found != wanted or not 0 <= (level := int(arrays["level"])) <= self.max_level:
            raise AtlasError("this is not a ciphertext of the target sim", why=why)
        self._require_identity(arrays["keys"].tobytes().hex())
        return SimCiphertext(arrays["slots"], level)

    # --- arithmetic

    def add(self, left: SimCiphertext, right: SimCiphertext) -> SimCiphertext:
        return SimCiphertext(left.values + right.values, min(left.level, right.level))

    def sub(self, left: SimCiphertext, right: SimCiphertext) -> SimCiphertext:
        return SimCiphertext(left.values - right.values, min(left.level, right.level))

    def negate(self, ciphertext: SimCiphertext) -> SimCiphertext:
        return SimCiphertext(-ciphertext.values, ciphertext.level)

    def times_i(self, ciphertext: SimCiphertext) -> SimCiphertext:
        return SimCiphertext(1j * ciphertext.values, ciphertext.level)

    def conjugate(self, ciphertext: SimCiphertext) -> SimCiphertext:
        return self._switched(ciphertext.values.conj(), ciphertext.level)

    def rotate_many(self, ciphertext: SimCiphertext, amounts: Sequence[int]) -> list[SimCiphertext]:
        # All results are windows into one array of twice the length: no copy for each.
        twice = np.concatenate((ciphertext.values, ciphertext.values))
        result = []
        for amount in (amount % self.slots for amount in amounts):
            if amount == 0:
                result.append(ciphertext)
                continue
            self._require_key(amount, ciphertext.level)
            window = twice[amount : amount + self.slots]
            result.append(self._switched(window, ciphertext.level))
        return result

    def square(self, ciphertext: SimCiphertext) -> SimCiphertext:
        level = self._require_level("square", ciphertext)
        return self._product_of(np.square(self._rescaled(ciphertext)), level - 1)

    def add_plain(self, ciphertext: SimCiphertext, value: Plaintext) -> SimCiphertext:
        operand = self._plain(value, "add_plain")
        return SimCiphertext(ciphertext.values + operand, ciphertext.level)

    def mul_plain(self, ciphertext: SimCiphertext, value: Plaintext) -> SimCiphertext:
        level = self._require_level("mul_plain", ciphertext)
        operand = self._plain(value, "mul_plain")
        if isinstance(operand, np.ndarray):
            operand = self._noisy(operand, self.noise.encode)
        elif self.noise.encode:  # a number is rounded, which counts where slots are large
            operand = round(operand * 2.0**LOG_SCALE) / 2.0**LOG_SCALE
        return SimCiphertext(self._rescaled(ciphertext) * operand, level - 1)

    def _rotate(self, ciphertext: SimCiphertext, amount: int) -> SimCiphertext:
        self._require_key(amount, ciphertext.level)
        values = ciphertext.values
        rolled = np.concatenate((values[amount:], values[:amount]))
        return self._switched(rolled, ciphertext.level)

    def _dot(
        self, lefts: Sequence[SimCiphertext], rights: Sequence[SimCiphertext], level: int
    ) -> SimCiphertext:
        pairs = zip(lefts, rights, strict=True)
        products = (self._rescaled(left) * self._rescaled(right) for left, right in pairs)
        return self._product_of(reduce(add, products), level - 1)

    def _drop_to(self, ciphertext: SimCiphertext, level: int) -> SimCiphertext:
        return SimCiphertext(ciphertext.values, level)

    def _bootstrap(
        self, ciphertexts: Sequence[SimCiphertext], level: int, period: int
    ) -> list[SimCiphertext]:
        if self.bootstrap_batch == 1:
            parts = [ciphertext.values.real for ciphertext in ciphertexts]
        else:
            parts = []
            for first in range(0, len(ciphertexts), 2):
                pair = ciphertexts[first : first + 2]
                both = pair[0].values + 1j * pair[-1].values
                parts += [both.real, both.imag]
        return [self._refreshed(one, level, period) for one in parts[: len(ciphertexts)]]

    def _refreshed(self, values: Vector, level: int, period: int) -> SimCiphertext:
        copies = self.slots // period
        if is_narrow(period, self.slots):
            values = np.tile(values.reshape(copies, period).mean(axis=0), copies)
        largest = _largest(SimCiphertext(values, 0))
        # The tolerance lets a value of exactly the range pass with the noise of its history.
        if not largest <= self.bootstrap_range * (1 + 1e-6):
            self._refuse(
                "bootstrap",
                f"a slot holds {largest:.6g}, outside [-{self.bootstrap_range:g}, "
                f"{self.bootstrap_range:g}]: the result would be garbage",
                "scale the value down before the bootstrap, or calibrate its range again",
            )
        if self.noise.bootstrap_cubic:
            polynomial = coefficients(values)
            values = from_coefficients(polynomial - self.noise.bootstrap_cubic * polynomial**3)
        if deviation := self.noise.of_bootstrap(1 / copies):
            drawn = deviation * self._random.standard_normal(self.slots // copies)
            values = values + np.tile(drawn, copies)
        return SimCiphertext(values, level)

    def _noisy(self, values: Slots, deviation: float) -> Slots:
        """With errors of both parts."""
        if not deviation:
            return values
        parts = self._random.standard_normal(2 * self.slots).view(np.complex128)
        return values + deviation * parts

    def _rescaled(self, ciphertext: SimCiphertext) -> Slots:
        return self._noisy(ciphertext.values, self.noise.rescale)

    def _switched(self, values: Slots, level: int) -> SimCiphertext:
        return SimCiphertext(self._noisy(values, self.noise.of_key_switch(level)), level)

    def _product_of(self, values: Slots, level: int) -> SimCiphertext:
        return SimCiphertext(self._noisy(values, self.noise.relinearize), level)

    def _require_key(self, amount: int, level: int) -> None:
        if self.rotation_keys is not None:
            reach = self.rotation_keys.get(amount, -1)
            self._require_reach("rotate", f"amount {amount}", reach, level, "plan the key")


def _largest(ciphertext: SimCiphertext) -> float:
    values = ciphertext.values.real
    return float(max(values.max(), -values.min()))  # NaN stays NaN and fails every bound


def coefficients(slots: Vector) -> Vector:
    """The polynomial, of twice as many coefficients, whose canonical embedding is ``slots``.

    Coefficient 0 is the mean of the slots. Cheon et al. 2017, section 2.2, without the scale.
    """
    degree = 2 * slots.size
    powers = _powers_of_five(degree)
    spectrum = np.zeros(2 * degree)
    spectrum[powers] = spectrum[-powers] = slots
    return np.ascontiguousarray(np.fft.fft(spectrum)[:degree].real) / degree


def from_coefficients(polynomial: Vector) -> Vector:
    """The inverse of :func:`coefficients`."""
    degree = polynomial.size
    values = np.fft.ifft(polynomial, 2 * degree) * (2 * degree)
    return np.ascontiguousarray(values[_powers_of_five(degree)].real)


@lru_cache(maxsize=4)
def _powers_of_five(degree: int) -> NDArray[np.int64]:
    """5^j modulo 2 degree, for j = 0 .. degree/2 - 1: which root of unity belongs to slot j."""
    powers = accumulate(range(degree // 2), lambda power, _: power * 5 % (2 * degree), initial=1)
    return np.fromiter(powers, dtype=np.int64, count=degree // 2)


class SimTarget(Target):
    """A simulation, in this process or as client and server."""

    name = "sim"
    summary = "cleartext slots with levels and noise"
    encrypted = False
    parameters = cpu.parameters

    def cost_warning(self, costs: Path | None = None) -> str:
        """The warning of ``cpu``, whose costs these are."""
        return cpu.cost_warning(costs)

    def make_engine(
        self, program: Module, parameters: ParameterSet, progress: Progress, *, noise: bool = False
    ) -> SimEngine:
        model = parameters.noise_model() if noise else None
        keys = rotation_reach(program, parameters.max_level)
        return SimEngine(*parameters.shape, noise=model, rotation_keys=keys)

    def generate_keys(
        self, parameters: ParameterSet, plan: KeyPlan, folder: Path, progress: Progress
    ) -> None:
        """Write folders like those of real keys. ``secret.key`` holds words instead of a secret."""
        told: dict[str, Any] = {
            "parameters": parameters,
            "identity": secrets.token_hex(16),
            "target": self.name,
        }
        write_index(folder, "server", **told, note=NOTE, **asdict(plan))
        write_bytes(folder / "client" / "secret.key", f"{NOTE}\n".encode())
        write_index(folder, "client", **told, note=NOTE)

    def role_engine(
        self, role: Role, folder: Path, parameters: ParameterSet, plan: KeyPlan | None = None
    ) -> SimEngine:
        index = read_index(folder, role, self.name, parameters, plan)
        keys = dict(index.rotations)
        if role == "server":  # the key of the bootstrap serves rotations too
            keys |= dict.fromkeys(parameters.needs.rotations, parameters.max_level)
        engine = SimEngine(*parameters.shape, rotation_keys=keys)
        engine.identity, engine.has_secret = index.identity, role == "client"
        return engine


TARGET = SimTarget()
