"""Conversations, written as one text by the chat template of a tokenizer.

A template is code that comes with a model. It runs in the sandbox of Jinja alone, with what
transformers gives it (``transformers.utils.chat_template_utils``), and for a client in the process
of its tokenizer, which has bounds on memory and time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.files import MIB, Schema

MAX_TEMPLATE = MIB
"""Most characters of a template."""
MAX_MESSAGES, MAX_VALUES = 4096, 1 << 14
"""Most messages of a conversation, and most values of its file."""
SAFE = (3, 1, 6)
"""The first version of Jinja whose sandbox has no known way out, as transformers says."""


class ChatMessage(Schema):
    """A message of a conversation.

    Attributes:
        role: who says it: ``system``, ``user``, ``assistant``, or what else the template knows.
        content: its text.
    """

    role: Annotated[str, Field(min_length=1, max_length=64)]
    content: str


_Messages: TypeAdapter[list[ChatMessage]] = TypeAdapter(
    Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)]
)


def messages_of(given: object, where: object = "") -> list[ChatMessage]:
    """The messages of a conversation, of JSON values.

    Raises:
        AtlasError: it is no list of messages.
    """
    remedy = 'give a list of messages: [{"role": "user", "content": "..."}]'
    with explained("this is no conversation", where, remedy):
        return _Messages.validate_python(given)


class ChatTemplate(Schema):
    """A template, and the special tokens that it may write.

    Attributes:
        text: the template.
        tokens: name of a special token (``bos_token``) -> the token.
    """

    text: Annotated[str, Field(max_length=MAX_TEMPLATE)]
    tokens: dict[str, str] = Field(default_factory=dict)


def template_of(tokenizer: Any) -> ChatTemplate | None:
    """The template of a tokenizer of transformers: its only one, or that of the name ``default``;
    None if it has none.
    """
    text = getattr(tokenizer, "chat_template", None)
    if isinstance(text, Mapping):
        text = text.get("default")
    if not isinstance(text, str):
        return None
    with explained("the chat template of the tokenizer cannot be kept for the clients"):
        return ChatTemplate(text=text, tokens=dict(tokenizer.special_tokens_map))


def rendered(template: ChatTemplate | None, messages: Sequence[ChatMessage]) -> str:
    """The text of a conversation, up to where the assistant answers.

    Raises:
        AtlasError: there is no template; it refuses the messages, or fails; or Jinja is missing.
    """
    if template is None:
        raise AtlasError(
            "the model's tokenizer has no chat template",
            why="neither chat_template.jinja nor tokenizer_config.json of its folder has one",
            remedy="leave --chat out and write the whole prompt, or put chat_template.jinja beside "
            "the tokenizer and compile again",
        )
    given = [one.model_dump() for one in messages]
    with explained("the chat template of the model cannot write this conversation"):
        made = _environment().from_string(template.text)
        text: str = made.render(
            messages=given, tools=None, documents=None, add_generation_prompt=True,
            **template.tokens,
        )  # fmt: skip
    return text


def _environment() -> Any:
    """The sandbox of templates."""
    try:
        import jinja2
        import jinja2.ext
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise AtlasError(
            "the library jinja2 is not installed",
            why="chat templates are written for it",
            remedy="pip install jinja2",
        ) from None
    if tuple(map(int, re.findall(r"\d+", jinja2.__version__)[:3])) < SAFE:
        raise AtlasError(
            f"jinja2 {jinja2.__version__} is too old",
            why="its sandbox, in which chat templates run, has known ways out",
            remedy="pip install --upgrade jinja2",
        )

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_generation(), jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = tojson
    made.globals |= {
        "raise_exception": raise_exception,
        "strftime_now": lambda form: datetime.now().strftime(form),
        "dict": _Dictionaries(),
        "namespace": _namespace(),
    }
    return made


class _Dictionaries:
    """``dict`` without the attributes of the type."""

    def __call__(self, *given: Any, **more: Any) -> dict[Any, Any]:
        return dict(*given, **more)

    def fromkeys(self, *given: Any) -> dict[Any, Any]:
        return dict.fromkeys(*given)


def _namespace() -> Any:
    """Jinja's namespace without attributes that begin with an underscore, which lead out."""
    from jinja2.exceptions import SecurityError
    from jinja2.utils import Namespace

    def required(name: object) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise SecurityError(f"a template may not write the attribute {name!r}")

    class Plain(Namespace):
        def __init__(*given: Any, **more: Any) -> None:
            self, *rest = given
            for name in (members := dict(*rest, **more)):
                required(name)
            Namespace.__init__(self, members)

        def __setitem__(self, name: str, value: Any) -> None:
            required(name)
            Namespace.__setitem__(self, name, value)

    return Plain


def _generation() -> Any:
    """The block ``generation``, which marks what the assistant wrote, and writes it as it is."""
    from jinja2 import nodes
    from jinja2.ext import Extension

    class Generation(Extension):
        tags = {"generation"}  # noqa: RUF012  as its base declares it

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            call = self.call_method("_written")
            return nodes.CallBlock(call, [], [], body).set_lineno(line)

        def _written(self, caller: Any) -> Any:
            return caller()

    return Generation
