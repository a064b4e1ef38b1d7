"""A new environment as somebody has it who follows the guide, and a shell in it."""

import os
import site
import socket
import subprocess
import sys
import time
import urllib.request
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
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        command = ["bash", "-c", f"exec {line.replace('8000', port)}"]
        log = self.work / "serve.log"
        with log.open("w") as stream:
            process = subprocess.Popen(command, cwd=self.work, env=self._variables, stdout=stream, stderr=stream)
        try:
            wait_until_ready(f"http://127.0.0.1:{port}/health", process, log)
            return ask(f"http://127.0.0.1:{port}")
        finally:
            process.terminate()
            process.wait(60)


def wait_until_ready(address, process, log):
    """Return once a server answers."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(address, timeout=5).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError(f"the server is not ready:\n{log.read_text()}")
