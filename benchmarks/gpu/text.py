"""The small decoder's text on ciphertexts: keys, the prompt and a few steps, timed one by one.

python -m benchmarks.gpu.text check               says the engine of this installation
python -m benchmarks.gpu.text expected MODEL      the tokens of the model in the clear, as JSON
python -m benchmarks.gpu.text run BUNDLE          JSON: seconds, and tokens
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import atlasc
from atlasc.api.generation import step_server, text_client
from atlasc.api.roles import make_keys
from atlasc.bundle.folder import load_bundle
from atlasc.generation.steps import TextBundles
from atlasc.runtime.native import load_library
from benchmarks.gpu.bundles import PROMPT, TOKENS


def expected(model: Path) -> list[int]:
    """Greedily, without encryption."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    decoder = AutoModelForCausalLM.from_pretrained(model)
    given = tokenizer(PROMPT, return_tensors="pt")
    found = decoder.generate(**given, max_new_tokens=TOKENS, do_sample=False)
    return found[0, given["input_ids"].shape[1] :].tolist()


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of a call, and its result."""
    begun = time.perf_counter()
    found = call()
    return time.perf_counter() - begun, found


def run(place: Path) -> dict[str, Any]:
    """All roles in this process."""
    bundle, prompts, steps = load_bundle(place), [], []
    with TemporaryDirectory(prefix="atlasc-gpu-") as folder:
        keys = Path(folder) / "keys"
        making, _ = timed(lambda: make_keys(TextBundles.of(bundle).step, keys))
        with (
            text_client(bundle, keys, None, PROMPT, steps=TOKENS, until_end=True) as client,
            step_server(bundle, keys, None) as server,
        ):
            while not client.finished and not client.ended:
                of_prompt = client.computes_prompt or client.done < client.record.prompt - 1
                seconds, _ = timed(lambda: client.receive(server.answer(client.request())))
                (prompts if of_prompt else steps).append(seconds)
            return {"keys": making, "prompt": prompts, "steps": steps, "ids": client.result.ids}


def main() -> None:
    """Command line."""
    command, *places = sys.argv[1:]
    found: Any
    if command == "check":
        found = load_library().engines
    else:
        found = (expected if command == "expected" else run)(Path(places[0]))
    print(json.dumps(found))


if __name__ == "__main__":
    try:
        main()
    except atlasc.AtlasError as error:
        raise SystemExit(f"error: {error}") from error
