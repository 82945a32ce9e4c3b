"""A session: a prompt, the text that follows it, and what is kept to go on after an interrupt.

Both roles are in this process, as in ``atlasc run``. The folder of a session has::

    session.json     the client's: ids so far, and how the next one is chosen
    keys/            client/ and server/, as keygen writes them
    cache.npz        the server's: encrypted keys and values

The client writes a token down before the server keeps the step that it was learned from. So the
server may be behind after an interrupt, never ahead; the steps that it lacks are done again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from atlasc.bundle.folder import Bundle
from atlasc.compilation.steps import Steps, silent
from atlasc.files import new_folder, write_private
from atlasc.generation.sampling import Sampling
from atlasc.generation.server import Ciphertexts, StepServer
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import MIB, Schema, Sha256, read_json
from atlasc.loading import IDS
from atlasc.passes.generation.decode_step import POSITION
from atlasc.passes.lowering.rotation_keys import key_plan
from atlasc.run.session import encrypt_all
from atlasc.targets import find_target

RECORD, KEYS, CACHE = "session.json", "keys", "cache.npz"


class Record(Schema):
    """What the client knows of a session.

    Attributes:
        program: identity of the step's program.
        target: name of the target that the keys are for.
        prompt: number of tokens of the prompt.
        ids: tokens of the prompt and of the text after it.
        sampling: how tokens are chosen.
    """

    format: Literal[1] = 1
    program: Sha256
    target: str
    prompt: Annotated[int, Field(ge=1)]
    ids: list[Annotated[int, Field(ge=0, lt=2**31)]]
    sampling: Sampling


class Generated(NamedTuple):
    """A text that was generated.

    Attributes:
        prompt, ids: tokens of the prompt, and the tokens after it.
        text: the text after the prompt; None if the program has no tokenizer.
    """

    prompt: list[int]
    ids: list[int]
    text: str | None

    def __repr__(self) -> str:
        """Lengths alone: the text is private."""
        return f"<Generated: {len(self.ids)} tokens after {len(self.prompt)} of the prompt>"


class Session:
    """A session in a folder, new or opened again.

    Args:
        bundle: a bundle with a step.
        folder: a new folder, or that of a session.
        prompt: a text or ids; may be left out for a session that goes on.
        sampling: how tokens are chosen; None: greedily, or as the session began.
        target: a target to use instead of the one that the bundle was compiled for.
        steps: progress.

    Raises:
        AtlasError: the bundle has no step; the prompt is empty or too long; the session is of
            another program, prompt or sampling; or its files are damaged.
    """

    def __init__(
        self,
        bundle: Bundle,
        folder: Path,
        prompt: str | Sequence[int] | None = None,
        sampling: Sampling | None = None,
        *,
        target: str | None = None,
        steps: Steps = silent,
    ) -> None:
        self._bundle, self._folder, self._step = bundle, folder, bundle.step
        self._tokens = self._window()
        self._chosen = find_target(target or bundle.target)
        given = None if prompt is None else self._prompt(prompt)
        if folder.exists():
            self.record = self._opened(given, sampling)
        else:
            self.record = self._begun(given, sampling or Sampling(), steps)
        parameters, keys = self._step.parameters, folder / KEYS
        self._client = self._chosen.role_engine("client", keys / "client", parameters)
        plan = key_plan(self._step.program)
        engine = self._chosen.role_engine("server", keys / "server", parameters, plan)
        self._server = StepServer(self._step, engine, folder / CACHE)
        if (folder / CACHE).exists():
            self._server.resume()
            if self._server.tokens >= len(self.record.ids):
                raise AtlasError(
                    f"{folder / CACHE} is ahead of {folder / RECORD}",
                    why="the two files are of different sessions",
                    remedy="begin a new session",
                )
        else:
            zeros = np.zeros(self._client.slots)
            self._server.begin(
                {
                    level: self._client.serialize(self._client.encrypt(zeros, level))
                    for level in self._server.levels
                }
            )

    def generate(self, tokens: int, progress: Callable[[int, int], None] | None = None) -> None:
        """Write tokens until so many follow the prompt, or the model ends the text.

        Args:
            tokens: number of tokens after the prompt.
            progress: called with the number of tokens of the server, and of those that are needed.

        Raises:
            AtlasError: so many tokens do not fit; or a step is refused.
        """
        record = self.record
        needed = record.prompt + tokens - 1  # the last token is not computed with
        if needed > self._tokens:
            most = self._tokens - record.prompt + 1
            raise AtlasError(
                f"{tokens} tokens after a prompt of {record.prompt} do not fit",
                why=f"the program was compiled for {self._tokens} tokens",
                remedy=f"ask for at most {most}, or compile with a larger --sequence-length",
            )
        while self._server.tokens < needed and not self._ended():
            if progress is not None:
                progress(self._server.tokens, needed)
            self._next()

    @property
    def result(self) -> Generated:
        """The text so far."""
        prompt, ids = self.record.ids[: self.record.prompt], self.record.ids[self.record.prompt :]
        tokenizer = self._bundle.model.tokenizer
        text = None if tokenizer is None else tokenizer.decode(ids, skip_special_tokens=True)
        return Generated(prompt, ids, text)

    def _next(self) -> None:
        """One step; at the last token that is known, also the choice of the one after it."""
        place, ids = self._server.tokens, self.record.ids
        packed = self._step.client.query(self._inputs(place))
        query = {
            name: [self._client.serialize(one) for one in many]
            for name, many in encrypt_all(self._client, packed).items()
        }
        answer = self._server.step(query, packed.public)
        if place + 1 == len(ids):
            ids.append(self._choice(answer, packed.count))
            self._save()
        self._server.keep()

    def _choice(self, answer: Ciphertexts, count: int) -> int:
        """The token after all that are known, by the encrypted logits at the last of them."""
        slots = {
            name: np.stack([self._client.decrypt(self._client.deserialize(one)) for one in many])
            for name, many in answer.items()
        }
        found, place = self._step.client.answers(slots, count), len(self.record.ids)
        if found.refused:
            raise AtlasError(
                f"the answer for token {place} cannot be right",
                why=f"{found.refused[0]:.1%} of its slots are far outside those of calibration",
                remedy="compile again with data like this text",
            )
        (logits,) = found.outputs.values()
        return self.record.sampling.choose(logits[0], place)

    def _ended(self) -> bool:
        """Whether the model has ended the text."""
        ends = getattr(self._bundle.model.config, "eos_token_id", None)
        last = self.record.ids[self.record.prompt :][-1:]
        return bool(last) and last[0] in (ends if isinstance(ends, list) else [ends])

    def _window(self) -> int:
        """The tokens that the program was compiled for."""
        raw = [op.attributes["name"] for op in self._step.client.embed.inputs]
        public = {op.attributes["name"]: op for op in self._step.client.public_inputs}
        outputs = [op.attributes["name"] for op in self._step.client.interface.outputs]
        ids = set(raw) - set(public) == {IDS} and len(public) == 2 and POSITION in public
        if not ids or len(outputs) != 1:
            raise AtlasError(
                f"{self._step.folder} cannot generate text",
                why=f"its inputs are {', '.join({*raw, *public})}, its outputs {outputs}",
                remedy="compile a model of input_ids and attention_mask, with logits alone",
            )
        return int(public[POSITION].attributes["shape"][1])

    def _inputs(self, place: int) -> dict[str, np.ndarray]:
        """The raw inputs of the step of a token."""
        ids, places = np.zeros((1, self._tokens), np.int64), np.arange(self._tokens)[None]
        ids[0, place] = self.record.ids[place]
        (mask,) = set(self._step.client.public) - {POSITION}
        seen = (places <= place).astype(np.int64)
        return {IDS: ids, POSITION: (places == place).astype(np.int64), mask: seen}

    def _prompt(self, prompt: str | Sequence[int]) -> list[int]:
        if isinstance(prompt, str):
            prompt = self._bundle.model.tokenize([prompt])[0]
        ids = [int(one) for one in prompt]
        if not 1 <= len(ids) <= self._tokens:
            raise AtlasError(
                f"the prompt has {len(ids)} tokens",
                why=f"the program was compiled for 1 to {self._tokens}",
                remedy="shorten it, or compile with a larger --sequence-length",
            )
        return ids

    def _begun(self, prompt: list[int] | None, sampling: Sampling, steps: Steps) -> Record:
        """A new folder with keys."""
        if prompt is None:
            raise AtlasError("a new session needs a prompt", remedy="give one")
        program, target = self._step.manifest.program, self._chosen.name
        record = Record(
            program=program, target=target, prompt=len(prompt), ids=prompt, sampling=sampling
        )
        with new_folder(self._folder, private=True) as draft:
            for role in ("client", "server"):
                (draft / KEYS / role).mkdir(mode=0o700, parents=True)
            plan = key_plan(self._step.client.interface)
            with steps("generating keys") as step:
                self._chosen.generate_keys(self._step.parameters, plan, draft / KEYS, step.report)
            (draft / RECORD).write_text(record.model_dump_json() + "\n", encoding="utf-8")
        return record

    def _opened(self, prompt: list[int] | None, sampling: Sampling | None) -> Record:
        """The record of a session that goes on."""
        place = self._folder / RECORD
        record = read_json(
            place, Record, "the session", 64 * MIB, remedy="begin a new session", links=False
        )
        checks = {
            "another program": record.program == self._step.manifest.program,
            "another target": record.target == self._chosen.name,
            "another prompt": prompt in (None, record.ids[: record.prompt]),
            "another way to choose tokens": sampling in (None, record.sampling),
        }
        for what, holds in checks.items():
            if not holds:
                raise AtlasError(
                    f"{self._folder} is a session of {what}",
                    remedy="go on with what it began with, or give a new folder",
                )
        if record.prompt > len(record.ids):
            raise AtlasError(f"{place} is damaged", remedy="begin a new session")
        return record

    def _save(self) -> None:
        text = self.record.model_dump_json() + "\n"
        write_private(self._folder / RECORD, lambda draft: draft.write_text(text, encoding="utf-8"))
