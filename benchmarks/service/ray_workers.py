"""One data set of several batches on one and on two Ray workers, each as slow as ``cpu``."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import atlasc
from atlasc.run.session import simulate
from atlasc.service.store import Store
from atlasc.service.tokens import add_token
from benchmarks.service.party import Service
from benchmarks.service.slept import install, slept_copy

BATCHES = 8
TOLERANCE = 1e-3


def compare(bundle: Path, data: Path, scratch: Path) -> dict[str, Any]:
    """Seconds of the data set by the number of workers, after each worker answered once.

    Args:
        bundle: for target ``cpu``, without bootstraps.
        data: an .npz of inputs.
        scratch: an empty folder.
    """
    install(scratch)
    sys.path.insert(0, str(scratch))
    slept = slept_copy(bundle, scratch / "bundle")
    program = atlasc.load(slept).bundle
    with np.load(data) as file:
        rows = {name: file[name][: BATCHES * program.batch] for name in file.files}
    expected = simulate(program.client, program.poly, program.load_inputs(rows).arrays)
    seconds = {count: _answer(slept, rows, expected, count, scratch) for count in (1, 2)}
    return {
        "batches": BATCHES, "predicted_seconds_of_one": program.manifest.costs.get("seconds"),
        "seconds_by_workers": seconds, "ratio": seconds[2] / seconds[1],
    }  # fmt: skip


def _answer(
    bundle: Path,
    rows: dict[str, np.ndarray],
    expected: dict[str, np.ndarray],
    workers: int,
    scratch: Path,
) -> float:
    service = Service(
        bundle, scratch / f"workers-{workers}",
        "--workers", f"ray{{count={workers},address=local}}", path=scratch,
    )  # fmt: skip
    try:
        service.ready(workers)
        store = Store(service.state)
        token = add_token(store, "tenant")
        store.close()
        folder = scratch / f"client-{workers}"
        with atlasc.connect(  # the target sleeps and encrypts nothing
            service.url, token=token, folder=folder, allow_simulation=True, progress=False
        ) as client:
            batch = client.bundle.batch
            client.query({n: y[: workers * batch] for n, y in rows.items()}, progress=False)
            before = len(service.log)
            begun = time.monotonic()
            found = client.query(rows, progress=False).outputs
            seconds = time.monotonic() - begun
        used = {line.get("worker") for line in service.log[before:] if line["event"] == "job ended"}
        if used != set(range(workers)):
            raise RuntimeError(f"jobs ran on the workers {used} alone")
        for name, values in found.items():
            if not float(np.abs(values - expected[name]).max()) < TOLERANCE:
                raise RuntimeError(f"{name} is wrong")
        return seconds
    finally:
        service.stop()
