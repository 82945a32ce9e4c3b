"""Options that take keys, the options that they replaced, and the two helps of every command."""

from __future__ import annotations

import random
from dataclasses import fields
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from atlasc.cli import SECTIONS, app
from atlasc.compilation.options import CompileOptions, SearchOptions
from atlasc.search.strategies import STRATEGIES
from atlasc.search.strategies.atlas import Atlas
from tests.atlasc.cli.command import DATA, MODEL, refused

COMMANDS = [
    target.partition(":")[2].replace("_", "-")
    for targets in SECTIONS.values()
    for target in targets
]
SCREENS, MOST = 2 * 50, 36
OLD = {
    "--key-memory 4G": "--target 'cpu{key-memory=4G}'",
    "--device-memory 40G": "--target 'phantom{device-memory=40G}'",
    "--upload-at-most 1.9G": "--target 'cpu{upload-at-most=1.9G}'",
    "--margin 0.1": "--ranges 'measured{margin=0.1}'",
    "--tolerated 0.1": "--ranges 'measured{tolerated=0.1}'",
    "--held-back 0.3": "--ranges 'measured{held-back=0.3}'",
    "--no-prefixes": "--without prefixes",
    "--no-repetitions": "--without repetitions",
    "--no-fill-padding": "--without fill-padding",
    "--no-centre-keys": "--without centre-keys",
    "--no-scale-tokens": "--without scale-tokens",
    "--no-keep-answers": "--without keep-answers",
    "--no-prefill": "--without prefill",
    "--evaluations 9": "--strategy 'hybrid{evaluations=9}'",
    "--population 9": "--strategy 'atlas{population=9}'",
    "--generations 10": "--strategy 'atlas{generations=10}'",
    "--layer-population 9": "--strategy 'atlas{layer-population=9}'",
    "--layer-generations 9": "--strategy 'atlas{layer-generations=9}'",
    "--early-layers 2": "--strategy 'atlas{early-layers=2}'",
    "--softmax-ranges measured": "--space 'wide{softmax-ranges=measured}'",
    "--fits interpolated": "--space 'wide{fits=interpolated}'",
    "--degrees any": "--space 'wide{degrees=any}'",
    "--softmax-algorithms any": "--space 'wide{softmax-algorithms=any}'",
    "--channels each": "--space 'wide{channels=each}'",
    "--share-settings 3": "--space 'wide{share-settings=3}'",
    "--worker-count 2": "--workers 'ray{count=2}'",
    "--ray-address a:1": "--workers 'ray{address=a:1}'",
    "--threads 2": "--workers 'serial{threads=2}'",
}
"""What compile took before, and what it takes now."""


def command_of(name: str) -> Any:
    group: Any = typer.main.get_command(app)
    return group.get_command(None, name)


def shown(*arguments: str) -> list[str]:
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()


def test_the_help_of_compile_fits_two_screens() -> None:
    short, long = shown("compile", "--help"), shown("compile", "--help-all")
    assert len(short) <= SCREENS < len(long)
    assert max(map(len, short)) <= 80


def test_compile_has_few_options() -> None:
    options = [p for p in command_of("compile").params if p.param_type_name == "option"]
    after = "\n".join(shown("compile", "--help")).partition("Options:")[2].splitlines()
    listed = [line for line in after if line.startswith("  -")]
    assert len(listed) == len(options) + 1 <= MOST, "and --help"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_shows_its_default(name: str) -> None:
    for which in ("--help", "--help-all"):
        lines = shown(name, which)
        lines = lines[lines.index("Options:") :]
        starts = [at for at, line in enumerate(lines) if line.startswith("  -")]
        assert len(starts) >= 3
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
            text = " ".join(" ".join(lines[start:end]).split())
            if not any(own in text for own in ("--help-all ", "--help ")):
                assert "[default: " in text or "[required" in text, text
                assert "[default: ]" not in text and text.count("[default: ") <= end - start


def test_a_key_is_in_the_long_help_alone() -> None:
    short, long = (" ".join(" ".join(shown("search", w)).split()) for w in ("-h", "--help-all"))
    assert "Keys: evaluations, population" in short and "population=INT" not in short
    row = "population=INT atlas: Settings per generation in stage 1. [default: 48; 1 or more]"
    assert row in long
    assert "evaluations=INT Most settings" in long, "every strategy has it"


@pytest.mark.parametrize(("old", "new"), OLD.items())
def test_an_old_option_is_refused_with_the_new_one(old: str, new: str) -> None:
    message = refused("compile", MODEL, "--data", DATA, "-o", "x", *old.split())
    assert f"error: {old} is now {new}\n" in message
    assert f"what to do: write {new}\n" in message
    name, _, value = old.partition(" ")
    if value:
        assert f"{old} is now {new}\n" in refused("compile", MODEL, f"{name}={value}")


def test_every_key_has_a_row() -> None:
    keyed = command_of("compile").keyed
    named = {word.partition(" ")[0].removeprefix("--").removeprefix("no-") for word in OLD}
    assert {name.replace("_", "-") for name in keyed.folded} == named


@pytest.mark.parametrize(
    ("command", "old", "new"),
    [
        ("search", "--evaluations 9", "--strategy 'hybrid{evaluations=9}'"),
        ("calibrate", "--margin 0.1", "--ranges 'measured{margin=0.1}'"),
        ("trace", "--no-weights", "--without weights"),
        ("lower", "--key-memory 4G", "--target 'cpu{key-memory=4G}'"),
        ("inspect", "--device-memory 4G", "--target 'phantom{device-memory=4G}'"),
        ("serve", "--worker-count 2", "--workers 'ray{count=2}'"),
        ("serve", "--ray-address a:1", "--workers 'ray{address=a:1}'"),
    ],
)
def test_other_commands_refuse_theirs(command: str, old: str, new: str) -> None:
    assert f"{old} is now {new}\n" in refused(command, "x", *old.split())


def test_old_options_are_refused_together() -> None:
    given = "--strategy atlas --evaluations 9 --generations 3 --no-prefill --no-prefixes"
    message = refused("compile", MODEL, *given.split(), "--fits", "weighted", "--space=paper")
    assert message.count(" is now ") == 5
    assert (
        "write --strategy 'atlas{evaluations=9,generations=3}' --without prefill,prefixes "
        "--space 'paper{fits=weighted}'\n"
    ) in message
    assert "--prefixes is the default" in refused("compile", MODEL, "--prefixes")
    assert "Missing" in refused_usage("compile", "--", "--fits"), "no option, but a model"


def refused_usage(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == 2
    return result.stderr


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("--strategy", "atlas{generation=3}", "--strategy atlas has no key 'generation'"),
        ("--strategy", "atlas{generation=3}", "did you mean generations? its keys: early-layers, "),
        ("--strategy", "hybrid{generations=3}", "its keys: evaluations"),
        ("--strategy", "atlsa{generations=3}", "did you mean atlas? use one of hybrid, atlas"),
        ("--strategy", "atlas{generations=many}", "generations of --strategy atlas cannot be"),
        ("--strategy", "atlas{generations}", "generations of --strategy atlas cannot be ''"),
        ("--strategy", "atlas{generations=3,generations=4}", "is given twice"),
        ("--strategy", "atlas{generations=3", "cannot read --strategy at 'atlas{generations=3'"),
        ("--strategy", "atlas{", "cannot read --strategy at 'atlas{'"),
        ("--strategy", "atlas{generations=3},hybrid", "--strategy takes one name, not 2"),
        ("--strategy", "hybrid{evaluations=0}", "use 1 or more"),
        ("--strategy", "atlas{population=0}", "use 1 or more"),
        ("--strategy", "atlas{generations=-1}", "use 0 or more"),
        ("--space", "wide{fit=weighted}", "did you mean fits? its keys: channels, degrees, fits"),
        ("--space", "wide{fits=wieghted}", "did you mean weighted? use one of interpolated"),
        ("--space", "wied{fits=weighted}", "did you mean wide? use one of paper, wide"),
        ("--ranges", "measured{held-back=1.5}", "use 0 or more, and less than 1"),
        ("--ranges", "measured{margin=-0.1}", "use 0 or more"),
        ("--ranges", "mesured", "did you mean measured? use one of measured, certified"),
        ("--workers", "serial{count=2}", "--workers serial has no key 'count'"),
        ("--target", "cpu{keymemory=4G}", "did you mean key-memory? its keys: device-memory, "),
        ("--target", "cpu{key-memory=lots}", "'lots' is not a size of memory"),
        ("--target", "cpo{key-memory=4G}", "there is no target 'cpo'"),
        ("--without", "fillpadding", "did you mean fill-padding? it can leave out: keep-answers"),
        ("--without", "prefixes=1", "--without cannot leave out 'prefixes=1'"),
    ],
)  # fmt: skip
def test_a_wrong_key_or_value_is_refused(option: str, text: str, said: str) -> None:
    message = refused("compile", MODEL, "--data", DATA, "-o", "no such folder/x", option, text)
    assert said in message


def test_each_strategy_has_the_keys_that_it_is_made_of() -> None:
    own = command_of("search").keyed.keys["strategy"].values()
    assert set().union(*(key.facts.names for key in own)) == set(STRATEGIES)
    for name, kind in STRATEGIES.items():
        made_of = {one.name for one in fields(kind)}
        taken = {key.field for key in own if name in key.facts.names}
        assert taken <= made_of | {"evaluations"}
    for key in own:
        if key.facts.names == ("atlas",):
            default = getattr(Atlas(), key.field)
            assert key.facts.shown_default(None) == ("none" if default is None else str(default))


@pytest.mark.parametrize("name", ["strategy", "space", "workers", "ranges"])
def test_a_key_is_of_names_that_there_are(name: str) -> None:
    declared = {one.name: one.metadata["option"] for one in fields(CompileOptions)}
    for facts in declared.values():
        if facts.of == name:
            assert facts.names and set(facts.names) <= set(declared[name].choices)


VALUES: dict[str, list[Any]] = {
    "sequence_length": [None, 64], "long": ["truncate", "windows"], "seed": [0, 7],
    "trust_pickle": [False, True], "ranges": ["measured", "certified"], "margin": [None, 0.25],
    "held_back": [0.2, 0.5], "prefixes": [True, False], "centre_keys": [True, False],
    "strategy": [None, "atlas"], "evaluations": [None, 30], "space": [None, "paper"],
    "fits": [None, "weighted"], "share_settings": [1, 4], "workers": ["ray"],
    "worker_count": [None, 3], "ray_address": [None, "auto", "h:6379"], "threads": [None, 2],
}  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_what_is_spelled_reads_back(seed: int) -> None:
    """The words of a command give the values that they were made of."""
    chance, search = random.Random(seed), command_of("search")
    values = {name: chance.choice(known) for name, known in VALUES.items()}
    words = search.keyed.words(values)
    context = search.make_context("search", ["model", "--data", "texts", *words])
    found = search.keyed.spread(context.params)
    expected = {one.name: one.default for one in fields(SearchOptions)} | values
    if values["evaluations"] is not None and values["strategy"] is None:
        expected["strategy"] = "hybrid"  # named for its key, and the default
    if values["space"] is None and (values["fits"] or values["share_settings"] != 1):
        expected["space"] = "wide"
    assert {name: found[name] for name in expected} == expected
