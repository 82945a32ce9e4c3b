"""The texts of the small decoder, and texts for it that training never saw.

    python examples/tiny_llama/corpus.py texts.txt --count 400

Prints the model's directory. All texts are paragraphs that Python ships: the chapters of its
documentation (`pydoc_data.topics`), and the docstrings and comments of the standard library. A
tenth of them is held out. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "minilm"))
from texts import docstrings, prose, shuffled, sources, topics

MODEL = Path(__file__).resolve().parent / "model"
HELD_OUT = 0.1
"""Share of the paragraphs."""
OPENING = 4
"""Words that decide on which side of the split a paragraph is."""


def comments() -> Iterator[str]:
    """The comments of each module of the standard library that stand on lines of their own."""
    for source in sources(packages=True):
        lines = (re.match(r"\s*#+ ?(.*)", line) for line in source.splitlines())
        yield "\n".join(line[1] if line else "" for line in lines)


def split() -> tuple[list[str], list[str]]:
    """The paragraphs to train on, in their order, and the held-out ones.

    The side of a paragraph follows from the digest of its first words. So paragraphs that differ in
    a word further on are on one side, and a paragraph has the same side in every version of Python.
    Every paragraph is there once. Any part of the held-out ones is a fair sample of all.
    """
    documents = (*topics(), *docstrings(packages=True), *comments())
    found = dict.fromkeys(text for document in documents for text in prose(document))
    training = [text for text in found if not _is_held_out(text)]
    return training, shuffled(found.keys() - training)


def _is_held_out(text: str) -> bool:
    opening = " ".join(text.lower().split()[:OPENING])
    digest = hashlib.sha256(opening.encode()).digest()
    return int.from_bytes(digest[:4], "big") < HELD_OUT * 2**32


def main() -> None:
    """Write the texts and print where the model is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--skip", type=int, default=0, help="texts to leave out at the start")
    options = parser.parse_args()
    texts = split()[1][options.skip :][: options.count]
    if len(texts) < options.count:
        raise SystemExit(f"only {len(texts)} texts are left: lower --count")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text("\n".join(texts) + "\n", encoding="utf-8")
    print(MODEL)


if __name__ == "__main__":
    main()
