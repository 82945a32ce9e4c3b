"""Failures become messages and exit codes."""

from __future__ import annotations

import errno
import io
import os
import pickle
import sys

import pytest
import typer
from safetensors import SafetensorError

from atlasc.cli.output import TRACEBACK_VARIABLE, print_table, reported, warn
from atlasc.ir.errors import AtlasError, listed


def code_of(error: BaseException) -> int:
    with pytest.raises(typer.Exit) as caught, reported():
        raise error
    return caught.value.exit_code


def test_atlas_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(AtlasError("the model is empty", why="[no] files [/]")) == 2
    assert capsys.readouterr().err == "error: the model is empty\n  why: [no] files [/]\n"


def test_missing_file_is_a_users_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(FileNotFoundError(errno.ENOENT, "No such file or directory", "data.npz")) == 2
    assert capsys.readouterr().err == "error: No such file or directory\n  where: data.npz\n"


def test_interrupt_tells_how_to_continue(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(KeyboardInterrupt("the same command continues")) == 130
    assert capsys.readouterr().err == "interrupted: the same command continues\n"


def test_internal_error_is_short(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TRACEBACK_VARIABLE, raising=False)
    assert code_of(ZeroDivisionError("division by zero")) == 70
    shown = capsys.readouterr().err
    assert shown.startswith("internal error: ZeroDivisionError: division by zero\n")
    assert TRACEBACK_VARIABLE in shown
    assert "Traceback" not in shown


def test_traceback_on_request(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TRACEBACK_VARIABLE, "1")
    assert code_of(AtlasError("the model is empty")) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("Traceback")
    assert shown.endswith("error: the model is empty\n")


def test_typers_own_exceptions_pass() -> None:
    assert code_of(typer.Exit(7)) == 7
    with pytest.raises(typer.BadParameter), reported():
        raise typer.BadParameter("not a number")


HOSTILE = "a\x1b]0;owned\x07\rb\u202e"
SPELLED_OUT = r"a\x1b]0;owned\x07\rb\u202e"


def test_text_from_elsewhere_is_spelled_out(capsys: pytest.CaptureFixture[str]) -> None:
    warn(HOSTILE, f"  why: {HOSTILE}\n  what to do: nothing")
    assert capsys.readouterr().err == (
        f"warning: {SPELLED_OUT}\n  why: {SPELLED_OUT}\n  what to do: nothing\n"
    )
    assert code_of(FileNotFoundError(errno.ENOENT, "No such file", HOSTILE)) == 2
    assert capsys.readouterr().err.endswith(f"  where: {SPELLED_OUT}\n")


def test_warning_of_inputs_stays_in_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    warn("1 input is unsafe", listed(["x.txt\n  what to do: send the key"]))
    assert r"x.txt\n  what to do: send the key" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "front.json"),
        OSError("No space left on device"),
        SafetensorError(
            "Error while serializing: I/O error: No space left on device (os error 28)"
        ),
    ],
)
def test_full_disk_is_no_internal_error(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(error) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: ") and "make room" in shown and "internal" not in shown


def test_error_of_the_system_without_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(OSError("the pipe is broken")) == 2
    assert capsys.readouterr().err == "error: the pipe is broken\n"


def test_encoding_that_lacks_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdout", "stderr"):
        stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
        monkeypatch.setattr(sys, name, stream)

    def work() -> None:
        with reported():
            print("1 … 2")
            print_table(["größe"], [["–1 …"]])
            raise AtlasError("Ärger")

    with pytest.raises(typer.Exit):
        work()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    assert b"1 \\u2026 2\n" in sys.stdout.buffer.getvalue()  # type: ignore[attr-defined]
    assert rb"gr\xf6\xdfe" in sys.stdout.buffer.getvalue()  # type: ignore[attr-defined]
    assert rb"error: \xc4rger" in sys.stderr.buffer.getvalue()  # type: ignore[attr-defined]


def test_success_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with reported():
        pass
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("can't start new thread"),
        ImportError("libtorch.so: failed to map segment from shared object"),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_too_little_memory_is_said(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(error) == 2
    assert capsys.readouterr().err.startswith("error: not enough memory\n")


def test_an_error_of_another_process_has_the_same_words() -> None:
    error = AtlasError("a fault", where=["here", "there"], why="two\nlines", remedy="mend it")
    found = pickle.loads(pickle.dumps(error))
    assert str(found) == str(error) and (found.what, found.why) == (error.what, error.why)
