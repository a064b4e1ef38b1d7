"""The page at `/`: plain files, served as they are. It needs no key itself; what it asks for does."""

from __future__ import annotations

import html
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from anychip_api.errors import ApiError

if TYPE_CHECKING:
    from anychip_api.service import Service

ROOT = "/"
PAGE = "/page/"

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FILES = {path.name: path for path in Path(__file__).parent.iterdir() if path.suffix in _TYPES}
_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


async def show_page(service: Service, request: Request) -> Response:
    """One file of the page; links are made right for the path that a proxy adds."""
    name = request.path_params.get("name", "index.html")
    path = _FILES.get(name)
    if path is None:
        raise ApiError(HTTPStatus.NOT_FOUND, "There is no such file of the page.")
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".html":
        text = text.replace("{{root}}", html.escape(service.options.root_path))
    return Response(text, headers=_HEADERS, media_type=_TYPES[path.suffix])
