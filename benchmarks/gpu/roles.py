"""A compiled program by its two roles in C++: keys, query, answer, and the answer's error."""

from __future__ import annotations

import json
import math
import re
import struct
import time
from array import array
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.gpu.commands import output_of
from benchmarks.gpu.outcome import Failed

MOST_HEADER = 2**20


def read_tensors(path: Path) -> dict[str, array[float]]:
    """The arrays of a safetensors file of doubles, flat; nothing but Python is needed.

    Raises:
        Failed: it has other numbers, or is damaged.
    """
    content = path.read_bytes()
    try:
        (size,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + min(size, MOST_HEADER)])
        found = {}
        for name, one in header.items():
            if name != "__metadata__":
                if one["dtype"] != "F64":
                    raise Failed(f"{path}: {name} has numbers of kind {one['dtype']}")
                begin, end = one["data_offsets"]
                found[name] = array("d", content[8 + size + begin : 8 + size + end])
    except (struct.error, ValueError, KeyError, TypeError, AttributeError):
        raise Failed(f"{path} is no safetensors file") from None
    return found


def relative_error(found: Path, expected: Path) -> float:
    """The greatest error of all outputs by the greatest expected number, as a power of two.

    Raises:
        Failed: an output is missing, has another size, or is not finite.
    """
    ours, theirs = read_tensors(found), read_tensors(expected)
    worst = greatest = 0.0
    for name, numbers in theirs.items():
        if len(ours.get(name, ())) != len(numbers):
            raise Failed(f"the answer has no output {name} of {len(numbers)} numbers")
        for one, right in zip(ours[name], numbers):
            if not math.isfinite(one):
                raise Failed(f"the answer's {name} is not finite")
            worst, greatest = max(worst, abs(one - right)), max(greatest, abs(right))
    if greatest == 0.0:
        raise Failed(f"{expected} has no numbers but 0")
    return math.log2(max(worst / greatest, 2.0**-99))


def execute(programs: Path, bundle: Path, scratch: Path, limit: float) -> dict[str, float]:
    """Seconds to make keys and to compute, and the error.

    Args:
        programs: the folder of `client` and `server`.
        bundle: what :mod:`benchmarks.gpu.bundles` wrote.
        scratch: for keys and messages, gigabytes; it is empty afterwards.
        limit: seconds for each program.

    Raises:
        Failed: a program failed, or the answer is none.
    """
    client = (programs / "client", "--program", bundle / "interface.safetensors")
    server = (programs / "server", "--program", bundle / "program.safetensors")
    scratch.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=scratch) as folder:
        place = Path(folder)
        keys, query, answer, outputs = (place / n for n in ("keys", "query", "answer", "outputs"))
        secret = ("--key", keys / "secret.key")
        begun = time.monotonic()
        output_of([*client, "keygen", "--output", keys], limit)
        made = time.monotonic() - begun
        given = ("--input", bundle / "inputs.safetensors")
        output_of([*client, "encrypt", *secret, *given, "--output", query], limit)
        files = ("--keys", keys / "evaluation.key", "--query", query, "--output", answer)
        said = output_of([*server, *files], limit, errors=True)
        taken = re.search(r"executed in ([-+.\de]+) s", said)
        if taken is None:
            raise Failed("the server does not say its seconds")
        # An answer outside its range has a figure too: its error.
        written = ("--answer", answer, "--output", outputs, "--unchecked")
        output_of([*client, "decrypt", *secret, *written], limit)
        error = relative_error(outputs, bundle / "expected.safetensors")
    return {"keys": made, "seconds": float(taken[1]), "error": error}
