"""``atlasc keygen | encrypt | execute | decrypt``: client and server as processes of their own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atlasc.api.progress import progress
from atlasc.cli.output import print_json, print_table, say, show, warn
from atlasc.cli.parameters import (
    FILE,
    INPUT_FILES,
    JSON,
    STRICT,
    TARGET,
    UNCHECKED,
    BundleFolder,
    InputOptions,
    required,
)
from atlasc.cli.results import (
    answers_record,
    end_with,
    print_labels,
    print_spans,
    show_timing,
    spans_record,
)
from atlasc.compilation.declared import option

if TYPE_CHECKING:
    from atlasc.bundle.messages import Message
    from atlasc.client.checks import Answers
    from atlasc.client.sharing import SharedAnswers
    from atlasc.loading.inputs import Inputs

CLIENT_KEYS = required("The client's keys: the folder client that keygen wrote.", "--keys")
SERVER_KEYS = required("The server's keys: the folder server that keygen wrote.", "--keys")


@dataclass(frozen=True, kw_only=True)
class Encrypted(InputOptions):
    """Inputs that were encrypted, or none."""

    data: Path | None = option(  # type: ignore[assignment]
        "Questions and texts that were encrypted, to show the spans that answer them: "
        f"{INPUT_FILES} them.",
        "--input",
    )


def keygen(
    bundle: BundleFolder,
    keys: Path = required("New folder for the keys.", "-o"),
    target: str = TARGET,
    as_json: bool = JSON,
) -> None:
    """Make a client's secret key, and the evaluation keys for its server.

    The client's part of the bundle is enough. The folder client holds the secret key and stays
    where it is. The folder server goes to the server. Only the owner can read the files. What a
    server will see in the clear is printed.
    """
    from atlasc.api import roles
    from atlasc.bundle.folder import load_bundle
    from atlasc.bundle.sent import sent_of, told_sizes
    from atlasc.client.in_clear import in_clear, told
    from atlasc.files import require_new

    require_new(keys)
    loaded = load_bundle(bundle, "client")
    chosen, interface = roles.check_target(loaded, "client", target), loaded.client.interface
    roles.make_keys(loaded, keys, target, steps=progress)
    roles.note_simulation(chosen, warn)
    show("note", told(interface), told_sizes(loaded))
    if as_json:
        places = {role: str(keys / role) for role in ("client", "server")}
        sent = sent_of(loaded)
        sizes = None if sent is None else sent.to_dict()
        print_json({**places, "in_clear": in_clear(interface), "sent": sizes})
    elif chosen.encrypted:
        say(f"{keys / 'client'}: the secret key; keep it")
        say(f"{keys / 'server'}: evaluation keys; for the server")
    else:
        say(f"{keys / 'client'} and {keys / 'server'}: a simulation of keys, for a rehearsal")


def encrypt(
    bundle: BundleFolder,
    inputs: InputOptions,
    keys: Path = CLIENT_KEYS,
    query: Path = FILE,
    strict: bool = STRICT,
    unchecked: bool = UNCHECKED,
    target: str = TARGET,
    as_json: bool = JSON,
) -> None:
    """Encrypt inputs into a query for the server.

    Inputs that are not finite, or far larger than the inputs of the calibration, are left out: one
    exploding value spoils the answers of the whole batch.

    If the whole bundle is here, the inputs are also evaluated in the clear first, and inputs whose
    answers would be wrong are left out. A client without the server's part cannot check this.
    """
    from atlasc.api import roles
    from atlasc.api.admission import require_polynomials
    from atlasc.bundle.folder import load_bundle
    from atlasc.files import require_new
    from atlasc.ir.errors import counted

    require_new(query)
    loaded = load_bundle(bundle, "client")
    chosen = roles.check_target(loaded, "client", target)
    roles.note_simulation(chosen, warn)
    if strict:
        require_polynomials(loaded)
    found, admitted = roles.encrypt_inputs(
        loaded, inputs.load(loaded), lambda: roles.Client(loaded, keys, target),
        strict=strict, unchecked=unchecked, steps=progress, note=warn,
    )  # fmt: skip
    found.save(query)
    if as_json:
        print_json({"query": str(query), "inputs": admitted.inputs.names})
    else:
        how = "encrypted" if chosen.encrypted else "NOT encrypted"
        names = admitted.inputs.names
        say(f"{query}: {counted(len(names), 'input', 'inputs')}, {how}: {', '.join(names)}")


def execute(
    bundle: BundleFolder,
    keys: Path = SERVER_KEYS,
    query: Path = required("File that encrypt wrote."),
    answer: Path = FILE,
    target: str = TARGET,
    as_json: bool = JSON,
) -> None:
    """Run the program on an encrypted query; no secret key is needed.

    The server's part of the bundle is enough. The seconds of each op are written beside the answer,
    for inspect --timing.
    """
    from atlasc.api import roles
    from atlasc.bundle.folder import load_bundle
    from atlasc.bundle.messages import Message
    from atlasc.files import require_new, write_text
    from atlasc.run.timing import timing_place

    require_new(answer)
    loaded = load_bundle(bundle, "server")
    chosen = roles.check_target(loaded, "server", target)
    message = Message.read(query, "query", loaded)
    with progress("loading keys"):
        server = roles.Server(loaded, keys, target)
    with progress(f"executing on {chosen.name}", total=100) as step:
        found, timing = server.answer(message, step.report)
    found.save(answer)
    if timing is not None:
        write_text(timing_place(answer), timing.text(loaded))
    if as_json:
        measured = None if timing is None else timing.summary()
        print_json({"answer": str(answer), "timing": measured})
        return
    if timing is not None:
        show_timing(timing)
    say(f"{answer}: the {'encrypted' if chosen.encrypted else 'simulated'} answer")


def decrypt(
    bundle: BundleFolder,
    inputs: Encrypted,
    keys: Path = CLIENT_KEYS,
    answer: Path = required("File that execute wrote."),
    output: Path | None = option("Write the outputs to this .npz file.", "-o"),
    unchecked: bool = UNCHECKED,
    share: bool | None = option(
        "--share: numbers that may be passed on, with noise and rounded. --exact: exact numbers, "
        "for your own use alone.",
        "--share/--exact",
        unset="exact",
    ),
    bits: int = option("With --share: statistical security, at least 30.", default=30),
    shares: int = option("With --share: number of answers that these keys will share.", default=1),
    target: str = TARGET,
    as_json: bool = JSON,
) -> None:
    """Decrypt an answer for your own use, or with --share to pass it on.

    Exact numbers reveal something about the secret key. With --share, each number gets noise that
    hides the key and is rounded to the digits that remain (docs/security.md). The program's bound
    on the errors of encryption determines how much noise is needed.

    An answer to questions about texts is two logits for each token. With --input, the inputs that
    encrypt took, in their order, the part of the text that answers each question is shown.

    Exit code 3 says that an input has no answer: its numbers are far outside the outputs seen in
    calibration, or copies of the answer differ. The other answers are shown.
    """
    from atlasc.api import roles
    from atlasc.bundle.folder import load_bundle
    from atlasc.bundle.messages import Message
    from atlasc.client.sharing import SharedAnswers, require_digits
    from atlasc.files import require_file_place, save_arrays
    from atlasc.ir.errors import AtlasError
    from atlasc.loading.texts.spans import answered

    if output is not None:
        require_file_place(output, ".npz", new=True)
    loaded = load_bundle(bundle, "client")
    roles.check_target(loaded, "client", target)
    message = Message.read(answer, "answer", loaded)
    asked = None if inputs.data is None else _asked(inputs.load(loaded), message)
    if share and unchecked:
        raise AtlasError(
            "--share and --unchecked exclude each other",
            why="the bound on the errors does not hold for such an answer",
            remedy="leave one of them out",
        )
    if share:
        # Refuse before the keys are loaded.
        require_digits(loaded.interface, message.count, bits, shares)
    with progress("decrypting"):
        client = roles.Client(loaded, keys, target)
        answers: Answers = (
            client.share(message, bits=bits, shares=shares) if share else client.decrypt(message)
        )
    if answers.refused:
        _say_of_refusals(client.ledger.refusals())
    if isinstance(answers, SharedAnswers):
        end_with(answers.refused)
        _say_of_sharing(answers, bits, shares)
    elif share is None:
        show("note", "these numbers are for your own use; decrypt with --share to pass numbers on")
    if output is not None:
        save_arrays(output, answers.shown(unchecked))
    spans = None if asked is None else answered(loaded.model, asked, answers.shown(unchecked))
    if as_json:
        print_json({**answers_record(answers, unchecked), "spans": spans_record(spans)})
    elif asked is not None and spans is not None:
        print_spans(asked.names, spans)
    else:
        _print_outputs(answers, unchecked, loaded.config, output is None)
    end_with(answers.refused, unchecked=unchecked)


def _asked(inputs: Inputs, answer: Message) -> Inputs:
    """The inputs, if the answer has a row for each."""
    from atlasc.ir.errors import AtlasError

    if len(inputs) != answer.count:
        raise AtlasError(
            f"--input gives {len(inputs)} inputs, and the answer is to {answer.count}",
            why="the first row of an answer is that of the first input that was encrypted",
            remedy="give the inputs that encrypt named at its end, by --index or --count as there",
        )
    return inputs


def _say_of_sharing(shared: SharedAnswers, bits: int, shares: int) -> None:
    from atlasc.ir.errors import counted

    for name, flood in shared.flooding.items():
        left = counted(flood.digits, "digit is", "digits are")
        show(
            "note",
            f"{name}: {left} left and may be passed on, at {bits} bits",
            f"  noise of {flood.deviation:.2g} hides the error of encryption; answer "
            f"{shared.number} of {shares} that these keys share",
        )


def _say_of_refusals(refusals: int) -> None:
    """Say how much of the budget of refused answers is spent."""
    from atlasc.bundle.ledger import most_refusals

    most = most_refusals()
    warn(
        f"{refusals} of {most} refused answers that these keys allow",
        "  why: each refusal may reveal something about the key to a server that sends false "
        "answers\n"
        f"  what to do: nothing yet; after {most} refused answers atlasc stops using these keys, "
        "and atlasc keygen makes new ones",
    )


def _print_outputs(answers: Answers, unchecked: bool, config: Any, hint: bool) -> None:
    """Print a table per output with a row of numbers per input; for others a hint, if asked."""
    from atlasc.loading.labels import gives_several, names_of_classes

    for name, values in answers.shown(True).items():
        if values.ndim == 2 and gives_several(config):
            names = names_of_classes(config, values.shape[1])
            shown, function = answers.shown(unchecked)[name], answers.functions.get(name)
            print_labels(name, shown, function, names, range(len(values)))
        elif values.ndim == 2:
            columns = ["row", "answer", *map(str, range(values.shape[1]))]
            rows: list[list[object]] = [
                [r, int(v.argmax()), *map(float, v)] for r, v in enumerate(values)
            ]
            for row in () if unchecked else answers.refused:
                rows[row][1:] = [None] * (len(columns) - 1)
            print_table(columns, rows, title=name)
        elif hint:
            say(f"{name}: shape {list(values.shape)}; -o FILE.npz or --json gives the numbers")
