import io
import os
import pickle
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import vouch
from conftest import NUMBERS


@pytest.fixture
def tree(site):
    return vouch.open(site.name)


def test_reads_what_was_published(tree):
    assert tree.read_bytes("docs/hello.txt") == b"hello again\n"
    assert tree.read_text("link") == "hello again\n"
    assert tree.read_bytes("numbers") == NUMBERS
    assert tree.read_bytes("numbers", 131_070, 262_150) == NUMBERS[131_070:262_150]
    assert tree.read_bytes("empty") == b""
    assert tree.read_bytes("numbers", len(NUMBERS) + 5) == b""


def test_lists_and_stats(tree):
    assert tree.listdir() == ["docs", "empty", "link", "numbers", "out", "small"]
    assert [entry.size for entry in tree.scandir("docs")] == [12]
    link = tree.stat("link", follow_symlinks=False)
    assert (link.type, link.target) == ("symlink", "docs/hello.txt")
    assert tree.stat("link").path == "docs/hello.txt"
    assert tree.stat("numbers").size == len(NUMBERS)
    assert len(tree.listdir("small")) == 200
    walked = list(tree.walk())
    assert [path for path, _, _ in walked] == ["", "docs", "small"]
    assert tree.read_ranges([(f"small/{n:03}", 0, None) for n in range(200)]) == [
        str(n).encode() for n in range(200)
    ]


def test_missing_and_wrong_paths_raise_errors_of_os(tree):
    with pytest.raises(FileNotFoundError) as error:
        tree.stat("docs/missing")
    assert error.value.filename == "docs/missing" and error.value.errno == 2
    with pytest.raises(IsADirectoryError):
        tree.read_bytes("docs")
    with pytest.raises(NotADirectoryError):
        tree.stat("numbers/below")
    with pytest.raises(NotADirectoryError):
        tree.scandir("numbers")
    with pytest.raises(vouch.InvalidInput, match="leads out of the tree"):
        tree.read_bytes("out")
    with pytest.raises(ValueError, match="HOSTID"):
        vouch.open("pub.example.org")


def test_file_objects_seek_and_read(tree):
    with tree.open("numbers") as file:
        assert file.seek(-2, os.SEEK_END) == len(NUMBERS) - 2
        assert file.read() == NUMBERS[-2:]
        assert file.seek(10) == 10
        assert file.read(5) == NUMBERS[10:15]
        assert file.tell() == 15
        assert file.pread(0, 4) == NUMBERS[:4]
        file.seek(0)
        assert file.readline() == b"0\n" and file.readlines(3) == [b"1\n", b"2\n"]
        assert file.peek(1).startswith(b"3\n") and file.tell() == 6
        with pytest.raises(ValueError):
            file.seek(-1)
    with pytest.raises(ValueError, match="closed"):
        file.read(1)
    with tree.open("docs/hello.txt", "r") as text:
        assert list(text) == ["hello again\n"]
    with pytest.raises(ValueError):
        tree.open("numbers", "wb")


def test_file_without_a_reference_is_read(tree):
    # Not within `assert`: pytest keeps a reference to each part of it.
    whole = tree.open("docs/hello.txt").read()
    line = (tree / "docs/hello.txt").open("rb").readline()
    part = tree.open("docs/hello.txt").pread(0, 5)
    assert (whole, line, part) == (b"hello again\n", b"hello again\n", b"hello")


def test_lines_are_read_without_copies_of_blocks(tree, monkeypatch):
    # The reading of lines in Python's base class copies a block for each line by it.
    monkeypatch.setattr(vouch.tree.File, "peek", None)
    assert list(tree.open("numbers")) == NUMBERS.splitlines(keepends=True)
    file = tree.open("numbers")
    file.seek(131_070)
    rest = io.BytesIO(NUMBERS)
    rest.seek(131_070)
    for size in (3, 0, -1, None, 100):
        assert file.readline(size) == rest.readline(size) and file.tell() == rest.tell()
    file.seek(-3, os.SEEK_END)
    assert file.readlines() == [NUMBERS[-3:]] and file.readline() == b""
    assert tree.open("small/100").readline() == b"100" and tree.open("empty").readline() == b""


def test_closed_tree_is_refused_and_its_files_are_read(site):
    with vouch.open(site.name) as tree:
        file = tree.open("docs/hello.txt")
    assert tree.closed and file.read() == b"hello again\n"
    with pytest.raises(ValueError, match="closed"):
        tree.listdir()
    tree.close()
    assert "closed" in repr(tree)


def test_public_members_of_paths_have_documentation():
    members = {name: getattr(vouch.Path, name) for name in dir(vouch.Path) if not name.startswith("_")}
    assert [name for name, member in members.items() if name != "tree" and not member.__doc__] == []


def test_state_and_cache_that_cannot_be_written_are_told(site):
    with pytest.warns(RuntimeWarning, match="kept in memory only"):
        vouch.open(site.name, state="/proc/nothing", timeout=20)
    with pytest.warns(RuntimeWarning, match="continuing without it"):
        vouch.open(site.name, cache="/proc/nothing", timeout=20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vouch.open(site.name, state="/proc/nothing", timeout=20)
    with pytest.raises(vouch.LocalError, match="/proc/nothing"):
        vouch.open(site.name, state="/proc/nothing", state_required=True)


def test_paths_are_like_those_of_pathlib(site, tree):
    path = tree / "docs" / "hello.txt"
    assert (path.name, path.stem, path.suffix) == ("hello.txt", "hello", ".txt")
    assert path.read_text() == "hello again\n"
    assert path.exists() and path.is_file() and not path.is_dir()
    assert not (tree / "missing").exists()
    assert (tree / "link").is_symlink()
    assert list((tree / "docs").iterdir()) == [path]
    assert os.fspath(path) == f"vouch://{site.name}/docs/hello.txt"


def test_globs_are_those_of_pathlib(site, tree):
    root, local = tree / "", site.source
    for pattern in ("*", "small/00*", "**/*", "**/hello.*", "docs/*.txt", "*/00[1-3]", "none/*", "link", "**/**/1?7", "out"):
        found = sorted(path.path for path in root.glob(pattern))
        assert found == sorted(str(path.relative_to(local)).lstrip(".") for path in local.glob(pattern)), pattern
    assert len(list(root.glob("**"))) == 1 + len(list(root.glob("**/*")))
    assert sorted(root.rglob("hello.txt")) == [tree / "docs/hello.txt"]
    with pytest.raises(ValueError):
        root.glob("/docs")


def test_older_revisions_log_and_diff(site, tree):
    old = vouch.open(site.name, revision=1)
    assert old.read_text("docs/hello.txt") == "hello\n"
    assert vouch.open(site.name, tag="first").revision.number == 1
    assert [(r.number, r.tag) for r in tree.log()] == [(2, "second"), (1, "first")]
    changes = {change.path: change for change in tree.diff(old)}
    assert changes["docs/hello.txt"].kind == "changed"
    assert "content" in changes["docs/hello.txt"].fields
    assert changes["docs/hello.txt"].new.size == 12
    # Replicas can withhold a revision: that proves no absence.
    with pytest.raises(vouch.NoRevision) as error:
        vouch.open(site.name, revision=77)
    assert not isinstance(error.value, FileNotFoundError)


def test_verifies_and_proves(site, tree, tmp_path):
    calls = []
    report = tree.verify(lambda *progress: calls.append(progress))
    assert report and report.files == 203 and report.frames > 0
    proof = tmp_path / "proof"
    proof.write_bytes(tree.prove("docs/hello.txt"))
    assert "docs/hello.txt" in site.run("check-proof", site.name, str(proof))


def test_tree_moves_only_on_refresh(empty_site):
    site = empty_site
    (site.source / "a").write_text("1")
    site.publish()
    site.serve()
    tree = vouch.open(site.name, **site.options())
    (site.source / "a").write_text("two")
    site.publish()
    assert tree.read_text("a") == "1"
    assert tree.refresh() and tree.read_text("a") == "two"
    assert not tree.refresh()


def test_rollback_is_refused(empty_site):
    site = empty_site
    (site.source / "a").write_text("1")
    site.publish()
    subprocess.run(["cp", "-a", "db", "db-old"], cwd=site.directory, check=True)
    (site.source / "a").write_text("2")
    site.publish()
    site.serve()
    assert vouch.open(site.name, **site.options()).read_text("a") == "2"
    site.stop()
    subprocess.run("rm -rf db && mv db-old db", shell=True, cwd=site.directory, check=True)
    site.serve()
    # The cache still has revision 2.
    options = site.options() | {"memory_cache": 1 << 20, "timeout": 5}
    assert vouch.open(site.name, **options).read_text("a") == "2"
    with pytest.raises(vouch.Rollback, match="offers the old revision 1"):
        vouch.open(site.name, **options | {"cache": None}).read_text("a")


def test_unreachable_and_forged(site, empty_site):
    with pytest.raises(vouch.Unreachable):
        vouch.open(empty_site.name, timeout=2)
    # The replica of another tree.
    with pytest.raises(vouch.VouchError):
        vouch.open(empty_site.name, replicas=site.location, only_replicas=True, timeout=2)


def test_expired_revision_is_refused(empty_site):
    site = empty_site
    (site.source / "a").write_text("1")
    site.publish("--duration", "1s")
    site.serve()
    time.sleep(1.2)  # The validity of the revision.
    with pytest.raises(vouch.Expired):
        vouch.open(site.name, timeout=5)


def test_pickled_tree_is_opened_again(site):
    old = vouch.open(site.name, revision=1)
    again = pickle.loads(pickle.dumps(old))
    assert again.revision.number == 1 and again.read_text("link") == "hello\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_child_of_fork_is_refused_and_opens_its_own(site, tree):
    def child():
        try:
            tree.read_bytes("docs/hello.txt")
        except RuntimeError as error:
            assert "forked" in str(error)
        else:
            return 1
        return 0 if vouch.open(site.name).read_bytes("link") == b"hello again\n" else 2

    pid = os.fork()
    if pid == 0:
        code = 3
        try:
            code = child()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert tree.read_bytes("docs/hello.txt") == b"hello again\n"


def test_threads_share_a_tree(tree):
    wrong = []

    def read(seed):
        order = random.Random(seed)
        for _ in range(50):
            start = order.randrange(len(NUMBERS))
            if tree.read_bytes("numbers", start, start + 5000) != NUMBERS[start : start + 5000]:
                wrong.append(start)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong


def test_interrupt_ends_a_wait_at_once(empty_site):
    # A replica that accepts and never answers.
    with socket.create_server(("127.0.0.1", empty_site.port)):
        # A shell has its background jobs ignore this signal.
        code = f"import signal, vouch; signal.signal(signal.SIGINT, signal.default_int_handler); print('go', flush=True); vouch.open({empty_site.name!r}, timeout=60)"
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
        child.stdout.readline()
        time.sleep(0.5)
        began = time.monotonic()
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=20)
        assert b"KeyboardInterrupt" in errors
        assert time.monotonic() - began < 5


def test_import_is_light():
    code = "import sys, vouch; print([m for m in ('fsspec', 'asyncio', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.stdout.strip() == "[]", done.stderr


class LyingProxy(threading.Thread):
    """Passes bytes between clients and a replica, and changes some by a seed."""

    def __init__(self, port, seed):
        super().__init__(daemon=True)
        self.target, self.seed = port, seed
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.changed = 0
        self.start()

    def run(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            threading.Thread(target=self.copy, args=(client, server, None), daemon=True).start()
            order = random.Random(self.seed)
            self.seed += 1
            threading.Thread(target=self.copy, args=(server, client, order), daemon=True).start()

    def copy(self, source, target, order):
        try:
            while data := source.recv(1 << 16):
                if order is not None and order.random() < 0.4:
                    self.changed += 1
                    data = bytearray(data)
                    fault = order.randrange(4)
                    if fault == 0:
                        data[order.randrange(len(data))] ^= 1 << order.randrange(8)
                    elif fault == 1:
                        data = data[: order.randrange(len(data) + 1)]
                    elif fault == 2:
                        data = data + order.randbytes(order.randrange(1, 50))
                    else:
                        at = order.randrange(len(data))
                        data[at : at + 16] = order.randbytes(16)
                target.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, target):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass


def test_lying_replica_never_gives_a_wrong_byte(site):
    cases = int(os.environ.get("VOUCH_PYTHON_LIE_CASES", "200"))
    expected = {"docs/hello.txt": b"hello again\n", "numbers": NUMBERS, "small/007": b"7"}
    proxy = LyingProxy(site.port, 1)

    def read(case):
        order = random.Random(case)
        # A session of its own: nothing is cached.
        options = {"cache": None, "state": None, "timeout": 0.2, "memory_cache": (1 << 20) + case}
        try:
            tree = vouch.open(site.name, replicas=f"127.0.0.1:{proxy.port}", only_replicas=True, **options)
            path = order.choice(list(expected))
            start = order.randrange(len(expected[path]))
            end = start + order.randrange(1, 200_000)
            assert tree.read_bytes(path, start, end) == expected[path][start:end]
            return "right"
        except vouch.VouchError as error:
            return type(error).__name__
        finally:
            if case % 100 == 0:
                vouch.tree._sessions.clear()

    # Most cases wait for a time-out.
    with ThreadPoolExecutor(32) as pool:
        results = Counter(pool.map(read, range(cases)))
    proxy.listener.close()
    assert results.total() == cases and proxy.changed > 0
    assert results["right"] > 0 and results.total() > results["right"]
    if cases > 1000:
        print(results)
