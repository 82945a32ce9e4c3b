"""Archives of torch.export: what they hold is data, and nothing in them is ever run."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from small_files import TINY, pickled, tiny_bert

import atlasc
from atlasc.ir.errors import AtlasError
from atlasc.loading.model_files.torch_files import has_small_powers
from atlasc.loading.models import load_model

Json = dict[str, Any]


def export(path: Path, dynamic: bool = False) -> Path:
    path.write_bytes(exported(dynamic))
    return path


@cache
def exported(dynamic: bool) -> bytes:
    # Two tensors: export would take one that is given twice for a single input.
    ids, mask = torch.ones(2, 8, dtype=torch.long), torch.ones(2, 8, dtype=torch.long)
    batch = {0: torch.export.Dim("batch", min=2, max=16)}
    program = torch.export.export(
        tiny_bert(),
        (),
        {"input_ids": ids, "attention_mask": mask},
        dynamic_shapes={"input_ids": batch, "attention_mask": batch} if dynamic else None,
        strict=False,
    )
    with TemporaryDirectory() as folder:
        torch.export.save(program, Path(folder) / "model.pt2")
        return (Path(folder) / "model.pt2").read_bytes()


@pytest.mark.parametrize("dynamic", [False, True])
def test_exported_archive(tmp_path: Path, dynamic: bool) -> None:
    loaded = load_model(export(tmp_path / "model.pt2", dynamic))
    ids = torch.arange(16).reshape(2, 8)
    assert loaded.kind == "exported" and loaded.exported is not None
    assert loaded.input_names == ("input_ids", "attention_mask")
    assert loaded.shapes["input_ids"] == ((None if dynamic else 2), 8)
    with torch.no_grad():
        found = loaded.module(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        torch.testing.assert_close(found, tiny_bert()(ids).logits)


def rewrite(archive: Path, record: str, content: bytes) -> None:
    """Replace or add one record of a torch archive."""
    with zipfile.ZipFile(archive) as source:
        records = {name: source.read(name) for name in source.namelist()}
    root = next(iter(records)).split("/")[0]
    records[f"{root}/{record}"] = content
    with zipfile.ZipFile(archive, "w") as target:
        for name, data in records.items():
            target.writestr(name, data)


def read_record(archive: Path, record: str) -> dict:
    with zipfile.ZipFile(archive) as source:
        name = next(name for name in source.namelist() if name.endswith(record))
        return json.loads(source.read(name))


def test_archive_with_pickled_code_is_refused(tmp_path: Path) -> None:
    archive = export(tmp_path / "model.pt2")
    rewrite(archive, "data/sample_inputs/model.pt", pickled(tmp_path / "owned"))
    with pytest.raises(AtlasError, match="is refused(.|\n)*sample_inputs"):
        load_model(archive)
    assert not (tmp_path / "owned").exists()


def test_archive_with_a_pickled_weight_is_refused(tmp_path: Path) -> None:
    archive = export(tmp_path / "model.pt2")
    config = read_record(archive, "model_weights_config.json")
    payload = next(iter(config["config"].values()))
    payload["use_pickle"] = True
    rewrite(archive, "data/weights/model_weights_config.json", json.dumps(config).encode())
    rewrite(archive, f"data/weights/{payload['path_name']}", pickled(tmp_path / "owned"))
    with pytest.raises(AtlasError, match="is refused"):
        load_model(archive)
    assert not (tmp_path / "owned").exists()


def test_archive_with_a_compiled_library_is_refused(tmp_path: Path) -> None:
    archive = export(tmp_path / "model.pt2")
    rewrite(archive, "data/aotinductor/model/model.so", b"\x7fELF")
    with pytest.raises(AtlasError, match=r"model\.so"):
        load_model(archive)


def test_archive_with_code_in_a_symbolic_size_is_refused(tmp_path: Path) -> None:
    archive = export(tmp_path / "model.pt2", dynamic=True)
    with zipfile.ZipFile(archive) as source:
        name = next(name for name in source.namelist() if name.endswith("models/model.json"))
        program = source.read(name).decode()
    symbol = next(part for part in program.split('"') if part.startswith("Symbol("))
    attack = f"open('{tmp_path / 'owned'}', 'w')"
    rewrite(archive, "models/model.json", program.replace(symbol, attack).encode())
    with pytest.raises(AtlasError, match="not plain arithmetic"):
        load_model(archive)
    assert not (tmp_path / "owned").exists()


def test_archive_that_calls_something_else_is_refused(tmp_path: Path) -> None:
    archive = export(tmp_path / "model.pt2")
    program = read_record(archive, "models/model.json")
    program["graph_module"]["graph"]["nodes"][0]["target"] = "torch.os.system"
    rewrite(archive, "models/model.json", json.dumps(program).encode())
    with pytest.raises(AtlasError, match=r"torch\.os\.system"):
        load_model(archive)


@pytest.mark.parametrize("content", [b"", b"not an archive"])
def test_file_that_is_no_archive(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.pt2").write_bytes(content)
    with pytest.raises(AtlasError, match="is not an archive of torch.export"):
        load_model(tmp_path / "model.pt2")


def first(graph: Json, member: str) -> Json:
    """The first object of the graph's nodes with a member of that name."""
    left: list[Any] = [graph["graph_module"]["graph"]["nodes"]]
    while left:
        tree = left.pop(0)
        if isinstance(tree, dict) and member in tree:
            return tree
        left += tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    raise LookupError(member)


def signature(graph: Json) -> Json:
    found: Json = graph["graph_module"]["module_call_graph"][0]["signature"]
    return found


def rename(graph: Json, code: str) -> None:
    """Give the last input a name that runs code where torch writes it into a function's head."""
    text = json.dumps(graph).replace('"attention_mask"', json.dumps(f"attention_mask={code}"))
    graph.clear()
    graph.update(json.loads(text))


def guard(graph: Json, code: str) -> None:
    """Hide code behind a comment from the check that torch makes of a guard."""
    graph["guards_code"] = [f"1 #\n, '')\n{code}\ndef f():\n  torch._assert(1"]


def import_an_enum(graph: Json, code: str) -> None:
    key = json.dumps([{"__enum__": True, "fqn": "this:x", "name": "x"}])
    signature(graph)["in_spec"] = signature(graph)["in_spec"].replace(
        json.dumps(json.dumps(["input_ids", "attention_mask"])), json.dumps(key)
    )


def import_a_factory(graph: Json, code: str) -> None:
    context = {
        "default_factory_module": "this", "default_factory_name": "s", "dict_context": []
    }  # fmt: skip
    spec = {"type": "collections.defaultdict", "context": context, "children_spec": []}
    signature(graph)["out_spec"] = json.dumps([1, spec])


def hide_a_size(graph: Json, code: str) -> None:
    """Code in a size, below a name that stands for text elsewhere."""
    values = graph["graph_module"]["graph"]["tensor_values"]
    values["metadata"] = json.loads(json.dumps(next(iter(values.values()))))
    values["metadata"]["sizes"] = [{"as_expr": {"expr_str": code, "hint": None}}]


def pass_a_function(graph: Json, code: str) -> None:
    first(graph, "arg")["arg"] = {"as_operator": "torch.os.system"}


def call(target: str) -> Callable[[Json, str], None]:
    def attack(graph: Json, code: str) -> None:
        first(graph, "target")["target"] = target

    return attack


def count_without_end(graph: Json, code: str) -> None:
    graph["range_constraints"] = {"u999999999999": {"min_val": 2, "max_val": 16}}


def grow_without_end(graph: Json, code: str) -> None:
    values = graph["graph_module"]["graph"]["tensor_values"]
    power = {"as_expr": {"expr_str": "9**9**9**9", "hint": None}}
    next(iter(values.values()))["sizes"] = [power]


@pytest.mark.parametrize(
    "attack",
    [
        rename,
        guard,
        import_an_enum,
        import_a_factory,
        hide_a_size,
        pass_a_function,
        call("_operator.call"),
        call("torch.ops.aten.from_file.default"),
        call("torch.ops.higher_order.while_loop"),
        count_without_end,
        grow_without_end,
    ],
)
def test_graph_that_would_run_code_or_never_end(
    attack: Callable[[Json, str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive, owned = export(tmp_path / "model.pt2"), tmp_path / "owned"
    graph = read_record(archive, "models/model.json")
    attack(graph, f"open({str(owned)!r}, 'w')")
    rewrite(archive, "models/model.json", json.dumps(graph).encode())
    if attack is guard:  # no model needs guards: inputs are checked by their shapes
        assert load_model(archive).kind == "exported"
    else:
        with pytest.raises(AtlasError, match="is refused"):
            load_model(archive)
    assert not owned.exists()
    assert "The Zen of Python" not in capsys.readouterr().out


@pytest.mark.parametrize("layout", [{"sizes": [{"as_int": 1 << 39}]}, {"storage_offset": 10**6}])
def test_tensor_that_is_larger_than_its_record(tmp_path: Path, layout: Json) -> None:
    archive = export(tmp_path / "model.pt2")
    config = read_record(archive, "model_weights_config.json")
    meta = next(iter(config["config"].values()))["tensor_meta"]
    meta.update({"sizes": [{"as_int": 4}], "strides": [{"as_int": 0}], **layout})
    rewrite(archive, "data/weights/model_weights_config.json", json.dumps(config).encode())
    with pytest.raises(AtlasError, match="is refused"):
        load_model(archive)


def test_packed_archive_is_refused_before_it_expands(tmp_path: Path) -> None:
    archive = export(tmp_path / "model.pt2")
    with zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as target:
        target.writestr("model/extra/zeros", bytes(1 << 26))
    assert archive.stat().st_size < 1 << 20
    with pytest.raises(AtlasError, match="packed"):
        load_model(archive)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a": ' + "9" * 10_000 + "}", "\x00", "[]", "null", "{}"]
)
def test_graph_that_is_no_graph(tmp_path: Path, text: str) -> None:
    archive = export(tmp_path / "model.pt2")
    rewrite(archive, "models/model.json", text.encode())
    with pytest.raises(AtlasError):
        load_model(archive)


@pytest.mark.deep("recipes")
def test_archive_of_a_huggingface_model_in_a_new_process(tmp_path: Path) -> None:
    """torch knows the outputs of transformers only where these have been imported."""
    archive = export(tmp_path / "model.pt2")
    code = f"from atlasc.loading.models import load_model; print(load_model({str(archive)!r}).kind)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "exported\n", done.stderr


class Pairs(torch.nn.Module):
    """Its graph has the square of the length as a size."""

    def forward(self, x):
        pairs = (x @ x.transpose(1, 2)).reshape(x.shape[0], -1)
        return x * 2 if pairs.shape[1] > 1 else x


def test_an_archive_of_any_length_is_compiled_for_one(tmp_path: Path) -> None:
    length = torch.export.Dim("length", min=2, max=16)
    batch = torch.export.Dim("batch", min=1, max=16)
    x = torch.zeros(2, 6, 4)
    shapes = {"x": {0: batch, 1: length}}
    program = torch.export.export(Pairs(), (x,), dynamic_shapes=shapes, strict=False)
    torch.export.save(program, tmp_path / "pairs.pt2")
    data = {"x": np.random.default_rng(0).normal(size=(8, 5, 4)).astype(np.float32)}
    compiled = atlasc.compile(tmp_path / "pairs.pt2", data=data, recipe="is", target="sim")
    found = compiled.run({"x": data["x"][:2]}).outputs["output"]
    np.testing.assert_allclose(found, 2 * data["x"][:2], atol=1e-4)
    long = {"x": np.random.default_rng(0).normal(size=(8, 20, 4)).astype(np.float32)}
    with pytest.raises(AtlasError, match="was not exported for x"):
        atlasc.compile(tmp_path / "pairs.pt2", data=long, recipe="is", target="sim")


S = "Symbol('s53', positive=True, integer=True)"


@pytest.mark.parametrize(
    ("text", "small"),
    [
        (f"Mul(Integer(3), {S})", True),
        (f"Pow({S}, Integer(2))", True),
        (f"Add(Integer(1), Pow(Add({S}, Integer(1)), Integer(3)))", True),
        ("Pow(Integer(9), Integer(99999))", False),
        (f"Pow(Pow(Pow({S}, Integer(4)), Integer(4)), Integer(4))", False),
        (f"Pow({S}, {S})", False),
        ("(Pow)(Integer(9), Integer(9))(Pow, Pow)", False),
        ("Pow(" * 3000, False),
    ],
)
def test_powers_of_sizes_are_small(text: str, small: bool) -> None:
    assert has_small_powers(text) is small


def test_a_dropout_and_casts_in_an_archive(tmp_path: Path) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.drop = torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)

        def forward(self, x):
            return self.a(self.drop(self.a(x)).to(torch.float64).to(torch.float32))

    data = {"x": np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)}
    for training in (False, True):
        model = Model().train(training)
        program = torch.export.export(model, (torch.zeros(1, 4),), strict=False)
        torch.export.save(program, tmp_path / "model.pt2")
        if training:
            with pytest.raises(AtlasError, match=r"training mode(.|\n)*model\.eval\(\)"):
                atlasc.compile(tmp_path / "model.pt2", data=data, recipe="is", target="sim")
            continue
        compiled = atlasc.compile(tmp_path / "model.pt2", data=data, recipe="is", target="sim")
        with torch.no_grad():
            wanted = model(torch.from_numpy(data["x"][:1])).numpy()
        found = compiled.run({"x": data["x"][:1]}).outputs["output"]
        np.testing.assert_allclose(found, wanted, atol=1e-4)


class Logits(torch.nn.Module):
    """A model of transformers whose only output is an array, as `torch.export` likes it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(input_ids, attention_mask).logits
        return logits


def decoder() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "max_position_embeddings": 16, "use_cache": False}
    return LlamaForCausalLM(LlamaConfig(**TINY, **sizes, num_key_value_heads=1)).eval()


@pytest.mark.parametrize(
    "make", [pytest.param(tiny_bert, marks=pytest.mark.deep("recipes")), decoder]
)
@pytest.mark.parametrize("size", [pytest.param("named", marks=pytest.mark.deep("recipes")), "auto"])
def test_dynamic_batch_and_length(tmp_path: Path, make: Callable[[], Any], size: str) -> None:
    """Of one archive, programs of several lengths and batches; each answers as the model."""
    model = Logits(make())
    ids = torch.ones(2, 6, dtype=torch.long)
    dim = torch.export.Dim
    sizes = {0: dim("batch", max=64), 1: dim("length", max=16)}
    dynamic = sizes if size == "named" else {0: dim.AUTO, 1: dim.AUTO}
    program = torch.export.export(
        model, (ids, torch.ones_like(ids)), dynamic_shapes=(dynamic, dynamic), strict=False
    )
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = load_model(tmp_path / "model.pt2")
    assert set(loaded.shapes.values()) == {(None, None)}
    many = np.random.default_rng(0).integers(3, 50, (24, 6)).tolist()
    rows = [{"input_ids": row[: 3 + at % 4]} for at, row in enumerate(many)]
    for length, batch in ((6, 1), (9, 2)):
        compiled = atlasc.compile(
            tmp_path / "model.pt2", data=rows, sequence_length=length, batch=batch, recipe="is",
            target="sim",
        )  # fmt: skip
        found = compiled.run(rows[:4])
        arrays = {name: torch.as_tensor(array) for name, array in found.inputs.arrays.items()}
        assert arrays["input_ids"].shape == (4, length)
        with torch.no_grad():
            expected = model(**arrays)
        answer = torch.as_tensor(found.outputs["output"])
        if answer.ndim == 3:  # what stands at padding means nothing
            kept = arrays["attention_mask"][..., None].bool()
            answer, expected = answer * kept, expected * kept
        torch.testing.assert_close(answer, expected, atol=1e-2, rtol=0, check_dtype=False)
    if size == "named":
        with pytest.raises(AtlasError, match=r"not exported for input_ids \[1, 40\](.|\n)*<= 16"):
            atlasc.compile(tmp_path / "model.pt2", data=rows, sequence_length=40, recipe="is")


def test_a_size_that_is_not_dynamic_is_named(tmp_path: Path) -> None:
    rows = [{"input_ids": [3, 4, 5 + row]} for row in range(4)]
    dynamic = export(tmp_path / "batch.pt2", dynamic=True)
    with pytest.raises(AtlasError, match="length 12 does not fit(.|\n)*was exported for 8"):
        atlasc.compile(dynamic, data=rows, sequence_length=12, recipe="is")
    fixed = export(tmp_path / "fixed.pt2")
    with pytest.raises(AtlasError, match=r"exported for(.|\n)*batch chooses the first extent"):
        atlasc.compile(fixed, data=rows, recipe="is")
