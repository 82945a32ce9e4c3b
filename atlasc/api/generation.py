"""``Program.generate``: text after a prompt on ciphertexts; and the two roles of a
text (:mod:`atlasc.generation`) from their folders.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from functools import partial
from pathlib import Path

from atlasc.api.roles import Client, Server, make_keys
from atlasc.bundle.folder import Bundle
from atlasc.bundle.ledger import LEDGER
from atlasc.files import new_folder, scratch_folder
from atlasc.generation.client import DEFAULT_STEPS, Generated, TextClient
from atlasc.generation.prompt import Prompt, prompt_ids
from atlasc.generation.sampling import Sampling
from atlasc.generation.server import StepServer
from atlasc.generation.steps import TextBundles, alone
from atlasc.ir.errors import AtlasError
from atlasc.progress import Note, Steps, quiet, silent

KEYS, CLIENT, SERVER = "keys", "client", "server"
"""Folders of a session in which both roles are in one process."""


def sampling_of(
    temperature: float | None = None,
    top_k: int | None = None,
    seed: int | None = None,
    top_p: float | None = None,
    *,
    draws: bool = False,
) -> Sampling | None:
    """What the user says of the choice of tokens; None if nothing was given.

    Args:
        temperature, top_k, seed, top_p: see :class:`Sampling`.
        draws: whether the model's folder says that tokens are drawn.

    Raises:
        AtlasError: a number is out of bounds, or has no effect without a temperature.
    """
    given = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    known = {name: value for name, value in given.items() if value is not None}
    if not known:
        return None
    drawn = draws if temperature is None else temperature > 0
    if not drawn and known.keys() - {"temperature"}:
        raise AtlasError(
            "top_k, top_p and seed need a temperature",
            why="without one the likeliest token is taken",
            remedy="give a temperature above 0, or leave them out",
        )
    try:
        return Sampling(**known)  # type: ignore[arg-type]
    except ValueError:
        raise AtlasError(
            f"tokens cannot be chosen by {known}",
            remedy="temperature is from 0 to 1000, top_k is 1 or more, top_p is from 0 to 1, seed "
            "is 0 or more",
        ) from None


def client_of(client: Client, program: Bundle) -> Client:
    """The same client, with the same keys, of another program of the text."""
    other = copy(client)
    other.bundle = program
    return other


@contextmanager
def text_client(
    bundle: Bundle,
    keys: Path,
    session: Path | None,
    prompt: Prompt | None = None,
    sampling: Sampling | None = None,
    *,
    steps: int | None = None,
    until_end: bool = False,
    target: str = "",
) -> Iterator[TextClient]:
    """The client of a text, whose folder, if it has one, is locked against other processes.

    Args:
        bundle: a bundle with a step, or the step; the client's part is enough. Of the step alone,
            each token of the prompt takes a step.
        keys: what ``keygen`` wrote for the step, or its folder ``client``.
        session, prompt, sampling, steps, until_end: see :class:`TextClient`.
        target: a target to use instead of the one that the bundle was compiled for.

    Raises:
        AtlasError: as :class:`TextClient` and :class:`Client`; another process works on it.
    """
    programs = TextBundles.of(bundle)
    if prompt is not None:
        prompt = prompt_ids(programs.step, prompt)  # refuse before keys are loaded
    with ExitStack() as stack:
        known = session is not None and session.exists()
        if session is not None and known:
            stack.enter_context(alone(session, "session"))
        role = Client(programs.step, keys, target or None)
        client = TextClient(
            programs, partial(client_of, role), session, prompt, sampling,
            steps=steps, until_end=until_end,
        )  # fmt: skip
        if session is not None and not known:
            stack.enter_context(alone(session, "session"))
        yield client


@contextmanager
def step_server(
    bundle: Bundle, keys: Path, cache: Path | None, *, target: str = ""
) -> Iterator[StepServer]:
    """The server of a text, whose folder of keys and values is locked against other processes.

    Args:
        bundle: a bundle with a step, or the step; the server's part is enough.
        keys: what ``keygen`` wrote for the step, or its folder ``server``.
        cache: see :class:`StepServer`.
        target: a target to use instead of the one that the bundle was compiled for.

    Raises:
        AtlasError: as :class:`StepServer` and :class:`Server`; another process works on it.
    """
    with ExitStack() as stack:
        if cache is not None:
            if not cache.exists():
                with new_folder(cache, private=True):
                    pass
            stack.enter_context(alone(cache, "folder of keys and values"))
        programs = TextBundles.of(bundle)
        yield StepServer(programs, lambda one: Server(one, keys, target or None), cache)


def generate(
    bundle: Bundle,
    prompt: Prompt | None,
    tokens: int | None,
    sampling: Sampling | None = None,
    *,
    session: Path | None = None,
    target: str = "",
    steps: Steps = silent,
    note: Note = quiet,
) -> Generated:
    """Generate as :meth:`atlasc.api.program.Program.generate`, with progress in steps.

    ``note`` is called with how tokens are chosen, and with how the prompt is computed, if the
    program has a choice.

    Raises:
        AtlasError: as :func:`text_client` and :func:`step_server`; so many tokens do not fit.
    """
    if tokens is not None and tokens < 1:
        raise AtlasError(f"{tokens} tokens cannot be generated", remedy="ask for 1 or more")
    step = TextBundles.of(bundle).step
    if prompt is not None:
        prompt = prompt_ids(step, prompt)
    with ExitStack() as stack:
        folder = session
        if folder is None:
            folder = stack.enter_context(scratch_folder("atlasc-generate")) / "session"
        if not folder.exists():
            if prompt is None:
                raise AtlasError("a new session needs a prompt", remedy="give one")
            with new_folder(folder, private=True) as draft:
                make_keys(step, draft / KEYS, target or None, steps=steps)
        stack.enter_context(alone(folder, "session"))
        keys, own = folder / KEYS, None if session is None else session / CLIENT
        client = stack.enter_context(
            # The server is this process.
            text_client(
                bundle, keys, own, prompt, sampling, steps=tokens, until_end=True, target=target
            )
        )
        if tokens is None and client.settings.length(0) is None:
            client.most = min(client.most, DEFAULT_STEPS)
        if session is None:
            _forget_secret(keys / CLIENT)
        needed = client.steps_for(client.most) - client.public
        cache = None if session is None else session / SERVER
        server = stack.enter_context(step_server(bundle, keys, cache, target=target))
        for what in filter(None, (client.choice, client.way)):
            note(what, "")
        if client.computes_prompt:
            with steps("computing the prompt", total=100) as shown:
                client.receive(server.answer(client.request(), shown.report))
        with steps("generating text") as shown:
            while not client.finished:
                shown.report("", client.done, needed)
                client.receive(server.answer(client.request()))
        return client.result


def _forget_secret(folder: Path) -> None:
    """Remove a secret key that is in memory, before anything is encrypted with it: where the
    process is killed, no file that it leaves opens what it encrypted.
    """
    for path in folder.iterdir():
        if path.name != LEDGER:
            path.unlink()
