"""How many tokens a text may have, and what a turn of it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from atlasc.bundle.folder import Bundle
from atlasc.generation.steps import TextBundles, seconds_of
from atlasc.ir.errors import AtlasError, counted
from atlasc.loading.generation.settings import Settings

DEFAULT_STEPS = 32
"""Tokens after a prompt that are asked for, if there is room for so many and the model's folder
does not say how many."""


@dataclass(frozen=True)
class Budget:
    """The tokens of a text.

    Attributes:
        room: tokens that the program was compiled for.
        public: tokens of the public prefix.
        settings: how the model's folder says that tokens are chosen.
        window: tokens that stay when there is no room for more; None: nothing leaves.

    Raises:
        AtlasError: the window has no room for a token after the public prefix, or is no shorter
            than the program.
    """

    room: int
    public: int
    settings: Settings
    window: int | None = None

    def __post_init__(self) -> None:
        if self.window is not None and not self.public < self.window < self.room:
            prefix = f", of which {self.public} are the public prefix" if self.public else ""
            raise AtlasError(
                f"a window of {counted(self.window, 'token', 'tokens')} is not possible",
                why=f"the program was compiled for {self.room} tokens{prefix}",
                remedy=f"give a window from {self.public + 1} to {self.room - 1}; half of the "
                "tokens is a good choice",
            )

    def needed(self, prompt: int, tokens: int) -> int:
        """Tokens whose keys and values are needed for tokens after a prompt.

        Raises:
            AtlasError: so many tokens do not fit, and none may leave.
        """
        needed = prompt + tokens - 1  # the last token is not computed with
        if needed > self.room and self.window is None:
            public = f" with {self.public} public ones" if self.public else ""
            most = self.room - prompt + 1
            ask = f"ask for at most {most}, " if most > 0 else ""
            raise AtlasError(
                f"{tokens} tokens after a prompt of {prompt}{public} do not fit",
                why=f"the program was compiled for {self.room} tokens",
                remedy=f"{ask}let the oldest tokens leave (--window), or compile with a larger "
                "--sequence-length",
            )
        return needed

    def length(self, prompt: int, steps: int | None, until_end: bool) -> int:
        """Tokens after a prompt, at most: as asked, else as the model's folder says."""
        if steps is not None:
            self.needed(prompt, steps)
            return steps
        self.needed(prompt, 1)
        said = self.settings.length(prompt)
        if said == 0:
            raise AtlasError(
                f"max_length of the model is {self.settings.max_length}",
                why=f"the prompt has {prompt} tokens",
                remedy="say how many tokens after it you want (--tokens), or shorten it",
            )
        room = self.room - prompt + 1
        if self.window is not None:
            return said or DEFAULT_STEPS
        return min(said or (room if until_end else DEFAULT_STEPS), room)


class Cost(NamedTuple):
    """What is left of a turn, at most; a text may end before.

    Attributes:
        entered: tokens that the server has no keys and values of, but the client knows.
        prefills, steps: queries of each program.
        seconds: predicted; infinity if they are not known.
        up, down: predicted bytes of queries and answers.
        held, room: tokens whose keys and values are kept at the end, and how many can be.
    """

    entered: int
    prefills: int
    steps: int
    seconds: float
    up: int
    down: int
    held: int
    room: int

    def __str__(self) -> str:
        """In one line."""
        queries = counted(self.steps, "step", "steps")
        if self.prefills:
            queries = f"{counted(self.prefills, 'prefill', 'prefills')} and {queries}"
        time = "" if math.isinf(self.seconds) else f", {self.seconds:.3g} s predicted"
        return (
            f"{counted(self.entered, 'token', 'tokens')} to enter; at most {queries}{time}, "
            f"{self.up / 1e6:.3g} MB up and {self.down / 1e6:.3g} MB down; then the keys and "
            f"values of at most {self.held} of {self.room} tokens are kept"
        )


def cost_of(
    programs: TextBundles, budget: Budget, held: int, done: int, at_once: bool, left: int
) -> Cost:
    """The cost of what is left of a turn.

    Args:
        programs: the programs of the text.
        budget: its tokens.
        held: tokens that the client knows and the server may keep.
        done: tokens of which the server has the keys and values.
        at_once: whether the next query has all of them.
        left: tokens to choose.
    """
    entered, prefills, steps = held - done, 0, 0
    while left > 0:
        if held > budget.room:
            assert budget.window is not None, "nothing leaves, so it was refused"
            held, done = budget.window, budget.public
            at_once = programs.prefill_pays(held - done)
        prefills += at_once
        steps += 0 if at_once else held - done
        done, held, left, at_once = held, held + 1, left - 1, False
    found = [(programs.step, steps)]
    if prefills and programs.prefill is not None:
        found.append((programs.prefill, prefills))
    seconds = sum(number * seconds_of(one) for one, number in found if number)
    up, down = (
        sum(number * _bytes(kind, one) for one, number in found) for kind in ("query", "answer")
    )
    return Cost(entered, prefills, steps, seconds, up, down, done, budget.room)


def _bytes(kind: Literal["query", "answer"], program: Bundle) -> int:
    """Bytes of the ciphertexts and the public inputs of a message."""
    interface = program.interface.of_messages()
    mask = sum(8 * math.prod(one.shape) for one in interface.publics) if kind == "query" else 0
    ciphertexts = interface.inputs if kind == "query" else interface.outputs
    each = program.parameters.ciphertext_bytes
    return mask + sum(one.ciphertexts * each(one.level) for one in ciphertexts)
