"""docs/api.md says what the schemas say, and nothing that the clients can send is forgotten."""

from __future__ import annotations

import pytest

import api_table
import embed
from anychip_api.openapi import BODIES
from sources import ROOT


@pytest.mark.parametrize("name", api_table.tables())
def test_the_fields_are_those_of_the_schemas(name: str) -> None:
    text = (ROOT / api_table.DOCUMENT).read_text(encoding="utf-8")
    assert embed.part(text, name) == api_table.tables()[name], "run ci/api_table.py"


def test_every_route_with_a_body_has_a_column() -> None:
    columns = {route.schema for route in (*api_table.GENERATING, *api_table.OTHERS)}
    assert columns == set(BODIES.values())
