"""Where threads compute: made-up machines as /proc and /sys trees, and this one."""

import os
import subprocess
import sys

import pytest

from anychip.errors import UserError
from anychip.runner.host_threads import choose_threads, parse_processors

V1 = {"proc/self/cgroup": "3:cpu,cpuacct:/box\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}
QUOTA_OF_3 = {"sys/fs/cgroup/cpu.max": "250000 100000\n"}


def machine(root, nodes, siblings=1, files=()):
    """A tree of `nodes` of so many cores, numbered as Linux does: second hardware threads after all cores."""
    total, first = sum(nodes), 0
    tree = dict(files)
    for node, cores in enumerate(nodes):
        mine = [core + total * sibling for sibling in range(siblings) for core in range(first, first + cores)]
        tree[f"sys/devices/system/node/node{node}/cpulist"] = ",".join(map(str, mine)) + "\n"
        for number in mine:
            pair = ",".join(str(number % total + total * sibling) for sibling in range(siblings))
            tree[f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list"] = f"{pair}\n"
        first += cores
    for name, text in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 4),
        ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, 4),
        (QUOTA_OF_3, 3),
        ({"sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/pod/box\n", "sys/fs/cgroup/pod/cpu.max": "100000 100000\n"}, 1),
        ({**V1, "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n"}, 4),
        ({**V1, "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "100000\n"}, 1),
    ],
)
def test_quotas_limit_threads(tmp_path, files, expected):
    threads = choose_threads("auto", None, range(4), machine(tmp_path, [4], files=files))
    assert threads.processors == (0, 1, 2, 3)[:expected]
    assert not threads.bound


def test_one_thread_a_core(tmp_path):
    root = machine(tmp_path, [4], siblings=2)
    assert choose_threads("auto", None, range(8), root).processors == (0, 1, 2, 3)
    assert choose_threads("auto", None, {1, 5, 6, 7}, root).processors == (1, 6, 7)


def test_one_of_many_cores_is_left_to_the_server(tmp_path):
    root = machine(tmp_path, [8])
    assert choose_threads("auto", None, range(8), root).processors == tuple(range(7))
    assert choose_threads("auto", None, range(7), root).processors == tuple(range(7))
    assert choose_threads("auto", 8, range(8), root).processors == tuple(range(8))
    assert choose_threads("0-7", None, range(8), root).processors == tuple(range(8))


def test_threads_are_bound_on_several_nodes(tmp_path):
    root = machine(tmp_path, [2, 4], siblings=2)
    threads = choose_threads("auto", None, range(12), root)
    assert threads.processors == (2, 3, 4, 5, 0, 1)
    assert threads.bound
    assert not choose_threads("auto", None, {2, 3, 4, 5}, root).bound
    assert not choose_threads("none", None, range(12), root).bound
    assert not choose_threads("auto", 7, range(12), root).bound


def test_a_quota_binds_nothing_and_stays_on_the_largest_node(tmp_path):
    threads = choose_threads("auto", None, range(6), machine(tmp_path, [2, 4], files=QUOTA_OF_3))
    assert threads.processors == (2, 3, 4)
    assert not threads.bound


def test_a_list_is_taken_by_its_cores(tmp_path):
    root = machine(tmp_path, [4], siblings=2)
    threads = choose_threads("1-2,5,7", None, range(8), root)
    assert threads.processors == (1, 2, 7)
    assert threads.bound
    assert choose_threads("1-3", 2, range(8), root).processors == (1, 2)


@pytest.mark.parametrize("text", ["", "x", "3-", "1;2"])
def test_what_is_no_list_is_refused(text):
    with pytest.raises(UserError, match="no list of processors"):
        choose_threads(text, None, range(4))


def test_processors_we_may_not_use_are_refused():
    with pytest.raises(UserError, match="may not use processor 4"):
        choose_threads("0-4", None, range(4))


def test_lists_are_read_as_the_kernel_writes_them():
    assert parse_processors("0-2,8,10-11") == (0, 1, 2, 8, 10, 11)
    assert parse_processors("") == ()


PROGRAM = """
import os, sys, torch
from anychip.config import make_config
from anychip.runner.host_pool import start_pool
from anychip.runner.host_threads import own_threads
start_pool(make_config({"threads_bind": sys.argv[1]}))
masks = [sorted(os.sched_getaffinity(thread)) for thread in own_threads()]
print(torch.get_num_threads(), [mask for mask in masks if len(mask) == 1], sorted(os.sched_getaffinity(0)), sep=";")
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")
def test_workers_stay_and_the_own_thread_is_free():
    first, second = sorted(os.sched_getaffinity(0))[:2]
    command = [sys.executable, "-c", PROGRAM, f"{first},{second}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    count, bound, own = done.stdout.strip().split(";")
    if count == "1":
        pytest.skip("both processors are one core")
    assert (count, bound, own) == ("2", f"[[{second}]]", str(sorted(os.sched_getaffinity(0))))
