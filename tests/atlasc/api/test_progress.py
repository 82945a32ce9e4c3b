"""Progress without a terminal: silent when quick, a line now and then, an estimate of the rest."""

from __future__ import annotations

import io
import time

import pytest

from atlasc.api import progress as progress_module
from atlasc.api.progress import Pace, _lines, line, progress
from atlasc.progress import Step, steps_of


def test_line_has_share_elapsed_and_rest() -> None:
    step = Step("searching", 40)
    step(10, note="generation 3")
    assert line(step, 60, 180) == (
        "searching: 10/40 (25%), 0:01:00 elapsed, about 0:03:00 left [generation 3]"
    )


def test_line_without_a_total() -> None:
    step = Step("tracing", None)
    assert line(step, 0) == "tracing: 0:00:00 elapsed"


def test_report_is_the_plain_callback_of_library_code() -> None:
    step = Step("making keys", None)
    step.report("rotation key", 3, 7)
    assert (step.note, step.done, step.total) == ("rotation key", 3, 7)


def test_quick_work_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("quick", total=2) as step:
        step()
        step()
    assert capsys.readouterr().err == ""


def _until_more_than(out: io.StringIO, lines: int) -> None:
    """Wait until a stream has more lines, however busy the machine is."""
    while out.getvalue().count("\n") <= lines:
        time.sleep(0.01)


def test_slow_work_prints_lines_and_an_end() -> None:
    out = io.StringIO()
    with _lines("slow", 8, quiet=0.01, interval=0.01, stream=out) as step:
        step()
        _until_more_than(out, 1)
        step(3)
        _until_more_than(out, out.getvalue().count("\n") + 1)
    lines = out.getvalue().splitlines()
    assert lines[0] == "slow: 1/8 (12%), 0:00:00 elapsed"  # one step is no pace
    assert lines[-2].startswith("slow: 4/8 (50%), 0:00:00 elapsed, about 0:00:00 left")
    assert lines[-1] == "slow: finished in 0:00:00"
    assert len(lines) > 2


def test_failed_work_does_not_claim_to_be_finished() -> None:
    out = io.StringIO()

    def work() -> None:
        with _lines("slow", 4, quiet=0.01, stream=out):
            time.sleep(0.1)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        work()
    assert out.getvalue().startswith("slow: ")
    assert "finished" not in out.getvalue()


def test_interrupt_carries_how_to_continue() -> None:
    with pytest.raises(KeyboardInterrupt) as caught, progress("x", resume="run it again"):
        raise KeyboardInterrupt
    assert str(caught.value) == "run it again"


def test_inner_advice_wins() -> None:
    with (
        pytest.raises(KeyboardInterrupt) as caught,
        progress("outer", resume="outer"),
        progress("inner", resume="inner"),
    ):
        raise KeyboardInterrupt
    assert str(caught.value) == "inner"


class Terminal(io.StringIO):
    """Takes the place of standard error, and says that it is a terminal."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        monkeypatch.setattr(progress_module.sys, "stderr", self)
        monkeypatch.setenv("TERM", "xterm")

    def isatty(self) -> bool:
        return True


def test_bar_on_a_terminal_follows_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    with progress("outer", total=2) as step, progress("inner", total=3) as inner:
        step()
        inner(3, note="last one")
    shown = terminal.getvalue()
    assert "outer" in shown
    assert "2/2" in shown  # what ends is whole
    assert "3/3" in shown


def test_notes_are_spelled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile, out = "q\x1b]0;owned\x07[/red]", io.StringIO()
    with _lines(hostile, 4, quiet=0.01, interval=0.01, stream=out) as step:
        step(note=hostile)
        time.sleep(0.1)
    assert "\x1b" not in out.getvalue() and r"[q\x1b]0;owned\x07[/red]]" in out.getvalue()

    terminal = Terminal(monkeypatch)
    with progress(hostile, total=1) as step:
        step(note=hostile)
    assert "\x1b]0;" not in terminal.getvalue()
    assert terminal.getvalue().count(r"q\x1b]0;owned\x07[/red]") >= 2


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of the clock that estimates read, in a list of one."""
    now = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    return now


def test_quick_first_steps_do_not_promise_a_quick_end(clock: list[float]) -> None:
    """The first ten evaluations of a search explode at once; the others take five seconds."""
    pace, step, said = Pace(), Step("searching", 260), []
    for count in range(1, 60):
        clock[0] += 0.2 if count <= 10 else 5.0
        step()
        said.append(pace.left(step))
    assert said[:3] == [None] * 3
    assert said[3] is not None
    truth = [5.0 * (260 - count) for count in range(46, 60)]
    for left, true in zip(said[-14:], truth, strict=True):
        assert left == pytest.approx(true, rel=0.05)


def test_evaluations_of_an_earlier_run_are_no_pace(clock: list[float]) -> None:
    pace, step = Pace(), Step("searching", 100)
    step.report("known", 80, 100)
    clock[0] += 0.01
    assert pace.left(step) is None
    for _ in range(4):
        clock[0] += 10
        step()
        left = pace.left(step)
    assert left == pytest.approx(160)


def test_what_ends_early_ends_at_its_whole() -> None:
    seen: list[tuple[int, int | None]] = []
    steps = steps_of(lambda what, done, total: seen.append((done, total)))
    with steps("searching", 260) as step:
        step(143)
    assert seen[-1] == (260, 260)


def test_a_bar_that_ends_early_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    with progress("searching", total=260) as step:
        step(143)
    assert "260/260" in terminal.getvalue()
