"""``atlasc.compile`` and ``atlasc.load``: a compiled program, run and looked at from Python."""

from __future__ import annotations

import html
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from atlasc.api.admission import admit, checked, require_polynomials
from atlasc.api.errors import atlas_errors
from atlasc.bundle.folder import Bundle, Role, copy_part, held_role, load_bundle
from atlasc.client.verdict import Verdict
from atlasc.compilation.compile import PROJECT, compile_model
from atlasc.compilation.declared import options_of
from atlasc.compilation.options import CompileOptions
from atlasc.compilation.single_stages import inspect_bundle
from atlasc.compilation.steps import Note, ProgressCallback, Steps, silent, steps_of, warned
from atlasc.files import new_folder
from atlasc.ir.errors import AtlasError
from atlasc.loading import LONG
from atlasc.loading.inputs import Inputs
from atlasc.run import session
from atlasc.run.built import BuiltProgram, module_place
from atlasc.run.session import RunResult
from atlasc.run.timing import Timing
from atlasc.targets import find_target

if TYPE_CHECKING:
    import torch


def compile(
    model: str | Path | torch.nn.Module,
    data: object,
    *,
    tokenizer: Any = None,
    processor: Any = None,
    options: CompileOptions | None = None,
    progress: ProgressCallback | None = None,
    **changes: Any,
) -> Program:
    """Compile a model to a program on encrypted inputs.

    Without ``recipe`` and ``front`` the settings of the polynomials are searched, which takes
    minutes. The cheapest setting with an error of at most ``max_error`` is taken.

    Args:
        model: a HuggingFace model or any torch module; or a path or a name, as on the command line.
        data: some dozens of real inputs, for the ranges: a list of texts, of pairs of texts or of
            images, what a tokenizer returns, a DataFrame, a data set, a loader, an array or
            tensor, a mapping of them by input name, or the path of a file.
        tokenizer: of a text model in memory.
        processor: of an image model in memory: what prepares its images.
        options: see :class:`CompileOptions`.
        progress: called as ``progress(what, done, total)``.
        changes: single options by name: ``sequence_length=64``, ``target="sim"``,
            ``key_memory="4G"``, ...

    Raises:
        AtlasError: the model, the data or an option is refused, or nothing is within the limits.
    """
    chosen = options_of(CompileOptions, changes, options)
    warnings: list[str] = []
    with atlas_errors():
        scratch = TemporaryDirectory(prefix="atlasc-")
        place = Path(scratch.name) / "program"
        made = compile_model(
            model, data, place, chosen, steps_of(progress),
            tokenizer=tokenizer, processor=processor, note=collecting(warnings),
        )  # fmt: skip
    return Program(made.bundle, scratch, tuple(warnings))


def load(folder: str | Path) -> Program:
    """The program in a folder that :meth:`Program.save` or ``atlasc compile`` wrote; or a role's
    part of it, which is enough for what the role does.

    Raises:
        AtlasError: it is no such folder, or a file in it was changed.
    """
    with atlas_errors():
        place = Path(folder)
        return Program(load_bundle(place, held_role(place)))


@dataclass(frozen=True)
class ProgramAnswers:
    """Answers to some inputs. A row belongs to each input that was given.

    Attributes:
        inputs: what was given.
        rows: which of the inputs were encrypted.
        answer: to these: outputs, what the polynomials give in the clear, and seconds.
        refused: row of an input without an answer: why.
        warnings: what a user should know, a text each.
        unchecked: whether answers are shown that are far outside of what calibration saw.
    """

    inputs: Inputs
    rows: tuple[int, ...]
    answer: RunResult
    refused: Mapping[int, str]
    warnings: tuple[str, ...]
    unchecked: bool = False

    @property
    def outputs(self) -> dict[str, np.ndarray]:
        """Answers by output name, ``[inputs, ...]``; NaN in the rows that are refused."""
        shown = self.answer.shown(self.unchecked)
        return {name: self._placed(values) for name, values in shown.items()}

    @property
    def expected(self) -> dict[str, np.ndarray]:
        """What the polynomials give in the clear, likewise; NaN for inputs that are left out."""
        expected = self.answer.finished(self.answer.expected)
        return {name: self._placed(values) for name, values in expected.items()}

    @property
    def unanswered(self) -> frozenset[int]:
        """Rows without an answer."""
        shown = self.rows if self.unchecked else ()
        return frozenset(self.refused).difference(shown)

    @property
    def errors(self) -> dict[str, np.ndarray]:
        """By output name, for each input the largest difference from the polynomials' answer,
        before the function that may end an output.
        """
        before = replace(self.answer, functions={}).shown(self.unchecked)
        return {
            name: self._placed(
                np.abs(values - self.answer.expected[name]).reshape(len(values), -1).max(axis=1)
            )
            for name, values in before.items()
        }

    @property
    def max_error(self) -> float:
        """Greatest difference of an answer from the polynomials' answer; NaN without answers."""
        return self.answer.max_error

    @property
    def mean_error(self) -> float:
        """Mean absolute difference from the polynomials' answers."""
        return self.answer.mean_error

    @property
    def seconds(self) -> dict[str, float]:
        """Time by phase: keys, encrypt, execute, decrypt."""
        return self.answer.seconds

    @property
    def target(self) -> str:
        """What it ran on."""
        return self.answer.target

    @property
    def timing(self) -> Timing | None:
        """Seconds of each op; None where nothing was encrypted."""
        return self.answer.timing

    def _placed(self, values: np.ndarray) -> np.ndarray:
        placed = np.full((len(self.inputs), *values.shape[1:]), np.nan)
        placed[list(self.rows)] = values
        return placed


class Program:
    """A compiled model.

    Attributes:
        bundle: its files.
        warnings: what a user should know of its compilation in this process, a text each.
    """

    def __init__(
        self,
        bundle: Bundle,
        scratch: TemporaryDirectory[str] | None = None,
        warnings: tuple[str, ...] = (),
    ) -> None:
        self.bundle, self.warnings = bundle, warnings
        self._scratch = scratch  # the files of a program that was not saved live as long as it

    @property
    def folder(self) -> Path:
        """Where its files lie; a temporary folder until the program is saved."""
        return self.bundle.folder

    @property
    def target(self) -> str:
        """What it was compiled for."""
        return self.bundle.target

    @property
    def batch(self) -> int:
        """Inputs that one encrypted run answers."""
        return self.bundle.batch

    def inputs(self, data: object, long: str = LONG[0]) -> Inputs:
        """Inputs in the shape that the program takes.

        Args:
            data: texts, arrays, tensors or a path; see :func:`compile`. A Python warning says how
                many texts were cut.
            long: longer texts are cut at their end ("truncate"), become several inputs
                ("windows"), or are refused ("refuse").

        Raises:
            AtlasError: they are not what the model reads.
        """
        with atlas_errors():
            return self.bundle.load_inputs(data, long).tell(warned)

    def run(
        self,
        inputs: object,
        target: str | None = None,
        *,
        project: str | Path | None = None,
        long: str = LONG[0],
        strict: bool = False,
        unchecked: bool = False,
        progress: ProgressCallback | None = None,
    ) -> ProgramAnswers:
        """Make keys, encrypt, execute and decrypt in this process, to try a program out.

        Args:
            inputs: texts, arrays, tensors or a path; more than a batch are answered in several
                runs.
            target: another one than the program was compiled for.
            project: a built C++ project with its Python module, to run on its engine.
            long: what becomes of longer texts; see :meth:`inputs`.
            strict: refuse all inputs if one is unsafe; else it is left out.
            unchecked: take unsafe inputs, and give answers that are far outside what calibration
                saw.
            progress: called as ``progress(what, done, total)``.

        Raises:
            AtlasError: no input is fit, the target cannot run here, or an op is refused.
        """
        warnings: list[str] = []
        note = collecting(warnings)
        with atlas_errors():
            result = run_inputs(
                self.bundle, self.bundle.load_inputs(inputs, long, partial=True).tell(note),
                target or "",
                project=None if project is None else Path(project),
                strict=strict, unchecked=unchecked, steps=steps_of(progress), note=note,
            )  # fmt: skip
        return replace(result, warnings=tuple(warnings))

    def check(
        self, inputs: object, progress: ProgressCallback | None = None, *, long: str = LONG[0]
    ) -> list[Verdict]:
        """Whether each input may be encrypted and its answer will be right, evaluated in the clear.

        Args:
            inputs: texts, arrays, tensors or a path.
            progress: called as ``progress(what, done, total)``.
            long: what becomes of longer texts; see :meth:`inputs`.

        Raises:
            AtlasError: of the inputs; or the program's folder lacks the server's part.
        """
        with atlas_errors():
            given = self.bundle.load_inputs(inputs, long, partial=True).tell(warned)
            return checked(require_polynomials(self.bundle), given, steps_of(progress))

    def inspect(self, progress: ProgressCallback | None = None) -> dict[str, Any]:
        """What the program costs, as ``atlasc inspect --json`` prints it."""
        with atlas_errors():
            found = inspect_bundle(self.bundle, steps_of(progress))
        return {**found.summary, "nominal_ranges": found.nominal}

    def save(self, folder: str | Path, part: Role | None = None) -> None:
        """Copy the program to a new folder, which appears whole or not at all.

        Args:
            folder: a new one.
            part: "client" or "server": what this role needs alone, without the other's files.

        Raises:
            AtlasError: the folder exists, or cannot be written; there is no such part.
        """
        with atlas_errors():
            if part is not None:
                copy_part(self.folder, part, Path(folder))
                return
            with new_folder(Path(folder)) as draft:
                shutil.copytree(self.folder, draft, dirs_exist_ok=True)

    def summary(self) -> list[tuple[str, str]]:
        """The main figures, each with its name."""
        facts, costs = self.bundle.manifest, dict(self.bundle.manifest.costs)
        error, seconds = facts.settings.get("error"), costs.get("seconds")
        length = f", {facts.sequence_length} tokens" if facts.sequence_length else ""
        return [
            ("model", f"{facts.model.name} ({facts.model.kind}), {facts.batch} a run{length}"),
            ("target", f"{facts.target}, {facts.security_bits} bits of security"),
            ("error of the polynomials", "–" if error is None else f"{error:.3g}"),
            ("levels", str(costs.get("levels_total"))),
            ("bootstraps", str(costs.get("bootstraps"))),
            ("predicted seconds of a run", "–" if seconds is None else f"{seconds:.3g}"),
        ]

    def __repr__(self) -> str:
        return "<atlasc.Program: " + "; ".join(f"{n} {v}" for n, v in self.summary()) + ">"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
            for name, value in self.summary()
        )
        return f"<table>{rows}</table>"


def run_inputs(
    bundle: Bundle,
    inputs: Inputs,
    target: str,
    *,
    project: Path | None = None,
    strict: bool = False,
    unchecked: bool = False,
    steps: Steps = silent,
    note: Note,
) -> ProgramAnswers:
    """What :meth:`Program.run` does, with progress in steps and warnings as they occur.

    Raises:
        AtlasError: as :meth:`Program.run`.
    """
    built = _built(bundle, project, target)
    target = target or bundle.target
    if built is None:
        find_target(target).check()
    admitted = admit(bundle, inputs, note, strict=strict, unchecked=unchecked, steps=steps)
    arrays = admitted.inputs.arrays
    with steps("polynomials in the clear", total=len(admitted.inputs)) as step:
        expected = session.simulate(bundle.client, bundle.poly, arrays, step.report)
    if built is not None:
        with steps(f"running on {built.module.engine}, in C++"):
            answer = built.run(arrays, expected, unchecked)
    else:
        answer = session.run(
            bundle, arrays, target, steps=steps, expected=expected, unchecked=unchecked
        )
    refused = dict(admitted.left_out) | {
        admitted.rows[row]: f"{share:.1%} of its slots are far outside what calibration saw"
        for row, share in answer.refused.items()
    }
    return ProgramAnswers(
        inputs, admitted.rows, answer, dict(sorted(refused.items())), (), unchecked
    )


def collecting(warnings: list[str]) -> Callable[..., None]:
    """A note that adds to the warnings."""

    def note(headline: str, details: str = "") -> None:
        warnings.append(f"{headline}\n{details}" if details else headline)

    return note


def _built(bundle: Bundle, project: Path | None, target: str) -> BuiltProgram | None:
    """The Python module to run by: of the project that was named, or of the bundle's own."""
    if project is not None and target:
        raise AtlasError(
            "--project and --target exclude each other",
            why="the engine of a project is the one that it was built with",
            remedy="leave one of them out",
        )
    own = bundle.folder / PROJECT
    if project is None and not target and module_place(own) is not None:
        project = own
    return None if project is None else BuiltProgram(project, bundle)
