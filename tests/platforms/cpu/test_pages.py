"""Memory of mappings: aligned, apart, given back, and in huge pages when asked."""

import gc
from pathlib import Path

import pytest
import torch

from anychip_cpu import pages
from anychip_cpu.pages import CHUNK, HUGE, LINE, Pages


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_tensors_are_copied_whole_and_apart():
    memory = Pages()
    tensors = [torch.randn(7, size).to(dtype) for size in (1, 33, 4096) for dtype in (torch.bfloat16, torch.float32)]
    kept = [memory.keep(tensor) for tensor in tensors]
    for tensor, copy in zip(tensors, kept, strict=True):
        assert torch.equal(tensor, copy)
        assert copy.data_ptr() % LINE == 0
    kept[0].zero_()
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(tensors[1:], kept[1:], strict=True))


def test_large_tensors_have_a_mapping_of_their_own_where_huge_pages_begin():
    memory = Pages()
    small, large = memory.take(100), memory.take(CHUNK + 1)
    assert large.numel() == CHUNK + 1
    assert large.data_ptr() % HUGE == 0
    assert memory.take(100).data_ptr() == small.data_ptr() + 128


def test_memory_is_given_back_with_the_last_tensor():
    memory = Pages()
    before = resident()
    kept = memory.take(4 * CHUNK)
    kept.fill_(1)
    assert resident() > before + 3 * CHUNK
    del kept
    gc.collect()
    assert resident() < before + CHUNK


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").is_dir(), reason="no huge pages")
def test_joined_pages_keep_what_they_hold_and_may_be_gone():
    memory = Pages()
    kept, gone = memory.take(CHUNK), memory.take(CHUNK)
    pattern = (torch.arange(CHUNK + 100) % 251).to(torch.uint8)
    large = memory.keep(pattern)
    kept.copy_(pattern[:CHUNK])
    gone.fill_(1)
    mappings = memory._mappings
    del gone, memory
    gc.collect()
    pages._join(mappings)
    assert torch.equal(kept, (torch.arange(CHUNK) % 251).to(torch.uint8))
    assert torch.equal(large, (torch.arange(CHUNK + 100) % 251).to(torch.uint8))
