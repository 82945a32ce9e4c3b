"""Failures become messages and exit codes."""

from __future__ import annotations

import errno

import pytest
import typer

from atlasc.cli.errors import TRACEBACK_VARIABLE, reported
from atlasc.ir.errors import AtlasError


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
    assert code_of(ZeroDivisionError("division by zero")) == 1
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


def test_success_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with reported():
        pass
    assert capsys.readouterr() == ("", "")
