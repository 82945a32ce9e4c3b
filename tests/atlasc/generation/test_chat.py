"""Conversations: the tokens of ``apply_chat_template`` of transformers, in a sandbox."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

import atlasc
from atlasc.api.session import generate
from atlasc.bundle.folder import Bundle
from atlasc.compilation.compile import compile_model
from atlasc.compilation.options import CompileOptions
from atlasc.generation.prompt import prompt_ids
from atlasc.ir.errors import AtlasError
from atlasc.loading.bounded_tokenizer import BoundedTokenizer
from atlasc.loading.texts.chat import ChatMessage, ChatTemplate, rendered
from atlasc.loading.texts.tokenizer import FACTS, read_tokenizer, write_tokenizer
from tests.atlasc.cli.command import refused, run
from tests.atlasc.generation.conftest import VOCABULARY
from tests.atlasc.generation.test_folders import WINDOW, folder_of, texts_of

CHATML = (
    "{% for message in messages %}"
    "{{ 'w1 ' + message['role'] + ' ' + message['content'] + ' w2 ' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'w1 assistant' }}{% endif %}"
)
LLAMA = """\
{{ bos_token }}
{%- set found = namespace(system="") %}
{%- for one in messages %}
    {%- if one.role == "system" %}
        {%- set found.system = one.content | trim %}
    {%- endif %}
{%- endfor %}
{{- found.system }}
{%- for one in messages if one.role != "system" %}
    {%- if one.role not in ["user", "assistant"] %}
        {{- raise_exception("only users and assistants speak, not " + one.role) }}
    {%- endif %}
    {%- if one.role == "assistant" %} {% generation %}{{ one.content }}{% endgeneration %}
    {%- else %} {{ one | tojson }}{% endif %}
    {%- if loop.index > 5 %}{% break %}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %} {{ eos_token }} {{ dict(a="w4")["a"] }}{% endif %}
"""
SAID = [
    {"role": "system", "content": "w9 w8"},
    {"role": "user", "content": "w3 w17"},
    {"role": "assistant", "content": "w5"},
    {"role": "user", "content": "w7"},
]


def tokenizer(template: Any = CHATML) -> PreTrainedTokenizerFast:
    """Words w0, w1, ... and the names of those who speak."""
    names = {"user": 30, "assistant": 31, "system": 32}
    words = {f"w{n}": n for n in range(VOCABULARY) if n not in names.values()}
    found = Tokenizer(models.WordLevel(words | names, "w0"))
    found.pre_tokenizer = pre_tokenizers.Whitespace()
    made = PreTrainedTokenizerFast(
        tokenizer_object=found, pad_token="w0", bos_token="w38", eos_token="w39"
    )
    made.chat_template = template
    return made


def wanted(known: Any, messages: list[dict[str, str]]) -> list[int]:
    """The tokens of transformers."""
    made = known.apply_chat_template(messages, add_generation_prompt=True)
    return list(made["input_ids"])


@pytest.mark.parametrize("template", [CHATML, LLAMA, {"default": LLAMA, "tool_use": "no"}])
@given(
    messages=st.lists(
        st.fixed_dictionaries(
            {
                "role": st.sampled_from(["system", "user", "assistant"]),
                "content": st.sampled_from(["w1 w2", "", " w7\n", 'w3 "w4" <w5>', "é ü"]),
            }
        ),
        min_size=1,
        max_size=8,
    )
)
def test_tokens_are_those_of_transformers(
    tmp_path_factory: pytest.TempPathFactory, template: Any, messages: list[dict[str, str]]
) -> None:
    messages = [{"role": one["role"], "content": one["content"]} for one in messages]
    known, folder = tokenizer(template), tmp_path_factory.mktemp("tokenizer")
    assert write_tokenizer(known, folder)
    found = read_tokenizer(folder)
    assert found is not None
    exact = known.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    said = [ChatMessage(**one) for one in messages]
    assert rendered(found.facts.chat, said) == exact
    assert found.chat_ids(said) == wanted(known, messages)


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A folder with a chat template, whose turns end with another token than its texts."""
    place = tmp_path_factory.mktemp("chat")
    folder_of(place / "model", {"eos_token_id": [39, 2], "max_new_tokens": 4})
    tokenizer().save_pretrained(place / "model")
    assert (place / "model" / "chat_template.jinja").is_file()
    options = CompileOptions(
        recipe="is", target="sim", generate=True, sequence_length=WINDOW, prefill=False
    )
    return compile_model(place / "model", texts_of(24), place / "bundle", options).bundle


def test_the_answer_is_that_of_the_model(spoken: Bundle, tmp_path: Path) -> None:
    """Through the command, encryption and the process of the tokenizer."""
    module = AutoModelForCausalLM.from_pretrained(spoken.folder.parent / "model").eval()
    prompt = wanted(tokenizer(), SAID)
    ids = module.generate(torch.tensor([prompt]))[0, len(prompt) :].tolist()
    assert prompt_ids(spoken.step, SAID) == prompt
    (tmp_path / "m.json").write_text(json.dumps(SAID[:-1]))
    told = ("generate", spoken.folder, SAID[-1]["content"], "--chat")
    shown = json.loads(run(*told, "--messages", tmp_path / "m.json", "--json").out)
    assert (shown["prompt"], shown["ids"]) == (prompt, ids)
    assert generate(spoken, SAID, None).ids == ids
    said = refused("generate", spoken.folder, "w3", "--messages", tmp_path / "m.json")
    assert "no effect without --chat" in said
    (tmp_path / "m.json").write_text('[{"role": 3}]')
    assert "the messages" in refused(*told, "--messages", tmp_path / "m.json")


def test_a_public_prefix_is_the_beginning_of_the_conversation(spoken: Bundle) -> None:
    from atlasc.loading.texts.public_prefix import PublicPrefix

    whole = wanted(tokenizer(), SAID)
    with pytest.MonkeyPatch.context() as patch:
        for known in (whole[:5], [7, 7]):
            prefix = PublicPrefix(text="w1", ids=tuple(known))
            patch.setitem(vars(spoken.step), "public_prefix", prefix)
            if known == whole[:5]:
                assert prompt_ids(spoken.step, SAID) == whole[5:]
            else:
                with pytest.raises(AtlasError, match="does not begin with the public prefix"):
                    prompt_ids(spoken.step, SAID)


def test_a_missing_template_is_said_with_the_remedy(bundle: Bundle) -> None:
    said = refused("generate", bundle.folder, "w3", "--chat")
    assert "the model's tokenizer has no chat template" in said
    assert "leave --chat out and write the whole prompt" in said


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([{"role": "user"}], "content"),
        ([{"role": "", "content": "x"}], "role"),
        ([{"role": "user", "content": "x", "name": "y"}], "name"),
        ([{"role": "user", "content": 3}], "content"),
    ],
)
def test_what_is_no_message_is_refused(bundle: Bundle, messages: Any, why: str) -> None:
    with pytest.raises(AtlasError, match="this is no conversation") as caught:
        prompt_ids(bundle.step, messages)
    assert '"role": "user"' in caught.value.remedy


HOSTILE = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.append(3) }}",
    "{{ dict.__init__.__globals__ }}",
    "{{ namespace.__init__.__globals__['__builtins__'] }}",
    "{% set n = namespace() %}{% set n.__class__ = 3 %}",
    "{{ raise_exception.__globals__['jinja2'] }}",
    "{{ strftime_now.__globals__['json'] }}",
    "{{ (lambda: 1)() }}",
    "{{ cycler.__init__.__globals__.os.system('true') }}",
    "{% include 'secret' %}",
    "{{ range(10 ** 9) | list }}",
    "{{ undefined.attribute }}",
]


@pytest.mark.parametrize("template", HOSTILE)
def test_a_template_does_not_leave_its_sandbox(template: str) -> None:
    with pytest.raises(AtlasError, match="cannot write this conversation"):
        rendered(ChatTemplate(text=template), [ChatMessage(role="user", content="x")])


def test_a_refusal_of_the_template_is_shown() -> None:
    template = ChatTemplate(text=LLAMA)
    with pytest.raises(AtlasError) as caught:
        rendered(template, [ChatMessage(role="tool", content="x")])
    assert caught.value.why == "only users and assistants speak, not tool"


def test_a_template_without_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the process of the tokenizer, which has bounds; the next request gets a new one."""
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    write_tokenizer(tokenizer("{% if messages | length > 1 %}" + loop + "{% endif %}w3"), tmp_path)
    monkeypatch.setattr("atlasc.loading.bounded_tokenizer.SECONDS", 2.0)
    bounded, one = BoundedTokenizer(tmp_path), ChatMessage(role="user", content="w4")
    with pytest.raises(AtlasError, match="the program's tokenizer was stopped"):
        bounded.chat_ids([one, one])
    monkeypatch.setattr("atlasc.loading.bounded_tokenizer.SECONDS", 60.0)
    assert bounded.chat_ids([one]) == [3]


def test_a_tokenizer_without_the_library_tokenizers_has_a_template(tmp_path: Path) -> None:
    """Its files are those of the model, and its client has transformers."""
    tokenizer(LLAMA).save_pretrained(tmp_path)
    assert not (tmp_path / FACTS).exists()
    found = BoundedTokenizer(tmp_path).chat_ids([ChatMessage(**one) for one in SAID])
    assert found == wanted(tokenizer(LLAMA), SAID)


def test_a_client_without_jinja_says_what_to_install(tmp_path: Path) -> None:
    write_tokenizer(tokenizer(), tmp_path)
    code = (
        "import sys\n"
        "sys.modules['jinja2'] = None\n"
        "from pathlib import Path\n"
        "from atlasc.ir.errors import AtlasError\n"
        "from atlasc.loading.texts.chat import ChatMessage\n"
        "from atlasc.loading.texts.tokenizer import read_tokenizer\n"
        f"found = read_tokenizer(Path({str(tmp_path)!r}))\n"
        "try:\n    found.chat_ids([ChatMessage(role='user', content='w3')])\n"
        "except AtlasError as error:\n    print(error.what, error.remedy)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "the library jinja2 is not installed" in done.stdout, done.stderr
    assert "pip install jinja2" in done.stdout


def test_python_takes_a_conversation(spoken: Bundle) -> None:
    result = atlasc.load(spoken.folder).generate(SAID, tokens=2)
    assert result.prompt == wanted(tokenizer(), SAID) and len(result.ids) <= 2
    assert atlasc.load(spoken.folder / "step").generate(SAID, tokens=2) == result


@cache
def _module(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder).eval()


def answered(spoken: Bundle, messages: list[dict[str, str]], known: Any = None) -> list[int]:
    """The answer of transformers to a whole conversation."""
    prompt = wanted(known or tokenizer(), messages)
    found: list[int] = (
        _module(spoken.folder.parent / "model")
        .generate(torch.tensor([prompt]))[0, len(prompt) :]
        .tolist()
    )
    return found


def test_each_answer_of_a_conversation_is_that_of_the_model(spoken: Bundle) -> None:
    """Two turns go on in the keys and values; for the third one the first message leaves."""
    notes = list[str]()
    messages = list[dict[str, str]]()
    with atlasc.load(spoken.folder).session(
        chat=True, window=WINDOW - 4, note=lambda what, _: notes.append(what)
    ) as session:
        for number, content in enumerate(("w5 w26", "w19", "w33 w36")):
            messages.append({"role": "user", "content": content})
            left = 2 if number == 2 else 0
            found = session.say(content)
            assert found.prompt == wanted(tokenizer(), messages[left:])
            assert found.ids == answered(spoken, messages[left:])
            messages.append({"role": "assistant", "content": found.text or ""})
        with pytest.raises(AtlasError, match="has the end token 2 of the model in it"):
            session.say("w3 w2 w1")
        with pytest.raises(AtlasError, match="the last message and its answer have") as caught:
            session.say("w3 " * 20)
        assert caught.value.why == f"there is room for {WINDOW}, even if all earlier ones leave"
        with pytest.raises(AtlasError, match="the session is a conversation, and this turn is not"):
            session.say([3])
    costs = [one for one in notes if one.startswith("this turn")]
    # Of the first answer only the last token is new to the server.
    assert [one.split()[2] for one in costs[:2]] == ["7", "8"]
    assert any("computed anew: the oldest 2 messages leave" in one for one in notes)


def test_a_template_that_drops_what_the_server_has(
    spoken: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those that leave the thoughts of earlier answers out."""
    drops = CHATML.replace("message['content'] +", "('' if loop.first else message['content']) +")
    known, notes = tokenizer(drops), list[str]()
    said = [{"role": "user", "content": "w3 w17"}]
    with atlasc.load(spoken.folder).session(note=lambda what, _: notes.append(what)) as session:
        first = session.say(said, 2)
        monkeypatch.setattr(
            "atlasc.loading.loaded_model.LoadedModel.tokenize_chat",
            lambda _, messages: wanted(known, [one.model_dump() for one in messages]),
        )
        second = session.say("w7")
    said += [{"role": "assistant", "content": first.text or ""}, {"role": "user", "content": "w7"}]
    assert second.ids == answered(spoken, said, known)
    assert any("the first 2 are those of the text as it is now" in one for one in notes)


def test_the_command_reads_a_conversation(spoken: Bundle, tmp_path: Path) -> None:
    shown = run("generate", spoken.folder, "--chat", "--turns", "-", "--json", stdin="w3 w17\nw7\n")
    found = json.loads(shown.out)
    first = [{"role": "user", "content": "w3 w17"}]
    assert found["turns"][0]["ids"] == answered(spoken, first)
    first += [{"role": "assistant", "content": found["turns"][0]["text"]}]
    assert found["ids"] == answered(spoken, [*first, {"role": "user", "content": "w7"}])
    assert shown.err.count("this turn: ") == 2
