"""The client's part of a service's program: downloaded, checked, and compared with the last one.

What a client embeds, encrypts and accepts is decided by this part. So a service cannot exchange it
unnoticed: another program than the one in the folder is taken only if the user says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from atlasc.bundle import signing
from atlasc.bundle.folder import (
    PREFILL,
    STEP,
    Bundle,
    client_interface,
    listed_bundle,
    load_bundle,
)
from atlasc.bundle.manifest import (
    INTERFACE_FILE,
    INTERFACE_TEXT,
    MANIFEST,
    MAX_MANIFEST,
    SIGNATURE,
    Manifest,
    read_manifest,
)
from atlasc.client.in_clear import in_clear
from atlasc.files import new_folder
from atlasc.generation.steps import TextBundles, publics_of
from atlasc.ir.errors import AtlasError, printable
from atlasc.ir.files import GIB, KIB, read_json
from atlasc.progress import Steps
from atlasc.remote.folders import program_folder
from atlasc.remote.link import Link, Refused, address
from atlasc.remote.trust import RECORD, Record, Trust, require_encrypted, require_pinned
from atlasc.remote.wire import WHOLE, Config, ProgramFacts

LARGEST = 16 * GIB
"""Most bytes of one file of a client's part: embeddings of a large vocabulary."""
MOST_LINES = 100
"""Most differences that a message has."""
_COMPARED = (
    "atlasc", "model", "program", "target", "parameters", "batch", "sequence_length",
    "security_bits", "settings", "data",
)  # fmt: skip
"""Members of the manifest that a person compares."""


def chosen_program(
    config: Config, folder: Path, url: str, model: str | None
) -> tuple[ProgramFacts, Record | None]:
    """The program to ask, and what the folder was used for before.

    The program of the folder is asked as long as the service answers it; else the current one.

    Raises:
        AtlasError: the folder belongs to another service or model; there are several models, and
            none was chosen.
    """
    record = None
    if (folder / RECORD).exists():
        record = read_json(folder / RECORD, Record, "the record of the service", KIB * 16)
        if record.url != url or model not in (None, record.model):
            raise AtlasError(
                f"{folder} belongs to the model {record.model} of {record.url}",
                remedy="give another folder",
            )
        model = record.model
    models = list(dict.fromkeys(one.model for one in config.programs))
    if model is None and len(models) == 1:
        model = models[0]
    versions = [one for one in config.programs if one.model == model]
    if not versions:
        raise AtlasError(
            f"{url} does not answer the model {printable(model)}"
            if model
            else f"{url} answers several models",
            why=f"its models are {', '.join(map(printable, models)) or 'none'}",
            remedy="choose one of them with --model",
        )
    kept = [one for one in versions if record is not None and one.program == record.program]
    return (kept or versions)[0], record


def client_part(
    link: Link,
    facts: ProgramFacts,
    folder: Path,
    record: Record | None,
    *,
    trust: Trust,
    steps: Steps,
) -> Bundle:
    """The client's part of a program, from the folder or the service.

    Args:
        record: what the folder was used for before.
        trust: what the user allows.

    Raises:
        AtlasError: the service has another program than before; the part is damaged, not signed by
            the key, or not what the service says; or its target does not encrypt, or is another
            one than before.
    """
    place, key = program_folder(folder, facts.program), trust.key(folder, record)
    if record is not None:
        require_pinned(folder, record, facts)
    changed = record is not None and record.program != facts.program
    if changed and record is not None and not trust.update:
        raise _changed(link, facts, program_folder(folder, record.program))
    if not place.is_dir():
        with steps("downloading the client's part"), new_folder(place, private=True) as draft:
            _download(link, facts, draft, trust)
            _checked(draft, facts, key)
    bundle = _checked(place, facts, key)
    require_encrypted(bundle.manifest, trust)
    return bundle


class Texts(NamedTuple):
    """The programs of the texts of a service.

    Attributes:
        programs: the step, and the prefill if the client and the service have the same one.
        lack: why there is no prefill; empty if there is one.
    """

    programs: TextBundles
    lack: str = ""


def text_part(
    link: Link, facts: ProgramFacts, folder: Path, step: Bundle, key: str, *, take: bool,
    steps: Steps,
) -> Texts:  # fmt: skip
    """A step with the client's part of the prefill beside it, from the folder or the service.

    A prefill decides what a client encrypts, as a step does. So the folder keeps the first one, and
    without it the tokens of a prompt take steps.

    Args:
        step: the client's part of the step.
        key: public key that must have signed the bundle with both; empty for none.
        take: whether the folder takes a prefill that it does not have.

    Raises:
        AtlasError: the prefill is damaged, not that of the step, or not signed by the key.
    """
    try:
        content = link.fetch("GET", _file(facts, f"{WHOLE}{MANIFEST}"), limit=MAX_MANIFEST)
    except Refused as refused:
        if refused.status != 404:
            raise
        return Texts(TextBundles(step), "the service has no prefill")
    identity = hashlib.sha256(content).hexdigest()
    place = program_folder(folder, identity)
    if not place.is_dir():
        if not take:
            why = "the service has a prefill that this folder does not have; --update takes it"
            return Texts(TextBundles(step), why)
        with steps("downloading the prefill's part"), new_folder(place, private=True) as draft:
            (draft / MANIFEST).write_bytes(content)
            parts = (f"{PREFILL}/client/", f"{PREFILL}/{MANIFEST}")
            _download_files(link, facts, draft, WHOLE, parts)
            _checked_text(draft, identity, step, key)
    return Texts(_checked_text(place, identity, step, key))


def _checked_text(folder: Path, identity: str, step: Bundle, key: str) -> TextBundles:
    whole = listed_bundle(folder, "client")
    if key:
        signing.verify_by(whole, key, "the public key that was given for it")
    found, alike = TextBundles(step, whole), ("target", "batch", "sequence_length")
    prefill, listed = found.prefill, whole.manifest.files.get(f"{STEP}/{MANIFEST}")
    if (whole.identity, listed) != (identity, step.identity):
        why = "the bundle with the prefill does not list this step"
    elif prefill is None:
        why = "the bundle has none"
    elif any(getattr(prefill.manifest, name) != getattr(step.manifest, name) for name in alike):
        why = f"they differ in one of {', '.join(alike)}"
    elif publics_of(prefill) != publics_of(step):
        why = "other inputs of it would leave in the clear"
    else:
        _ = prefill.client  # refuses inputs that would leave in the clear
        return found
    raise AtlasError(
        "the service names a prefill that is not that of its step",
        where=str(folder),
        why=why,
        remedy="ask whoever runs the service",
    )


def _download(link: Link, facts: ProgramFacts, draft: Path, trust: Trust) -> None:
    link.download(_file(facts, MANIFEST), draft / MANIFEST, MAX_MANIFEST)
    require_encrypted(read_manifest(draft)[0], trust)
    _download_files(link, facts, draft, "", ("client/",))


def _download_files(
    link: Link, facts: ProgramFacts, draft: Path, place: str, parts: tuple[str, ...]
) -> None:
    """Download the signature of a manifest, and the files that it lists of some parts, from a place
    among the files of a program.
    """
    try:
        link.download(_file(facts, f"{place}{SIGNATURE}"), draft / SIGNATURE, 16 * KIB)
    except Refused as refused:
        if refused.status != 404:
            raise
    for name in read_manifest(draft)[0].files:  # the schema allows no name that leaves the folder
        if name.startswith(parts):
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            link.download(_file(facts, f"{place}{name}"), draft / name, LARGEST)


def _file(facts: ProgramFacts, name: str) -> str:
    """The address of a file of the client's part."""
    base = ("v2", "models", facts.model, "versions", facts.program, "client")
    return address(*base, *name.split("/"))


def _checked(folder: Path, facts: ProgramFacts, key: str) -> Bundle:
    bundle = load_bundle(folder, "client")
    found = bundle.manifest
    if (bundle.identity, found.program) != (facts.bundle, facts.program):
        raise AtlasError(
            "the client's part is not that of the program that the service names",
            where=str(folder),
            why=f"it is {found.program[:8]}, of the bundle {bundle.identity[:8]}; the "
            f"service names {facts.program[:8]}, of {facts.bundle[:8]}",
            remedy="ask whoever runs the service",
        )
    for name in ("target", "batch", "sequence_length"):
        here, there = getattr(found, name), getattr(facts, name)
        if here != there:
            raise AtlasError(
                f"the service says another {name} of its program than the program itself",
                where=str(folder),
                why=f"{printable(str(there))}, where the program has {printable(str(here))}",
                remedy="ask whoever runs the service",
            )
    if key:
        signing.verify_by(bundle, key, "the public key that was given for it")
    _ = bundle.client  # refuses inputs that would leave in the clear, before keys are made
    return bundle


def _changed(link: Link, facts: ProgramFacts, old: Path) -> AtlasError:
    """The service answers another program than the folder's: every difference, field by field."""
    with TemporaryDirectory() as scratch:
        new = Path(scratch)
        link.download(_file(facts, MANIFEST), new / MANIFEST, MAX_MANIFEST)
        (new / "client").mkdir()
        manifests = [read_manifest(folder)[0] for folder in (old, new)]
        for name in (INTERFACE_FILE, *(() if manifests[1].stored else (INTERFACE_TEXT,))):
            link.download(_file(facts, name), new / name, LARGEST)
        found = [*differences(*manifests)]
        read = zip((old, new), manifests, strict=True)
        here, there = (", ".join(in_clear(client_interface(*one))) or "nothing" for one in read)
    if here != there:
        found.insert(0, ("in the clear", here, there))
    lines = [f"{name}: here {one}, there {other}" for name, one, other in found]
    return AtlasError(
        f"{link.url} answers another program of {facts.model} than this folder is for",
        why="\n".join(lines[:MOST_LINES]) or "nothing but the identity differs",
        remedy="if you expect a new version, accept it with --update; otherwise ask whoever runs "
        "the service",
    )


def differences(before: Manifest, new: Manifest) -> Iterator[tuple[str, str, str]]:
    """What differs between two programs: field, before, new; the fields of objects one by one."""
    yield from _differences("", *(one.model_dump(include=set(_COMPARED)) for one in (before, new)))
    files = {
        name
        for name in {*before.files, *new.files}
        if name.startswith("client/") and before.files.get(name) != new.files.get(name)
    }
    for name in sorted(files):
        yield name, before.files.get(name, "–")[:8], new.files.get(name, "–")[:8]


def _differences(
    place: str, before: dict[str, Any], new: dict[str, Any]
) -> Iterator[tuple[str, str, str]]:
    for name in dict.fromkeys([*before, *new]):
        one, other, where = before.get(name), new.get(name), f"{place}{name}"
        if isinstance(one, dict) and isinstance(other, dict):
            yield from _differences(f"{where}.", one, other)
        elif one != other:
            yield where, _short(one), _short(other)


def _short(value: object) -> str:
    text = "–" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:16]}…"


def require_kind(model: str, generates: bool, *, text: bool) -> None:
    """Refuse a program that generates text where single queries are asked, and the other way round.

    Raises:
        AtlasError: ``generates`` is not ``text``.
    """
    if generates and not text:
        raise AtlasError(
            f"{model} of this service generates text",
            remedy="give the address to the command generate; in Python use session()",
        )
    if text and not generates:
        raise AtlasError(
            f"{model} of this service generates no text",
            remedy="give the address to the command query; in Python use query()",
        )
