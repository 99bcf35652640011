#!/usr/bin/env python3
"""attnforge.distributed over gloo: one of two ranks decides, the other follows.

usage: ATTNFORGE_LIBRARY=libattnforge.so python_distributed_test.py PACKAGE_FOLDER [unittest arguments]
"""

import os
import sys
import tempfile
import unittest

import fresh_process

PACKAGE = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, PACKAGE)

PROBLEM = "fwd fp16 num_heads=2 seqlen=250 head_dim=64"
SAME_BUCKET = "fwd fp16 num_heads=2 seqlen=256 head_dim=64"
RANKS = """
import os, sys
sys.path.insert(0, sys.argv[1])
folder, problem, same_bucket, config = sys.argv[2:]
import attnforge, attnforge.distributed
from attnforge._plans import plan_of
from torch import distributed
other = os.fork()  # the library is not in use yet
rank = 1 if other == 0 else 0
os.environ["ATTNFORGE_CACHE"] = f"{folder}/{rank}.db"
distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
attnforge.configure(policy="estimate")
parse = attnforge.Problem.parse
def config_of(text):
    return plan_of(parse(text), 0).config
before = config_of(problem)
assert before != config, "nothing is tested: the model chooses it"
if rank == 0:
    attnforge.configure(config=config)
agreed = attnforge.distributed.agree(problems=[problem])
assert agreed == {parse(problem).bucket(): config}, agreed
attnforge.configure(config="")
assert config_of(same_bucket) == config_of(problem) == config, config_of(problem)
assert config_of("fwd fp16 num_heads=2 seqlen=1024 head_dim=64") != config
try:
    attnforge.distributed.agree(problems=["fwd fp16 seqlen=1 head_dim=7"])
except attnforge.AttnforgeError as error:
    assert "rank 0 could not decide" in str(error) and "head_dim=7" in str(error), error
else:
    raise AssertionError("nobody said that the first rank failed")
if other != 0:
    assert os.waitpid(other, 0)[1] == 0, "the other rank failed"
    print("both agreed")
"""


class Agree(unittest.TestCase):
    def test_one_rank_decides_and_the_other_follows(self):
        import attnforge

        candidates = attnforge.inspect(PROBLEM, arch="sm_90a", compile=False)["candidates"]
        config = next(each["config"] for each in reversed(candidates) if not each.get("cut"))
        with tempfile.TemporaryDirectory() as folder:
            code, said = fresh_process.run(RANKS, PACKAGE, folder, PROBLEM, SAME_BUCKET, config)
        self.assertEqual(code, 0, said)
        self.assertEqual(said.splitlines()[-1], "both agreed", said)


if __name__ == "__main__":
    unittest.main()
