"""``atlasc keygen | encrypt | execute | decrypt``: client and server as processes of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atlasc.cli.admitting import UncheckedOption, admit
from atlasc.cli.errors import warn
from atlasc.cli.output import JsonFlag, print_json
from atlasc.cli.progress import progress
from atlasc.cli.selection import (
    CountOption,
    IndexOption,
    TargetOption,
    judge_ranges,
    polynomials_at_hand,
    select,
    try_in_the_clear,
)
from atlasc.cli.sharing import note_exact, require_shareable, shared
from atlasc.cli.showing import end_with, outputs_record, print_outputs
from atlasc.cli.timing_table import show_timing

if TYPE_CHECKING:
    from atlasc.targets.base import Target

ClientPart = Annotated[
    Path, typer.Argument(help="Bundle; its client folder and manifest.json are enough.")
]
ServerPart = Annotated[
    Path, typer.Argument(help="Bundle; its server folder and manifest.json are enough.")
]
ClientKeysOption = Annotated[
    Path, typer.Option("--keys", help="The client's keys: the folder client of keygen.")
]
ServerKeysOption = Annotated[
    Path, typer.Option("--keys", help="The server's keys: the folder server of keygen.")
]


def warn_of_simulation(target: Target) -> None:
    """Warn where nothing that is written is encrypted."""
    if not target.encrypted:
        warn(
            f"the target {target.name} is a simulation: nothing is encrypted",
            "  what to do: rehearse with it; for real data use keys of an encrypted target, such as"
            " desilo",
        )


def keygen(
    bundle: ClientPart,
    keys: Annotated[Path, typer.Option("--keys", "-o", help="New folder for the keys.")],
    target: TargetOption = "",
) -> None:
    """Make the keys of a client, and those that its server computes with.

    The folder client holds the secret key and stays where it is; the folder server goes to the
    server. Files are readable by their owner alone.
    """
    from atlasc.bundle.folder import load_bundle
    from atlasc.files import require_new
    from atlasc.run import roles

    require_new(keys)
    loaded = load_bundle(bundle, "client")
    chosen = roles.check_target(loaded, target)
    with progress("generating keys") as step:
        roles.generate_keys(loaded, chosen, keys, step.report)
    if not chosen.encrypted:
        warn_of_simulation(chosen)
        print(f"{keys / 'client'} and {keys / 'server'}: a simulation of keys, for a rehearsal")
        return
    print(f"{keys / 'client'}: the secret key; keep it")
    print(f"{keys / 'server'}: evaluation keys; for the server")


def encrypt(
    bundle: ClientPart,
    keys: ClientKeysOption,
    data: Annotated[Path, typer.Option("--input", help="Inputs: .txt, .jsonl, .npz, images.")],
    query: Annotated[Path, typer.Option("--output", "-o", help="New folder for the query.")],
    index: IndexOption = "",
    count: CountOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse all inputs if one leaves a calibrated range.")
    ] = False,
    unchecked: UncheckedOption = False,
    target: TargetOption = "",
) -> None:
    """Encrypt inputs into a query for the server.

    Inputs that are not finite, or far larger than any that calibration saw, are left out: one that
    explodes spoils the answers of its whole batch.

    Where the whole bundle is at hand, the inputs are first tried in the clear: do they stay inside
    the ranges that the program was compiled for? A client without the server's part cannot tell.
    """
    from atlasc.bundle.folder import load_bundle
    from atlasc.files import require_new
    from atlasc.run import roles

    require_new(query)
    loaded = load_bundle(bundle, "client")
    chosen = roles.check_target(loaded, target)
    warn_of_simulation(chosen)
    inputs = admit(loaded, select(loaded.load_inputs(data), index, count), strict, unchecked)
    loaded.client.check_count(len(inputs))
    if loaded.has_server or strict:
        found = try_in_the_clear(polynomials_at_hand(loaded), inputs)
        judge_ranges(found.verdicts(inputs.names), strict)
    with progress("encrypting"):
        client = roles.ClientRole.open(loaded, chosen, keys)
        client.encrypt(inputs.arrays, unchecked=unchecked).save(query)
    how = "encrypted" if chosen.encrypted else "NOT encrypted"
    print(f"{query}: {len(inputs)} inputs, {how}: {', '.join(inputs.names)}")


def execute(
    bundle: ServerPart,
    keys: ServerKeysOption,
    query: Annotated[Path, typer.Option("--query", help="Folder that encrypt wrote.")],
    answer: Annotated[Path, typer.Option("--output", "-o", help="New folder for the answer.")],
    target: TargetOption = "",
) -> None:
    """Run the program on an encrypted query; no secret key is needed.

    The seconds of each op go to a file beside the answer, for inspect --timing.
    """
    from atlasc.bundle.folder import load_bundle
    from atlasc.bundle.messages import Message
    from atlasc.files import require_new, write_text
    from atlasc.run import roles
    from atlasc.run.timing import timing_place

    require_new(answer)
    loaded = load_bundle(bundle, "server")
    chosen = roles.check_target(loaded, target)
    message = Message.read(query, "query", loaded)
    with progress("loading keys"):
        server = roles.ServerRole.open(loaded, chosen, keys)
    with progress(f"executing on {chosen.name}", total=100) as step:
        found, timing = server.execute(message, step.report)
    found.save(answer)
    if timing is not None:
        write_text(timing_place(answer), timing.text(loaded))
        show_timing(timing)
    print(f"{answer}: the {'encrypted' if chosen.encrypted else 'simulated'} answer")


def decrypt(
    bundle: ClientPart,
    keys: ClientKeysOption,
    answer: Annotated[Path, typer.Option("--answer", help="Folder that execute wrote.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the outputs to this .npz file.")
    ] = None,
    unchecked: UncheckedOption = False,
    share: Annotated[
        bool | None,
        typer.Option(
            "--share/--exact",
            help="Numbers that may be passed on, with noise and rounded; or exact ones, for your "
            "own use alone [default: exact].",
            show_default=False,
        ),
    ] = None,
    bits: Annotated[
        int, typer.Option("--bits", help="With --share: statistical security, at least 30.")
    ] = 30,
    shares: Annotated[
        int, typer.Option("--shares", help="With --share: answers that these keys are to share.")
    ] = 1,
    target: TargetOption = "",
    as_json: JsonFlag = False,
) -> None:
    """Decrypt an answer for your own use, or with --share to pass it on.

    Exact numbers tell something of the secret key. With --share they get noise that hides it, as
    much as the program's bound on the errors of encryption asks for, and are rounded to the digits
    that remain (docs/security.md).

    Exit code 3 says that an answer is none: it is far outside what calibration saw of the outputs,
    or its copies differ. The others are shown.
    """
    from atlasc.bundle.folder import load_bundle
    from atlasc.bundle.messages import Message
    from atlasc.files import require_array_file, save_arrays
    from atlasc.run import roles

    if output is not None:
        require_array_file(output)
    loaded = load_bundle(bundle, "client")
    chosen = roles.check_target(loaded, target)
    message = Message.read(answer, "answer", loaded)
    if share:
        require_shareable(loaded, bits, shares, unchecked)
    with progress("decrypting"):
        client = roles.ClientRole.open(loaded, chosen, keys)
        answers = client.decrypt(message)
    if share:
        end_with(answers.refused)
        answers = shared(answers, loaded, client.ledger, message.named, bits, shares)
    elif share is None:
        note_exact()
    shown, hidden = answers.shown(unchecked), {} if unchecked else answers.refused
    if output is not None:
        save_arrays(output, shown)
    if as_json:
        record = {"outputs": outputs_record(shown, hidden), "refused": list(answers.refused)}
        print_json(record)
    else:
        print_outputs(shown, hidden, output is None)
    end_with(answers.refused, unchecked=unchecked)
