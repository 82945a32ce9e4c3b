"""Workers: the same front as one process, also when a worker is killed."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace

import pytest

from atlasc.ir.errors import AtlasError
from atlasc.search import ray_workers, strategy
from atlasc.search.ray_workers import RayPool
from atlasc.search.search_problem import RayWorkers, SearchProblem
from atlasc.search.strategies.atlas import Atlas

ray = pytest.importorskip("ray", reason="needs the ray extra")
pytestmark = pytest.mark.deep("cluster")

SMALL = Atlas(seed=1, population=8, generations=2, layer_population=12, layer_generations=3)
SETTINGS = [((7, p, 0, 0, 0, 7, 7, 7), (6, 6, q, 0, 0, 6, 7, 8)) for p in (5, 6, 7) for q in (4, 5)]


@pytest.fixture
def problem(problem):
    return replace(problem, device="cpu")


@pytest.fixture(scope="module")
def cluster():
    """A local cluster that already runs, as of a program that uses Ray itself, and claims GPUs."""
    ray.init(
        "local", num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False,
        logging_level="ERROR", object_store_memory=100 << 20,
    )  # fmt: skip
    yield
    ray.shutdown()


def test_processes_of_its_own_find_what_one_process_finds(problem, capfd, tmp_path) -> None:
    journaled = replace(problem, journal=tmp_path / "journal.jsonl")
    front = SMALL.search(replace(journaled, workers=RayWorkers(count=2)))
    assert front.points == SMALL.search(problem).points
    assert not ray.is_initialized()
    assert capfd.readouterr() == ("", "")
    # The journal does not say who evaluated.
    assert SMALL.search(journaled).points == front.points


def test_places_that_do_not_exist(problem, monkeypatch) -> None:
    with pytest.raises(AtlasError, match="at 127.0.0.1:1 cannot be reached"):
        RayPool(problem, RayWorkers(address="127.0.0.1:1"))
    with pytest.raises(AtlasError, match="at least 1 worker"):
        RayWorkers(count=0)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(AtlasError, match="not installed") as caught:
        RayPool(problem, RayWorkers())
    assert "pip install ray" in caught.value.remedy


def test_a_killed_worker_is_replaced_and_nothing_is_lost(problem, cluster, monkeypatch) -> None:
    pools, notes, killed, moments = [], [], [], [8, 24, 36]

    class Seen(RayPool):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            pools.append(self)

    def kill(progress):
        if moments and progress.done >= moments[0]:
            moments.pop(0)
            killed.append(pools[0].processes[-1])
            os.kill(killed[-1], signal.SIGKILL)

    monkeypatch.setattr(strategy, "RayPool", Seen)
    disturbed = replace(problem, workers=RayWorkers(count=2), note=notes.append)
    options = replace(SMALL, early_layers=1)
    front = options.search(disturbed, kill)
    assert front.points == options.search(problem).points
    assert front.evaluations == options.evaluations
    assert len(set(killed)) == 3
    assert notes == ["a worker died and is replaced; its settings are evaluated again"] * 3
    assert ray.is_initialized()


class Poisoned(SearchProblem):
    """One setting kills whoever evaluates it."""

    def objective(self, layers=None):
        objective = super().objective(layers)
        points = objective.points

        def deadly(settings):
            if SETTINGS[3] in settings:
                os.kill(os.getpid(), signal.SIGKILL)
            return points(settings)

        objective.points = deadly
        return objective


def test_a_setting_that_kills_its_workers_is_named(problem, cluster) -> None:
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    poisoned = Poisoned(
        problem.module, problem.calibration, problem.arrays, threads=1, device="cpu"
    )
    with (
        RayPool(poisoned, RayWorkers(count=2)) as pool,
        pytest.raises(AtlasError, match="3 workers died on one setting") as caught,
    ):
        list(pool.evaluate(None, SETTINGS))
    assert str(SETTINGS[3]) in caught.value.what
    assert "fewer workers" in caught.value.remedy


def test_mistakes_of_an_evaluation_arrive_as_they_are(problem, cluster) -> None:
    with (
        RayPool(problem, RayWorkers(count=1)) as pool,
        pytest.raises(AtlasError, match="there is no polynomial number 99"),
    ):
        list(pool.evaluate(None, [((99,) * 8,) * 2]))


def test_each_worker_has_a_gpu_to_itself_and_many_settings_at_once(
    problem, cluster, monkeypatch
) -> None:
    serial = {point.settings: point for point in problem.objective().points(SETTINGS)}
    monkeypatch.setattr(ray_workers, "GPU_BATCH", 2)
    with RayPool(replace(problem, device="auto"), RayWorkers()) as pool:
        points = []
        for point in pool.evaluate(None, SETTINGS):
            if not points:
                os.kill(pool.processes[0], signal.SIGKILL)
            points.append(point)
        assert len(points) == len(SETTINGS)
        assert {point.settings: point for point in points} == serial
        assert not ray.available_resources().get("GPU")
