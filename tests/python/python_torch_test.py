#!/usr/bin/env python3
"""All tests that need the real torch, in one process, which loads it once.

usage: ATTNFORGE_LIBRARY=libattnforge.so python_torch_test.py PACKAGE_FOLDER [unittest arguments]
Each of them is also a program of its own, which is run in the same way.
"""

import importlib
import sys
import unittest

import fresh_process  # noqa: F401

MODULES = (
    "python_autograd_test", "python_coming_from_test", "python_distributed_test", "python_engines_test", "python_integrations_test",
    "python_reference_test", "python_shim_test",
)  # fmt: skip

for name in MODULES:
    sys.argv.insert(1, sys.argv[1])  # each takes its own
    importlib.import_module(name)
del sys.argv[1]

if __name__ == "__main__":
    unittest.main(module=None, argv=sys.argv if len(sys.argv) > 2 else [sys.argv[0], *sys.argv[1:], *MODULES])
