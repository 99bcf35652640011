#!/usr/bin/env python3
"""The README's C++ and Python programs as they stand there, with the installed package: without a GPU the C++ one ends with a message,
on the fake driver both run through.

usage: readme_programs.py ROOT BUILD_DIR CMAKE_GENERATOR CXX_COMPILER CXX_FLAGS FAKE_DRIVER_DIR FAKE_NVRTC
"""
import pathlib
import re
import sys

from installation import expect, install, run, temporary_folder, without_hints

PROJECT = """cmake_minimum_required(VERSION 3.22)
project(readme LANGUAGES CXX)
add_executable(your_program main.cpp)
{}"""

# Runs the README's statements one by one, with the tensors that they take for granted: packed ones where their ends are given.
PYTHON = """
import sys
sys.path.insert(0, sys.argv[1])
from fake_torch import Torch
torch = sys.modules["torch"] = Torch()
names = {"ends": torch.Tensor((9,), "int32"), "lengths": torch.Tensor((2,), "int32")}
for line in open(sys.argv[2]):
    shape = (16384, 8, 64) if "cu_seqlens" in line else (2, 2048, 8, 64)
    names.update({name: torch.Tensor(shape) for name in "qkv"})
    print(line.strip(), flush=True)
    exec(line, names)
assert names["o"].shape == (2, 2048, 8, 64)
"""


def blocks(readme, language):
    """Text of the README's fenced blocks of a language, in order; there is at least one."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", readme, flags=re.M | re.S)
    if not found:
        sys.exit(f"a README has no block of {language}")
    return found


def main(root, build, generator, compiler, flags, fake_driver, fake_nvrtc):
    root = pathlib.Path(root)
    readme = (root / "README.md").read_text()
    with temporary_folder() as folder:
        prefix = folder / "prefix"
        libdir = install(build, prefix)
        (folder / "main.cpp").write_text(blocks(readme, "cpp")[0])
        (folder / "CMakeLists.txt").write_text(PROJECT.format(blocks((root / "examples" / "README.md").read_text(), "cmake")[0]))
        run(["cmake", "-G", generator, "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={prefix}",
             f"-DCMAKE_CXX_COMPILER={compiler}", f"-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror {flags}"])
        run(["cmake", "--build", folder / "build"])
        environment = dict(without_hints(), ATTNFORGE_CACHE=":memory:")
        nowhere = dict(environment, CUDA_VISIBLE_DEVICES="")
        output = run([folder / "build" / "your_program"], expected_code=1, env=nowhere)
        if not re.search("libcuda|GPU", output) or "terminate" in output:
            sys.exit("a missing GPU is not what the program tells")

        fake = dict(environment, LD_LIBRARY_PATH=fake_driver, ATTNFORGE_NVRTC=fake_nvrtc)
        expect(run([folder / "build" / "your_program"], env=dict(fake, FAKE_GPU_LAUNCH_US="100")), "block_n=")
        if "-fsanitize" not in flags:  # Python itself is not built with sanitizers
            (folder / "block.py").write_text(blocks(readme, "python")[0])
            package = dict(fake, PYTHONPATH=str(prefix / "share" / "attnforge" / "python"))
            run([sys.executable, "-c", PYTHON, root / "tests" / "python", folder / "block.py"], env=package)


if __name__ == "__main__":
    main(*sys.argv[1:])
