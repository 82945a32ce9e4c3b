"""Running a compiled program: all four roles in one process, or each for itself through files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.backends import get_backend
from atlasc.backends.desilo_parameters import DesiloParameters
from atlasc.bundle import Bundle, new_folder
from atlasc.client import Packed
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op
from atlasc.passes.approximation.fused import interpret_poly
from atlasc.passes.lowering.engine import Engine
from atlasc.passes.lowering.execute import Execution
from atlasc.passes.lowering.rotation_keys import key_plan

Progress = Callable[[str, int, int], None]
"""Called as progress(what, done, total)."""


def no_progress(what: str, done: int, total: int) -> None:
    """The callback that says nothing."""


@dataclass(frozen=True)
class Answer:
    """What a run gave.

    Attributes:
        outputs: answers by output name, ``[count, ...]``.
        expected: the same from the polynomial simulation.
        seconds: time by phase: keys, encrypt, execute, decrypt.
        target: the backend.
    """

    outputs: dict[str, np.ndarray]
    expected: dict[str, np.ndarray]
    seconds: dict[str, float]
    target: str

    @property
    def max_error(self) -> float:
        """Greatest difference from the polynomial simulation."""
        return max(float(np.abs(d).max()) for d in self._differences())

    @property
    def mean_error(self) -> float:
        """Mean absolute difference from the polynomial simulation."""
        return float(np.mean([np.abs(d).mean() for d in self._differences()]))

    def _differences(self) -> list[np.ndarray]:
        return [self.outputs[name] - self.expected[name] for name in self.outputs]


def parameters_of(manifest: Mapping[str, Any]) -> DesiloParameters:
    """The parameter set that a bundle was compiled for."""
    return DesiloParameters.from_dict(manifest["parameters"])


def make_engine(
    target: str,
    program: Module,
    parameters: DesiloParameters,
    progress: Progress = no_progress,
) -> Engine[Any]:
    """An engine that plays client and server, with fresh keys where the target has keys.

    Raises:
        AtlasError: unknown target, library missing, or too little memory for the keys.
    """
    get_backend(target).check()
    rotations, relinearization = key_plan(program)
    if target == "sim":
        from atlasc.backends.sim import SimEngine

        return SimEngine(
            parameters.slots,
            parameters.max_level,
            parameters.bootstrap_level,
            rotation_keys=rotations,
        )
    from atlasc.backends.desilo import DesiloEngine, KeySet

    keys = KeySet.generate(
        parameters, rotations, relinearization_level=relinearization, progress=progress
    )
    return DesiloEngine.from_key_set(keys)


def run(
    bundle: Bundle,
    arrays: Mapping[str, np.ndarray],
    target: str | None = None,
    progress: Progress = no_progress,
    observe: Callable[[Op, list[Any]], None] | None = None,
    engine: Engine[Any] | None = None,
) -> Answer:
    """Key generation, encryption, execution and decryption in one process, for a try-out.

    Args:
        bundle: a compiled model.
        arrays: raw inputs by name, at most a batch.
        target: another backend than the one it was compiled for.
        progress: called before each key and each op.
        observe: called with every op and its ciphertexts.
        engine: an engine made before, to answer several queries with one set of keys.
    """
    target = target or bundle.target
    count = len(next(iter(arrays.values())))
    prepared = bundle.client.prepare(arrays)
    packed = bundle.client.pack(prepared, count)
    seconds: dict[str, float] = {}
    clock = time.perf_counter()

    def lap(phase: str) -> None:
        nonlocal clock
        now = time.perf_counter()
        seconds[phase], clock = now - clock, now

    if engine is None:
        engine = make_engine(target, bundle.program, parameters_of(bundle.manifest), progress)
    lap("keys")
    encrypted = encrypt_all(engine, packed)
    lap("encrypt")
    results = execute(engine, bundle.program, encrypted, packed.public, progress, observe)
    lap("execute")
    slots = {name: decrypt_all(engine, values) for name, values in results.items()}
    outputs = bundle.client.unpack(slots, count)
    lap("decrypt")
    expected = {n: a[:count] for n, a in interpret_poly(bundle.poly, prepared).items()}
    return Answer(outputs, expected, seconds, target)


def encrypt_all(engine: Engine[Any], packed: Packed) -> dict[str, list[Any]]:
    """Ciphertexts of a packed query."""
    return {
        name: [engine.encrypt(vector, packed.levels[name]) for vector in vectors]
        for name, vectors in packed.vectors.items()
    }


def decrypt_all(engine: Engine[Any], ciphertexts: list[Any]) -> np.ndarray:
    """Slots ``[ciphertexts, slots]``."""
    return np.stack([engine.decrypt(ciphertext) for ciphertext in ciphertexts])


def execute(
    engine: Engine[Any],
    program: Module,
    encrypted: Mapping[str, list[Any]],
    public: Mapping[str, np.ndarray],
    progress: Progress = no_progress,
    observe: Callable[[Op, list[Any]], None] | None = None,
) -> dict[str, list[Any]]:
    """Run the server's program on ciphertexts."""
    total, done = len(program.ops), 0

    def before(op: Op) -> None:
        nonlocal done
        progress(f"{op.name} {op.location}".rstrip(), done, total)
        done += 1

    return Execution(program, engine, observe, before).run(encrypted, public)


def save_query(folder: Path, engine: Any, packed: Packed) -> None:
    """Encrypt a query into a folder of files that the client may send to the server."""
    with new_folder(folder) as draft:
        _write(draft, engine, encrypt_all(engine, packed), {"count": packed.count})
        np.savez(draft / "public.npz", **packed.public)  # type: ignore[arg-type]


def load_query(folder: Path, engine: Any) -> tuple[dict[str, list[Any]], dict[str, np.ndarray]]:
    """Ciphertexts and public inputs of a query."""
    ciphertexts, _ = _load(folder, engine)
    try:
        with np.load(folder / "public.npz", allow_pickle=False) as file:
            return ciphertexts, {name: file[name] for name in file.files}
    except (OSError, ValueError) as error:
        raise AtlasError(f"{folder} is not a whole query", why=str(error)) from None


def save_answer(
    folder: Path, engine: Any, results: Mapping[str, list[Any]], query: Path
) -> None:
    """Write encrypted results; how many of the batch are real is copied from the query."""
    with new_folder(folder) as draft:
        _write(draft, engine, results, {"count": _index(query)["count"]})


def load_answer(folder: Path, engine: Any) -> tuple[dict[str, list[Any]], int]:
    """Encrypted results and how many inputs of the batch are real."""
    ciphertexts, index = _load(folder, engine)
    return ciphertexts, int(index["count"])


def _write(
    draft: Path, engine: Any, ciphertexts: Mapping[str, list[Any]], facts: dict[str, Any]
) -> None:
    names: dict[str, list[str]] = {}
    for number, (name, values) in enumerate(ciphertexts.items()):
        names[name] = [f"{number}.{position}.ct" for position in range(len(values))]
        for file, value in zip(names[name], values, strict=True):
            (draft / file).write_bytes(engine.serialize(value))
    (draft / "index.json").write_text(json.dumps({**facts, "ciphertexts": names}))


def _index(folder: Path) -> dict[str, Any]:
    try:
        index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        return {"count": int(index["count"]), "ciphertexts": dict(index["ciphertexts"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AtlasError(
            f"{folder} holds no ciphertexts",
            why=str(error),
            remedy="give the folder that atlasc encrypt or execute wrote",
        ) from None


def _load(folder: Path, engine: Any) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    index = _index(folder)
    try:
        ciphertexts = {
            name: [engine.deserialize((folder / Path(file).name).read_bytes()) for file in files]
            for name, files in index["ciphertexts"].items()
        }
    except OSError as error:
        raise AtlasError(f"{folder} is not complete", why=str(error)) from None
    return ciphertexts, index
