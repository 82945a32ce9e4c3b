"""What ``compile``, ``search`` and ``calibrate`` may be told, and which of it makes no sense."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from atlasc.compilation.key_planning import check_device_memory, check_key_memory
from atlasc.files import require_new
from atlasc.ir.errors import AtlasError
from atlasc.passes.approximation.parametrisation import PAPER, Parametrisation
from atlasc.passes.approximation.recipes import recipe as find_recipe
from atlasc.passes.search.pick import Wanted
from atlasc.passes.search.point import Cost
from atlasc.passes.search.strategies import DEFAULT, find_strategy
from atlasc.targets import find_target

MAX_ERROR = 1e-2
"""Greatest mean absolute error of the outputs, where the user names no target."""


@dataclass(frozen=True)
class Options:
    """What ``compile`` may be told.

    Attributes:
        target: ``sim``, ``desilo`` or ``phantom``.
        recipe: a named setting, or None to search.
        front: what ``search -o`` wrote, to pick from instead of searching; None to search.
        strategy: of the search.
        budget: options of the strategy that differ from its modest budget.
        max_error: greatest mean absolute error of the outputs against the cleartext model.
        max_depth, max_levels: greatest depth and levels of the blocks.
        max_seconds: most predicted seconds of one encrypted run.
        out_of_range: share of the held-back inputs that may leave a range.
        sequence_length: tokens of a text; longer texts are refused.
        batch: inputs that one run answers.
        cost: what a search minimises beside the error: ``depth``, ``levels``, or ``latency``: the
            predicted seconds, for which bootstraps are then placed too.
        parametrisation: what the integers of a searched setting stand for.
        margin: of the ranges; None chooses it from the tail that calibration saw.
        held_back: fraction of the data that only tries the ranges and the settings.
        centre_keys: whether the keys of attention are shifted so that its ranges shrink.
        seed: fixes the split of the data and the search.
        trust_pickle: unpickle a ``.pt`` file.
        key_memory: memory of the rotation keys, such as 4G; see ``plan_keys``.
        device_memory: of the device for everything, such as 40G; see ``plan_keys``.
    """

    target: str = "desilo"
    recipe: str | None = None
    front: Path | None = None
    strategy: str = DEFAULT
    budget: Mapping[str, int] = field(default_factory=dict)
    max_error: float | None = None
    max_depth: int | None = None
    max_levels: int | None = None
    max_seconds: float | None = None
    out_of_range: float = 0.0
    sequence_length: int | None = None
    batch: int = 1
    cost: Cost = "depth"
    parametrisation: Parametrisation = PAPER
    margin: float | None = None
    held_back: float = 0.2
    centre_keys: bool = True
    seed: int = 0
    trust_pickle: bool = False
    key_memory: str | None = None
    device_memory: str | None = None

    @property
    def named(self) -> Wanted:
        """The error and the costs that were named."""
        return Wanted(self.max_error, self.max_depth, self.max_levels, self.max_seconds)

    @property
    def wanted(self) -> Wanted:
        """The same; an error of at most ``MAX_ERROR`` where none was named."""
        return Wanted(MAX_ERROR) if self.named == Wanted() else self.named


def check_options(output: Path | None, options: Options) -> None:
    """All checks that need neither model nor data.

    Raises:
        AtlasError: an output that exists, an unknown name, or a number out of bounds.
    """
    if output is not None:
        require_new(output)
    target = find_target(options.target)
    if options.recipe is not None:
        find_recipe(options.recipe)
    find_strategy(options.strategy).of(options.budget)
    if options.cost not in get_args(Cost):
        raise AtlasError(
            f"cost cannot be {options.cost!r}", remedy=f"use one of {', '.join(get_args(Cost))}"
        )
    if options.cost == "latency" and not target.has_costs():
        raise AtlasError(
            f"latencies cannot be predicted for the target {target.name}",
            why="there is no table of what its primitives cost",
            remedy="use --cost levels, or give a table with --costs",
        )
    if options.max_seconds is not None:
        _check_seconds(options)
    check_key_memory(options.key_memory)
    check_device_memory(options.device_memory, options.key_memory, target)
    if options.batch < 1:
        raise AtlasError(f"a batch of {options.batch} is impossible", remedy="use 1 or more")
    if options.sequence_length is not None and options.sequence_length < 1:
        raise AtlasError(f"a sequence of {options.sequence_length} tokens is impossible")
    if options.margin is not None and options.margin < 0:
        raise AtlasError(f"a margin cannot be {options.margin}", remedy="give one such as 0.05")
    for name, share in (("held-back", options.held_back), ("out-of-range", options.out_of_range)):
        if not 0 <= share < 1:
            raise AtlasError(
                f"the share {name} {share} is not in [0, 1)", remedy="use one such as 0.2"
            )


def _check_seconds(options: Options) -> None:
    """Raise AtlasError for a limit of seconds where nobody predicts them."""
    if options.recipe is not None:
        raise AtlasError(
            "--recipe and --max-seconds exclude each other",
            why="the seconds of a recipe are not predicted",
            remedy="leave one of them out",
        )
    if options.front is None and options.cost != "latency":
        raise AtlasError(
            f"--max-seconds and --cost {options.cost} exclude each other",
            why="seconds are predicted where they are what is minimised",
            remedy="use --cost latency",
        )
