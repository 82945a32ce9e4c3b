"""``atlasc emit`` and ``atlasc embed``: programs that are deployed without Python."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from atlasc.cli.errors import warn
from atlasc.cli.output import print_json, say
from atlasc.cli.parameters import (
    BundleFolder,
    Count,
    Folder,
    Index,
    InputFile,
    Json,
    Strict,
    Unchecked,
)
from atlasc.cli.progress import progress
from atlasc.cli.selection import selected
from atlasc.compilation.options import DeviceOptions


def emit(
    bundle: BundleFolder,
    output: Folder,
    options: DeviceOptions,
    build: Annotated[
        bool, typer.Option("--build", help="Build it too, with CMake and a C++17 compiler.")
    ] = False,
    python: Annotated[
        bool,
        typer.Option("--python", help="With --build: a Python module too, with pybind11."),
    ] = False,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            help="sim, which encrypts nothing, or phantom [default: phantom for its programs].",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a compiled program as a C++ project that runs without Python.

    The server's part of the bundle is enough. The project has two executables, a client and a
    server. They run on a GPU by Phantom-FHE, or on the runtime's simulation engine, which encrypts
    nothing.
    """
    from atlasc.bundle.folder import load_bundle
    from atlasc.compilation.checks import check_memory
    from atlasc.compilation.key_planning import plan_keys
    from atlasc.emit.project import build_project, python_definitions, require_tools, write_project
    from atlasc.files import require_new
    from atlasc.targets import find_target

    require_new(output)
    definitions: list[str] = []
    if build:
        require_tools()
        definitions = python_definitions() if python else []
    loaded = load_bundle(bundle, "server")
    program, parameters = loaded.program, loaded.parameters
    check_memory(loaded.target, None, options.device_memory)
    if options.device_memory is not None:
        program = plan_keys(program, parameters, device_memory=options.device_memory)
    chosen = engine or find_target(loaded.target).runtime_engine
    with progress("writing the project"):
        write_project(output, program, parameters, chosen)
    built = None
    if build:
        with progress("building"):
            built = build_project(output, chosen, definitions)
    places = {} if built is None else {n: str(built / n) for n in ("client", "server")}
    if as_json:
        print_json({"project": str(output), "engine": chosen, **places})
        return
    say(f"{output}: the project; its README.md says how to use it")
    if built is not None:
        say(f"{places['client']} and {places['server']}: the executables")


def embed(
    bundle: BundleFolder,
    data: InputFile,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="New .safetensors file.", show_default=False)
    ],
    index: Index = "",
    count: Count = None,
    strict: Strict = False,
    unchecked: Unchecked = False,
    as_json: Json = False,
) -> None:
    """Do the client's part in the clear: what the client of emit encrypts.

    The client's part of the bundle is enough. Inputs that are not finite, or far larger than any
    that calibration saw, are left out.
    """
    from atlasc.api.admission import admit
    from atlasc.bundle.folder import load_bundle
    from atlasc.emit.project import save_inputs
    from atlasc.files import require_file_place, require_new

    require_new(output)
    require_file_place(output, ".safetensors")
    loaded = load_bundle(bundle, "client")
    given = selected(loaded, data, index, count)
    inputs = admit(loaded, given, warn, strict=strict, unchecked=unchecked).inputs
    with progress("embedding"):
        save_inputs(output, loaded.client, inputs.arrays)
    if as_json:
        print_json({"file": str(output), "inputs": inputs.names})
    else:
        say(f"{output}: {len(inputs)} inputs, in the clear")
