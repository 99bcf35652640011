#!/usr/bin/env python3
"""Runs every attnforge command that the documents show, as it stands, on the fake GPU and the fake NVRTC, on a terminal of 80 columns.

usage: document_commands_test.py ROOT ATTNFORGE FAKE_DRIVER_DIR FAKE_NVRTC PICTURES

Where there is tmux, it is the terminal that shows what they said; its rows are kept in the folder PICTURES, a file a command.

tune and bench are interrupted after a while: then the command line, the problem and the files were taken. Files that a command
reads are made beforehand; each command has a folder and a database of its own.
"""

import concurrent.futures
import fcntl
import os
import pathlib
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest

PICTURES, FAKE_NVRTC, FAKE_DRIVER_DIR, ATTNFORGE, ROOT = (pathlib.Path(sys.argv.pop()).resolve() for _ in range(5))

COLUMNS = 80

# Printed as it is, for files and programs.
AS_IT_IS = r"--(json|csv|source|entry|ptx|sass|help)\b|cache (show|export)\b|completion"

# Of another program, or of a family that the reader writes.
OTHERS = r"\bncu\b|\bsqlite3\b|\bfwd_mine\b"


def commands():
    """{command: page} of all documents: those of fenced blocks, and those in a line of text that have a whole problem."""
    found = {}
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]:
        blocks = r"^```(\w*)\n(.*?)^```"  # each from its own begin: a block's end looks like the begin of one
        text = re.sub(blocks, "", page.read_text(), flags=re.M | re.S)
        for command in re.findall(r"`(attnforge [^`]* fwd [^`]*)`", text):
            if "..." not in command:
                found.setdefault(" ".join(command.split()), page.relative_to(ROOT))
        for language, block in re.findall(blocks, page.read_text(), flags=re.M | re.S):
            if language not in ("", "sh"):
                continue
            for line in block.replace("\\\n", " ").splitlines():
                line = re.sub(r"\s+#.*", "", line).strip()
                if re.match(r"(\w+=\S+ )*attnforge ", line) and not re.search(OTHERS, line):
                    found.setdefault(line, page.relative_to(ROOT))
    return found


def write_npy(path, shape):
    """Zeros of float16."""
    header = f"{{'descr': '<f2', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    count = 1
    for size in shape:
        count *= size
    path.write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode() + bytes(2 * count))


def make_files(folder):
    for name, heads in (("q", 4), ("k", 2), ("v", 2)):
        write_npy(folder / f"{name}.npy", (1, 64, heads, 64))
    write_npy(folder / "slope.npy", (16,))
    (folder / "my_templates/tile").mkdir(parents=True)
    shutil.copy(ROOT / "templates/tile/softmax.cuh", folder / "my_templates/tile")
    (folder / "bench").symlink_to(ROOT / "bench")
    (folder / "winners.jsonl").touch()


def allowed(command):
    """Exit codes of a command that was understood."""
    codes = {0}
    if re.search(r"attnforge (tune|bench)\b", command):
        codes.add(130)
    if "--families all" in command:
        codes.add(3)  # a family does not serve the dtype: its row says so
    if "--check" in command and "--cpu" not in command:
        codes.add(4)  # the fake GPU computes nothing
    return codes


def works_for(process, seconds):
    """Whether it still runs when it has taken so much of a core, or ten times as long in a crowd."""
    ticks, last = seconds * os.sysconf("SC_CLK_TCK"), time.monotonic() + 10 * seconds
    while process.poll() is None:
        fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        if int(fields[11]) + int(fields[12]) >= ticks or time.monotonic() > last:
            return True
        time.sleep(0.05)
    return False


class Screens:
    """tmux, which shows what a terminal of COLUMNS was sent."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.file = pathlib.Path(self.folder.name) / "sent"
        self.tmux("new-session", "-d", "-s", "screens", "-x", str(COLUMNS), "-y", "50", "cat")

    def close(self):
        self.tmux("kill-server")
        self.folder.cleanup()

    def tmux(self, *words):
        settings = pathlib.Path(self.folder.name) / "settings"
        settings.write_text("set -g history-limit 100000\n")
        command = ["tmux", "-S", f"{self.folder.name}/socket", "-f", str(settings), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=dict(os.environ, TERM="xterm-256color")).stdout

    def of(self, sent):
        """(rows, lines) that are seen of these bytes: a line that is too long has several rows."""
        self.file.write_bytes(sent)
        window = self.tmux("new-window", "-d", "-P", "-F", "#{window_id}", f"cat '{self.file}'; touch '{self.file}.shown'; sleep 60").strip()
        last = time.monotonic() + 20
        while not self.file.with_suffix(".shown").exists() and time.monotonic() < last:
            time.sleep(0.01)
        time.sleep(0.05)
        rows, lines = (self.tmux("capture-pane", "-p", *joined, "-S", "-", "-t", window) for joined in ((), ("-J",)))
        self.tmux("kill-window", "-t", window)
        self.file.with_suffix(".shown").unlink()
        return rows, lines


class Terminal:
    """What is written to `end`."""

    def __init__(self):
        self.ours, self.end = pty.openpty()
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        self.said = b""
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        try:
            while piece := os.read(self.ours, 65536):
                self.said += piece
        except OSError:  # the other side is closed
            pass
        os.close(self.ours)

    def text(self):
        """Without colours, and of lines that were written over the last."""
        lines = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", self.said.decode()).replace("\r\n", "\n").split("\n")
        return "\n".join(line.rpartition("\r")[2] for line in lines)


def run(command):
    """(exit code, its Terminal) of a command in a folder of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_files(folder)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ATTNFORGE_")}
        environment.update(
            PATH=f"{ATTNFORGE.parent}:{os.environ['PATH']}",
            LD_LIBRARY_PATH=f"{FAKE_DRIVER_DIR}:{os.environ.get('LD_LIBRARY_PATH', '')}",
            ATTNFORGE_NVRTC=str(FAKE_NVRTC),
            ATTNFORGE_CACHE=str(folder / "attnforge.db"),
            FAKE_GPU_LAUNCH_US="1",
        )
        if re.search(r"cache export|attnforge report", command):  # there must be a database
            subprocess.run(["attnforge", "cache", "import", "winners.jsonl"], cwd=folder, env=environment, capture_output=True)
        if shipped := re.search(r"SITE_CACHE=(\S+) .* cached_only (.*)", command):
            tune = ["attnforge", "tune", "--quiet", "--rigor", "quick", "--time-limit", "8", "--cache", shipped[1], shipped[2]]
            subprocess.run(tune, cwd=folder, env=environment, capture_output=True)
        terminal = Terminal()
        process = subprocess.Popen(
            ["bash", "-c", command], cwd=folder, env=environment, start_new_session=True, stdin=subprocess.DEVNULL,
            stdout=terminal.end, stderr=terminal.end,
        )
        os.close(terminal.end)
        if 130 in allowed(command) and works_for(process, 0.05):
            os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        terminal.reader.join()
        return process.returncode, terminal


def broken(lines):
    """Those that a terminal breaks, and not because of a word that no row has room for."""
    return [line for line in lines.split("\n") if len(line.rstrip()) > COLUMNS and max(map(len, line.split())) < COLUMNS / 2]


class DocumentCommandsTest(unittest.TestCase):
    def test_every_command_is_taken_as_it_stands(self):
        shown = commands()
        self.assertGreater(len(shown), 25)
        pages = {str(page) for page in shown.values()}
        self.assertLessEqual({"README.md", "docs/CLI.md", "docs/MEASURING.md"}, pages)
        screens = Screens() if shutil.which("tmux") else None
        if screens:
            self.addCleanup(screens.close)
            PICTURES.mkdir(parents=True, exist_ok=True)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for number, (command, (code, terminal)) in enumerate(zip(shown, pool.map(run, shown))):
                said = terminal.text()
                with self.subTest(command=command, page=str(shown[command])):
                    # One that has shown its table is at its end, where a signal has its own way again.
                    if code == -signal.SIGINT and re.search(r"^(time|winner) us ", said, re.MULTILINE):
                        code = 130
                    self.assertIn(code, allowed(command), said)
                    if re.search(AS_IT_IS, command):
                        continue
                    self.assertEqual(broken(said), [], "the terminal breaks these lines wherever they are")
                    if screens:
                        rows, lines = screens.of(terminal.said)
                        (PICTURES / f"command_{number}.txt").write_text(f"$ {command}\n{rows.rstrip()}\n")
                        self.assertEqual(broken(lines), [], "tmux breaks these lines wherever they are")

    @unittest.skipUnless(shutil.which("tmux"), "needs tmux")
    def test_the_terminal_breaks_what_is_too_long(self):
        screens = Screens()
        self.addCleanup(screens.close)
        long = " ".join(["word"] * 30)
        rows, lines = screens.of(f"one\r\n{long}\r\n\x1b[1mtwo\x1b[0m\r\n".encode())
        self.assertEqual(broken(lines), [long])
        self.assertEqual(rows.rstrip().split("\n"), ["one", long[:COLUMNS].rstrip(), long[COLUMNS:], "two"])


if __name__ == "__main__":
    unittest.main()
