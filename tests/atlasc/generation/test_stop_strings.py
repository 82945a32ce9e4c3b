"""Stop strings end a text where those of transformers do, whatever the tokens look like."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.generation import StopStringCriteria

from atlasc.compilation.compile import compile_model
from atlasc.compilation.options import CompileOptions
from atlasc.generation.ends import Ends
from atlasc.ir.errors import AtlasError
from atlasc.loading.generation.settings import Settings
from tests.atlasc.generation.conftest import VOCABULARY
from tests.atlasc.generation.test_folders import WINDOW, llama

PARTS = ["a", "b", "ab", "ba", "stop", "st", "op", "p", "é", "漢", "."]
STRINGS = ["stop", "ab a", "é", "a漢", "p.", "<end>", "\N{GRINNING FACE}", " b"]
TEXTS, LENGTH, PROMPT = 60, 24, 6


def bytes_() -> Tokenizer:
    """Tokens of bytes, as of GPT-2: a character may take several."""
    words = sorted(pre_tokenizers.ByteLevel.alphabet())
    encoded = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
    words += ["".join(part for part, _ in encoded(one)) for one in (*PARTS, " st", " a", "top")]
    words = list(dict.fromkeys(words))
    found = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, []))
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    return found


def pieces() -> Tokenizer:
    """Pieces with a sign for a space, and bytes of what has no piece, as of LLaMA."""
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"cdeft"]
    words = list(dict.fromkeys([*words, *PARTS, "▁st", "▁a", "top", "▁b"]))
    vocabulary = {word: number for number, word in enumerate(words)}
    found = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    found.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ])  # fmt: skip
    return found


def subwords() -> Tokenizer:
    """Words, and parts inside of words, as of BERT."""
    words = ["[UNK]", "abcdef", *PARTS, *(f"##{one}" for one in PARTS)]
    vocabulary = {word: number for number, word in enumerate(words)}
    found = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    found.decoder = decoders.WordPiece(cleanup=False)
    return found


@pytest.mark.parametrize("make", [bytes_, pieces, subwords])
def test_texts_end_where_they_do_in_transformers(make: Any) -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=make(), eos_token="<end>")
    random, ended = np.random.default_rng(0), 0
    likely = [n for word, n in tokenizer.get_vocab().items() if not word.startswith("<0x")]
    # The bytes of a face, of which each takes a token.
    face = [tokenizer.convert_tokens_to_ids(f"<0x{byte:02X}>") for byte in STRINGS[6].encode()]
    if make is bytes_:
        face = tokenizer(STRINGS[6]).input_ids
    for strings in (STRINGS[:1], STRINGS[1:5], STRINGS[5:]):
        ends = Ends(Settings(stop_strings=tuple(strings)), SimpleNamespace(tokenizer=tokenizer))  # type: ignore[arg-type]
        criteria = StopStringCriteria(tokenizer, strings)
        for _ in range(TEXTS):
            ids = [int(one) for one in random.choice(likely, LENGTH)]
            if make is not subwords and random.random() < 0.5:
                place = int(random.integers(LENGTH))
                ids[place : place + len(face)] = face
            places = range(PROMPT + 1, len(ids) + 1)
            wanted = next((n for n in places if criteria(torch.tensor([ids[:n]]), None)), None)
            assert ends.place(ids, PROMPT) == wanted, tokenizer.decode(ids)
            ended += wanted is not None
    assert TEXTS / 4 < ended < 3 * TEXTS


def test_stop_strings_need_a_tokenizer(tmp_path: Path) -> None:
    """It is missed before any work."""
    module, ids = llama(), np.random.default_rng(0).integers(1, VOCABULARY, (8, WINDOW))
    module.generation_config.update(stop_strings=["a"])
    options = CompileOptions(recipe="is", target="sim", generate=True)
    with pytest.raises(AtlasError, match="stop_strings cannot be applied without a tokenizer"):
        compile_model(module, {"input_ids": ids}, tmp_path / "bundle", options)
