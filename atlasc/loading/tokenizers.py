"""The tokenizer beside a model, from files that may come from somebody else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from atlasc.ir.errors import AtlasError, first_line
from atlasc.ir.files.plain import MIB, open_plain
from atlasc.loading.huggingface import quiet_transformers

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.txt", "vocab.json")
FURTHER_FILES = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "merges.txt",
)
MAX_FILE = 256 * MIB


def load_tokenizer(directory: Path) -> PreTrainedTokenizerBase | None:
    """The tokenizer of a directory; None where there is none.

    Raises:
        AtlasError: its files cannot be read.
    """
    if not any((directory / name).is_file() for name in TOKENIZER_FILES):
        return None
    for name in (*TOKENIZER_FILES, *FURTHER_FILES):
        if (directory / name).exists():
            open_plain(directory / name, MAX_FILE).close()
    with quiet_transformers() as transformers, tokenizer_errors(directory):
        tokenizer: PreTrainedTokenizerBase = transformers.AutoTokenizer.from_pretrained(
            str(directory), local_files_only=True, trust_remote_code=False
        )
    return tokenizer


@contextmanager
def tokenizer_errors(directory: Path) -> Iterator[None]:
    """Errors of a tokenizer, panics too, as an AtlasError that names its directory."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the tokenizers library is no Exception
        raise AtlasError(
            "the model's tokenizer cannot be read",
            where=str(directory),
            why=first_line(error),
            remedy="copy the tokenizer files of the original model again",
        ) from error
