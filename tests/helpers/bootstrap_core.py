"""The program tests/runtime_cuda/bootstrap/core.cpp, whose source tells its commands."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ckks_ring import Complexes, Reals


@dataclass(frozen=True)
class Core:
    """Prints what the numerical core of bootstrapping computes."""

    program: Path

    def run(self, *arguments: object, stdin: bytes = b"", fails: bool = False) -> bytes:
        words = [str(self.program), *(str(argument) for argument in arguments)]
        done = subprocess.run(words, input=stdin, capture_output=True)
        assert done.returncode == (2 if fails else 0), done.stderr.decode()
        return done.stderr if fails else done.stdout

    def numbers(self, *arguments: object) -> list[list[float]]:
        """Lines of numbers."""
        lines = self.run(*arguments).decode().splitlines()
        return [[float(word) for word in line.split()] for line in lines]

    def facts(self, *arguments: object) -> dict[str, list[float]]:
        """Lines of a name and numbers."""
        lines = [line.split() for line in self.run(*arguments).decode().splitlines()]
        return {name: [float(word) for word in words] for name, *words in lines}

    def transform(self, slots: Complexes, *arguments: object) -> Complexes:
        return np.frombuffer(self.run("transform", *arguments, stdin=slots.tobytes()), complex)

    def reduce(self, x: Reals, *arguments: object) -> Reals:
        return np.frombuffer(self.run("reduce", *arguments, stdin=x.tobytes()))
