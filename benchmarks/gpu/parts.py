"""The parts, in order of worth, for a GPU and for a machine without one."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.gpu import bundles, roles
from benchmarks.gpu.building import build, place_of
from benchmarks.gpu.commands import output_of
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.outcome import Failed, Skipped
from benchmarks.gpu.runner import Part

LARGEST_ERRORS = {"bootstrap": -18.0, "answer": -10.0, "primitive": -18.0}
"""Exponents of errors beyond which a result is wrong: a bootstrap errs by 2^-20."""
ROUNDS = 5
PATIENCE, LEAST_LIMIT = 5, 120
"""A program is stuck after so many times the seconds expected of its part, and at least so many."""


@dataclass(frozen=True)
class Engine:
    """What runs the parts of one engine.

    Attributes:
        name: ``cuda`` or ``phantom``.
        machine: where it runs.
        folder: of builds, bundles and scratch files.
        phantom: the sources of Phantom.
    """

    name: str
    machine: Machine
    folder: Path
    phantom: Path | None = None

    @property
    def programs(self) -> Path:
        """The folder of its programs."""
        return place_of(self.name, self.machine, self.folder)

    @property
    def bundles(self) -> Path:
        """The folder of what was made ahead."""
        return self.folder / "bundles"

    def part(
        self, name: str, title: str, seconds: float, run: Callable[[float], dict[str, float]]
    ) -> Part:
        """A part whose programs are stuck after a limit that follows from its seconds."""
        limit = max(PATIENCE * seconds, LEAST_LIMIT)
        after = f"{self.name}/build"
        return Part(f"{self.name}/{name}", title, seconds, partial(run, limit), after)

    def build(self, seconds: float) -> Part:
        """The part that builds the programs."""

        def run() -> dict[str, float]:
            build(self.name, self.machine, self.folder, self.phantom)
            return {}

        return Part(f"{self.name}/build", "build the engine", seconds, run, always=True)

    def run(self, *words: object, limit: float, **environment: str) -> str:
        """What one of the programs prints."""
        program, *arguments = words
        command = [self.programs / str(program), *arguments]
        return output_of(command, limit, environment=environment)

    def lines(self, *words: object, limit: float, **environment: str) -> list[dict[str, float]]:
        """The same, of a program that prints lines of JSON."""
        printed = self.run(*words, limit=limit, **environment)
        return [json.loads(line) for line in printed.splitlines()]

    # Parts.

    def rates(self, limit: float) -> dict[str, float]:
        """What the device can do at most."""
        return {one["name"]: one["rate"] for one in self.lines("rates", limit=limit)}

    def conformance(self, *words: object, limit: float) -> dict[str, float]:
        """The suite: every line is ok, or the program fails."""
        printed = self.run("conformance", *words, limit=limit).splitlines()
        good = sum(line.startswith("ok ") for line in printed)
        if not good or good != len(printed):
            raise Failed(f"{good} of {len(printed)} checks passed")
        return {"checks": good}

    def conforms(self, limit: float) -> dict[str, float]:
        """Leveled, at two rings."""
        found = [
            self.conformance("leveled", *numbers, limit=limit)
            for numbers in ((14, 6, 1), (15, 12, 2))
        ]
        return {"checks": sum(one["checks"] for one in found)}

    def conforms_bootstrapped(self, limit: float) -> dict[str, float]:
        """With a bootstrap."""
        path = bundles.parameter_set(self.bundles, 16)
        return self.conformance("bootstrapped", path, limit=limit)

    def speeds(self, kind: str, limit: float, graphs: str = "required") -> dict[str, float]:
        """Milliseconds and errors; emulated, errors alone. It fails where CUDA graphs are required
        and do not work.
        """
        emulated = self.machine.emulated
        path = bundles.parameter_set(self.bundles, 11 if emulated else 16)
        rounds = 1 if emulated else ROUNDS
        found = self.lines("speeds", kind, path, rounds, limit=limit, ATLASC_GRAPHS=graphs)
        return speeds_of(found, LARGEST_ERRORS[kind[:-1]], emulated)

    def answers(self, name: str, limit: float) -> dict[str, float]:
        """A compiled program by its two roles."""
        place = bundles.bundle(self.bundles, name)
        found = roles.execute(self.programs, place, self.folder / "scratch", limit)
        require(f"the answer of {name}", found["error"], LARGEST_ERRORS["answer"])
        return found

    def text(self, limit: float) -> dict[str, float]:
        """The small decoder, in Python."""
        place = bundles.bundle(self.bundles, "text")
        remedy = f"install atlasc with ATLASC_ENGINE={self.name}"
        try:
            engines = json.loads(bundles.python("benchmarks.gpu.text", "check", limit=60))
        except Failed as failed:
            raise Skipped(f"atlasc cannot be imported: {failed}; {remedy}") from None
        if self.name not in engines:
            raise Skipped(f"atlasc is installed here with {' and '.join(engines)}; {remedy}")
        printed = bundles.python("benchmarks.gpu.text", "run", place / "bundle", limit=limit)
        expected = json.loads((place / "expected.json").read_text("utf-8"))
        return text_of(json.loads(printed.splitlines()[-1]), expected)

    def launches_of_bootstraps(self, limit: float) -> dict[str, float]:
        """Counted at N = 2^16; nothing is computed."""
        path = bundles.parameter_set(self.bundles, 16)
        found = {}
        for one in self.lines("launches", "bootstraps", path, limit=limit):
            launches, size = work_of(one)
            found |= {f"{one['name']}_launches": launches, f"{one['name']}_bytes": size}
        return found

    def launches(self, name: str, file: str, limit: float) -> dict[str, float]:
        """Of a compiled program, counted; nothing is computed."""
        place = bundles.bundle(self.bundles, name)
        (one,) = self.lines("launches", "program", place / file, limit=limit)
        launches, size = work_of(one)
        return {"launches": launches, "bytes": size, "memory": one["memory"] / 2**30}


def require(what: str, error: float, bound: float) -> None:
    """A wrong result is no figure.

    Raises:
        Failed: the error is beyond the bound.
    """
    if not error <= bound:
        raise Failed(f"{what} is wrong: it errs by 2^{error:.1f}, more than 2^{bound:.1f}")


def speeds_of(
    found: list[dict[str, float]], bound: float, emulated: bool = False
) -> dict[str, float]:
    """Figures of what the program `speeds` prints: keys in seconds, the others in milliseconds.

    Raises:
        Failed: an error is beyond the bound, or nothing was printed.
    """
    figures = {}
    for one in found:
        name = str(one["name"])
        if "log2_error" in one:
            require(name, one["log2_error"], bound)
            figures[f"{name}_error"] = one["log2_error"]
        if not emulated:
            scale = 1e-3 if name == "keys" else 1.0
            figures[name] = one["milliseconds"] * scale
    if not any(name.endswith("_error") for name in figures):
        raise Failed("nothing was compared")
    return figures


def text_of(found: Mapping[str, list[int]], expected: list[int]) -> dict[str, float]:
    """Figures of a text.

    Raises:
        Failed: a token is not the model's.
    """
    if found["ids"] != expected:
        raise Failed(f"the tokens are {found['ids']}, and the model's are {expected}")
    prompt = sum(found["prompt"])
    step = {"step": statistics.median(found["steps"])} if found["steps"] else {}
    return {"keys": found["keys"], "prompt": prompt, **step, "tokens": len(expected)}


def work_of(counted: Mapping[str, dict[str, dict[str, float]]]) -> tuple[float, float]:
    """Launches, and gigabytes, of all kernels."""
    kernels = counted["kernels"].values()
    return sum(one["launches"] for one in kernels), sum(one["bytes"] for one in kernels) * 1e-9


def gpu_parts(machine: Machine, folder: Path, phantom: Path | None, whole: bool) -> list[Part]:
    """Of a machine with a GPU; the seconds are those of an H200 and sixteen processors."""
    cuda = Engine("cuda", machine, folder)
    parts = [
        cuda.build(90),
        cuda.part("rates", "what the device can do at most", 2, cuda.rates),
        *conformance_and_speeds(cuda),
        cuda.part(
            "bootstraps-direct", "the same bootstraps, without CUDA graphs", 20,
            partial(cuda.speeds, "bootstraps", graphs="off"),
        ),
        cuda.part("digits", "an image by the digits' program", 12, partial(cuda.answers, "digits")),
        cuda.part("text", "tiny_llama: a prompt and three steps", 50, cuda.text),
        cuda.part(
            "bert-layer", "a layer of BERT-base's shape, 128 tokens", 40,
            partial(cuda.answers, "bert-layer"),
        ),
    ]  # fmt: skip
    if phantom is not None:
        other = Engine("phantom", machine, folder, phantom)
        parts += [other.build(150), *conformance_and_speeds(other)]
    if whole:
        run = partial(cuda.answers, "bert-base")
        parts.append(cuda.part("bert-base", "all of BERT-base's shape, 128 tokens", 60, run))
    return parts


def conformance_and_speeds(engine: Engine) -> list[Part]:
    """What needs no program."""
    return [
        engine.part("leveled", "the conformance suite without bootstraps", 12, engine.conforms),
        engine.part(
            "bootstrapped", "the conformance suite with bootstraps", 20,
            engine.conforms_bootstrapped,
        ),
        engine.part(
            "primitives", "transforms, products, key switches, rotations", 15,
            partial(engine.speeds, "primitives"),
        ),
        engine.part(
            "bootstraps", "bootstraps of one, of two, and narrow ones", 20,
            partial(engine.speeds, "bootstraps"),
        ),
    ]  # fmt: skip


def emulated_parts(machine: Machine, folder: Path) -> list[Part]:
    """Of a machine without a GPU; the seconds are those of two processors."""
    cuda = Engine("cuda", machine, folder)

    def leveled(limit: float) -> dict[str, float]:
        return cuda.conformance("leveled", 13, 2, 1, limit=limit)

    def counted(name: str, title: str, bundle: str, file: str = "program.safetensors") -> Part:
        title = f"work of {title}, counted"
        return cuda.part(name, title, 5, partial(cuda.launches, bundle, file))

    return [
        cuda.build(150),
        cuda.part("leveled", "the conformance suite at N = 2^13", 5, leveled),
        cuda.part(
            "primitives", "right results of primitives at N = 2^11", 15,
            partial(cuda.speeds, "primitives"),
        ),
        cuda.part(
            "bootstraps", "right results of bootstraps at N = 2^11", 25,
            partial(cuda.speeds, "bootstraps"),
        ),
        cuda.part(
            "bootstrap-work", "work of bootstraps at N = 2^16, counted", 5,
            cuda.launches_of_bootstraps,
        ),
        counted("digits", "the digits' program", "digits"),
        counted("text", "a step of tiny_llama", "text", "bundle/step/server/program.safetensors"),
        counted("bert-layer", "a layer of BERT-base's shape", "bert-layer"),
    ]  # fmt: skip
