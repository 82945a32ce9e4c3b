"""The interface between client and server: the facts that the template of ``interface.cpp``
shows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from atlasc.bundle.program_file import PROGRAM
from atlasc.bundle.program_writer import keys_of_engine, memory_of
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.program.key_plan import key_plan
from atlasc.program.kinds import OUTSIDE
from atlasc.program.rotation_plan import rotation_reach
from atlasc.runtime.interface import input_facts, output_facts, public_facts
from atlasc.targets.parameters import ParameterSet


def interface_facts(
    program: Module, parameters: ParameterSet, facts_of_file: Mapping[str, str]
) -> dict[str, Any]:
    """Facts of a lowered program, see ``interface.hpp``. ``facts_of_file``: those of its file.

    Raises:
        AtlasError: the name of an input or output is used twice or not allowed in files.
    """
    public = [op for op in program.ops if op.name == "ckks.public_input"]
    # Messages have arrays of these names, and NAME/NUMBER for each ciphertext.
    for ops in ([*program.inputs, *public], program.outputs):
        names = [op.attributes["name"] for op in ops]
        for name in names:
            if not re.fullmatch(r"[A-Za-z0-9_.-]{1,200}", name) or names.count(name) > 1:
                raise AtlasError(
                    f"an input or output cannot be called {name!r}",
                    why="only letters, digits and ._- are allowed, and no name may occur twice",
                    remedy="rename it in the model",
                )
    reach = rotation_reach(program, parameters.max_level)
    keys = keys_of_engine(replace(key_plan(program), rotations=reach), parameters)
    return {
        "model": program.name,
        "identity": facts_of_file[PROGRAM],
        "parameters": parameters,
        "rotations": keys.rotations,
        "levels": keys.other_levels,
        "inputs": input_facts(program),
        "publics": public_facts(program),
        "outputs": output_facts(program),
        "text": facts_of_file["sha256"],
        "ops": sum(op.name not in OUTSIDE for op in program.ops),
        "memory": memory_of(program, parameters),
    }
