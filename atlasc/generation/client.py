"""The client of a text: what it asks, what it learns, and what it keeps to go on later.

Where the program has a prefill that is predicted to pay, the first query has all tokens of the
prompt. Each other query has one token.

The folder of a text has::

    session.json             ids so far, and how the next one is chosen
    request.safetensors      the query that waits for its answer

A query is written down before it leaves, and sent again as it is until its answer was read. So the
server answers each token once, whatever interrupts the two.

The server sees when the queries end. Where the model ends the text is something about decrypted
numbers, so by default a fixed number of tokens is asked for: behind the end of the text their
answers are not decrypted. A text that ends where its queries do is counted in the ledger.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from atlasc.bundle.folder import GENERATION, Bundle
from atlasc.bundle.ledger import Ledger
from atlasc.bundle.messages import Message
from atlasc.client.checks import Answers
from atlasc.generation.processors import Text
from atlasc.generation.prompt import Prompt, prompt_ids
from atlasc.generation.record import Kept, Record
from atlasc.generation.sampling import Sampling
from atlasc.generation.steps import TextBundles, name_of, public_at, seconds_of, window_of
from atlasc.ir.errors import AtlasError, counted
from atlasc.loading import IDS
from atlasc.loading.texts.lengths import joined
from atlasc.runtime.engine import RoleEngine

DEFAULT_STEPS = 32
"""Tokens after a prompt that are asked for, if there is room for so many and the model's folder
does not say how many."""


class Client(Protocol):
    """What a text needs of the role :class:`atlasc.api.roles.Client`."""

    bundle: Bundle
    engine: RoleEngine[Any]
    ledger: Ledger

    def query(self, arrays: Mapping[str, np.ndarray], *, name: str = "") -> Message:
        """Encrypt raw inputs."""

    def decrypt(self, answer: Message) -> Answers:
        """Decrypt an answer, if it is the only one to its query."""


class Generated(NamedTuple):
    """A text that was generated.

    Attributes:
        prompt, ids: tokens of the prompt after the public prefix, and the tokens after it.
        text: the text after the prompt; None if the program has no tokenizer.
        ended: whether the model has ended it: its last token is one of the end tokens.
    """

    prompt: list[int]
    ids: list[int]
    text: str | None
    ended: bool = False

    def __repr__(self) -> str:
        """Lengths alone: the text is private."""
        return f"<Generated: {len(self.ids)} tokens after {len(self.prompt)} of the prompt>"


class TextClient:
    """Encrypts the tokens of a text, and chooses those after the prompt.

    Args:
        programs: the programs of the text.
        role: gives the role of a program; all have the same keys.
        folder: a new folder, or that of a text; None: memory alone.
        prompt: a text or ids after the public prefix, or a conversation; may be left out for a text
            that goes on.
        sampling: how tokens are chosen; None: as the model's folder says, or as the text began.
        steps: tokens after the prompt that are asked for; None: as many as the model's folder says
            and as fit, else ``DEFAULT_STEPS``; or as the text began.
        until_end: ask for no token behind the end of the text, although the server sees it then;
            ``steps`` are then the most, and without them all that fit may be asked for.

    Attributes:
        settings: how the model's folder says that tokens are chosen.
        most: the most tokens after the prompt.

    Raises:
        AtlasError: the prompt is empty or too long, or changes the tokens of the public prefix; the
            folder is of another program, of other keys, of another prefix, prompt or sampling, or
            damaged; or it begins with a prefill, and only the step is here; the settings of the
            model's folder name a token that is none, or leave no room for a token.
    """

    def __init__(
        self,
        programs: TextBundles,
        role: Callable[[Bundle], Client],
        folder: Path | None,
        prompt: Prompt | None = None,
        sampling: Sampling | None = None,
        *,
        steps: int | None = None,
        until_end: bool = False,
    ) -> None:
        self._programs, self._step, self._kept = programs, programs.step, Kept(folder)
        self._role, self._keys = role, role(programs.step).engine.identity
        self._window = window_of(self._step)
        prefix = self._step.public_prefix
        self._public = [] if prefix is None else list(prefix.ids)
        self._digest = "" if prefix is None else prefix.digest
        self.settings = self._step.generation
        if (size := self._step.model.size("vocab_size")) is not None:
            self.settings.require_vocabulary(size, self._step.folder)
        given = None if prompt is None else [*self._public, *prompt_ids(self._step, prompt)]
        self.record = (
            self._opened(given, sampling, steps, until_end)
            if self._kept.known
            else self._begun(given, sampling or Sampling(), steps, until_end)
        )
        fixed, length = self.record.steps, self.record.prompt
        self.most = fixed or self._length(length, steps, until_end=True)

    @property
    def ended(self) -> bool:
        """Whether the model has ended the text."""
        return self._end(self.record.ids) is not None

    @property
    def finished(self) -> bool:
        """Whether no further token is asked for."""
        whole = len(self.record.ids) - self.record.prompt >= self.most
        return whole or (self.record.steps is None and self.ended)

    def _end(self, ids: Sequence[int]) -> int | None:
        """The place behind the token with which the model ends the text; None before that."""
        ends, places = self.settings.eos_token_id, range(self.record.prompt, len(ids))
        return next((place + 1 for place in places if ids[place] in ends), None)

    @property
    def way(self) -> str:
        """How tokens are chosen, and how many at most."""
        many = counted(self.most, "token", "tokens")
        return f"tokens are chosen so: {self.record.sampling.over(self.settings)}; {many} at most"

    @property
    def public(self) -> int:
        """Tokens of the public prefix."""
        return len(self._public)

    @property
    def done(self) -> int:
        """Tokens after the public prefix whose answers were read."""
        return self.record.done - self.public

    @property
    def computes_prompt(self) -> bool:
        """Whether the next query has all tokens of the prompt."""
        return self.record.prefill and not self.record.done

    @property
    def choice(self) -> str:
        """How the prompt of a new text is computed, and why; empty if there is no choice."""
        prefill = None if self.record.done else self._programs.prefill
        if prefill is None:
            return ""
        tokens = counted(self.record.prompt, "token", "tokens")
        one, other = seconds_of(prefill), self.record.prompt * seconds_of(self._step)
        how = "at once" if self.record.prefill else "by steps"
        return (
            f"the prompt of {tokens} is computed {how}: at once {one:.3g} s are predicted, by "
            f"steps {other:.3g} s"
        )

    @property
    def spent(self) -> int:
        """Answers that told the server something, of those that its keys allow."""
        ledger = self._role(self._step).ledger
        return ledger.refusals() + ledger.ended()

    @property
    def result(self) -> Generated:
        """The text so far."""
        known, end = self.record.ids, self.record.prompt
        prompt, ids = known[len(self._public) : end], known[end : self._end(known)]
        tokenizer = self._step.model.tokenizer
        text = None if tokenizer is None else tokenizer.decode(ids, skip_special_tokens=True)
        return Generated(prompt, ids, text, self.ended)

    def steps_for(self, tokens: int) -> int:
        """Tokens whose keys and values are needed for tokens after the prompt.

        Raises:
            AtlasError: so many tokens do not fit.
        """
        return self._needed(self.record.prompt, tokens)

    def _needed(self, prompt: int, tokens: int) -> int:
        """The same for a prompt of so many tokens."""
        needed = prompt + tokens - 1  # the last token is not computed with
        if needed > self._window:
            most = self._window - prompt + 1
            public = f" with {len(self._public)} public ones" if self._public else ""
            raise AtlasError(
                f"{tokens} tokens after a prompt of {prompt}{public} do not fit",
                why=f"the program was compiled for {self._window} tokens",
                remedy=f"ask for at most {most}, or compile with a larger --sequence-length",
            )
        return needed

    def _length(self, prompt: int, steps: int | None, until_end: bool) -> int:
        """Tokens after a prompt, at most: as asked, else as the model's folder says."""
        if steps is not None:
            self._needed(prompt, steps)
            return steps
        self._needed(prompt, 1)
        said = self.settings.length(prompt)
        if said == 0:
            raise AtlasError(
                f"max_length of the model is {self.settings.max_length}",
                why=f"the prompt has {prompt} tokens",
                remedy="say how many tokens after it you want (--tokens), or shorten it",
            )
        room = self._window - prompt + 1
        return min(said or (room if until_end else DEFAULT_STEPS), room)

    def request(self) -> bytes:
        """The next query, of a token or of the whole prompt: the same bytes until its answer is
        read.

        Raises:
            AtlasError: the text has ended, or all its tokens were asked for, or it fills the
                program; a token is unknown.
        """
        if self.finished:
            ended = self.record.steps is None and self.ended
            what = f"all {self.most} tokens of the session were asked for"
            what = "the model has ended the text" if ended else what
            raise AtlasError(what, remedy="begin a new session")
        self.steps_for(len(self.record.ids) - self.record.prompt + 1)
        program, pending = self._program(), self._kept.request
        name = self._name(self.record.done)
        if pending is not None:
            found = Message.read(pending, "query", self._programs.of_message(pending))
            if found.query == name:
                return found.to_bytes()
        last = self._last
        known = np.asarray([self.record.ids[: last + 1]])
        # The padding is the model's own, whose values are within the ranges.
        padded = joined([known], self._window, [IDS], program.model)
        query = self._role(program).query(padded | public_at(program, last), name=name)
        made = query.to_bytes()
        self._kept.hold(made)
        return made

    def receive(self, answer: bytes | Path) -> None:
        """Read the answer to the query that waits for one. The answer at the last known token is
        decrypted, and the next token is chosen; answers at earlier tokens, and behind the end of
        the text, are not needed.

        Raises:
            AtlasError: it answers another query; its numbers cannot be right; as
                :meth:`atlasc.api.roles.Client.decrypt`.
        """
        record, program = self.record, self._programs.of_message(answer)
        message = Message.read(answer, "answer", program)
        place, waiting = record.done, self._kept.request is not None
        asked = program is self._program() and message.query == self._name(place)
        if not (asked and waiting):
            first = record.prefill and place == record.prompt
            before = 0 if first else place - 1
            read = place > len(self._public) and message.query == self._name(before)
            raise AtlasError(
                "this is not the answer that the session waits for",
                where=str(self._kept),
                why="it was read before" if read else f"the next answer is that at token {place}",
                remedy="ask, and give the answer to this query",
            )
        done = self._last + 1
        ids = record.ids
        if done == len(ids):
            # Behind the end stands what programs are calibrated for: the text again.
            chosen = ids[done % record.prompt] if self.ended else self._choice(message)
            ids = [*ids, chosen]
            if record.steps is None and self._end(ids) is not None:
                self._role(program).ledger.end(message.entry)
        self._save(record.model_copy(update={"ids": ids, "done": done}))
        self._kept.release()

    @property
    def _last(self) -> int:
        """The last token of the next query."""
        return self.record.prompt - 1 if self.computes_prompt else self.record.done

    def _program(self) -> Bundle:
        """The program of the next query."""
        if not self.computes_prompt:
            return self._step
        if self._programs.prefill is None:
            raise AtlasError(
                f"{self._kept} is a session that begins with a prefill",
                why=f"{self._step.folder} is the step alone",
                remedy="give the whole bundle, or the client's part of it",
            )
        return self._programs.prefill

    def _name(self, place: int) -> str:
        """The name of the query of a token."""
        return name_of(self.record.session, place - len(self._public))

    def _choice(self, answer: Message) -> int:
        """The token after all that are known, by the encrypted answer at the last of them."""
        role, place = self._role(self._program()), len(self.record.ids)
        found = role.decrypt(answer)
        if found.refused:
            raise AtlasError(
                f"the answer for token {place} cannot be right",
                why=f"{found.refused[0]:.1%} of its slots are far outside those of calibration",
                remedy="compile again with data like this text",
            )
        (logits,) = found.outputs.values()
        limit = self.record.prompt + self.most
        text = Text(np.asarray(self.record.ids), self.record.prompt, limit)
        try:
            return self.record.sampling.choose(logits[0], text, self.settings)
        except AtlasError:
            role.ledger.end(answer.entry)  # the server sees that the session stops here
            raise

    def _begun(
        self, prompt: list[int] | None, sampling: Sampling, steps: int | None, until_end: bool
    ) -> Record:
        if prompt is None:
            raise AtlasError("a new session needs a prompt", remedy="give one")
        length = self._length(len(prompt), steps, until_end)
        record = Record(
            program=self._step.manifest.program, keys=self._keys,
            session=secrets.token_hex(16), public=self._digest, prompt=len(prompt), ids=prompt,
            prefill=self._programs.prefill_pays(len(prompt)), done=len(self._public),
            sampling=sampling.begun(self.settings), steps=None if until_end else length,
            settings=self._step.manifest.files.get(GENERATION, ""),
        )  # fmt: skip
        self._kept.begin(record)
        return record

    def _opened(
        self,
        prompt: list[int] | None,
        sampling: Sampling | None,
        steps: int | None,
        until_end: bool,
    ) -> Record:
        record = self._kept.read()
        checks = {
            "another public prefix": record.public == self._digest,
            "another program": record.program == self._step.manifest.program,
            "other keys": record.keys == self._keys,
            "another prompt": prompt in (None, record.ids[: record.prompt]),
            "another way to choose tokens": (sampling is None or sampling.fits(record.sampling))
            and record.settings == self._step.manifest.files.get(GENERATION, ""),
            "another number of tokens": record.steps is None
            if until_end
            else steps in (None, record.steps),
        }
        for what, holds in checks.items():
            if not holds:
                raise AtlasError(
                    f"{self._kept} is a session of {what}",
                    remedy="go on with what it began with, or give a new folder",
                )
        most, least = len(record.ids), len(self._public)
        begins = record.ids[:least] == self._public and least < record.prompt <= most
        whole = not (record.prefill and 0 < record.done < record.prompt)
        if not (begins and whole and least <= record.done < most):
            raise AtlasError(f"the session {self._kept} is damaged", remedy="begin a new session")
        return record

    def _save(self, record: Record) -> None:
        self._kept.save(record)
        self.record = record
