"""Emitted programs on the C++ simulation engine give the Python simulation's numbers."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from cpp_build import ROOT, Builder

from atlasc.emit.project import write_project
from atlasc.emit.text import identifier
from atlasc.program.costs import program_costs
from atlasc.program.kinds import OUTSIDE
from atlasc.targets.noise import NoiseModel
from tests.atlasc.emit.cpp import (
    DIGITS,
    Project,
    answers,
    command_line,
    compiled,
    digit_answers,
    refused,
    run,
    with_runtime,
)
from tests.atlasc.emit.small_programs import NAMES, SCALED_BY, small_program

TOLERANCE = 1e-12
INCLUDES = (f"-I{ROOT / 'runtime_cuda' / 'include'}", f"-I{Path(__file__).parent}")

HARNESS = """
#include <string>
#include "counting.hpp"
{includes}

/// NAME client|server|count ...: one executable for all programs, because compiling takes longest.
int main(int argc, char** argv) {{
    const std::string name = argv[1], role = argv[2];
{calls}
    return 99;
}}
"""
CALL = """
    if (name == "{name}") {{
        if (role == "client") {{
            return atlasc::client_main(argc - 2, argv + 2);
        }}
        return role == "server"
            ? atlasc::server_main(argc - 2, argv + 2, {space}::execute, {space}::text)
            : counting::count_main(argv + 3, {space}::execute);
    }}
"""


def write_harness(folder: Path, names: Sequence[str]) -> Path:
    """Projects of small programs, and one source of an executable for all of them."""
    for name in names:
        case = small_program(name)
        write_project(folder / name, case.program, case.parameters)
    parts = [f'#include "{folder / name / "src/program.cpp"}"' for name in names]
    source = folder / "harness.cpp"
    calls = "".join(CALL.format(name=name, space=identifier(name)) for name in names)
    source.write_text(HARNESS.format(includes="\n".join(parts), calls=calls))
    return source


def of_harness(executable: Path, projects: Path, name: str) -> Project:
    """A program of the harness."""
    command, interface = (str(executable), name), str(projects / name / "interface.safetensors")
    client = (*command, "client", "--program", interface)
    return Project(projects, projects / name, client, (*command, "server"))


def largest_difference(one: np.ndarray, other: np.ndarray) -> float:
    assert one.shape == other.shape
    assert np.abs(other).max() > 1e-3
    return float(np.abs(one - other).max())


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    write_harness(folder, NAMES)
    return folder


@pytest.fixture(scope="module")
def harness(digits: Project, projects: Path, cpp: Builder) -> Path:
    sources = [projects / "harness.cpp", digits.runtime]
    return compiled(cpp, sources, projects / "harness", *INCLUDES)


@pytest.mark.deep("projects")
@pytest.mark.parametrize("name", NAMES)
def test_small_programs(harness: Path, projects: Path, name: str, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    case = small_program(name)
    save_file(case.inputs, tmp_path / "in.safetensors")
    found = answers(of_harness(harness, projects, name), tmp_path / "in.safetensors", tmp_path)
    for output, values in case.expected().items():
        assert largest_difference(found[output], values) <= TOLERANCE


@pytest.mark.deep("projects")
@pytest.mark.parametrize("name", NAMES)
def test_primitives_are_those_that_inspect_counts(
    harness: Path, projects: Path, name: str, tmp_path: Path
) -> None:
    """The same calls at the same levels, rescalings apart, which an engine makes by itself."""
    from safetensors.numpy import save_file

    case = small_program(name)
    save_file(case.inputs, tmp_path / "in.safetensors")
    project = of_harness(harness, projects, name)
    answers(project, tmp_path / "in.safetensors", tmp_path)
    command = [str(harness), name, "count", "keys/evaluation.key", str(project.program), "query"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = (line.split() for line in done.stdout.splitlines())
    counted = {(primitive, int(level)): int(times) for primitive, level, times in lines}
    expected = program_costs(case.program).total.primitives
    skipped = ("rescale", "encrypt", "decrypt")
    assert counted == {key: n for key, n in expected.items() if key[0] not in skipped}
    # Every kernel says its op, as the IR calls it, and nothing else does.
    ops = [op.name.removeprefix("ckks.") for op in case.program.ops if op.name not in OUTSIDE]
    said = re.findall(r"executing: (\d+)/(\d+) \(\d+%\), 0:00:\d\d elapsed \[(\S+) ", done.stderr)
    assert said == [(str(n), str(len(ops)), op) for n, op in enumerate(ops)]


@pytest.mark.deep("projects")
def test_noise_is_that_of_ckks(
    harness: Path, projects: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One product by a number: the errors of encryption, of one rescaling of the factor, and of the
    one that decryption makes up for."""
    from safetensors.numpy import save_file

    case, outputs = small_program("scaled"), []
    save_file(case.inputs, tmp_path / "in.safetensors")
    project = of_harness(harness, projects, "scaled")
    for folder, seed in (("one", "1"), ("same", "1"), ("other", "2")):
        (tmp_path / folder).mkdir()
        monkeypatch.setenv("ATLASC_SIM_NOISE", seed)
        found = answers(project, tmp_path / "in.safetensors", tmp_path / folder)
        outputs.append(found["y"] - case.expected()["y"])
    one, same, other = outputs
    np.testing.assert_array_equal(one, same)
    noise = NoiseModel.ckks(2 * case.parameters.slots)
    deviation = np.hypot(SCALED_BY * np.hypot(noise.fresh, noise.rescale), noise.settle)
    for errors in (one, other, (one - other) / np.sqrt(2)):
        assert 0.8 * deviation < errors.std() < 1.2 * deviation
    monkeypatch.setenv("ATLASC_SIM_NOISE", "much")
    query = ("--query", "query", "--program", project.program, "--output", "new")
    command = [*project.server, "--keys", "keys/evaluation.key", *query]
    assert "ATLASC_SIM_NOISE is no seed" in refused(command, tmp_path / "one")


@pytest.mark.parametrize("count", [1, 2])
def test_digits(digits: Project, tmp_path: Path, count: int) -> None:
    """Client and server as separate processes; fewer inputs than a batch are answered too."""
    from atlasc.bundle.folder import load_bundle
    from atlasc.run.session import run as simulate

    found = digit_answers(digits, tmp_path, count)
    bundle = load_bundle(digits.bundle)
    arrays = bundle.load_inputs(DIGITS / "test.npz").take(range(count)).arrays
    expected = simulate(bundle, arrays, "sim").outputs
    assert list(found) == list(expected)
    assert found["logits"].shape == (count, 10)
    assert largest_difference(found["logits"], expected["logits"]) <= TOLERANCE


@pytest.mark.deep("projects")
def test_bert(digits: Project, cpp: Builder, tmp_path: Path) -> None:
    """Two layers, texts of different lengths, bootstraps, keys composed of others."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    from atlasc.bundle.folder import load_bundle
    from atlasc.run.session import run as simulate

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=40,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=40,
        max_position_embeddings=12,
        num_labels=3,
        initializer_range=0.2,
    )
    BertForSequenceClassification(config).save_pretrained(tmp_path / "model")
    random = np.random.default_rng(0)
    lengths = random.integers(3, 11, size=20)
    np.savez(
        tmp_path / "texts.npz",
        input_ids=random.integers(0, 40, size=(20, 10)),
        attention_mask=(np.arange(10) < lengths[:, None]).astype(np.int64),
    )
    data, folder = tmp_path / "texts.npz", tmp_path / "bundle"
    options = ["--data", data, "--recipe", "is", "--batch", 2, "--sequence-length", 10]
    options += ["--without", "prefixes"]  # a row of one key explodes under is
    command_line(
        "compile", tmp_path / "model", *options, "--target", "desilo{key-memory=600M}", "-o", folder
    )
    command_line("emit", folder, "-o", tmp_path / "project")
    command_line("embed", folder, "--input", data, "--count", 2, "-o", tmp_path / "in.safetensors")

    project = with_runtime(tmp_path / "project", digits, cpp)
    found = answers(project, tmp_path / "in.safetensors", tmp_path)

    bundle = load_bundle(folder)
    assert any(op.name == "ckks.bootstrap" for op in bundle.program.ops)
    assert "composed_rotations" in bundle.program.attributes
    arrays = bundle.load_inputs(data).take(range(2)).arrays
    expected = simulate(bundle, arrays, "sim").outputs
    assert largest_difference(found["logits"], expected["logits"]) <= TOLERANCE


@pytest.mark.deep("projects")
def test_the_server_says_how_long_it_took(harness: Path, projects: Path, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    project = of_harness(harness, projects, "grown")
    save_file(small_program("grown").inputs, tmp_path / "in.safetensors")
    answers(project, tmp_path / "in.safetensors", tmp_path)
    keys = ("--keys", "keys/evaluation.key", "--program", project.program)
    said = run([*project.server, *keys, "--query", "query", "--output", "again"], tmp_path)
    assert said.startswith("grown: executed in ")
