"""The bill of materials that a wheel carries, of a wheel without native parts."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.metadata
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
FOLDER = "atlasc-1.2.3.dist-info"
EXPRESSION = re.compile(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*")
"""A licence in SPDX's form, without parentheses."""
SOURCES = ("runtime_cuda/CMakeLists.txt", "runtime_cuda/ckks/ring/limits.hpp")


def made(folder: Path, python: str, machine: str = "x86_64") -> Path:
    """A wheel as ``make wheels`` makes one, of few files."""
    wheel = folder / f"atlasc-1.2.3-{python}-{python}-manylinux_2_35_{machine}.whl"
    needs = [f"Requires-Dist: {one}" for one in importlib.metadata.requires("atlasc") or ()]
    head = ("Metadata-Version: 2.4", "Name: atlasc", "Version: 1.2.3")
    written = {
        "atlasc/version.py": "",
        **{f"atlasc/{one}": (ROOT / one).read_text() for one in SOURCES},
        f"{FOLDER}/METADATA": "\n".join((*head, "License-Expression: Apache-2.0", *needs, "")),
        f"{FOLDER}/WHEEL": "\n".join(
            ("Wheel-Version: 1.0", "Generator: test", "Root-Is-Purelib: false",
             f"Tag: {python}-{python}-manylinux_2_35_{machine}", "")
        ),
    }  # fmt: skip
    lines = [f"{name},{recorded(text.encode())}" for name, text in written.items()]
    written[f"{FOLDER}/RECORD"] = "\n".join((*lines, f"{FOLDER}/RECORD,,", ""))
    with zipfile.ZipFile(wheel, "w") as file:
        for name, text in written.items():
            file.writestr(name, text)
    return wheel


def recorded(content: bytes) -> str:
    """Digest and size, as RECORD has them."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"sha256={digest},{len(content)}"


def carried(wheel: Path) -> tuple[bytes, str]:
    """The bill in a wheel, and what RECORD says of it."""
    path = f"{FOLDER}/sboms/atlasc.cdx.json"
    with zipfile.ZipFile(wheel) as file:
        content = file.read(path)
        rows = csv.reader(file.read(f"{FOLDER}/RECORD").decode().splitlines())
    return content, {name: ",".join(rest) for name, *rest in rows}[path]


def added(wheel: Path, *cuda: str) -> dict[str, Any]:
    subprocess.run([sys.executable, ROOT / "packaging" / "sbom.py", wheel, *cuda], check=True)
    content, record = carried(wheel)
    assert record == recorded(content)
    bill: dict[str, Any] = json.loads(content)
    return bill


def locked(python: str, machine: str) -> dict[tuple[str, str], set[str]]:
    """Name and version -> hashes of what the lock has for a version of Python on a processor."""
    given = {"python_version": python, "platform_machine": machine}
    found = {}
    for line in (ROOT / "requirements.lock").read_text().replace("\\\n", " ").splitlines():
        if not line.startswith("#"):
            one = Requirement(line.partition("--hash")[0].strip())
            if one.marker is None or one.marker.evaluate(given):
                [version] = one.specifier
                found[one.name, version.version] = set(re.findall("sha256:(.{64})", line))
    return found


@pytest.mark.parametrize(
    ("tag", "python", "machine"),
    [("cp310", "3.10", "x86_64"), ("cp313", "3.13", "x86_64"), ("cp311", "3.11", "aarch64")],
)
def test_it_lists_the_lock_and_the_sources(
    tmp_path: Path, tag: str, python: str, machine: str
) -> None:
    bill = added(made(tmp_path, tag, machine))
    packages = [one for one in bill["components"] if one["type"] == "library"]
    files = [one for one in bill["components"] if one["type"] == "file"]
    assert len(packages) + len(files) == len(bill["components"])
    assert {
        (one["name"], one["version"]): {digest["content"] for digest in place["hashes"]}
        for one in packages
        for place in one["externalReferences"]
    } == locked(python, machine)
    there = [one["name"] for one in packages]
    assert ("desilofhe" in there) == (machine == "x86_64")  # it has no files for the other
    assert {one["name"]: one["hashes"][0]["content"] for one in files} == {
        f"atlasc/{one}": hashlib.sha256((ROOT / one).read_bytes()).hexdigest() for one in SOURCES
    }
    needs = map(Requirement, importlib.metadata.requires("atlasc") or ())
    direct = {canonicalize_name(one.name) for one in needs if one.marker is None}
    assert len(direct) > 8
    [told] = bill["dependencies"]
    assert {one.partition("@")[0] for one in told["dependsOn"]} == {
        f"pkg:pypi/{one}" for one in direct
    }


def test_it_has_the_form_of_cyclonedx(tmp_path: Path) -> None:
    """What the schema of version 1.6 requires, and that names lead somewhere."""
    bill = added(made(tmp_path, "cp312"))
    assert bill["bomFormat"] == "CycloneDX" and bill["specVersion"] == "1.6"
    assert set(bill) <= {
        "bomFormat", "specVersion", "version", "metadata", "components", "dependencies"
    }  # fmt: skip
    components = [bill["metadata"]["component"], *bill["components"]]
    names = [one["bom-ref"] for one in components]
    assert len(set(names)) == len(names)
    for one in components:
        assert one["name"] and one["type"] in ("library", "file")
        [licence] = one["licenses"]
        assert re.fullmatch(
            r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*", licence["expression"]
        )
        places = one.get("externalReferences", [one])
        for hashed in [found for place in places for found in place.get("hashes", ())]:
            assert hashed["alg"] == "SHA-256" and re.fullmatch("[0-9a-f]{64}", hashed["content"])
    for told in bill["dependencies"]:
        assert {told["ref"], *told["dependsOn"]} <= set(names)
    again = made(tmp_path, "cp312")
    assert added(again) == bill  # nothing of when it was made


def test_it_lists_the_runtime_of_cuda(tmp_path: Path) -> None:
    plain, cuda = (
        {one["bom-ref"]: one for one in added(made(tmp_path, "cp312"), *given)["components"]}
        for given in ((), ("13.0.88",))
    )
    [name] = cuda.keys() - plain.keys()
    assert name == cuda[name]["purl"] == "pkg:generic/nvidia-cuda-runtime@13.0.88"
    assert cuda[name]["licenses"] == [{"expression": "LicenseRef-NVIDIA-Proprietary"}]
    assert plain.keys() < cuda.keys()


def test_every_pin_has_its_licence() -> None:
    """Of what is installed here, the one that the package itself states."""
    licences = json.loads((ROOT / "packaging" / "licences.json").read_text())
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    assert set(licences) == {one.partition("==")[0] for one in pins if one and one[0] != "#"}
    stated = {
        canonicalize_name(one.name): one.metadata["License-Expression"]
        for one in importlib.metadata.distributions()
    }
    compared = [name for name in licences if stated.get(name)]
    assert len(compared) > 20
    assert [name for name in compared if licences[name] != stated[name]] == []
