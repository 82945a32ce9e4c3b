"""The process of a tokenizer that somebody else wrote; see :mod:`atlasc.loading.bounded_tokenizer`.

It reads one JSON object a line, and writes one a line: first the facts of the tokenizer, then an
answer to each request, or an error.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from atlasc.ir.errors import AtlasError
from atlasc.ir.files import MIB
from atlasc.loading import IDS, SEGMENTS
from atlasc.loading.texts.chat import ChatMessage, messages_of, rendered, template_of
from atlasc.loading.texts.tokenizer import FACTS, ProgramTokenizer, facts_of, read_tokenizer
from atlasc.targets.machine import forbid_core_dumps

MEMORY = 1024 * MIB
"""Bytes that a tokenizer may take, files and texts included."""
MOST_TOKENS = 1 << 22
"""Tokens of one answer."""


def main(folder: Path) -> None:
    """Answer requests on standard input until it ends."""
    forbid_core_dumps()  # texts are private
    try:
        tokenizer = _opened(folder)
        _write({"facts": _facts(tokenizer).model_dump()})
        for line in sys.stdin.buffer:
            _write(_answer(tokenizer, json.loads(line)))
    except AtlasError as error:
        told = {"what": error.what, "where": error.where, "why": error.why, "remedy": error.remedy}
        _write({"error": told})
    except MemoryError:
        _write({"memory": True})
    except Exception as error:
        what = "the model's tokenizer cannot be read"
        _write({"error": {"what": what, "where": str(folder), "why": str(error)}})


def _opened(folder: Path) -> Any:
    """The tokenizer in a folder, read with bounded memory."""
    if (folder / FACTS).is_file():
        import tokenizers  # noqa: F401  its code does not count

        _bound()
        return read_tokenizer(folder)
    from atlasc.loading.model_files.huggingface import load_tokenizer, quiet_transformers

    with quiet_transformers() as transformers:
        _ = transformers.AutoTokenizer
    _bound()
    return load_tokenizer(folder)


def _bound() -> None:
    """Bound the memory of this process from now on. macOS keeps no such bound."""
    if sys.platform != "linux":
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _facts(tokenizer: Any) -> Any:
    return tokenizer.facts if isinstance(tokenizer, ProgramTokenizer) else facts_of(tokenizer)


def _answer(tokenizer: Any, request: Mapping[str, Any]) -> dict[str, Any]:
    if "decode" in request:
        return {"text": tokenizer.decode(request["decode"], **request["options"])}
    if "chat" in request:
        ids = _chat_ids(tokenizer, messages_of(request["chat"]))
        _require_few(len(ids), 1)
        return {"ids": ids}
    if "places" in request:
        known = isinstance(tokenizer, ProgramTokenizer)
        return {"places": tokenizer.places(*request["places"]) if known else []}
    seconds = request["seconds"]
    pairs = () if seconds is None else (seconds,)
    found = tokenizer(request["texts"], *pairs, verbose=False, **request["options"])
    columns = {name: list(found[name]) for name in (IDS, SEGMENTS) if name in found}
    _require_few(sum(map(len, columns[IDS])), len(request["texts"]))
    return {"columns": columns}


def _chat_ids(tokenizer: Any, messages: Sequence[ChatMessage]) -> list[int]:
    """Token ids of a conversation, also of a tokenizer of transformers."""
    if isinstance(tokenizer, ProgramTokenizer):
        return tokenizer.chat_ids(messages)
    text = rendered(template_of(tokenizer), messages)
    return list(tokenizer(text, add_special_tokens=False, verbose=False)[IDS])


def _require_few(count: int, texts: int) -> None:
    if count > MOST_TOKENS:
        raise AtlasError(
            f"the program's tokenizer makes {count} tokens of {texts} texts",
            why=f"at most {MOST_TOKENS} are taken",
            remedy="shorten the texts; if they are short, do not use this bundle",
        )


def _write(answer: Mapping[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
    sys.stdout.buffer.flush()
