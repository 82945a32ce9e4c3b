"""Signatures of a bundle's manifest by its maker, in the format of minisign.

The manifest has the digests of all files, so one signature covers the whole bundle. It lies in
``manifest.json.minisig``, which ``minisign -V`` checks too.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

from atlasc.bundle.folder import Bundle
from atlasc.bundle.manifest import MANIFEST, MAX_MANIFEST, SIGNATURE
from atlasc.files import new_private_file, require_new, write_text
from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.files import KIB, read_bytes, read_text, require_private

LARGEST = 16 * KIB
"""Most bytes of a secret key or a signature."""
LARGEST_KEY = KIB
"""Most bytes of a public key."""


def make_key(path: Path, password: str) -> Path:
    """Write a secret key, encrypted unless the password is empty, and the public key beside it.

    Returns the place of the public key, which has the suffix ``.pub``.

    Raises:
        AtlasError: one of the files exists, or cannot be written.
    """
    library, public = _library(), path.with_suffix(".pub")
    require_new(path)
    require_new(public)
    pair = library.KeyPair.generate()
    if password:
        pair.secret_key.encrypt(password)
    new_private_file(path, bytes(pair.secret_key))
    write_text(public, bytes(pair.public_key).decode())
    return public


def sign(bundle: Bundle, key: Path, password: str) -> Path:
    """Sign a bundle with a secret key, and return the place of the signature.

    An earlier signature is replaced.

    Raises:
        AtlasError: the key cannot be read, is open to others, or the password is wrong.
    """
    library = _library()
    require_private(key)
    content = read_bytes(key, LARGEST)
    remedy = (
        "give the secret key that atlasc sign --make-key or minisign -G wrote, and its password"
    )
    with explained(f"{key} cannot sign", remedy=remedy):
        secret = library.SecretKey.from_bytes(content)
        if secret.is_encrypted():
            secret.decrypt(password)
        comment = f"atlasc bundle {bundle.identity}"
        signature = secret.sign(_manifest(bundle), trusted_comment=comment)
    write_text(bundle.folder / SIGNATURE, bytes(signature).decode())
    return bundle.folder / SIGNATURE


def read_public_key(path: Path) -> str:
    """The text of a public key; :func:`verify_by` says whether it is one."""
    return read_text(path, LARGEST_KEY)


def verify(bundle: Bundle, key: Path) -> None:
    """Check that a bundle has the signature of the public key in a file.

    Raises:
        AtlasError: the signature is missing or damaged, or of another key or manifest.
    """
    verify_by(bundle, read_public_key(key), str(key))


def verify_by(bundle: Bundle, key: str, name: str) -> None:
    """As :func:`verify`, with the text of the key, and its name for messages."""
    library, path = _library(), bundle.folder / SIGNATURE
    if not os.path.lexists(path):
        raise AtlasError(
            f"{bundle.folder} is not signed",
            why=f"the bundle has no {SIGNATURE}",
            remedy="ask its maker to sign it: atlasc sign",
        )
    remedy = "do not use the bundle: get the bundle, or the public key, from its maker again"
    with explained(f"{bundle.folder} does not have the signature of {name}", remedy=remedy):
        public = library.PublicKey.from_bytes(key.encode())
        signature = library.Signature.from_bytes(read_bytes(path, LARGEST, links=False))
        public.verify(_manifest(bundle), signature)


def _manifest(bundle: Bundle) -> bytes:
    return read_bytes(bundle.folder / MANIFEST, MAX_MANIFEST, links=False)


def _library() -> ModuleType:
    try:
        import minisign
    except ImportError:
        raise AtlasError(
            "the library py-minisign is not installed",
            why="signatures are made and checked with it",
            remedy="pip install py-minisign",
        ) from None
    return minisign
