"""``atlasc split``: the parts of a bundle, for a client and for a server."""

from __future__ import annotations

from pathlib import Path

from atlasc.cli.output import print_json, say
from atlasc.cli.parameters import JSON, BundleFolder, required


def split(
    bundle: BundleFolder,
    output: Path = required("New folder for the two parts.", "--output", "-o"),
    as_json: bool = JSON,
) -> None:
    """Copy a bundle as two folders: one for the client, one for the server.

    The folder client has everything to encrypt inputs and read answers, and no weights of the
    server. The folder server has everything to execute the program. Each command accepts its role's
    folder in place of the bundle. If a text can be generated, each folder has its part of the step
    and of the prefill.
    """
    from atlasc.bundle.folder import load_bundle
    from atlasc.bundle.manifest import ROLES
    from atlasc.bundle.split import copy_part
    from atlasc.files import new_folder

    with new_folder(output) as draft:
        for role in ROLES:
            copy_part(bundle, role, draft / role)
    if as_json:
        print_json({role: str(output / role) for role in ROLES})
        return
    of_text = (", ask and read", ", answer") if load_bundle(bundle).has_step else ("", "")
    say(f"{output / 'client'}: for keygen, encrypt and decrypt{of_text[0]}")
    say(f"{output / 'server'}: for execute and emit{of_text[1]}")
