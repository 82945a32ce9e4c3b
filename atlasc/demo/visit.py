"""One visitor's questions: read, encrypted, answered by the service, decrypted, and shown.

What happens is told as objects with one of the members ``stage`` (``encrypt``, ``send``,
``compute``, ``decrypt``), ``input``, ``seen``, ``warning`` and ``answer``.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from atlasc.bundle.folder import Bundle
from atlasc.bundle.sealed import header_bytes, sealed_facts
from atlasc.bundle.sent import UPLOAD
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import MIB, Schema
from atlasc.loading import IDS, MASK
from atlasc.loading.images.processor import PIXELS, load_image_processor
from atlasc.loading.images.reading import read_image
from atlasc.loading.inputs import Inputs
from atlasc.loading.labels import probabilities
from atlasc.loading.texts.tokens import special_of
from atlasc.progress import Step
from atlasc.remote.answers import RemoteAnswers
from atlasc.remote.connection import Connection
from atlasc.remote.keys import EVALUATION
from atlasc.remote.link import Refused

Tell = Callable[[Mapping[str, Any]], None]
MAX_ASKED = 24 * MIB
"""Most bytes of a question."""
WIDTH, HEIGHT = 192, 96
"""Pixels of the picture of a message."""
WORD = 8
"""Bytes of one number of a ciphertext."""
SHOWN = 4096
"""Most numbers of an output that are shown."""


class Asked(Schema):
    """What the page sends.

    Attributes:
        image: a file with a picture, in base64; empty if a text is asked.
        drawing: whether the page drew the picture, which then fills the model's image.
        texts: a text, or the two texts of a pair.
    """

    image: Annotated[str, Field(max_length=MAX_ASKED)] = ""
    drawing: bool = False
    texts: Annotated[tuple[Annotated[str, Field(max_length=MIB)], ...], Field(max_length=2)] = ()


class Visit:
    """Questions to a service.

    Attributes:
        kind: ``image`` or ``text``.
        pairs: whether the model may read two texts.
    """

    def __init__(self, service: Connection) -> None:
        """Find out how the model is asked.

        Raises:
            AtlasError: it is asked with neither images nor texts, or its image processor or
                tokenizer is missing.
        """
        self._service, model = service, service.bundle.model
        main, self.pairs = model.input_names[0], False
        if main == PIXELS:
            self.kind = "image"
            load_image_processor(model)
        elif main == IDS and model.tokenizer is not None:
            self.kind = "text"
            self.pairs = len(special_of(model).pair) > 0
        else:
            without = ", and the client's part has no tokenizer" if main == IDS else ""
            raise AtlasError(
                f"{service.facts.model} cannot be asked in a page",
                why=f"it reads {main}{without}; a page takes drawings, pictures and texts",
                remedy="use atlasc query, which reads files",
            )

    @property
    def facts(self) -> dict[str, Any]:
        """What the page says of the model before a question."""
        told, shape = self._service.facts, self._service.bundle.model.image_shape
        keys = self._service.client.ledger.folder
        size = (keys.parent / "server" / EVALUATION).stat().st_size
        return {
            "model": told.model, "program": told.program, "target": told.target,
            "kind": self.kind, "pairs": self.pairs, "shape": shape if self.kind == "image" else (),
            "sequence_length": told.sequence_length, "seconds": told.seconds,
            "query_bytes": told.query_bytes, "answer_bytes": told.answer_bytes,
            "key_bytes": size, "upload_mbit": UPLOAD, "key_upload_seconds": 8e-6 * size / UPLOAD,
            "folder": str(keys),
        }  # fmt: skip

    def ask(self, asked: Asked, tell: Tell) -> None:
        """Answer one question; every change is told.

        Raises:
            AtlasError: the input cannot be read, or is not fit to be encrypted; the service
                refuses or cannot be reached.
        """

        def note(headline: str, details: str = "") -> None:
            tell({"warning": headline, "details": details})

        def saw(kind: str, content: bytes) -> None:
            tell({"seen": kind, **picture(content)})
            tell({"stage": "send" if kind == "query" else "decrypt"})

        tell({"stage": "encrypt"})
        given = self._read(asked).tell(note)
        tell({"input": self._shown(given)})
        try:
            found = self._service.ask(given, note=note, steps=_waiting(tell), saw=saw, keep=False)
        except Refused as refused:
            if refused.status != 401:
                raise
            raise AtlasError(
                "the service does not know your token any more",
                why="a visit of a demonstration lasts two hours",
                remedy="end this program with Ctrl-C, and start it again",
            ) from None
        tell({"answer": answer_of(found)})

    def _read(self, asked: Asked) -> Inputs:
        bundle = self._service.bundle
        data: object
        if self.kind == "image":
            data = _image(asked, bundle)
        else:
            texts = [text for text in asked.texts if text.strip()]
            if not texts or (len(texts) == 2 and not self.pairs):
                raise AtlasError("there is no text", remedy="type one")
            data = [tuple(texts)] if len(texts) == 2 else texts
        return replace(bundle.load_inputs(data, partial=True), names=("your input",))

    def _shown(self, given: Inputs) -> dict[str, Any]:
        """The input as the model reads it."""
        if self.kind == "image":
            pixels = given.arrays[PIXELS][0].astype(np.float64)
            low, high = float(pixels.min()), float(pixels.max())
            bright = np.round(255 * (pixels - low) / ((high - low) or 1.0)).astype(np.uint8)
            layers = bright if len(bright) == 3 else bright[:1].repeat(3, axis=0)
            return {
                "width": pixels.shape[2], "height": pixels.shape[1], "low": low, "high": high,
                "pixels": _base64(np.moveaxis(layers, 0, -1).tobytes()),
            }  # fmt: skip
        mask = given.arrays[MASK][0]
        return {"tokens": int(mask.sum()), "length": len(mask)}


def _image(asked: Asked, bundle: Bundle) -> object:
    """The picture; a drawing is averaged to the size of the model's images before the model's own
    processor reads it, as scanned digits are.
    """
    from PIL import Image as pillow

    try:
        content = base64.b64decode(asked.image, validate=True)
    except ValueError:  # not Base64, or not even ASCII
        content = b""
    if not content:
        raise AtlasError("there is no picture", remedy="draw one, or choose a file")
    source = {"bytes": content, "path": None}
    if not asked.drawing:
        return source
    channels, height, width = bundle.model.image_shape
    drawn = read_image(source, "drawing", "L" if channels == 1 else "RGB", lambda lost: None)
    if height and width:
        drawn = drawn.resize((width, height), pillow.Resampling.BOX)
    reduced = io.BytesIO()
    drawn.save(reduced, "PNG")
    return {"bytes": reduced.getvalue(), "path": None}


def _waiting(tell: Tell) -> Callable[..., Any]:
    """Progress of :meth:`Connection.ask`, of which the page shows the server's work."""

    @contextmanager
    def steps(label: str, total: int | None = None, *, resume: str = "") -> Iterator[Step]:
        def changed(step: Step) -> None:
            if label.startswith("waiting"):
                tell({"stage": "compute", "done": step.done, "state": step.note})

        yield Step(label, total, changed)

    return steps


def picture(message: bytes) -> dict[str, Any]:
    """What a server can read in a message, and a piece of the rest as a picture: a byte a pixel.

    A number of a ciphertext takes ``WORD`` bytes, of which the highest hold little. Places of a
    number whose bytes stay below 128 in the whole piece are left out, and counted.
    """
    start = header_bytes(message)
    facts = dict(sealed_facts(message[:start]))
    body = np.frombuffer(message, np.uint8, offset=start)
    middle = len(body) // 2 // WORD * WORD
    numbers = body[middle : middle + WORD * WIDTH * HEIGHT]
    numbers = numbers[: len(numbers) // WORD * WORD].reshape(-1, WORD)
    used = numbers.max(axis=0, initial=0) >= 128
    pixels = numbers[:, used].ravel()[: WIDTH * HEIGHT]
    height = len(pixels) // WIDTH
    return {
        "bytes": len(message), "readable": facts, "width": WIDTH, "height": height,
        "left_out": int(WORD - used.sum()), "pixels": _base64(pixels[: height * WIDTH].tobytes()),
    }  # fmt: skip


def answer_of(found: RemoteAnswers) -> dict[str, Any]:
    """The answer to one input as JSON; no numbers if it cannot be right."""
    outputs = []
    for name, values in found.answers.outputs.items():
        numbers = values[0].ravel()
        named = bool(found.classes) and len(numbers) == len(found.classes)
        outputs.append(
            {
                "name": name, "shape": values.shape[1:], "classes": found.classes if named else (),
                "probabilities": _probabilities(found, name) if named and found.several else [],
                "values": [] if found.refused else [*map(_finite, numbers[:SHOWN].tolist())],
            }
        )  # fmt: skip
    return {"outputs": outputs, "refused": next(iter(found.refused.values()), None)}


def _probabilities(found: RemoteAnswers, name: str) -> list[float]:
    """Of each label of the first input, where each counts by itself; empty without an answer."""
    if found.refused:
        return []
    function = found.answers.functions.get(name)
    shares = probabilities(found.answers.outputs[name][:1], function)[0, :SHOWN]
    return [*map(float, shares)]


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
