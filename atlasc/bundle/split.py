"""Copies the part of a bundle that one role needs."""

from __future__ import annotations

import shutil
from pathlib import Path

from atlasc.bundle.folder import PREFILL, STEP, load_bundle
from atlasc.bundle.manifest import MANIFEST, ROLES, SIGNATURE, Role
from atlasc.files import new_folder


def copy_part(folder: Path, role: Role, place: Path) -> None:
    """Copy a role's part of a bundle into a new folder: its files, the manifest and the signature,
    and the same of a step and of a prefill.

    Raises:
        AtlasError: as :func:`load_bundle`; the place exists or cannot be written.
    """
    bundle = load_bundle(folder, role)
    parts = {Path(): bundle}
    parts |= {Path(STEP): bundle.step} if bundle.has_step else {}
    parts |= {Path(PREFILL): bundle.prefill} if bundle.has_prefill else {}
    with new_folder(place) as draft:
        for name, part in parts.items():
            shutil.copytree(part.folder / role, draft / name / role)
            for file in (MANIFEST, SIGNATURE):
                if (part.folder / file).is_file():
                    shutil.copyfile(part.folder / file, draft / name / file)


def held_role(folder: Path) -> Role | None:
    """The role whose part a folder holds alone; None if it has both parts, or neither."""
    for role in ROLES:  # may be the folder of the part itself, beside the manifest
        if not (folder / MANIFEST).is_file() and folder.resolve().name == role:
            return role
    here = [role for role in ROLES if (folder / role).is_dir()]
    return here[0] if len(here) == 1 else None
