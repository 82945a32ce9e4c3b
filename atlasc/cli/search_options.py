"""Options of the commands that search."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from atlasc.cli.options import given

if TYPE_CHECKING:
    from atlasc.passes.approximation.parametrisation import Parametrisation
    from atlasc.passes.search.evaluator import RayWorkers

SEARCH, BUDGET, WORKERS = "Search", "Budget of the strategy atlas", "Workers"
"""Sections of a command's help."""
BUDGET_NAMES = (
    "evaluations", "population", "generations", "layer_population", "layer_generations",
    "early_layers",
)  # fmt: skip
"""Parameters of a command that are options of a strategy."""

Strategy = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        help="hybrid, or atlas, the paper's [default: hybrid].",
        show_default=False,
        rich_help_panel=SEARCH,
    ),
]
Evaluations = Annotated[
    int | None,
    typer.Option(
        "--evaluations",
        min=1,
        help="Settings to evaluate at most, probes and repetitions included "
        "[default: of the strategy; for hybrid 400 with six layers, 12 more for each further one].",
        show_default=False,
        rich_help_panel=SEARCH,
    ),
]
Cost = Annotated[
    str | None,
    typer.Option(
        "--cost",
        help="What is minimised beside the error: depth, levels, or latency, the predicted seconds "
        "[default: depth].",
        show_default=False,
        rich_help_panel=SEARCH,
    ),
]
Space = Annotated[
    str | None,
    typer.Option(
        "--space",
        metavar="paper|wide",
        help="Search space: the paper's, or wide for all that is cheaper [default: paper].",
        show_default=False,
        rich_help_panel=SEARCH,
    ),
]
SoftmaxRanges = Annotated[
    str | None,
    typer.Option(
        "--softmax-ranges",
        metavar="paper|measured",
        help="Ranges of an iterative softmax: the paper's, or as measured.",
        show_default=False,
        rich_help_panel=SEARCH,
    ),
]
Fits = Annotated[
    str | None,
    typer.Option(
        "--fits",
        metavar="interpolated|weighted",
        help="Polynomials: interpolated, or weighted by what was seen.",
        show_default=False,
        rich_help_panel=SEARCH,
    ),
]
Degrees = Annotated[
    str | None,
    typer.Option(
        "--degrees",
        metavar="powers|openfhe|any",
        help="Degrees that a search may choose.",
        show_default=False,
        rich_help_panel=SEARCH,
    ),
]
SoftmaxAlgorithms = Annotated[
    str | None,
    typer.Option(
        "--softmax-algorithms",
        metavar="iterative|any",
        help="Iterative softmaxes alone, or any.",
        show_default=False,
        rich_help_panel=SEARCH,
    ),
]
Channels = Annotated[
    str | None,
    typer.Option(
        "--channels",
        metavar="shared|each",
        help="An activation's polynomial: shared, or each channel its own.",
        show_default=False,
        rich_help_panel=SEARCH,
    ),
]
Population = Annotated[
    int | None,
    typer.Option(
        "--population",
        help="Settings of a generation (in stage 1).",
        show_default=False,
        rich_help_panel=BUDGET,
    ),
]
Generations = Annotated[
    int | None,
    typer.Option(
        "--generations",
        help="Generations (of stage 1).",
        show_default=False,
        rich_help_panel=BUDGET,
    ),
]
LayerPopulation = Annotated[
    int | None,
    typer.Option(
        "--layer-population",
        help="Settings of a generation in stage 2.",
        show_default=False,
        rich_help_panel=BUDGET,
    ),
]
LayerGenerations = Annotated[
    int | None,
    typer.Option(
        "--layer-generations",
        help="Generations of stage 2.",
        show_default=False,
        rich_help_panel=BUDGET,
    ),
]
EarlyLayers = Annotated[
    int | None,
    typer.Option(
        "--early-layers",
        help="Stage 1 compares the values after that many layers.",
        show_default=False,
        rich_help_panel=BUDGET,
    ),
]

Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        help="Of one evaluation [default: all; 1 with --workers ray].",
        show_default=False,
        rich_help_panel=WORKERS,
    ),
]
Workers = Annotated[
    str,
    typer.Option(
        "--workers",
        help="What evaluates: serial, this process; ray, processes here or on a cluster.",
        rich_help_panel=WORKERS,
    ),
]
WorkerCount = Annotated[
    int | None,
    typer.Option(
        "--worker-count",
        min=1,
        help="Workers of ray [default: one for each GPU, or processor].",
        show_default=False,
        rich_help_panel=WORKERS,
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        help="HOST:PORT of a running Ray cluster [default: RAY_ADDRESS, else this machine].",
        show_default=False,
        rich_help_panel=WORKERS,
    ),
]


def budget(context: typer.Context) -> dict[str, int]:
    """What the user gave of a strategy's budget."""
    return given(**{name: context.params[name] for name in BUDGET_NAMES})


def switches(context: typer.Context) -> dict[str, str]:
    """The switches of the search space that the user set."""
    from atlasc.passes.approximation.parametrisation import SWITCHES

    return given(**{name: context.params.get(name) for name in SWITCHES})


def workers(
    kind: str, count: int | None, address: str | None, threads: int | None
) -> RayWorkers | None:
    """What evaluates settings; None for this process alone.

    Raises:
        AtlasError: an unknown kind, or options of another kind.
    """
    from atlasc.ir.errors import AtlasError
    from atlasc.passes.search.evaluator import RayWorkers

    if kind == "ray":
        return RayWorkers(count, threads or 1, address=address)
    if kind != "serial":
        raise AtlasError(f"--workers cannot be {kind!r}", remedy="use serial or ray")
    if given(count=count, address=address):
        name = "--worker-count" if count is not None else "--ray-address"
        raise AtlasError(f"{name} needs --workers ray", remedy="add it, or leave the other out")
    return None


def parametrisation(space: str | None, **switches: str | None) -> Parametrisation:
    """The search space of a preset, but for the switches that were given.

    Raises:
        AtlasError: an unknown preset, or an unknown position of a switch.
    """
    from atlasc.ir.errors import AtlasError
    from atlasc.passes.approximation.parametrisation import PRESETS

    name = space or "paper"
    if name not in PRESETS:
        raise AtlasError(f"space cannot be {name!r}", remedy=f"use one of {', '.join(PRESETS)}")
    return replace(PRESETS[name], **given(**switches))
