"""The stages of HomomorphicEncryption.org's BERT workload (repository fhe-benchmarking/BERT).

Its harness starts `submissions/STAGE.py SIZE` for each stage, in the folder of the harness, and
measures the seconds. A script of a line for each stage stands there beside this file
(`submission.py`). The stages need nothing but an installed atlasc.

    submissions/program/        the compiled program, a folder for the client and one for the server
    io/server_data/program/     the server's part, which the harness weighs
    io/SIZE/secret_key/         the client's keys
    io/SIZE/public_keys/        the server's keys
    io/SIZE/intermediate/       inputs of the model, decrypted logits
    io/SIZE/ciphertexts_upload/, ciphertexts_download/     queries and answers
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import atlasc

INSTANCES = ("single", "small", "medium", "large")
"""Names of the sizes 0 to 3 of the harness."""
HERE = Path(__file__).resolve().parent


class Places(NamedTuple):
    """Files of an instance.

    Attributes:
        program: the compiled program, in the parts of client and server.
        server: the server's own copy of its part.
        pairs: the harness writes the inputs there, a JSON object a line.
        io: folder of everything that the stages write.
        predictions: a class number a line, which the harness compares with the labels.
    """

    program: Path
    server: Path
    pairs: Path
    io: Path
    predictions: Path

    @classmethod
    def of(cls, size: int, root: Path | None = None, submission: Path = HERE) -> Places:
        """Of a size, below the folder of the harness, with the program of a submission."""
        root, name = root or Path.cwd(), INSTANCES[size]
        return cls(
            submission / "program",
            root / "io" / "server_data" / "program",
            root / "datasets" / name / "intermediate" / "test_input.txt",
            root / "io" / name,
            root / "io" / name / "encrypted_model_predictions.txt",
        )

    @property
    def client(self) -> Path:
        """The client's part of the program."""
        return self.program / "client"

    @property
    def secret_key(self) -> Path:
        """The client's keys."""
        return self.io / "secret_key"

    @property
    def public_keys(self) -> Path:
        """The server's keys."""
        return self.io / "public_keys"

    @property
    def queries(self) -> Path:
        """A file for each batch, named by its number."""
        return self.io / "ciphertexts_upload"

    @property
    def answers(self) -> Path:
        """The answers, named as their queries."""
        return self.io / "ciphertexts_download"

    @property
    def model_inputs(self) -> Path:
        """Sentence pairs as `atlasc` reads them."""
        return self.io / "intermediate" / "client_preprocessed_input.jsonl"

    @property
    def logits(self) -> Path:
        """Decrypted answers."""
        return self.io / "intermediate" / "decrypted_results.jsonl"


def client_key_generation(places: Places) -> None:
    """Make all keys for the program; the client's part of it is enough."""
    require(places.client, "python -m benchmarks.he_bert.submission")
    if places.secret_key.exists() or places.public_keys.exists():
        raise atlasc.AtlasError(
            f"{places.io} has keys already", remedy="remove that folder: keys are not overwritten"
        )
    keys = places.io / "keys"
    atlasc.keygen(places.client, keys)
    (keys / "client").rename(places.secret_key)
    (keys / "server").rename(places.public_keys)
    keys.rmdir()


def server_preprocess_model(places: Places) -> None:
    """Give the server its part of the program, and check it. Nothing is encoded beforehand: the
    server encodes weights when it multiplies with them.
    """
    require(places.program / "server", "python -m benchmarks.he_bert.submission")
    shutil.copytree(places.program / "server", fresh(places.server), dirs_exist_ok=True)
    atlasc.load(places.server)
    say(f"the server's part in {places.server} is the one that was compiled")


def client_preprocess_input(places: Places) -> None:
    """Keep the sentences of each pair; the client tokenizes them when it encrypts."""
    require(places.pairs, "the harness's own step before")
    records = read_lines(places.pairs)
    kept = [{name: record[name] for name in ("sentence1", "sentence2")} for record in records]
    write_lines(places.model_inputs, kept)
    say(f"pairs of sentences: {len(kept)}")


def client_encode_encrypt_input(places: Places) -> None:
    """Tokenize, embed, encode and encrypt: a query for each batch of the program."""
    require(places.secret_key, "client_key_generation")
    require(places.model_inputs, "client_preprocess_input")
    client = atlasc.Client(places.client, places.secret_key)
    upload = fresh(places.queries)
    pairs, batch = read_lines(places.model_inputs), client.bundle.batch
    for number, start in enumerate(range(0, len(pairs), batch)):
        # Unchecked, because an answer must stand in the place of its pair: of a pair that is left
        # out there would be none. An answer that is spoilt is refused when it is decrypted.
        query = client.encrypt(pairs[start : start + batch], unchecked=True, note=say)
        (upload / str(number)).write_bytes(query)
    say(f"pairs: {len(pairs)}, in a query: {batch}")


def server_encrypted_compute(places: Places) -> None:
    """Answer every query, with the server's part and the server's keys alone."""
    require(places.server, "server_preprocess_model")
    require(places.public_keys, "client_key_generation")
    require(places.queries, "client_encode_encrypt_input")
    started = time.perf_counter()
    server = atlasc.Server(places.server, places.public_keys)
    download = fresh(places.answers)
    spent = 0.0
    for query in in_order(places.queries):
        content, begun = query.read_bytes(), time.perf_counter()
        answer = server.execute(content)
        spent += time.perf_counter() - begun
        (download / query.name).write_bytes(answer)
    whole = time.perf_counter() - started
    steps = {"Encrypted computation": spent, "I/O": whole - spent, "Total": whole}
    report = {name: round(seconds, 4) for name, seconds in steps.items()}
    (places.io / "server_reported_steps.json").write_text(json.dumps(report), encoding="utf-8")
    say(", ".join(f"{name} {seconds:.1f} s" for name, seconds in report.items()))


def client_decrypt_decode(places: Places) -> None:
    """Decrypt the answers into logits. Numbers that are no answers are told, and not written."""
    require(places.secret_key, "client_key_generation")
    require(places.answers, "server_encrypted_compute")
    client = atlasc.Client(places.client, places.secret_key)
    found: list[dict[str, Any]] = []
    for answer in in_order(places.answers):
        answered = client.decrypt(answer)
        (logits,) = answered.outputs.values()
        for row, values in enumerate(logits):
            refused = row in answered.refused
            if refused:
                share = answered.refused[row]
                say(f"pair {len(found)}: no answer, {share:.1%} of its numbers cannot be right")
            found.append({"he_logits": [] if refused else values.tolist()})
    write_lines(places.logits, found)
    say(f"answers: {len(found)}")


def client_postprocess(places: Places) -> None:
    """Write the class of each pair, in the order of the inputs. It is −1, which counts as wrong,
    where there is no answer.
    """
    require(places.logits, "client_decrypt_decode")
    rows = [record["he_logits"] for record in read_lines(places.logits)]
    classes = [max(range(len(row)), key=row.__getitem__, default=-1) for row in rows]
    places.predictions.write_text("".join(f"{one}\n" for one in classes), encoding="utf-8")


STAGES: tuple[Callable[[Places], None], ...] = (
    client_key_generation,
    server_preprocess_model,
    client_preprocess_input,
    client_encode_encrypt_input,
    server_encrypted_compute,
    client_decrypt_decode,
    client_postprocess,
)
"""In the order of the harness, which itself makes the data before them."""


def require(path: Path, maker: str) -> None:
    """Refuse to start without what an earlier step makes.

    Raises:
        AtlasError: it is not there.
    """
    if not path.exists():
        raise atlasc.AtlasError(f"{path} not found", remedy=f"{maker} makes it: run that first")


def fresh(folder: Path) -> Path:
    """An empty folder: a harness that repeats its run calls a stage again."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def in_order(folder: Path) -> list[Path]:
    """Files that are named by numbers."""
    return sorted(folder.iterdir(), key=lambda path: int(path.name))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """JSON objects, one a line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    """JSON objects, one a line, into a folder that may be new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")


def say(headline: str, details: str = "") -> None:
    """A line in the form of the harness."""
    print(f"         [submission] {headline} {details}".rstrip(), flush=True)


def main(name: str) -> None:
    """Run the stage of that name, on the size that the command line gives."""
    sizes = {str(size): size for size in range(len(INSTANCES))}
    if len(sys.argv) != 2 or sys.argv[1] not in sizes:
        raise SystemExit(f"usage: {name}.py SIZE, where SIZE is one of {', '.join(sizes)}")
    try:
        {stage.__name__: stage for stage in STAGES}[name](Places.of(sizes[sys.argv[1]]))
    except atlasc.AtlasError as error:
        raise SystemExit(str(error)) from error
