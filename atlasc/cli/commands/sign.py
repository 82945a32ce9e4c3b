"""``atlasc sign`` and ``atlasc verify``: who compiled a bundle, and whether it is whole."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from atlasc.api.progress import progress
from atlasc.cli.output import print_json, say
from atlasc.cli.parameters import JSON, required
from atlasc.compilation.declared import option, switch


def sign(
    bundle: Annotated[Path, typer.Argument(help="Bundle.")],
    key: Path = required("Secret key, in the format of minisign."),
    make_key: bool = switch("Make the key first; the public key is written beside it."),
    no_password: bool = switch("The key is not encrypted; do not ask for a password."),
    as_json: bool = JSON,
) -> None:
    """Sign a bundle, so that others can check who compiled it."""
    from atlasc.bundle import signing
    from atlasc.bundle.folder import load_bundle

    with progress("checking the bundle"):
        loaded = load_bundle(bundle)
    password = "" if no_password else _ask(make_key)
    public = signing.make_key(key, password) if make_key else None
    signature = signing.sign(loaded, key, password)
    if as_json:
        print_json({"signature": str(signature), "public_key": public and str(public)})
        return
    if public is not None:
        say(f"{key}: the secret key that signs; keep it")
        say(f"{public}: the public key; give it to whoever uses your bundles")
    say(f"{signature}: the signature")


def verify(
    bundle: Annotated[Path, typer.Argument(help="Bundle, or a role's part of it.")],
    signed_by: Path | None = option("Public key of the signer that you expect."),
    as_json: bool = JSON,
) -> None:
    """Check that a bundle is whole, and who signed it.

    Every command checks the files that it reads. Only this command checks signatures: use it once
    when you get a bundle from somebody else.
    """
    from atlasc.bundle import signing
    from atlasc.bundle.folder import load_bundle
    from atlasc.bundle.manifest import MANIFEST
    from atlasc.bundle.split import held_role

    with progress("checking the bundle"):
        loaded = load_bundle(bundle, held_role(bundle))
        if signed_by is not None:
            signing.verify(loaded, signed_by)
    if as_json:
        print_json({"identity": loaded.identity, "signed_by": signed_by and str(signed_by)})
        return
    signed = "" if signed_by is None else f", and signed by {signed_by}"
    say(f"{bundle}: the files are those of {MANIFEST}{signed}")
    say(f"identity {loaded.identity}")


def _ask(new: bool) -> str:
    return str(typer.prompt("Password of the key", hide_input=True, confirmation_prompt=new))
