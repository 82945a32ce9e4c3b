"""Handwritten digits, recognised without being seen.

    python examples/digits_vit/demo.py [--target sim] [--images 8]

Compiles the Vision Transformer in `model/` to a program on ciphertexts, encrypts images that
training never saw, runs the program, decrypts the answers, and compares them with the original
model and with the program's polynomials evaluated in the clear. `make demo` calls it.

Exit code 0: all encrypted answers are the original model's, and no logit differs from the
polynomials' by more than 1e-2. Exit code 1: they are not.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from atlasc.api.progress import progress
from atlasc.cli.output import print_table, reported

if TYPE_CHECKING:
    import numpy as np

    from atlasc.bundle.folder import Bundle
    from atlasc.loading.inputs import Inputs
    from atlasc.run.session import RunResult

HERE = Path(__file__).parent
LARGEST_DIFFERENCE = 1e-2
"""Of an encrypted logit from the polynomials' one."""


def demo(
    target: Annotated[
        str, typer.Option(help="cpu and desilo encrypt; sim shows the same in seconds.")
    ] = "cpu",
    images: Annotated[int, typer.Option(min=1, max=64, help="How many test images.")] = 16,
) -> None:
    """Compile a Vision Transformer and recognise encrypted digits."""
    from atlasc.targets import find_target

    with reported():
        find_target(target).check()  # a missing library is said at once, not after a minute
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as scratch:
            bundle, inputs, labels = compile_model(Path(scratch) / "digits", target, images)
            answer = recognise(bundle, inputs, target)
        good = show(bundle, inputs, labels, answer, time.monotonic() - started)
    raise typer.Exit(0 if good else 1)


def compile_model(folder: Path, target: str, images: int) -> tuple[Bundle, Inputs, np.ndarray]:
    """The bundle, the first test images, and what the original model says of them."""
    import torch

    from atlasc.compilation.compile import compile_model as write_bundle
    from atlasc.compilation.options import CompileOptions
    from atlasc.loading.data import inputs_of

    options = CompileOptions(
        target=target, batch=images, cost="levels", space="paper", softmax_ranges="measured"
    )
    data = HERE / "calibration.npz"
    bundle, prepared, _ = write_bundle(str(HERE / "model"), data, folder, options, progress)
    model = prepared.source.model
    inputs = inputs_of(HERE / "test.npz", model).take(range(images))
    with torch.inference_mode():
        logits = model.module(torch.from_numpy(inputs.arrays["pixel_values"])).logits
    return bundle, inputs, logits.argmax(dim=1).numpy()


def recognise(bundle: Bundle, inputs: Inputs, target: str) -> RunResult:
    """Encrypt the images, run the program on the ciphertexts, and decrypt the answers."""
    from atlasc.run import session

    return session.run(bundle, inputs.arrays, target, steps=progress)


def show(
    bundle: Bundle, inputs: Inputs, labels: np.ndarray, answer: RunResult, seconds: float
) -> bool:
    """Print the table and what the run cost; whether all answers are right."""
    assert inputs.labels is not None
    encrypted = answer.outputs["logits"]
    differences = abs(encrypted - answer.expected["logits"]).max(axis=1)
    answers = encrypted.argmax(axis=1)
    print_table(
        ["image", "", "true label", "cleartext answer", "encrypted answer", "logit difference"],
        [
            [
                inputs.names[row],
                Text(drawing(inputs.arrays["pixel_values"][row, 0])),
                int(inputs.labels[row]),
                int(labels[row]),
                int(answers[row]),
                float(differences[row]),
            ]
            for row in range(len(inputs))
        ],
    )
    costs, settings = bundle.manifest.costs, bundle.manifest.settings
    phases = ", ".join(f"{name} {spent:.1f}" for name, spent in answer.seconds.items())
    agree = int((answers == labels).sum())
    print(f"polynomials found by the search (softmax p1..p5, norms, GELU): {settings['layers'][0]}")
    print(f"encrypted answers that are the cleartext model's: {agree} of {len(inputs)}")
    print(f"worst logit difference to the polynomials in the clear: {differences.max():.2g}")
    print(
        f"levels {costs['levels_total']}, bootstraps {costs['bootstraps']}, "
        f"security {bundle.manifest.security_bits} bits, backend {answer.target}"
    )
    print(f"seconds: {phases}; everything {seconds:.1f}")
    return agree == len(inputs) and bool(differences.max() <= LARGEST_DIFFERENCE)


def drawing(pixels: np.ndarray) -> str:
    """An image [8, 8] in [0, 1] as two lines of four Braille characters."""
    dots = ((0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (3, 0), (3, 1))  # bits of U+2800
    lines = []
    for top in range(0, pixels.shape[0], 4):
        cells = [
            sum((pixels[top + y, left + x] > 0.4) << bit for bit, (y, x) in enumerate(dots))
            for left in range(0, pixels.shape[1], 2)
        ]
        lines.append("".join(chr(0x2800 + int(cell)) for cell in cells))
    return "\n".join(lines)


app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
app.command()(demo)

if __name__ == "__main__":
    app()
