"""Memory, read from made-up /proc and /sys trees."""

import pytest

from anychip.plugin.contract import KVSpec, Plane
from anychip.runner.host_memory import host_memory
from anychip.runner.warmup import worst_batch, worst_lengths, worst_plan

GIB = 2**30


def machine(root, files, total=64, available=40, peak=3, resident=1):
    total, available, peak, resident = (f"{amount * GIB // 1024} kB\n" for amount in (total, available, peak, resident))
    base = {
        "proc/meminfo": f"MemTotal: {total}MemFree: 1 kB\nMemAvailable: {available}",
        "proc/self/status": f"Name:\tx\nVmHWM:\t{peak}VmRSS:\t{resident}",
    }
    for name, text in {**base, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_peak_is_kept_for_the_next_step(tmp_path):
    memory = host_memory(machine(tmp_path, {}))
    assert (memory.free, memory.total) == (38 * GIB, 64 * GIB)


@pytest.mark.parametrize(
    "files",
    [
        {
            "proc/self/cgroup": "0::/pod/box\n",
            "sys/fs/cgroup/pod/box/memory.max": "max\n",
            "sys/fs/cgroup/pod/memory.max": f"{8 * GIB}\n",
            "sys/fs/cgroup/pod/memory.current": f"{5 * GIB}\n",
            "sys/fs/cgroup/pod/memory.stat": f"anon {GIB}\ninactive_file {2 * GIB}\n",
        },
        {
            "proc/self/cgroup": "12:cpu,cpuacct:/box\n4:memory:/box\n0::/\n",
            "sys/fs/cgroup/memory/box/memory.limit_in_bytes": f"{8 * GIB}\n",
            "sys/fs/cgroup/memory/box/memory.usage_in_bytes": f"{5 * GIB}\n",
            "sys/fs/cgroup/memory/box/memory.stat": f"total_inactive_file {2 * GIB}\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    ],
    ids=["version 2", "version 1"],
)
def test_control_groups_limit(tmp_path, files):
    memory = host_memory(machine(tmp_path, files, peak=1))
    assert (memory.free, memory.total) == (5 * GIB, 8 * GIB)


def test_this_machine_has_memory():
    memory = host_memory()
    assert 0 < memory.free <= memory.total


@pytest.mark.parametrize(
    ("rows", "tokens", "longest"), [(4, 64, 128), (4, 64, 20), (1, 64, 128), (64, 8, 128), (3, 1000, 50)]
)
def test_the_worst_step_has_the_whole_budget_in_all_rows(rows, tokens, longest):
    lengths = worst_lengths(rows, tokens, longest)
    assert sum(lengths) == min(tokens, rows * longest)
    assert len(lengths) == min(rows, tokens)
    assert max(lengths) <= longest
    spec = KVSpec("full", (Plane("k", (1, 4), "float32"), Plane("v", (1, 4), "float32")))
    plan = worst_plan((spec, spec), 16, rows, tokens, longest)
    batch = worst_batch(plan)
    table = batch.block_tables[0]
    for row, length in zip(table, lengths, strict=True):
        used = row[row > 0].tolist()
        assert len(set(used)) == len(used) == -(-length // 16)
    assert set(table[table > 0].tolist()) == set(range(1, plan.groups[0].num_blocks))
    assert batch.num_single == lengths.count(1)
