"""The two roles of a text (:mod:`atlasc.generation`) from their folders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from functools import partial
from pathlib import Path

from atlasc.api.roles import Client, Server
from atlasc.bundle.folder import Bundle
from atlasc.files import new_folder
from atlasc.generation.client import TextClient
from atlasc.generation.prompt import Prompt, Prompted, prompted
from atlasc.generation.sampling import Sampling
from atlasc.generation.server import StepServer
from atlasc.generation.steps import TextBundles, alone
from atlasc.ir.errors import AtlasError


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
    prompt: Prompt | Prompted | None = None,
    sampling: Sampling | None = None,
    *,
    steps: int | None = None,
    until_end: bool = False,
    window: int | None = None,
    target: str = "",
) -> Iterator[TextClient]:
    """The client of a text, whose folder, if it has one, is locked against other processes.

    Args:
        bundle: a bundle with a step, or the step; the client's part is enough. Of the step alone,
            each token of the prompt takes a step.
        keys: what ``keygen`` wrote for the step, or its folder ``client``.
        session, prompt, sampling, steps, until_end, window: see :class:`TextClient`.
        target: a target to use instead of the one that the bundle was compiled for.

    Raises:
        AtlasError: as :class:`TextClient` and :class:`Client`; another process works on it.
    """
    programs = TextBundles.of(bundle)
    if prompt is not None:
        prompt = prompted(programs.step, prompt)  # refuse before keys are loaded
    with ExitStack() as stack:
        known = session is not None and session.exists()
        if session is not None and known:
            stack.enter_context(alone(session, "session"))
        role = Client(programs.step, keys, target or None)
        client = TextClient(
            programs, partial(client_of, role), session, prompt, sampling,
            steps=steps, until_end=until_end, window=window,
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
