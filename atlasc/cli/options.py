"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="HuggingFace directory or name in the local cache, .pt2 archive or .pt file.",
        show_default=False,
    ),
]
Data = Annotated[
    Path,
    typer.Option(
        "--data",
        help="Inputs: .txt, .jsonl, .npz, an image or a folder of images.",
        show_default=False,
    ),
]
SequenceLength = Annotated[
    int | None,
    typer.Option("--sequence-length", min=1, help="Tokens of a text.", show_default=False),
]
Batch = Annotated[int, typer.Option("--batch", min=1, help="Inputs that one run answers.")]
TrustPickle = Annotated[
    bool,
    typer.Option("--trust-pickle", help="Unpickle a .pt file, which can run any code in it."),
]
Margin = Annotated[
    float | None,
    typer.Option(
        "--margin",
        help="Margin of the ranges, as a share of their width; chosen from the data without it.",
        show_default=False,
    ),
]
HeldBack = Annotated[
    float,
    typer.Option("--held-back", help="Share of the data that only tries the ranges."),
]
Seed = Annotated[int, typer.Option("--seed", help="Fixes the split of the data and the search.")]
Recipe = Annotated[str, typer.Option("--recipe", help="is, nexus, thor, moai, arion or polaris.")]
MaxError = Annotated[
    float | None,
    typer.Option(
        "--max-error",
        help="Greatest mean absolute error of the outputs [default: 0.01].",
        show_default=False,
    ),
]
Cost = Annotated[
    str,
    typer.Option("--cost", help="What a search minimises beside the error: depth or levels."),
]
SoftmaxRanges = Annotated[
    str,
    typer.Option(
        "--softmax-ranges",
        help="Ranges of a searched iterative softmax: the paper's, or measured on the data.",
    ),
]
Population = Annotated[
    int | None,
    typer.Option("--population", help="Search: settings in stage 1.", show_default=False),
]
Generations = Annotated[
    int | None,
    typer.Option("--generations", help="Search: generations of stage 1.", show_default=False),
]
LayerPopulation = Annotated[
    int | None,
    typer.Option("--layer-population", help="Search: settings in stage 2.", show_default=False),
]
LayerGenerations = Annotated[
    int | None,
    typer.Option("--layer-generations", help="Search: generations of stage 2.", show_default=False),
]
EarlyLayers = Annotated[
    int | None,
    typer.Option(
        "--early-layers",
        help="Search: stage 1 compares the values after that many layers.",
        show_default=False,
    ),
]


def budget(
    population: int | None,
    generations: int | None,
    layer_population: int | None,
    layer_generations: int | None,
    early_layers: int | None,
) -> dict[str, int]:
    """The options of a search that were given."""
    given = {
        "population": population,
        "generations": generations,
        "layer_population": layer_population,
        "layer_generations": layer_generations,
        "early_layers": early_layers,
    }
    return {name: value for name, value in given.items() if value is not None}
