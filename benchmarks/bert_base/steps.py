"""The steps, each of which runs in a process of its own and writes its figures at its end.

    python -m benchmarks.bert_base.steps STEP OPTIONS

STEP is a name of :data:`STEPS`, OPTIONS the JSON form of :class:`Options`.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import atlasc
from atlasc.api.progress import progress
from atlasc.api.roles import Server
from atlasc.bundle.folder import load_bundle
from atlasc.bundle.messages import Message
from atlasc.files import save_arrays, write_text, write_with
from atlasc.loading.inputs import Inputs
from atlasc.program.execute import Execution
from atlasc.run.session import simulate_both
from atlasc.run.timing import Course, Pace
from atlasc.targets.cpu.parameters import CpuParameters
from atlasc.targets.parameters import require_set
from benchmarks.bert_base.state import Meter, SavedState, identity, peak_memory
from benchmarks.he_bert import true_shape

EVERY = 120.0
"""Seconds between two saved states of the execution."""


@dataclass(frozen=True)
class Options:
    """What is measured, and where.

    Attributes:
        folder: the work folder.
        bundle, data: a compiled program, and a file whose first input is taken; empty: BERT-base's
            shape with random weights.
        every: seconds between two saved states.
    """

    folder: str
    bundle: str = ""
    data: str = ""
    every: float = EVERY

    def place(self, name: str) -> Path:
        """A file or folder in the work folder."""
        return Path(self.folder) / name

    def figures(self, step: str) -> Path:
        """The figures of a step, which exist once it is done."""
        return self.place(f"{step}.json")

    def input(self) -> Inputs:
        """The one input."""
        (data,) = Path(self.folder).glob("input.*")
        return load_bundle(self.place("program")).load_inputs(data).take([0])


def compile(options: Options) -> dict[str, Any]:
    """Compile the true shape, or take the given program; keep the input."""
    program, data = options.place("program"), options.data
    if options.bundle:
        given = atlasc.load(options.bundle)
        require_set(given.bundle.parameters, CpuParameters)  # the figures are of this engine
        given.save(program)
    else:
        source = options.place("source")
        true_shape.write(source)
        data = str(source / "test.jsonl")
        with progress("compiling") as step:
            made = atlasc.compile(
                source / "model", source / "calibration.jsonl", recipe="is", target="cpu",
                sequence_length=true_shape.TOKENS, progress=step.report,
            )  # fmt: skip
        made.save(program)
    shutil.copyfile(data, options.place(f"input{Path(data).suffix}"))
    return {}


def keys(options: Options) -> dict[str, Any]:
    """Make the keys. The client's part of the program is enough."""
    folder = options.place("keys")
    with progress("making keys") as step:
        atlasc.keygen(options.place("program"), folder, progress=step.report)
    files = (path for path in (folder / "server").iterdir() if path.suffix == ".key")
    return {"bytes": sum(path.stat().st_size for path in files)}


def query(options: Options) -> dict[str, Any]:
    """Encrypt the input."""
    given = options.input()
    client = atlasc.Client(options.place("program"), options.place("keys") / "client")
    content = client.encrypt(given.arrays)
    write_with(options.place("query"), lambda draft: draft.write_bytes(content))
    return {"bytes": len(content)}


def execution(options: Options) -> dict[str, Any]:
    """Execute from where the last process came to, with the server's part and keys alone."""
    server = Server(options.place("program"), options.place("keys") / "server")
    bundle, engine, program = server.bundle, server.engine, server.bundle.program
    message = Message.read(options.place("query"), "query", bundle)
    values, public = message.ciphertexts(engine)
    run = Execution(engine, program, values, public)
    state = SavedState(options.place("state"), identity(server, options.place("query")))
    meter = Meter(state.restore(run, engine, program, public))
    with progress(f"executing, from op {run.position} of {len(program.ops)}", total=100) as step:
        pace = Pace(
            Course.of(bundle.program, bundle.parameters),
            server.target,
            1,
            step.report,
            run.position,
        )
        written = time.monotonic()
        for op in program.ops[run.position :]:
            pace(op)
            begun = time.perf_counter(), time.process_time()
            run.step()
            due = time.monotonic() - written >= options.every
            if due:  # this work would be the next ops'; saving does it, and is not measured
                settle(run, engine)
            meter.add(time.perf_counter() - begun[0], time.process_time() - begun[1])
            if due:
                state.save(run, engine, meter.read())
                written = time.monotonic()
    state.save(run, engine, meter.read())
    outputs, count = run.outputs, message.count
    answer = Message.of("answer", bundle, engine, outputs, count, query=message.query)
    answer.save(options.place("answer"))
    return asdict(meter.read())


def settle(run: Execution[Any], engine: Any) -> None:
    """Do the work that products of the live ciphertexts have postponed."""
    for value, made in run.values.items():
        if value.encrypted:
            for ciphertext in made:
                engine.settle(ciphertext)


def answer(options: Options) -> dict[str, Any]:
    """Decrypt, and compare with the polynomials and with the model in the clear."""
    client = atlasc.Client(options.place("program"), options.place("keys") / "client")
    found = client.decrypt(options.place("answer"))
    save_arrays(options.place("outputs.npz"), found.outputs)
    bundle = load_bundle(options.place("program"))
    exact, model = simulate_both(bundle.client, bundle.poly, options.input().arrays)
    others = {"the polynomials": exact} | ({} if model is None else {"the model": model})
    return {
        "refused": sorted(found.refused),
        "errors": {name: error(found.outputs, expected) for name, expected in others.items()},
    }


def error(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> dict[str, float]:
    """How far all outputs are from the expected ones."""
    ours, theirs = (
        np.concatenate([np.ravel(side[name]) for name in expected]) for side in (found, expected)
    )
    apart = np.abs(ours - theirs)
    directions = (side / np.linalg.norm(side) for side in (ours, theirs))
    return {
        "greatest": float(apart.max()),
        "mean": float(apart.mean()),
        "1 - cosine": float(np.square(np.subtract(*directions)).sum() / 2),  # keeps its digits
        "greatest output": float(np.abs(theirs).max()),
    }


STEPS: dict[str, tuple[Callable[[Options], dict[str, Any]], tuple[str, ...]]] = {
    "compile": (compile, ("source", "program")),
    "keys": (keys, ("keys",)),
    "query": (query, ("query",)),
    "execution": (execution, ()),
    "answer": (answer, ("outputs.npz",)),
}
"""Name -> the step, and what it writes that must not be there yet."""


def main() -> None:
    """Run a step."""
    name, options = sys.argv[1], Options(**json.loads(sys.argv[2]))
    step, written = STEPS[name]
    for left in map(options.place, written):  # by a process that was killed
        shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
    started = time.perf_counter()
    try:
        found = step(options)
    except atlasc.AtlasError as failed:
        raise SystemExit(str(failed)) from failed
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    taken = {"seconds": time.perf_counter() - started, "memory": peak_memory()}
    write_text(options.figures(name), json.dumps(taken | found) + "\n")


if __name__ == "__main__":
    main()
