#!/usr/bin/env python3
"""bench/designs.py from end to end, on a GPU and a compiler that only pass the time: the table it writes, what it leaves out and why, and
what it says of a file that is wrong.

usage: designs_test.py ROOT PROGRAM FAKE_DRIVER_DIR FAKE_NVRTC
"""
import csv
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT, PROGRAM = pathlib.Path(sys.argv[1]), sys.argv[2]
ENVIRONMENT = {**os.environ, "LD_LIBRARY_PATH": sys.argv[3], "ATTNFORGE_NVRTC": sys.argv[4], "FAKE_GPU_LAUNCH_US": "100"}
CONFIG = "fwd_naive block_m=8 num_threads=128"


class Designs(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="attnforge_designs_")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def run_script(self, text, *options):
        (self.folder / "designs.txt").write_text(text)
        command = [sys.executable, ROOT / "bench/designs.py", "designs.txt", "--out", "out.csv", "--program", PROGRAM, "--rounds", "2"]
        return subprocess.run([*command, *options], env=ENVIRONMENT, cwd=self.folder, capture_output=True, text=True, timeout=100)

    def rows(self):
        comment, *lines = (self.folder / "out.csv").read_text().splitlines()
        self.assertRegex(comment, r"^# NVIDIA H200, \d{4}-\d\d-\d\d; python3 bench/designs\.py designs\.txt .*--rounds 2 --no-check$")
        return list(csv.DictReader(lines))

    def test_each_design_of_each_problem_is_timed_in_every_round_and_compared_with_the_first(self):
        (self.folder / "own/oracle/fwd_naive").mkdir(parents=True)
        (self.folder / "own/oracle/fwd_naive/kernel.cuh").write_text((ROOT / "templates/oracle/fwd_naive/kernel.cuh").read_text() + "// another\n")
        done = self.run_script(
            "# two problems\nfwd fp16 num_heads=1 seqlen=64,96 head_dim=64  # small\n"
            f"  as it is = {CONFIG}\n  others @ own = {CONFIG}\n  num_threads=64 = {CONFIG.replace('128', '64')}\n",
            "--no-check",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = self.rows()
        self.assertEqual([row["design"] for row in rows], ["as it is", "others", "num_threads=64"] * 2)
        self.assertEqual([row["problem"].split("seqlen_q=")[1].split()[0] for row in rows], ["64"] * 3 + ["96"] * 3)
        self.assertEqual([row["templates"] for row in rows], ["", "own", ""] * 2)
        for row in rows:
            first = next(each for each in rows if each["problem"] == row["problem"])
            self.assertEqual(row["rounds"], "2")
            self.assertAlmostEqual(float(row["first_over_this"]), float(first["time_us"]) / float(row["time_us"]), 3)
            self.assertIn(f"{row['problem']}: {row['design']}: {row['time_us']} us, {row['first_over_this']}x", done.stdout)

    def test_what_cannot_run_is_left_out_with_its_reason(self):
        done = self.run_script(f"fwd fp16 num_heads=1 seqlen=64 head_dim=64\n  good = {CONFIG}\n  bad = {CONFIG.replace('8 ', '7 ')}\n", "--no-check")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"left out: bad: .*\nfailed with exit code 2: .*block_m=7 must be 1, 2, 4 or 8")
        self.assertEqual([row["design"] for row in self.rows()], ["good"])

    def test_what_is_wrong_is_left_out(self):  # the fake GPU computes nothing
        done = self.run_script(f"fwd fp16 num_heads=1 seqlen=64 head_dim=64\n  one = {CONFIG}\n")
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"left out: one: .* run --random 1 --check .*\nfailed with exit code 4")
        self.assertIn("no design is left to be timed", done.stderr)
        self.assertFalse((self.folder / "out.csv").exists())

    def test_wrong_files_are_errors_of_one_line(self):
        problem = "fwd fp16 num_heads=1 seqlen=64 head_dim=64\n"
        for text, said in (("", "no line is a design"), (f"  one = {CONFIG}\n", "line 1 is none of"), (f"{problem}  one\n", "line 2 is none of"),
                           (f"{problem}  one = {CONFIG}\n  one = {CONFIG}\n", "line 3 names a design that its problems have already: one")):
            done = self.run_script(text)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stderr.splitlines()[-1])
            self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
