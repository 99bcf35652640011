#!/usr/bin/env python3
"""tools/with_torch.sh with a python of its own: which one runs a program, and that an environment is there whole or not at all.

usage: with_torch_test.py ROOT
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()

# $FOLDER/has_torch: it can be imported. -m venv makes a copy that has a folder for packages, and pip a torch there.
PYTHON = r"""#!/bin/bash
folder=$(dirname "$0")
case "$1 $2" in
  "--version ") echo "Python ${FAKE_VERSION:-3.12.1}" ;;
  "-c "*) [[ -f $folder/has_torch ]] ;;
  "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python3" ;;
  "-m pip")
    echo "$@" >> "$FAKE_LOG"
    case ${FAKE_PIP:-} in
      fails) echo "ERROR: no space left"; exit 1 ;;
      waits) touch "$FAKE_LOG.waits"; exec sleep 60 ;;
      broken) ;;
      *) touch "$folder/has_torch" ;;
    esac
    ;;
  *) echo "ran $* with $0" ;;
esac
"""


class WithTorch(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="attnforge torch "))
        self.addCleanup(shutil.rmtree, self.folder)
        self.cache = self.folder / "cache" / "attnforge"
        for name in ("with_torch.sh", "torch_requirements.txt"):
            (self.folder / "tools").mkdir(exist_ok=True)
            shutil.copy(ROOT / "tools" / name, self.folder / "tools" / name)
        self.python = self.folder / "python3"
        self.python.write_text(PYTHON)
        self.python.chmod(0o755)
        self.log = self.folder / "asked"

    def start(self, *words, **more):
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache"), "FAKE_LOG": str(self.log), **more}
        return subprocess.Popen(["bash", str(self.folder / "tools/with_torch.sh"), *map(str, words)], env=environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)

    def call(self, *words, **more):
        done = self.start(*words, **more)
        return done.communicate(timeout=30)[0], done.returncode

    def made(self):
        return [path.name for path in self.cache.glob("torch-*")]

    def test_a_python_that_has_torch_runs_the_program(self):
        self.call("--make", self.python)
        (self.folder / "has_torch").touch()
        self.assertEqual(self.call(self.python, "a_test.py", "-v"), (f"ran a_test.py -v with {self.python}\n", 0))

    def test_without_torch_it_is_skipped_with_a_word_how_to_get_it(self):
        said, code = self.call(self.python, "/there/a_test.py")
        self.assertEqual(code, 77)
        self.assertIn("a_test.py: skipped:", said)
        self.assertIn("./dev torch", said)
        self.assertIn("  torch ", (ROOT / "dev").read_text())
        self.assertEqual(self.call("--find", self.python), ("", 77))

    def test_an_environment_is_made_once_for_a_python_and_its_requirements(self):
        for _ in range(2):
            self.assertEqual(self.call("--make", self.python)[1], 0)
        self.assertEqual(len(self.log.read_text().splitlines()), 1)
        self.assertIn(f"-r {self.folder}/tools/torch_requirements.txt", self.log.read_text())
        said, code = self.call(self.python, "a_test.py")
        self.assertEqual((said, code), (f"ran a_test.py with {self.cache}/{self.made()[0]}/bin/python3\n", 0))
        self.assertEqual(self.call(self.python, "a_test.py", FAKE_VERSION="3.13.0")[1], 77, "packages are of one Python")
        with open(self.folder / "tools/torch_requirements.txt", "a") as file:
            file.write("another==1\n")
        self.assertEqual(self.call(self.python, "a_test.py")[1], 77)

    def test_what_cannot_be_installed_or_imported_leaves_no_environment(self):
        for way in ("fails", "broken"):
            self.assertNotEqual(self.call("--make", self.python, FAKE_PIP=way)[1], 0, way)
            self.assertEqual(self.call("--find", self.python), ("", 77), way)
        self.assertEqual(self.call("--make", self.python)[1], 0)
        self.assertEqual(self.call(self.python, "a_test.py")[1], 0)

    def test_a_run_that_is_killed_leaves_nothing_that_is_used(self):
        killed = self.start("--make", self.python, FAKE_PIP="waits")
        deadline = time.monotonic() + 30
        while not os.path.exists(f"{self.log}.waits") and time.monotonic() < deadline:
            time.sleep(0.01)
        os.killpg(killed.pid, 9)
        killed.communicate()
        self.assertTrue(self.made())
        self.assertEqual(self.call("--find", self.python), ("", 77))
        self.assertEqual(self.call("--make", self.python)[1], 0)
        self.assertEqual([name for name in self.made() if name.endswith(".part")], [])
        self.assertEqual(self.call(self.python, "a_test.py")[1], 0)

    def test_nobody_else_may_write_to_the_folder(self):
        self.call("--make", self.python)
        self.assertEqual(self.cache.stat().st_mode & 0o077, 0)


if __name__ == "__main__":
    unittest.main()
