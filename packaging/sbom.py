"""The bill of materials of a wheel, which it carries itself (CycloneDX 1.6, PEP 770).

    python packaging/sbom.py WHEEL [VERSION OF CUDA, IF ITS RUNTIME IS INSIDE]

It lists every pin of ``requirements.lock`` for the wheel's Python and processor, with licence and
SHA-256 of its files, and every C++ source in the wheel. Nothing in it depends on when or where it
was made.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from email import message_from_bytes
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parent.parent
LOCK, LICENCES = ROOT / "requirements.lock", ROOT / "packaging" / "licences.json"
NAME = "atlasc.cdx.json"
SOURCES = ("atlasc/runtime_cuda/", "atlasc/polynomials/native/")
"""Folders of a wheel that hold C++, which emitted projects and the native parts are built from."""


def main() -> None:
    """The command line."""
    add(Path(sys.argv[1]), *sys.argv[2:])


def add(wheel: Path, cuda: str = "") -> None:
    """Put the bill into the folder ``sboms`` of the wheel's metadata; see :func:`bill`."""
    with tempfile.TemporaryDirectory() as place:
        _wheel("unpack", "-d", place, wheel)
        [metadata] = Path(place).glob("*/*.dist-info")
        (metadata / "sboms").mkdir(exist_ok=True)
        text = json.dumps(bill(wheel, cuda), indent=1, sort_keys=True) + "\n"
        (metadata / "sboms" / NAME).write_text(text)
        _wheel("pack", "-d", wheel.parent, metadata.parent)


def bill(wheel: Path, cuda: str = "") -> dict[str, Any]:
    """The bill of a wheel; ``cuda``: version of CUDA whose runtime is linked into it."""
    name, version, _, tags = parse_wheel_filename(wheel.name)
    pythons = {tag.interpreter for tag in tags}
    with zipfile.ZipFile(wheel) as file:
        [found] = [one for one in file.namelist() if one.endswith(".dist-info/METADATA")]
        metadata = message_from_bytes(file.read(found))
        sources = {
            one: hashlib.sha256(file.read(one)).hexdigest()
            for one in sorted(file.namelist())
            if one.startswith(SOURCES) and not one.endswith("/")
        }
    licence = str(metadata["License-Expression"])
    aarch64 = any(tag.platform.endswith("aarch64") for tag in tags)
    packages = pinned(python_version(pythons), "aarch64" if aarch64 else "x86_64")
    asked = [Requirement(one) for one in metadata.get_all("Requires-Dist") or ()]
    direct = {canonicalize_name(one.name) for one in asked if one.marker is None}
    main = _component("library", str(name), str(version), licence)
    carried = [
        {"type": "file", "bom-ref": one, "name": one,
         "hashes": [{"alg": "SHA-256", "content": digest}], **_licensed(licence)}
        for one, digest in sources.items()
    ]  # fmt: skip
    if cuda:
        purl = f"pkg:generic/nvidia-cuda-runtime@{cuda}"
        runtime = _component(
            "library", "nvidia-cuda-runtime", cuda, "LicenseRef-NVIDIA-Proprietary"
        )
        carried.append(runtime | {"bom-ref": purl, "purl": purl})
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"component": main, "lifecycles": [{"phase": "build"}]},
        "components": [*packages, *carried],
        "dependencies": [
            {"ref": main["bom-ref"],
             "dependsOn": sorted(one["bom-ref"] for one in packages if one["name"] in direct)}
        ],
    }  # fmt: skip


def python_version(interpreters: set[str]) -> str:
    """The version of Python of a wheel's tag, such as ``cp313``."""
    [tag] = interpreters
    found = re.fullmatch(r"cp(3)(\d+)", tag)
    if found is None:
        sys.exit(f"a wheel for {tag} is of no version of CPython")
    return ".".join(found.groups())


def pinned(version: str, machine: str) -> list[dict[str, Any]]:
    """The packages that are pinned for a version of Python on a processor."""
    licences: dict[str, str] = json.loads(LICENCES.read_text())
    found = []
    for line in LOCK.read_text().replace("\\\n", " ").splitlines():
        if not line.startswith("#"):
            pin, _, rest = line.partition(" ")
            marker, _, _ = rest.partition("--hash")
            given = {
                "python_version": version, "python_full_version": f"{version}.0",
                "platform_machine": machine,
            }  # fmt: skip
            if not (words := marker.strip(" ;")) or Marker(words).evaluate(given):
                name, _, number = pin.partition("==")
                one = _component("library", name, number, licences[name])
                hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})", rest)
                place = {
                    "type": "distribution", "url": f"https://pypi.org/project/{name}/{number}/",
                    "hashes": [{"alg": "SHA-256", "content": digest} for digest in hashes],
                }  # fmt: skip
                found.append(one | {"externalReferences": [place]})
    return found


def _component(kind: str, name: str, version: str, licence: str) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{version}"
    return {
        "type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl,
        **_licensed(licence),
    }  # fmt: skip


def _licensed(expression: str) -> dict[str, Any]:
    return {"licenses": [{"expression": expression}]}


def _wheel(*words: object) -> None:
    command = [sys.executable, "-m", "wheel", *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
