"""The reference of the protocol of ``atlasc serve``: its endpoints, and what they send as JSON."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from atlasc.remote import wire
from atlasc.service import endpoints, v2
from documentation.markdown import GENERATED, cell, docstring, table

INTRODUCTION = """\
# Protocol of `atlasc serve`

The endpoints under `/v2` are those of the \
[Open Inference Protocol](https://github.com/kserve/open-inference-protocol), version 2, with its \
extension for binary tensors. [Deploy](../deploy.md#the-protocol) explains how a client uses them. \
Every request but the health checks needs the header `Authorization: Bearer TOKEN`. A refusal is \
the object `Fault`.

## Endpoints
"""


def page() -> str:
    """All endpoints, and the JSON objects."""
    parts = [GENERATED, INTRODUCTION, table(["Request", "Does", "Status"], list(_requests()))]
    parts.append("\n## Objects\n")
    for name, kind in vars(wire).items():
        own = inspect.isclass(kind) and kind.__module__ == wire.__name__
        if own and issubclass(kind, BaseModel):
            parts += [f"### `{name}`\n\n{docstring(inspect.getdoc(kind) or '')}\n", _fields(kind)]
            parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def _requests() -> Iterator[list[str]]:
    for router in (v2.router, endpoints.router):
        for route in router.routes:
            for method in sorted(route.methods):
                about = docstring(inspect.getdoc(route.endpoint) or "")
                request = f"`{method} {route.path.replace(':path', '')}`"
                yield [request, cell(about), str(route.status_code or 200)]


def _fields(kind: type[BaseModel]) -> str:
    types = {
        name: annotation
        for base in reversed(kind.__mro__)
        for name, annotation in inspect.get_annotations(base).items()
    }
    rows = [
        [f"`{name}`", f"`{cell(str(types[name]))}`", _needed(field)]
        for name, field in kind.model_fields.items()
    ]
    return table(["Member", "Type", "Required"], rows)


def _needed(field: FieldInfo) -> str:
    return "yes" if field.is_required() else "no"
