"""The programs that generate text, both made of a decoder's window: the step of a token, and the
prefill of a prompt before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

import numpy as np

from atlasc.calibration.measure import blas_threads
from atlasc.compilation.lowering import each_pass, planned_in_memory
from atlasc.compilation.options import TargetOptions
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.ir.rewriting import Rewriter
from atlasc.latency.model import LatencyTarget
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.generation.cut_head import CutHead, head_of, is_tied
from atlasc.passes.generation.decode_step import DecodeStep
from atlasc.passes.generation.prefill import Prefill, for_step
from atlasc.passes.generation.public_rows import Prefix, with_public_rows
from atlasc.passes.lowering.rotation_keys import with_key_levels
from atlasc.passes.pipeline import STEPS, Lowered, client_module, lower_poly, to_poly
from atlasc.program.costs import program_costs
from atlasc.program.key_plan import KeyPlan, key_plan
from atlasc.progress import Steps, silent
from atlasc.report.summary import costs_summary
from atlasc.targets import find_target
from atlasc.targets.parameters import ParameterSet


def head_side(module: Module, asked: str | None, prefix: Prefix | None = None) -> str:
    """Who computes the head of a decoder: as asked, else the client if it has the matrix anyway.

    Raises:
        AtlasError: the model is no causal decoder, or has no head for the client as asked.
    """
    step = run_passes(module, [_step_after(prefix)])
    if asked == "client":
        head_of(step)
    return asked or ("client" if is_tied(step) else "server")


def _step_after(prefix: Prefix | None) -> DecodeStep:
    """The pass that makes a step of a window: of the tokens after the prefix."""
    return DecodeStep() if prefix is None else DecodeStep(first=prefix.tokens)


class TextPrograms(NamedTuple):
    """The programs that generate text.

    Attributes:
        step: the step of a token.
        prefill: the prefill of a prompt, with the parameters of the step; None without one.
        why: why there is no prefill; empty if there is one.
    """

    step: Lowered
    prefill: Lowered | None = None
    why: str = ""

    @property
    def keys(self) -> KeyPlan:
        """The keys of a text, with which both programs run."""
        own = key_plan(self.step.program)
        return own if self.prefill is None else own.union(key_plan(self.prefill.program))


@dataclass(frozen=True)
class Decoder:
    """A decoder's window, and how the programs that are made of it are lowered.

    Attributes:
        module: nn module with approximations.
        window: the folded poly module that was made of it; it ends before the head if the client
            computes the head.
        head: nn module of the head that the client computes, or None.
        prefix: the public prefix, whose keys and values the step's state begins with, or None.
        options: options of the target.
        steps: progress.
    """

    module: Module
    window: Module
    head: Module | None = None
    prefix: Prefix | None = None
    options: TargetOptions = field(default_factory=TargetOptions)
    steps: Steps = silent

    @classmethod
    def of(
        cls,
        module: Module,
        window: Module,
        inputs: Mapping[str, np.ndarray] | None,
        head: str = "server",
        prefix: Prefix | None = None,
        options: TargetOptions | None = None,
        steps: Steps = silent,
    ) -> Decoder:
        """The decoder of a window.

        Args:
            module: nn module of the window, with approximations.
            window: the folded poly module that was made of it.
            inputs: see :func:`atlasc.compilation.lowering.lower_module`.
            head: who computes the head over the vocabulary. For the client the programs end before
                it, and what folds into the head is folded into its input.
            prefix, options, steps: attributes.

        Raises:
            AtlasError: the model is no causal decoder, or has no head for the client.
        """
        own: Module | None = None
        if head == "client":
            own = head_of(run_passes(module, [_step_after(prefix)]))
            with steps("taking the head off"), blas_threads(1):
                _, window = to_poly(run_passes(module, [CutHead()]), inputs)
        return cls(module, window, own, prefix, options or TargetOptions(), steps)

    def step(self, parameters: ParameterSet | None = None) -> Lowered:
        """The lowered step of a token. No bound on the errors of its answers is known, because
        these depend on the steps before.

        Args:
            parameters: its parameter set; None chooses one.

        Raises:
            AtlasError: as :func:`atlasc.compilation.lowering.lower_module`.
        """
        client = client_module(run_passes(self.module, [_step_after(self.prefix)]))
        poly = run_passes(self.window, [_step_after(self.prefix)])
        if self.prefix is not None:
            with self.steps("computing keys and values of the public prefix"), blas_threads(1):
                window = client_module(self.module)
                poly = with_public_rows(poly, window, self.window, self.prefix)
        return self._lowered("lowering the step of a token", client, poly, parameters)

    def prefill(self, step: Lowered, parameters: ParameterSet | None = None) -> Lowered:
        """The lowered prefill, whose keys and values a step reads; see :meth:`step`."""
        poly = for_step(run_passes(self.window, [Prefill()]), step.program)
        client = client_module(self.module)
        return self._lowered("lowering the prefill of a prompt", client, poly, parameters)

    def _lowered(
        self, what: str, client: Module, poly: Module, parameters: ParameterSet | None
    ) -> Lowered:
        latency = LatencyTarget.of(find_target(self.options.target), self.options.costs)
        choose = latency.choose if parameters is None else lambda levels, slots=1: parameters
        with self.steps(what, len(STEPS)) as step, blas_threads(1):

            def lower(packings: Sequence[bool]) -> Lowered:
                goal = (choose, each_pass(step), latency.costs, packings)
                folded, program, chosen = lower_poly(poly, *goal)
                return Lowered(client, folded, fit_to_begin(program), chosen, self.head)

            return planned_in_memory(lower, self.options)


def text_programs(decoder: Decoder, prefill: bool = True) -> TextPrograms:
    """The lowered step and, where it can save time, the prefill.

    Both have one parameter set, the greater one, because the step reads the ciphertexts of the
    prefill. They name each key that both need at the same level. So a key set of both has the keys
    of each.

    Args:
        decoder: the window.
        prefill: whether there may be a prefill.

    Raises:
        AtlasError: the step cannot be lowered. A prefill that cannot is left out, and ``why`` says
            why.
    """
    step = decoder.step()
    if not prefill:
        return TextPrograms(step, why="--without prefill left it out")
    if decoder.prefix is not None:
        return TextPrograms(step, why="a text begins with the keys and values of the public prefix")
    try:
        both = _with_equal_parameters(decoder, step)
    except AtlasError as error:
        return TextPrograms(step, why=": ".join(filter(None, (error.what, error.why))))
    one, other = (_seconds(lowered) for lowered in both)
    if one is None or other is None:
        return TextPrograms(step, why="the seconds of the target are not predicted")
    tokens = _tokens(step)
    if other >= tokens * one:
        why = f"it takes {other:.3g} s, and {tokens} steps take {tokens * one:.3g} s"
        return TextPrograms(step, why=why)
    step, first = both
    keys = TextPrograms(step, first).keys
    return TextPrograms(_with_keys(step, keys), _with_keys(first, keys))


def _with_keys(lowered: Lowered, keys: KeyPlan) -> Lowered:
    return replace(lowered, program=with_key_levels(lowered.program, keys))


def _with_equal_parameters(decoder: Decoder, step: Lowered) -> tuple[Lowered, Lowered]:
    """The step and the prefill in one parameter set: the greater one."""
    prefill = decoder.prefill(step)
    sets = [cast(ParameterSet, one.parameters) for one in (step, prefill)]
    if sets[0] != sets[1]:
        greater = max(sets, key=lambda one: (one.bootstrap_level or 0, one.max_level, one.slots))
        if step.parameters != greater:
            step = decoder.step(greater)
        prefill = decoder.prefill(step, greater)
    return step, prefill


def _tokens(step: Lowered) -> int:
    """Tokens of the texts of a step, whose keys are [batch, heads, tokens, width]."""
    (keys, *_) = (op for op in step.poly.inputs if op.attributes.get("state"))
    return int(keys.attributes["shape"][2])


def _seconds(lowered: Lowered) -> float | None:
    """Predicted seconds of a program; None without a cost table."""
    parameters = cast(ParameterSet, lowered.parameters)
    return costs_summary(program_costs(lowered.program), parameters)["seconds"]


def fit_to_begin(program: Module) -> Module:
    """A step whose query is at least at the level of every state. From the first query the server
    makes the states of no token: zero, each at its level. A program without state stays the same.
    """
    states = [op for op in program.inputs if op.attributes.get("state")]
    least = max((op.attributes["level"] for op in states), default=0)
    rewriter = Rewriter(program)
    for op in program.ops:
        query = op.name == "ckks.input" and not op.attributes.get("state")
        level = op.attributes.get("level", least) if query else least
        if level >= least:
            rewriter.copy(op)
            continue
        higher = rewriter.copy(op, [], {**op.attributes, "level": least})
        rewriter.values[op.value] = rewriter.add(op, "ckks.drop", [higher], {"level": level})
    return rewriter.module
