"""The tables of docs/serving.md and docs/metrics.md say what the code says."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

import docs_tables
import embed
from anychip import AsyncEngine
from anychip.bench.options import LoadOptions
from anychip.config import FIELDS, make_config
from anychip.sampling_params import SamplingParams
from anychip_api.metrics import Metrics
from anychip_api.options import ServerOptions
from sources import ROOT

ROW = re.compile(r"^\| `(\w+)` \| (gauge|counter|histogram) \|", re.MULTILINE)

OPTIONS = ("server-flags", "engine-flags", "load-flags")


def read(document: str) -> str:
    return (ROOT / "docs" / document).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", docs_tables.tables())
def test_the_flags_are_those_of_the_code(name: str) -> None:
    document, content = docs_tables.tables()[name]
    assert embed.part((ROOT / document).read_text(encoding="utf-8"), name) == content, "run ci/docs_tables.py"


def test_every_option_has_a_row_that_says_something() -> None:
    tables = docs_tables.tables()
    rows = [line for name in OPTIONS for line in tables[name][1].splitlines()[2:]]
    assert len(rows) == sum(
        len(one) for one in (FIELDS, ServerOptions.__struct_fields__, LoadOptions.__struct_fields__)
    )
    assert all(row.split("|")[-2].strip() for row in rows)


def test_the_metrics_are_those_of_the_code(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 100}))
    options = {"model": str(tmp_path), "device": "null", "load_format": "dummy", "log_level": "error"}

    async def served() -> dict[str, str]:
        engine = await AsyncEngine.create(make_config(options))
        try:
            return {family.name: family.type for family in Metrics(engine, "model", "").families.collect()}
        finally:
            await engine.close()

    assert dict(ROW.findall(read("metrics.md"))) == asyncio.run(served())


def test_every_sampling_field_is_described() -> None:
    text = read("python.md")
    assert [name for name in SamplingParams.__struct_fields__ if f"`{name}`" not in text] == []
