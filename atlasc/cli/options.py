"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atlasc.targets import TARGETS

if TYPE_CHECKING:
    from atlasc.ir.module import Module

TARGET, RANGES = "What is picked", "Data and ranges"
"""Sections of a command's help."""

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
Batch = Annotated[int, typer.Option("--batch", min=1, help="Inputs that one run answers.")]
TrustPickle = Annotated[
    bool,
    typer.Option("--trust-pickle", help="Unpickle a .pt file, which can run any code in it."),
]
Recipe = Annotated[str, typer.Option("--recipe", help="is, nexus, thor, moai, arion or polaris.")]
Seed = Annotated[int, typer.Option("--seed", help="Fixes the split of the data and the search.")]
SequenceLength = Annotated[
    int | None,
    typer.Option(
        "--sequence-length",
        min=1,
        help="Tokens of a text.",
        show_default=False,
        rich_help_panel=RANGES,
    ),
]
Margin = Annotated[
    float | None,
    typer.Option(
        "--margin",
        help="Margin of the ranges, as a share of their width [default: from the data].",
        show_default=False,
        rich_help_panel=RANGES,
    ),
]
HeldBack = Annotated[
    float,
    typer.Option(
        "--held-back",
        help="Share of the data that only tries the ranges and the settings.",
        rich_help_panel=RANGES,
    ),
]
CentreKeys = Annotated[
    bool,
    typer.Option(
        "--centre-keys/--no-centre-keys",
        help="Shift the keys of attention so that its ranges shrink; outputs stay the same.",
        rich_help_panel=RANGES,
    ),
]
MaxError = Annotated[
    float | None,
    typer.Option(
        "--max-error",
        help="Greatest mean absolute error of the outputs [default: 0.01 without another limit].",
        show_default=False,
        rich_help_panel=TARGET,
    ),
]
MaxDepth = Annotated[
    int | None,
    typer.Option(
        "--max-depth",
        min=1,
        help="Greatest depth of the blocks, as papers count it.",
        show_default=False,
        rich_help_panel=TARGET,
    ),
]
MaxLevels = Annotated[
    int | None,
    typer.Option(
        "--max-levels",
        min=1,
        help="Greatest number of levels of the blocks.",
        show_default=False,
        rich_help_panel=TARGET,
    ),
]
MaxSeconds = Annotated[
    float | None,
    typer.Option(
        "--max-seconds",
        min=0,
        help="Most predicted seconds of one encrypted run.",
        show_default=False,
        rich_help_panel=TARGET,
    ),
]
OutOfRange = Annotated[
    float,
    typer.Option(
        "--out-of-range",
        help="Share of the held-back inputs that may leave a range.",
        rich_help_panel=TARGET,
    ),
]


def _use_costs(path: Path | None) -> Path | None:
    """The file takes the place of the table in use, in this process and those that it starts."""
    if path is not None:
        import os

        from atlasc.targets.costs.table import VARIABLE

        os.environ[VARIABLE] = str(path)
    return path


Costs = Annotated[
    Path | None,
    typer.Option(
        "--costs",
        callback=_use_costs,
        help="Cost table for predicted times, of calibrate-backend [default: the user's own, or "
        "the one that comes with atlasc].",
        show_default=False,
    ),
]


def warn_of_costs(target: str = "desilo") -> None:
    """Warn, in one line, where times were measured with another library or on another machine.

    Raises:
        AtlasError: the table is not there, or damaged.
    """
    from atlasc.cli.errors import warn
    from atlasc.targets import find_target

    if warning := find_target(target).cost_warning():
        warn(warning)


ForTarget = Annotated[
    str, typer.Option("--target", help=f"What the program is for: {', '.join(TARGETS)}.")
]
KeyMemory = Annotated[
    str | None,
    typer.Option(
        "--key-memory",
        metavar="SIZE",
        help="Memory for rotation keys: 4G, or all [default: as much as fits this machine]. With "
        "less of it, rotations are composed of others and take longer.",
        show_default=False,
    ),
]


DeviceMemory = Annotated[
    str | None,
    typer.Option(
        "--device-memory",
        metavar="SIZE",
        help="Memory of the GPU that keys and ciphertexts must fit, such as 40G; for phantom. With "
        "less of it, rotations are composed of others and take longer.",
        show_default=False,
    ),
]


def say_of_keys(program: Module) -> None:
    """Say that a program has fewer rotation keys than it could use, for this machine's sake."""
    from atlasc.passes.lowering.rotation_keys import MEMORY

    limit = program.attributes.get(MEMORY)
    if limit is not None:
        print(
            f"rotation keys take {limit / 2**30:.1f} GiB at most, so that the program fits this "
            "machine; --key-memory chooses otherwise"
        )


def given(**values: Any) -> dict[str, Any]:
    """The options that the user gave."""
    return {name: value for name, value in values.items() if value is not None}
