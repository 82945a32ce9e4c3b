"""``atlasc.compile`` and ``atlasc.load``: a compiled program, to run and inspect from Python."""

from __future__ import annotations

import html
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from atlasc.api.admission import admit, checked, require_polynomials
from atlasc.api.answers import ProgramAnswers
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
from atlasc.simulation.agreement import Promise, compared
from atlasc.targets import find_target

if TYPE_CHECKING:
    import torch

    from atlasc.evaluation.evaluate import Evaluation


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
        data: some dozens of real inputs, to measure ranges: a list of texts, of pairs of texts or
            of images; the output of a tokenizer; a DataFrame; a data set; a loader; an array or a
            tensor; a mapping from input names to arrays; or the path of a file.
        tokenizer: the tokenizer of a text model in memory.
        processor: the image processor or feature extractor of a model in memory.
        options: see :class:`CompileOptions`.
        progress: called as ``progress(what, done, total)``.
        changes: single options by name: ``sequence_length=64``, ``target="sim"``,
            ``key_memory="4G"``, ...

    Raises:
        AtlasError: the model, the data or an option is refused, or no setting is within the limits.
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
    """Load the program in a folder that :meth:`Program.save` or ``atlasc compile`` wrote.

    A role's part of the folder is enough for the work of that role.

    Raises:
        AtlasError: the folder holds no program, or a file in it was changed.
    """
    with atlas_errors():
        place = Path(folder)
        return Program(load_bundle(place, held_role(place)))


class Program:
    """A compiled model.

    Attributes:
        bundle: the files of the program.
        warnings: what a user should know of its compilation in this process, one text each.
    """

    def __init__(
        self,
        bundle: Bundle,
        scratch: TemporaryDirectory[str] | None = None,
        warnings: tuple[str, ...] = (),
    ) -> None:
        self.bundle, self.warnings = bundle, warnings
        self._scratch = scratch  # keeps the files of an unsaved program alive

    @property
    def folder(self) -> Path:
        """The folder of the program's files; a temporary folder until the program is saved."""
        return self.bundle.folder

    @property
    def target(self) -> str:
        """Name of the target that the program was compiled for."""
        return self.bundle.target

    @property
    def batch(self) -> int:
        """Number of inputs that one encrypted run answers."""
        return self.bundle.batch

    def inputs(self, data: object, long: str = LONG[0]) -> Inputs:
        """Inputs in the shape that the program takes.

        Args:
            data: texts, arrays, tensors or a path; see :func:`compile`. A Python warning says how
                many texts were cut.
            long: longer texts are cut at their end ("truncate"), become several inputs
                ("windows"), or are refused ("refuse").

        Raises:
            AtlasError: the data is not what the model reads.
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
            inputs: texts, arrays, tensors or a path; inputs beyond one batch are answered in
                further runs.
            target: a target to use instead of the one that the program was compiled for.
            project: a built C++ project with its Python module, whose engine runs the program.
            long: treatment of texts that are too long; see :meth:`inputs`.
            strict: refuse all inputs if one is unsafe, instead of leaving it out.
            unchecked: accept unsafe inputs, and give answers far outside the outputs seen in
                calibration.
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
        """Check in the clear whether each input may be encrypted and its answer will be right.

        Args:
            inputs: texts, arrays, tensors or a path.
            progress: called as ``progress(what, done, total)``.
            long: treatment of texts that are too long; see :meth:`inputs`.

        Raises:
            AtlasError: the inputs are refused, or the program's folder lacks the server's part.
        """
        with atlas_errors():
            given = self.bundle.load_inputs(inputs, long, partial=True).tell(warned)
            return checked(require_polynomials(self.bundle), given, steps_of(progress))

    def evaluate(
        self,
        inputs: object,
        *,
        encrypted: int = 0,
        simulated: int = 0,
        target: str | None = None,
        long: str = LONG[0],
        seed: int = 0,
        progress: ProgressCallback | None = None,
    ) -> Evaluation:
        """Measure accuracy on labelled inputs, and agreement with the model.

        Both are measured for the model, its polynomials, the errors of encryption, and ciphertexts.

        Args:
            inputs: inputs with labels: a path, rows such as ``{"text": ..., "label": ...}``, or
                arrays with ``labels``.
            encrypted: how many inputs, chosen at random, are answered on ciphertexts.
            simulated: how many are answered on the simulator, with the errors of CKKS.
            target: a target for ``encrypted``, instead of the one that the program was compiled
                for.
            long: treatment of texts that are too long; see :meth:`inputs`.
            seed: seed for the choice of inputs and for the simulated errors.
            progress: called as ``progress(what, done, total)``.

        Raises:
            AtlasError: the inputs or labels are refused, or the folder lacks the server's part.
        """
        warnings: list[str] = []
        note = collecting(warnings)
        with atlas_errors():
            found = evaluate_inputs(
                self.bundle, self.bundle.load_inputs(inputs, long, partial=True).tell(note),
                encrypted=encrypted, simulated=simulated, target=target or "", seed=seed,
                steps=steps_of(progress), note=note,
            )  # fmt: skip
        return replace(found, notes=tuple(warnings))

    def inspect(self, progress: ProgressCallback | None = None) -> dict[str, Any]:
        """Costs of the program, as ``atlasc inspect --json`` prints them."""
        with atlas_errors():
            found = inspect_bundle(self.bundle, steps_of(progress))
        return {**found.summary, "nominal_ranges": found.nominal}

    def save(self, folder: str | Path, part: Role | None = None) -> None:
        """Copy the program to a new folder, which appears whole or not at all.

        Args:
            folder: a new folder.
            part: "client" or "server": copy only the files that this role needs.

        Raises:
            AtlasError: the folder exists or cannot be written, or ``part`` is unknown.
        """
        with atlas_errors():
            if part is not None:
                copy_part(self.folder, part, Path(folder))
                return
            with new_folder(Path(folder)) as draft:
                shutil.copytree(self.folder, draft, dirs_exist_ok=True)

    def summary(self) -> list[tuple[str, str]]:
        """The main figures, as pairs of a name and a value."""
        facts, costs = self.bundle.manifest, dict(self.bundle.manifest.costs)
        error, seconds = facts.settings.get("error"), costs.get("seconds")
        agreement = facts.settings.get("agreement")
        length = f", {facts.sequence_length} tokens" if facts.sequence_length else ""
        return [
            ("model", f"{facts.model.name} ({facts.model.kind}), {facts.batch} a run{length}"),
            ("target", f"{facts.target}, {facts.security_bits} bits of security"),
            ("error of the polynomials", "–" if error is None else f"{error:.3g}"),
            ("agreement with the model", "–" if agreement is None else f"{agreement:.2%}"),
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
    """Run a program as :meth:`Program.run`, with progress in steps and warnings as they occur.

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
        expected, model = session.simulate_both(bundle.client, bundle.poly, arrays, step.report)
    if built is not None:
        with steps(f"running on {built.module.engine}, in C++"):
            answer = built.run(arrays, expected, unchecked)
    else:
        answer = session.run(
            bundle, arrays, target, steps=steps, expected=expected, unchecked=unchecked
        )
    answer = replace(answer, model=model)
    refused = dict(admitted.left_out) | {
        admitted.rows[row]: f"{share:.1%} of its slots are far outside those seen in calibration"
        for row, share in answer.refused.items()
    }
    return ProgramAnswers(
        inputs, admitted.rows, answer, dict(sorted(refused.items())), (), unchecked,
        _agreement(bundle, arrays, answer),
    )  # fmt: skip


def _agreement(
    bundle: Bundle, arrays: Mapping[str, np.ndarray], answer: RunResult
) -> tuple[float, ...] | None:
    """How far each answer agrees with the model's, from 0 to 1; None if that is not known."""
    promise = Promise.of(bundle.poly)
    if promise is None or answer.model is None:
        return None
    beside = compared(promise, bundle.poly, arrays, answer.outputs, answer.model)
    # These answers already contain the errors of encryption.
    found = beside.agreement(replace(promise, noise=0.0))
    found[list(answer.refused)] = 0.0
    return tuple(found.tolist())


def evaluate_inputs(
    bundle: Bundle, inputs: Inputs, *, steps: Steps = silent, note: Note, **options: Any
) -> Evaluation:
    """Evaluate a program as :meth:`Program.evaluate`, with progress and warnings as they occur.

    Raises:
        AtlasError: as :meth:`Program.evaluate`.
    """
    from atlasc.evaluation.evaluate import evaluate

    whole = require_polynomials(bundle)
    return evaluate(whole, inputs, checked(whole, inputs, steps), steps=steps, note=note, **options)


def collecting(warnings: list[str]) -> Callable[..., None]:
    """A note that appends to ``warnings``."""

    def note(headline: str, details: str = "") -> None:
        warnings.append(f"{headline}\n{details}" if details else headline)

    return note


def _built(bundle: Bundle, project: Path | None, target: str) -> BuiltProgram | None:
    """The Python module that runs the program: of the named project, or of the bundle's own."""
    if project is not None and target:
        raise AtlasError(
            "--project and --target exclude each other",
            why="a project runs on the engine that it was built with",
            remedy="leave one of them out",
        )
    own = bundle.folder / PROJECT
    if project is None and not target and module_place(own) is not None:
        project = own
    return None if project is None else BuiltProgram(project, bundle)
