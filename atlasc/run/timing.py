"""Measured seconds of a program's ops on ciphertexts, beside the predicted seconds."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from atlasc.bundle.folder import Bundle
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import MIB, STRICT, Amount, Count, Schema, read_json
from atlasc.ir.module import Module, Op
from atlasc.program.costs import program_costs
from atlasc.program.kinds import OUTSIDE, kind_of
from atlasc.targets import find_target, target_names
from atlasc.targets.base import Progress, Target
from atlasc.targets.costs import costs_of, measured_costs
from atlasc.targets.parameters import ParameterSet
from atlasc.targets.program import identity_of

FORMAT = 1
MAX_TIMES = 64 * MIB
"""Greatest size in bytes of a file of times; a file of 10,000 ops has 3 MiB."""
_PARTLY_READ = ConfigDict({**STRICT, "extra": "ignore"})


def predicted_seconds(program: Module, parameters: ParameterSet) -> dict[Op, float]:
    """Predicted seconds of every op of a placed program, by the cost table in use.

    Without a table these are relative costs, in a unit of their own.
    """
    costs = costs_of(parameters)
    return {op: counts.seconds(costs) for op, counts in program_costs(program).per_op.items()}


class _TimedOp(Schema):
    """One op in a file of times; only its name and its measured seconds are read."""

    model_config = _PARTLY_READ
    op: str
    measured: Amount


class _TimesFile(Schema):
    """The JSON form of times, with the members that are read."""

    model_config = _PARTLY_READ
    format: Literal[1]
    program: str
    target: str
    runs: Annotated[Count, Field(ge=1)]
    ops: tuple[_TimedOp, ...]


@dataclass(frozen=True)
class Timing:
    """The times of all ops.

    Attributes:
        target: name of the target, or of the C++ engine, that ran them.
        runs: number of runs; the measured seconds are their mean.
        ops: one row for each op in order of execution, as JSON values: op, kind (see ``kind_of``),
            location, layer, and the predicted and measured seconds of one run.
    """

    target: str
    runs: int
    ops: tuple[dict[str, Any], ...]

    @classmethod
    def of(
        cls,
        program: Module,
        parameters: ParameterSet,
        target: str,
        runs: int,
        seconds: Iterable[float],
    ) -> Timing:
        """The measured ``seconds`` of each op, beside the predictions of the cost table."""
        known = measured_costs(parameters) is not None
        predicted = predicted_seconds(program, parameters) if known else {}
        rows = (
            {"op": op.name, "kind": kind_of(op), "location": op.location, "layer": op.layer,
             "predicted": predicted.get(op), "measured": measured}
            for op, measured in zip(program.ops, seconds, strict=True)
        )  # fmt: skip
        return cls(target, runs, tuple(rows))

    @property
    def simulated(self) -> bool:
        """Whether nothing was encrypted; then measured seconds cannot be compared with predicted
        ones.
        """
        return self.target in target_names() and not find_target(self.target).encrypted

    def summary(self) -> dict[str, Any]:
        """Predicted and measured seconds of one run, and their ratio, as JSON values.

        They are given for all ops, and for each kind of op, the longest first. Predicted seconds
        are None without a cost table.
        """
        kinds: dict[str, list[dict[str, Any]]] = {}
        for op in self.ops:
            kinds.setdefault(op["kind"], []).append(op)
        rows = ({"kind": kind, "ops": len(ops), **_compared(ops)} for kind, ops in kinds.items())
        per_kind = sorted(rows, key=lambda row: -row["measured"])
        facts = {"runs": self.runs, "simulated": self.simulated}
        return {**facts, **_compared(self.ops), "per_kind": per_kind}

    def text(self, bundle: Bundle) -> str:
        """The content of a file that :meth:`load` reads."""
        head = {"format": FORMAT, "program": bundle.identity, "target": self.target}
        whole = {**head, **self.summary(), "ops": self.ops}
        return json.dumps(whole, indent=1) + "\n"

    @classmethod
    def load(cls, path: Path, bundle: Bundle, costs: Path | None = None) -> Timing:
        """The measured seconds of a file, beside the predictions of a cost table (None: in use).

        A C++ server writes such files too (``--timing``), without the ops at the program's border.

        Raises:
            AtlasError: the file cannot be read, or belongs to another program.
        """
        remedy = (
            "give the .timing.json of atlasc run -o or atlasc execute, or the file of the "
            "project's server (--timing)"
        )
        data = read_json(path, _TimesFile, "the times", MAX_TIMES, remedy=remedy)
        ops, identity = bundle.program.ops, bundle.identity
        if data.program != identity:
            ops = [op for op in ops if op.name not in OUTSIDE]
            identity = identity_of(bundle.program)
        names = [op.op for op in data.ops]
        if (data.program, names) != (identity, [op.name for op in ops]):
            raise AtlasError(
                f"the times {path} belong to another program than {bundle.folder}",
                remedy="give the times of a run of this bundle",
            )
        times = dict(zip(ops, (op.measured for op in data.ops), strict=True))
        seconds = [times.get(op, 0.0) for op in bundle.program.ops]
        parameters = bundle.parameters.costed_by(costs)
        return cls.of(bundle.program, parameters, data.target, data.runs, seconds)


def _compared(ops: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Predicted and measured seconds of some ops, and their ratio."""
    known = [op["predicted"] for op in ops if op["predicted"] is not None]
    predicted, measured = sum(known) if known else None, sum(op["measured"] for op in ops)
    ratio = predicted / measured if predicted is not None and measured > 0 else None
    return {"predicted": predicted, "measured": measured, "ratio": ratio}


def timing_place(output: Path) -> Path:
    """The place for the times of a run: beside its output."""
    stem = output.stem if output.suffix == ".npz" else output.name
    return output.with_name(f"{stem}.timing.json")


class Pace:
    """Reports progress and measures the ops; each op counts by its predicted seconds.

    Args:
        bundle: the program; its server's part is enough.
        target: target that runs the program; if it encrypts nothing, all ops count the same.
        runs: number of runs of the program.
        progress: called as progress(op, done, 100) before each op.
        start: position of the first op to run.
    """

    def __init__(
        self, bundle: Bundle, target: Target, runs: int, progress: Progress, start: int = 0
    ) -> None:
        self.bundle, self.target, self.runs, self.progress = bundle, target, runs, progress
        ops = bundle.program.ops
        self.predicted = dict.fromkeys(ops, 1.0)
        if target.encrypted:
            self.predicted = predicted_seconds(bundle.program, bundle.parameters)
        self.total = max(sum(self.predicted[op] for op in ops[start:]) * runs, 1e-9)
        self.done = 0.0
        self.seconds: dict[Op, float] = {}
        self._running: Op | None = None
        self._since = 0.0

    def __call__(self, op: Op) -> None:
        """Start an op, and end the previous op."""
        self.finish()
        hundredths = min(int(100 * self.done / self.total), 100)
        self.progress(f"{op.name.removeprefix('ckks.')} {op.location}".rstrip(), hundredths, 100)
        self.done += self.predicted[op]
        self._running, self._since = op, time.perf_counter()

    def finish(self) -> None:
        """End the last op of a run."""
        if self._running is not None:
            lasted = time.perf_counter() - self._since
            self.seconds[self._running] = self.seconds.get(self._running, 0.0) + lasted
        self._running = None

    def timing(self) -> Timing | None:
        """The times measured so far, over all runs; None for a target that encrypts nothing."""
        if not self.target.encrypted:
            return None
        program, runs = self.bundle.program, self.runs
        seconds = [self.seconds.get(op, 0.0) / runs for op in program.ops]
        return Timing.of(program, self.bundle.parameters, self.target.name, runs, seconds)
