"""The CPU platform passes the kit."""

from anychip.testing import PlatformSuite


class TestCpu(PlatformSuite):
    platform = "cpu"
