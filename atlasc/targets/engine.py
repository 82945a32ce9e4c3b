"""The base class of engines whose ciphertexts travel between a client and a server."""

from __future__ import annotations

from abc import abstractmethod

from atlasc.ir.errors import AtlasError
from atlasc.passes.execution.engine import Ct, Engine, Vector


class RoleEngine(Engine[Ct]):
    """The engine of a client, of a server, or of both in a trial. One of a single role refuses what
    takes the other's keys.

    Attributes:
        has_secret: whether it can encrypt and decrypt.
        identity: of the key set, 32 hexadecimal digits; every written ciphertext carries it.
    """

    has_secret = True
    identity = ""

    def encrypt(self, vector: Vector | None, level: int | None = None) -> Ct:
        self._require_secret("encrypt")
        return super().encrypt(vector, level)

    @abstractmethod
    def serialize(self, ciphertext: Ct) -> bytes:
        """A ciphertext for a file or the wire."""

    @abstractmethod
    def deserialize(self, data: bytes) -> Ct:
        """The inverse of :meth:`serialize`.

        Raises:
            AtlasError: not a ciphertext of this target, damaged, or made with other keys.
        """

    def _require_secret(self, primitive: str) -> None:
        if not self.has_secret:
            self._refuse(
                primitive,
                "this engine has evaluation keys only: the secret key never leaves the client",
                "use the client's folder",
            )

    def _require_identity(self, found: str) -> None:
        """Refuse a ciphertext of other keys than the engine's."""
        if found != self.identity:
            raise AtlasError(
                "this ciphertext was made with other keys",
                why=f"it belongs to {found[:8]}, the keys are {self.identity[:8]}",
                remedy="encrypt the input again with the client keys of this key set",
            )

    def _require_reach(self, primitive: str, key: str, reach: int, level: int, remedy: str) -> None:
        """Refuse a key switch at a level that its key does not reach; −1 says no key."""
        if reach < level:
            have = "there is no key" if reach < 0 else f"its key reaches only level {reach}"
            self._refuse(primitive, f"{key} at level {level}: {have}", remedy)
