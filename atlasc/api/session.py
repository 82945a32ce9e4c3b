"""Text after prompts on ciphertexts, with both roles in one process: ``Program.session`` and
``Program.generate``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Protocol

from atlasc.api.generation import step_server, text_client
from atlasc.api.roles import make_keys
from atlasc.bundle.folder import Bundle
from atlasc.bundle.ledger import LEDGER
from atlasc.files import new_folder, scratch_folder
from atlasc.generation.budget import DEFAULT_STEPS
from atlasc.generation.client import TextClient
from atlasc.generation.ends import Generated
from atlasc.generation.prompt import Prompt, Prompted, prompted
from atlasc.generation.sampling import Sampling
from atlasc.generation.steps import TextBundles, alone
from atlasc.ir.errors import AtlasError
from atlasc.progress import Note, ProgressCallback, Steps, quiet, silent

KEYS, CLIENT, SERVER = "keys", "client", "server"
"""Folders of a session in which both roles are in one process."""


class Answering(Protocol):
    """What a session needs of a server: a :class:`StepServer`, or a service."""

    def answer(self, request: bytes, progress: ProgressCallback | None = None) -> bytes:
        """The encrypted answer to a query."""


class TextSession:
    """A text of one or more turns. Keys and values stay encrypted between them.

    It is a context: at its end the keys leave the memory. Use one thread at a time::

        with program.session(chat=True) as session:
            print(session.say("What is a ring?").text)
            print(session.say("And a field?").text)

    Args:
        bundle: a bundle with a step, or the step.
        folder: a new folder, or that of a session, which goes on; None keeps nothing.
        sampling: see :class:`TextClient`.
        chat: a text is a message of a user, which the chat template writes.
        window: see :class:`TextClient`.
        target: a target to use instead of the one that the bundle was compiled for.
        steps: progress.
        note: called with how tokens are chosen and computed, and what each turn costs.
        errors: a context of each call, which words errors for who calls.
    """

    _until_end = True  # the server is this process

    def __init__(
        self,
        bundle: Bundle,
        folder: Path | None = None,
        sampling: Sampling | None = None,
        *,
        chat: bool = False,
        window: int | None = None,
        target: str = "",
        steps: Steps = silent,
        note: Note = quiet,
        errors: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._errors = errors
        self._bundle, self._step = bundle, TextBundles.of(bundle).step
        self._kept, self._sampling, self._chat = folder, sampling, chat
        self._window, self._target, self._steps, self._note = window, target, steps, note
        self._stack = ExitStack()
        self._roles: tuple[TextClient, Answering] | None = None
        self._told = False

    def __enter__(self) -> TextSession:
        """The session itself; nothing is opened yet."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close what was opened."""
        self._roles = None
        self._stack.close()

    def say(self, prompt: Prompt, tokens: int | None = None) -> Generated:
        """The answer to a prompt behind the last answer, or to the first prompt of a session.

        Args:
            prompt: a text, token ids, or messages of a conversation. In a conversation a text is a
                message of the user.
            tokens: tokens after the prompt; fewer if the model ends the text. None: as many as the
                model's folder says and as fit, else 32.

        Raises:
            AtlasError: as :meth:`TextClient.turn`; so many tokens do not fit; a step is refused.
        """
        if self._roles is None and not self._exists:
            return self.go_on(prompt, tokens)
        with self._errors():
            client, _ = self._opened(None, None)
            if isinstance(prompt, str) and client.record.messages:
                prompt = [{"role": "user", "content": prompt}]
            client.turn(prompt, _wanted(tokens))
            return self._written(tokens)

    def go_on(self, prompt: Prompt | None = None, tokens: int | None = None) -> Generated:
        """Go on with the last answer of a session, or begin one.

        Args:
            prompt, tokens: as of :meth:`say`; the prompt of a session that goes on may be left out.

        Raises:
            AtlasError: as :class:`TextClient`; so many tokens do not fit; a step is refused.
        """
        if isinstance(prompt, str) and self._chat:
            prompt = [{"role": "user", "content": prompt}]
        with self._errors():
            given = None if prompt is None else prompted(self._step, prompt)
            self._opened(given, _wanted(tokens))
            return self._written(tokens)

    def anew(self) -> None:
        """Let the next answer compute all tokens anew, as where their keys and values were lost."""
        with self._errors():
            client, _ = self._opened(None, None)
            client.anew()

    @property
    def _exists(self) -> bool:
        """Whether the folder is that of a session."""
        return self._kept is not None and self._kept.exists()

    def _begin(self, client: TextClient, server: Answering) -> None:
        """Take both roles."""
        if client.choice:
            self._note(client.choice, "")
        self._roles = client, server

    def _opened(self, given: Prompted | None, tokens: int | None) -> tuple[TextClient, Answering]:
        if self._roles is not None:
            return self._roles
        stack, folder = self._stack, self._kept
        if folder is None:
            folder = stack.enter_context(scratch_folder("atlasc-generate")) / "session"
        if not folder.exists():
            if given is None:
                raise AtlasError("a new session needs a prompt", remedy="give one")
            with new_folder(folder, private=True) as draft:
                make_keys(self._step, draft / KEYS, self._target or None, steps=self._steps)
        stack.enter_context(alone(folder, "session"))
        keys, kept = folder / KEYS, self._kept is not None
        client = stack.enter_context(
            text_client(
                self._bundle, keys, folder / CLIENT if kept else None, given, self._sampling,
                steps=tokens, until_end=self._until_end, window=self._window, target=self._target,
            )
        )  # fmt: skip
        if not kept:
            _forget_secret(keys / CLIENT)
        cache = folder / SERVER if kept else None
        server = stack.enter_context(step_server(self._bundle, keys, cache, target=self._target))
        self._begin(client, server)
        return client, server

    def _written(self, tokens: int | None) -> Generated:
        """The answer, whose prompt the client knows."""
        assert self._roles is not None, "both are open"
        client, server = self._roles
        if tokens is not None and self._until_end:
            client.steps_for(tokens)
            client.most = tokens
        elif self._until_end and client.settings.length(0) is None:
            client.most = min(client.most, DEFAULT_STEPS)
        cost = client.cost()
        way = "" if self._told else client.way  # how many tokens at most, the turn says
        turn = "" if client.finished else f"this turn: {cost}"
        for what in filter(None, (way, client.note, turn)):
            self._note(what, "")
        self._told = True
        if client.computes_prompt:
            with self._steps("computing the prompt", total=100) as shown:
                client.receive(server.answer(client.request(), shown.report))
        with self._steps("generating text") as shown:
            first = client.done
            for asked in range(cost.steps + cost.prefills):
                if client.finished:
                    break
                shown.report("", first + asked, first + cost.steps)
                client.receive(server.answer(client.request()))
        return client.result


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
    """Generate as :meth:`atlasc.api.program.Program.generate`; see :class:`TextSession`."""
    with TextSession(bundle, session, sampling, target=target, steps=steps, note=note) as text:
        return text.go_on(prompt, tokens)


def _wanted(tokens: int | None) -> int | None:
    """Tokens that are asked for."""
    if tokens is not None and tokens < 1:
        raise AtlasError(f"{tokens} tokens cannot be generated", remedy="ask for 1 or more")
    return tokens


def _forget_secret(folder: Path) -> None:
    """Remove a secret key that is in memory, before anything is encrypted with it: where the
    process is killed, no file that it leaves opens what it encrypted.
    """
    for path in folder.iterdir():
        if path.name != LEDGER:
            path.unlink()
