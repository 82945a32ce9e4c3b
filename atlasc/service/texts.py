"""Texts that a service generates: the keys and values of each session, in a folder of its own.

A text lies in ``texts/TENANT/KEYS/SESSION``. Names of queries follow from the name of the session,
so that the service finds the text of a query without asking for it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from atlasc.api.roles import Server
from atlasc.bundle.folder import Bundle, listed_bundle, load_bundle
from atlasc.bundle.messages import Message
from atlasc.generation.server import CACHE, StepServer
from atlasc.generation.steps import TextBundles, alone, name_of, successors, window_of
from atlasc.ir.errors import AtlasError
from atlasc.progress import ProgressCallback

MOST_TEXTS = 4
"""Texts of one set of keys at a time."""
IDLE_SECONDS = 3600.0
"""Seconds without a query after which a text is dropped."""


OpenText = Callable[[str, int], AbstractContextManager[Path]]
"""Gives the folder of a text, for one job alone. It is the text of the query with this name, of a
program of so many tokens. A context that ends well keeps what lies in the folder."""


class Opened(NamedTuple):
    """A program that a service answers.

    Attributes:
        bundle: the server's part.
        text: the programs of a text, of which it is the step or the prefill; None for a program
            that keeps nothing from query to query.
    """

    bundle: Bundle
    text: TextBundles | None = None


def open_programs(folder: Path) -> dict[str, Opened]:
    """The programs of a bundle that a service answers, by their identities: of a bundle with a
    step, the step and then the prefill if there is one; of any other bundle its own.

    Raises:
        AtlasError: as :func:`load_bundle`; step or prefill is not the one that the bundle lists.
    """
    if listed_bundle(folder, "server").has_step:
        text = TextBundles.of(listed_bundle(folder, "server"))
        found = [Opened(one, text) for one in text.all]
    else:
        bundle = load_bundle(folder, "server")
        keeps = bundle.server.interface.keeps_state
        found = [Opened(bundle, TextBundles(bundle) if keeps else None)]
    return {one.bundle.manifest.program: one for one in found}


def text_answer(
    place_of: OpenText,
    programs: TextBundles,
    server: Server,
    query: bytes,
    progress: ProgressCallback,
) -> bytes:
    """The answer to the query of a token or of a prompt, whose keys and values are kept.

    Args:
        place_of: gives the folder of the text.
        programs: the programs of the text.
        server: the role of one of them with these keys.
        query: the query.
        progress: called as ``progress(op, done, 100)`` before each op.

    Raises:
        AtlasError: as :meth:`StepServer.answer`; or of ``place_of``.
    """
    name = Message.read(query, "query", server.bundle).query
    with place_of(name, window_of(programs.step)) as place:
        steps = StepServer(programs, lambda _: server, place)
        answer = steps.answer(query, progress)
        name_text(place, steps.session)
    return answer


@contextmanager
def open_text(folder: Path, name: str, tokens: int) -> Iterator[Path]:
    """The folder of the text of a query, among those of one set of keys; an :data:`OpenText`.

    Raises:
        AtlasError: there are too many texts; another process works on this one.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = _text_of(folder, name, tokens) or _new(folder, name)
    try:
        with alone(place, "text"):
            yield place
    finally:
        with suppress(OSError):  # one that holds a text stays
            place.rmdir()


def name_text(place: Path, session: str) -> None:
    """Name the folder of a text after its session, which may be one that was computed anew.

    Raises:
        AtlasError: it is no session that takes the place of the one before.
    """
    if session == place.name:
        return
    if session not in successors(place.name):
        raise AtlasError(f"{place} has the keys and values of another session")
    place.rename(place.with_name(session))


def _text_of(folder: Path, name: str, tokens: int) -> Path | None:
    """The folder of the text that a query belongs to."""
    places = list(folder.iterdir())
    for place in places:
        if any(name == name_of(place.name, number) for number in range(tokens)):
            return place
    for place in places:  # one that is computed anew, or whose new name a kill has left out
        for session in successors(place.name):
            if any(name == name_of(session, number) for number in range(tokens)):
                return place
    return None


def _new(folder: Path, name: str) -> Path:
    if len(list(folder.iterdir())) >= MOST_TEXTS:
        raise AtlasError(
            f"you have {MOST_TEXTS} texts on this service",
            why=f"no more are kept for one set of keys; a text is dropped {IDLE_SECONDS / 60:.0f} "
            "minutes after its last query",
            remedy="go on with one of them, or wait",
        )
    place = folder / name
    place.mkdir(mode=0o700)
    return place


def drop_idle(folder: Path, seconds: float = IDLE_SECONDS) -> Iterator[Path]:
    """Drop the texts of all tenants that had no query for some time; gives their folders."""
    for place in list(folder.glob("*/*/*")):
        with suppress(FileNotFoundError, AtlasError), alone(place, "text"):
            kept = place / CACHE
            if (kept if kept.exists() else place).stat().st_mtime + seconds < time.time():
                shutil.rmtree(place, ignore_errors=True)
                yield place
