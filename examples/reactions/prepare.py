"""A BERT that was fine-tuned to name chemical reactions, as a HuggingFace directory, with labelled
reactions for it.

    python examples/reactions/prepare.py build/reactions

Writes `model/` (weights, config, tokenizer), `calibration.tsv` and `test.tsv` into the folder, and
prints it. Both files have a column `label` (a class name) and a column `text` (a reaction SMILES).
Calibration and search read the first file. The second one is for `atlasc evaluate`.

The model is `bert_ft_10k_25s` of the PyPI package `rxnfp` (MIT licence), which is not imported.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

HERE = Path(__file__).parent
PACKAGE = "rxnfp==0.1.0"
MODEL = Path("models", "transformers", "bert_ft_10k_25s")
TEST_ROWS = 400
TOKEN = (
    r"\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$"
    r"|\%[0-9]{2}|[0-9]"
)
"""Tokens of a reaction SMILES, as the model was trained (rxnfp/tokenization.py)."""


def packaged_model() -> Path:
    """The folder of the model inside the installed package."""
    spec = importlib.util.find_spec(PACKAGE.partition("=")[0])
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"the model is not installed: pip install --no-deps {PACKAGE}")
    return Path(spec.submodule_search_locations[0]) / MODEL


def class_names() -> list[str]:
    """The name of each class, by its number."""
    names: dict[str, str] = json.loads((HERE / "classes.json").read_text(encoding="utf-8"))
    return [names[str(number)] for number in range(len(names))]


def tokenizer_of(vocabulary: list[str]) -> Tokenizer:
    """[CLS], the tokens of the reaction, [SEP]."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors

    numbers = {token: number for number, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(TOKEN), "removed", invert=True)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(token, numbers[token]) for token in ("[CLS]", "[SEP]")],
    )
    return tokenizer


def write_model(folder: Path) -> None:
    """The packaged model as a HuggingFace directory of today.

    Its own config names two of the fifty classes, and its tokenizer is a Python class. Its weights
    are a pickle, which is read as tensors only.
    """
    import torch
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    source = packaged_model()
    names = class_names()
    vocabulary = (source / "vocab.txt").read_text(encoding="utf-8").splitlines()
    kept = json.loads((source / "config.json").read_text(encoding="utf-8"))
    shape = {name: kept[name] for name in BertConfig().to_dict() if name in kept}
    config = BertConfig(**shape | {"id2label": dict(enumerate(names))})
    config.label2id = {name: number for number, name in enumerate(names)}
    model = BertForSequenceClassification(config)
    weights = torch.load(source / "pytorch_model.bin", weights_only=True, map_location="cpu")
    weights = {name: tensor for name, tensor in weights.items() if "position_ids" not in name}
    model.load_state_dict(weights)
    model.save_pretrained(folder)
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls")}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer_of(vocabulary), **special).save_pretrained(
        folder
    )


def write_rows(folder: Path) -> None:
    """The labelled reactions in two files, divided by their digests."""
    names = class_names()
    with (HERE / "labelled.tsv").open(encoding="utf-8", newline="") as file:
        rows = [(names[int(label)], text) for label, text in [*csv.reader(file, "excel-tab")][1:]]
    rows.sort(key=lambda row: hashlib.sha256(row[1].encode()).digest())
    parts = {"test.tsv": rows[:TEST_ROWS], "calibration.tsv": rows[TEST_ROWS:]}
    for name, part in parts.items():
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, "excel-tab", lineterminator="\n").writerows([("label", "text"), *part])


def main() -> None:
    """Write the model and the data, and print where they are."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    write_model(folder / "model")
    write_rows(folder)
    print(folder)


if __name__ == "__main__":
    main()
