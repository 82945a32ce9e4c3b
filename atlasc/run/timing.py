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
from atlasc.bundle.program_file import Call, StoredProgram
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import MIB, STRICT, Amount, Count, Schema, read_json
from atlasc.ir.module import Module, Op
from atlasc.program.costs import program_costs
from atlasc.program.kinds import OUTSIDE, kind_of
from atlasc.targets import find_target, target_names
from atlasc.targets.base import Progress, Target
from atlasc.targets.costs import costs_of, measured_costs
from atlasc.targets.parameters import ParameterSet

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


@dataclass(frozen=True)
class Course:
    """What is timed: ops of a module or calls of a stored program, in their order.

    Attributes:
        calls: op or call -> the facts of the call.
        measured: whether their seconds are those of a cost table; else they are relative costs.
    """

    calls: Mapping[Any, Call]
    measured: bool

    @classmethod
    def of(cls, program: Module, parameters: ParameterSet) -> Course:
        """The ops of a packed module."""
        seconds = predicted_seconds(program, parameters)
        calls = {
            op: Call(op.name, kind_of(op), op.location, op.layer, seconds[op]) for op in program.ops
        }
        return cls(calls, measured_costs(parameters) is not None)

    @classmethod
    def stored(cls, program: StoredProgram) -> Course:
        """The calls of a stored program."""
        return cls({call: call for call in program.calls}, program.measured)


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
        return cls.along(Course.of(program, parameters), target, runs, seconds)

    @classmethod
    def along(cls, course: Course, target: str, runs: int, seconds: Iterable[float]) -> Timing:
        """The measured ``seconds`` of each op or call, beside the predicted ones."""
        rows = (
            {"op": one.name, "kind": one.kind, "location": one.location, "layer": one.layer,
             "predicted": one.seconds if course.measured else None, "measured": measured}
            for one, measured in zip(course.calls.values(), seconds, strict=True)
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

        A C++ server writes such files too (``--timing``). Ops at the program's border take no time,
        and may be missing.

        Raises:
            AtlasError: the file cannot be read, or belongs to another program.
        """
        remedy = (
            "give the .timing.json of atlasc run -o or atlasc execute, or the file of the "
            "project's server (--timing)"
        )
        data = read_json(path, _TimesFile, "the times", MAX_TIMES, remedy=remedy)
        names, whole = [op.op for op in data.ops], bundle.program.ops
        ops = whole if OUTSIDE[0] in names else [op for op in whole if op.name not in OUTSIDE]
        known = data.program in (bundle.identity, bundle.manifest.program)
        if not known or names != [op.name for op in ops]:
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
    """Reports progress and measures ops or calls; each counts by its predicted seconds.

    Args:
        course: what will run.
        target: target that runs the program; if it encrypts nothing, all count the same.
        runs: number of runs of the program.
        progress: called as progress(op, done, 100) before each op.
        start: position of the first op to run.
    """

    def __init__(
        self, course: Course, target: Target, runs: int, progress: Progress, start: int = 0
    ) -> None:
        self.course, self.target, self.runs, self.progress = course, target, runs, progress
        encrypted = target.encrypted
        self.predicted = {
            one: call.seconds if encrypted else 1.0 for one, call in course.calls.items()
        }
        self.total = max(sum(list(self.predicted.values())[start:]) * runs, 1e-9)
        self.done = 0.0
        self.seconds: dict[Op | Call, float] = {}
        self._running: Op | Call | None = None
        self._since = 0.0

    def __call__(self, op: Op | Call) -> None:
        """Start an op or a call, and end the previous one."""
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
        seconds = [self.seconds.get(one, 0.0) / self.runs for one in self.course.calls]
        return Timing.along(self.course, self.target.name, self.runs, seconds)
