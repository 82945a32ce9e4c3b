"""How many rotation keys a program gets: what the user says, or what fits the machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from short_text import poly
from tiny_model import BATCH, Tiny, approximate

from atlasc.bundle.folder import load_bundle
from atlasc.bundle.sent import sent_by
from atlasc.compilation import lowering
from atlasc.compilation.declared import ALL_MEMORY, options_of, parse_memory
from atlasc.compilation.lowering import SHARE, key_model, plan_keys
from atlasc.compilation.options import CompileOptions, TargetOptions
from atlasc.compilation.prepare import calibrate_source, trace_model
from atlasc.compilation.source import load_source
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.lowering.keys.sizes import parse_bytes
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
from atlasc.program.costs import program_costs
from atlasc.program.kernels.context import layout_of
from atlasc.program.key_plan import MEMORY, key_plan
from atlasc.program.transform_work import MOST_SUMS
from atlasc.report.summary import costs_summary
from atlasc.targets.cuda import CudaParameters
from atlasc.targets.machine import machine_bytes
from tests.atlasc.cli.command import MODEL, refused, run


@pytest.fixture(scope="module")
def complete(tiny: Tiny) -> tuple[Module, int]:
    """The program with all keys, and what it needs of memory."""
    bundle = load_bundle(tiny.bundle)
    parameters = bundle.parameters
    full = plan_keys(bundle.program, parameters, ALL_MEMORY)
    return full, costs_summary(program_costs(full), parameters)["memory_bytes"]


def size(tiny: Tiny, program: Module) -> int:
    model = key_model(load_bundle(tiny.bundle).parameters)
    return model.size(key_plan(program).rotations)


def test_by_default_all_keys_where_they_fit(
    tiny: Tiny, complete: tuple[Module, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    full, needed = complete
    parameters = load_bundle(tiny.bundle).parameters
    monkeypatch.setattr(lowering, "machine_bytes", lambda: int(needed / SHARE) + 100)
    assert plan_keys(full, parameters).attributes == full.attributes
    monkeypatch.setattr(lowering, "machine_bytes", lambda: None)
    assert plan_keys(full, parameters).attributes == full.attributes


def test_by_default_fewer_keys_where_the_machine_is_smaller(
    tiny: Tiny, complete: tuple[Module, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    full, needed = complete
    parameters = load_bundle(tiny.bundle).parameters
    least = size(tiny, lowering._smallest(full, parameters))
    room = needed - (size(tiny, full) - least) // 2
    monkeypatch.setattr(lowering, "machine_bytes", lambda: int(room / SHARE))
    fitted = plan_keys(full, parameters)
    assert size(tiny, fitted) <= fitted.attributes[MEMORY]
    assert costs_summary(program_costs(fitted), parameters)["memory_bytes"] <= room
    # A machine that no choice suits is not the one that will run it.
    monkeypatch.setattr(lowering, "machine_bytes", lambda: needed // 10)
    assert plan_keys(full, parameters).attributes == full.attributes


def test_with_fewer_keys_than_transforms_need_features_lie_in_the_top_bits(
    tiny: Tiny, complete: tuple[Module, int]
) -> None:
    """Each step of a transform needs a key of its own. With fewer keys transforms take fewer steps;
    the other packing can compose rotations.
    """
    full, _ = complete
    assert features_low(full), "the default of this model, whose transforms are cheap"
    parameters = load_bundle(tiny.bundle).parameters
    fewer = replace(full, attributes=full.attributes | {"fewer_keys": True})
    some, least = (size(tiny, lowering._smallest(one, parameters)) for one in (full, fewer))
    source = load_source(str(tiny.archive), tiny.data)
    module = trace_model(source.model, BATCH)
    approximate(module, calibrate_source(module, source, margin=0.3))

    def lowered(key_memory: int) -> Module:
        options = TargetOptions(target="cpu", key_memory=key_memory)
        return lowering.lower_module(module, source.inputs.arrays, options).program

    chained = lowered(some - 1)
    assert features_low(chained) and chained.attributes["fewer_keys"]
    assert not features_low(lowered(least - 1))


def test_on_a_small_device_fewer_sums_are_held_before_there_are_fewer_keys() -> None:
    weight = np.broadcast_to(np.float32(0.5), (40 * 64, 64))
    wide = poly('%y = poly.linear %x {weight = @w}\npoly.output %y {name = "y"}',
                {"w": weight}, (1, 64, 64))  # fmt: skip
    parameters = CudaParameters.choose(1, 4096)
    steps = [Pack(parameters.slots, True, parameters.most_sums), PlaceBootstraps(1, False)]
    program = run_passes(wide, steps)
    full = plan_keys(program, parameters)
    needed = sum(lowering.memory_of(full, parameters).values())
    assert plan_keys(program, parameters, device_memory=needed).attributes == full.attributes
    held = parameters.most_sums
    while held > MOST_SUMS:
        fitted = plan_keys(program, parameters, device_memory=needed - 1)
        smaller = sum(lowering.memory_of(fitted, parameters).values())
        assert smaller < needed
        assert fitted.attributes["most_sums"] < held
        assert key_plan(fitted).rotations == key_plan(full).rotations
        needed, held = smaller, fitted.attributes["most_sums"]
    fewer = plan_keys(program, parameters, device_memory=needed - 1)
    assert fewer.attributes["most_sums"] == MOST_SUMS and fewer.attributes["fewer_keys"]
    assert len(key_plan(fewer).rotations) < len(key_plan(full).rotations)
    with pytest.raises(AtlasError, match="does not fit a device"):
        plan_keys(program, parameters, device_memory=needed // 2)


def features_low(program: Module) -> bool:
    return layout_of(program.inputs[0].value).features_low


def test_what_is_no_size_is_refused_before_any_work(tmp_path: Path) -> None:
    assert parse_memory("4G") == 4 * 2**30
    assert options_of(CompileOptions, {"key_memory": "all"}).key_memory == ALL_MEMORY
    assert options_of(CompileOptions, {"key_memory": None}).key_memory is None
    with pytest.raises(AtlasError, match="'lots' is not a size of memory"):
        parse_memory("lots")
    data = Path(MODEL).parent / "calibration.npz"
    arguments = ("compile", MODEL, "--data", data, "-o", tmp_path / "x")
    arguments += ("--target", "cpu{key-memory=lots}")
    assert "is not a size of memory" in refused(*arguments)


def test_bytes_of_a_network_are_decimal() -> None:
    assert parse_bytes("1.9G") == parse_bytes("1900 MB") == 1_900_000_000
    for text in ("lots", "1.9GiB", "-1M"):
        with pytest.raises(AtlasError, match="is not a number of bytes"):
            parse_bytes(text)


def test_a_client_sends_no_more_than_it_may(tiny: Tiny) -> None:
    """In the faster one of both packings; the least is named where it is more."""
    source = load_source(str(tiny.archive), tiny.data)
    module = trace_model(source.model, BATCH)
    approximate(module, calibrate_source(module, source, margin=0.3))

    def sent(limit: int | None) -> int:
        options = TargetOptions(target="cpu", upload_at_most=limit)
        lowered = lowering.lower_module(module, source.inputs.arrays, options)
        found = sent_by(lowered.program, lowered.parameters, "cpu", None)
        assert found is not None
        return found.bytes.keys

    every = sent(None)
    assert sent(every) == every
    assert sent(every - 1) < every
    with pytest.raises(AtlasError, match="do not fit into an upload of 1 MB") as refusal:
        sent(1_000_000)
    least = parse_bytes(str(refusal.value.remedy).split()[3])
    assert every > sent(least) > least - 1_000_000


def test_where_the_bytes_of_keys_have_no_limit(tiny: Tiny, tmp_path: Path) -> None:
    config = Path(MODEL).parents[1] / "configs" / "bert-base"
    sim, cpu = (("--target", f"{name}{{upload-at-most=1G}}") for name in ("sim", "cpu"))
    assert "no effect on the target sim" in refused("inspect", config, *sim)
    data = Path(MODEL).parent / "calibration.npz"
    text = ("compile", MODEL, "--data", data, "-o", tmp_path / "x", "--generate", *cpu)
    assert "--generate and upload-at-most of --target exclude each other" in refused(*text)
    for limit in ("upload-at-most", "key-memory"):
        target = ("--target", f"cpu{{{limit}=1G}}")
        assert f"{limit} of --target changes nothing of @" in refused(
            "inspect", tiny.bundle / "server" / "poly.air", *target
        )


def test_a_target_that_cannot_tell_is_refused(tiny: Tiny) -> None:
    program, parameters = load_bundle(tiny.bundle).program, load_bundle(tiny.bundle).parameters
    with pytest.raises(AtlasError, match="the target desilo cannot tell the bytes of keys"):
        lowering._sendable(program, parameters, "desilo", 10**9)


def test_opt_knows_the_sizes_of_keys(tiny: Tiny) -> None:
    source = tiny.bundle / "server" / "program.air"
    text = run("opt", source, "-p", "rotation-keys{key-memory=1G}", "--explain")
    assert "amounts: " in text.err
    assert f"key_memory = {2**30}" in text.out
    outcome = refused("opt", source, "-p", "rotation-keys{key-memory=1K}")
    assert "do not fit into 1K" in outcome
    assert "as key-memory of --target" in outcome


def test_memory_of_a_machine(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 2048 kB\nMemAvailable: 1024 kB\n")
    assert machine_bytes(tmp_path) == 2 * 2**20
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("1000000\n")
    assert machine_bytes(tmp_path) == 1000000
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert machine_bytes(tmp_path) == 2 * 2**20
    assert machine_bytes(tmp_path / "nowhere") is None
