"""Some inputs and what the user's own module answers, which stay with the owner of a program.

They are data of calibration in the clear. So they lie in a part of their own, ``owner/``: no role
needs it, ``atlasc split`` and a service leave it out, and a bundle without it is whole.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from atlasc.bundle.folder import Bundle
from atlasc.bundle.manifest import require_unchanged
from atlasc.files import write_private
from atlasc.ir.arrays.tensor_files import TensorFile
from atlasc.ir.errors import AtlasError

OWNER = "owner"
KEPT = f"{OWNER}/answers.safetensors"
INPUT, ANSWER, SALT = "input.", "answer.", "salt"


class Kept(NamedTuple):
    """Inputs by name, and the module's answers by the name of the output, each ``[inputs, ...]``.
    The answers come after the model's final functions.
    """

    inputs: dict[str, np.ndarray]
    answers: dict[str, np.ndarray]


def write_kept(
    draft: Path, inputs: Mapping[str, np.ndarray], answers: Mapping[str, np.ndarray], secret: str
) -> None:
    """Write the file of inputs and answers into the folder of a bundle.

    The manifest, which a server has too, names the file's SHA-256. A ``secret`` that servers do not
    know goes into the file, so that nobody finds an input by trying whether its digest is this one.
    """
    from safetensors.numpy import save_file

    arrays = {f"{INPUT}{name}": np.ascontiguousarray(one) for name, one in inputs.items()}
    arrays |= {f"{ANSWER}{name}": np.ascontiguousarray(one) for name, one in answers.items()}
    salt = hashlib.sha256(f"kept {secret}".encode()).digest()
    arrays[SALT] = np.frombuffer(salt, np.uint8)
    (draft / OWNER).mkdir()
    write_private(draft / KEPT, lambda path: save_file(arrays, path))


def kept_of(bundle: Bundle) -> Kept | None:
    """What a bundle keeps; None if it keeps nothing, or the owner's part is not here.

    Raises:
        AtlasError: the file was changed, is damaged, or does not fit the program.
    """
    path, expected = bundle.folder / KEPT, bundle.manifest.files.get(KEPT)
    if expected is None or not os.path.lexists(path):
        return None
    remedy = "restore the file, or remove the folder: programs run without it"
    require_unchanged(path, expected, remedy)
    file = TensorFile(path)
    found = {name: np.asarray(file.array(name)) for name in file.entries if name != SALT}
    inputs, answers = (
        {n.removeprefix(start): one for n, one in found.items() if n.startswith(start)}
        for start in (INPUT, ANSWER)
    )
    counts = {len(one) if one.ndim else 0 for one in found.values()}
    if not inputs or not answers or len(counts) != 1 or 0 in counts:
        raise AtlasError(
            f"{path} is damaged", why="it has no inputs with answers", remedy="compile again"
        )
    return Kept(inputs, answers)
