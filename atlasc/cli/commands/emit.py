"""``atlasc emit`` and ``atlasc embed``: programs that are deployed without Python."""

from __future__ import annotations

from pathlib import Path

from atlasc.api.progress import progress
from atlasc.cli.output import print_json, say, warn
from atlasc.cli.parameters import (
    FOLDER,
    JSON,
    STRICT,
    UNCHECKED,
    BundleFolder,
    InputOptions,
    required,
)
from atlasc.compilation.declared import option, switch
from atlasc.compilation.options import DeviceOptions, TargetOptions


def emit(
    bundle: BundleFolder,
    options: DeviceOptions,
    output: Path = FOLDER,
    build: bool = switch("Build it too, with CMake and a C++17 compiler."),
    python: bool = switch("With --build: a Python module too, with pybind11."),
    engine: str | None = option(
        "sim, which encrypts nothing. Programs compiled for cpu or phantom may also use cpu, which "
        "encrypts on this machine, or phantom.",
        unset="the target they were compiled for",
    ),
    as_json: bool = JSON,
) -> None:
    """Write a compiled program as a C++ project that runs without Python.

    The server's part of the bundle is enough. The project has two executables, a client and a
    server. They run on a GPU with Phantom-FHE, on this machine with atlasc's own CKKS engine, or on
    a simulation engine that encrypts nothing.
    """
    from atlasc.bundle.folder import load_bundle
    from atlasc.bundle.manifest import PROGRAM_FILE
    from atlasc.client.in_clear import require_listed
    from atlasc.compilation.checks import check_target
    from atlasc.compilation.lowering import plan_keys
    from atlasc.emit.project import build_options, build_project, write_project
    from atlasc.files import require_new
    from atlasc.targets import find_target

    require_new(output)
    build_with = build_options(python) if build else []
    loaded = load_bundle(bundle, "server")
    program, parameters = loaded.program, loaded.parameters
    require_listed(loaded.interface)
    check_target(TargetOptions(target=loaded.target, device_memory=options.device_memory))
    file: Path | None = None
    if loaded.manifest.stored:
        file = loaded.folder / PROGRAM_FILE
    if options.device_memory is not None:
        file = None  # other keys, and so other functions
        program = plan_keys(program, parameters, device_memory=options.device_memory)
    chosen = engine or find_target(loaded.target).runtime_engine
    with progress("writing the project"):
        write_project(output, program, parameters, chosen, file)
    built = None
    if build:
        with progress("building"):
            built = build_project(output, chosen, build_with)
    places = {} if built is None else {n: str(built / n) for n in ("client", "server")}
    if as_json:
        print_json({"project": str(output), "engine": chosen, **places})
        return
    say(f"{output}: the project; its README.md says how to use it")
    if built is not None:
        say(f"{places['client']} and {places['server']}: the executables")


def embed(
    bundle: BundleFolder,
    inputs: InputOptions,
    output: Path = required("New .safetensors file.", "-o"),
    strict: bool = STRICT,
    unchecked: bool = UNCHECKED,
    as_json: bool = JSON,
) -> None:
    """Do the client's part in the clear: prepare what emit's client encrypts.

    The client's part of the bundle is enough. Inputs that are not finite, or far larger than the
    inputs of the calibration, are left out.
    """
    from atlasc.api.admission import admit, counted, require_polynomials
    from atlasc.bundle.folder import load_bundle
    from atlasc.emit.project import save_inputs
    from atlasc.files import require_file_place

    require_file_place(output, ".safetensors", new=True)
    loaded = load_bundle(bundle, "client")
    if strict:
        require_polynomials(loaded)
    given = inputs.load(loaded)
    admitted = admit(loaded, given, warn, strict=strict, unchecked=unchecked, steps=progress)
    chosen = admitted.inputs
    with progress("embedding"):
        save_inputs(output, loaded.client, chosen.arrays, admitted.doubt)
    if as_json:
        print_json({"file": str(output), "inputs": chosen.names})
    else:
        say(f"{output}: {counted(len(chosen), 'input', 'inputs')}, in the clear")
