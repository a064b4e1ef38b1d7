"""Checks in several processes: the same results, and what becomes of a process that ends or has lost its device."""

import os
from pathlib import Path

import pytest
from tests.contract.wrong_platforms import HEAD, KERNELS, TAIL

from anychip.errors import UserError
from anychip.testing.check import run_check
from anychip.testing.checks import CHECKS
from anychip.testing.conform import examined
from anychip.testing.subject import Subject
from anychip.testing.workers import Workers

NAMES = ("memory is reported", "rms_norm", "silu_mul", "gelu_mul", "gather_logprobs", "large steps: captured = eager")
LOST = """
    lost = False

    def synchronize(self):
        if self.lost:
            raise RuntimeError("nothing comes back")

    def fetch(self, tensor):
        self.synchronize()
        return super().fetch(tensor)
"""
FAULTS = """
def kernel(x):
    os.kill(os.getpid(), signal.SIGSEGV)


def lose(x, approximate):
    Broken.lost = True
    raise RuntimeError("an illegal address")
"""
ONCE = """
    def __init__(self):
        super().__init__()
        os.mkdir(os.path.join(os.path.dirname(__file__), "lock"))
"""


@pytest.fixture
def broken(plugin, monkeypatch):
    """Install a platform, for other processes too, and say what it is to do."""

    def install(source):
        folder = plugin("dummy-broken", "import os\nimport signal\n" + HEAD + source + TAIL)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]))

    return install


def children():
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def ignore(done, total):
    pass


def test_a_process_that_ends_fails_what_it_was_at_and_nothing_else(broken):
    listed = '"silu_mul": Kernel(kernel), "gelu_mul": Kernel(lose)'
    broken(LOST + KERNELS.format(listed=listed, functions=FAULTS))
    checks, before = [check for check in CHECKS if check.name in NAMES], children()
    with Subject("broken") as subject:
        alone = {check.name: run_check(check, subject) for check in checks if check.name in NAMES[1::3]}
        with Workers(subject, 2, 1, ignore) as workers:
            results = list(workers.results(checks))
    assert [result.check.name for result in results] == [check.name for check in checks]
    found = {result.check.name: result for result in results}
    assert {name: found[name].status for name in NAMES} == {
        name: "failed" if name in ("silu_mul", "gelu_mul") else "passed" for name in NAMES
    }
    assert "was ended by SIGSEGV" in found["silu_mul"].remark
    assert "an illegal address" in found["gelu_mul"].remark
    assert all(found[name].remark == result.remark for name, result in alone.items())
    assert children() == before


def test_nothing_is_left_behind_an_interrupt(broken):
    broken("    pass\n")
    before = children()

    def interrupt(done, total):
        raise KeyboardInterrupt

    with Subject("broken") as subject, pytest.raises(KeyboardInterrupt), Workers(subject, 2, 1, interrupt) as workers:
        list(workers.results([check for check in CHECKS if check.name in NAMES]))
    assert children() == before


def test_a_device_for_one_process_is_examined_by_this_one_and_it_is_said(broken):
    broken(ONCE)
    checks = [check for check in CHECKS if check.name in ("memory is reported", "large steps: captured = eager")]
    lines = []
    with Subject("broken") as subject:
        _ = subject.platform
        with pytest.raises(UserError, match=r"No other process can open broken: FileExistsError.*--jobs 1"):
            list(examined(subject, checks, 2, lines.append))
        if len(os.sched_getaffinity(0)) == 1:
            pytest.skip("one processor takes no further processes anyway")
        results = list(examined(subject, checks, None, lines.append))
    assert [result.check for result in results] == checks
    assert all(result.status == "passed" for result in results)
    (line,) = lines
    assert line.startswith("broken: one check after another. No other process can open broken: FileExistsError")
