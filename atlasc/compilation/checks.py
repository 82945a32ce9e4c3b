"""Mistakes in options that are refused before a model or data are read."""

from __future__ import annotations

from pathlib import Path

from atlasc.compilation.declared import HEADS, choose, given, title
from atlasc.compilation.options import (
    CompileOptions,
    LimitOptions,
    SearchOptions,
    TargetOptions,
)
from atlasc.files import require_new
from atlasc.ir.errors import AtlasError
from atlasc.loading.texts.public_prefix import read_public_prefix
from atlasc.polynomials.recipes import recipe as find_recipe
from atlasc.search.points import COSTS
from atlasc.search.strategies import DEFAULT, find_strategy
from atlasc.targets import find_target


def check_search(options: SearchOptions) -> None:
    """Raise AtlasError for an unknown name, or a number out of bounds."""
    find_strategy(options.strategy or DEFAULT).of(options.budget)
    choose("cost", options.minimised, COSTS)
    if isinstance(options.labelled, Path) and not options.labelled.exists():
        raise AtlasError(
            f"labelled inputs {options.labelled} not found",
            remedy="check the path for a misspelling",
        )
    space, _ = options.parametrisation, options.evaluators()
    if options.ranges == "certified" and space.softmax_ranges == "paper":
        raise _excluding(
            "--ranges certified",
            "the paper's ranges of softmax",
            "the paper's ranges hold for the paper's models alone",
            "use --space 'wide{softmax-ranges=measured}'",
        )


def check_compile(output: Path, options: CompileOptions) -> None:
    """Check everything that needs neither the model nor the data.

    Raises:
        AtlasError: the output exists, a name is unknown, a number is out of bounds, or options
            exclude each other.
    """
    _refuse_contradictions(options)
    require_new(output)
    target = find_target(options.target)
    if options.recipe is not None:
        find_recipe(options.recipe)
    check_search(options)
    if options.minimised == "latency" and not target.has_costs(options.costs):
        raise AtlasError(
            f"latencies cannot be predicted for the target {target.name}",
            why="there is no table of the seconds of its primitives",
            remedy="use --cost levels, or give a table with --costs",
        )
    if options.max_seconds is not None and options.front is None and options.minimised != "latency":
        raise _excluding(
            "--max-seconds",
            f"--cost {options.cost}",
            "seconds are predicted only if the search minimises them",
            "use --cost latency",
        )
    check_target(options)
    if not options.prefill and not options.generate:
        raise AtlasError(
            "--without prefill has no effect without --generate",
            why="it leaves out the prefill of the prompt of a generated text",
            remedy="add --generate, or leave it out",
        )
    if options.head is not None:
        choose("--head", options.head, HEADS)
        if not options.generate:
            raise AtlasError(
                "--head has no effect without --generate",
                why="it says who computes the head of the step that generates text",
                remedy="add --generate, or leave it out",
            )
    if options.public_prefix is not None:
        if not options.generate:
            raise AtlasError(
                "--public-prefix has no effect without --generate",
                why="it is the beginning of all generated texts",
                remedy="add --generate, or leave it out",
            )
        if options.front is not None:
            why = "the ranges of the front were measured on texts without the prefix"
            raise _excluding("--public-prefix", "--front", why, "leave --front out")
        read_public_prefix(options.public_prefix)
    if options.generate and options.upload_at_most is not None:
        raise _excluding(
            "--generate", title(options, "upload_at_most"),
            "the keys of a text are those of two programs",
            "leave one of them out",
        )  # fmt: skip
    if options.generate and options.batch > 1:
        raise _excluding(
            "--generate", f"--batch {options.batch}", "text is generated one at a time",
            "leave one of them out",
        )  # fmt: skip


def check_target(options: TargetOptions) -> None:
    """Raise AtlasError for an unknown target, or for options that have no effect on it."""
    target = find_target(options.target)
    if options.upload_at_most is not None and not target.encrypted:
        raise AtlasError(
            f"{title(options, 'upload_at_most')} has no effect on the target {target.name}",
            why="it encrypts nothing, so that there are no keys to send",
            remedy="leave it out, or use --target cpu",
        )
    if options.device_memory is not None and not target.parameters.device:
        raise AtlasError(
            f"a device memory has no effect on the target {target.name}",
            why="this target computes in the machine's memory",
            remedy=f"use --target '{target.name}{{key-memory=4G}}', or --target phantom",
        )
    if options.device_memory is not None and options.key_memory is not None:
        raise _excluding(
            title(options, "device_memory"),
            title(options, "key_memory"),
            "the memory of the device decides how many keys there are",
            "leave one of them out",
        )


def _refuse_contradictions(options: CompileOptions) -> None:
    """Raise AtlasError for options that a recipe or a saved front would silently ignore."""
    recipe, front = options.recipe is not None, options.front is not None
    if options.point is not None:
        if not front:
            raise AtlasError("--point needs --front", remedy="add the folder of the front")
        for name in given(options, LimitOptions):
            if name != "unsafe_at_most":
                raise _excluding("--point", title(options, name), "a named point is taken as it is")
    if recipe and front:
        raise _excluding("--recipe", "--front")
    if not recipe and not front:
        return
    ignored = given(options, SearchOptions, but="workers")
    if recipe and options.cost == "latency":
        ignored.remove("cost")  # a recipe uses it, too: for placing bootstraps
    if front and options.margin is not None:
        ignored.append("margin")
    if options.labelled is not None:
        remedy = "measure the accuracy of a program with atlasc evaluate"
        why = "a recipe compares no settings" if recipe else "the front is validated already"
        raise _excluding("--recipe" if recipe else "--front", "--labelled", why, remedy)
    if front and options.measure is not None:
        raise _excluding("--front", "--measure", "the front is validated already")
    for name in ("min_accuracy", "agreement"):
        if recipe and getattr(options, name) is not None:
            why = "a recipe is one setting, so there is nothing to pick"
            raise _excluding(
                "--recipe", title(options, name), why, "use atlasc evaluate on its program"
            )
    if options.ranges == "certified":
        why = (
            "a recipe has published ranges" if recipe else "a front keeps the ranges of its search"
        )
        raise _excluding("--recipe" if recipe else "--front", "--ranges certified", why)
    if ignored:
        why = "a recipe is not searched" if recipe else "the front is the result of a search"
        raise _excluding("--recipe" if recipe else "--front", title(options, ignored[0]), why)
    if recipe and options.max_seconds is not None:
        why = "the seconds of a recipe are not predicted"
        raise _excluding("--recipe", "--max-seconds", why, "leave one of them out")


def _excluding(one: str, other: str, why: str = "", remedy: str = "give one of them") -> AtlasError:
    return AtlasError(f"{one} and {other} exclude each other", why=why, remedy=remedy)
