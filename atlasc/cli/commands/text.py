"""``atlasc ask | answer | read``: client and server of a text as processes of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from atlasc.api.progress import progress
from atlasc.cli.commands.generate import (
    ANEW,
    CHAT,
    MESSAGES,
    NEXT,
    SEED,
    TEMPERATURE,
    TOP_K,
    TOP_P,
    WINDOW,
    Prompt,
    said,
)
from atlasc.cli.commands.roles import CLIENT_KEYS, SERVER_KEYS
from atlasc.cli.output import print_json, print_written, say, show, warn
from atlasc.cli.parameters import FILE, JSON, TARGET, BundleFolder, required
from atlasc.compilation.declared import option, switch

if TYPE_CHECKING:
    from atlasc.generation.client import TextClient

SESSION = required("The client's folder of a text: a new one, or one that goes on.", "--session")


def ask(
    bundle: BundleFolder,
    prompt: Prompt = "",
    keys: Path = CLIENT_KEYS,
    session: Path = SESSION,
    query: Path = FILE,
    tokens: int | None = option(
        "Tokens after the prompt that are asked for, wherever the text ends.",
        minimum=1,
        unset="as many as the model's folder says, else 32; or as many as fit",
    ),
    until_end: bool = switch(
        "Ask for no token behind the end of the text. The server then sees where it ends, and the "
        "keys allow 16 such texts."
    ),
    chat: bool = CHAT,
    messages: Path | None = MESSAGES,
    next_turn: bool = NEXT,
    window: int | None = WINDOW,
    anew: bool = ANEW,
    temperature: float | None = TEMPERATURE,
    top_k: int | None = TOP_K,
    top_p: float | None = TOP_P,
    seed: int | None = SEED,
    target: str = TARGET,
    as_json: bool = JSON,
) -> None:
    """Encrypt the next token of a text, or its whole prompt, into a query.

    The bundle is one with a step, or the client's part of it; the keys are those that keygen made
    for its folder step. A prompt begins a session; it is the text after the public prefix, if the
    program was compiled with one. The first query has all tokens of the prompt, where the prefill
    is predicted to take less time than a step for each of them. Until the answer is read, the
    command writes the same query again. The folder of the session holds the text in the clear.

    --next gives a further prompt, behind the last answer. --anew lets a server that has lost the
    keys and values compute all tokens again.

    The server sees how many tokens are asked for. So that it does not see where the model ends the
    text, a session asks for a fixed number: go on until ask says that all were asked for.
    """
    from atlasc.api.generation import sampling_of, text_client
    from atlasc.api.roles import check_target, note_simulation
    from atlasc.bundle.folder import load_bundle
    from atlasc.files import new_private_file, require_new
    from atlasc.generation.steps import TextBundles
    from atlasc.ir.errors import AtlasError

    require_new(query)
    if until_end and tokens is not None:
        raise AtlasError("--tokens and --until-end exclude each other", remedy="give one of them")
    loaded = load_bundle(bundle, "client")
    draws = TextBundles.of(loaded).step.generation.do_sample
    sampling = sampling_of(temperature, top_k, seed, top_p, draws=draws)
    note_simulation(check_target(loaded, "client", target), warn)
    given = said(prompt, chat, messages)
    if next_turn and (given is None or not session.exists()):
        raise AtlasError("--next needs a prompt and a session that was begun", remedy="give both")
    with text_client(
        loaded, keys, session, None if next_turn else given, sampling,
        steps=None if next_turn else tokens, until_end=until_end, window=window, target=target,
    ) as client:  # fmt: skip
        if anew:
            client.anew()
        if given is not None and next_turn:
            client.turn(given, tokens)
        if not client.done:
            for what in filter(None, (client.choice, client.way)):
                show("note", what)
        if not client.done or next_turn or anew:
            for what in filter(None, (client.note, f"this turn: {client.cost()}")):
                show("note", what)
        with progress("encrypting"):
            made = client.request()
        new_private_file(query, made)
        first, whole = client.done, client.computes_prompt
        known, steps = len(client.record.ids) - client.public, client.record.steps
        last = None if steps is None else client.steps_for(steps) - client.public
    if as_json:
        shown = {"query": str(query), "token": first, "whole_prompt": whole, "known": known}
        print_json({**shown, "last": last})
        return
    end = "until the text ends" if last is None else f"{last} will be asked for"
    if whole:
        say(f"{query}: all {known} tokens of the prompt; {end}")
    else:
        say(f"{query}: token {first + 1} of {known} that are known; {end}")


def answer(
    bundle: BundleFolder,
    keys: Path = SERVER_KEYS,
    cache: Path = required("The server's folder of a text: a new one, or one that goes on."),
    query: Path = required("File that ask wrote."),
    answer: Path = FILE,
    target: str = TARGET,
    as_json: bool = JSON,
) -> None:
    """Compute on encrypted keys and values: the step of a token, or the prefill.

    No secret key is needed, and of the bundle the server's part. Keys and values stay in the folder
    of --cache, encrypted. A query that is sent again gets the same answer.
    """
    from atlasc.api.generation import step_server
    from atlasc.bundle.folder import load_bundle
    from atlasc.files import require_new, write_with

    require_new(answer)
    with step_server(load_bundle(bundle, "server"), keys, cache, target=target) as server:
        with progress("computing on ciphertexts", total=100) as step:
            found = server.answer(query, step.report)
        tokens = server.tokens
    write_with(answer, lambda draft: draft.write_bytes(found))
    if as_json:
        print_json({"answer": str(answer), "tokens": tokens})
    else:
        say(f"{answer}: the encrypted answer; keys and values of {tokens} tokens are kept")


def read(
    bundle: BundleFolder,
    keys: Path = CLIENT_KEYS,
    session: Path = SESSION,
    answer: Path = required("File that answer wrote."),
    target: str = TARGET,
    as_json: bool = JSON,
) -> None:
    """Read the answer to a token, and choose the next one.

    Answers at earlier tokens of the prompt are not decrypted, as the client knows what follows.
    """
    from atlasc.api.generation import text_client
    from atlasc.bundle.folder import load_bundle

    loaded = load_bundle(bundle, "client")
    with text_client(loaded, keys, session, target=target) as client:
        with progress("decrypting"):
            client.receive(answer)
        if client.ended and client.record.steps is None:
            _warn_of_end(client.spent)
        _show(client, as_json)


def _warn_of_end(spent: int) -> None:
    from atlasc.bundle.ledger import most_refusals

    warn(
        f"the server sees that the text ends here: {spent} of {most_refusals()} such ends and "
        "refused answers that these keys allow",
        "  why: each may reveal something about the key to a server that sends false answers\n"
        "  what to do: leave --until-end out, and ask for a fixed number of tokens",
    )


def _show(client: TextClient, as_json: bool) -> None:
    result, done = client.result, client.done
    if as_json:
        left = {"ended": client.ended, "finished": client.finished}
        print_json({**result._asdict(), "done": done, **left})
        return
    if not result.ids:
        say(f"{done} of {len(result.prompt)} tokens of the prompt are answered")
        return
    print_written(" ".join(map(str, result.ids)) if result.text is None else result.text)
    if client.ended:
        rest = "" if client.finished else "; ask goes on, so that the server does not see it"
        say(f"the model has ended the text{rest}")
    if client.finished and not (client.ended and client.record.steps is None):
        say("all tokens of the session were asked for")
