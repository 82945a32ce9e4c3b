"""``atlasc emit`` and ``atlasc embed``: programs that are deployed without Python."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from atlasc.cli import options
from atlasc.cli.admitting import UncheckedOption, admit
from atlasc.cli.output import say
from atlasc.cli.progress import progress
from atlasc.cli.selection import CountOption, IndexOption, select


def emit(
    bundle: Annotated[Path, typer.Argument(help="Bundle; its server part is enough.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="New folder for the project.", show_default=False)
    ],
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
    device_memory: options.DeviceMemory = None,
) -> None:
    """Write a compiled program as a C++ project that runs without Python.

    It has two executables, a client and a server. They run on a GPU by Phantom-FHE, or on the
    runtime's simulation engine, which encrypts nothing.
    """
    from atlasc.bundle.folder import load_bundle
    from atlasc.compilation.key_planning import check_device_memory, plan_keys
    from atlasc.emit.build import build_project, python_definitions, require_tools
    from atlasc.emit.project import write_project
    from atlasc.files import require_new
    from atlasc.targets import find_target

    require_new(output)
    definitions: list[str] = []
    if build:
        require_tools()
        definitions = python_definitions() if python else []
    loaded = load_bundle(bundle, "server")
    program, parameters = loaded.program, loaded.parameters
    target = find_target(loaded.target)
    check_device_memory(device_memory, None, target)
    if device_memory is not None:
        program = plan_keys(program, parameters, device_memory=device_memory)
    chosen = engine or target.runtime_engine
    with progress("writing the project"):
        write_project(output, program, parameters, chosen)
    built = None
    if build:
        with progress("building"):
            built = build_project(output, chosen, definitions)
    say(f"{output}: the project; its README.md says how to use it")
    if built is not None:
        say(f"{built / 'client'} and {built / 'server'}: the executables")


def embed(
    bundle: Annotated[Path, typer.Argument(help="Bundle; its client part is enough.")],
    data: Annotated[Path, typer.Option("--input", help="Inputs: .txt, .jsonl, .npz, images.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="New .safetensors file.", show_default=False)
    ],
    index: IndexOption = "",
    count: CountOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse all inputs if one is to be left out.")
    ] = False,
    unchecked: UncheckedOption = False,
) -> None:
    """Do the client's part in the clear: what the client of emit encrypts.

    Inputs that are not finite, or far larger than any that calibration saw, are left out.
    """
    from atlasc.bundle.folder import load_bundle
    from atlasc.emit.inputs import save_inputs
    from atlasc.files import require_file_place, require_new

    require_new(output)
    require_file_place(output, ".safetensors")
    loaded = load_bundle(bundle, "client")
    inputs = admit(loaded, select(loaded.load_inputs(data), index, count), strict, unchecked)
    with progress("embedding"):
        save_inputs(output, loaded.client, inputs.arrays)
    say(f"{output}: {len(inputs)} inputs, in the clear")
