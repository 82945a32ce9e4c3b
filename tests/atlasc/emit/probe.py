"""The small program of ``tests/runtime_cuda/fuzz``, as client and server in a folder."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpp_build import SECONDS

from tests.atlasc.emit.cpp import refused, run

SECRET = ("--key", "keys/secret.key")
CLIENT = ("client", "--program", "interface")


@dataclass(frozen=True)
class Bench:
    """A folder in which keys, a query and an answer were made.

    Attributes:
        program: the executable ``probe``.
        folder: its files: keys, program, interface, in, query, answer.
    """

    program: Path
    folder: Path

    @classmethod
    def make(cls, program: Path, folder: Path) -> Bench:
        bench = cls(program, folder)
        for role in ("program", "interface"):
            run([program, role, role], folder)
        run([program, "inputs", "in", 2], folder)
        run(bench.keygen("keys"), folder)
        run(bench.encrypt(), folder)
        run(bench.execute(), folder)
        return bench

    def keygen(self, output: str) -> list[object]:
        return self._command((*CLIENT, "keygen"), {"output": output})

    def encrypt(self, **other: object) -> list[object]:
        given = {"key": "keys/secret.key", "input": "in", "output": "query"} | other
        return self._command((*CLIENT, "encrypt"), given)

    def execute(self, **other: object) -> list[object]:
        given = {"keys": "keys/evaluation.key", "program": "program", "query": "query"}
        return self._command(("server",), {**given, "output": "answer"} | other)

    def decrypt(self, *flags: str, **other: object) -> list[object]:
        given = {"key": "keys/secret.key", "answer": "answer", "output": "out"} | other
        return [*self._command((*CLIENT, "decrypt"), given), *flags]

    def _command(self, role: tuple[str, ...], given: dict[str, Any]) -> list[object]:
        options = [word for name, value in given.items() for word in (f"--{name}", value)]
        return [self.program, *role, *options]

    def run(self, command: list[object]) -> str:
        return run(command, self.folder)

    def refused(self, command: list[object], code: int = 2) -> str:
        """The message of a command that must fail; it leaves nothing behind."""
        before = sorted(self.folder.rglob("*"))
        message = refused(command, self.folder, code)
        assert sorted(self.folder.rglob("*")) == before
        assert "Sanitizer" not in message
        return message

    def probe(self, *words: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = [str(self.program), *map(str, words)]
        return subprocess.run(
            command, cwd=self.folder, input=stdin, capture_output=True, timeout=SECONDS
        )
