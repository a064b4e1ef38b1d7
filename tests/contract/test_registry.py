"""Finding, refusing and choosing plugins that are really installed."""

import logging

import pytest

from anychip.config import make_config
from anychip.engine.engine import Engine
from anychip.errors import UserError
from anychip.plugin import API_VERSION
from anychip.plugin.registry import Registry, version_refusal

PLATFORM = """
from anychip.plugin import Capabilities, PlatformSpec, Probe, hookimpl
from anychip.testing.null import NullPlatform


@hookimpl
def register_platforms(register):
    register(PlatformSpec(name={name!r}, probe=lambda: Probe({score}, {reason!r}, {devices}), api_version={version},
                          open=lambda devices, config: NullPlatform()))
"""


def platform_source(name="dummy", score=50, reason="", devices=1, version=API_VERSION):
    return PLATFORM.format(name=name, score=score, reason=reason, devices=devices, version=version)


def broken(registry, name):
    return next(each for each in registry.broken if each.name == name)


def test_an_installed_plugin_is_found_scored_and_taken(plugin):
    plugin("dummy-one", platform_source("one", score=50), version="2.3")
    registry = Registry()
    found = registry.choose("auto").found
    assert (found.spec.name, found.plugin, found.version, found.probe.score) == ("one", "one", "2.3", 50)
    assert registry.choose("one").open(make_config({})).memory().free > 0


def test_the_better_of_two_platforms_is_taken_and_both_can_be_asked_for(plugin):
    plugin("dummy-one", platform_source("one", score=50))
    plugin("dummy-two", platform_source("two", score=60))
    registry = Registry()
    assert registry.choose("auto").found.spec.name == "two"
    assert registry.choose("one").found.spec.name == "one"
    assert registry.choose("reference").found.spec.name == "reference"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("raise RuntimeError('no driver')", "RuntimeError: no driver"),
        ("import a_library_that_is_not_there", "ModuleNotFoundError"),
        (
            "from anychip.plugin import hookimpl\n@hookimpl\ndef register_platforms(register):\n    1 / 0\n",
            "ZeroDivisionError",
        ),
        (platform_source("bad").replace("lambda: Probe(50, '', 1)", "lambda: {}['probe']"), "KeyError: 'probe'"),
    ],
    ids=["import", "missing library", "hook", "probe"],
)
def test_a_broken_plugin_is_kept_shown_and_raised_when_asked_for(plugin, caplog, source, says):
    """Case J1."""
    plugin("dummy-bad", source, version="3.1")
    with caplog.at_level(logging.ERROR):
        registry = Registry()
    kept = broken(registry, "bad")
    assert kept.version == "3.1"
    assert says in kept.reason
    assert "Traceback" in kept.detail
    assert "bad 3.1" in caplog.text
    assert registry.choose("auto").found.spec.name != "bad"
    with pytest.raises(UserError, match=r"bad.*3\.1.*broken") as error:
        registry.choose("bad")
    assert "Traceback" in str(error.value)


def test_a_device_of_a_broken_plugin_with_another_name_says_what_is_broken(plugin):
    plugin("dummy-vendor", "raise RuntimeError('no driver')", version="3.1")
    with pytest.raises(UserError, match=r"broken: vendor 3\.1 \(RuntimeError: no driver\)"):
        Registry().choose("chip")


def test_a_plugin_whose_second_probe_raises_brings_neither_platform(plugin):
    source = platform_source("first") + (
        "    register(PlatformSpec(name='second', probe=lambda: 1 / 0, open=lambda devices, config: NullPlatform(),\n"
        f"                          api_version={API_VERSION}))\n"
    )
    plugin("dummy-pair", source)
    registry = Registry()
    assert "first" not in {found.spec.name for found in registry.platforms}
    assert "ZeroDivisionError" in broken(registry, "pair").reason


def test_starting_on_a_broken_device_fails_and_never_runs_elsewhere(plugin, tmp_path):
    plugin("dummy-bad", "raise RuntimeError('no driver')")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    config = make_config({"model": str(tmp_path), "device": "bad", "load_format": "dummy"})
    with pytest.raises(UserError, match="no driver"):
        Engine(config, lambda what, done, total: None)


def test_an_allow_list_naming_an_unknown_plugin_lists_what_was_found(plugin):
    """Case J2."""
    plugin("dummy-one", platform_source("one"))
    with pytest.raises(UserError, match=r"'stale'.*not installed.*Plugins found:.*one"):
        Registry(allowed=("one", "stale"))


def test_an_allow_list_leaves_the_others_unloaded(plugin):
    plugin("dummy-one", platform_source("one"))
    plugin("dummy-bad", "raise RuntimeError('must not be imported')")
    registry = Registry(allowed=("one",))
    assert registry.broken == []
    assert {found.spec.name for found in registry.platforms} == {"one", "reference", "null"}


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("@hookimpl\ndef register_devices(register):\n    pass\n", "register_devices"),
        ("@hookimpl\ndef register_platforms(registry):\n    pass\n", "registry"),
        ("@hookimpl\ndef configure(config, extra):\n    pass\n", "extra"),
    ],
    ids=["unknown hook", "renamed argument", "more arguments"],
)
def test_a_hook_that_would_never_be_called_right_is_refused(plugin, source, says):
    """Case J5."""
    plugin("dummy-old", "from anychip.plugin import hookimpl\n" + source)
    reason = broken(Registry(), "old")
    assert says in reason.reason + reason.detail


def test_another_contract_version_is_refused_naming_both(plugin):
    plugin("dummy-new", platform_source("new", version=7))
    registry = Registry()
    with pytest.raises(UserError, match=rf"contract version 7, this anychip takes {API_VERSION}"):
        registry.choose("new")
    assert registry.choose("auto").found.spec.name != "new"


def test_from_version_1_on_the_current_and_the_previous_one_load(plugin):
    for version in (1, 2, 3, 4):
        plugin(f"dummy-v{version}", platform_source(f"v{version}", version=version))
    registry = Registry(api_version=3)
    usable = {found.spec.name for found in registry.platforms if found.usable}
    assert usable & {"v1", "v2", "v3", "v4"} == {"v2", "v3"}
    with pytest.raises(UserError, match=r"contract version 1, this anychip takes 2 and 3"):
        registry.choose("v1")
    with pytest.raises(UserError, match=r"contract version 4, this anychip takes 2 and 3"):
        registry.choose("v4")


def test_version_0_takes_only_itself():
    assert version_refusal(0, ours=0) == ""
    assert version_refusal(0, ours=1) != ""
    assert version_refusal(1, ours=0) != ""
    assert version_refusal(1, ours=2) == ""


def test_a_platform_that_cannot_run_here_says_why_and_what_to_do(plugin):
    probe = "Probe.cannot('no such chip in this machine', 'Put one in.')"
    plugin("dummy-one", platform_source("one").replace("Probe(50, '', 1)", probe))
    registry = Registry()
    assert registry.choose("auto").found.spec.name != "one"
    with pytest.raises(UserError, match=r"no such chip in this machine\. Put one in\.$"):
        registry.choose("one")


def test_two_platforms_of_one_score_are_named_and_neither_is_taken_unasked(plugin):
    plugin("dummy-one", platform_source("one", score=500))
    plugin("dummy-two", platform_source("two", score=500))
    registry = Registry()
    with pytest.raises(UserError, match=r"one, two score 500 alike.*--device one"):
        registry.choose("auto")
    assert registry.choose("two").found.spec.name == "two"


def test_a_score_below_zero_runs_only_by_name(plugin):
    plugin("dummy-one", platform_source("one", score=-100))
    registry = Registry()
    assert registry.choose("auto").found.spec.name not in ("one", "null")
    assert registry.choose("one").found.spec.name == "one"


def test_an_explicit_device_is_never_replaced():
    with pytest.raises(UserError, match=r"No platform 'warp'.*reference"):
        Registry().choose("warp")


def test_the_index_of_a_device_is_checked(plugin):
    plugin("dummy-one", platform_source("one", devices=2))
    registry = Registry()
    assert registry.choose("one:1").index == 1
    assert registry.choose("one").index == 0
    with pytest.raises(UserError, match=r"one:2.*2 device"):
        registry.choose("one:2")
    with pytest.raises(UserError, match="bad index"):
        registry.choose("one:first")
    with pytest.raises(UserError, match="bad index"):
        registry.choose("one:-1")


def test_two_plugins_of_one_name_or_platform_are_not_mixed_up(plugin):
    plugin("dummy-one", platform_source("one"))
    plugin("dummy-other", platform_source("one", score=70))
    registry = Registry()
    assert [found.plugin for found in registry.platforms if found.spec.name == "one"] in (["one"], ["other"])
    assert any("another platform called 'one'" in each.reason for each in registry.broken)
    plugin("dummy-reference", platform_source("reference", score=70))
    assert [found.plugin for found in Registry().platforms if found.spec.name == "reference"] == ["reference"]
    assert Registry().choose("reference").found.version == "built in"


def test_a_plugin_changes_the_config_and_its_models_and_parsers_are_kept(plugin):
    plugin(
        "dummy-more",
        """
        from anychip.plugin import hookimpl

        @hookimpl
        def configure(config):
            return config.replace("more", max_num_seqs=7)

        @hookimpl
        def register_models(register):
            register("dummy_llama", "dummy_more:Model")

        @hookimpl
        def register_parsers(register):
            register("tool", "dummy", "dummy_more:Parser")
        """,
    )
    registry = Registry()
    config = registry.configure(make_config({}))
    assert (config.max_num_seqs, config.origins["max_num_seqs"]) == (7, "more")
    assert registry.models == {"dummy_llama": "dummy_more:Model"}
    assert registry.parsers == {("tool", "dummy"): "dummy_more:Parser"}


def test_two_plugins_do_not_register_one_model_or_parser(plugin):
    source = (
        "from anychip.plugin import hookimpl\n@hookimpl\ndef {hook}(register):\n    register({names}, '{name}:Class')\n"
    )
    for hook, names in (("register_models", "'dummy_llama'"), ("register_parsers", "'tool', 'dummy'")):
        for name in ("one", "two"):
            plugin(f"dummy-{hook[9:]}-{name}", source.format(hook=hook, names=names, name=name))
    registry = Registry()
    assert len(registry.models) == len(registry.parsers) == 1
    assert len(registry.broken) == 2
    assert all("has registered" in each.reason for each in registry.broken)


def test_a_configure_that_returns_something_else_is_named(plugin):
    plugin("dummy-odd", "from anychip.plugin import hookimpl\n@hookimpl\ndef configure(config):\n    return {'a': 1}\n")
    with pytest.raises(UserError, match=r"'odd' returned dict"):
        Registry().configure(make_config({}))
