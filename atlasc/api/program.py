"""``atlasc.compile`` and ``atlasc.load``: a compiled program, to run and inspect from Python."""

from __future__ import annotations

import html
import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from atlasc.api.admission import checked, require_polynomials
from atlasc.api.answers import ProgramAnswers
from atlasc.api.errors import atlas_errors
from atlasc.api.generation import sampling_of
from atlasc.api.interrupted import resumable
from atlasc.api.progress import steps_for
from atlasc.api.running import run_inputs
from atlasc.api.session import TextSession
from atlasc.api.words import collecting, warned
from atlasc.bundle.folder import Bundle, Role, load_bundle
from atlasc.bundle.split import copy_part, held_role
from atlasc.client.verdict import Verdict
from atlasc.compilation.compile import compile_model
from atlasc.compilation.declared import options_of, takes_options
from atlasc.compilation.options import CompileOptions
from atlasc.compilation.single_stages import inspect_bundle
from atlasc.files import new_folder
from atlasc.generation.ends import Generated
from atlasc.generation.prompt import Prompt
from atlasc.generation.steps import TextBundles
from atlasc.loading import LONG
from atlasc.loading.inputs import Inputs
from atlasc.progress import Note, ProgressCallback, Steps, quiet, silent

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack

    from atlasc.api.changes import Changes
    from atlasc.evaluation.evaluate import Evaluation


@takes_options(CompileOptions)
def compile(
    model: str | Path | torch.nn.Module,
    data: object,
    *,
    tokenizer: Any = None,
    processor: Any = None,
    journal: str | Path | None = None,
    options: CompileOptions | None = None,
    progress: ProgressCallback | bool | None = None,
    **changes: Unpack[Changes],
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
        journal: a file for the evaluations of the search, which stays: the same call with it
            continues a search that was interrupted. Without it the evaluations of a search that
            ends early are kept in a temporary file, which the interrupt or a warning names.
        options: see :class:`CompileOptions`.
        progress: called as ``progress(what, done, total)``; True or False: show a bar or nothing;
            None: show one in a notebook or on a terminal.
        changes: single options of :class:`CompileOptions` by name, such as ``sequence_length=64``,
            ``target="sim"`` or ``key_memory="4G"``; None is the default:

    Raises:
        AtlasError: the model, the data or an option is refused, or no setting is within the limits.
    """
    warnings: list[str] = []
    with atlas_errors():
        chosen = options_of(CompileOptions, changes, options)
        scratch = TemporaryDirectory(prefix="atlasc-")
        place = Path(scratch.name) / "program"
        kept = None if journal is None else Path(journal)
        with resumable(place, kept):
            made = compile_model(
                model, data, place, chosen, steps_for(progress),
                tokenizer=tokenizer, processor=processor, journal=kept, note=collecting(warnings),
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
        progress: ProgressCallback | bool | None = None,
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
            progress: see :func:`compile`.

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
                strict=strict, unchecked=unchecked, steps=steps_for(progress), note=note,
            )  # fmt: skip
        return replace(result, warnings=tuple(warnings))

    def generate(
        self,
        prompt: Prompt | None = None,
        *,
        tokens: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        session: str | Path | None = None,
        target: str | None = None,
        progress: ProgressCallback | bool | None = None,
    ) -> Generated:
        """Continue a text, with both roles in this process. The program must have been compiled
        with ``generate=True``.

        Each token is one step on ciphertexts. The prefill computes all tokens of the prompt at
        once, where that is predicted to take less time than a step for each of them. Tokens are
        chosen as ``generation_config.json`` of the model's folder says, unless an argument says
        otherwise.

        Args:
            prompt: a text or token ids, without the public prefix that the program may have been
                compiled with; or the messages of a conversation, which the tokenizer's chat
                template writes: ``[{"role": "user", "content": "..."}]``; None for a session that
                goes on.
            tokens: tokens after the prompt; fewer if the model ends the text. None: as many as the
                folder says and as fit, else 32.
            temperature: divides the logits before a token is drawn; 0: take the likeliest; None: as
                the folder says.
            top_k: draw among so many of the likeliest tokens.
            top_p: draw among the likeliest tokens whose probabilities are together so large.
            seed: seed of the draw; None: a new one.
            session: a new folder for keys, text, and encrypted keys and values; or the folder of a
                session, which then goes on. None keeps nothing.
            target: a target to use instead of the one that the program was compiled for.
            progress: see :func:`compile`.

        Raises:
            AtlasError: the program has no step; the prompt or the tokens do not fit it; the session
                belongs to another program, prompt or sampling; or a step is refused.
        """
        with self.session(
            session, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed,
            target=target, progress=progress, note=quiet,
        ) as text:  # fmt: skip
            return text.go_on(prompt, tokens)

    def session(
        self,
        folder: str | Path | None = None,
        *,
        chat: bool = False,
        window: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        target: str | None = None,
        progress: ProgressCallback | bool | None = None,
        note: Note = warned,
    ) -> TextSession:
        """A text of several turns, with both roles in this process: a context, in which
        :meth:`TextSession.say` gives the answer to each prompt.

        Args:
            folder: as ``session`` of :meth:`generate`.
            chat: a text is a message of a user, which the tokenizer's chat template writes.
            window: when there is no room for more tokens, the oldest leave, and so many stay, which
                are computed anew. None: what does not fit is refused.
            temperature, top_k, top_p, seed, target, progress: as of :meth:`generate`.
            note: called with what each turn costs, before it runs; by default a warning says it.

        Raises:
            AtlasError: the program has no step.
        """
        with atlas_errors():
            draws = TextBundles.of(self.bundle).step.generation.do_sample
            return TextSession(
                self.bundle, None if folder is None else Path(folder),
                sampling_of(temperature, top_k, seed, top_p, draws=draws),
                chat=chat, window=window, target=target or "", steps=steps_for(progress), note=note,
                errors=atlas_errors,
            )  # fmt: skip

    def check(
        self,
        inputs: object,
        progress: ProgressCallback | bool | None = None,
        *,
        long: str = LONG[0],
    ) -> list[Verdict]:
        """Check in the clear whether each input may be encrypted and its answer will be right.

        Args:
            inputs: texts, arrays, tensors or a path.
            progress: see :func:`compile`.
            long: treatment of texts that are too long; see :meth:`inputs`.

        Raises:
            AtlasError: the inputs are refused, or the program's folder lacks the server's part.
        """
        with atlas_errors():
            given = self.bundle.load_inputs(inputs, long, partial=True).tell(warned)
            return checked(require_polynomials(self.bundle), given, steps_for(progress))

    def evaluate(
        self,
        inputs: object,
        *,
        encrypted: int = 0,
        simulated: int = 0,
        target: str | None = None,
        long: str = LONG[0],
        seed: int = 0,
        progress: ProgressCallback | bool | None = None,
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
            progress: see :func:`compile`.

        Raises:
            AtlasError: the inputs or labels are refused, or the folder lacks the server's part.
        """
        warnings: list[str] = []
        note = collecting(warnings)
        with atlas_errors():
            found = evaluate_inputs(
                self.bundle, self.bundle.load_inputs(inputs, long, partial=True).tell(note),
                encrypted=encrypted, simulated=simulated, target=target or "", seed=seed,
                steps=steps_for(progress), note=note,
            )  # fmt: skip
        return replace(found, notes=tuple(warnings))

    def inspect(self, progress: ProgressCallback | bool | None = None) -> dict[str, Any]:
        """Costs of the program, as ``atlasc inspect --json`` prints them."""
        with atlas_errors():
            found = inspect_bundle(self.bundle, steps_for(progress))
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
            *([("name", facts.name)] if facts.name else []),
            ("model", f"{facts.model.name} ({facts.model.kind}), {facts.batch} a run{length}"),
            ("target", f"{facts.target}, {facts.security_bits} bits of security"),
            ("mean error of the polynomials", "–" if error is None else f"{error:.3g}"),
            ("agreement with the model", "–" if agreement is None else f"{agreement:.2%}"),
            ("all levels", str(costs.get("levels_total"))),
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
