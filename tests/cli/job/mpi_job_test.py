"""attnforge tune --mpi under mpirun on one machine, on the fake driver: problems are handed out, results merged, losses survived.

    mpi_job_test.py ATTNFORGE_WITH_MPI ATTNFORGE FAKE_DRIVER_FOLDER FAKE_NVRTC
"""

import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

WITH_MPI, PLAIN, DRIVER, NVRTC = sys.argv[1:5]
PROBLEMS = "fwd fp16 seqlen=64,128,256,512 head_dim=64\nfwd bf16 seqlen=64,128 head_dim=128\n"
COUNT = 6


def children(pid):
    return [int(each) for each in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def ranks(launcher):
    """{rank: pid} of the processes that the launcher has started."""
    found = {}
    for pid in children(launcher):
        try:
            names = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for name in names:
            if name.startswith(b"OMPI_COMM_WORLD_RANK="):
                found[int(name.split(b"=")[1])] = pid
    return found


class MpiJob(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.problems = self.folder / "problems.txt"
        self.problems.write_text(PROBLEMS)

    def environment(self, compile_ms):
        return os.environ | {
            "LD_LIBRARY_PATH": DRIVER, "ATTNFORGE_NVRTC": NVRTC, "FAKE_GPU_LAUNCH_US": "1", "FAKE_NVRTC_COMPILE_MS": str(compile_ms),
            "ATTNFORGE_LOG": "off", "ATTNFORGE_CACHE": str(self.folder / "none.db"), "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "TMPDIR": "/tmp"}  # paths of sockets are short

    def tune(self, database):
        return [WITH_MPI, "tune", "--mpi", str(self.problems), "--rigor", "quick", "--json", "--compile-threads", "2",
                "--cache", str(self.folder / database)]

    def start(self, *words, compile_ms=0):
        return subprocess.Popen(["mpirun", *words], env=self.environment(compile_ms), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True)

    def results(self, process):
        out, err = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 0, err + out)
        results = json.loads(out[out.index("{"):out.rindex("}") + 1])["results"]
        self.assertEqual(len(results), COUNT, out)
        for result in results:
            self.assertTrue(result.get("winner"), f"{result}\n{err}")
        return results

    def stored(self, database):
        lines = subprocess.run([PLAIN, "cache", "export", "--cache", str(self.folder / database)], check=True, capture_output=True,
                               text=True).stdout.splitlines()
        return {row["problem"] for row in map(json.loads, lines) if row["kind"] == "search"}

    def test_all_ranks_tune_and_the_first_has_all_results(self):
        results = self.results(self.start("-n", "4", *self.tune("a.db"), compile_ms=30))
        self.assertEqual(len(self.stored("a.db")), COUNT)
        self.assertEqual({result["device"]["ordinal"] for result in results}, {0, 1}, "a GPU each")

    def test_databases_of_other_machines_are_merged(self):
        self.results(self.start("-n", "1", *self.tune("first.db"), ":", "-n", "2", *self.tune("other.db"), compile_ms=30))
        others = self.stored("other.db")
        self.assertTrue(others)
        self.assertLess(len(others), COUNT, "the first one tuned nothing")
        self.assertEqual(len(self.stored("first.db")), COUNT)

    def test_what_is_known_goes_along(self):
        self.results(self.start("-n", "1", *self.tune("first.db")))
        results = self.results(self.start("-n", "1", *self.tune("first.db"), ":", "-n", "1", *self.tune("other.db")))
        same_gpu = [result for result in results if result["device"]["ordinal"] == 0]
        self.assertTrue(same_gpu)
        self.assertTrue(all(result["reused"] == result["tried"] for result in same_gpu))

    def wait_for(self, condition):
        end = time.monotonic() + 30
        while time.monotonic() < end:
            found = condition()
            if found:
                return found
            time.sleep(0.02)
        self.fail("it did not happen within 30 s")

    def test_a_rank_that_is_killed_is_no_loss(self):
        job = self.start("--enable-recovery", "-n", "3", *self.tune("a.db"), compile_ms=40)
        victim = self.wait_for(lambda: (lambda known: known.get(1) if len(known) == 3 and children(known[1]) else None)(ranks(job.pid)))
        os.kill(victim, signal.SIGKILL)
        self.results(job)
        self.assertEqual(len(self.stored("a.db")), COUNT)

    def test_a_problem_whose_process_is_killed_fails_alone(self):
        job = self.start("-n", "2", *self.tune("a.db"), compile_ms=40)
        victim = self.wait_for(lambda: [pid for rank in ranks(job.pid).values() for pid in children(rank)][:1])[0]
        os.kill(victim, signal.SIGKILL)
        out, err = job.communicate(timeout=100)
        self.assertEqual(job.returncode, 1, err)
        results = json.loads(out[out.index("{"):out.rindex("}") + 1])["results"]
        failed = [result for result in results if "error" in result]
        self.assertEqual(len(failed), 1)
        self.assertIn("signal 9 ended it", failed[0]["error"]["message"])
        self.results(self.start("-n", "2", *self.tune("a.db")))

    def test_without_mpi_it_says_what_to_do(self):
        process = subprocess.run([PLAIN, *self.tune("a.db")[1:]], env=self.environment(0), capture_output=True, text=True)
        if process.returncode == 0:
            self.skipTest("this attnforge was built with MPI")
        self.assertEqual(process.returncode, 3)
        self.assertIn("built without MPI", process.stderr)
        self.assertIn("--shard auto", process.stderr)


class SideBySide(unittest.TestSuite):
    """All tests at once: ranks mostly wait for compiles that sleep, and for one another."""

    def run(self, result, debug=False):
        def outcome(test):
            own = unittest.TestResult()
            test.run(own)
            return own

        tests = [test for case in self for test in case]
        with concurrent.futures.ThreadPoolExecutor(len(tests)) as pool:
            for test, own in zip(tests, pool.map(outcome, tests)):
                result.startTest(test)
                for _, said in own.errors + own.failures:
                    result.failures.append((test, said))
                for _, why in own.skipped:
                    result.addSkip(test, why)
                if own.wasSuccessful() and not own.skipped:
                    result.addSuccess(test)
        return result


def load_tests(loader, tests, pattern):
    return SideBySide(tests)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
