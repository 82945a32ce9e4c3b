"""The parameter sets of desilofhe: slots, levels, moduli, sizes; and the choice among them.

The library has two constructors that matter here. ``Engine(log_coeff_count, special_prime_count)``
is leveled: one 40-bit prime a level, a base prime and ``k`` special primes of 60 bits each, and as
many levels as 128-bit security leaves; more special primes mean fewer levels and smaller, faster
keys. ``Engine(use_bootstrap_to_14_levels=True)`` is the one that can bootstrap: 15 more primes of
54 bits.

The library does not publish its moduli. These figures were read from the residues of serialised
keys and ciphertexts of version 1.17.0, whose largest value gives the size of each prime. The secret
is our own (``desilo_keys.ternary_secret``), dense and ternary; the sparse one inside a bootstrap is
the library's. They are assumptions about a closed library, checked by ``tests/atlasc/targets``;
docs/backend-desilo.md says how they were found.

The top level of a leveled engine is not used: a rotation there silently costs a level.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from atlasc.ir.errors import AtlasError
from atlasc.targets.noise import NoiseModel
from atlasc.targets.ring import Ring
from atlasc.targets.security_estimates import check_set, set_bits

PRIME_BITS = 40
"""Of the prime of one level, and so of the scale."""
LARGE_PRIME_BITS = 60
"""Of the base prime and of each special prime."""
BOOTSTRAP_PRIMES = (15, 54)
"""How many primes a bootstrap consumes, and their bits."""
BOOTSTRAP_LEVELS = 14
BOOTSTRAP_SECRET_WEIGHT = 128
"""Of the sparse secret to which a bootstrap switches a ciphertext while its modulus is raised."""
BOOTSTRAP_BATCH = 2
"""The library refreshes two real ciphertexts as the parts of a complex one."""

LIBRARY_LEVELS: dict[tuple[int, int], int] = {
    (14, 1): 7,
    (14, 2): 6,
    (14, 3): 4,
    (15, 2): 17,
    (15, 3): 15,
    (15, 4): 14,
    (15, 5): 12,
    (15, 6): 11,
    (15, 7): 9,
    (15, 8): 8,
    (16, 4): 36,
    (16, 5): 34,
    (16, 6): 33,
    (16, 7): 31,
    (16, 8): 30,
    (16, 9): 28,
    (16, 10): 27,
    (16, 12): 24,
    (16, 14): 21,
    (16, 16): 18,
}
"""(log2 of the ring degree, special primes) -> the library's max_level.

(15, 1), (16, 1), (16, 2) and (16, 3) are missing on purpose: their lowest levels are broken. At
ring degree 2^16 everything is garbage after more than 36 rescalings from the top, at 2^15 after
more than 17."""

_BOOTSTRAP_KEY_BYTES = int(13.8 * 2**30)
"""Of the 'medium' bootstrap key with three stages, in memory."""
_BOOTSTRAP_FILE_BYTES = int(8.8 * 2**30)
"""The same in a file."""
_WORKING_BYTES = 3 * 2**28
"""Of the library itself and its temporary results, at ring degree 2^16."""


@dataclass(frozen=True)
class DesiloParameters(Ring):
    """One parameter set.

    Attributes:
        log_ring_degree: log2 of the ring degree N; a ciphertext has N/2 slots.
        special_primes: number of special primes.
        bootstrap: the set with bootstrapping; it fixes the other two to 16 and 4.

    Raises:
        AtlasError: the library has no such set, or not one that works.
    """

    log_ring_degree: int
    special_primes: int
    bootstrap: bool = False

    def __post_init__(self) -> None:
        key = (self.log_ring_degree, self.special_primes)
        if key != (16, 4) if self.bootstrap else key not in LIBRARY_LEVELS:
            known = ", ".join(f"2^{n} with {k}" for n, k in LIBRARY_LEVELS)
            raise AtlasError(
                f"desilofhe has no usable parameters with ring degree 2^{key[0]} and {key[1]} "
                f"special primes{' for bootstrapping' if self.bootstrap else ''}",
                remedy=f"choose one of: {known}; with bootstrapping only 2^16 with 4",
            )

    @property
    def max_level(self) -> int:
        """Levels of a fresh ciphertext, as far as all operations keep their contract there."""
        if self.bootstrap:
            return BOOTSTRAP_LEVELS
        return LIBRARY_LEVELS[self.log_ring_degree, self.special_primes] - 1

    @property
    def bootstrap_level(self) -> int | None:
        """Levels after a bootstrap; None for a leveled set."""
        return BOOTSTRAP_LEVELS if self.bootstrap else None

    @property
    def bootstrap_batch(self) -> int:
        """Ciphertexts that one bootstrap refreshes."""
        return BOOTSTRAP_BATCH if self.bootstrap else 1

    @property
    def bootstrap_errors(self) -> tuple[float, float]:
        """Of a bootstrap: standard deviation in each slot, and factor of its cubic term."""
        noise = NoiseModel.ckks(self.ring_degree)
        return noise.bootstrap, noise.bootstrap_cubic

    @property
    def bootstrap_rotations(self) -> frozenset[int]:
        """Amounts, to the left, by which the bootstrap key turns: to the right by powers of two."""
        powers = range(self.log_ring_degree - 1) if self.bootstrap else ()
        return frozenset(self.slots - (1 << power) for power in powers)

    @property
    def log_qp(self) -> float:
        """log2 of the product of all moduli under which a key or a ciphertext is published."""
        large = LARGE_PRIME_BITS * (1 + self.special_primes)
        if self.bootstrap:
            count, bits = BOOTSTRAP_PRIMES
            return large + PRIME_BITS * (BOOTSTRAP_LEVELS + 1) + count * bits
        return large + PRIME_BITS * (self.max_level + 1)

    @property
    def sparse(self) -> tuple[int, float] | None:
        """See the base class: the key to the sparse secret has the primes of level 0."""
        large = LARGE_PRIME_BITS * (1 + self.special_primes)
        return (BOOTSTRAP_SECRET_WEIGHT, PRIME_BITS + large) if self.bootstrap else None

    @property
    def security_bits(self) -> int:
        """Of all its secrets; every set has at least 128."""
        return set_bits(self)

    def library_arguments(self) -> dict[str, Any]:
        """Keyword arguments of ``desilofhe.Engine`` that make this set."""
        if self.bootstrap:
            return {"use_bootstrap_to_14_levels": True}
        return {
            "log_coeff_count": self.log_ring_degree,
            "special_prime_count": self.special_primes,
        }

    # --- sizes

    @property
    def dnum(self) -> int:
        """Digits of the decomposition in a key switch at the top."""
        return self.digits(self.max_level)

    def digits(self, level: int) -> int:
        """Digits of the decomposition in a key switch at ``level``."""
        return -(-self.residues(level) // self.special_primes)

    def residues(self, level: int) -> int:
        """Primes of a ciphertext at ``level``."""
        return level + 2

    def ciphertext_bytes(self, level: int) -> int:
        """Size of a ciphertext at ``level``, in memory and in a file."""
        return 2 * self.residues(level) * self.ring_degree * 8

    def key_bytes(self, level: int) -> int:
        """Size of a relinearisation, conjugation or rotation key that reaches ``level``."""
        primes = level + 2 + self.special_primes
        return 2 * self.digits(level) * primes * self.ring_degree * 8

    def evaluation_key_bytes(
        self,
        rotations: Mapping[int, int],
        relinearization_level: int | None,
        conjugation_level: int | None = None,
        *,
        on_disk: bool = False,
    ) -> int:
        """Size of all keys of the server. ``rotations``: amount -> level."""
        total = sum(self.key_bytes(level) for level in rotations.values())
        if self.bootstrap:
            full = self.key_bytes(BOOTSTRAP_LEVELS + BOOTSTRAP_PRIMES[0])
            return total + (_BOOTSTRAP_FILE_BYTES if on_disk else _BOOTSTRAP_KEY_BYTES) + 2 * full
        for level in (relinearization_level, conjugation_level):
            if level is not None:
                total += self.key_bytes(level)
        return total

    def key_file_bytes(
        self,
        name: str,
        rotations: Mapping[int, int],
        relinearization_level: int | None,
        conjugation_level: int | None,
    ) -> int:
        """Size of one key on the disk: ``bootstrap``, ``relinearization``, ``conjugation`` or
        ``rotation_<amount>``; levels as for :meth:`evaluation_key_bytes`.
        """
        if name == "bootstrap":
            return _BOOTSTRAP_FILE_BYTES
        if name.startswith("rotation_"):
            return self.key_bytes(rotations[int(name.removeprefix("rotation_"))])
        if self.bootstrap:
            return self.key_bytes(BOOTSTRAP_LEVELS + BOOTSTRAP_PRIMES[0])
        level = relinearization_level if name == "relinearization" else conjugation_level
        return self.key_bytes(level or 0)

    def memory_parts(
        self,
        rotations: Mapping[int, int],
        relinearization_level: int | None = None,
        conjugation_level: int | None = None,
        live: Mapping[int, int] | None = None,
        constants: int = 0,
    ) -> dict[str, int]:
        """Peak memory of an execution in bytes, by what it is for.

        Args:
            rotations: amount -> level of the rotation keys.
            relinearization_level, conjugation_level: of the other two; None: no key.
            live: level -> ciphertexts at the moment that needs most; eight at the top level where
                nobody counted them.
            constants: bytes of the program's arrays.
        """
        alive = {self.max_level: 8} if live is None else live
        others = self.evaluation_key_bytes({}, relinearization_level, conjugation_level)
        bootstrap = _BOOTSTRAP_KEY_BYTES if self.bootstrap else 0
        return {
            "rotation_keys": sum(self.key_bytes(level) for level in rotations.values()),
            "bootstrap_key": bootstrap,
            "other_keys": others - bootstrap,
            "ciphertexts": sum(self.ciphertext_bytes(at) * count for at, count in alive.items()),
            "constants": constants,
            "library": _WORKING_BYTES * self.ring_degree // 2**16,
        }

    def memory_bytes(
        self,
        rotations: Mapping[int, int],
        relinearization_level: int | None = None,
        conjugation_level: int | None = None,
    ) -> int:
        """Peak memory of an execution with these keys, of a program that is not known."""
        return sum(self.memory_parts(rotations, relinearization_level, conjugation_level).values())

    def to_dict(self) -> dict[str, Any]:
        """For a manifest; :meth:`from_dict` reads it back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> DesiloParameters:
        """Raises AtlasError when ``data`` is not what :meth:`to_dict` writes."""
        try:
            return cls(
                int(data["log_ring_degree"]), int(data["special_primes"]), bool(data["bootstrap"])
            )
        except (KeyError, TypeError, ValueError) as error:
            raise AtlasError(
                "the parameters of the keys cannot be read", why=f"{type(error).__name__}: {error}"
            ) from error


def require_desilo(parameters: object) -> DesiloParameters:
    """The same set; AtlasError where it is another target's."""
    if not isinstance(parameters, DesiloParameters):
        raise AtlasError(
            "the program was compiled for the parameters of another target than desilo",
            remedy="compile the model again with --target desilo",
        )
    return parameters


BOOTSTRAPPED = DesiloParameters(16, 4, bootstrap=True)
LEVELED: tuple[DesiloParameters, ...] = tuple(DesiloParameters(*key) for key in LIBRARY_LEVELS)


def choose_parameters(
    levels: int,
    *,
    min_slots: int = 1,
    slots: int | None = None,
    among: Iterable[DesiloParameters] = LEVELED,
) -> DesiloParameters:
    """The cheapest parameter set for a program of ``levels`` levels without bootstraps.

    The cost is that of one key switch at each level of the program, which decides both the time
    and, with the level, the memory of the keys.

    Args:
        levels: multiplicative depth of the whole program.
        min_slots: slots that a ciphertext must have at least.
        slots: slots that it must have exactly, for a program that is already packed.
        among: candidates.

    Returns:
        A leveled set when one is large enough, else :data:`BOOTSTRAPPED`, for which the caller
        has to place bootstraps.

    Raises:
        AtlasError: no set has that many slots.
    """
    fits = [
        p
        for p in among
        if p.max_level >= levels and p.slots >= min_slots and slots in (None, p.slots)
    ]
    if not fits and BOOTSTRAPPED.slots >= min_slots and slots in (None, BOOTSTRAPPED.slots):
        fits = [BOOTSTRAPPED]
    if not fits:
        raise AtlasError(
            f"desilofhe has no parameters with {slots or min_slots} slots and {levels} levels",
            why="ciphertexts have "
            + " or ".join(str(count) for count in sorted({p.slots for p in LEVELED}))
            + " slots",
            remedy="use a shorter sequence or a smaller batch",
        )
    best = min(fits, key=lambda p: _cost(p, levels))
    check_set(best)
    return best


def _cost(parameters: DesiloParameters, levels: int) -> float:
    levels = min(levels, parameters.max_level)
    work = sum(
        (parameters.digits(level) + 8) * (level + 2 + parameters.special_primes)
        for level in range(levels + 1)
    )
    return float(work * parameters.ring_degree * parameters.log_ring_degree)
