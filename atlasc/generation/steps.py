"""What client and server of a text agree on: its programs, the names of its queries, and their
public inputs.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.bundle.folder import ATTENTION_WINDOW, Bundle
from atlasc.bundle.sealed import facts_of
from atlasc.files import locked
from atlasc.ir.errors import AtlasError, counted
from atlasc.ir.ops.tensors import POSITION

MOST_ANEW = 16
"""Times that a client begins anew without an answer, until a server takes it for another one."""


@dataclass(frozen=True)
class TextBundles:
    """The programs of a text.

    Attributes:
        step: the step of a token.
        whole: the bundle with the step and perhaps a prefill; None if the step was given itself.
    """

    step: Bundle
    whole: Bundle | None = None

    @classmethod
    def of(cls, bundle: Bundle) -> TextBundles:
        """The programs of a bundle; of a step that is given itself, the step.

        Raises:
            AtlasError: the bundle has no step, or it is not the one that the manifest lists; or it
                is a prefill.
        """
        if not bundle.has_step and POSITION in publics_of(bundle):
            if any(len(one.shape) > 2 for one in bundle.interface.inputs):
                raise AtlasError(
                    f"{bundle.folder} is the prefill of a prompt",
                    why="it reads all tokens of a prompt, and computes no token after them",
                    remedy="give the whole bundle, or its folder step",
                )
            return cls(bundle)
        return cls(bundle.step, bundle)

    @property
    def prefill(self) -> Bundle | None:
        """The prefill of a prompt; None if every token of a prompt takes a step. It is opened when
        it is needed, because its files are read whole to check them.

        Raises:
            AtlasError: it is not the one that the manifest lists, or has other parameters than the
                step.
        """
        if self.whole is None or not self.whole.has_prefill:
            return None
        found = self.whole.prefill
        if found.parameters != self.step.parameters:
            raise AtlasError(
                f"{self.whole.folder} is damaged",
                why="its step and its prefill have different parameters",
                remedy="compile the model again",
            )
        return found

    @property
    def all(self) -> tuple[Bundle, ...]:
        """The step, and the prefill if there is one; raises as :attr:`prefill`."""
        prefill = self.prefill
        return (self.step,) if prefill is None else (self.step, prefill)

    def of_message(self, source: Path | bytes) -> Bundle:
        """The program that a query or an answer names; the step if it names neither."""
        named = self.step.manifest.program
        with suppress(AtlasError, OSError):  # whoever reads it as a message says what is wrong
            named = facts_of(source).get("program", named)
        if named == self.step.manifest.program:
            return self.step
        prefill = self.prefill
        return self.step if prefill is None or prefill.manifest.program != named else prefill

    def prefill_pays(self, tokens: int) -> bool:
        """Whether the prefill is predicted to take less time than a step for each token."""
        prefill = self.prefill
        return prefill is not None and seconds_of(prefill) < tokens * seconds_of(self.step)

    def choice(self, tokens: int, at_once: bool) -> str:
        """How so many tokens are computed, and why; empty if there is no choice."""
        prefill = self.prefill
        if prefill is None:
            return ""
        one, other = seconds_of(prefill), tokens * seconds_of(self.step)
        how = "at once" if at_once else "by steps"
        return (
            f"the prompt of {counted(tokens, 'token', 'tokens')} is computed {how}: at once "
            f"{one:.3g} s are predicted, by steps {other:.3g} s"
        )


def seconds_of(program: Bundle) -> float:
    """The predicted seconds of a program; infinity if they are not known."""
    seconds = program.manifest.costs.get("seconds")
    return float(seconds) if isinstance(seconds, (int, float)) else math.inf


def publics_of(bundle: Bundle) -> dict[str, list[int]]:
    """Name of a public input -> its shape."""
    return {one.name: list(one.shape) for one in bundle.interface.publics}


def window_of(program: Bundle) -> int:
    """The tokens that a step or a prefill was compiled for.

    Raises:
        AtlasError: it does not compute one answer for one token after others.
    """
    publics = publics_of(program)
    outputs = [one.name for one in program.interface.outputs]
    if len(publics) != 2 or POSITION not in publics or len(outputs) != 1:
        raise AtlasError(
            f"{program.folder} cannot generate text",
            why=f"its public inputs are {', '.join(publics)}, its outputs {', '.join(outputs)}",
            remedy="compile a model of input_ids and attention_mask, with logits alone",
        )
    return publics[POSITION][1]


def looks_back(program: Bundle) -> int:
    """How many tokens the attention of a step looks back, its own one included, by its mask.

    Raises:
        AtlasError: the manifest says what is no number of tokens.
    """
    room = window_of(program)
    said: Any = program.manifest.settings.get(ATTENTION_WINDOW, room)
    if type(said) is not int or said < 1:
        raise AtlasError(
            f"{program.folder} is damaged",
            why=f"{ATTENTION_WINDOW} of its manifest is no number of tokens",
            remedy="compile the model again",
        )
    return min(said, room)


def public_at(program: Bundle, place: int) -> dict[str, np.ndarray]:
    """The public inputs of the step of a token, and of the prefill of a prompt that ends with this
    token: its position, and the mask of the tokens up to it, or of those in the window of the
    attention.
    """
    places, back = np.arange(window_of(program))[None], looks_back(program)
    (mask,) = set(publics_of(program)) - {POSITION}
    return {
        POSITION: (places == place).astype(np.int64),
        mask: ((places <= place) & (places > place - back)).astype(np.int64),
    }


def public_tokens(step: Bundle) -> int:
    """Tokens of the public prefix, whose keys and values every text begins with.

    The client's part has these tokens, the server's their keys and values.
    """
    if step.role != "server":
        return 0 if step.public_prefix is None else len(step.public_prefix.ids)
    begun = (one for one in step.server.interface.inputs if one.prefix)
    return max((step.server.arrays[one.prefix].shape[2] for one in begun), default=0)


def name_of(session: str, number: int) -> str:
    """The name of a query of a session, which is numbered by the tokens before it.

    The first one is named after the session, 32 random hexadecimal digits, and so the server learns
    the session. Names of later ones follow from it, so that the server knows whether a query is of
    the same session.
    """
    if number == 0:
        return session
    return hashlib.sha256(f"{session}:{number}".encode()).hexdigest()[: len(session)]


def following(session: str) -> str:
    """The name of the session that takes the place of another one, whose tokens are computed anew.

    It follows from the name of the other session, so a query of any third session never takes the
    place of keys and values.
    """
    return hashlib.sha256(f"{session}:anew".encode()).hexdigest()[: len(session)]


def successors(session: str) -> Iterator[str]:
    """The names of the sessions that may take the place of one: that of :func:`following`, and
    those after it, as a client begins anew again where no answer came.
    """
    for _ in range(MOST_ANEW):
        session = following(session)
        yield session


@contextmanager
def alone(folder: Path, what: str) -> Iterator[None]:
    """A folder, locked against other processes."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder, fcntl.LOCK_NB))
        except OSError as error:
            busy = isinstance(error, BlockingIOError)
            raise AtlasError(
                f"the {what} {folder} cannot be opened",
                why="another process works on it" if busy else str(error.strerror),
                remedy="wait until it ends, or give another folder",
            ) from None
        yield
