"""A published tree, served by a real replica. VOUCH_PROGRAM is the command `vouch`."""

import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from vouch import errors
from vouch.export import Server

PROGRAM = os.environ.get("VOUCH_PROGRAM", "vouch")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Site:
    """A directory with keys, a source, a database, and replicas that end with it."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self.port = free_port()
        self.location = f"127.0.0.1:{self.port}"
        self.source = self.directory / "src"
        self.source.mkdir()
        self.replica = None
        self.run("keygen", "--out", "keys")
        self.name = self.run("name", "keys", "--location", self.location).strip()

    def environment(self):
        paths = {"HOME": "home", "VOUCH_STATE": "state", "VOUCH_CACHE": "cache"}
        own = {name: str(self.directory / path) for name, path in paths.items()}
        return {**os.environ, **own, "VOUCH_CONFIG": "/dev/null"}

    def run(self, *arguments, binary=False):
        done = subprocess.run(
            [PROGRAM, *arguments], cwd=self.directory, env=self.environment(),
            capture_output=True, text=not binary, stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout

    def publish(self, *more):
        self.run("publish", "src", "--db", "db", "--keys", "keys", "--location", self.location, *more)

    def serve(self):
        command = [PROGRAM, "serve", "--db", "db", "--listen", self.location]
        self.replica = subprocess.Popen(
            command, cwd=self.directory, env=self.environment(), stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert self.replica.poll() is None and time.monotonic() < deadline
                time.sleep(0.02)

    def stop(self):
        if self.replica is not None:
            self.replica.kill()
            self.replica.wait()
            self.replica = None

    def options(self, label="own"):
        """Of `vouch.open`, with a cache and a state of its own."""
        state = self.directory / f"state-{label}"
        state.mkdir(mode=0o700, exist_ok=True)
        return {"cache": str(self.directory / f"cache-{label}"), "state": str(state)}


NUMBERS = "".join(f"{n}\n" for n in range(200_000)).encode()


@pytest.fixture
def empty_site(tmp_path):
    os.chmod(tmp_path, 0o755)
    site = Site(tmp_path)
    yield site
    site.stop()


@pytest.fixture
def server(tmp_path):
    """A running export server."""
    for name in ("first", "a b"):
        (tmp_path / name).mkdir()
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (tmp_path / "exports").write_text(f"{tmp_path}/first *(ro)\n")
    command = [PROGRAM, "export", "--exports", "exports", "--state", str(state), "--listen", "127.0.0.1:0"]
    running = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    server = Server(state)
    deadline = time.monotonic() + 30
    while True:
        try:
            server.status()
            break
        except errors.Unreachable:
            assert running.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
    yield server
    running.kill()
    running.wait()


def fill(source):
    (source / "docs").mkdir()
    (source / "docs/hello.txt").write_text("hello\n")
    (source / "numbers").write_bytes(NUMBERS)
    (source / "link").symlink_to("docs/hello.txt")
    (source / "out").symlink_to("/etc/passwd")
    (source / "empty").write_bytes(b"")
    small = source / "small"
    small.mkdir()
    for number in range(200):
        (small / f"{number:03}").write_text(str(number))


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    directory = tmp_path_factory.mktemp("site")
    site = Site(directory)
    fill(site.source)
    site.publish("--tag", "first")
    (site.source / "docs/hello.txt").write_text("hello again\n")
    site.publish("--tag", "second")
    site.serve()
    yield site
    site.stop()


@pytest.fixture(autouse=True)
def own_directories(tmp_path, monkeypatch):
    """No test touches the caches of this user."""
    state = tmp_path / "state-default"
    state.mkdir(mode=0o700)
    monkeypatch.setenv("VOUCH_STATE", str(state))
    monkeypatch.setenv("VOUCH_CACHE", str(tmp_path / "cache-default"))


def pytest_sessionfinish(session):
    """As in script/test: with CI=true nothing may be left out."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") == "true" and reporter.stats.get("skipped"):
        session.exitstatus = 1
