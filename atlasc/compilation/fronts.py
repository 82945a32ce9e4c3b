"""Files of a search: its front, its calibration, and its evaluations.

While a search runs, its evaluations lie in a journal beside the output; the written output contains
the journal. Until then the measured ranges lie beside the journal, so that an interrupted search
need not measure them again.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from atlasc.bundle.manifest import MANIFEST, read_manifest
from atlasc.calibration.calibrate import (
    MAX_CALIBRATION,
    Calibration,
    calibration_of,
    read_calibration,
)
from atlasc.calibration.measure import nonlinear_ops
from atlasc.compilation.lowering import lower_module, memory_of
from atlasc.compilation.options import MAX_ERROR, TargetOptions
from atlasc.files import new_folder, require_file_place, write_text
from atlasc.ir.errors import AtlasError, counted, explained
from atlasc.ir.files import Schema, Sha256, arrays_digest, read_json, read_text
from atlasc.ir.module import Module
from atlasc.ir.opdef import symbols_in
from atlasc.latency.model import LatencyTarget
from atlasc.passes.approximation.approximate import with_approximations
from atlasc.progress import Note, Steps, quiet, silent
from atlasc.report.front_page import front_html
from atlasc.search.front import Front
from atlasc.search.journal import MAX_JOURNAL, journal_beside
from atlasc.search.points import Point, Settings
from atlasc.search.search_problem import SearchProblem
from atlasc.targets import find_target
from atlasc.targets.costs import fitted_costs
from atlasc.targets.parameters import ParameterSet

FRONT, CALIBRATION = "front.json", "calibration.json"
EVALUATIONS = "evaluations.jsonl"
"""File in an output folder with every evaluation of its search."""


@dataclass(frozen=True)
class SavedFront:
    """A front, and the ranges that its settings were searched on.

    Attributes:
        path: path of the front.
        front: the points that the search found.
        calibration: the ranges of the search.
    """

    path: Path
    front: Front
    calibration: Calibration

    def require(self, module: Module) -> None:
        """Raise AtlasError unless the front belongs to this model."""
        if self.front.facts.get("model_digest") != model_digest(module):
            raise AtlasError(
                f"the front {self.path} belongs to another model",
                why="the weights, the shapes or the sequence length differ",
                remedy="give the model and the --sequence-length of the search, or search again",
            )


def load_front(path: Path) -> SavedFront:
    """Read a front and the calibration beside it.

    Args:
        path: the folder that ``search -o`` wrote, or ``compile`` after a search; or the front.json
            in it. A bundle has the ranges in its manifest.

    Raises:
        AtlasError: the front or its calibration is missing, cannot be read, or belongs to another.
    """
    path = path / FRONT if path.is_dir() else path
    beside = path.with_name(CALIBRATION)
    remedy = "give the folder that atlasc search -o wrote, or a bundle with a front"
    if not path.exists():
        raise AtlasError(f"the front {path} was not found", remedy="write one with atlasc search")
    in_bundle = not beside.exists() and path.with_name(MANIFEST).is_file()
    if not beside.exists() and not in_bundle:
        raise AtlasError(
            f"there is no {CALIBRATION} beside {path}",
            why="settings are useless without the ranges that they were searched on",
            remedy=remedy,
        )
    front = Front.load(path)
    if in_bundle:
        calibration = calibration_of(read_manifest(path.parent)[0].calibration)
    else:
        calibration = read_calibration(beside)
    if front.facts.get("calibration_digest") != calibration_digest(calibration):
        raise AtlasError(
            f"{path} and {beside} do not belong together",
            why="the front was searched on other ranges",
            remedy=f"{remedy}, or search again",
        )
    return SavedFront(path, front, calibration)


def front_files(front: Front, command: Sequence[str] = ()) -> dict[str, str]:
    """File name -> text of each file that shows a front.

    ``command`` is the beginning of a command that compiles one of its points.
    """
    accurate = MAX_ERROR[front.measure] * front.variation
    return {
        FRONT: json.dumps(front.to_dict(), indent=1) + "\n",
        "front.html": front_html(front, accurate, command),
    }


def with_predictions(
    front: Front,
    problem: SearchProblem,
    options: TargetOptions,
    steps: Steps = silent,
    note: Note = quiet,
) -> Front:
    """The front with predicted seconds, bootstraps and memory of each point, and the machine of the
    predicted times; the front itself where they cannot be predicted for all, with a note why.

    Programs of the same parameters and packing take about the same memory. So the dearest point of
    each of these groups is lowered, and its memory stands for the group.
    """
    objective = problem.objective()
    if problem.target is None:
        target = LatencyTarget.of(find_target(options.target), options.costs)
        problem = replace(problem, target=target)

    def unpredicted(why: str) -> Front:
        count = counted(len(front.every_point), "point", "points")
        note(f"seconds, bootstraps and memory of {count} are not predicted", f"  why: {why}")
        return front

    groups: dict[str, list[Point]] = {}
    timed: dict[Settings, Point] = {}
    try:
        with steps("predicting seconds and bootstraps", len(front.every_point)) as step:
            model = problem.latency_model
            assert model is not None
            for point in front.every_point:
                approximations = objective.approximations(point.settings)
                seconds, packed = model.fastest(approximations)
                if math.isinf(seconds):
                    return unpredicted("the bootstraps of a point cannot be placed")
                bootstraps = packed.bootstraps(approximations)
                timed[point.settings] = replace(point, seconds=seconds, bootstraps=bootstraps)
                key = f"{model.packings.index(packed)} {packed.parameters(approximations)}"
                groups.setdefault(key, []).append(timed[point.settings])
                step()
    except AtlasError as error:
        if front.cost == "latency":
            raise
        return unpredicted(": ".join(filter(None, (error.what, error.why))))
    known, machine = dict[Settings, int](), None
    with steps("predicting memory", len(groups)) as step:
        for group in groups.values():
            dearest = max(group, key=lambda point: point.cost("latency"))
            approximations = objective.approximations(dearest.settings)
            module = with_approximations(problem.module, dict(approximations))
            lowered = lower_module(module, None, options)
            parameters = cast(ParameterSet, lowered.parameters)
            size = sum(memory_of(lowered.program, parameters).values())
            known |= {point.settings: size for point in group}
            table = fitted_costs(parameters)
            machine = machine if table is None else str(table.table.machine)
            step()

    def sized(point: Point) -> Point:
        return replace(timed[point.settings], memory_bytes=known[point.settings])

    return replace(
        front,
        points=tuple(map(sized, front.points)),
        expert=None if front.expert is None else sized(front.expert),
        facts={**front.facts, **({} if machine is None else {"machine": machine})},
    )


def calibration_digest(calibration: Calibration) -> str:
    """SHA-256 (hex) of a calibration."""
    return hashlib.sha256(json.dumps(calibration.to_dict()).encode()).hexdigest()


def model_digest(module: Module) -> str:
    """SHA-256 (hex) of the weights, in order of use, and of the nonlinear ops and their shapes.

    The batch size does not count. Neither do names of weights, which depend on the batch.
    """
    ops = (
        f"{op.name} {op.value.name} {op.location} {op.operands[0].tensor.shape[1:]}\n"
        for op in nonlinear_ops(module)
    )
    used = dict.fromkeys(s.name for op in module.ops for s in symbols_in(op.attributes))
    weights = {f"{number:06d}": module.symbols[name] for number, name in enumerate(used)}
    return arrays_digest(weights, "".join(ops))


def journal_place(output: Path | None, named: Path | None = None) -> Path | None:
    """The place of a search's journal; None if nothing is kept, because no place was given.

    Args:
        output: the folder that will be written; missing parents are made.
        named: the user's own place for the journal.

    Raises:
        AtlasError: the place cannot be written.
    """
    if named is not None:
        require_file_place(named)
        return named
    if output is None:
        return None
    with explained(f"cannot write to {output.parent}"):
        output.parent.mkdir(parents=True, exist_ok=True)
    return journal_beside(output)


class _KeptRanges(Schema):
    """The JSON form of kept ranges.

    Attributes:
        of: digest of everything that the ranges depend on.
    """

    of: Sha256
    calibration: Calibration


def ranges_beside(journal: Path) -> Path:
    """The place of the ranges that an interrupted command measured."""
    return journal.with_name(f"{journal.name}.ranges")


def kept_ranges(journal: Path | None, of: str, note: Note = quiet) -> Calibration | None:
    """The ranges that an interrupted command measured; None if there are none for this ``of``.

    Args:
        journal: journal of the command.
        of: digest (hex) of everything that the ranges depend on.
        note: told of ranges that cannot be read.
    """
    if journal is None or not ranges_beside(journal).exists():
        return None
    try:
        kept = read_json(
            ranges_beside(journal), _KeptRanges, "the ranges", MAX_CALIBRATION, links=False
        )
    except AtlasError as error:
        note(
            "the ranges of an interrupted command cannot be read, and are measured again",
            f"  where: {ranges_beside(journal)}\n  why: {error.why}\n"
            "  what to do: nothing, if you do not know of a change; the file is written anew",
        )
        return None
    return kept.calibration if kept.of == of else None


def keep_ranges(journal: Path | None, of: str, calibration: Calibration) -> None:
    """Keep ranges beside a journal, for `kept_ranges`."""
    if journal is not None:
        kept = {"of": of, "calibration": calibration.to_dict()}
        write_text(ranges_beside(journal), json.dumps(kept))


@contextmanager
def keeping(journal: Path | None, output: Path) -> Iterator[dict[str, str]]:
    """Copy a journal into the output that the block writes, and remove it afterwards.

    Yields file name -> text of the journal. The ranges beside the journal are removed, too. A
    journal in a place that the user named is neither copied nor removed.
    """
    if journal != journal_beside(output):
        yield {}
        return
    yield {EVALUATIONS: read_text(journal, MAX_JOURNAL, links=False)}
    journal.unlink(missing_ok=True)
    ranges_beside(journal).unlink(missing_ok=True)


def save_front(
    output: Path,
    front: Front,
    calibration: Calibration,
    journal: Path | None,
    command: Sequence[str] = (),
) -> None:
    """Write a front, its pictures, its calibration and its evaluations to a new folder; for the
    ``command`` see `front_files`.
    """
    with keeping(journal, output) as kept, new_folder(output) as draft:
        front.plot(draft / "front.png")
        ranges = json.dumps(calibration.to_dict(), indent=1) + "\n"
        for name, text in {**front_files(front, command), CALIBRATION: ranges, **kept}.items():
            (draft / name).write_text(text, encoding="utf-8")
