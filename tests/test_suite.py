"""What decides which tests run: quick and deep ones, slices, and those near a change."""

from __future__ import annotations

import math
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.suite import depth, durations, near
from tests.suite.imports import ROOT
from tests.suite.made_once import made_once
from tests.suite.near import START, choose, distances, readers

pytest_plugins = ("pytester",)
SUITE = """
import pytest
from hypothesis import given, strategies

def test_quick(): pass

@pytest.mark.deep("engines")
def test_deep(): pass

@given(strategies.integers())
def test_property(number): pass
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project of its own with one test of each kind, under our plug-ins."""
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makeini("[pytest]\nmarkers = deep(why): x\naddopts = --strict-markers\n")
    pytester.makeconftest('pytest_plugins = ("tests.suite.durations", "tests.suite.depth")')
    pytester.makepyfile(test_some=SUITE)
    return pytester


def run(suite: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return suite.runpytest_subprocess("-v", "-p", "no:cacheprovider", *arguments)


def test_a_quick_run_leaves_deep_tests_out_and_says_so(suite: pytest.Pytester) -> None:
    found = run(suite)
    found.assert_outcomes(passed=2, deselected=1)
    found.stdout.fnmatch_lines(["*1 engines: one check on several devices or kernels"])


def test_a_deep_run_has_all(suite: pytest.Pytester) -> None:
    run(suite, "--deep").assert_outcomes(passed=3)


def test_a_test_that_is_named_runs(suite: pytest.Pytester) -> None:
    run(suite, "test_some.py::test_deep").assert_outcomes(passed=1)


def test_a_slice_has_deep_tests_and_property_tests(suite: pytest.Pytester) -> None:
    found = run(suite, "--slice", "1")  # the only file of the suite
    found.assert_outcomes(passed=2, deselected=1)
    assert run(suite, "--slice", "2").ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_a_slice_that_fails_says_how_to_run_it(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_some=SUITE.replace("test_deep(): pass", "test_deep(): assert False"))
    found = run(suite, "--slice", "1")
    found.assert_outcomes(passed=1, failed=1, deselected=1)
    found.stdout.fnmatch_lines(["*slice 1 of 20*", "*make test-deep SLICE=1"])


@pytest.mark.parametrize("mark", ['"no reason"', ""])
def test_a_deep_test_says_why(suite: pytest.Pytester, mark: str) -> None:
    suite.makepyfile(test_some=SUITE.replace('"engines"', mark))
    found = run(suite)
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    found.stderr.fnmatch_lines(["*test_deep is deep for no known reason*"])


def test_examples_are_fixed_in_a_quick_run_and_fresh_in_a_deep_one(
    suite: pytest.Pytester,
) -> None:
    suite.makepyfile(
        test_some="""
        from hypothesis import given, settings, strategies

        @given(strategies.integers())
        def test_property(number): print("example", number)

        def test_settings(): print("found", settings().derandomize, settings().max_examples)
        """
    )
    quick, deep = (run(suite, "-s", *words).stdout.str() for words in ((), ("--deep",)))
    assert "found True 25" in quick and "found False 100" in deep
    assert numbers(quick) == numbers(run(suite, "-s").stdout.str()) != numbers(deep)
    assert len(numbers(quick)) == 25


def numbers(output: str) -> list[str]:
    """The examples that a property test printed."""
    return re.findall(r"example (-?\d+)", output)


def test_every_file_is_in_one_slice_and_slices_are_even() -> None:
    files = [file for file, (_, deep) in durations.load().items() if deep]
    assert len(files) > depth.SLICES
    slices = depth.slices_of(files)
    assert set(slices.values()) == set(range(1, depth.SLICES + 1))
    assert depth.slices_of(reversed(files)) == slices
    total = dict.fromkeys(slices.values(), 0.0)
    for file, number in slices.items():
        total[number] += durations.load()[file][1]
    longest = max(deep for _, deep in durations.load().values())
    assert max(total.values()) <= sum(total.values()) / depth.SLICES + longest


def test_the_table_of_durations_names_files_that_exist() -> None:
    assert [file for file in durations.load() if not (ROOT / file).exists()] == []


def test_recorded_durations_are_of_quick_and_deep_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "durations.json"
    table.write_text('{"tests/test_suite.py": [7.0, 3.0], "tests/test_gone.py": [1.0, 1.0]}')
    monkeypatch.setattr(durations, "TABLE", table)
    monkeypatch.setattr(durations, "load", durations.load.__wrapped__)
    recorder = durations.Recorder()
    for seconds in (1.25, 1.0):
        report = pytest.TestReport(
            "tests/test_suite.py::test_x", ("", 0, ""), {"deep": 1}, "passed", None, "call",
            duration=seconds,
        )  # fmt: skip
        recorder.pytest_runtest_logreport(report)
    recorder.pytest_sessionfinish()
    assert durations.load() == {"tests/test_suite.py": (7.0, 2.2)}


def test_what_is_shared_is_made_once(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> None:
    calls: list[Path] = []

    def make(folder: Path) -> None:
        calls.append(folder)
        if len(calls) == 1:
            (folder / "half").touch()
            raise OSError("no space")
        (folder / "whole").touch()

    name = request.node.name + str(id(calls))
    with pytest.raises(OSError, match="no space"):
        made_once(tmp_path_factory, name, make)
    folders = [made_once(tmp_path_factory, name, make) for _ in range(3)]
    assert len(calls) == 2 and len(set(folders)) == 1
    assert [path.name for path in folders[0].iterdir()] == ["whole"]


NEAR = {
    "atlasc/service/endpoints.py": "tests/atlasc/service/test_endpoints.py",
    "passes/lowering/rotation_keys.py": "tests/atlasc/test_key_planning.py",
    "ir/layout.py": "tests/ir/test_layout.py",
    "runtime_cuda/ckks/keys/raise.cu": "tests/runtime_cuda/ckks/test_engine.py",
    "runtime_cuda/src/roles/ledger.cpp": "tests/runtime_cuda/test_install.py",
    "atlasc/polynomials/native/row_programs.cpp": "tests/atlasc/polynomials/test_chebyshev.py",
    "plugins/atlasc_comparisons/nexus.py": "tests/plugins/test_published_recipes.py",
    "tests/helpers/packed.py": "tests/passes/lowering/test_wide_settings.py",
    "tests/runtime_cuda/ckks/programs/secrets.cpp": "tests/runtime_cuda/ckks/test_secrets.py",
    "tests/atlasc/service/conftest.py": "tests/atlasc/service/test_jobs.py",
    "docs/search.md": "tests/test_docs.py",
    "tests/test_suite.py": "tests/test_suite.py",
}


@pytest.fixture(scope="module")
def read_by() -> dict[str, set[str]]:
    return readers()


@pytest.mark.parametrize("changed", NEAR)
def test_the_tests_near_a_file(changed: str, read_by: dict[str, set[str]]) -> None:
    assert (ROOT / changed).exists()
    assert distances([changed], read_by)[NEAR[changed]] <= 2


def test_near_tests_fit_into_the_time() -> None:
    choice = choose(["ir/layout.py"], seconds=START + 20)
    table = durations.load()
    assert "tests/ir/test_layout.py" in choice.near
    assert choice.left_out and not set(choice.near) & set(choice.left_out)
    assert math.fsum(durations.seconds(table, file, deep=False) for file in choice.near) <= 2 * 20


def test_what_was_changed_itself_runs_however_long_it_takes() -> None:
    longest = max(durations.load(), key=lambda file: durations.load()[file][0])
    assert longest in choose([longest], seconds=41).near


def test_what_begins_too_late_is_skipped(pytester: pytest.Pytester) -> None:
    """In the order of the files: the nearest ones run."""
    slow = "import time\ndef test_slow(): time.sleep(3)\ndef test_late(): assert False"
    pytester.makepyfile(test_b=slow, test_a="def test_later(): assert False")
    until = f"--begin-until={time.time() + 3}"
    done = pytester.runpytest("-p", "tests.suite.near", until, "test_b.py", "test_a.py")
    done.assert_outcomes(passed=1, skipped=2)


def test_what_differs_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits of a branch, changes that are not committed, and new files; not those of main."""

    def git(*words: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(near, "ROOT", tmp_path)
    for name in ("old", "changed", "main"):
        (tmp_path / name).write_text("1")
    git("init", "-b", "main")
    git("add", ".")
    git("commit", "-m", "1")
    assert near.changed_files(None) == ("main", [])
    git("checkout", "-b", "branch")
    (tmp_path / "committed").touch()
    git("add", ".")
    git("commit", "-m", "2")
    (tmp_path / "changed").write_text("once more")
    (tmp_path / "new").touch()
    assert near.changed_files(None) == ("main", ["changed", "committed", "new"])
    assert near.changed_files("HEAD") == ("HEAD", ["changed", "new"])
    git("checkout", "main")
    (tmp_path / "main").write_text("once more")
    git("add", "main")
    git("commit", "-m", "3")
    git("checkout", "branch")
    assert near.changed_files(None) == ("main", ["changed", "committed", "new"])
    with pytest.raises(SystemExit, match="no commit that HEAD shares with nothing"):
        near.changed_files("nothing")
