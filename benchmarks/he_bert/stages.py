"""The stages of HomomorphicEncryption.org's BERT workload (repository fhe-benchmarking/BERT).

Its harness starts `submissions/STAGE.py SIZE` for each stage, in the folder of the harness, and
measures the seconds. This file stands there seven times, once under the name of each stage: it runs
the stage that it is named after. It needs nothing but an installed atlasc.

    io/server_data/program/     the server's part of the program, written before the first stage
    io/client_data/             the client's part, likewise
    io/SIZE/secret_key/         the client's keys
    io/SIZE/public_keys/        the server's keys
    io/SIZE/intermediate/       inputs of the model, decrypted logits
    io/SIZE/ciphertexts_upload/, ciphertexts_download/     queries and answers
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import atlasc

INSTANCES = ("single", "small", "medium", "large")
"""Names of the sizes 0 to 3 of the harness."""


class Places(NamedTuple):
    """Files of an instance.

    Attributes:
        server: the server's part of the program.
        client: the client's part.
        pairs: the harness writes the inputs there, a JSON object a line.
        io: folder of everything that the stages write.
        predictions: a class number a line, which the harness compares with the labels.
    """

    server: Path
    client: Path
    pairs: Path
    io: Path
    predictions: Path

    @classmethod
    def of(cls, size: int, root: Path | None = None) -> Places:
        """Of a size, below the folder of the harness."""
        root, name = root or Path.cwd(), INSTANCES[size]
        return cls(
            root / "io" / "server_data" / "program",
            root / "io" / "client_data",
            root / "datasets" / name / "intermediate" / "test_input.txt",
            root / "io" / name,
            root / "io" / name / "encrypted_model_predictions.txt",
        )

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
    keys = places.io / "keys"
    atlasc.keygen(places.client, keys)
    (keys / "client").rename(places.io / "secret_key")
    (keys / "server").rename(places.io / "public_keys")
    keys.rmdir()


def server_preprocess_model(places: Places) -> None:
    """Check the program. Nothing is encoded beforehand: the server encodes weights when it
    multiplies with them.
    """
    atlasc.load(places.server)
    say(f"the server's part in {places.server} is the one that was compiled")


def client_preprocess_input(places: Places) -> None:
    """Keep the sentences of each pair; the client tokenizes them when it encrypts."""
    records = read_lines(places.pairs)
    kept = [{name: record[name] for name in ("sentence1", "sentence2")} for record in records]
    write_lines(places.model_inputs, kept)
    say(f"{len(kept)} pairs of sentences")


def client_encode_encrypt_input(places: Places) -> None:
    """Tokenize, embed, encode and encrypt: a query for each batch of the program."""
    client = atlasc.Client(places.client, places.io / "secret_key")
    upload = places.io / "ciphertexts_upload"
    upload.mkdir(parents=True)
    pairs, batch = read_lines(places.model_inputs), client.bundle.batch
    for number, start in enumerate(range(0, len(pairs), batch)):
        query = client.encrypt(pairs[start : start + batch], note=say)
        (upload / str(number)).write_bytes(query)
    say(f"{len(pairs)} pairs, {batch} in a query")


def server_encrypted_compute(places: Places) -> None:
    """Answer every query."""
    started = time.perf_counter()
    server = atlasc.Server(places.server, places.io / "public_keys")
    download = places.io / "ciphertexts_download"
    download.mkdir(parents=True)
    spent = 0.0
    for query in sorted((places.io / "ciphertexts_upload").iterdir(), key=lambda p: int(p.name)):
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
    client = atlasc.Client(places.client, places.io / "secret_key")
    found: list[dict[str, Any]] = []
    answers = sorted((places.io / "ciphertexts_download").iterdir(), key=lambda p: int(p.name))
    for answer in answers:
        answered = client.decrypt(answer)
        (logits,) = answered.outputs.values()
        for row, values in enumerate(logits):
            refused = row in answered.refused
            if refused:
                share = answered.refused[row]
                say(f"pair {len(found)}: no answer, {share:.1%} of its numbers cannot be right")
            found.append({"he_logits": [] if refused else values.tolist()})
    write_lines(places.logits, found)
    say(f"{len(found)} answers")


def client_postprocess(places: Places) -> None:
    """The class of each pair, in the order of the inputs; −1, which is wrong, for no answer."""
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


def main() -> None:
    """Run the stage that this file is named after, on the size that the harness names."""
    name = Path(__file__).stem
    stages = {stage.__name__: stage for stage in STAGES}
    try:
        stages[name](Places.of(int(sys.argv[1])))
    except atlasc.AtlasError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
