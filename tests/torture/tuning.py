#!/usr/bin/env python3
"""Processes that tune are killed at random moments: the one that searches, its workers, processes of an MPI job. What the database held
before a kill is there afterwards, the next run takes the problem over at once and goes on, and ends with a winner.

    tuning.py ATTNFORGE FAKE_DRIVER_FOLDER FAKE_NVRTC [--mpi ATTNFORGE_WITH_MPI] [--seconds S] [--kills N] [--seed X]

On the fake GPU, whose compiles sleep. Ends with 0 if all of that held.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

LEASE_SECONDS = 3  # that a lease may outlive its owner
LONGEST = 60  # of a run that nobody kills
SEQLENS = (64, 128, 256, 512, 1024, 2048)


def children(pid):
    try:
        found = [int(each) for each in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (OSError, ValueError):
        return []
    return found + [each for child in found for each in children(child)]


def rows(database):
    """What is stored: (problem, config, digest) of tries, and (problem, winner) of searches."""
    if not database.exists():
        return set()
    try:
        return _rows(database, "ro")
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):  # not there yet
            return set()
        # A kill may leave the journal's index half written, which a connection that only reads may not mend.
        return _rows(database, "rw")


def _rows(database, mode):
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode={mode}", uri=True, timeout=10)) as connection:
        tries = connection.execute("SELECT problem_id, config, digest FROM tries").fetchall()
        searches = connection.execute("SELECT problem_id, winner FROM searches WHERE rigor = 'full'").fetchall()
    return set(tries) | set(searches)


class Torture:
    def __init__(self, args):
        self.args, self.random = args, random.Random(args.seed)
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.environment = os.environ | {
            "LD_LIBRARY_PATH": args.driver, "ATTNFORGE_NVRTC": args.nvrtc, "FAKE_GPU_LAUNCH_US": "1", "FAKE_NVRTC_COMPILE_MS": "15",
            "ATTNFORGE_LOG": "off", "ATTNFORGE_SHIPPED_WINNERS": "0", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1", "TMPDIR": "/tmp"}
        self.kills, self.lost, self.failed, self.checked, self.finished, self.longest_lease_s = {}, 0, 0, 0, 0, 0

    def file(self, number):
        folder = self.folder / str(number)
        folder.mkdir(mode=0o700)
        text = "".join(f"fwd fp16 num_heads=2 seqlen={each} head_dim=64\n" for each in SEQLENS)
        (folder / "problems.txt").write_text(text)
        return folder / "a.db", folder / "problems.txt"

    def start(self, database, problems, job):
        words = ["--cache", str(database), "--rigor", "full", "--json", "--compile-threads", "4"]
        command = [self.args.attnforge, "tune", "--quiet", "--file", str(problems)]
        if job:
            command = ["mpirun", "--enable-recovery", "-n", "3", self.args.mpi, "tune", "--mpi", str(problems)]
        return subprocess.Popen(command + words, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def kill(self, what, pid):
        try:
            os.kill(pid, signal.SIGKILL)
            self.kills[what] = self.kills.get(what, 0) + 1
        except ProcessLookupError:
            pass

    def check(self, database, before):
        self.checked += len(before)
        self.lost += len(before - rows(database))

    def kill_search(self, database, problems, stored):
        """At a random moment one of its workers, in half of the cases, and then the search itself. stored: not before there is a row, which
        takes a busy machine longer than the moments of all others."""
        process = self.start(database, problems, job=False)
        while stored and process.poll() is None and not rows(database):
            time.sleep(0.02)
        time.sleep(self.random.uniform(0, 0.7))
        workers = children(process.pid)
        if workers and self.random.random() < 0.5:
            self.kill("worker", self.random.choice(workers))
            time.sleep(self.random.uniform(0, 0.3))
        before = rows(database)
        ended = process.poll() is not None
        if not ended:
            self.kill("supervisor", process.pid)
        process.communicate()
        self.check(database, before)
        return not ended

    @staticmethod
    def ranks(launcher):
        """{rank: pid} of the processes that the launcher has started."""
        found = {}
        for pid in children(launcher):
            try:
                words = dict(each.split(b"=", 1) for each in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if b"=" in each)
                command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if b"--mpi" in command and b"OMPI_COMM_WORLD_RANK" in words:
                found[int(words[b"OMPI_COMM_WORLD_RANK"])] = pid
        return found

    def kill_rank(self, database, problems):
        """The others end the job, unless it is the first one that is lost."""
        process, began, ranks = self.start(database, problems, job=True), time.monotonic(), {}
        while not any(children(pid) for pid in ranks.values()):  # MPI itself does not survive a loss while it starts
            if process.poll() is not None or time.monotonic() - began > LONGEST:
                break
            time.sleep(0.05)
            ranks = self.ranks(process.pid)
        time.sleep(self.random.uniform(0, 1.5))
        before = rows(database)
        if ranks:
            rank = self.random.choice(sorted(ranks))
            self.kill("rank", ranks[rank])
            if rank == 0:
                process.terminate()
        process.communicate(timeout=LONGEST)
        self.check(database, before)

    def lease_seconds(self, database, process):
        """How long leases of owners that are dead stay; a search that goes on takes over the one that it comes to first."""
        began = time.monotonic()
        while time.monotonic() - began < 3 * LEASE_SECONDS and process.poll() is None:
            try:
                connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)
                owners = [pid for (pid,) in connection.execute("SELECT pid FROM leases")]
                connection.close()
            except sqlite3.OperationalError:
                owners = []
            if all(pathlib.Path(f"/proc/{pid}").exists() for pid in owners):
                break
            time.sleep(0.02)
        return time.monotonic() - began

    def round(self, number):
        database, problems = self.file(number)
        if self.args.mpi and number % 4 == 3:
            self.kill_rank(database, problems)
        for left in reversed(range(12)):
            if not self.kill_search(database, problems, stored=left == 0):
                break
        process = self.start(database, problems, job=False)
        seconds = self.lease_seconds(database, process)
        self.longest_lease_s = max(self.longest_lease_s, seconds)
        try:
            results = json.loads(process.communicate(timeout=LONGEST)[0])["results"]
            good = all(result.get("winner") for result in results) and len(results) == len(SEQLENS)
        except (subprocess.TimeoutExpired, ValueError, KeyError):
            process.kill()
            good = False
        self.finished += good
        self.failed += not good
        shutil.rmtree(database.parent)

    def text(self):
        kills = ", ".join(f"{count} of a {what}" for what, count in sorted(self.kills.items()))
        return (f"{sum(self.kills.values())} kills ({kills}), {self.checked} stored rows looked for, {self.lost} lost, leases of the "
                f"dead for {self.longest_lease_s:.1f} s at most, start of the next run included, {self.finished} next runs ended with every winner, {self.failed} did not")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("attnforge", "driver", "nvrtc"):
        parser.add_argument(name)
    parser.add_argument("--mpi")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--kills", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torture, began, number = Torture(args), time.monotonic(), 0
    while time.monotonic() - began < args.seconds and sum(torture.kills.values()) < args.kills:
        torture.round(number)
        number += 1
    shutil.rmtree(torture.folder)
    print(f"torture_tuning: {torture.text()} in {time.monotonic() - began:.0f} s, seed {args.seed}")
    sys.exit(0 if torture.kills and torture.checked and not (torture.lost or torture.failed or torture.longest_lease_s >= LEASE_SECONDS) else 1)


if __name__ == "__main__":
    main()
