"""The programs that a service answers: what it was started with, opened and checked once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from atlasc.api.roles import check_target
from atlasc.bundle.folder import PREFILL, Bundle, load_bundle
from atlasc.bundle.manifest import MANIFEST, SIGNATURE
from atlasc.bundle.messages import Message
from atlasc.bundle.sealed import require_no_secret
from atlasc.generation.steps import TextBundles, window_of
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import MIB
from atlasc.program.key_plan import KeyPlan
from atlasc.remote.wire import WHOLE, ProgramFacts
from atlasc.runtime.interface import keys_of
from atlasc.service.faults import Refusal
from atlasc.service.texts import Opened, open_programs
from atlasc.service.workers.base import Loadable
from atlasc.targets import find_target
from atlasc.targets.base import SentBytes, Target
from atlasc.targets.key_folders import configuration_of


@dataclass(frozen=True)
class Served:
    """A program, with what decides the limits of its messages and keys.

    Attributes:
        bundle: the bundle, of which the server's part was checked.
        model: name of the model in addresses.
        configuration: of its keys.
        sent: exact bytes of what a client sends and gets; None where the target cannot tell.
        query_bytes, answer_bytes, key_bytes: most bytes of each that are taken.
        stored_bytes: least bytes of one tenant's keys on the disk: half of a key is a seed.
        loaded_bytes: memory that one tenant's keys take while they are loaded.
        seconds: predicted seconds of an answer; None without a cost table.
        text_bytes: bytes of the keys and values of one text; 0 for a program that keeps nothing.
        text: see :class:`Opened`.
    """

    bundle: Bundle
    model: str
    configuration: str
    sent: SentBytes | None
    query_bytes: int
    answer_bytes: int
    key_bytes: int
    stored_bytes: int
    loaded_bytes: int
    seconds: float | None
    text_bytes: int = 0
    text: TextBundles | None = None

    @property
    def program(self) -> str:
        """Identity of the program."""
        return self.bundle.manifest.program

    def facts(self, seconds: float | None) -> ProgramFacts:
        """What a client is told, with the seconds of an answer."""
        manifest = self.bundle.manifest
        exact = self.sent or SentBytes(self.key_bytes, self.query_bytes, self.answer_bytes)
        return ProgramFacts(
            model=self.model, program=self.program, bundle=self.bundle.identity,
            target=manifest.target, batch=manifest.batch,
            sequence_length=manifest.sequence_length, configuration=self.configuration,
            query_bytes=exact.query, answer_bytes=exact.answer, key_bytes=exact.keys,
            seconds=seconds,
        )  # fmt: skip

    @property
    def folder(self) -> Path:
        """The folder that was given for it: of a step and a prefill together that with both."""
        whole = None if self.text is None else self.text.whole
        return (whole or self.bundle).folder

    @property
    def is_prefill(self) -> bool:
        """Whether it is the prefill beside a step."""
        return self.text is not None and self.text.step is not self.bundle

    @property
    def title(self) -> str:
        """Its model for whoever runs the service; a prefill beside a step is named as such."""
        return f"the prefill of {self.model}" if self.is_prefill else self.model

    def client_file(self, name: str) -> Path:
        """A file of the client's part: the manifest, the signature, or one that the manifest lists.
        Of a step beside a prefill also those of the bundle with both, below ``WHOLE``: the
        manifest, the signature, and the client's part of the prefill.

        Raises:
            Refusal: it is none of these, or this service has only the server's part.
        """
        bundle, part, inner = self.bundle, "client/", name
        listed = {MANIFEST, SIGNATURE}
        text = self.text
        if name.startswith(WHOLE) and text is not None and text.whole and text.prefill:
            bundle, part, inner = text.whole, f"{PREFILL}/client/", name.removeprefix(WHOLE)
            listed.add(f"{PREFILL}/{MANIFEST}")
        listed |= {one for one in bundle.manifest.files if one.startswith(part)}
        path = bundle.folder / inner
        if inner not in listed or not path.is_file():
            if not (self.bundle.folder / "client").is_dir():
                raise Refusal(
                    404,
                    f"this service has only the server's part of {self.model}",
                    remedy="get the client's part from whoever runs the service",
                )
            raise Refusal(404, f"the client's part of {self.model} has no such file")
        return path


class Programs:
    """All programs of a service, by model and by identity.

    Those of one name are versions of a model.
    """

    def __init__(self, folders: Sequence[Path], *, alone: bool = False) -> None:
        """Open bundles. Of several versions of a model, the first given is the current one.

        Args:
            alone: take a bundle that has the server's part alone, which gives no client its part.

        Raises:
            AtlasError: a bundle is damaged or was changed, cannot be executed here, is given twice,
                lacks the client's part, has the name of another kind of model, or a secret key lies
                in its folder.
        """
        self._by_program: dict[str, Served] = {}
        for folder in folders:
            for served in _all_served(folder, alone):
                if served.program in self._by_program:
                    raise AtlasError(f"{folder} is given twice", remedy="give each program once")
                _require_one_kind(served, [one for one in self if one.model == served.model])
                self._by_program[served.program] = served

    def __iter__(self) -> Iterator[Served]:
        return iter(self._by_program.values())

    @property
    def listed(self) -> tuple[Served, ...]:
        """The programs that clients choose from: all but a prefill, which belongs to its step."""
        return tuple(one for one in self if not one.is_prefill)

    @property
    def loadable(self) -> dict[str, Loadable]:
        """Identity of a program -> what a worker must know of it."""
        return {
            one.program: Loadable(
                str(one.folder), one.title, one.loaded_bytes,
                0 if one.text is None else window_of(one.text.step),
            )
            for one in self
        }  # fmt: skip

    @property
    def gpu_target(self) -> Target | None:
        """The target of these programs if GPUs execute them; None if processors do.

        Raises:
            AtlasError: some need a GPU, and others do not.
        """
        targets = {name: find_target(name) for name in (one.bundle.target for one in self)}
        on_gpu = [one for one in targets.values() if one.gpus()]
        if on_gpu and len(targets) > 1:
            names = sorted(targets)
            raise AtlasError(
                f"programs for {' and '.join(names)} are not answered by one service",
                why="it has a worker for each GPU, or one for all processors",
                remedy="start a service for each, with a state and a port of its own",
            )
        return on_gpu[0] if on_gpu else None

    def label(self, program: str) -> tuple[str, str]:
        """Model and version of a program in figures; one pair for all that are not here."""
        found = self._by_program.get(program)
        return ("unknown", "unknown") if found is None else (found.model, program[:8])

    def by_program(self, program: str) -> Served:
        """The program of this identity.

        Raises:
            Refusal: this service does not answer it.
        """
        if program not in self._by_program:
            names = ", ".join(f"{one.model} {one.program[:8]}" for one in self)
            raise Refusal(
                409,
                "this service answers other programs",
                why=f"the request is for {program[:8]}; here are {names}",
                remedy="get the client's part of the program from this service again",
            )
        return self._by_program[program]

    def of_model(self, model: str, version: str = "") -> Served:
        """A version of a model; by default its current one.

        Raises:
            Refusal: there is no such model, or no such version.
        """
        versions = [one for one in self.listed if one.model == model]
        if not versions:
            raise Refusal(404, "there is no such model here", remedy="GET /config lists them")
        if not version:
            return versions[0]
        found = self.by_program(version)
        if found.model != model:
            raise Refusal(404, "this program is another model's")
        return found


def _require_one_kind(served: Served, others: Sequence[Served]) -> None:
    """Refuse a name that programs of another kind of model have: they are no versions of one.

    Raises:
        AtlasError: with both folders.
    """
    kind = served.bundle.manifest.model.kind
    for other in others:
        if (theirs := other.bundle.manifest.model.kind) != kind:
            raise AtlasError(
                f"two different models have the name {served.model}",
                where=[str(other.bundle.folder), str(served.bundle.folder)],
                why=f"one is of the kind {theirs}, the other {kind}; programs of one name are "
                "versions of one model",
                remedy="compile one of them again with another --name",
            )


def _all_served(folder: Path, alone: bool) -> Iterator[Served]:
    """What a service answers of a bundle."""
    programs = list(open_programs(folder).values())
    clients = [_client_part(one.bundle) for one in programs]  # handed out, so checked as well
    for one, client in zip(programs, clients, strict=True):
        if client is None and not alone:
            raise AtlasError(
                f"{one.bundle.folder} has the server's part alone",
                why="the service hands the client's part out: atlasc query gets it from here",
                remedy="serve the whole bundle, which holds no key; or, if all clients have their "
                "part from elsewhere, give --server-part-alone",
            )
    made = _made(programs, clients[0])
    for one in programs:
        yield _served(one, made)


def _client_part(bundle: Bundle) -> Bundle | None:
    """The client's part beside a server's one, checked; None if it is not there."""
    return load_bundle(bundle.folder, "client") if (bundle.folder / "client").is_dir() else None


def _made(programs: Sequence[Opened], client: Bundle | None) -> KeyPlan:
    """The keys that a client makes for the programs of a bundle: those of its part of the first
    one. That is the step, whose part has also those of the prefill.
    """
    if client is not None:
        return keys_of(client.interface)
    return reduce(KeyPlan.union, (keys_of(one.bundle.server.interface) for one in programs))


def configuration_for(folder: Path) -> str:
    """The configuration of the keys of a bundle's clients."""
    programs = list(open_programs(folder).values())
    first = programs[0].bundle
    made = _made(programs, _client_part(first))
    return configuration_of(first.target, first.parameters, made)


def _served(opened: Opened, made: KeyPlan) -> Served:
    """A program, of which the server loads some keys of those that a client makes."""
    bundle, text = opened
    plan = keys_of(bundle.server.interface)
    step = bundle if text is None else text.step
    states = [one for one in step.server.interface.inputs if one.state]
    if not states:
        bundle.require_no_state()
    target = check_target(bundle, "server")
    # A simulation has no keys: its files of them say how it is rehearsed.
    parts, whole = (
        bundle.parameters.plan_memory(one) if target.encrypted else {} for one in (plan, made)
    )
    sent = target.sent_bytes(bundle.parameters, made, bundle.server.interface)
    keys = sum(size for name, size in whole.items() if name.endswith("keys"))
    seconds = dict(bundle.manifest.costs).get("seconds")
    served = Served(
        bundle,
        bundle.manifest.name or _plain(bundle.manifest.model.name),
        configuration_of(target.name, bundle.parameters, made),
        sent,
        Message.largest("query", bundle),
        Message.largest("answer", bundle),
        keys + MIB,
        keys // 2,
        sum(parts.values()),
        float(seconds) if isinstance(seconds, (int, float)) else None,
        sum(one.ciphertexts * bundle.parameters.ciphertext_bytes(one.level) for one in states),
        text,
    )
    require_no_secret(served.folder)
    return served


def _plain(name: str) -> str:
    """The name of a program that has none of its own: its model's, as an address may have it."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:100] or "model"
