"""A team grows smaller where its threads wait for processors that others keep busy, and tries again later."""

import subprocess

import pytest

from anychip_cpu.native.compile import find_compiler, sources

PROGRAM = """
#include <cassert>
#include <thread>

#include "crowd.h"

using namespace std::chrono_literals;

int main() {
  anychip::Crowd crowd;
  const auto stall = [&](int64_t members) { crowd.report(members, 10ms, 5ms); };
  assert(crowd.members(4) == 4);
  stall(4);
  assert(crowd.members(4) == 4);                    // one may be an accident
  crowd.report(4, 10ms, 1ms);
  stall(4);
  assert(crowd.members(4) == 4);                    // and so may two that are apart
  crowd.report(4, 1ms, 900us);
  const auto begin = std::chrono::steady_clock::now();
  stall(4), stall(4);
  const auto fewer = crowd.members(4);
  stall(3), stall(3), stall(2), stall(2), stall(1), stall(1);
  const auto one = crowd.members(4), never_fewer = crowd.members(2);
  if (std::chrono::steady_clock::now() - begin < 100ms) {  // later it may try again already
    assert(fewer == 3);
    assert(one == 1);
    assert(never_fewer == 1);
  }
  std::this_thread::sleep_for(1s);
  while (crowd.members(4) < 4) continue;            // it ends, as each call takes one in
}
"""


def test_teams_shrink_and_grow(tmp_path):
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("no C++ compiler is installed")
    source, program = tmp_path / "crowd.cpp", tmp_path / "crowd"
    source.write_text(PROGRAM)
    subprocess.run([compiler, "-std=c++20", f"-I{sources()}", str(source), "-o", str(program)], check=True)
    subprocess.run([str(program)], check=True, timeout=60)
