#!/usr/bin/env python3
"""bench/before_after.py from end to end, on a GPU and a compiler that only pass the time: the table it writes, and what it says of a
command line or a point that is wrong.

usage: before_after_test.py ROOT PROGRAM FAKE_DRIVER_DIR FAKE_NVRTC
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
COLUMNS = "dtype,batch,num_heads_q,num_heads_kv,seqlen_q,seqlen_kv,head_dim,head_dim_v,causal,impl,ms,config"
CONFIG = "fwd_naive block_m=8 num_threads=128"
ROW = f"fp16,1,1,1,64,{{keys}},64,64,1,{{impl}},1,{CONFIG}"


class BeforeAfter(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="attnforge_before_after_")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.old = self.folder / "old"
        self.old.symlink_to(PROGRAM)

    def run_script(self, *rows, options=(), new=PROGRAM):
        points = self.folder / "points.csv"
        points.write_text("\n".join(["# a run", COLUMNS, *rows]) + "\n")
        command = [sys.executable, ROOT / "bench/before_after.py", self.old, new, "--points", points, "--out", self.folder / "out.csv"]
        return subprocess.run([*command, *options], env=ENVIRONMENT, capture_output=True, text=True, timeout=100)

    def test_each_point_is_timed_by_both_in_every_round(self):
        done = self.run_script(ROW.format(keys=64, impl="attnforge"), ROW.format(keys=96, impl="torch-flash"),
                               ROW.format(keys=128, impl="attnforge"), options=("--rounds", "2"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"2 points, before / after: geometric mean 1\.0000, least 1\.0000, most 1\.0000")
        comment, command, *lines = (self.folder / "out.csv").read_text().splitlines()
        self.assertRegex(comment, r"^# NVIDIA H200, \d{4}-\d\d-\d\d$")
        self.assertRegex(command, r"^# python3 bench/before_after\.py .*--rounds 2$")
        rows = list(csv.DictReader(lines))
        self.assertEqual([row["problem"].split()[4] for row in rows], ["seqlen=64:64", "seqlen=64:128"], "attnforge's own")
        for row in rows:
            self.assertEqual((row["rounds"], row["before_us"]), ("2", row["after_us"]), "the fake GPU takes the same time for the same code")

    def test_backward_passes_and_only_some_configs(self):
        backward = ROW.replace(CONFIG, "bwd_naive num_threads=128").format(keys=96, impl="attnforge")
        done = self.run_script(ROW.format(keys=64, impl="attnforge"), backward, options=("--only", "bwd_", "--rounds", "1"))
        self.assertEqual(done.returncode, 0, done.stderr)
        _, _, *lines = (self.folder / "out.csv").read_text().splitlines()
        self.assertEqual([row["problem"].split()[0] for row in csv.DictReader(lines)], ["bwd"])
        self.assertIn("has no row of attnforge with a config with wgmma in it", self.run_script(backward, options=("--only", "wgmma")).stderr)

    def test_a_point_that_fails_says_why(self):
        done = self.run_script(ROW.format(keys=64, impl="attnforge").replace("block_m=8", "block_m=7"))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr.splitlines()[-1], r"failed with exit code 2: .*block_m=7 ")

    def test_wrong_command_lines_are_errors_of_one_line(self):
        row = ROW.format(keys=64, impl="attnforge")
        for options, new, said in (((), self.folder / "none", "none is not there"), ((), self.old, "are the same program"),
                                   (("--rounds", "0"), PROGRAM, "0 must be at least 1"), (("--most", "0"), PROGRAM, "0 must be at least 1"),
                                   (("--points", "none.csv"), PROGRAM, "none.csv cannot be read")):
            done = self.run_script(row, options=options, new=new)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stderr.splitlines()[-1])
            self.assertNotIn("Traceback", done.stderr)
        self.assertIn("has no row of attnforge", self.run_script(ROW.format(keys=64, impl="torch-flash")).stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
