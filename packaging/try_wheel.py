"""What a wheel is tried with: a small program is made here, and answers elsewhere.

python packaging/try_wheel.py make FOLDER    # needs the compiler
python packaging/try_wheel.py run FOLDER     # needs the wheel alone
python packaging/try_wheel.py refuse FOLDER  # needs a wheel for CUDA with serve, and no GPU
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from importlib.metadata import distributions, files
from pathlib import Path

DIGITS = Path(__file__).resolve().parent.parent / "examples" / "digits_vit"


def make(folder: Path) -> None:
    """A program for the simulator, from the digits: no search, a fixed recipe."""
    import numpy as np

    import atlasc

    with np.load(DIGITS / "calibration.npz") as file:
        images = file["pixel_values"]
    program = atlasc.compile(str(DIGITS / "model"), images, recipe="is", target="sim")
    program.save(folder / "program")
    np.savez(folder / "input.npz", pixel_values=images[:1])
    np.savez(folder / "expected.npz", **program.run(images[:1]).outputs)
    on_gpu = atlasc.compile(str(DIGITS / "model"), images, recipe="is", target="cuda")
    on_gpu.save(folder / "program-cuda")


def run(folder: Path) -> None:
    """Answer a query with the commands of the installed wheel, and one on ciphertexts of its own
    engine.
    """
    import numpy as np

    import atlasc
    from atlasc.program.key_plan import KeyPlan
    from atlasc.targets.base import no_progress
    from atlasc.targets.cpu.engine import CpuEngine
    from atlasc.targets.cpu.parameters import CpuParameters

    if Path(atlasc.__file__).is_relative_to(DIGITS.parent.parent):
        sys.exit("the sources were imported, not the wheel")
    require_listed()
    command = str(Path(sys.executable).parent / "atlasc")
    with tempfile.TemporaryDirectory() as place:
        program, keys = folder / "program", Path(place) / "keys"
        given = ("--input", folder / "input.npz", "--keys", keys / "client")
        query, answer = Path(place) / "query", Path(place) / "answer"
        for words in (
            ("keygen", program, "-o", keys),
            ("encrypt", program, *given, "-o", query),
            ("execute", program, "--keys", keys / "server", "--query", query, "-o", answer),
            ("decrypt", program, "--keys", keys / "client", "--answer", answer,
             "-o", Path(place) / "found.npz"),
        ):  # fmt: skip
            subprocess.run([command, *map(str, words)], check=True)
        with np.load(folder / "expected.npz") as expected, np.load(f"{place}/found.npz") as found:
            for name in expected.files:
                np.testing.assert_allclose(found[name], expected[name], atol=1e-3)
    # A product of ciphertexts, with the engine that the wheel carries.
    parameters = CpuParameters.choose(2)
    engine = CpuEngine.fresh(parameters, KeyPlan({}, relinearization_level=2), no_progress)
    slots = np.linspace(-1, 1, parameters.slots)
    x = engine.encrypt(slots, 2)
    np.testing.assert_allclose(engine.decrypt(engine.mul(x, x)), slots**2, atol=1e-5)


def refuse(folder: Path) -> None:
    """The commands refuse a program for a GPU with one message, and exit code 2."""
    command = str(Path(sys.executable).parent / "atlasc")
    with tempfile.TemporaryDirectory() as place:
        for words in (
            ("serve", "--state", f"{place}/state"),
            ("execute", "--keys", place, "--query", place, "-o", f"{place}/answer"),
        ):
            given = [command, words[0], str(folder / "program-cuda"), *words[1:]]
            done = subprocess.run(given, capture_output=True, text=True)
            said = done.stderr.count("error:") == 1 and "there is no CUDA device" in done.stderr
            if done.returncode != 2 or done.stdout or not said or "Traceback" in done.stderr:
                sys.exit(f"{words[0]} ended with {done.returncode}:\n{done.stderr}")
        print(done.stderr)


def require_listed() -> None:
    """End unless the wheel's bill of materials lists everything that was installed with it."""
    [bill] = [one for one in files("atlasc") or () if one.name == "atlasc.cdx.json"]
    listed = {one.get("purl") for one in json.loads(bill.read_text())["components"]}
    for one in distributions():
        purl = f"pkg:pypi/{re.sub('[-_.]+', '-', one.name).lower()}@{one.version}"
        if one.name not in ("atlasc", "pip", "setuptools") and purl not in listed:
            sys.exit(f"the bill of materials lacks {purl}")


if __name__ == "__main__":
    {"make": make, "run": run, "refuse": refuse}[sys.argv[1]](Path(sys.argv[2]))
