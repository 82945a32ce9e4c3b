"""The stages one by one: trace, calibrate, search, lower, opt; the result is what compile makes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from atlasc.ir.interpreter import interpret
from atlasc.ir.text.storage import load_module
from atlasc.polynomials.parametrisation import PRESETS
from tests.atlasc.cli.command import DATA, MODEL, Outcome, refused, run

SMALL = (
    "--strategy",
    "atlas{population=8,generations=1,layer-population=8,layer-generations=2}",
)

TINY = """module @tiny : nn {
  symbol @w : float32[2x2]
  %x = nn.input {name = "x", shape = [1, 1, 2], side = "client", dtype = "f64"} :
    tensor<1x1x2xf64, client>
  %e = nn.encrypt %x : tensor<1x1x2xf64, server>
  %s = nn.scale %e {factor = 1.0} : tensor<1x1x2xf64, server>
  %y = nn.linear %s {weight = @w} : tensor<1x1x2xf64, server>
  nn.output %y {name = "y"}
}
"""


LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "vocab_size": 50,
}


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """nn.air and ranges.json of the digits model."""
    folder = tmp_path_factory.mktemp("stages")
    run("trace", MODEL, "-o", folder / "nn.air")
    run("calibrate", MODEL, "--data", DATA, "-o", folder / "ranges.json")
    return folder


def test_trace_writes_text_and_weights(stages: Path) -> None:
    module = load_module(stages / "nn.air")
    pixels = np.load(DATA)["pixel_values"][:1]
    assert interpret(module, {"pixel_values": pixels})["logits"].shape == (1, 10)
    assert np.abs(module.symbols["classifier.weight"]).max() > 0


def test_calibrate_prints_every_range_and_what_was_held_back(stages: Path) -> None:
    outcome = run(
        "calibrate", MODEL, "--data", DATA, "--ranges", "measured{margin=0,held-back=0.5}"
    )
    for name in ("vit.layernorm", "nn.softmax", "nn.gelu"):
        assert name in outcome.out
    assert "held-back inputs leave a range" in outcome.out
    found = json.loads((stages / "ranges.json").read_text())
    assert len(found["ranges"]) == 5
    assert all(r["low"] < r["seen_low"] < r["seen_high"] < r["high"] for r in found["ranges"])


def test_calibrate_reports_violations_as_json() -> None:
    arguments = ("calibrate", MODEL, "--data", DATA, "--json")
    arguments += ("--ranges", "measured{margin=0,held-back=0.9}")
    found = json.loads(run(*arguments).out)
    assert found["leaving"] == len({v["input"] for v in found["violations"]}) > 0
    assert all(not v["low"] <= v["reached"] <= v["high"] for v in found["violations"])


def test_search_and_lower(stages: Path, tmp_path: Path) -> None:
    arguments = ("search", MODEL, "--data", DATA, *SMALL, "--json")
    found = json.loads(run(*arguments, "-o", tmp_path / "front").out)
    assert found.keys() >= {"front", "evaluations", "seconds", "hypervolume"}
    assert found["evaluations"] == 8 * 2 + 8 * 3
    again = json.loads(run(*arguments).out)
    assert again["front"] == found["front"]
    assert found["cost"] == "latency"
    seconds, errors = zip(
        *((point["seconds"], point["error"]) for point in found["front"]), strict=True
    )
    assert list(seconds) == sorted(seconds) and list(errors) == sorted(errors, reverse=True)
    integers = PRESETS["wide"].variables
    assert all(len(layer) == integers for point in found["front"] for layer in point["settings"])
    names = {path.name for path in (tmp_path / "front").iterdir()}
    assert names == {
        "front.json",
        "front.html",
        "front.png",
        "calibration.json",
        "evaluations.jsonl",
    }
    assert not (tmp_path / "front.journal").exists()

    error = found["front"][-1]["error"]
    run(
        "lower", stages / "nn.air", "--calibration", tmp_path / "front" / "calibration.json",
        "--settings", tmp_path / "front" / "front.json", "--max-error", error * 1.01,
        "--data", DATA, "-o", tmp_path / "lowered",
    )  # fmt: skip
    program = load_module(tmp_path / "lowered" / "program.air")
    assert program.level == "ckks"
    assert program.attributes["rotations"]
    cost = json.loads(run("inspect", tmp_path / "lowered" / "program.air", "--json").out)
    message = refused("inspect", tmp_path / "lowered" / "program.air", "--generate")
    assert "is lowered already" in message and "its folder step" in message
    # Of the path that is deepest in all levels, which is not always the deepest in those of the
    # formula: the settings that this search ends with have two levels of norms more on it.
    assert cost["levels"] <= found["front"][-1]["levels"] + 2


@pytest.mark.parametrize("target", ["phantom", "sim"])
def test_a_text_says_what_it_was_lowered_for(target: str, tmp_path: Path) -> None:
    (tmp_path / "tiny.air").write_text(TINY)
    run("lower", tmp_path / "tiny.air", "--target", target, "-o", tmp_path / "low")
    program = load_module(tmp_path / "low" / "program.air")
    assert program.attributes["target"] == target
    found = json.loads(run("inspect", tmp_path / "low" / "program.air", "--json").out)
    assert found["slots"] == program.attributes["slots"]
    assert found["security_bits"] >= 128 and found["moduli"]["log_qp"] > 0
    assert (found["seconds"] is None) == (target == "phantom")


def test_inputs_of_a_search_are_a_number_or_all() -> None:
    search = ("search", MODEL, "--data", DATA, "--strategy", "atlas{evaluations=8}")
    found = json.loads(run(*search, "--inputs", "all", "--json").out)
    assert (found["strategy"], found["evaluations"]) == ("atlas", 8)
    assert "--inputs cannot be '0'" in refused(*search, "--inputs", "0")


@pytest.mark.parametrize("name", ["nsga2", "sequential", "grid", "random"])
def test_a_strategy_to_compare_with_is_named_with_its_place(name: str) -> None:
    message = refused("search", MODEL, "--data", DATA, "--strategy", name)
    assert f"the strategy '{name}' is not part of the compiler" in message
    assert "use one of hybrid, atlas" in message
    assert f"python -m benchmarks.search --strategies {name}" in message


def test_opt_on_text_alone() -> None:
    outcome = run("opt", "-", "-p", "canonicalise", "--explain", "--verify-each", stdin=TINY)
    assert "nn.scale" not in outcome.out
    assert "nn.linear" in outcome.out
    assert outcome.err.startswith("canonicalise:")
    assert run("opt", "-", stdin=outcome.out).out == outcome.out


def test_opt_prints_after_each_pass() -> None:
    passes = "canonicalise,expand,normalise-affine,fold-features,assign-scales,pack{slots=4}"
    outcome = run("opt", "-", "-p", passes, "--print-ir-after-all", stdin=TINY)
    assert outcome.err.count("// --- after ") == 6
    assert (
        "// --- after pack{slots=4,features-low=false,most-sums=32,fewer-keys=false} ---"
        in outcome.err
    )
    assert "ckks.linear_transform" in outcome.out


def test_opt_lists_its_passes() -> None:
    listed = run("opt", "--list").out
    for name in (
        "canonicalise",
        "pack{slots=32768,features-low=false,most-sums=32,fewer-keys=false}",
        "place-bootstraps{levels=14,bootstrap=true,batch=1,error=0.0,cubic=0.0,narrow=0,lowest=0,"
        "landings=0,lanes=1}",
        "rotation-keys{key-memory=none}",
    ):
        assert f"{name}\n    " in listed


@pytest.mark.parametrize(
    ("passes", "message"),
    [
        ("nonsense", "there is no pass 'nonsense'"),
        ("pack", "pack works on poly modules, but @tiny is at the nn level"),
        ("rotation-keys", "rotation-keys works on ckks modules"),
        ("canonicalise,expand,pack{slots=x}", "cannot be 'x'"),
        ("canonicalise{x=1}", "no option 'x'"),
        (f"pack{{slots={'9' * 5000}}}", "cannot be"),
        ("place-bootstraps{error=nan}", "cannot be 'nan'"),
        ("pack{slots={slots=1}}", "cannot read the pipeline"),
        ("canonicalise expand", "cannot read the pipeline"),
    ],
)
def test_opt_refuses(passes: str, message: str) -> None:
    assert message in refused("opt", "-", "-p", passes, stdin=TINY)


def test_opt_tells_line_and_column(tmp_path: Path) -> None:
    text = TINY.replace("nn.linear", "nn.linaer")
    assert "7:" in refused("opt", "-", stdin=text)
    text = TINY.replace("weight = @w}", "weight = @missing}")
    assert "7:" in refused("opt", "-", stdin=text)
    file = tmp_path / "no.air"
    assert str(file) in refused("opt", file)
    file.write_bytes(b"\xff\xfe")
    assert "is not UTF-8 text" in refused("opt", file, "-o", tmp_path / "out.air")
    assert [path.name for path in tmp_path.iterdir()] == ["no.air"]


def test_opt_without_a_file() -> None:
    assert Outcome(("opt",), None).code == 2


def test_lower_refuses(stages: Path, tmp_path: Path) -> None:
    nn, out = stages / "nn.air", tmp_path / "out"
    ranges = ("--calibration", stages / "ranges.json")
    assert "has no approximation" in refused("lower", nn, "-o", out)
    assert "ranges of the nonlinear ops are not known" in refused(
        "lower", nn, "--recipe", "is", "-o", out
    )
    assert "exclude each other" in refused(
        "lower", nn, "--recipe", "is", "--settings", out, *ranges, "-o", out
    )
    assert "calibration" in refused("lower", nn, "--recipe", "is", "--calibration", nn, "-o", out)
    assert "data" in refused("lower", nn, "--recipe", "is", *ranges, "--data", nn, "-o", out)
    for wrong in (np.full((2, 3, 32, 32), np.nan), np.full((2, 3, 32, 32), "x"), np.zeros(())):
        np.savez(tmp_path / "odd.npz", pixel_values=wrong)
        odd = ("--data", tmp_path / "odd.npz")
        assert "pixel_values" in refused("lower", nn, "--recipe", "is", *ranges, *odd, "-o", out)
    np.savez(tmp_path / "wrong.npz", pixel_values=np.zeros((2, 3, 8, 8)))
    assert "shape" in refused(
        "lower", nn, "--recipe", "is", *ranges, "--data", tmp_path / "wrong.npz", "-o", out
    )
    assert not out.exists()
    out.mkdir()
    assert "exists already" in refused("lower", nn, "--recipe", "is", *ranges, "-o", out)


def test_inspect_shows_the_step_of_a_decoder(tmp_path: Path) -> None:
    """It costs nearly the same for eight times the context, whose window costs far more."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))

    def seconds(tokens: int, *more: str) -> float:
        arguments = ("inspect", tmp_path, "--sequence-length", tokens, "--json", *more)
        return float(json.loads(run(*arguments).out)["seconds"])

    short, long = seconds(32, "--generate"), seconds(1024, "--generate")
    assert short < long < 1.25 * short
    assert seconds(1024) > 4 * long
    assert "cannot be computed for one token" in refused("inspect", MODEL, "--generate")
