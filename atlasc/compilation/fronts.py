"""What a search leaves on disk: its front, the calibration beside it, and its evaluations.

The evaluations of a search that runs lie in a journal beside the output, and in it once it is
written. Its ranges lie beside the journal until then, so that an interrupted search does not
measure them again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from atlasc.calibration.calibrate import MAX_CALIBRATION, Calibration, read_calibration
from atlasc.calibration.measure import nonlinear_ops
from atlasc.compilation.options import MAX_ERROR
from atlasc.files import new_folder, require_file_place, write_text
from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.files import Schema, Sha256, arrays_digest, read_json, read_text
from atlasc.ir.module import Module
from atlasc.ir.opdef import symbols_in
from atlasc.report.pages import front_html
from atlasc.search.front import Front
from atlasc.search.journal import MAX_JOURNAL, journal_beside

FRONT, CALIBRATION = "front.json", "calibration.json"
EVALUATIONS = "evaluations.jsonl"
"""In an output folder: every evaluation of its search."""


@dataclass(frozen=True)
class SavedFront:
    """A front with the ranges that its settings were searched on.

    Attributes:
        path: of the front.
        front: what a search found.
        calibration: what it was searched with.
    """

    path: Path
    front: Front
    calibration: Calibration

    def require(self, module: Module) -> None:
        """Raise AtlasError unless the front is of this model."""
        if self.front.facts.get("model_digest") != model_digest(module):
            raise AtlasError(
                f"the front {self.path} belongs to another model",
                why="the weights, the shapes or the sequence length differ",
                remedy="give the model and the --sequence-length of the search, or search again",
            )


def load_front(path: Path) -> SavedFront:
    """Read a front and the calibration beside it.

    Args:
        path: the folder that ``search -o`` wrote, or its front.json.

    Raises:
        AtlasError: one of them is missing or cannot be read, or they do not belong together.
    """
    path = path / FRONT if path.is_dir() else path
    beside = path.with_name(CALIBRATION)
    remedy = "give the folder that atlasc search -o wrote"
    if not path.exists():
        raise AtlasError(f"the front {path} was not found", remedy="write one with atlasc search")
    if not beside.exists():
        raise AtlasError(
            f"there is no {CALIBRATION} beside {path}",
            why="settings mean nothing without the ranges that they were searched on",
            remedy=remedy,
        )
    front, calibration = Front.load(path), read_calibration(beside)
    if front.facts.get("calibration_digest") != calibration_digest(calibration):
        raise AtlasError(
            f"{path} and {beside} do not belong together",
            why="the front was searched on other ranges",
            remedy=f"{remedy}, or search again",
        )
    return SavedFront(path, front, calibration)


def front_files(front: Front) -> dict[str, str]:
    """Texts of the files that show a front, by name."""
    return {
        FRONT: json.dumps(front.to_dict(), indent=1) + "\n",
        "front.html": front_html(front, MAX_ERROR[front.measure] * front.variation),
    }


def calibration_digest(calibration: Calibration) -> str:
    """SHA-256 (hex) of a calibration."""
    return hashlib.sha256(json.dumps(calibration.to_dict()).encode()).hexdigest()


def model_digest(module: Module) -> str:
    """SHA-256 (hex) of the weights in order of use, and of the nonlinear ops and their shapes but
    for the batch. A weight may have another name in a trace for another batch.
    """
    ops = (
        f"{op.name} {op.value.name} {op.location} {op.operands[0].tensor.shape[1:]}\n"
        for op in nonlinear_ops(module)
    )
    used = dict.fromkeys(s.name for op in module.ops for s in symbols_in(op.attributes))
    weights = {f"{number:06d}": module.symbols[name] for number, name in enumerate(used)}
    return arrays_digest(weights, "".join(ops))


def journal_place(output: Path | None, named: Path | None = None) -> Path | None:
    """The journal of a search; None where nothing is kept, because no place was given.

    Args:
        output: the folder that will be written; missing parents are made.
        named: a place that the user named.

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
        of: digest of all that they depend on.
    """

    of: Sha256
    calibration: Calibration


def _ranges_beside(journal: Path) -> Path:
    return journal.with_name(f"{journal.name}.ranges")


def kept_ranges(journal: Path | None, of: str) -> Calibration | None:
    """The ranges that an interrupted command measured; None where it kept none, or others.

    Args:
        journal: that the command had.
        of: digest (hex) of all that ranges depend on.
    """
    if journal is None or not _ranges_beside(journal).exists():
        return None
    try:
        kept = read_json(
            _ranges_beside(journal), _KeptRanges, "the ranges", MAX_CALIBRATION, links=False
        )
    except AtlasError:  # measured again
        return None
    return kept.calibration if kept.of == of else None


def keep_ranges(journal: Path | None, of: str, calibration: Calibration) -> None:
    """Keep ranges beside a journal, for `kept_ranges`."""
    if journal is not None:
        kept = {"of": of, "calibration": calibration.to_dict()}
        write_text(_ranges_beside(journal), json.dumps(kept))


@contextmanager
def keeping(journal: Path | None, output: Path) -> Iterator[dict[str, str]]:
    """The file that keeps a journal in an output, by name, for the block that writes the output.

    The journal is removed afterwards, and the ranges beside it. One in a place that the user named
    is not copied, and stays.
    """
    if journal != journal_beside(output):
        yield {}
        return
    yield {EVALUATIONS: read_text(journal, MAX_JOURNAL, links=False)}
    journal.unlink(missing_ok=True)
    _ranges_beside(journal).unlink(missing_ok=True)


def save_front(output: Path, front: Front, calibration: Calibration, journal: Path | None) -> None:
    """Write a front, its pictures, its calibration and its evaluations into a new folder."""
    with keeping(journal, output) as kept, new_folder(output) as draft:
        front.plot(draft / "front.png")
        ranges = json.dumps(calibration.to_dict(), indent=1) + "\n"
        for name, text in {**front_files(front), CALIBRATION: ranges, **kept}.items():
            (draft / name).write_text(text, encoding="utf-8")
