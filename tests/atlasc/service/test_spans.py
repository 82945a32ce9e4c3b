"""Questions about texts: each way to an answer shows the same span."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from text_models import SIZES, tokenizer_of

import atlasc
from tests.atlasc.cli.command import refused, run
from tests.atlasc.service.running import Running

pytestmark = [
    pytest.mark.filterwarnings("ignore:the target sim is a simulation"),
    pytest.mark.filterwarnings("ignore:the server sees in the clear"),
]
PAIRS = [
    ("a cat", "the cat sat on the mat"), ("the mat", "a cat  sat on a mat"), ("cat", "mat"),
]  # fmt: skip


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    module = transformers.BertForQuestionAnswering(transformers.BertConfig(**SIZES)).eval()
    for parameter in module.parameters():
        if parameter.ndim > 1:
            parameter.data = 0.3 * torch.randn_like(parameter)
    program = atlasc.compile(
        module, PAIRS * 4, tokenizer=tokenizer_of("bert"), target="sim", recipe="is",
        sequence_length=14, batch=2, max_error=1e9,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("questions") / "bundle"
    program.save(folder)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{"question": question, "context": text} for question, text in PAIRS]
    file = tmp_path_factory.mktemp("asked") / "asked.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture(scope="module")
def spans(bundle: Path) -> list[dict[str, object]]:
    found = [vars(one) for one in atlasc.load(bundle).run(PAIRS).shown()]
    texts = [text[one["start"] : one["end"]] for one, (_, text) in zip(found, PAIRS, strict=True)]
    assert [one["text"] for one in found] == texts and all(texts)
    return found


def _same(found: list[dict[str, object]], spans: list[dict[str, object]]) -> bool:
    return [{**one, "score": 0} for one in found] == [{**one, "score": 0} for one in spans]


def test_the_roles_show_spans(
    bundle: Path, data: Path, spans: list[dict[str, object]], tmp_path: Path
) -> None:
    run("keygen", bundle, "-o", tmp_path / "keys")
    asked = ("--input", data, "--count", 2)
    run("encrypt", bundle, *asked, "--keys", tmp_path / "keys", "-o", tmp_path / "query")
    run("execute", bundle, "--keys", tmp_path / "keys", "--query", tmp_path / "query",
        "-o", tmp_path / "answer")  # fmt: skip
    words = ("decrypt", bundle, "--keys", tmp_path / "keys", "--answer", tmp_path / "answer")
    said = refused(*words, "--input", data)  # before the answer is spent
    assert "gives 3 inputs" in said and "the answer is to 2" in said
    found = json.loads(run(*words, *asked, "--json").out)
    assert _same(found["spans"], spans[:2]) and set(found["outputs"]) == {
        "start_logits", "end_logits",
    }  # fmt: skip


def test_run_shows_spans(bundle: Path, data: Path, spans: list[dict[str, object]]) -> None:
    said = run("run", bundle, "--input", data).out
    assert all(str(one["text"]) in said for one in spans)
    assert _same(json.loads(run("run", bundle, "--input", data, "--json").out)["spans"], spans)


def test_a_service_answers_with_spans(
    start: Callable[..., Running],
    bundle: Path,
    data: Path,
    spans: list[dict[str, object]],
    tmp_path: Path,
) -> None:
    service = start("--memory", "64G", bundle=bundle)
    token, folder = service.token("acme"), tmp_path / "folder"
    with atlasc.connect(
        service.url, token=token, folder=folder, allow_simulation=True
    ) as connection:
        answers = connection.query(PAIRS)
        shown = answers.shown()
        assert isinstance(shown, tuple) and _same([vars(one) for one in shown], spans)
        assert answers.labels == [] and set(answers.outputs) == {"start_logits", "end_logits"}
    file = tmp_path / "token"
    file.write_text(token)
    file.chmod(0o600)
    words = ("query", service.url, "--input", data, "--token-file", file, "--folder", folder,
             "--allow-simulation")  # fmt: skip
    assert all(str(one["text"]) in run(*words).out for one in spans)
    assert _same(json.loads(run(*words, "--json").out)["spans"], spans)
