"""Compiles C++ once: ``python compiler_cache.py FOLDER COMPILER ARGUMENT...``.

The tests build the runtime several times: in an emitted project, with the fuzzer, with the
conformance suite, in two processes. An object is kept in FOLDER under a digest of the compiler, its
flags and the preprocessed source, so equal text is compiled once. CMake runs this file as
its compiler launcher, and :mod:`cpp_build` as a command.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

KEPT_DAYS = 3
"""After which an object that no test asked for is removed."""
_WITH_PATH = {"-o", "-I", "-isystem", "-MT", "-MF"}
"""Options whose next word is a path, which is not part of what is compiled."""


def main(folder: Path, command: list[str]) -> int:
    """Run a command of a compiler; its exit code. Only compilation without linking is cached."""
    if "-c" not in command or "-o" not in command:
        return subprocess.run(command, check=False).returncode
    target = command[command.index("-o") + 1]
    preprocess = ["-E" if word == "-c" else word for word in command]
    del preprocess[preprocess.index("-o") : preprocess.index("-o") + 2]
    text = subprocess.run(preprocess + ["-P"], capture_output=True, check=False)
    if text.returncode:
        return subprocess.run(command, check=False).returncode  # which shows the errors
    entry = folder / _digest(command, text.stdout)
    with entry.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be compiling the same
        if entry.exists():
            os.utime(entry)
        else:
            done = subprocess.run(command, check=False)
            if done.returncode:
                return done.returncode
            draft = entry.with_suffix(".draft")
            shutil.copyfile(target, draft)
            draft.rename(entry)
    shutil.copyfile(entry, target)
    return 0


def _digest(command: list[str], text: bytes) -> str:
    """Of the compiler, the flags in any order, and the preprocessed source."""
    compiler = Path(os.path.realpath(shutil.which(command[0]) or command[0]))
    facts = compiler.stat()
    flags, words = set(), iter(command[1:])
    for word in words:
        if word in _WITH_PATH:
            next(words)
        elif word.startswith("-") and not word.startswith(("-I", "-M")):
            flags.add(word)
    known = repr((str(compiler), facts.st_size, facts.st_mtime_ns, sorted(flags)))
    return hashlib.sha256(known.encode() + text).hexdigest()


def remove_old(folder: Path) -> None:
    """Remove what no test asked for in ``KEPT_DAYS`` days."""
    oldest = time.time() - KEPT_DAYS * 24 * 3600
    for path in folder.iterdir():
        if path.stat().st_mtime < oldest:
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
