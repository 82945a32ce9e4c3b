"""The tokenizer of a bundle, in a process of its own with bounds on memory and time.

A bundle comes from somebody else. A tokenizer of some hundred bytes can make gigabytes of one
letter, or search for hours; the library that runs it then ends the whole process. So a client does
not run it in its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.files import MIB
from atlasc.loading.texts.chat import ChatMessage
from atlasc.loading.texts.tokenizer import FACTS, TokenizerFacts, require_library
from atlasc.loading.tokenizer_process import MEMORY

SECONDS = 120.0
"""Longest time of one answer."""
TOGETHER, CHARACTERS = 256, 1 << 20
"""Texts of one request, and characters from which on it is sent."""
LARGEST = 128 * MIB
"""Most bytes of an answer."""
_CODE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); from pathlib import Path; "
    "from atlasc.loading.tokenizer_process import main; main(Path(sys.argv[1]))"
)
_Columns = TypeAdapter(dict[str, list[list[int]]])
_Ids = TypeAdapter(list[int])
_Places = TypeAdapter(list[tuple[int, int, int]])


class BoundedTokenizer:
    """Token ids of texts and of pairs, as :class:`ProgramTokenizer` gives them.

    Args:
        folder: of the tokenizer's files.

    Attributes:
        facts: see :class:`TokenizerFacts`.

    Raises:
        AtlasError: here and in each call: the tokenizer cannot be read, or takes too much memory or
            time.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()
        if (folder / FACTS).is_file():
            require_library()
        self._start()

    def __getattr__(self, name: str) -> Any:
        if name in TokenizerFacts.model_fields:
            return getattr(self.facts, name)
        raise AttributeError(name)

    def __call__(
        self,
        texts: Sequence[str],
        seconds: Sequence[str] | None = None,
        *,
        truncation: str | bool = False,
        max_length: int | None = None,
        verbose: bool = True,
    ) -> dict[str, list[list[int]]]:
        """Tokenize as the tokenizer of transformers does, with these arguments."""
        options = {"truncation": truncation, "max_length": max_length}
        columns: dict[str, list[list[int]]] = {}
        for part in _parts(texts, seconds):
            request = {"texts": texts[part], "seconds": seconds and seconds[part]}
            found = self._ask({**request, "options": options}).get("columns")
            with explained("the tokenizer gives no token ids", self._folder):
                for name, column in _Columns.validate_python(found, strict=True).items():
                    columns.setdefault(name, []).extend(column)
        return columns

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of token ids."""
        options = {"skip_special_tokens": skip_special_tokens}
        return str(self._ask({"decode": list(ids), "options": options})["text"])

    def chat_ids(self, messages: Sequence[ChatMessage]) -> list[int]:
        """See :meth:`ProgramTokenizer.chat_ids`."""
        found = self._ask({"chat": [one.model_dump() for one in messages]}).get("ids")
        with explained("the tokenizer gives no token ids", self._folder):
            return _Ids.validate_python(found, strict=True)

    def places(self, first: str, second: str, length: int) -> list[tuple[int, int, int]]:
        """See :meth:`ProgramTokenizer.places`; none if the tokenizer cannot say."""
        found = self._ask({"places": [first, second, length]}).get("places")
        with explained("the tokenizer gives no places of tokens", self._folder):
            return _Places.validate_python(found)

    def _start(self) -> None:
        """Start the process. It finds modules where this one does, and nowhere else."""
        path = json.dumps([place or os.getcwd() for place in sys.path])
        alone = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _CODE, str(self._folder), path],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, **alone, "MALLOC_ARENA_MAX": "1"},
        )  # fmt: skip
        self._end = weakref.finalize(self, _ended, self._process)
        with explained("the model's tokenizer cannot be read", self._folder):
            self.facts = TokenizerFacts.model_validate(self._exchange(b"").get("facts"))

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            if not self._end.alive:
                self._start()
            return self._exchange(json.dumps(request).encode() + b"\n")

    def _exchange(self, request: bytes) -> dict[str, Any]:
        process, late = self._process, threading.Event()
        assert process.stdin is not None and process.stdout is not None

        def stop() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(SECONDS, stop)
        timer.daemon = True
        timer.start()
        line = b""
        try:
            process.stdin.write(request)
            process.stdin.flush()
            line = process.stdout.readline(LARGEST)
        except OSError:  # it has ended
            pass
        finally:
            timer.cancel()
        answer: dict[str, Any] = json.loads(line) if line.endswith(b"\n") else {"memory": True}
        if "error" not in answer and "memory" not in answer:
            return answer
        self._end()
        if "error" in answer:
            raise AtlasError(**answer["error"])
        most = f"{SECONDS:.0f} s" if late.is_set() else f"{MEMORY >> 20} MiB of memory"
        raise AtlasError(
            "the program's tokenizer was stopped",
            where=str(self._folder),
            why=f"it takes more than {most}, or fails",
            remedy="shorten the texts; if they are short, do not use this bundle",
        )


def _parts(texts: Sequence[str], seconds: Sequence[str] | None) -> list[slice]:
    """The texts in parts for one request each."""
    starts, size = [0], 0
    for at, text in enumerate(texts):
        if at - starts[-1] == TOGETHER or size > CHARACTERS:
            starts.append(at)
            size = 0
        size += len(text) + (0 if seconds is None else len(seconds[at]))
    return [slice(*ends) for ends in zip(starts, [*starts[1:], len(texts)], strict=True)]


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # what was not written is not wanted
                pipe.close()
