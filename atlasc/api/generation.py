"""``Program.generate``: text after a prompt, token by token on ciphertexts."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from atlasc.bundle.folder import Bundle
from atlasc.compilation.steps import Steps, silent
from atlasc.files import locked
from atlasc.generation.sampling import Sampling
from atlasc.generation.session import Generated, Session
from atlasc.ir.errors import AtlasError


def sampling_of(
    temperature: float | None = None, top_k: int | None = None, seed: int | None = None
) -> Sampling | None:
    """How tokens are chosen; None if nothing was given.

    Raises:
        AtlasError: a number is out of bounds, or has no effect without a temperature.
    """
    given = {"temperature": temperature, "top_k": top_k, "seed": seed}
    known = {name: value for name, value in given.items() if value is not None}
    if not known:
        return None
    if not temperature and (top_k is not None or seed is not None):
        raise AtlasError(
            "top_k and seed need a temperature",
            why="without one the likeliest token is taken",
            remedy="give a temperature above 0, or leave them out",
        )
    try:
        return Sampling(**known)  # type: ignore[arg-type]
    except ValueError:
        raise AtlasError(
            f"tokens cannot be chosen by {known}",
            remedy="temperature is from 0 to 1000, top_k is 1 or more, seed is 0 or more",
        ) from None


def generate(
    bundle: Bundle,
    prompt: str | Sequence[int] | None,
    tokens: int,
    sampling: Sampling | None = None,
    *,
    session: Path | None = None,
    target: str = "",
    steps: Steps = silent,
) -> Generated:
    """Generate as :meth:`atlasc.api.program.Program.generate`, with progress in steps.

    Raises:
        AtlasError: as `Session`, and as its ``generate``; another process works on the session.
    """
    if tokens < 1:
        raise AtlasError(f"{tokens} tokens cannot be generated", remedy="ask for 1 or more")
    with ExitStack() as stack:
        if session is None:
            scratch = stack.enter_context(TemporaryDirectory(prefix="atlasc-"))
            session = Path(scratch) / "session"
        known = session.exists()
        if known:
            stack.enter_context(_alone(session))
        opened = Session(bundle, session, prompt, sampling, target=target or None, steps=steps)
        if not known:
            stack.enter_context(_alone(session))
        with steps("generating text") as step:
            opened.generate(tokens, lambda done, needed: step.report("", done, needed))
        return opened.result


@contextmanager
def _alone(session: Path) -> Iterator[None]:
    """The folder of a session, locked against other processes."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(session, fcntl.LOCK_NB))
        except OSError as error:
            busy = isinstance(error, BlockingIOError)
            raise AtlasError(
                f"the session {session} cannot be opened",
                why="another process works on it" if busy else str(error.strerror),
                remedy="wait until it ends, or give another folder",
            ) from None
        yield
