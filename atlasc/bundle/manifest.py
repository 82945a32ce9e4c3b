"""``manifest.json``: the facts of a bundle, and the digest of every file that a role reads.

The digest of the manifest is the identity of the bundle: everything that changes an answer is in
the manifest or in a file that it lists. Queries and answers carry the identity of the server's
program; a query or an answer of another program is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue, with_config
from typing_extensions import NotRequired, TypedDict

from atlasc.bundle import PROGRAM_NAME
from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.files import MIB, Schema, Sha256, parse_json, read_bytes, sha256_of
from atlasc.ir.plugins import NAME
from atlasc.targets import find_target
from atlasc.targets.parameters import ParameterSet
from atlasc.targets.security import check_security

Role = Literal["client", "server"]
ROLES: tuple[Role, ...] = ("client", "server")
FORMAT = 5
MANIFEST = "manifest.json"
SIGNATURE = f"{MANIFEST}.minisig"
INTERFACE_FILE, INTERFACE_TEXT = "client/interface.safetensors", "client/interface.air"
REQUIRED = (
    "client/embed.air",
    "client/embed.safetensors",
    INTERFACE_FILE,
    "server/poly.air",
    "server/program.air",
)
"""Files of every format that decide what a bundle computes."""
PROGRAM_FILE = "server/program.safetensors"
_ARRAYS = {3: "server/weights.safetensors", FORMAT: PROGRAM_FILE}
"""Format -> the server's file of arrays. In format 3 roles read IR, which it has the arrays of."""
MAX_MANIFEST, MAX_VALUES, MAX_TYPED = 64 * MIB, 2**23, 200_000
"""Bytes, values, and values outside of the calibration, each of which may be wrong in its own way.
That of a small model has 4,000 values; ranges of channels take 22 for each channel."""
_PART = re.compile(r"(?!\.)[\w .+-]{1,200}", re.ASCII)


def _file_name(name: str) -> str:
    if not all(map(_PART.fullmatch, name.split("/"))):
        raise ValueError(f"{name!r} is not the name of a file in a bundle")
    return name


FileName = Annotated[str, Field(max_length=400), AfterValidator(_file_name)]
Facts = dict[str, JsonValue]
"""Members for people; no result depends on them."""


@with_config(extra="allow")
class LayerCosts(TypedDict):
    """Costs of one layer; further members are for reports."""

    layer: int | None
    depth: NotRequired[int | None]


@with_config(extra="allow")
class CostFacts(TypedDict):
    """Costs of the program; further members are for reports."""

    depth: NotRequired[int | None]
    depth_outside: NotRequired[int | None]
    per_layer: list[LayerCosts]


class ModelFacts(Schema):
    """The compiled model, and which of its files are not read or not computed."""

    name: str
    kind: str
    notes: tuple[str, ...] = ()


class Manifest(Schema):
    """The facts of a bundle.

    Attributes:
        format: format version of the bundle.
        atlasc: version of atlasc that compiled it.
        name: of the program, as a service calls it; None: after the model.
        model: name and family of the model.
        program: identity of the server's program, which queries and answers carry.
        target: name of the target.
        parameters: parameter set, in the target's form.
        security_bits, insecure: of the parameters: 128 bits or more, never insecure.
        security: archived estimates for the secrets in use.
        batch: number of inputs that one run answers.
        sequence_length: tokens of a text; None for images.
        settings, data, calibration, costs: facts for reports.
        files: path -> SHA-256 of every other file.
    """

    format: Literal[3, 5]
    atlasc: str
    name: Annotated[str, Field(pattern=f"^{PROGRAM_NAME}$")] | None = None
    model: ModelFacts
    program: Sha256
    target: Annotated[str, Field(pattern=f"^{NAME}$")]
    parameters: Facts
    security_bits: Annotated[int, Field(ge=0, le=1024)]
    security: Facts
    insecure: bool
    batch: Annotated[int, Field(ge=1, le=2**20)]
    sequence_length: Annotated[int, Field(ge=1, le=2**24)] | None
    settings: Facts
    data: Facts
    calibration: Facts
    costs: CostFacts
    files: dict[FileName, Sha256]

    @property
    def arrays(self) -> str:
        """The server's file of arrays."""
        return _ARRAYS[self.format]

    @property
    def required(self) -> tuple[str, ...]:
        """Files that decide what the bundle computes."""
        return *REQUIRED, self.arrays, *(() if self.stored else (INTERFACE_TEXT,))

    @property
    def stored(self) -> bool:
        """Whether roles read the program and its interface from files of their own, and no IR."""
        return self.arrays == PROGRAM_FILE

    def parameter_set(self) -> ParameterSet:
        """The parameters. Their security is computed here; the manifest's own number is only
        compared.

        Raises:
            AtlasError: they are damaged, have fewer than 128 bits of security, or are weaker than
                the manifest says.
        """
        found = find_target(self.target).parameters.from_dict(self.parameters)
        if found.to_dict() != self.parameters:
            raise AtlasError(f"{MANIFEST} has parameters that {self.target} does not know")
        check_security(found.secrets)
        if (self.security_bits, self.insecure) != (found.security_bits, False):
            raise AtlasError(
                f"{MANIFEST} says {self.security_bits} bits of security, but its parameters have "
                f"{found.security_bits}",
                remedy="compile the model again, and do not use this bundle",
            )
        return found


def read_manifest(folder: Path) -> tuple[Manifest, str]:
    """The manifest of a bundle, and its SHA-256.

    Raises:
        AtlasError: the manifest cannot be read, has another format, or is damaged.
    """
    path = folder / MANIFEST
    content = read_bytes(path, MAX_MANIFEST, links=False)
    with explained(f"{path} cannot be read"):
        facts = parse_json(content, Facts, MAX_VALUES)
    version, calibration = facts.get("format"), facts.get("calibration")
    if version not in list(_ARRAYS):  # what is no number may have no hash
        raise AtlasError(
            f"{folder} has bundle format {version!r}",
            why=f"this atlasc reads the formats {' and '.join(map(str, _ARRAYS))}",
            remedy="compile the model again, or use the version of atlasc that made it",
        )
    with explained(f"{path} is damaged", remedy="compile the model again"):
        typed = {**facts, "calibration": {}} if isinstance(calibration, dict) else facts
        manifest = parse_json(json.dumps(typed), Manifest, MAX_TYPED)
        manifest = manifest.model_copy(update={"calibration": calibration})
        manifest.parameter_set()
    return manifest, hashlib.sha256(content).hexdigest()


def require_unchanged(path: Path, digest: str, remedy: str) -> None:
    """Refuse a file of a bundle that is a link, or has another SHA-256 than the manifest says."""
    if sha256_of(path) != digest:
        raise AtlasError(
            f"{path} was changed after the bundle was compiled",
            why="its SHA-256 is not the one in the manifest",
            remedy=remedy,
        )
