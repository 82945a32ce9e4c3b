"""``atlasc generate``: text after a prompt on ciphertexts."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atlasc.api.progress import progress
from atlasc.cli.output import print_json, print_written, show
from atlasc.cli.parameters import JSON, TARGET, BundleFolder
from atlasc.compilation.declared import option, switch

if TYPE_CHECKING:
    from atlasc.generation.prompt import Prompt as Prompted

Prompt = Annotated[
    str, typer.Argument(metavar="[PROMPT]", help="Text to continue; not needed to go on.")
]
TEMPERATURE = option(
    "Draw tokens by their logits divided by this number; 0 takes the likeliest.",
    unset="as the model's folder says",
    minimum=0,
)
TOP_K = option("Draw among so many of the likeliest tokens.", minimum=1)
TOP_P = option(
    "Draw among the likeliest tokens whose probabilities are together so large.", minimum=0
)
CHAT = switch("The prompt is a message of a user, which the chat template of the model writes.")
MESSAGES = option(
    "Messages before the prompt: a JSON list of objects with role and content. Needs --chat."
)
SEED = option("Seed of the draw.", minimum=0, unset="a new one for each text")


def generate(
    bundle: BundleFolder,
    prompt: Prompt = "",
    tokens: int | None = option(
        "Tokens after the prompt.", minimum=1, unset="as many as the model's folder says, else 32"
    ),
    chat: bool = CHAT,
    messages: Path | None = MESSAGES,
    temperature: float | None = TEMPERATURE,
    top_k: int | None = TOP_K,
    top_p: float | None = TOP_P,
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
    earlier tokens stay encrypted. Tokens are chosen as the folder of the model says
    (generation_config.json), unless an option says otherwise. The command is client and server in
    one process. With --session, the same command goes on after an interrupt, at the same token. The
    folder then holds the secret key and the text in the clear; without it neither text nor key
    stays on the disk. If the program was compiled with --public-prefix, the prompt is the text
    after this prefix.
    """
    from atlasc.api.generation import generate as generated
    from atlasc.api.generation import sampling_of
    from atlasc.bundle.folder import load_bundle
    from atlasc.generation.steps import TextBundles

    loaded = load_bundle(bundle)
    draws = TextBundles.of(loaded).step.generation.do_sample
    result = generated(
        loaded, said(prompt, chat, messages), tokens,
        sampling_of(temperature, top_k, seed, top_p, draws=draws),
        session=session, target=target, steps=progress,
        note=partial(show, "note"),
    )  # fmt: skip
    if as_json:
        print_json(result._asdict())
        return
    print_written(" ".join(map(str, result.ids)) if result.text is None else result.text)
    if result.ended:
        show("note", "the model has ended the text")


def said(prompt: str, chat: bool, messages: Path | None) -> Prompted | None:
    """The prompt of the options: a text, or a conversation; None if nothing was given."""
    from atlasc.ir.errors import AtlasError
    from atlasc.ir.files import MIB, read_json
    from atlasc.loading.texts.chat import MAX_VALUES, ChatMessage

    if messages is not None and not chat:
        raise AtlasError("--messages has no effect without --chat", remedy="give both")
    if not chat:
        return prompt or None
    found: list[ChatMessage] = []
    if messages is not None:
        remedy = 'write a list of messages: [{"role": "user", "content": "..."}]'
        found = read_json(
            messages, list[ChatMessage], "the messages", MIB, values=MAX_VALUES, remedy=remedy
        )
    own = [{"role": "user", "content": prompt}] if prompt else []
    return [*(one.model_dump() for one in found), *own] or None
