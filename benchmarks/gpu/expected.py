"""For a compiled program its first input, prepared, and the answer by its polynomials.

python -m benchmarks.gpu.expected BUNDLE DATA FOLDER
python -m benchmarks.gpu.expected --shape LAYERS FOLDER     BERT-base's shape, random weights
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from atlasc.bundle.folder import load_bundle
from atlasc.run.session import simulate_both
from benchmarks.he_bert import true_shape


def main() -> None:
    """Command line."""
    if sys.argv[1] == "--shape":
        true_shape.write(Path(sys.argv[3]), int(sys.argv[2]))
        return
    place, data, folder = map(Path, sys.argv[1:])
    inputs = folder / "inputs.safetensors"
    words = ("embed", place, "--input", data, "--index", 0, "--quiet", "-o", inputs)
    subprocess.run([sys.executable, "-m", "atlasc", *map(str, words)], check=True)
    bundle = load_bundle(place)
    exact, _ = simulate_both(bundle.client, bundle.poly, bundle.load_inputs(data).take([0]).arrays)
    arrays = {name: np.ascontiguousarray(one, np.float64) for name, one in exact.items()}
    save_file(arrays, folder / "expected.safetensors")


if __name__ == "__main__":
    main()
