"""Writes the files that ``test_formats.py`` reads: a program, keys, a query and its answer; keys
and a ciphertext of the engine ``cpu``. Run it once for each release, and commit the folder:

    python -m tests.atlasc.bundle.formats.make
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import atlasc
from atlasc.program.key_plan import KeyPlan
from atlasc.targets import find_target
from atlasc.targets.base import no_progress
from atlasc.targets.cpu.parameters import CpuParameters

HERE = Path(__file__).resolve().parent
DIGITS = HERE.parents[3] / "examples" / "digits_vit"
PARAMETERS = CpuParameters.choose(1)
PLAN = KeyPlan({1: 1}, relinearization_level=1)
"""Keys of the engine ``cpu``."""


def slots() -> np.ndarray:
    """What the ciphertext of the engine ``cpu`` holds."""
    return np.linspace(-1, 1, PARAMETERS.slots)


def make(folder: Path) -> None:
    """All files of this version, in a new folder."""
    with np.load(DIGITS / "calibration.npz") as file:
        images = file["pixel_values"]
    program = atlasc.compile(str(DIGITS / "model"), images, recipe="is", target="sim")
    program.save(folder / "program")
    atlasc.keygen(program, folder / "keys")
    client = atlasc.Client(program, folder / "keys")
    query = client.encrypt(images[:1])
    (folder / "query").write_bytes(query)
    (folder / "answer").write_bytes(atlasc.Server(program, folder / "keys").execute(query))
    np.savez(folder / "expected.npz", **program.run(images[:1]).outputs)
    for role in ("client", "server"):
        (folder / "cpu" / role).mkdir(parents=True, mode=0o700)
    target = find_target("cpu")
    target.generate_keys(PARAMETERS, PLAN, folder / "cpu", no_progress)
    engine = target.role_engine("client", folder / "cpu" / "client", PARAMETERS)
    (folder / "cpu" / "ciphertext").write_bytes(engine.serialize(engine.encrypt(slots(), 1)))


if __name__ == "__main__":
    make(HERE / atlasc.__version__)
