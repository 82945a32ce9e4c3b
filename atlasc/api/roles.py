"""``atlasc.keygen``, ``Client`` and ``Server``: the two parties of an encrypted inference.

The client holds the secret key; the server has evaluation keys alone. The server's keys travel
once, then a query and an answer each time (:mod:`atlasc.bundle.messages`), as bytes or as files.
Client and server need only their own part of a program's folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from atlasc.api.admission import Admitted, admit
from atlasc.api.errors import atlas_errors
from atlasc.api.progress import steps_for
from atlasc.api.words import warned
from atlasc.bundle.folder import Bundle, Role, load_bundle
from atlasc.bundle.ledger import Ledger
from atlasc.bundle.messages import Message
from atlasc.client.checks import Answers
from atlasc.client.program import decrypt_all, encrypt_all, finished
from atlasc.client.sharing import BITS, SharedAnswers, named_floods
from atlasc.files import new_folder
from atlasc.ir.errors import AtlasError, counted
from atlasc.loading import LONG
from atlasc.progress import Note, ProgressCallback, Steps, silent
from atlasc.runtime.interface import keys_of
from atlasc.runtime.native import load_library, translated
from atlasc.targets import find_target
from atlasc.targets.base import Target, no_progress
from atlasc.targets.key_folders import INDEX
from atlasc.targets.machine import forbid_core_dumps

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from atlasc.loading.inputs import Inputs
    from atlasc.run.timing import Timing


class Located(Protocol):
    """A compiled program (:class:`atlasc.api.program.Program`) or its bundle."""

    @property
    def folder(self) -> Path:
        """The folder of the program."""


Source: TypeAlias = Located | str | Path
"""A compiled program, or its folder; a role's part of the folder is enough for the role."""


def keygen(
    program: Source,
    folder: str | Path,
    target: str | None = None,
    progress: ProgressCallback | bool | None = None,
) -> None:
    """Make the keys of a client, and those that its server computes with.

    ``folder/client`` has the secret key and stays with the client; ``folder/server`` goes to the
    server. Files are readable by their owner alone.

    Args:
        program: the client's part is enough.
        folder: a new folder, which appears whole or not at all.
        target: another one than the program was compiled for.
        progress: see :func:`atlasc.compile`.

    Raises:
        AtlasError: the folder exists, the target has no keys, or there is too little memory or
            disk space, which is found before any key is made.
    """
    with atlas_errors():
        make_keys(program, Path(folder), target, steps=steps_for(progress))


def make_keys(
    program: Source, folder: Path, target: str | None = None, *, steps: Steps = silent
) -> None:
    """As :func:`keygen`, with progress in steps."""
    bundle, chosen = _opened(program, "client", target)
    forbid_core_dumps()
    plan = keys_of(bundle.client.interface)  # of a client that sends nothing else in the clear
    with new_folder(folder, private=True) as draft:
        for role in ("client", "server"):
            (draft / role).mkdir(mode=0o700)
        with steps("generating keys") as step:
            chosen.generate_keys(bundle.parameters, plan, draft, step.report)


class Query(bytes):
    """An encrypted query, for the server.

    Attributes:
        rows: numbers of the inputs that were encrypted, in the order of the answer's rows.
        left_out: number of an input that was not -> why.
    """

    rows: tuple[int, ...]
    left_out: dict[int, str]

    @classmethod
    def of(cls, query: Message, admitted: Admitted) -> Query:
        """The bytes of a query, and which inputs it is of."""
        made = cls(query.to_bytes())
        made.rows, made.left_out = tuple(admitted.rows), dict(admitted.left_out)
        return made

    def __repr__(self) -> str:
        return f"<atlasc.Query: {counted(len(self.rows), 'input', 'inputs')}, {len(self)} bytes>"


class Client:
    """Encrypts inputs and decrypts answers. From now on this process leaves no core dump.

    Args:
        program: the client's part is enough.
        keys: what :func:`keygen` wrote, or its folder ``client``.
        target: another one than the program was compiled for.

    Raises:
        AtlasError: the keys are not there, or belong to another program.
    """

    def __init__(self, program: Source, keys: str | Path, target: str | None = None) -> None:
        with atlas_errors():
            self.bundle, self.target = _opened(program, "client", target)
            forbid_core_dumps()
            folder = _key_folder(Path(keys), "client")
            self.engine = self.target.role_engine("client", folder, self.bundle.parameters)
            self.ledger = Ledger(folder)

    def encrypt(
        self,
        inputs: object,
        *,
        long: str = LONG[0],
        strict: bool = False,
        unchecked: bool = False,
        note: Note = warned,
    ) -> Query:
        """A query, for the server.

        Inputs that are unfit to be encrypted are left out, with a warning: one exploding value
        spoils the answers of the whole batch. ``rows`` of the query says which inputs the answer's
        rows belong to.

        Args:
            inputs: at most a batch: texts, arrays, tensors or a path.
            long: longer texts are cut at their end ("truncate"), become several inputs
                ("windows"), or are refused ("refuse").
            strict: refuse all inputs if one is unfit, instead of leaving it out.
            unchecked: encrypt inputs that are far larger than those of calibration.
            note: called with what a user should know, such as texts that were cut, or a target
                that encrypts nothing: a headline and details; by default a Python warning.

        Raises:
            AtlasError: an input is not what the model reads; none, or with ``strict`` not all, are
                fit to be encrypted; too many inputs.
        """
        with atlas_errors():
            note_simulation(self.target, note)
            given = self.bundle.load_inputs(inputs, long, partial=not strict).tell(note)
            query, admitted = encrypt_inputs(
                self.bundle, given, lambda: self, strict=strict, unchecked=unchecked, note=note
            )
            return Query.of(query, admitted)

    def query(
        self,
        arrays: Mapping[str, np.ndarray],
        *,
        unchecked: bool = False,
        doubt: str = "",
        name: str = "",
    ) -> Message:
        """As :meth:`encrypt`, of raw inputs by name; the ledger knows the query then.

        Args:
            doubt: why the bound on the errors may not hold for the answer, see
                :class:`atlasc.api.admission.Admitted`; the ledger remembers it.
            name: names the query; by default a new name.
        """
        packed = self.bundle.client.query(arrays, unchecked=unchecked)
        values, count = encrypt_all(self.engine, packed), packed.count
        given = (self.bundle, self.engine, values, count)
        query = Message.of("query", *given, public=packed.public, query=name)
        self.ledger.add(query.entry, doubt or packed.doubt)
        return query

    def decrypt(self, answer: bytes | Path | Message) -> Answers:
        """Outputs by name, and the rows that are no answers.

        The numbers are for the client's own use: exact ones tell something of the secret key
        (:meth:`share` makes some that may be passed on).

        Raises:
            AtlasError: the answer of another program, of other keys, or to another query; a second
                answer to a query; damaged bytes; too many answers to queries of this key were
                refused.
        """
        with atlas_errors():
            given = self._received(answer)
            with translated():
                outputs, refused = load_library().decrypt_answer(*given)
            return finished(self.bundle.interface, self.bundle.head, outputs, refused)

    def share(
        self, answer: bytes | Path | Message, *, bits: int = BITS, shares: int = 1
    ) -> SharedAnswers:
        """Outputs that may be passed on: with noise that hides the secret key, and rounded to the
        digits that remain. Nothing of a batch is shared in which one answer is refused.

        Args:
            answer: as of :meth:`decrypt`.
            bits: statistical security, at least 30.
            shares: answers that these keys are to share.

        Raises:
            AtlasError: as :meth:`decrypt`; the bound on the errors leaves no digit, or may not hold
                for this query; the budget is spent.
        """
        with atlas_errors():
            given = self._received(answer)
            with translated():
                found = load_library().share_answer(*given, bits, shares)
            outputs, refused, flooding, number = found
            return SharedAnswers(outputs, refused, named_floods(flooding), number)

    def _received(
        self, answer: bytes | Path | Message
    ) -> tuple[str, tuple[Any, ...], Any, Callable[[], Callable[[], dict[str, np.ndarray]]]]:
        """What the library takes of an answer: the folder of the ledger, the ledger's entry, the
        interface, and what loads it and then decrypts it. The library calls these when it is time,
        as not every engine is its own.
        """
        if not isinstance(answer, Message):
            answer = Message.read(answer, "answer", self.bundle)
        message = answer

        def load() -> Callable[[], dict[str, np.ndarray]]:
            values, _ = message.ciphertexts(self.engine)
            return lambda: decrypt_all(self.engine, values)

        return str(self.ledger.folder), astuple(message.entry), message.interface, load


def encrypt_inputs(
    bundle: Bundle,
    inputs: Inputs,
    client: Callable[[], Client],
    *,
    strict: bool = False,
    unchecked: bool = False,
    steps: Steps = silent,
    note: Note,
) -> tuple[Message, Admitted]:
    """A query of the inputs that are fit for it, and which these are.

    Args:
        client: called once the inputs are known to be fit, as it loads keys.
        strict, unchecked, steps, note: see :func:`atlasc.api.admission.admit`.

    Raises:
        AtlasError: as ``admit``; more inputs than the program answers at a time; of the client.
    """
    admitted = admit(bundle, inputs, note, strict=strict, unchecked=unchecked, steps=steps)
    bundle.client.check_count(len(admitted.inputs))
    with steps("encrypting"):
        arrays, doubt = admitted.inputs.arrays, admitted.doubt
        return client().query(arrays, unchecked=unchecked, doubt=doubt), admitted


class Server:
    """Executes the program on encrypted queries; it has no secret key.

    Args:
        program: the server's part is enough.
        keys: what :func:`keygen` wrote, or its folder ``server``; or the content of its
            ``evaluation.key``: bytes, or a mapping of the file, which are read and not kept.
        target: another one than the program was compiled for.

    Raises:
        AtlasError: the keys are not there, or belong to another program.
    """

    def __init__(
        self, program: Source, keys: str | Path | Buffer, target: str | None = None
    ) -> None:
        with atlas_errors():
            self.bundle, self.target = _opened(program, "server", target)
            parameters, plan = self.bundle.parameters, keys_of(self.bundle.interface)
            if isinstance(keys, (str, Path)):
                folder = _key_folder(Path(keys), "server")
                self.engine = self.target.role_engine("server", folder, parameters, plan)
            else:
                self.engine = self.target.server_engine(keys, parameters, plan)

    def execute(self, query: bytes, progress: ProgressCallback | bool | None = None) -> bytes:
        """The encrypted answer to a query.

        Args:
            query: what :meth:`Client.encrypt` returned.
            progress: see :func:`atlasc.compile`; the total is 100.

        Raises:
            AtlasError: the query of another program or of other keys; damaged bytes.
        """
        with atlas_errors():
            message = Message.read(query, "query", self.bundle)
            with steps_for(progress)(f"executing on {self.target.name}", total=100) as step:
                return self.answer(message, step.report)[0].to_bytes()

    def answer(
        self, query: Message, progress: ProgressCallback | None = None
    ) -> tuple[Message, Timing | None]:
        """As :meth:`execute`, with the seconds of each op; None where nothing was encrypted.
        ``progress(op, done, 100)`` is called before each op.
        """
        self.bundle.require_no_state()
        results, timing = self.compute(*query.ciphertexts(self.engine), progress)
        count, name = query.count, query.query
        answer = Message.of("answer", self.bundle, self.engine, results, count, query=name)
        return answer, timing

    def compute(
        self,
        values: Mapping[str, list[Any]],
        public: Mapping[str, np.ndarray],
        progress: ProgressCallback | None = None,
    ) -> tuple[dict[str, list[Any]], Timing | None]:
        """Ciphertexts by the name of the output, and the seconds of each op as :meth:`answer`.

        Args:
            values: ciphertexts by the name of the input, state included.
            public: public inputs by name.
            progress: called as ``progress(op, done, 100)`` before each op.
        """
        from atlasc.run.timing import Course, Pace

        program = self.bundle.server
        pace = Pace(Course.stored(program), self.target, 1, progress or no_progress)
        results = program.play(self.engine, values, public, pace)
        pace.finish()
        return results, pace.timing()


def note_simulation(target: Target, note: Note) -> None:
    """Note that a target encrypts nothing, if it does not."""
    if not target.encrypted:
        note(
            f"the target {target.name} is a simulation: nothing is encrypted",
            "  what to do: use it to rehearse; for real data use keys of a target that encrypts, "
            "such as cpu",
        )


def check_target(bundle: Bundle, role: Role, target: str | None = None) -> Target:
    """The target that a role works on, by default the bundle's own.

    Raises:
        AtlasError: it is unknown, or what the role needs of it is missing.
    """
    found = find_target(target or bundle.target)
    found.check_role(role)
    return found


def _opened(program: Source, role: Role, target: str | None) -> tuple[Bundle, Target]:
    """A role's part of a program, and the target that the role works on."""
    if not isinstance(program, Bundle):
        folder: Any = getattr(program, "folder", program)
        program = load_bundle(Path(folder), role)
    return program, check_target(program, role, target)


def _key_folder(keys: Path, role: Role) -> Path:
    """The folder of a role: the one given, or the one of that name in it."""
    if not keys.is_dir():
        raise AtlasError(f"keys {keys} not found", remedy="make them with atlasc keygen")
    whole = not (keys / INDEX).exists() and (keys / role).is_dir()
    return keys / role if whole else keys
