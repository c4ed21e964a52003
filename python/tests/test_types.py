"""Types of the package, and stubs of its native module."""

import subprocess
import sys
from pathlib import Path

import pytest


def test_stubs_are_those_of_the_native_module():
    pytest.importorskip("mypy")
    done = subprocess.run([sys.executable, "-m", "mypy.stubtest", "vouch._vouch"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_types_of_the_package_agree(tmp_path):
    pytest.importorskip("mypy")
    package = Path(__file__).parents[1] / "vouch"
    command = [sys.executable, "-m", "mypy", "--ignore-missing-imports", "--cache-dir", str(tmp_path), str(package)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
