"""``atlasc generate``: text after a prompt on ciphertexts."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from atlasc.api.progress import progress
from atlasc.cli.output import print_json, print_written, show
from atlasc.cli.parameters import JSON, TARGET, BundleFolder
from atlasc.compilation.declared import option

Prompt = Annotated[
    str, typer.Argument(metavar="[PROMPT]", help="Text to continue; not needed to go on.")
]
TEMPERATURE = option(
    "Draw tokens by their logits divided by this number.",
    unset="take the likeliest",
    minimum=0,
)
TOP_K = option("Draw among so many of the likeliest tokens.", minimum=1)
SEED = option("Seed of the draw.", minimum=0, unset="a new one for each text")


def generate(
    bundle: BundleFolder,
    prompt: Prompt = "",
    tokens: int = option("Tokens after the prompt.", minimum=1, default=32),
    temperature: float | None = TEMPERATURE,
    top_k: int | None = TOP_K,
    seed: int | None = SEED,
    session: Path | None = option(
        "Folder of a session: a new one, or one that goes on after an interrupt."
    ),
    target: str = TARGET,
    as_json: bool = JSON,
) -> None:
    """Continue a text with a decoder that was compiled with --generate.

    Each token is one step on ciphertexts. The prefill computes all tokens of the prompt at once,
    where that is predicted to take less time than a step for each of them. The keys and values of
    earlier tokens stay encrypted. The command is client and server in one process. With --session,
    the same command goes on after an interrupt, at the same token. The folder then holds the secret
    key and the text in the clear; without it neither text nor key stays on the disk. If the program
    was compiled with --public-prefix, the prompt is the text after this prefix.
    """
    from atlasc.api.generation import generate as generated
    from atlasc.api.generation import sampling_of
    from atlasc.bundle.folder import load_bundle

    result = generated(
        load_bundle(bundle), prompt or None, tokens, sampling_of(temperature, top_k, seed),
        session=session, target=target, steps=progress,
        note=partial(show, "note"),
    )  # fmt: skip
    if as_json:
        print_json(result._asdict())
    else:
        print_written(" ".join(map(str, result.ids)) if result.text is None else result.text)
