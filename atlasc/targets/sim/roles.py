"""Client and server of the simulator, whose ciphertexts travel as safetensors files."""

from __future__ import annotations

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.passes.execution.engine import Vector, refuse
from atlasc.targets.key_folders import KeyIndex
from atlasc.targets.parameters import ParameterSet
from atlasc.targets.sim.engine import SimCiphertext, SimEngine

NOTE = "SIMULATION: nothing is encrypted; this hides nothing and protects nobody"
"""In every file that a person may open."""


class SimRole(SimEngine):
    """The client or the server of a simulated key set; each refuses what takes the other's keys.

    Args:
        parameters: of the program.
        index: of the role's folder of keys.
    """

    def __init__(self, parameters: ParameterSet, index: KeyIndex) -> None:
        keys = dict(index.plan.rotations)
        if index.role == "server":  # the key of the bootstrap serves rotations too
            keys |= dict.fromkeys(parameters.bootstrap_rotations, parameters.max_level)
        super().__init__(
            parameters.slots,
            parameters.max_level,
            parameters.bootstrap_level,
            bootstrap_batch=parameters.bootstrap_batch,
            rotation_keys=keys,
        )
        self.identity, self.role = index.identity, index.role

    def encrypt(self, vector: Vector, level: int | None = None) -> SimCiphertext:
        """The client encrypts at ``level``, by default at the top."""
        self._require_client("encrypt")
        return super().encrypt(vector, level)

    def decrypt(self, ciphertext: SimCiphertext) -> Vector:
        """The client sees the slots."""
        self._require_client("decrypt")
        return super().decrypt(ciphertext)

    def serialize(self, ciphertext: SimCiphertext) -> bytes:
        """Slots, level and identity, under a header that says that they are not encrypted."""
        from safetensors.numpy import save

        arrays = {
            "slots": np.ascontiguousarray(ciphertext.values.real),
            "level": np.array(ciphertext.level, dtype=np.int64),
            "keys": np.frombuffer(bytes.fromhex(self.identity), np.uint8),
        }
        return save(arrays, {"note": NOTE})

    def deserialize(self, data: bytes) -> SimCiphertext:
        """The inverse of :meth:`serialize`.

        Raises:
            AtlasError: no simulated ciphertext, of other parameters, or made with other keys.
        """
        from safetensors.numpy import load

        wanted = {"slots": ("<f8", (self.slots,)), "level": ("<i8", ()), "keys": ("|u1", (16,))}
        try:
            arrays = load(data)
        except Exception as error:  # SafetensorError, and whatever NumPy makes of odd types
            why = (str(error).splitlines() or [type(error).__name__])[0]
            raise AtlasError("this is not a ciphertext of the target sim", why=why) from None
        found = {name: (array.dtype.str, array.shape) for name, array in arrays.items()}
        if found != wanted or not 0 <= (level := int(arrays["level"])) <= self.max_level:
            raise AtlasError(
                "this is not a ciphertext of the target sim",
                why=f"it has not {self.slots} slots and a level up to {self.max_level}",
            )
        if (identity := arrays["keys"].tobytes().hex()) != self.identity:
            raise AtlasError(
                "this ciphertext was made with other keys",
                why=f"it belongs to {identity[:8]}, the keys are {self.identity[:8]}",
                remedy="encrypt the input again with the client keys of this key set",
            )
        return SimCiphertext(arrays["slots"], level)

    def _require_client(self, primitive: str) -> None:
        if self.role != "client":
            refuse(
                primitive,
                "this engine has evaluation keys only: the secret key never leaves the client",
                "use the client's folder",
            )
