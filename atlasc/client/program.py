"""The client's cleartext work: from raw inputs to slots, and from slots to answers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np

from atlasc.client.checks import Answers, Reach, faults, functions_of, require_finite
from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.program.key_plan import KeyPlan
from atlasc.runtime.interface import Interface, interface_of
from atlasc.runtime.native import load_library, translated

EMBEDDED_BYTES = 2**28
"""Bytes of embedded inputs that are kept in memory."""
TOGETHER = 8
"""Inputs that are evaluated in the clear at once; more would take memory and save no time."""

Arrays = Mapping[str, np.ndarray]
"""Name of an input or output -> array ``[inputs, ...]``."""


def rows_of(arrays: Arrays) -> int:
    """Number of inputs."""
    return len(next(iter(arrays.values())))


def batches(arrays: Arrays, size: int) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """The inputs in parts of at most ``size``, each with the number of its first input."""
    for start in range(0, rows_of(arrays), size):
        yield start, {name: array[start : start + size] for name, array in arrays.items()}


def _row_key(arrays: Arrays, row: int) -> bytes:
    """A digest that identifies one input."""
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype.str} {array.shape[1:]} ".encode())
        digest.update(array[row].tobytes())
    return digest.digest()


@dataclass(frozen=True)
class Packed:
    """One query, ready to be encrypted.

    Attributes:
        vectors: input name -> slots ``[ciphertexts, slots]``.
        levels: input name -> level at which it is encrypted.
        public: inputs that go to the server in the clear.
        count: number of real inputs in the batch; the rest of the batch copies the first input.
        doubt: why the bound on the errors may not hold (an input larger than those of
            calibration); empty if there is no doubt.
    """

    vectors: dict[str, np.ndarray]
    levels: dict[str, int]
    public: dict[str, np.ndarray]
    count: int
    doubt: str = ""


@dataclass(frozen=True)
class ClientProgram:
    """The client's side of a compiled model.

    Attributes:
        embed: nn module that computes the tensors to encrypt from raw inputs.
        interface: the program's inputs and outputs: layouts, levels, factors.
        head: nn module from the program's outputs to those of the model; None if they are the same.
    """

    embed: Module
    interface: Interface
    head: Module | None = None
    _kept: dict[bytes, dict[str, np.ndarray]] = field(
        default_factory=dict, repr=False, compare=False
    )
    _lock: Any = field(default_factory=Lock, repr=False, compare=False)

    @property
    def batch(self) -> int:
        """Number of inputs that one run answers."""
        return self.interface.batch

    @property
    def public(self) -> list[str]:
        """Names of the inputs that go to the server in the clear (attention masks)."""
        return [one.name for one in self.interface.publics]

    @property
    def padding(self) -> dict[str, int]:
        """The id of padding by the name of the ids, where the model computes its mask from them."""
        known = (op.attributes for op in self.embed.inputs)
        return {of["name"]: of["padding"] for of in known if "padding" in of}

    def check_count(self, count: int) -> None:
        """Raise AtlasError unless one run can answer ``count`` inputs."""
        if not 1 <= count <= self.batch:
            raise AtlasError(
                f"{count} inputs were given, but the program answers 1 to {self.batch} at a time",
                remedy="choose inputs with --count or --index, or compile with a larger --batch",
            )

    def prepare(self, arrays: Arrays) -> dict[str, np.ndarray]:
        """The tensors to encrypt and the public inputs, from at most a batch of raw inputs.

        Raises:
            AtlasError: an input is missing, has the wrong shape or is not finite; or there are more
                inputs than one batch.
        """
        self.check_count(rows_of(arrays))
        require_finite(arrays, "input", self.padding)
        prepared = self.embedded({name: np.asarray(array) for name, array in arrays.items()})
        require_finite(prepared, "the embedded input")
        return prepared

    def embedded(self, arrays: Arrays) -> dict[str, np.ndarray]:
        """The cleartext inputs of the server's program, from any number of raw inputs, unchecked.

        The latest rows are kept, because encryption follows a check of the same inputs.
        """
        public = {n: np.asarray(arrays[n], np.float64) for n in self.public if n in arrays}
        given = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        keys = [_row_key(given, row) for row in range(rows_of(given))]
        if not keys:
            return {**interpret(self.embed, given), **public}
        with self._lock:
            rows = {key: self._kept[key] for key in keys if key in self._kept}
        new = {key: row for row, key in enumerate(keys) if key not in rows}
        if new:
            missing = list(new.values())
            some = {name: array[missing] for name, array in given.items()}
            with np.errstate(over="ignore", invalid="ignore"):
                made = interpret(self.embed, some)
            for place, key in enumerate(new):
                rows[key] = {name: array[place] for name, array in made.items()}
        first = rows[keys[0]]
        limit = EMBEDDED_BYTES // max(1, sum(array.nbytes for array in first.values()))
        with self._lock:
            self._kept.update(rows)
            for key in list(self._kept)[: max(0, len(self._kept) - limit)]:
                del self._kept[key]
        return {**{name: np.stack([rows[key][name] for key in keys]) for name in first}, **public}

    def query(self, arrays: Arrays, *, unchecked: bool = False) -> Packed:
        """The slots of at most a batch of raw inputs.

        ``unchecked`` also admits inputs far larger than the inputs of calibration.

        Raises:
            AtlasError: as :meth:`prepare`; or an input is far too large.
        """
        prepared = self.prepare(arrays)
        with translated():
            found = load_library().packed(self.interface, prepared, unchecked)
        levels = {one.name: one.level for one in self.interface.inputs}
        slots, public, count, doubt = found
        return Packed(slots, levels, public, count, doubt)

    def examine(self, arrays: Arrays) -> list[Reach]:
        """The magnitude of each raw input; any number of inputs."""
        unfit, reached = faults(arrays, self.padding), np.full(rows_of(arrays), np.inf)
        finite = [row for row, fault in enumerate(unfit) if not fault]
        for start, part in batches({n: array[finite] for n, array in arrays.items()}, TOGETHER):
            rows = finite[start : start + TOGETHER]
            reached[rows] = load_library().reaches(self.interface, self.embedded(part))
        return [Reach(float(ratio), fault) for ratio, fault in zip(reached, unfit, strict=True)]

    def answers(self, slots: Arrays, count: int) -> Answers:
        """Answers to ``count`` inputs, and which of them cannot be right.

        ``slots`` maps output names to decrypted slots ``[ciphertexts, slots]``.
        """
        with translated():
            outputs, refused = load_library().answers(self.interface, dict(slots), count)
        return finished(self.interface, self.head, outputs, refused)


def finished(
    interface: Interface, head: Module | None, outputs: Arrays, refused: Mapping[int, float]
) -> Answers:
    """The answers of the model, from the decrypted outputs of the program.

    Args:
        interface, head: of the :class:`ClientProgram`.
        outputs: decrypted numbers by name.
        refused: see :class:`Answers`.
    """
    if head is None:
        return Answers(dict(outputs), dict(refused), functions=functions_of(interface))
    known = (op.attributes for op in head.outputs)
    functions = {of["name"]: of["function"] for of in known if "function" in of}
    return Answers(interpret(head, outputs), dict(refused), functions=functions)


def encrypt_all(engine: Any, packed: Packed) -> dict[str, list[Any]]:
    """Ciphertexts of a packed query."""
    return {
        name: [engine.encrypt(vector, packed.levels[name]) for vector in vectors]
        for name, vectors in packed.vectors.items()
    }


def decrypt_all(engine: Any, results: Mapping[str, list[Any]]) -> dict[str, np.ndarray]:
    """Output name -> decrypted slots ``[ciphertexts, slots]``."""
    return {name: np.stack([engine.decrypt(c) for c in cs]) for name, cs in results.items()}


def client_program(
    embed: Module, program: Module, head: Module | None = None, keys: KeyPlan | None = None
) -> ClientProgram:
    """The client's side of a lowered program, which does not see the server's state.

    ``keys`` are those that the client makes, if other programs run with them, too.
    """
    return ClientProgram(embed, interface_of(program, keys).of_messages(), head)
