import subprocess
import sys
from pathlib import Path

import pytest

from anychip.errors import UserError
from anychip.reference.platform import ReferencePlatform


def test_every_collective_between_two_processes(tmp_path):
    script = Path(__file__).with_name("two_ranks.py")
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(tmp_path / "store")], stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    ends = [(rank.communicate(timeout=120)[1], rank.returncode) for rank in ranks]
    assert [code for _, code in ends] == [0, 0], "\n".join(text for text, _ in ends)


def test_a_platform_without_a_backend_says_so():
    with pytest.raises(UserError, match="no collectives"):
        ReferencePlatform().communicator([0, 1])
