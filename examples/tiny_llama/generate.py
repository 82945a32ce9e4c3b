"""Let the small decoder continue texts.

    python examples/tiny_llama/generate.py "This module provides" "Return the" [--temperature 0.7]

Takes the likeliest token each time, or draws tokens where a temperature is given. Without a prompt
it continues a few openings.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, LlamaForCausalLM

sys.path.append(str(Path(__file__).resolve().parent))
from corpus import MODEL

PROMPTS = (
    "This module provides",
    "If the file does not exist,",
    "The second argument is",
    "When a function is called",
    "Note that the",
    "A class is",
)


def continuation(
    model: LlamaForCausalLM,
    tokenizer: Any,
    prompt: str,
    tokens: int = 48,
    temperature: float = 0.0,
) -> str:
    """The prompt and what the model writes after it, up to the end of a paragraph.

    Args:
        model, tokenizer: as they were saved.
        prompt: the beginning of an English paragraph.
        tokens: the most tokens to add.
        temperature: of the drawing; 0 takes the likeliest token.
    """
    options = {"do_sample": True, "temperature": temperature} if temperature else {}
    written = model.generate(
        **tokenizer(prompt, return_tensors="pt"), max_new_tokens=tokens, **options
    )
    return tokenizer.decode(written[0], skip_special_tokens=True).strip()


def main() -> None:
    """Print a line for each prompt."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prompts", nargs="*")
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--tokens", type=int, default=48, help="most tokens to add")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    model = LlamaForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(options.model, local_files_only=True)
    for prompt in options.prompts or PROMPTS:
        text = continuation(model, tokenizer, prompt, options.tokens, options.temperature)
        print(f"{prompt} |{text[len(prompt) :]}")


if __name__ == "__main__":
    main()
