"""The options of ``compile`` and the other commands, in groups that extend each other.

Each option is declared once, as a field of a frozen dataclass: its type, default, help and choices.
The command line makes its options from the fields (:mod:`atlasc.cli.parameters`). Python users pass
the fields by name to :func:`atlasc.compile`. None always means "not given".

The module imports no library at its top level, so that the command line's help appears at once.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from atlasc.compilation.declared import (
    HEADS,
    MEASURES,
    RANGES_FROM,
    Options,
    choose,
    documented,
    long_option,
    option,
    parse_head,
    parse_measure,
    parse_memory,
    parse_name,
    parse_ranges,
    parse_share,
    switch,
    without,
)
from atlasc.compilation.oracle.options import KeptOptions
from atlasc.ir.errors import AtlasError
from atlasc.passes.lowering.keys.sizes import parse_bytes, parse_size
from atlasc.targets import DEFAULT, find_target, target_names

if TYPE_CHECKING:
    from atlasc.polynomials.parametrisation import Parametrisation
    from atlasc.search.front import Front, Wanted
    from atlasc.search.points import Point
    from atlasc.search.search_problem import RayWorkers
    from atlasc.simulation.agreement import Measure

MAX_ERROR = {"class": 4e-3, "tokens": 2e-3, "values": 2e-3}
"""Greatest error if no limit is given, as a share of how the outputs vary; by measure
of agreement. With one class per input, the best scores of one input in 250 differ by less."""
RANGES, LIMITS, SEARCH = "Data and ranges", "Limits on the setting", "Search"
"""Sections of a command's help."""
range_option, limit = partial(option, section=RANGES), partial(option, section=LIMITS)
range_key = partial(option, of="ranges", names=RANGES_FROM)
search_option = partial(option, section=SEARCH)
budget_key = partial(option, of="strategy", names=("atlas",), minimum=1)
space_key = partial(option, of="space", names=("wide", "paper"), unset="that of the space")
worker_key = partial(option, of="workers", names=("ray",))


@documented
@dataclass(frozen=True, kw_only=True)
class ModelOptions(Options):
    """How a model is loaded."""

    sequence_length: int | None = range_option(
        "Tokens of a text.", minimum=1, unset="from the data"
    )
    outputs: str | None = option(
        "Outputs that the program computes: names separated by commas, or all.",
        unset="logits, else sentence_embedding, last_hidden_state or the first",
    )
    trust_pickle: bool = switch("Unpickle a .pt file, which can run any code in it.")


@documented
@dataclass(frozen=True, kw_only=True)
class BatchOptions(ModelOptions):
    """How a model is loaded and traced."""

    batch: int = option("Inputs that one run answers.", minimum=1, default=1)


@documented
@dataclass(frozen=True, kw_only=True)
class CalibrationOptions(ModelOptions):
    """How the ranges of the nonlinear ops are measured."""

    long: str = long_option(section=RANGES)
    ranges: str = range_option(
        "Where ranges come from: the data, or the weights. measured: the data, with a margin. "
        "certified: the weights, for every input; few models allow it.",
        default=RANGES_FROM[0], metavar="|".join(RANGES_FROM), parse=parse_ranges,
    )  # fmt: skip
    margin: float | None = range_key(
        "Margin of the ranges, as a share of their width.", minimum=0, unset="from the data"
    )
    held_back: float = range_key(
        "Share of the data held back to validate the ranges and the settings.",
        default=0.2, minimum=0, below=1,
    )  # fmt: skip
    prefixes: bool = without(
        "Calibrate on a prefix of each text too, so that shorter texts stay in the ranges."
    )
    repetitions: bool = without(
        "Calibrate a model that writes text on repetitions too, which its own texts may end in."
    )
    fill_padding: bool = without(
        "Encrypt copies of a real token as padding, where ranges shrink; outputs stay the same."
    )
    centre_keys: bool = without(
        "Shift the keys of attention so that its ranges shrink; outputs stay the same."
    )
    scale_tokens: bool = without(
        "Multiply tokens that stand out before a norm; outputs stay the same."
    )
    seed: int = option("Seed of the search and the split of data.", default=0)


@documented
@dataclass(frozen=True, kw_only=True)
class CostOptions(Options):
    """Which cost table predicts times."""

    costs: Path | None = option(
        "Cost table for predicted times, written by calibrate-backend.",
        unset="your own, else atlasc's",
    )


@documented
@dataclass(frozen=True, kw_only=True)
class AgreementOptions(Options):
    """How answers are compared with the model's."""

    measure: str | None = range_option(
        "How agreement with the model is judged. Either the class of an answer is "
        "compared, or the class of each token, or the values.",
        metavar="|".join(MEASURES), parse=parse_measure, unset="by the model",
    )  # fmt: skip
    labelled: Path | None = option(
        "Further inputs, with labels, on which the accuracy of settings is measured.",
        metavar="FILE",
        section=RANGES,
    )


@documented
@dataclass(frozen=True, kw_only=True)
class SearchOptions(CalibrationOptions, CostOptions, AgreementOptions):
    """How settings of the polynomials are searched."""

    strategy: str | None = search_option(
        "How settings are searched; atlas is as published.", metavar="hybrid|atlas", unset="hybrid"
    )
    evaluations: int | None = option(
        "Most settings to evaluate, probes and repetitions included.", of="strategy", minimum=1,
        names=("hybrid", "atlas"), unset="for hybrid 400 with six layers, 12 more for each further "
        "layer; for atlas as many as its generations take",
    )  # fmt: skip
    cost: str | None = search_option(
        "Cost to minimise beside the error. A latency is predicted seconds.",
        metavar="depth|levels|latency",
        unset="latency; levels where seconds are not predicted",
    )
    space: str | None = search_option(
        "Settings to choose from: as published, or more choices and cheaper programs.",
        metavar="paper|wide",
        unset="wide",
    )
    softmax_ranges: str | None = space_key(
        "Ranges of an iterative softmax: as in the paper, or as measured.",
        metavar="paper|measured",
    )
    fits: str | None = space_key(
        "Fit of the polynomials: interpolated, or weighted by how often a value was seen.",
        metavar="interpolated|weighted",
    )
    degrees: str | None = space_key(
        "Degrees of polynomials that a search may choose.", metavar="powers|openfhe|any"
    )
    softmax_algorithms: str | None = space_key(
        "Algorithms of softmax that a search may choose.", metavar="iterative|any"
    )
    channels: str | None = space_key(
        "Polynomials of an activation: one shared by all channels, or each channel its own.",
        metavar="shared|each",
    )
    share_settings: int = option(
        "Number of consecutive blocks that share the settings of their polynomials, for very deep "
        "models. Ranges stay those of each block.",
        default=1, minimum=1, of="space", names=("wide", "paper"),
    )  # fmt: skip
    population: int | None = budget_key("Settings per generation in stage 1.", unset="48")
    generations: int | None = budget_key("Generations of stage 1.", minimum=0, unset="50")
    layer_population: int | None = budget_key("Settings per generation in stage 2.", unset="96")
    layer_generations: int | None = budget_key("Generations of stage 2.", minimum=0, unset="225")
    early_layers: int | None = budget_key("Layers after which stage 1 compares values.")
    workers: str = search_option(
        "Who evaluates settings: this process, or processes here or on a cluster.",
        metavar="serial|ray", default="serial",
    )  # fmt: skip
    worker_count: int | None = worker_key(
        "Number of workers.", key="count", minimum=1, unset="one for each GPU, or processor"
    )
    ray_address: str | None = worker_key(
        "HOST:PORT of a running Ray cluster.", key="address", unset="RAY_ADDRESS, else this machine"
    )
    threads: int | None = option(
        "Threads of one evaluation.", of="workers", names=("serial", "ray"), minimum=1,
        unset="all for serial, 1 for ray",
    )  # fmt: skip

    @property
    def budget(self) -> dict[str, int]:
        """The options of the strategy's budget that were given."""
        given = {name: getattr(self, name) for name in BUDGET_NAMES}
        return {name: number for name, number in given.items() if number is not None}

    @property
    def minimised(self) -> str:
        """The cost that the search minimises beside the error."""
        return self.cost or "latency"

    @property
    def parametrisation(self) -> Parametrisation:
        """The search space, with the switches that were given.

        Raises:
            AtlasError: a search space, or a choice for a switch, is unknown.
        """
        from atlasc.polynomials.parametrisation import PRESETS, SWITCHES

        space = PRESETS[choose("--space", self.space or "wide", PRESETS)]
        given = {name: value for name in SWITCHES if (value := getattr(self, name)) is not None}
        return replace(space, **given)

    def evaluators(self) -> RayWorkers | None:
        """The Ray workers that evaluate settings; None for this process alone.

        Raises:
            AtlasError: the kind of workers is unknown, or an option belongs to another kind.
        """
        from atlasc.search.search_problem import RayWorkers

        if choose("--workers", self.workers, ("serial", "ray")) == "ray":
            return RayWorkers(self.worker_count, self.threads or 1, address=self.ray_address)
        for name, key in (("worker_count", "count"), ("ray_address", "address")):
            if getattr(self, name) is not None:
                raise AtlasError(
                    f"{key} of --workers needs --workers ray",
                    remedy="add --workers ray, or leave it out",
                )
        return None


BUDGET_NAMES = tuple(f.name for f in fields(SearchOptions) if f.metadata["option"].of == "strategy")


@documented
@dataclass(frozen=True, kw_only=True)
class LimitOptions(Options):
    """Limits that decide which point of a front is picked."""

    max_error: float | None = limit(
        "Greatest error of the outputs. It is mean absolute, or sqrt(2 KL) where tokens have "
        "classes.",
        minimum=0, unset=f"without another limit {MAX_ERROR['values']:.1%} of how the outputs "
        f"vary, {MAX_ERROR['class']:.1%} for scores of classes",
    )  # fmt: skip
    max_depth: int | None = limit(
        "Greatest depth of the blocks. It is counted as in papers.", minimum=1
    )
    max_levels: int | None = limit("Greatest levels of the blocks.", minimum=1)
    max_seconds: float | None = limit("Greatest predicted seconds of a run.", minimum=0)
    min_accuracy: float | None = limit(
        "Least accuracy on labelled inputs. It is 75% or 0.75; for values it is a correlation. The "
        "cheapest setting that reaches it is taken.", metavar="SHARE", parse=parse_share, minimum=0,
    )  # fmt: skip
    agreement: float | None = limit(
        "Least share of inputs whose answers agree with the model's, such as 99% or 0.99. The "
        "cheapest setting that reaches it is taken.",
        metavar="SHARE",
        parse=parse_share,
        minimum=0,
    )
    unsafe_at_most: float | None = limit(
        "Greatest share of inputs like the data that may be unsafe, such as 1% or 0.01. compile "
        "fails unless the held-back inputs show it with 95% confidence.",
        metavar="SHARE",
        parse=parse_share,
        minimum=1e-9,
        below=1,
    )
    tolerated: float = range_key(
        "Share of the held-back inputs that may be unsafe.", default=0.0, minimum=0, below=1
    )

    @property
    def limits(self) -> Wanted:
        """The limits that were given."""
        from atlasc.search.front import Wanted

        most = self.max_error, self.max_depth, self.max_levels, self.max_seconds
        return Wanted(*most, self.min_accuracy, self.agreement)

    def wanted(self, front: Front) -> Wanted:
        """The given limits; without any, an error of ``MAX_ERROR`` of how the outputs vary."""
        from atlasc.search.front import Wanted

        aim = Wanted(self.aim(front.measure, front.variation))
        return aim if self.limits == Wanted() else self.limits

    def aim(self, measure: Measure, variation: float) -> float | None:
        """Greatest error of the setting that will be picked; None if other limits decide."""
        from atlasc.search.front import Wanted

        return MAX_ERROR[measure] * variation if self.limits == Wanted() else self.max_error

    def pick(self, front: Front) -> Point:
        """The point of a front within the limits; without limits the recommended one.

        Raises:
            AtlasError: no point is within the limits, or the front is empty.
        """
        aim, tolerated = self.wanted(front), int(self.tolerated * front.held_back)
        if aim == self.limits:
            return front.pick(aim, tolerated)
        return front.recommended(aim.error or 0.0, tolerated)


@documented
@dataclass(frozen=True, kw_only=True)
class DeviceOptions(Options):
    """Memory of the device that runs a program."""

    device_memory: int | None = option(
        "Memory of the GPU for keys and ciphertexts, such as 40G; for phantom. With less memory, "
        "rotations are composed of others and take longer.",
        metavar="SIZE", parse=parse_size, of="target", names=("phantom",), unset="all of the GPU's",
    )  # fmt: skip


@documented
@dataclass(frozen=True, kw_only=True)
class TargetOptions(DeviceOptions, CostOptions):
    """The target that a program is compiled for."""

    target: str = option(f"Where it runs: {', '.join(target_names())}.", default=DEFAULT)
    key_memory: float | None = option(
        "Memory for rotation keys: 4G, or all. With less, rotations are composed and take longer.",
        metavar="SIZE", parse=parse_memory, of="target", names=(DEFAULT,),
        unset="as much as fits this machine",
    )  # fmt: skip
    upload_at_most: int | None = option(
        "Most bytes of evaluation keys that a client sends, in powers of 1000: 1.9G or 450M.",
        metavar="SIZE", parse=parse_bytes, of="target", names=(DEFAULT,), unset="any number",
    )  # fmt: skip


@documented
@dataclass(frozen=True, kw_only=True)
class CompileOptions(SearchOptions, BatchOptions, LimitOptions, TargetOptions, KeptOptions):
    """All options of ``compile``."""

    recipe: str | None = option(
        "Named settings instead of a search: is, nexus, thor, moai, arion, polaris."
    )
    front: Path | None = option("Folder that search -o wrote; pick a setting from it.")
    point: int | None = option("Number of a point of --front to take.", minimum=1)
    name: str | None = option(
        "Name by which a service answers the program.", parse=parse_name, unset="the model's folder"
    )  # fmt: skip
    generate: bool = switch("Also compile the step and the prefill of a decoder, for generate.")
    prefill: bool = without(
        "Also compile the prefill: all tokens of a prompt at once, with more keys than steps need."
    )
    head: str | None = option(
        "Who computes a step's head over the vocabulary.", metavar="|".join(HEADS),
        parse=parse_head, unset="client if its matrix is the embedding's table, else server",
    )  # fmt: skip
    public_prefix: Path | None = option(
        "Text that begins every generated text and is no secret, such as a system prompt. The "
        "server has its keys and values in the clear.", metavar="FILE",
    )  # fmt: skip

    @property
    def minimised(self) -> str:
        """The cost that the search minimises beside the error; the limits imply it."""
        if self.cost is not None:
            return self.cost
        if self.max_seconds is None and self.max_depth is not None:
            return "depth"
        if self.max_seconds is None and self.max_levels is not None:
            return "levels"
        predicted = self.max_seconds is not None or find_target(self.target).has_costs(self.costs)
        return "latency" if predicted else "levels"

    def pick(self, front: Front) -> Point:
        """The point that was named, otherwise the one within the limits."""
        return super().pick(front) if self.point is None else front.numbered(self.point)
