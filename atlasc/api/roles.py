"""``atlasc.keygen``, ``Client`` and ``Server``: the two parties of an encrypted inference.

The client holds the secret key; the server has evaluation keys alone. A query and its answer travel
as bytes. Client and server need only their own part of a program's folder.
"""

from __future__ import annotations

from pathlib import Path

from atlasc.api.admission import admit
from atlasc.api.errors import atlas_errors
from atlasc.api.program import Program
from atlasc.bundle.folder import Bundle, Role, load_bundle
from atlasc.bundle.messages import Message
from atlasc.client.checks import Answers
from atlasc.compilation.steps import ProgressCallback
from atlasc.run import roles
from atlasc.targets.base import Target, no_progress

Source = Program | str | Path
"""A compiled program, or the folder of one; a role's part of the folder is enough for the role."""


def keygen(
    program: Source,
    folder: str | Path,
    target: str | None = None,
    progress: ProgressCallback | None = None,
) -> None:
    """Make the keys of a client, and those that its server computes with.

    ``folder/client`` has the secret key and stays with the client; ``folder/server`` goes to the
    server. Files are readable by their owner alone.

    Args:
        program: the client's part is enough.
        folder: a new folder.
        target: another one than the program was compiled for.
        progress: called as ``progress(what, done, total)``.

    Raises:
        AtlasError: the folder exists, the target has no keys, or there is too little memory.
    """
    with atlas_errors():
        bundle, chosen = _opened(program, "client", target)
        roles.generate_keys(bundle, chosen, Path(folder), progress or no_progress)


class Client:
    """Encrypts inputs and decrypts answers.

    Args:
        program: the client's part is enough.
        keys: what :func:`keygen` wrote, or its folder ``client``.
        target: another one than the program was compiled for.

    Raises:
        AtlasError: the keys are not there, or belong to another program.
    """

    def __init__(self, program: Source, keys: str | Path, target: str | None = None) -> None:
        with atlas_errors():
            self.bundle, chosen = _opened(program, "client", target)
            self._role = roles.ClientRole.open(self.bundle, chosen, Path(keys))

    def encrypt(self, inputs: object, *, unchecked: bool = False) -> bytes:
        """A query, for the server.

        Args:
            inputs: at most a batch: texts, arrays, tensors or a path.
            unchecked: encrypt inputs that are far larger than those of calibration.

        Raises:
            AtlasError: an input is not what the model reads, or unfit to be encrypted; too many
                inputs.
        """
        with atlas_errors():
            given = self.bundle.load_inputs(inputs)
            admit(self.bundle, given, lambda *_: None, strict=True, unchecked=unchecked)
            self.bundle.client.check_count(len(given))
            return self._role.encrypt(given.arrays, unchecked=unchecked).to_bytes()

    def decrypt(self, answer: bytes) -> Answers:
        """Outputs by name, and the rows that are no answers.

        The numbers are for the client's own use: exact ones tell something of the secret key
        (``atlasc decrypt --share`` makes some that may be passed on).

        Raises:
            AtlasError: the answer of another program, of other keys, or to another query; a second
                answer to a query; damaged bytes.
        """
        with atlas_errors():
            return self._role.decrypt(Message.read(answer, "answer", self.bundle))


class Server:
    """Executes the program on encrypted queries; it has no secret key.

    Args:
        program: the server's part is enough.
        keys: what :func:`keygen` wrote, or its folder ``server``.
        target: another one than the program was compiled for.

    Raises:
        AtlasError: the keys are not there, or belong to another program.
    """

    def __init__(self, program: Source, keys: str | Path, target: str | None = None) -> None:
        with atlas_errors():
            self.bundle, chosen = _opened(program, "server", target)
            self._role = roles.ServerRole.open(self.bundle, chosen, Path(keys))

    def execute(self, query: bytes, progress: ProgressCallback | None = None) -> bytes:
        """The encrypted answer to a query.

        Args:
            query: what :meth:`Client.encrypt` returned.
            progress: called as ``progress(op, done, 100)`` before each op.

        Raises:
            AtlasError: the query of another program or of other keys; damaged bytes.
        """
        with atlas_errors():
            message = Message.read(query, "query", self.bundle)
            return self._role.execute(message, progress or no_progress)[0].to_bytes()


def _opened(program: Source, role: Role, target: str | None) -> tuple[Bundle, Target]:
    """A role's part of a program, and the target that the role works on."""
    folder = program.folder if isinstance(program, Program) else Path(program)
    bundle = load_bundle(folder, role)
    return bundle, roles.check_target(bundle, target)
