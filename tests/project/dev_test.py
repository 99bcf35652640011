#!/usr/bin/env python3
"""Runs ./dev with programs of its own instead of apt-get, pip and cmake: what is asked for, and what is said when that fails.

usage: dev_test.py ROOT
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
TEST_PACKAGES = ["libgtest-dev", "libgmock-dev", "librapidcheck-dev", "libbenchmark-dev"]


class Dev(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="attnforge dev "))
        self.addCleanup(shutil.rmtree, self.folder)
        shutil.copy(ROOT / "dev", self.folder / "dev")
        (self.folder / "bin").mkdir()
        cuda = self.folder / "cuda"
        for name, text in {"include/cuda.h": "#define CUDA_VERSION 13000\n", "include/nvrtc.h": "", "lib64/libnvrtc.so.13": ""}.items():
            (cuda / name).parent.mkdir(parents=True, exist_ok=True)
            (cuda / name).write_text(text)
        self.program("sudo", 'exec "$@"')
        self.program("nvidia-smi", "exit 9")
        self.program("dpkg-query", 'shift 2; for package; do echo "installed $package"; done')

    def program(self, name, body):
        path = self.folder / "bin" / name
        path.write_text("#!/bin/bash\n" + body + "\n")
        path.chmod(0o755)

    def dev(self, *arguments):
        environment = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "CUDA_HOME": str(self.folder / "cuda"), "JOBS": "1",
                       "XDG_CACHE_HOME": str(self.folder / "cache")}
        done = subprocess.run(["bash", str(self.folder / "dev"), *arguments], env=environment, capture_output=True, text=True,
                              timeout=60)
        return done.returncode, done.stdout + done.stderr

    def nothing_is_installed(self):
        self.program("dpkg-query", "exit 1")
        self.program("apt-get", f'echo "$@" >> "{self.folder}/asked"; [[ $1 == update ]] && exit; echo "E: no space left"; exit 100')

    def test_demo_asks_for_no_package_of_tests(self):
        self.nothing_is_installed()
        self.dev("demo")
        asked = (self.folder / "asked").read_text()
        self.assertIn("libfmt-dev", asked)
        self.assertEqual([package for package in TEST_PACKAGES if package in asked], [])

    def test_a_command_that_is_misspelt_is_named(self):
        for wrong, meant in (("tset", "test"), ("buil", "build"), ("gputest", "gpu-test"), ("linting", "lint")):
            self.assertEqual(self.dev(wrong), (2, f'dev: there is no command "{wrong}"; did you mean {meant}? ./dev help lists them\n'))
        self.assertEqual(self.dev("xyz"), (2, 'dev: there is no command "xyz"; ./dev help lists them\n'))

    def test_tests_ask_for_theirs(self):
        self.nothing_is_installed()
        self.dev("test")
        for package in TEST_PACKAGES:
            self.assertIn(package, (self.folder / "asked").read_text())

    def test_failing_packages_show_the_end_of_the_log_and_its_name(self):
        self.nothing_is_installed()
        code, said = self.dev("demo")
        self.assertEqual(code, 1)
        self.assertIn("E: no space left", said)
        self.assertIn("apt-get install failed; everything that it said is in", said)
        self.assertIn("E: no space left", (self.folder / "build/setup.log").read_text())

    def test_failing_compiler_is_heard(self):
        self.program("cmake", 'if [[ $1 == --preset ]]; then mkdir -p build/release; exit; fi\n'
                     'echo "@0/3 Re-checking"; echo "@1/3 Building a"; echo "@2/3 Building b"; echo "b.cpp:1: error: no such thing"; exit 1')
        code, said = self.dev("demo")
        self.assertEqual(code, 1)
        self.assertIn("b.cpp:1: error: no such thing", said)
        self.assertIn("the build failed", said)
        self.assertNotIn("Building a", said)

    def test_time_that_is_left_is_not_guessed_from_the_first_step(self):
        self.program("cmake", 'if [[ $1 == --preset ]]; then mkdir -p build/release; exit; fi\n'
                     'echo "@1/2 Re-checking"; for n in {1..50}; do echo "@$n/50 Building"; done; exit 1')
        said = self.dev("demo")[1]
        self.assertEqual([line.split(",")[0].strip() for line in said.splitlines() if line.endswith(" left")],
                         ["10 of 50", "20 of 50", "30 of 50", "40 of 50", "50 of 50"])

    def estimate(self, load, cores=2, quota="max", jobs=2, cpu_seconds=180):
        """(least, most) seconds that dev says before a build."""
        (self.folder / "load").write_text(f"{load} 0.00 0.00 1/2 3\n")
        (self.folder / "cpu.max").write_text(f"{quota} 100000\n")
        said = self.function(f"say_build_time {cpu_seconds}", cores=cores, jobs=jobs)
        times = re.match(r" +(?:(\d+) (s|min) to )?(\d+) (s|min) on this machine", said)
        self.assertIsNotNone(times, said)
        seconds = [int(count) * (60 if unit == "min" else 1) for count, unit in (times.groups()[:2], times.groups()[2:]) if count]
        return seconds[0], seconds[-1], said

    def function(self, call, cores=2, jobs=2):
        """What a function of dev prints, without its commands."""
        text = (self.folder / "dev").read_text()
        parts = re.findall(r"^(?:minutes|from_to|core_hundredths|load_hundredths|build_seconds|say_build_time|time_left|show_build)\(\) \{\n.*?^\}",
                           text, re.S | re.M)
        script = "\n".join([*parts, f"nproc() {{ echo {cores}; }}", f"parallel_jobs() {{ echo {jobs}; }}", call])
        environment = {"PATH": os.environ["PATH"], "loadavg": str(self.folder / "load"), "cgroup_cpu": str(self.folder / "cpu.max")}
        done = subprocess.run(["bash", "-euc", script], env=environment, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_an_estimate_is_a_range_that_load_moves(self):
        least, most, said = self.estimate("0.10")
        self.assertTrue(least < 90 < most, said)  # of 180 s on two cores
        self.assertNotIn("load", said)
        loaded_least, loaded_most, said = self.estimate("14.50")
        self.assertTrue(loaded_least > most and loaded_most > 720, said)  # it took 13 minutes beside such a load
        self.assertIn("load 14", said)

    def test_an_estimate_counts_the_cores_that_a_container_may_use(self):
        self.assertGreater(self.estimate("0.00", cores=16, jobs=16, quota="200000")[0], 40)
        self.assertLess(self.estimate("0.00", cores=16, jobs=16)[1], 40)
        self.assertEqual(self.estimate("0.00", cores=2, quota="400000")[:2], self.estimate("0.00", cores=2)[:2])
        self.assertGreater(self.estimate("8.00", cores=16, jobs=2)[1], 90)
        self.assertEqual(self.estimate("0.00", cores=16, jobs=2)[:2], self.estimate("0.00")[:2], "two at a time take no more")

    def test_time_that_is_left_is_between_the_pace_of_all_steps_and_of_the_last_ones(self):
        # 60 steps in the first minute, then one in ten seconds: 40 are left.
        steps = "began=0 paces=(0 0 0 0) SECONDS=60; time_left 60 100; SECONDS=100; time_left 64 104; echo $time_left"
        self.assertEqual(self.function(steps), "62 s to 7 min\n")

    def test_demo_builds_the_tool_and_the_libraries_only(self):
        self.program("cmake", f'echo "$@" >> "{self.folder}/cmake"; mkdir -p build/release; [[ $1 == --preset ]]')
        self.assertIn(" on this machine (1 at a time", self.dev("demo")[1])
        configure, build = (self.folder / "cmake").read_text().splitlines()
        self.assertIn("-DATTNFORGE_TESTS=OFF", configure)
        self.assertIn("attnforge_shared attnforge_torch attnforge_static attnforge_cli", build)

    def test_without_torch_tests_say_so_and_how_to_get_it(self):
        self.program("cmake", "mkdir -p build/release")
        self.program("ctest", "exit 0")
        self.program("python3", "exit 1")
        code, said = self.dev("test")
        self.assertEqual(code, 0)
        self.assertIn("through torch are skipped: python3 has no torch; ./dev torch", said)

    def test_a_torch_that_cannot_be_fetched_fails(self):
        shutil.copytree(ROOT / "tools", self.folder / "tools")
        self.program("python3", '[[ $* == *"import ensurepip"* ]] || { echo "no line to the index"; exit 1; }')
        code, said = self.dev("torch")
        self.assertEqual(code, 1)
        self.assertIn("no line to the index", said)
        self.assertIn("pip install of torch failed; everything that it said is in", said)

    def test_the_container_installs_what_dev_asks_for_and_builds_by_it(self):
        text = (ROOT / "tools/Containerfile").read_text()
        packages = re.search(r"^readonly packages=\(([^)]*)\)", (ROOT / "dev").read_text(), flags=re.M).group(1).split()
        self.assertGreater(len(packages), 5)
        self.assertEqual([package for package in packages if package not in text], [])
        self.assertIn("./dev build tool", text)


if __name__ == "__main__":
    unittest.main()
