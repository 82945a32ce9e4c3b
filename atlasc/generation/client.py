"""The client of a text: what it asks, what it learns, and what it keeps to go on later.

Where the program has a prefill that is predicted to pay, the first query has all tokens of the
prompt. Each other query has one token.

The folder of a text has::

    session.json             ids so far, and how the next one is chosen
    request.safetensors      the query that waits for its answer

A query is written down before it leaves, and sent again as it is until its answer was read. So the
server answers each token once, whatever interrupts the two.

A further prompt goes on behind the last answer: the queries have its tokens alone. Tokens are
computed anew, in a session that takes the place of this one, where the conversation no longer
begins with those that the server has, where that is predicted to take less time, and where tokens
leave because there is no room for more.

The server sees when the queries end. Where the model ends the text is something about decrypted
numbers, so by default a fixed number of tokens is asked for: behind the end of the text their
answers are not decrypted. A text that ends where its queries do is counted in the ledger.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from atlasc.bundle.folder import GENERATION, Bundle
from atlasc.bundle.ledger import Entry
from atlasc.bundle.messages import Message
from atlasc.bundle.sealed import facts_of
from atlasc.generation.budget import Budget, Cost, cost_of
from atlasc.generation.ends import Ends, Generated
from atlasc.generation.processors import Text
from atlasc.generation.prompt import Prompt, Prompted, prompted
from atlasc.generation.record import Kept, Record
from atlasc.generation.roles import Client
from atlasc.generation.sampling import Sampling
from atlasc.generation.steps import (
    TextBundles,
    name_of,
    public_at,
    window_of,
)
from atlasc.generation.turns import anew, further
from atlasc.ir.errors import AtlasError, counted
from atlasc.loading import IDS
from atlasc.loading.texts.lengths import joined


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
        window: tokens that stay, those of the public prefix included, when there is no room for
            more: the oldest others leave. None: nothing leaves; or as the text began.

    Attributes:
        settings: how the model's folder says that tokens are chosen.
        most: the most tokens after the prompt.
        note: what the last turn changed in earlier ones, in words; empty if nothing.

    Raises:
        AtlasError: the prompt is empty or too long, or changes the tokens of the public prefix; the
            folder is of another program, of other keys, of another prefix, prompt, window or
            sampling, or damaged; the settings of the model's folder name a token that is none, or
            stop strings without a tokenizer, or leave no room for a token.
    """

    def __init__(
        self,
        programs: TextBundles,
        role: Callable[[Bundle], Client],
        folder: Path | None,
        prompt: Prompt | Prompted | None = None,
        sampling: Sampling | None = None,
        *,
        steps: int | None = None,
        until_end: bool = False,
        window: int | None = None,
    ) -> None:
        self._programs, self._step, self._kept = programs, programs.step, Kept(folder)
        self._role, self._keys = role, role(programs.step).engine.identity
        self.note = ""
        prefix = self._step.public_prefix
        self._public = [] if prefix is None else list(prefix.ids)
        self._digest = "" if prefix is None else prefix.digest
        self.settings = self._step.generation
        if (size := self._step.model.size("vocab_size")) is not None:
            self.settings.require_vocabulary(size, self._step.folder)
        self._ends = Ends(self.settings, self._step.model)
        given = None if prompt is None else prompted(self._step, prompt)
        room = window_of(self._step)
        self._budget = Budget(room, len(self._public), self.settings, window)
        self.record = (
            self._opened(given, sampling, steps, until_end, window)
            if self._kept.known
            else self._begun(given, sampling or Sampling(), steps, until_end)
        )
        self._budget = replace(self._budget, window=self.record.window)
        self.most = self.record.steps or self._budget.length(self.record.asked, steps, True)

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
        return self._ends.place(ids, self.record.prompt)

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
        return self.record.prefill and self.record.done == self.public

    def cost(self, *, afresh: bool = False) -> Cost:
        """What is left of this turn costs; ``afresh``: after :meth:`anew`."""
        record, programs = self.record, self._programs
        now = anew(programs, self.public, record) if afresh else record
        at_once, held = now.prefill and now.done == self.public, len(self._held)
        left = self.most - (len(record.ids) - record.prompt)
        return cost_of(programs, self._budget, held, now.done, at_once, left)

    @property
    def choice(self) -> str:
        """How the prompt of a new text is computed, and why; empty if there is no choice."""
        first = self.record.done == self.public
        return self._programs.choice(self.record.begun, self.record.prefill) if first else ""

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
        return self._budget.needed(self.record.asked, tokens)

    @property
    def _held(self) -> list[int]:
        """The tokens that have not left."""
        return self.record.held(self.public)

    def turn(self, prompt: Prompt, steps: int | None = None) -> None:
        """Go on with a further prompt behind the last answer, up to its end.

        Args:
            prompt: messages of a conversation; else a text or token ids.
            steps: tokens after the prompt; None: as at the beginning of a session.

        Raises:
            AtlasError: the last answer is not finished; the prompt is of another kind than the
                session, empty, or does not fit.
        """
        record, until_end = self.record, self.record.steps is None
        unfinished = not self.finished if not until_end else len(record.ids) == record.prompt
        if unfinished or self._kept.request is not None:
            raise AtlasError(
                "the turn before is not finished",
                where=str(self._kept),
                why="its answer has no token yet, or a query waits for its answer",
                remedy="go on without a further prompt, until it is finished",
            )
        end = self._end(record.ids) or len(record.ids)
        new, self.note, tells = further(self._programs, record, end, prompt, self._budget, steps)
        if tells and not until_end:
            # The server sees what depends on decrypted answers: that it computes tokens anew.
            first = (self._programs.prefill if record.prefill else None) or self._step
            entry = Entry(record.session, first.manifest.program, 1)
            self._role(self._step).ledger.end(entry)
        self._save(new)
        self.most = new.steps or self._budget.length(new.asked, steps, True)

    def anew(self) -> None:
        """Compute all tokens anew, as where the server has lost their keys and values."""
        begun = self.record.done > self.public or self._kept.request is not None
        if begun or self.computes_prompt:
            self._save(anew(self._programs, self.public, self.record))

    def request(self) -> bytes:
        """The next query, of a token or of the whole prompt: the same bytes until its answer is
        read.

        Raises:
            AtlasError: the text has ended, or all its tokens were asked for, or it fills the
                program; a token is unknown.
        """
        if self.finished:
            what = f"all {self.most} tokens of the session were asked for"
            if self.record.steps is None and self.ended:
                what = "the model has ended the text"
            raise AtlasError(what, remedy="give a further prompt (--next), or begin a new session")
        self.steps_for(len(self.record.ids) - self.record.prompt + 1)
        window, held = self._budget.window, len(self._held)
        if window is not None and held > self._budget.room:
            gone = self.record.model_copy(update={"left": self.record.left + held - window})
            self._save(anew(self._programs, self.public, gone))
        program, pending = self._program(), self._kept.request
        name = self._name(self.record.done)
        # That of a session before this one may be of a program that is not here any more.
        if pending is not None and facts_of(pending).get("query") == name:
            return Message.read(pending, "query", self._programs.of_message(pending)).to_bytes()
        last = self.record.begun - 1 if self.computes_prompt else self.record.done
        known = np.asarray([self._held[: last + 1]])
        # The padding is the model's own, whose values are within the ranges.
        padded = joined([known], self._budget.room, [IDS], program.model)
        given = padded | public_at(program, last)
        made = self._role(program).query(given, name=name).to_bytes()
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
            first = record.prefill and place == record.begun
            before = self.public if first else place - 1
            read = place > len(self._public) and message.query == self._name(before)
            raise AtlasError(
                "this is not the answer that the session waits for",
                where=str(self._kept),
                why="it was read before" if read else f"the next answer is that at token {place}",
                remedy="ask, and give the answer to this query",
            )
        done = self.record.begun if self.computes_prompt else place + 1
        ids = record.ids
        if done == len(ids) - record.left:
            # Behind the end stands what programs are calibrated for: the text again.
            chosen = ids[done % record.prompt] if self.ended else self._choice(message)
            ids = [*ids, chosen]
            if record.steps is None and self._end(ids) is not None:
                self._role(program).ledger.end(message.entry)
        self._save(record.model_copy(update={"ids": ids, "done": done}))
        self._kept.release()

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
        record, held = self.record, np.asarray(self._held)
        asked, limit = max(record.asked, self.public), record.asked + self.most
        text = Text(held, asked, limit, record.left)
        try:
            return self.record.sampling.choose(logits[0], text, self.settings)
        except AtlasError:
            role.ledger.end(answer.entry)  # the server sees that the session stops here
            raise

    def _begun(
        self, given: Prompted | None, sampling: Sampling, steps: int | None, until_end: bool
    ) -> Record:
        if given is None:
            raise AtlasError("a new session needs a prompt", remedy="give one")
        ids = [*self._public, *given.ids]
        length = self._budget.length(len(ids), steps, until_end)
        record = Record(
            program=self._step.manifest.program, keys=self._keys,
            session=secrets.token_hex(16), public=self._digest, prompt=len(ids), ids=ids,
            messages=given.messages, prefill=self._programs.prefill_pays(len(ids)),
            window=self._budget.window, done=len(self._public),
            sampling=sampling.begun(self.settings), steps=None if until_end else length,
            settings=self._step.manifest.files.get(GENERATION, ""),
        )  # fmt: skip
        self._kept.begin(record)
        return record

    def _opened(
        self,
        given: Prompted | None,
        sampling: Sampling | None,
        steps: int | None,
        until_end: bool,
        window: int | None,
    ) -> Record:
        record = self._kept.read()
        ids = None if given is None else [*self._public, *given.ids]
        self._kept.require_same({
            "another public prefix": record.public == self._digest,
            "another program": record.program == self._step.manifest.program,
            "other keys": record.keys == self._keys,
            "another prompt": ids in (None, record.ids[: record.prompt]),
            "another window": window in (None, record.window),
            "another way to choose tokens": (sampling is None or sampling.fits(record.sampling))
            and record.settings == self._step.manifest.files.get(GENERATION, ""),
            "another number of tokens": record.steps is None
            if until_end
            else steps in (None, record.steps),
        })  # fmt: skip
        if not record.fits(self._public, self._budget.room):
            raise AtlasError(f"the session {self._kept} is damaged", remedy="begin a new session")
        return record

    def _save(self, record: Record) -> None:
        self._kept.save(record)
        self.record = record
