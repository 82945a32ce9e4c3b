"""A service with two GPUs, by stand-ins of CUDA: kernels run on the processor.

``CMakeLists.txt`` builds the native module as an installation for GPUs has it. Only the service and
its workers import that one. Its clients are of this installation, which has no GPU.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pybind11
import pytest
import torch
from cpp_build import OPTIMISED, Builder, require_compiler

import atlasc
from atlasc.ir.files import GIB
from tests.atlasc.service.conftest import Party
from tests.atlasc.service.running import Running, until
from tests.atlasc.service.test_endpoints import figure, wait
from tests.atlasc.service.test_kills import submit, tenant
from tests.runtime_cuda.ckks.roles.test_clients import Squared

pytestmark = pytest.mark.deep("engines")
HERE = Path(__file__).parent
ROWS = 2
LAUNCHES = 40
"""After which a GPU is lost: in the first op of a query, or in the keys that it needs."""
IMPORTS_ANOTHER = """
import sys
from importlib.util import spec_from_file_location
class Emulated:
    def find_spec(name, path=None, target=None):
        if name == "atlasc.runtime._native":
            return spec_from_file_location(name, {place!r})
sys.meta_path.insert(0, Emulated)
"""


class Gpus:
    """A service of one program, its two GPUs, and clients of it.

    Attributes:
        service: as it runs.
        lost: folder with a file for each GPU that is lost, or will be.
        expected: answers of the model.
    """

    def __init__(self, folder: Path) -> None:
        torch.manual_seed(0)
        model, x = Squared().eval(), np.random.default_rng(0).normal(size=(20, 4))
        self._bundle, self._x = folder / "program", x.astype(np.float32)
        program = atlasc.compile(
            model, {"x": self._x}, recipe="is", batch=ROWS, target="cuda", name="squared"
        )
        program.save(self._bundle)
        with torch.no_grad():
            self.expected = model(torch.from_numpy(self._x[:ROWS])).numpy()
        self._folder, self.lost = folder, folder / "lost"
        self.lost.mkdir()
        self.service = Running(folder / "state", self._bundle)
        self.ready(2)

    def tenant(self, name: str) -> tuple[str, Party]:
        """A token of a new tenant, and what its client has."""
        keys = self._folder / name
        atlasc.keygen(self._bundle, keys)
        party = Party(self._bundle, keys, self._x)
        return tenant(self.service, party, name), party

    def lines(self, event: str, **facts: object) -> list[dict[str, object]]:
        found = [line for line in self.service.log if line["event"] == event]
        return [line for line in found if facts.items() <= line.items()]

    def workers(self, job: str) -> list[object]:
        """The workers that began with a job."""
        return [line["worker"] for line in self.lines("job started", job=job)]

    def ask(self, token: str, party: Party) -> str:
        return submit(self.service, token, bytes(party.client.encrypt(self._x[:ROWS])))

    def require_answer(self, token: str, party: Party, job: str) -> None:
        assert wait(self.service, token, job) == "done"
        answer = self.service.call("GET", f"/jobs/{job}/answer", token).content
        (found,) = party.client.decrypt(answer).outputs.values()
        np.testing.assert_allclose(found, self.expected, atol=1e-4)

    @property
    def metrics(self) -> str:
        token = self.service.token("watch", "metrics")
        return self.service.call("GET", "/metrics", token).content.decode()

    def figures(self, name: str) -> dict[str, float]:
        """A figure of all GPUs, by its labels."""
        found = re.findall(rf"{name}{{(.+)}} (.+)", self.metrics)
        return {labels: float(value) for labels, value in found}

    def ready(self, count: int) -> None:
        """Wait until so many workers take jobs."""
        until(lambda: figure(self.metrics, "atlasc_workers_ready") == count)

    def lose(self, *workers: object) -> None:
        """Lose GPUs in the middle of the next query that each computes."""
        for one in workers:
            draft = self.lost / "draft"
            draft.write_text(str(LAUNCHES))
            draft.rename(self.lost / str(one))

    def mend(self) -> None:
        """A reset of all that were lost."""
        for one in self.lost.iterdir():
            one.unlink()


@pytest.fixture(scope="module")
def gpus(tmp_path_factory: pytest.TempPathFactory, cpp: Builder) -> Iterator[Gpus]:
    require_compiler()
    folder = tmp_path_factory.mktemp("gpus")
    python = f"-DPython_EXECUTABLE={sys.executable}", f"-Dpybind11_DIR={pybind11.get_cmake_dir()}"
    built = cpp.cmake(HERE, folder / "build", OPTIMISED, *python)
    [place] = built.glob("runtime/_native.*")
    (folder / "hook").mkdir()
    (folder / "hook/sitecustomize.py").write_text(IMPORTS_ANOTHER.format(place=str(place)))
    path = os.pathsep.join([str(folder / "hook"), os.environ.get("PYTHONPATH", "")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path.rstrip(os.pathsep))
        patch.setenv("ATLASC_STAND_IN", "two")
        patch.setenv("ATLASC_STAND_IN_LOST", str(folder / "lost"))
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        found = Gpus(folder)
        yield found
        found.service.kill()


def test_two_tenants_are_answered_on_two_gpus(gpus: Gpus) -> None:
    sizes = gpus.figures("atlasc_gpu_bytes")
    for worker in "01":
        assert sizes[f'kind="total",worker="{worker}"'] == 4 * GIB
        assert sizes[f'kind="keys",worker="{worker}"'] == 0
    assert gpus.figures("atlasc_gpu_lost") == {'worker="0"': 0.0, 'worker="1"': 0.0}
    tenants = [gpus.tenant(name) for name in ("acme", "other")]
    jobs = [(*one, gpus.ask(*one)) for one in (*tenants, *tenants)]
    used = set[object]()
    for token, party, job in jobs:
        gpus.require_answer(token, party, job)
        used |= {*gpus.workers(job)}
    assert used == {0, 1}
    until(lambda: min(gpus.figures("atlasc_gpu_bytes").values()) > 0)  # keys are on both
    assert not gpus.lines("worker died")


def test_a_gpu_that_is_lost_in_a_query_costs_no_answer(gpus: Gpus) -> None:
    """The other one answers. The lost one is back after a reset, and not before."""
    token, party = gpus.tenant("unlucky")
    first = gpus.ask(token, party)
    gpus.require_answer(token, party, first)
    [worker] = gpus.workers(first)  # which has the keys
    gpus.lose(worker)
    job = gpus.ask(token, party)
    gpus.require_answer(token, party, job)
    assert gpus.workers(job) == [worker, 1 - int(str(worker))]
    [died] = gpus.lines("worker died", job=job)
    assert died["worker"] == worker and "cudaErrorECCUncorrectable" in str(died["why"])
    states = {f'worker="{one}"': float(one == worker) for one in (0, 1)}
    assert gpus.figures("atlasc_gpu_lost") == states
    assert gpus.service.call("GET", "/v2/health/ready").status == 200
    gpus.mend()
    gpus.ready(2)
    assert set(gpus.figures("atlasc_gpu_lost").values()) == {0.0}


def test_a_query_that_loses_both_gpus_is_refused(gpus: Gpus) -> None:
    token, party = gpus.tenant("late")
    gpus.lose(0, 1)
    job = gpus.ask(token, party)
    assert wait(gpus.service, token, job) == "failed"
    answer = gpus.service.call("GET", f"/jobs/{job}/answer", token)
    assert answer.status == 422 and answer.json["error"] == "the job could not be computed"
    assert sorted(map(str, gpus.workers(job))) == ["0", "1"]
    assert gpus.service.call("GET", "/v2/health/ready").status == 503
    gpus.mend()
    gpus.ready(2)
    gpus.require_answer(token, party, gpus.ask(token, party))
    assert gpus.service.stop() == 0
    assert "Traceback" not in gpus.service.log_path.read_text()
