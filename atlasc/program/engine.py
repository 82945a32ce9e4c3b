"""The base class of everything that evaluates CKKS ciphertexts, as the lowering uses it.

One small set of primitives is enough for every macro op: linear transforms, Chebyshev sums,
products of ciphertexts and rotate-and-sum are written once against :class:`Engine`. A recorder
(:mod:`atlasc.program.record`) records them as functions. A counter
(:mod:`atlasc.program.counting_engine`), the runtime (:mod:`atlasc.runtime`) and libraries execute
these functions.

Conventions that every implementation keeps, and that the conformance suite in
``tests/atlasc/targets`` checks:

* A ciphertext holds ``slots`` numbers; cleartext vectors are float64 arrays of exactly that length.
  Between the ops of a program these numbers are real. Inside an op a kernel may use the imaginary
  part for a second vector (:meth:`Engine.times_i`, :meth:`Engine.conjugate`, complex plaintexts).
  It leaves no imaginary part behind, because the product of two imaginary parts would come back as
  a real error.
* A **level** is the number of multiplications that are left: an integer from 0 to ``max_level``.
  Every product, with a ciphertext, a vector or a number, takes one level: its result is
  relinearized and rescaled. Additions and rotations take none.
* Operands at different levels are aligned to the lower one; dropping levels is free.
* The engine chooses the scale so that any two ciphertexts may be added, whatever their history.
* Every operation is a pure function: operands are never changed, so a ciphertext may be used any
  number of times.
* A product of a ciphertext at level 0, or a request for more levels than a ciphertext has, raises
  :class:`atlasc.ir.errors.AtlasError`. So does a rotation by an amount for which an engine has no
  key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Generic, NoReturn, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.errors import AtlasError
from atlasc.program.function import Function
from atlasc.program.plaintexts import Argument, Slots, built
from atlasc.program.record_arrays import Recorded
from atlasc.program.transform_work import TRANSFORMS, TransformTerm, chain_amounts, results_of

Vector: TypeAlias = NDArray[np.float64]
"""Cleartext slots: float64 of shape ``(slots,)``."""

Plaintext: TypeAlias = NDArray[np.float64] | NDArray[np.complex128] | float
"""The other factor of a plaintext product: real or complex slots, or one number for all."""


Ct = TypeVar("Ct")
"""A ciphertext of an engine: opaque to everything but this engine."""


LEAST_COPIES = 16
"""How often slots must repeat for a narrow bootstrap to be worth it on atlasc's engines. With fewer
copies its plaintexts need as much memory as a second bootstrap's, and it saves little."""


def is_narrow(period: int, slots: int) -> bool:
    """Whether slots that repeat after ``period`` of them can be bootstrapped narrowly."""
    return 2 * period <= slots


class Engine(ABC, Generic[Ct]):
    """Arithmetic on packed ciphertexts, which have a ``level``.

    Methods with an underscore are called with checked operands.

    Attributes:
        slots: number of real numbers in a ciphertext; a power of two.
        max_level: level of a fresh ciphertext.
        bootstrap_level: level after :meth:`bootstrap`; None if the engine cannot bootstrap.
        bootstrap_batch: number of ciphertexts that one bootstrap of :meth:`bootstrap_many`
            refreshes: 2 if it takes two real ones as the parts of a complex one, otherwise 1.
        bootstrap_from: least level of a ciphertext that can be bootstrapped.
    """

    bootstrap_from = 0

    def __init__(
        self,
        slots: int,
        max_level: int,
        bootstrap_level: int | None = None,
        bootstrap_batch: int = 1,
    ) -> None:
        self.slots, self.max_level = slots, max_level
        self.bootstrap_level, self.bootstrap_batch = bootstrap_level, bootstrap_batch

    def encrypt(self, vector: Vector | None, level: int | None = None) -> Ct:
        """Encrypt ``slots`` numbers at ``level`` (default ``max_level``). Lower levels are
        smaller and cheaper. An engine without data takes None.
        """
        level = self.max_level if level is None else level
        if not 0 <= level <= self.max_level:
            self._refuse("encrypt", f"level {level} is not in 0..{self.max_level}")
        return self._encrypt(self._vector(vector, "encrypt"), level)

    def wait(self) -> None:
        """Return when a device has done its work.

        Raises:
            AtlasError: it will do no more work for this process.
        """

    @abstractmethod
    def decrypt(self, ciphertext: Ct) -> Vector:
        """The real parts of the slots; needs the secret key if there is one."""

    def level(self, ciphertext: Ct) -> int:
        """The number of multiplications that ``ciphertext`` still allows."""
        return int(ciphertext.level)  # type: ignore[attr-defined]

    @abstractmethod
    def add(self, left: Ct, right: Ct) -> Ct:
        """Slot-wise ``left + right``, at the lower of the two levels."""

    @abstractmethod
    def sub(self, left: Ct, right: Ct) -> Ct:
        """Slot-wise ``left - right``, at the lower of the two levels."""

    @abstractmethod
    def negate(self, ciphertext: Ct) -> Ct:
        """Slot-wise ``-x``, at the same level."""

    @abstractmethod
    def add_plain(self, ciphertext: Ct, value: Plaintext) -> Ct:
        """Add a vector (real or complex) slot by slot, or one number to every slot, at the same
        level.
        """

    def mul(self, left: Ct, right: Ct) -> Ct:
        """Slot-wise product, one level below the lower operand; one key switch."""
        return self._product("mul", [left], [right])

    @abstractmethod
    def square(self, ciphertext: Ct) -> Ct:
        """Slot-wise square, one level lower: one key switch."""

    def dot(self, lefts: Sequence[Ct], rights: Sequence[Ct]) -> Ct:
        """Slot-wise ``Σ left · right`` over at least one pair, relinearized once."""
        return self._product("dot", lefts, rights)

    @abstractmethod
    def mul_plain(self, ciphertext: Ct, value: Plaintext) -> Ct:
        """Slot-wise product with a vector or a number, one level lower; no key switch."""

    def dot_plain(self, ciphertexts: Sequence[Ct], values: Sequence[Plaintext]) -> Ct:
        """Slot-wise ``Σ x · value`` over at least one pair, one below the lowest level; no key
        switch. An engine may encode, add and rescale once for all pairs.
        """
        return reduce(self.add, map(self.mul_plain, ciphertexts, values))

    @abstractmethod
    def times_i(self, ciphertext: Ct) -> Ct:
        """Slot-wise ``i · x``, exactly, at the same level; no key switch."""

    @abstractmethod
    def conjugate(self, ciphertext: Ct) -> Ct:
        """Slot-wise complex conjugate, at the same level; one key switch, like a rotation."""

    def rotate(self, ciphertext: Ct, amount: int) -> Ct:
        """Rotate to the left, at the same level: ``numpy.roll(x, -amount)``.

        Any integer is allowed. An amount of 0 modulo ``slots`` returns the operand at no cost; any
        other amount takes a key switch.
        """
        amount %= self.slots
        return self._rotate(ciphertext, amount) if amount else ciphertext

    @abstractmethod
    def rotate_many(self, ciphertext: Ct, amounts: Sequence[int]) -> list[Ct]:
        """``[rotate(ciphertext, k) for k in amounts]``, hoisted where possible."""

    def rotate_sum(self, ciphertext: Ct, amounts: Sequence[int]) -> Ct:
        """``Σ rotate(ciphertext, k)`` over at least one amount, at the same level. An engine may
        divide once for all rotations.
        """
        return reduce(self.add, self.rotate_many(ciphertext, amounts))

    def transform(
        self, ciphertexts: Sequence[Ct], terms: Sequence[TransformTerm], chained: bool = False
    ) -> list[Ct]:
        """Products with a matrix of blocks, given by its diagonals, one level lower.

        Each result is the sum of its terms; it has at least one. Terms with the same giant step are
        rotated together. An engine may postpone divisions to the end, and need not store the
        rotated operands.

        Args:
            terms: those of one result stand together, and in them those of one giant step.
            chained: reach each giant step of a result from the one before it (Horner's rule). That
                takes as many rotations, but keys only for the differences (`chain_amounts`).
        """
        rotated = self._babies(ciphertexts, terms)
        sums: list[dict[int, list[tuple[Ct, Plaintext]]]] = [{} for _ in range(results_of(terms))]
        for baby, giant, value, operand, result in terms:
            sums[result].setdefault(giant, []).append((rotated[operand, baby], value))
        found: list[Any] = []
        for steps in sums:
            total: Any = None
            amounts = chain_amounts([*steps], self.slots)
            for (giant, some), amount in reversed([*zip(steps.items(), amounts, strict=True)]):
                one = self.dot_plain(*zip(*some))
                one = one if chained else self.rotate(one, giant)
                total = one if total is None else self.add(total, one)
                total = self.rotate(total, amount) if chained else total
            found.append(total)
        return found

    def drop_to(self, ciphertext: Ct, level: int) -> Ct:
        """The same slots at ``level``, which is at most the level of ``ciphertext``."""
        there = self.level(ciphertext)
        if not 0 <= level <= there:
            self._refuse("drop_to", f"a ciphertext at level {there} has no level {level}")
        return ciphertext if level == there else self._drop_to(ciphertext, level)

    def bootstrap(self, ciphertext: Ct) -> Ct:
        """The same slots, refreshed to ``bootstrap_level``, from ``bootstrap_from`` or above. They
        must lie within the engine's bootstrap range, usually [-1, 1]; else the result is garbage.
        """
        return self.bootstrap_many([ciphertext])[0]

    def bootstrap_many(
        self, ciphertexts: Sequence[Ct], period: int | None = None, level: int | None = None
    ) -> list[Ct]:
        """``[bootstrap(c) for c in ciphertexts]`` by ``ceil(n / bootstrap_batch)`` bootstraps.

        Args:
            ciphertexts: the ciphertexts, at the levels that :meth:`bootstrap` takes.
            period: number of slots after which the slots of each ciphertext repeat, a power of two.
                If it is half of all slots or less, an engine may use a narrow bootstrap, which
                takes less time. Slots that do not repeat are lost.
            level: level of the results, from ``bootstrap_from`` to ``bootstrap_level``, and by
                default the latter. An engine may need less work for a lower one.
        """
        if self.bootstrap_level is None:
            self._refuse("bootstrap", "these parameters do not allow a bootstrap")
        used = self.slots if period is None else period
        if used < 1 or self.slots % used:
            self._refuse("bootstrap", f"slots cannot repeat after {used} of {self.slots}")
        if ciphertexts and (least := min(map(self.level, ciphertexts))) < self.bootstrap_from:
            self._refuse("bootstrap", f"level {least} is below {self.bootstrap_from}")
        lands = self.bootstrap_level if level is None else level
        if not self.bootstrap_from <= lands <= self.bootstrap_level:
            levels = f"{self.bootstrap_from} to {self.bootstrap_level}"
            self._refuse("bootstrap", f"it ends at a level from {levels}, not at {lands}")
        return self._bootstrap(ciphertexts, lands, used)

    def raise_modulus(self, ciphertext: Ct, level: int, copies: int) -> Ct:
        """Raise a ciphertext from level 0, which begins a bootstrap
        (:mod:`atlasc.program.bootstrap.circuit`). Engines whose library has its own bootstrap
        refuse this.

        Args:
            ciphertext: at level 0.
            level: of the result, from the first one of CoeffsToSlots to the top. The slots are
                coefficients over the scale of this level, which is q0 at the top.
            copies: 1, or ``LEAST_COPIES``. The result is the mean of its rotations by all multiples
                of slots / copies.
        """
        self._refuse("raise_modulus", "this engine has no bootstrap in primitives")

    # --- functions

    def play(
        self,
        function: Function,
        operands: Sequence[Sequence[Ct]],
        arrays: Sequence[NDArray[Any]] = (),
    ) -> list[Ct]:
        """Execute a recorded function, one instruction after the other, and return its result.

        Args:
            function: a function for the engine's shape.
            operands: ciphertexts of each encrypted operand.
            arrays: one for each of the function's roles; a mask is ``[batch, tokens]``.
        """
        roles = dict(zip(function.roles, arrays)) if arrays else {}
        known = dict[Argument, NDArray[Any]]()

        def array(argument: Argument) -> NDArray[Any]:
            if argument not in known:
                found = argument.of(roles[argument.role])
                known[argument] = np.asarray(found, dtype=np.float64).ravel()
            return known[argument]

        values = dict(enumerate(ciphertext for operand in operands for ciphertext in operand))
        for instruction, released in zip(function.code, function.released, strict=True):
            primitive, read, plaintexts, numbers, written = instruction
            given = [values[number] for number in read]
            others = [
                self._made(one, array) if isinstance(one, Slots) else one for one in plaintexts
            ]
            values |= zip(written, self.call(primitive, given, others, numbers), strict=True)
            for number in released:
                del values[number]
        return [values[number] for number in function.results]

    def play_recorded(
        self,
        recorded: Recorded,
        name: str,
        operands: Sequence[Sequence[Ct]],
        arrays: Sequence[NDArray[Any]] = (),
    ) -> list[Ct]:
        """As :meth:`play`, with a function of a stored program, by name."""
        return self.play(recorded.functions[name], operands, arrays)

    def call(
        self,
        primitive: str,
        operands: Sequence[Ct],
        plaintexts: Sequence[Any] = (),
        numbers: Sequence[int] = (),
    ) -> list[Ct]:
        """The results of a primitive, with operands as in an instruction."""
        if primitive in TRANSFORMS:
            terms = TransformTerm.recorded(numbers, plaintexts, self.slots)
            return self.transform(operands, terms, chained=primitive == TRANSFORMS[True])
        method = getattr(self, primitive)
        if primitive == "dot":
            half = len(operands) // 2
            return [method(operands[:half], operands[half:])]
        if primitive == "dot_plain":
            return [method(operands, plaintexts)]
        if primitive == "bootstrap_many":
            return list(method(operands, *numbers))
        if primitive == "rotate_many":
            return list(method(operands[0], numbers))
        if primitive == "rotate_sum":
            return [method(operands[0], numbers)]
        return [method(*operands, *plaintexts, *numbers)]

    def _made(self, slots: Slots, array: Callable[[Argument], NDArray[Any]]) -> Any:
        """The argument of a primitive for a descriptor: its numbers. An engine without data takes
        the descriptor itself.
        """
        return built(slots, self.slots, array)

    def _babies(
        self, ciphertexts: Sequence[Ct], terms: Sequence[TransformTerm]
    ) -> dict[tuple[int, int], Ct]:
        """(operand, baby step) -> the rotated operand of a ``transform``."""
        found = {}
        for number, ciphertext in enumerate(ciphertexts):
            amounts = sorted({term.baby for term in terms if term.operand == number} - {0})
            rotated = self.rotate_many(ciphertext, amounts)
            found[number, 0] = ciphertext
            found |= zip(((number, amount) for amount in amounts), rotated, strict=True)
        return found

    # --- the arithmetic

    @abstractmethod
    def _encrypt(self, vector: NDArray[Any], level: int) -> Ct: ...

    @abstractmethod
    def _dot(self, lefts: Sequence[Ct], rights: Sequence[Ct], level: int) -> Ct:
        """``level`` is the lowest level of all operands."""

    @abstractmethod
    def _rotate(self, ciphertext: Ct, amount: int) -> Ct:
        """``amount`` is in 1..slots - 1."""

    @abstractmethod
    def _drop_to(self, ciphertext: Ct, level: int) -> Ct: ...

    @abstractmethod
    def _bootstrap(self, ciphertexts: Sequence[Ct], level: int, period: int) -> list[Ct]: ...

    # --- checks

    def _product(self, primitive: str, lefts: Sequence[Ct], rights: Sequence[Ct]) -> Ct:
        return self._dot(lefts, rights, self._require_level(primitive, *lefts, *rights))

    def _require_level(self, primitive: str, *factors: Ct) -> int:
        """The lowest level of factors; level 0 is refused."""
        level = min(map(self.level, factors))
        if level < 1:
            why = "the operand is at level 0: no multiplication is left"
            remedy = "place a bootstrap before this op, or choose parameters with more levels"
            self._refuse(primitive, why, remedy)
        return level

    def _vector(self, value: Any, primitive: str) -> NDArray[Any]:
        dtype = np.complex128 if np.iscomplexobj(value) else np.float64
        vector = np.ascontiguousarray(value, dtype=dtype)
        if vector.shape != (self.slots,):
            why = f"a vector has {self.slots} slots, but this one has shape {vector.shape}"
            self._refuse(primitive, why)
        return vector

    def _plain(self, value: Plaintext, primitive: str) -> NDArray[Any] | float:
        return float(value) if isinstance(value, float | int) else self._vector(value, primitive)

    def _refuse(self, primitive: str, why: str, remedy: str = "") -> NoReturn:
        raise AtlasError(f"{primitive} is impossible", why=why, remedy=remedy)
