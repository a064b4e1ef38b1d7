"""A new environment as somebody has it who follows the guide, and a shell in it."""

import os
import re
import site
import subprocess
import sys
import time
from pathlib import Path

LIMIT = 600
"""Seconds that a command may take on a slow and busy machine."""
SCRIPTS = ("pip", "pytest", "anychip")


class Stranger:
    """A virtual environment in `folder`, with what this one has below it, and an empty folder to work in.

    Nothing is built in isolation, so that no index is asked for what is here already.
    """

    def __init__(self, folder):
        self.python = folder / "environment" / "bin" / "python"
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "environment"], check=True)
        self._variables = {
            **os.environ,
            "PATH": f"{self.python.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PIP_NO_BUILD_ISOLATION": "0",  # pip's way to say: none
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "120",
        }
        purelib = self.shell("python -c \"import sysconfig; print(sysconfig.get_paths()['purelib'])\"").strip()
        below = "".join(f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages())
        (Path(purelib) / "below.pth").write_text(below)
        for name in SCRIPTS:
            script = self.python.parent / name
            script.write_text(f'#!/bin/sh\nexec "{self.python}" -m {name} "$@"\n')
            script.chmod(0o755)

    def shell(self, text):
        """What a shell prints for some lines, which must all succeed."""
        command = ["bash", "-euo", "pipefail", "-c", text]
        done = subprocess.run(
            command, cwd=self.work, env=self._variables, capture_output=True, text=True, check=False, timeout=LIMIT
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def serve(self, line, ask):
        """Start a server by a line that says port 8000, on a free one; what `ask(address)` gives; then end it."""
        command = ["bash", "-c", f"exec {line.replace('8000', '0')}"]
        log = self.work / "serve.log"
        with log.open("w") as stream:
            process = subprocess.Popen(command, cwd=self.work, env=self._variables, stdout=stream, stderr=stream)
        try:
            return ask(address_in(log, process))
        finally:
            process.terminate()
            process.wait(LIMIT)


def address_in(log, process):
    """Where a server answers, once its log says so."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text()):
            return found[0]
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(f"the server is not ready:\n{log.read_text()}")
