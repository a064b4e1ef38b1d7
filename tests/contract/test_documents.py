"""The documents of the contract say what the code says."""

import inspect
import re
from importlib import import_module

import pytest

import contract_page
import embed
import platforms_table
from anychip.ops.registry import OPS
from anychip.plugin.contract import API_VERSION, Platform, Runner, Step
from anychip.plugin.registry import Registry
from anychip.plugin.signatures import members
from anychip.runner import TorchPlatform
from anychip.testing.subject import Subject
from anychip.testing.support import support
from anychip_cpu.native.build import installed_torch
from anychip_cpu.native.compile import obstacle
from sources import ROOT

QUOTE = re.compile(r"<!-- quote: (?P<path>\S+) -->\n```\w+\n(?P<text>.*?)```", re.DOTALL)
GUIDE = (ROOT / "docs" / "write-a-platform.md").read_text()
A_DOZEN = 12
TYPE = re.compile(r"(?<![\w.])[A-Z]\w+")
FOREIGN = {"Any", "Callable", "Mapping", "None", "Sequence", "NDArray", "T_co"}
PRIVATE = {"KVCache", "AttentionPlan"}
"""What one provider's ops hand to each other: each family has its own."""


def test_the_lists_of_the_contract_are_those_of_the_code():
    text = (ROOT / contract_page.DOCUMENT).read_text()
    assert embed.part(text, contract_page.NAME) == contract_page.page(), "run ci/contract_page.py"


def test_every_hook_and_op_is_listed_with_its_signature():
    text = (ROOT / contract_page.DOCUMENT).read_text()
    assert len(contract_page.hooks()) == 5
    for line in contract_page.hooks():
        assert line in text
    for op in OPS.values():
        assert f"`{contract_page.op_signature(op)}`" in text


def test_the_page_and_the_examples_say_the_version_that_there_is():
    assert f"Everything a plugin may rely on, version {API_VERSION}." in (ROOT / contract_page.DOCUMENT).read_text()
    for path in (ROOT / "examples").glob("*-platform/**/*.py"):
        assert set(re.findall(r"api_version=(\w+)", path.read_text())) <= {str(API_VERSION)}, path


def public():
    """(module, name, object) of everything that the contract covers."""
    for module in contract_page.PUBLIC:
        for name in import_module(module).__all__:
            yield module, name, getattr(import_module(module), name)


def test_every_public_name_says_what_it_is():
    named = {name: thing for _, name, thing in public() if inspect.isclass(thing) or inspect.isfunction(thing)}
    assert [name for name, thing in named.items() if not inspect.getdoc(thing)] == []
    for name, kind in named.items():
        if inspect.isclass(kind) and kind.__module__.startswith("anychip"):
            assert [f"{name}.{each}" for each, member in members(kind).items() if not inspect.getdoc(member)] == []


def test_what_a_member_or_an_op_takes_and_gives_is_public():
    """Every type of anychip in a signature of the contract can be imported from a public module."""
    functions = [op.reference for op in OPS.values() if not op.composite]
    for kind in contract_page.CLASSES:
        functions += [member.fget if isinstance(member, property) else member for member in members(kind).values()]
    words = {word for each in functions for shown in each.__annotations__.values() for word in TYPE.findall(shown)}
    assert words >= {"Batch", "KVPlan", "OpSpec", "Weight"}
    assert words - FOREIGN - PRIVATE - {name for _, name, _ in public()} == set()


def test_the_contract_is_small():
    """A member more is a decision: it needs two users and a line here."""
    assert list(members(Platform)) == ["capabilities", "memory", "runner", "communicator"]
    assert list(members(Runner)) == [
        "load",
        "measure",
        "start",
        "submit",
        "prepare",
        "compilations",
        "control",
        "close",
    ]
    assert list(members(Step)) == ["finish"]
    wide = [name for name in members(TorchPlatform) if name not in members(Platform)]
    assert len(wide) <= A_DOZEN
    needed = [name for name in wide if getattr(vars(TorchPlatform)[name], "__isabstractmethod__", False)]
    assert needed == ["device", "synchronize"]


@pytest.mark.parametrize("name", platforms_table.TABLES)
def test_the_tables_of_platforms_are_those_of_the_records(name):
    for document in platforms_table.TABLES[name]:
        text = (ROOT / document).read_text()
        assert embed.part(text, name) == platforms_table.tables()[name], "run ci/platforms_table.py"


@pytest.mark.parametrize("record", platforms_table.records(), ids=lambda record: record.platform)
def test_a_record_says_how_ops_run_on_this_machine(record):
    """Where the platform can run here; the others' records come from their machines."""
    found = {found.spec.name: found for found in Registry().platforms}.get(record.platform)
    if found is None or not found.usable or found.probe.score < 0:
        pytest.skip(f"{record.platform} cannot run here")
    if record.platform == "cpu" and (reason := obstacle(installed_torch())) is not None:
        pytest.skip(f"the CPU's column is that of its native kernels: {reason}")
    with Subject(record.platform) as subject:
        assert support(subject) == record.ops, f"anychip conform {record.platform} support --record docs/records/..."


def test_the_guide_quotes_the_example():
    quotes = list(QUOTE.finditer(GUIDE))
    assert len(quotes) == GUIDE.count("<!-- quote:") == 4
    for quote in quotes:
        assert quote["text"].strip() in (ROOT / quote["path"]).read_text()


def test_the_guide_quotes_all_of_the_example():
    quoted = "".join(quote["text"] for quote in QUOTE.finditer(GUIDE) if "toy-platform" in quote["path"])
    for path in (ROOT / "examples" / "toy-platform").glob("*.*"):
        for line in path.read_text().splitlines():
            assert line in quoted or "import" in line or line.startswith('"""A platform in forty lines'), line


def test_the_null_platform_is_as_short_as_the_guide_says():
    lines = len((ROOT / "core" / "anychip" / "testing" / "null.py").read_text().splitlines())
    assert lines <= 180
