"""``--target phantom``: what compile leaves, what a device must hold, who executes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from safetensors.numpy import load_file
from tiny_model import Tiny, make_tiny

from tests.atlasc.cli.command import CONFIGS, DATA, MODEL, refused, run


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The digits, which need bootstraps, and what compile said."""
    folder = tmp_path_factory.mktemp("phantom") / "digits"
    done = run(
        "compile", MODEL, "--data", DATA, "--recipe", "is", "--target", "phantom", "-o", folder
    )
    return folder, done.out


@pytest.fixture(scope="module")
def leveled(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny(tmp_path_factory.mktemp("leveled"), "phantom")


def interface_of(project: Path) -> dict[str, Any]:
    """What the client of a project reads."""
    text = load_file(project / "interface.safetensors")["interface"].tobytes()
    return cast(dict[str, Any], json.loads(text))


def test_compile_leaves_a_project(bundle: tuple[Path, str]) -> None:
    folder, said = bundle
    assert "128 bits of security: N = 2^16, log2(QP) 1740" in said
    assert "5 special primes, 6 digits (dnum); a key of 53 MiB" in said
    assert "128 bits of security: N = 2^16" in said
    assert "no cost table for this target" in said
    assert f"cmake -S {folder / 'project'}" in said
    cmake = (folder / "project" / "CMakeLists.txt").read_text()
    assert "set(ATLASC_ENGINE phantom CACHE" in cmake
    moduli = interface_of(folder / "project")["parameters"]["moduli"]
    assert len(moduli["log_scales"]) == len(moduli["primes"])
    for part in ("src", "ckks", "devices", "programs", "sim", "python"):
        assert (folder / "project" / "runtime" / part).is_dir()


def test_a_program_without_bootstraps_gets_a_leveled_set(leveled: Tiny) -> None:
    manifest = json.loads((leveled.bundle / "manifest.json").read_text())
    assert manifest["parameters"]["bootstrap"] == ""
    assert manifest["security_bits"] >= 128
    parameters = interface_of(leveled.bundle / "project")["parameters"]
    assert "bootstrap_level" not in parameters
    assert parameters["moduli"]["scale"] == 40
    assert parameters["moduli"]["log_scales"] == []


def test_inspect(bundle: tuple[Path, str]) -> None:
    found = json.loads(run("inspect", bundle[0], "--json").out)
    assert found["seconds"] is None
    assert found["moduli"]["log_qp"] == 1740
    assert found["memory"]["bootstrap_keys"] > 4 * 2**30
    assert "no cost table for this target" in run("inspect", bundle[0]).out


@pytest.mark.parametrize("command", ["run", "execute", "serve"])
def test_a_missing_engine_is_said_with_what_runs_instead(
    leveled: Tiny, tmp_path: Path, command: str
) -> None:
    files = {
        "run": ("--input", leveled.data, "--count", 1),
        "execute": ("--keys", tmp_path, "--query", tmp_path, "-o", tmp_path / "a"),
        "serve": ("--state", tmp_path / "state"),
    }
    message = refused(command, leveled.bundle, *files[command])
    assert "no engine for phantom here" in message
    assert "atlasc emit --build" in message


def test_the_simulator_runs_it(leveled: Tiny) -> None:
    done = run(
        "run", leveled.bundle, "--input", leveled.data, "--count", 2, "--target", "sim", "--json"
    )
    assert json.loads(done.out)["max_error"] < 1e-9


def test_emit_selects_the_engine(bundle: tuple[Path, str], tiny: Tiny, tmp_path: Path) -> None:
    for engine, options in (("phantom", ()), ("sim", ("--engine", "sim"))):
        run("emit", bundle[0], "-o", tmp_path / engine, *options)
        cmake = (tmp_path / engine / "CMakeLists.txt").read_text()
        assert f"set(ATLASC_ENGINE {engine} CACHE" in cmake
    of_desilo = make_tiny(tmp_path, "desilo").bundle
    message = refused("emit", of_desilo, "-o", tmp_path / "x", "--engine", "phantom")
    assert "was not compiled for the engine phantom" in message
    assert "no engine 'gpu'" in refused(
        "emit", tiny.bundle, "-o", tmp_path / "x", "--engine", "gpu"
    )


def test_smaller_keys_fit_a_smaller_device(bundle: tuple[Path, str], tmp_path: Path) -> None:
    full = json.loads(run("inspect", bundle[0], "--json").out)
    room = full["memory_bytes"] - full["memory"]["rotation_keys"] // 4
    size = f"{room // 2**20}M"
    run("emit", bundle[0], "-o", tmp_path / "small", "--device-memory", size)
    projects = bundle[0] / "project", tmp_path / "small"
    own, smaller = (dict(interface_of(one)["needs"]["rotations"]) for one in projects)
    # The bootstrap has the amounts of all others, which reach lower levels now.
    assert sum(smaller.values()) < sum(own.values()) and smaller.keys() <= own.keys()
    message = refused("emit", bundle[0], "-o", tmp_path / "x", "--device-memory", "4G")
    assert "the program does not fit a device of 4G" in message
    assert "bootstrap keys" in message
    least = message.partition("a device memory of ")[2].partition(" ")[0]
    run("emit", bundle[0], "-o", tmp_path / "least", "--device-memory", least)


def test_device_memory_is_for_devices(bundle: tuple[Path, str], tiny: Tiny, tmp_path: Path) -> None:
    command = ("compile", MODEL, "--data", DATA, "-o", tmp_path / "x", "--target")
    assert "has no effect on the target sim" in refused(*command, "sim{device-memory=4G}")
    assert "is not a size of memory" in refused(*command, "phantom{device-memory=lots}")
    both = "phantom{device-memory=4G,key-memory=1G}"
    assert "exclude each other" in refused(*command, both)
    message = refused("emit", tiny.bundle, "-o", tmp_path / "x", "--device-memory", "4G")
    assert "has no effect on the target sim" in message


def test_latency_needs_a_table(tmp_path: Path) -> None:
    command = ("compile", MODEL, "--data", DATA, "-o", tmp_path / "x", "--target", "phantom")
    message = refused(*command, "--cost", "latency")
    assert "latencies cannot be predicted for the target phantom" in message
    assert "cannot be measured from Python" in refused("calibrate-backend", "--target", "phantom")


def test_a_config_alone(tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "bert-base" / "config.json").read_text())
    config |= {"num_hidden_layers": 1, "hidden_size": 48, "intermediate_size": 96}
    config |= {"num_attention_heads": 4, "vocab_size": 100}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = run("inspect", tmp_path, "--sequence-length", 16, "--target", "phantom").out
    assert "log2(QP) 1740" in found
