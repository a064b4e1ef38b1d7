"""Members of a platform with a wrong signature fail when the platform is opened."""

import logging

import pytest

from anychip.config import make_config
from anychip.errors import UserError
from anychip.plugin.registry import Registry
from anychip.plugin.signatures import check_members
from anychip.runner import TorchPlatform
from anychip.testing.null import NullPlatform, NullRunner

HEAD = """
from anychip.plugin import API_VERSION, Memory, PlatformSpec, Probe, hookimpl
from anychip.runner import TorchPlatform


class Chip(TorchPlatform):
    device = None

    def memory(self):
        return Memory(1, 1)

    def synchronize(self):
        pass

"""
TAIL = """

@hookimpl
def register_platforms(register):
    open = lambda devices, config: Chip()
    register(PlatformSpec(name="chip", probe=lambda: Probe(1), open=open, api_version=API_VERSION))
"""


@pytest.mark.parametrize(
    ("member", "says"),
    [
        ("    def kernels(self):\n        return {}\n", r"Chip\.kernels takes \(self\).*\(self, spec\)"),
        ("    def kernels(self, shape):\n        return {}\n", r"\(self, shape\).*\(self, spec\)"),
        ("    def prepare_weight(self, weight):\n        return weight\n", r"prepare_weight takes.*out=\.\.\."),
        ("    def prepare_weight(self, weight, out):\n        return weight\n", r"prepare_weight takes"),
        ("    def lower(self, module, spec, depth):\n        return None\n", r"lower takes"),
        ("    def lower(self, *arguments):\n        return None\n", r"lower takes"),
        ("    def capabilities(self):\n        return None\n", r"capabilities must be a property"),
        ("    compile = 3\n", r"compile must be a method"),
    ],
)
def test_a_wrong_member_is_refused_when_the_platform_is_opened(plugin, member, says):
    plugin("dummy-chip", HEAD + member + TAIL, version="4.2")
    with pytest.raises(UserError, match=r"'chip' 4\.2.*" + says):
        Registry().choose("chip").open(make_config({}))


def test_more_parameters_with_defaults_are_fine(plugin):
    plugin("dummy-chip", HEAD + "    def lower(self, module, spec, depth=0):\n        return None\n" + TAIL)
    assert isinstance(Registry().choose("chip").open(make_config({})), TorchPlatform)


def test_opening_something_that_is_no_platform_is_refused(plugin):
    plugin("dummy-chip", HEAD + TAIL.replace("Chip()", "object()"))
    with pytest.raises(UserError, match="opened a object, not a Platform"):
        Registry().choose("chip").open(make_config({}))


def test_a_wrong_runner_is_refused():
    class Old(NullRunner):
        def submit(self, batch, late):
            return None

    runner = Old(NullPlatform(), make_config({}))
    with pytest.raises(UserError, match=r"Old\.submit takes \(self, batch, late\)"):
        check_members(runner, "Platform 'old'")


def test_a_deprecated_member_works_and_says_what_to_override_instead(caplog):
    class Chatty(NullPlatform):
        def memory(self):
            return super().memory()

    with caplog.at_level(logging.WARNING):
        check_members(Chatty(), "Plugin 'chatty' 1.0", {"Platform.memory": "override `room`."})
    assert "Plugin 'chatty' 1.0 overrides Platform.memory, which is deprecated: override `room`." in caplog.text
    caplog.clear()
    check_members(NullPlatform(), "Plugin 'null'")
    assert caplog.text == ""


def test_the_platforms_here_are_right():
    for name in ("reference", "null"):
        Registry().choose(name).open(make_config({}))
