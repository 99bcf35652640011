#!/usr/bin/env python3
"""Makes the Python wheel, as pyproject.toml says but of the build at hand, installs it into a fresh virtual environment and uses it:
command, doctor, import, and a C++ program with its headers. The first run fetches scikit-build-core into BUILD_DIR; without it the test is skipped (77).

usage: wheel.py ROOT BUILD_DIR CMAKE_GENERATOR CXX_COMPILER
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

from installation import expect, nvrtc_of, run, temporary_folder, without_hints

# What is in the archives counts, not how small they are.
MAKE = """
import sys, zlib
smaller = zlib.compressobj
zlib.compressobj = lambda level, *rest: smaller(1, *rest)
from scikit_build_core import build
settings = {"cmake.source-dir": "tests/project/prebuilt", "build-dir": sys.argv[1] + "/tree", "cmake.define.ATTNFORGE_BUILD": sys.argv[2]}
print(build.build_wheel(sys.argv[1], settings))
print(build.build_sdist(sys.argv[1]))
"""

USE = """
import os, sys
import attnforge
assert not {"torch", "cupy", "numpy"} & set(sys.modules), "import attnforge imports a framework"
print(attnforge.library_path(), attnforge.version())
attnforge.inspect("fwd bf16 seqlen=256 head_dim=64", arch="sm_86")
"""

PROJECT = """cmake_minimum_required(VERSION 3.22)
project(user LANGUAGES CXX)
find_package(attnforge REQUIRED)
add_executable(user {root}/tests/project/consumer/main.cpp)
target_link_libraries(user attnforge::attnforge)
"""


ROOT = pathlib.Path(__file__).resolve().parents[2]


def builder(build):
    """Python of a virtual environment that has scikit-build-core, or None."""
    home = pathlib.Path(build) / "wheel_builder"
    python = home / "bin" / "python3"
    works = [python, "-c", "import hatch_fancy_pypi_readme, scikit_build_core"]
    if python.exists() and subprocess.run(works).returncode == 0:
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
    fetched = subprocess.run([python, "-m", "pip", "install", "--quiet", "--retries", "1", "pip>=22.3", "scikit-build-core>=0.10",
                              "hatch-fancy-pypi-readme>=24"])
    return python if fetched.returncode == 0 else None


def check_contents(wheel):
    """Everything that an installed wheel needs is in it, and nothing twice."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    for wanted in ("__init__.py", "bin/attnforge", "lib/libattnforge.so.0.1", "lib/libattnforge_torch.so", "lib/cmake/attnforge/attnforgeConfig.cmake",
                   "include/attnforge/plan.h", "include/attnforge/c.h", "include/attnforge/c_tensors.h"):
        if f"attnforge/{wanted}" not in names:
            sys.exit(f"the wheel has no attnforge/{wanted}")
    if [name for name in names if re.search(r"nvrtc|\.a$|share/", name)] or len([name for name in names if ".so" in name]) != 2:
        sys.exit(f"the wheel has what it should not: {names}")
    for wanted in ("Requires-Dist: nvidia-cuda-nvrtc", "Keywords: ", "Classifier: Typing :: Typed", "Description-Content-Type: text/markdown", "# attnforge"):
        if f"\n{wanted}" not in metadata:
            sys.exit(f"the wheel's metadata lacks '{wanted}'")
    if re.search(r"\]\((?!https?:)|<!--", metadata):
        sys.exit("the wheel's description has a link or a picture that leads nowhere outside of the repository")


def checkout(folder):
    """A copy of the files that git knows, beside a build and what else there may be: each file that is there costs a millisecond. Without
    git, the sources as they are. Gives the folder and the files."""
    known = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split("\n")[:-1]
    if not known:
        return ROOT, ["CMakeLists.txt"]
    for name in known:
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    for other in ("build/release", ".venv", "dist"):
        (folder / other).mkdir(parents=True)
        (folder / other / "made.txt").touch()
    return folder, known


def check_sources(archive, known):
    with tarfile.open(archive) as tar:
        names = {name.split("/", 1)[-1] for name in tar.getnames()}
    missing = {name for name in known if not name.startswith((".ci/", ".github/")) and (ROOT / name).exists()} - names
    if missing or any(name.startswith(("build", ".venv", "dist")) for name in names):
        sys.exit(f"the source archive lacks {sorted(missing)} or has build trees")


def main(root, build, generator, compiler):
    python = builder(build)
    if python is None:
        print("skipped: pip cannot fetch scikit-build-core")
        sys.exit(77)
    with temporary_folder() as folder:
        sources, known = checkout(folder / "sources")
        run([python, "-c", MAKE, folder, build], cwd=sources)
        wheel = next(folder.glob("*.whl"))
        if not re.fullmatch(r"attnforge-[\d.]+-py3-none-linux_x86_64\.whl", wheel.name):
            sys.exit(f"{wheel.name} is not for every Python 3 on this machine")
        check_contents(wheel)
        check_sources(next(folder.glob("*.tar.gz")), known)

        run([sys.executable, "-m", "venv", "--without-pip", folder / "fresh"])
        fresh = folder / "fresh" / "bin"
        run([python, "-m", "pip", "--python", fresh / "python3", "install", "--quiet", "--no-compile", "--no-deps", "--no-index", wheel])
        site = next((folder / "fresh" / "lib").glob("python3*/site-packages"))
        used = nvrtc_of(pathlib.Path(build) / "bin" / "attnforge")
        laid = site / "nvidia" / "cu13" / "lib"  # where the dependency's wheel lays it
        laid.mkdir(parents=True)
        for pattern in ("libnvrtc.so.[0-9]*", "libnvrtc-builtins.so.[0-9]*"):
            for file in used.parent.glob(pattern):
                shutil.copyfile(file, laid / file.name)

        environment = dict(without_hints(), ATTNFORGE_CACHE=":memory:")
        expect(run([fresh / "attnforge", "--version"], env=environment, cwd=folder), "0.1")
        if nvrtc_of(fresh / "attnforge", environment).parent != laid:
            sys.exit(f"the installed command does not use the NVRTC in {laid}")
        expect(run([fresh / "python3", "-c", USE], env=environment, cwd=folder), site / "attnforge" / "lib" / "libattnforge.so.0.1")

        (folder / "CMakeLists.txt").write_text(PROJECT.format(root=root))
        run(["cmake", "-G", generator, "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={site}/attnforge",
             f"-DCMAKE_CXX_COMPILER={compiler}"])
        run(["cmake", "--build", folder / "build"])
        expect(run([folder / "build" / "user"], env=environment), laid)


if __name__ == "__main__":
    main(*sys.argv[1:])
