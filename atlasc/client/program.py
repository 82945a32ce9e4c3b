"""The client's cleartext work: from raw inputs to slots, and from slots to answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from atlasc.client.admission import REMEDY, Reach, finite_rows, reaches, require_finite
from atlasc.client.answers import Answers, judge
from atlasc.ir.errors import AtlasError
from atlasc.ir.functions import encrypted_input, output
from atlasc.ir.interpreter import interpret
from atlasc.ir.layout import Layout
from atlasc.ir.module import Module
from atlasc.ir.opdef import Site
from atlasc.ir.text.storage import load_module, save_module
from atlasc.passes.execution.kernels.context import ROWS, blocked
from atlasc.passes.framework.rewriting import Rewriter

KEPT = ("slots", "rotations", "relinearization_level", "conjugation_level")
"""Facts of the program that the client needs too: it makes the keys."""


Arrays = Mapping[str, np.ndarray]
"""By name of an input or output, a row for each input."""


def rows_of(arrays: Arrays) -> int:
    """Number of inputs."""
    return len(next(iter(arrays.values())))


def batches(arrays: Arrays, size: int) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """The inputs in parts of at most ``size``, each with the number of its first input."""
    for start in range(0, rows_of(arrays), size):
        yield start, {name: array[start : start + size] for name, array in arrays.items()}


@dataclass(frozen=True)
class Packed:
    """One query, ready to be encrypted.

    Attributes:
        vectors: slots ``[ciphertexts, slots]`` by input name.
        levels: level at which each input is encrypted.
        public: inputs that go to the server in the clear (attention masks).
        count: inputs of the batch that are real; the rest of the batch copies the first.
    """

    vectors: dict[str, np.ndarray]
    levels: dict[str, int]
    public: dict[str, np.ndarray]
    count: int


@dataclass(frozen=True)
class ClientProgram:
    """The client's side of a compiled model.

    Attributes:
        embed: nn module from raw inputs to the tensors that are encrypted.
        interface: ckks module of the program's inputs and outputs alone: layouts, levels, factors.
    """

    embed: Module
    interface: Module

    @property
    def batch(self) -> int:
        """Inputs that one run answers."""
        return self.interface.inputs[0].attributes["shape"][0]

    def check_count(self, count: int) -> None:
        """Raise AtlasError unless one run answers that many inputs."""
        if not 1 <= count <= self.batch:
            raise AtlasError(
                f"{count} inputs were given, the program answers 1 to {self.batch} at a time",
                remedy="choose inputs with --count or --index, or compile with a larger --batch",
            )

    def prepare(self, arrays: Arrays) -> dict[str, np.ndarray]:
        """The cleartext inputs of the server's program, the batch filled with copies.

        Raises:
            AtlasError: an input is missing, of the wrong shape, not finite, or more than a batch.
        """
        self.check_count(rows_of(arrays))
        require_finite(arrays, "input")
        prepared = self.embedded(arrays)
        require_finite(prepared, "what is encrypted of input")
        return prepared

    def embedded(self, arrays: Arrays) -> dict[str, np.ndarray]:
        """The same as ``prepare``, of at most a batch and without its checks."""
        order = np.where(np.arange(self.batch) < rows_of(arrays), np.arange(self.batch), 0)
        filled = {name: np.asarray(array)[order] for name, array in arrays.items()}
        public = {
            op.attributes["name"]: filled[op.attributes["name"]].astype(np.float64)
            for op in self.interface.ops
            if op.name == "ckks.public_input" and op.attributes["name"] in filled
        }
        with np.errstate(over="ignore", invalid="ignore"):
            return {**interpret(self.embed, filled), **public}

    def pack(self, prepared: Arrays, count: int) -> Packed:
        """Slots of the result of ``prepare``."""
        vectors, levels, public = {}, {}, {}
        for op in self.interface.ops:
            name = op.attributes["name"]
            if op.name == "ckks.public_input":
                public[name] = prepared[name]
            elif op.name == "ckks.input":
                tensor = np.asarray(prepared[name], dtype=np.float64)
                layout = Layout.parse(op.attributes["layout"])
                vectors[name] = pack(encrypted_input(op.site({}), tensor), layout)
                levels[name] = op.attributes["level"]
        return Packed(vectors, levels, public, count)

    def query(self, arrays: Arrays, *, unchecked: bool = False) -> Packed:
        """Slots of raw inputs, at most a batch: ``prepare`` and ``pack`` in one step.

        Args:
            arrays: raw inputs by name.
            unchecked: encrypt inputs that are far larger than those of calibration.

        Raises:
            AtlasError: as ``prepare``; an input is far too large.
        """
        count = rows_of(arrays)
        prepared = self.prepare(arrays)
        for row, reach in enumerate(reaches(self.interface, prepared)[:count]):
            if not reach.finite or (reach.refused and not unchecked):
                raise AtlasError(f"input {row} is not encrypted", why=reach.why, remedy=REMEDY)
        return self.pack(prepared, count)

    def examine(self, arrays: Arrays) -> list[Reach]:
        """The magnitude of each of any number of raw inputs."""
        found = [Reach(np.inf, why) if why else Reach(0.0) for why in finite_rows(arrays)]
        finite = [row for row, reach in enumerate(found) if reach.finite]
        for start, part in batches({n: array[finite] for n, array in arrays.items()}, self.batch):
            reached = reaches(self.interface, self.embedded(part))
            for row, reach in zip(finite[start : start + self.batch], reached):
                found[row] = reach
        return found

    def answers(self, slots: Arrays, count: int) -> Answers:
        """``unpack``, and which of the answers cannot be right."""
        return judge(self.interface, self.unpack(slots, count), slots)

    def unpack(self, slots: Arrays, count: int) -> dict[str, np.ndarray]:
        """Answers ``[count, ...]`` by output name from decrypted slots ``[ciphertexts, slots]``."""
        answers = {}
        for op in self.interface.outputs:
            layout, shape = op.operands[0].ciphertext.layout, op.attributes["shape"]
            tensor = unpack(slots[op.attributes["name"]], layout, shape)
            site = Site([], op.attributes, self.interface.symbols)
            answers[op.attributes["name"]] = output(site, tensor)[:count]
        return answers

    def save(self, folder: Path) -> None:
        """Write ``embed`` and ``interface`` into a folder."""
        for name in ("embed", "interface"):
            save_module(getattr(self, name), folder / f"{name}.air")

    @classmethod
    def load(cls, folder: Path) -> ClientProgram:
        """Read what ``save`` wrote."""
        embed, interface = (
            load_module(folder / f"{name}.air", folder / f"{name}.safetensors")
            for name in ("embed", "interface")
        )
        return cls(embed, interface)


def client_program(embed: Module, program: Module) -> ClientProgram:
    """The client's side of a lowered program."""
    rewriter = Rewriter(program)
    for op in program.ops:
        if op.name in ("ckks.input", "ckks.public_input"):
            rewriter.copy(op)
    for op in program.outputs:
        source = op.operands[0]
        stand_in = {
            "name": f"result.{op.attributes['name']}",
            "layout": str(source.ciphertext.layout),
            "shape": op.attributes["shape"],
            "level": source.ciphertext.level or 0,
        }
        value = rewriter.module.add("ckks.result", [], stand_in)
        rewriter.copy(op, [value])
    module = rewriter.module
    module.symbols = module.arrays_used()
    module.attributes = {
        name: program.attributes[name] for name in KEPT if name in program.attributes
    }
    return ClientProgram(embed, module)


def pack(tensor: np.ndarray, layout: Layout) -> np.ndarray:
    """Slots of a tensor [batch, tokens, features] or [batch, features]; padding rows copy row 0."""
    rows = tensor.reshape(tensor.shape[0], layout.extent("t"), tensor.shape[-1])
    return layout.pack(blocked(rows, layout), repeat=ROWS)


def unpack(slots: np.ndarray, layout: Layout, shape: list[int]) -> np.ndarray:
    """The tensor of ``shape`` that packed slots hold."""
    tensor = layout.unpack(slots)
    if "d" in dict(layout.extents):
        tensor = tensor.reshape(*tensor.shape[:-2], -1)[..., : shape[-1]]
    return tensor.reshape(shape)
