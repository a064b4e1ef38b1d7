"""The reference platform passes the kit, which it defines."""

from anychip.testing import PlatformSuite


class TestReference(PlatformSuite):
    platform = "reference"
