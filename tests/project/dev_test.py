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
        environment = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "CUDA_HOME": str(self.folder / "cuda"), "JOBS": "1"}
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

    def test_demo_builds_the_tool_and_the_libraries_only(self):
        self.program("cmake", f'echo "$@" >> "{self.folder}/cmake"; mkdir -p build/release; [[ $1 == --preset ]]')
        self.assertIn("   about ", self.dev("demo")[1])
        configure, build = (self.folder / "cmake").read_text().splitlines()
        self.assertIn("-DATTNFORGE_TESTS=OFF", configure)
        self.assertIn("attnforge_shared attnforge_static attnforge_cli", build)

    def test_the_container_installs_what_dev_asks_for_and_builds_by_it(self):
        text = (ROOT / "tools/Containerfile").read_text()
        packages = re.search(r"^readonly packages=\(([^)]*)\)", (ROOT / "dev").read_text(), flags=re.M).group(1).split()
        self.assertGreater(len(packages), 5)
        self.assertEqual([package for package in packages if package not in text], [])
        self.assertIn("./dev build tool", text)


if __name__ == "__main__":
    unittest.main()
