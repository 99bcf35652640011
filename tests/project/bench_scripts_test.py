#!/usr/bin/env python3
"""The scripts of bench/ without a GPU: each says how it is called, says in one line what it lacks, and bench/host.py makes its table
of what the benchmark programs print.

usage: bench_scripts_test.py ROOT
"""
import ast
import json
import os
import pathlib
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
import types
import unittest
from unittest import mock

ROOT = pathlib.Path(sys.argv[1])
SCRIPTS = sorted(path for path in (ROOT / "bench").glob("*.py") if ".parse_args()" in path.read_text())
# Arguments with which a script gets as far as what it lacks.
ASKED = {"append.py": [], "backward.py": ["--out", "o.csv"], "counters.py": ["fwd fp16 seqlen=64"], "host.py": [], "integrations.py": [],
         "peers.py": ["--out", "o.csv"], "serving.py": [], "tuning.py": ["first_run"], "masks.py": [], "varlen.py": ["--out", "o.csv"],
         "model.py": ["--cache", "none.db", "--family", "fwd_naive", "--arch", "sm_90"]}


class BenchScripts(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="attnforge_bench_scripts_")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        (self.folder / "torch.py").write_text("raise ImportError('not here')\n")

    def run_script(self, name, *arguments):
        """On a machine without nvidia-smi and torch, but for what is in self.folder. In a fork of this process: a new Python would
        take longer to start than most scripts do."""
        script, outputs = ROOT / "bench" / name, [tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")]
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            for number, output in zip((1, 2), outputs):
                os.dup2(output.fileno(), number)
            os._exit(self.exit_code_of(script, [name, *arguments]))
        status = os.waitpid(child, 0)[1]
        said = []
        for output in outputs:
            output.seek(0)
            said.append(output.read())
            output.close()
        return subprocess.CompletedProcess(name, os.waitstatus_to_exitcode(status), *said)

    def exit_code_of(self, script, arguments):
        """Of the script, which becomes this process's main program."""
        signal.alarm(60)
        os.chdir(self.folder)
        os.environ.update(PATH=str(self.folder), PYTHONPATH=str(self.folder), PYTHONDONTWRITEBYTECODE="1")
        sys.argv, sys.path[:1], sys.dont_write_bytecode = arguments, [str(script.parent), str(self.folder)], True
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
        try:
            runpy.run_path(str(script), run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code or 0
            if not isinstance(code, int):
                print(code, file=sys.stderr)
                code = 1
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        return code

    def add_program(self, name, text):
        (self.folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.folder / name).chmod(0o755)

    def test_each_says_how_it_is_called(self):
        self.assertGreater(len(SCRIPTS), 10)
        for script in SCRIPTS:
            done = self.run_script(script.name, "--help")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"usage: {script.name}", done.stdout)
            done = self.run_script(script.name, "--no-such-option")
            self.assertEqual(done.returncode, 2, script.name)
            self.assertNotIn("Traceback", done.stderr)

    def test_no_local_variable_hides_a_function_that_is_called(self):
        """What comes after the first use of a GPU is run by no test: there, this stopped bench/serving.py."""
        for script in sorted((ROOT / "bench").glob("*.py")):
            tree = ast.parse(script.read_text())
            functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
            for outer in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
                names = [node for node in ast.walk(outer) if isinstance(node, ast.Name)]
                local = {node.id for node in names if isinstance(node.ctx, ast.Store)}
                called = {node.func.id for node in ast.walk(outer) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
                self.assertEqual(local & called & functions, set(), f"{script.name}: {outer.name}()")

    def test_each_says_in_one_line_what_it_lacks(self):
        for name, arguments in ASKED.items():
            done = self.run_script(name, *arguments)
            self.assertEqual(done.returncode, 1, f"{name}: {done.stderr}")
            self.assertRegex(done.stderr, r"^[^\n]*(is not there; ./dev build makes it|has no torch|no nvidia-smi)[^\n]*\n$", name)

    def test_backward_says_what_it_would_measure_and_sums_up_what_was(self):
        done = self.run_script("backward.py", "--dry-run")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        points = done.stdout.splitlines()
        self.assertEqual(len(points), 36 + 24 + 8 + 14 + 36)
        self.assertEqual(len({line.split(None, 1)[1] for line in points}), len(points), "no point twice")
        done = self.run_script("backward.py", "--dry-run", "--list", "gqa,deterministic", "--only", "d128 causal", "--points", "3:5")
        wanted = ["0 gqa d128 causal s16384 b1 h64:8: bwd bf16 batch=1 num_heads=64:8 seqlen=16384:16384 head_dim=128:128 causal",
                  "1 deterministic d128 causal s512 b32 h16: bwd bf16 batch=32 num_heads=16:16 seqlen=512:512 head_dim=128:128 causal "
                  "deterministic"]
        self.assertEqual([line.strip() for line in done.stdout.splitlines()], wanted)
        stored = (ROOT / "bench/results/h100/backward.csv").read_text().splitlines()
        columns = next(line for line in stored if not line.startswith("#"))
        of_point = "bf16,1,16,16,512,512,128,128,0"
        rows = [f"grid,attnforge,{of_point},2.0,,,,,15,0.01,0,,", f"grid,attnforge-untuned,{of_point},2.5,,,,,15,0.01,0,,",
                f"grid,fa4,{of_point},3.0,,,,,15,0.01,0,,", f"grid,torch-cudnn,{of_point},,,,,,,,,\"no, it cannot\","]
        (self.folder / "b.csv").write_text("\n".join(["# a GPU", columns, *rows]) + "\n")
        done = self.run_script("backward.py", "--summary", "b.csv")
        wanted = "grid, head_dim 128: best peer 1.500x over 1, least 1.500x; untuned to tuned 0.800x over 1, least 0.800x\n"
        self.assertEqual(done.stdout, wanted, done.stderr)
        for arguments, text in ((["--list", "banana"], "no list is named banana"), (["--points", "a"], "--points a must be N, or BEGIN:END")):
            done = self.run_script("backward.py", "--dry-run", *arguments)
            self.assertEqual(done.returncode, 1)
            self.assertIn(text, done.stderr)

    def test_host_makes_its_table_of_what_the_programs_print(self):
        def printed(program, times):
            rows = [{"name": f"{name}/iterations:9", "run_type": "iteration", "real_time": value, "time_unit": unit}
                    for name, value, unit in times]
            (self.folder / f"{program}.json").write_text(json.dumps({"benchmarks": rows}))
            return f'exec {"/bin/cat"} "{self.folder}/{program}.json"'
        self.add_program("nvidia-smi", "echo 'NVIDIA H200, 580.1'")
        self.add_program("bench_plan", printed("bench_plan", [
            ("launch/bare", 2, "us"), ("launch/plan_run", 2.5, "us"), ("plan/in_memory", 300, "ns"), ("plan/in_memory", 100, "ns"),
            ("plan/in_memory", 200, "ns"), ("plan/new_length_in_bucket", 4, "us"), ("plan/from_database_in_fresh_process", 3, "ms")]))
        compiled = {"digest": "one kernel", "compiled": {"compile_ms": 250}}
        package = types.SimpleNamespace(inspect=lambda problem, **options: compiled, AttnforgeError=ValueError)
        with mock.patch.dict(sys.modules, {"attnforge": package}):
            done = self.run_script("host.py", "--bin", str(self.folder), "--out", "host.csv")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, "calls from Python are not timed: .* has no torch")
        text = (self.folder / "host.csv").read_text().replace("\r\n", "\n")
        self.assertTrue(text.startswith("# NVIDIA H200, 580.1, "), text)
        for row in ("plan found in the same process,<= 1 us,200 ns", '"plan from SQLite in a fresh process, machine code included, '
                    'beyond driver start",<= 5 ms,3.00 ms', "Plan::run over a bare cuLaunchKernelEx,<= 1 us,0.50 us",
                    '"NVRTC compile of bwd_mma_sm80, 1 winners, worst",<= 1200 ms,250 ms'):
            self.assertRegex(text, re.escape(row))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
