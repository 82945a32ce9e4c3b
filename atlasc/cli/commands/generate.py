"""``atlasc generate``: text after a prompt on ciphertexts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atlasc.api.progress import progress
from atlasc.cli.commands.query import ServiceOptions
from atlasc.cli.output import print_json, print_written, show, warn
from atlasc.cli.parameters import JSON, TARGET
from atlasc.compilation.declared import option, switch

if TYPE_CHECKING:
    from atlasc.api.session import TextSession
    from atlasc.bundle.folder import Bundle
    from atlasc.generation.ends import Generated
    from atlasc.generation.prompt import Prompt as Prompted

Place = Annotated[
    str,
    typer.Argument(
        metavar="BUNDLE|URL",
        help="Folder that compile wrote; or a service, such as https://host:8000.",
    ),
]
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
NEXT = switch("The prompt is a further turn of the session, behind its last answer.", "--next")
WINDOW = option(
    "When there is no room for more tokens, the oldest leave and so many stay, computed anew.",
    minimum=1,
    unset="nothing leaves, and what does not fit is refused",
)
ANEW = switch("Compute all tokens of the session anew, as where the server has lost them.")
SEED = option("Seed of the draw.", minimum=0, unset="a new one for each text")


def generate(
    place: Place,
    service: ServiceOptions,
    prompt: Prompt = "",
    tokens: int | None = option(
        "Tokens after the prompt.", minimum=1, unset="as many as the model's folder says, else 32"
    ),
    chat: bool = CHAT,
    messages: Path | None = MESSAGES,
    next_turn: bool = NEXT,
    turns: str = option(
        "Further prompts: a file with one a line, or - for the terminal or standard input.",
        default="",
        unset="none",
    ),
    window: int | None = WINDOW,
    anew: bool = ANEW,
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
    (generation_config.json), unless an option says otherwise. With --session, the same command goes
    on after an interrupt, at the same token. --next and --turns go on with further prompts behind
    the last answer; what each turn costs is said before it runs. If the program was compiled with
    --public-prefix, the prompt is the text after this prefix.

    Of a bundle, the command is client and server in one process. The folder of a session then holds
    the secret key and the text in the clear; without it neither text nor key stays on the disk.

    Of a service, the command is the client, as atlasc query is: program and keys lie in --folder,
    the text in the clear in --session. Each turn asks for a fixed number of tokens, so that the
    service does not see where the model ends the text.
    """
    from atlasc.api.generation import sampling_of
    from atlasc.ir.errors import AtlasError

    if (next_turn or anew) and session is None:
        raise AtlasError("--next and --anew need a session", remedy="give its folder (--session)")
    given, lines = said(prompt, chat, messages), _lines(turns)
    if given is None and turns and (session is None or not session.exists()):
        given = said(next(lines, ""), chat, messages)
    results: list[Generated] = []

    def heard(result: Generated) -> None:
        results.append(result)
        if not as_json:
            _print(result)

    def chosen(step: Bundle) -> dict[str, Any]:
        draws = step.generation.do_sample
        return {
            "sampling": sampling_of(temperature, top_k, seed, top_p, draws=draws),
            "chat": chat, "window": window, "steps": progress, "note": partial(show, "note"),
        }  # fmt: skip

    with _text(place, service, target, session, chosen) as text:
        if anew:
            text.anew()
        if not next_turn:
            heard(text.go_on(given, tokens))
        elif given is None:
            raise AtlasError("--next needs a prompt", remedy="give one")
        else:
            heard(text.say(given, tokens))
        for line in lines:
            try:
                heard(text.say(line, tokens))
            except AtlasError as error:
                if not _is_typed():
                    raise
                warn(str(error))  # who types can say something else
    if as_json:
        before = {"turns": [one._asdict() for one in results[:-1]]} if turns else {}
        print_json({**results[-1]._asdict(), **before})


@contextmanager
def _text(
    place: str,
    service: ServiceOptions,
    target: str,
    session: Path | None,
    chosen: Callable[[Bundle], dict[str, Any]],
) -> Iterator[TextSession]:
    """The text of a bundle, or of a service.

    Args:
        chosen: what the user chose for a text of a step.
    """
    from atlasc.api.session import TextSession
    from atlasc.bundle.folder import load_bundle
    from atlasc.generation.steps import TextBundles
    from atlasc.ir.errors import AtlasError

    if not place.lower().startswith(("http://", "https://")):
        service.require_unused()
        bundle = load_bundle(Path(place))
        options = chosen(TextBundles.of(bundle).step)
        with TextSession(bundle, session, target=target, **options) as text:
            yield text
        return
    if target:
        raise AtlasError(
            "--target has no effect on a service",
            why="the service computes on the target that its program was compiled for",
            remedy="leave --target out",
        )
    with (
        service.connect(place, service.token, text=True) as connection,
        connection.session(session, **chosen(connection.bundle)) as text,
    ):
        yield text


def _print(result: Generated) -> None:
    print_written(" ".join(map(str, result.ids)) if result.text is None else result.text)
    if result.ended:
        show("note", "the model has ended the text")


def _lines(turns: str) -> Iterator[str]:
    """The lines of a file or of standard input that are not blank, up to its end."""
    from atlasc.ir.files import MIB, read_text

    if turns == "-":
        found = iter(partial(_asked, MIB), "")
    else:
        found = iter(read_text(Path(turns), MIB).splitlines() if turns else [])
    yield from filter(None, map(str.strip, found))


def _asked(most: int) -> str:
    """A line of standard input; on a terminal behind a sign that a turn is waited for."""
    if _is_typed():
        print("> ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline(most)


def _is_typed() -> bool:
    return sys.stdin.isatty()


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
