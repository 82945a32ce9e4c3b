"""Files that the C++ client and server make and open: private, whole, and never through links."""

from __future__ import annotations

import fcntl
import os
import random
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.atlasc.emit.cpp import refused
from tests.atlasc.emit.probe import Bench

FILES = {"secret.key", "ledger.jsonl", "evaluation.key"}
DRAFT = ".atlasc-" + "0123456789abcdef" * 2 + ".draft"


def keygen(bench: Bench, output: str = "new") -> list[object]:
    return bench.keygen(output)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_keys_are_private_at_every_moment(bench: Bench) -> None:
    """Seen from another thread, with a mask that hides nothing."""
    seen, done = set[tuple[str, int]](), threading.Event()

    def watch() -> None:
        while not done.is_set():
            for folder, _, files in os.walk(bench.folder):
                for path in (folder, *(os.path.join(folder, file) for file in files)):
                    try:
                        facts = os.lstat(path)
                    except FileNotFoundError:
                        continue
                    if "/new" in path or "draft" in path:
                        seen.add((os.path.basename(path), facts.st_mode & 0o777))

    watcher = threading.Thread(target=watch)
    watcher.start()
    mask = os.umask(0)
    try:
        for number in range(8):
            bench.run(keygen(bench, f"new{number}"))
    finally:
        os.umask(mask)
        done.set()
        watcher.join()
    folders = {found for name, found in seen if name.startswith("new") or len(name) == len(DRAFT)}
    assert folders <= {0o700, 0o600}
    keys = bench.folder / "new0"
    assert mode(keys) == 0o700
    assert names(keys) == FILES
    assert {mode(keys / name) for name in FILES} == {0o600}
    assert {found for name, found in seen if name in FILES} <= {0o600}


def test_answers_are_private(bench: Bench) -> None:
    bench.run(bench.decrypt())
    assert mode(bench.folder / "out") == 0o600


def test_no_core_dump_is_left(bench: Bench) -> None:
    """A client that has its key, and then waits for its ledger: nobody may look into it."""
    ledger = bench.folder / "keys" / "ledger.jsonl"
    with ledger.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        words = [str(word) for word in bench.decrypt()]
        process = subprocess.Popen(words, cwd=bench.folder, stderr=subprocess.PIPE, text=True)
        try:
            limits = Path(f"/proc/{process.pid}/limits")
            until = time.monotonic() + 60
            while "Max core file size        0 " not in limits.read_text():
                assert time.monotonic() < until and process.poll() is None
                time.sleep(0.01)
            # Files of a process that may not be dumped belong to root.
            place = Path(f"/proc/{process.pid}/environ")
            assert place.stat().st_uid == 0
        finally:
            process.kill()
            process.communicate()


def test_a_secret_key_that_others_may_read_is_refused(bench: Bench) -> None:
    for name in ("secret.key", "ledger.jsonl"):
        for loose in (0o644, 0o640, 0o604, 0o666):
            (bench.folder / "keys" / name).chmod(loose)
            message = bench.refused(bench.encrypt(output="new"))
            assert f"keys/{name} is open to other users" in message
            assert f"chmod 600 keys/{name}" in message
        (bench.folder / "keys" / name).chmod(0o600)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_the_key_of_another_user_is_refused(bench: Bench) -> None:
    os.chown(bench.folder / "keys" / "secret.key", 12345, -1)
    assert "belongs to another user" in bench.refused(bench.encrypt(output="new"))


def test_links_pipes_and_devices_are_refused(bench: Bench) -> None:
    folder = bench.folder
    for name, command in {
        "keys/secret.key": bench.encrypt(output="new"),
        "in": bench.encrypt(output="new"),
        "query": bench.execute(output="new"),
        "program": bench.execute(output="new"),
        "interface": bench.encrypt(output="new"),
        "keys/evaluation.key": bench.execute(output="new"),
        "answer": bench.decrypt(),
        "keys/ledger.jsonl": bench.decrypt(),
    }.items():
        (folder / name).rename(folder / "kept")
        (folder / name).symlink_to(folder / "kept")
        assert "link" in bench.refused(command).lower()
        (folder / name).unlink()
        os.mkfifo(folder / name, 0o600)
        assert "the path is not a plain file" in bench.refused(command)
        (folder / name).unlink()
        (folder / name).symlink_to("/dev/zero")
        bench.refused(command)
        (folder / name).unlink()
        (folder / "kept").rename(folder / name)


def test_outputs_follow_no_link(bench: Bench) -> None:
    victim = bench.folder / "victim"
    for planted in ("new", "new.part"):
        (bench.folder / planted).symlink_to(victim)
    assert "exists already" in bench.refused(bench.encrypt(output="new"))
    (bench.folder / "new").unlink()
    bench.run(bench.encrypt(output="new"))
    assert not victim.exists()


@pytest.mark.parametrize("name", ["keygen", "encrypt", "execute", "timing", "decrypt"])
@pytest.mark.parametrize("size", [0, 100])
def test_a_write_that_fails(bench: Bench, name: str, size: int) -> None:
    """A limit on the size of files stands for a full disk; the message has the system's words."""
    command = {
        "keygen": keygen(bench),
        "encrypt": bench.encrypt(output="new"),
        "execute": bench.execute(output="new"),
        "timing": bench.execute(output="new", timing="times"),
        "decrypt": bench.decrypt(),
    }[name]
    before = names(bench.folder)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=bench.folder, capture_output=True, text=True, preexec_fn=limit)
    assert done.returncode == 2, done.stderr
    assert "error: cannot write to" in done.stderr
    assert "File too large" in done.stderr
    assert names(bench.folder) == before
    if name != "keygen":
        bench.run(command)


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 kB."""
    place = tmp_path / "full"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("nobody but root can mount a small disk")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk(bench: Bench, full: Path) -> None:
    (full / "old").write_bytes(bytes(20_000))
    commands = {
        "keygen": [*keygen(bench)[:-1], full / "new"],
        "encrypt": bench.encrypt(output=full / "new"),
        "execute": bench.execute(output=full / "new"),
        "timing": bench.execute(output="timed", timing=full / "new"),
        "decrypt": bench.decrypt(output=full / "new"),
    }
    (full / "more").write_bytes(bytes(4_096))
    for name, command in commands.items():
        message = refused(command, bench.folder)
        assert "No space left on device" in message, name
        assert "cannot" in message
        assert names(full) == {"old", "more"}, name
    assert (full / "old").read_bytes() == bytes(20_000)
    (bench.folder / "timed").unlink()
    (full / "more").unlink()
    (full / "old").unlink()
    for name, command in commands.items():
        bench.run(command)
        shutil.rmtree(full / "new") if name == "keygen" else (full / "new").unlink()


def test_drafts_of_killed_runs_are_removed(bench: Bench) -> None:
    (bench.folder / DRAFT).mkdir()
    (bench.folder / DRAFT / "secret.key").write_text("")
    other = bench.folder / DRAFT.replace("0", "1")
    other.write_text("")
    held = bench.folder / DRAFT.replace("0", "2")
    held.write_text("")
    similar = bench.folder / ".atlasc-notes.draft"
    similar.write_text("")
    with held.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        bench.run(bench.encrypt(output="new"))
    assert not (bench.folder / DRAFT).exists()
    assert not other.exists()
    assert held.exists()
    assert similar.exists()


def test_kills_leave_keys_whole_or_absent(bench: Bench) -> None:
    rng = random.Random(5)
    words = [str(word) for word in keygen(bench)]
    for _ in range(20):
        process = subprocess.Popen(words, cwd=bench.folder, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0.0, 0.2))
        process.kill()
        process.wait()
        if (bench.folder / "new").exists():
            assert names(bench.folder / "new") == FILES
            shutil.rmtree(bench.folder / "new")
    bench.run(keygen(bench))
    assert not [name for name in names(bench.folder) if name.endswith(".draft")]


def test_messages_obey_no_terminal(bench: Bench) -> None:
    name = "\x1b]0;owned\x07\x9b31m"
    message = bench.refused(bench.execute(query=name, output="new"))
    assert "\\x1b]0;owned\\x07" in message
    assert message.isascii()
    said = bench.probe("clock", name).stderr
    assert said.startswith(b"executing: ")
    assert b"\\x1b]0;owned\\x07" in said
    assert said.isascii()
    assert b"\x1b" not in said
    assert not set(message) & {"\x1b", "\x07"}
