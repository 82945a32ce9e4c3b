"""Several queries at once, on one server: are the answers right, and how long do they take?

    python -m benchmarks.threads [--queries 40] [--threads 8] [--beside]

The digits of ``examples/digits_vit``, by a leveled program. All queries are answered one after the
other, and then again by threads that share one server object: the ratio of the times is printed,
and the greatest error of all answers. With ``--beside`` a leveled query is timed alone, and then
while a bootstrapped program (recipe ``is``) answers another one in the same process: 16 GB.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

import numpy as np

import atlasc
from atlasc.api.progress import progress
from atlasc.loading.inputs import Inputs
from atlasc.run.session import simulate

DIGITS = Path(__file__).resolve().parents[1] / "examples/digits_vit"
LEVELED = {"cost": "levels", "space": "paper", "softmax_ranges": "measured"}


class Party:
    """A program with a client, a server, and queries of one image each."""

    def __init__(self, folder: Path, queries: int, **options: str) -> None:
        self.program = atlasc.compile(
            str(DIGITS / "model"), DIGITS / "calibration.npz", batch=1, **options
        )
        atlasc.keygen(self.program, folder)
        self.client = atlasc.Client(self.program, folder)
        self.server = atlasc.Server(self.program, folder)
        self.inputs: Inputs = self.program.inputs(DIGITS / "test.npz").take(range(queries))
        self.queries = [self.client.encrypt(self.inputs.take([n])) for n in range(queries)]
        bundle = self.program.bundle
        (self.expected,) = simulate(bundle.client, bundle.poly, self.inputs.arrays).values()

    def error(self, answers: list[bytes]) -> float:
        """The greatest one of answers to the first queries."""
        found = [next(iter(self.client.decrypt(one).outputs.values()))[0] for one in answers]
        return float(np.abs(np.stack(found) - self.expected[: len(found)]).max())


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--queries", type=int, default=40)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--beside", action="store_true")
    arguments = parser.parse_args()
    with TemporaryDirectory() as scratch:
        with progress("compiling, keys and queries"):
            leveled = Party(Path(scratch) / "leveled", arguments.queries, **LEVELED)
        compare(leveled, arguments.threads)
        if arguments.beside:
            with progress("compiling, keys and a query"):
                bootstrapped = Party(Path(scratch) / "bootstrapped", 1, recipe="is")
            beside(leveled, bootstrapped)


def compare(party: Party, threads: int) -> None:
    """All queries one after the other, and by threads."""
    party.server.execute(party.queries[0])  # encodes what is kept
    started = time.perf_counter()
    answers = [party.server.execute(query) for query in party.queries]
    alone = time.perf_counter() - started
    with ThreadPoolExecutor(threads) as pool:
        started = time.perf_counter()
        shared = list(pool.map(party.server.execute, party.queries))
        together = time.perf_counter() - started
    count = len(answers)
    print(f"{count} queries one after the other: {alone:.1f} s, {alone / count:.2f} s each")
    print(f"by {threads} threads on one server: {together:.1f} s, {alone / together:.2f} x as many")
    print(f"greatest errors: {party.error(answers):.2g} and {party.error(shared):.2g}")


def beside(leveled: Party, bootstrapped: Party) -> None:
    """A leveled query while a bootstrapped one is answered."""

    def seconds() -> float:
        started = time.perf_counter()
        leveled.server.execute(leveled.queries[0])
        return time.perf_counter() - started

    alone = min(seconds() for _ in range(3))
    running, answers = Event(), list[bytes]()

    def answer() -> None:
        answers.append(
            bootstrapped.server.execute(bootstrapped.queries[0], lambda *_: running.set())
        )

    thread = Thread(target=answer)
    thread.start()
    running.wait()
    times = []
    while thread.is_alive():
        times.append(seconds())
    thread.join()
    # The last ones may have run alone.
    busy = times[:-1] or times
    print(f"a leveled query alone: {alone:.2f} s; beside a bootstrapped one: "
          f"{np.median(busy):.2f} s, {np.median(busy) / alone:.2f} x")  # fmt: skip
    print(f"error of the bootstrapped one: {bootstrapped.error(answers):.2g}")


if __name__ == "__main__":
    main()
