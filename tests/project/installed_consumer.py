#!/usr/bin/env python3
"""Installs the build into an empty folder and uses it from there: find_package (shared and static), pkg-config, CLI, headers, the
Python package, and the NVRTC that lies beside the library.

usage: installed_consumer.py BUILD_DIR CONSUMER_DIR CMAKE_GENERATOR CXX_COMPILER CXX_FLAGS
"""
import os
import pathlib
import re
import shlex
import shutil
import sys

from installation import expect, install, nvrtc_of, run, temporary_folder, without_hints

EXPECTED = "fwd bf16"

# Compiles a kernel, then says which files of NVRTC this process has.
PYTHON = """
import attnforge
print(attnforge.library_path())
attnforge.inspect("fwd bf16 seqlen=256 head_dim=64", arch="86")
print("".join(sorted(set(line.split()[-1] + chr(10) for line in open("/proc/self/maps") if "nvrtc" in line))))
"""


def lay_nvrtc(build, libdir):
    """Has NVRTC and its builtins where a build with pip wheels installs them; gives the file that must be used."""
    laid = libdir / "attnforge"
    if not laid.exists():  # built with a toolkit
        used = nvrtc_of(pathlib.Path(build) / "bin" / "attnforge")
        laid.mkdir()
        for pattern in ("libnvrtc.so.[0-9]*", "libnvrtc-builtins.so.[0-9]*"):
            for file in used.parent.glob(pattern):
                shutil.copyfile(file, laid / file.name)
    if not list(laid.glob("libnvrtc-builtins.so.*")):
        sys.exit(f"{laid} has no libnvrtc-builtins")
    return next(laid.glob("libnvrtc.so.*")).resolve()


def main(build, consumer, generator, compiler, flags):
    sanitized = "-fsanitize" in flags  # Python itself is not built with sanitizers
    with temporary_folder() as folder:
        prefix = folder / "moved"
        libdir = install(build, prefix)
        own = sorted(p.name for p in (prefix / "include").iterdir())
        if own != ["attnforge"]:
            sys.exit(f"include/ holds {own}, not attnforge alone")
        for file in prefix.rglob("*"):
            if file.suffix in {".cmake", ".pc", ".h", ".py"} and str(build) in file.read_text():
                sys.exit(f"{file} names the build folder")
        nvrtc = lay_nvrtc(build, libdir)
        environment = without_hints()

        run(["cmake", "-G", generator, "-S", consumer, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={prefix}",
             f"-DCMAKE_CXX_COMPILER={compiler}", f"-DCMAKE_CXX_FLAGS={flags}"])
        run(["cmake", "--build", folder / "build", "-j2"])
        for kind in ("shared", "static"):
            output = run([folder / "build" / f"consumer_{kind}"], env=environment)
            expect(output, EXPECTED)
            expect(output, nvrtc)

        library = libdir / "libattnforge.so"
        needed = run(["readelf", "-d", library])
        expect(needed, "SONAME")
        if re.search(r"NEEDED.*(sqlite|zstd|xxhash|cuda|nvrtc|fmt)", needed):
            sys.exit("libattnforge.so needs a library that should be inside it or opened at run time")

        if shutil.which("pkg-config"):
            paths = dict(os.environ, PKG_CONFIG_PATH=str(libdir / "pkgconfig"))
            arguments = shlex.split(run(["pkg-config", "--cflags", "--libs", "attnforge"], env=paths))
            run([compiler, *shlex.split(flags), "-std=c++20", pathlib.Path(consumer) / "main.cpp", "-o",
                 folder / "by_pkg_config", *arguments])
            output = run([folder / "by_pkg_config"], env=dict(environment, LD_LIBRARY_PATH=str(libdir)))
            expect(output, EXPECTED)
            expect(output, nvrtc)

        expect(run([prefix / "bin" / "attnforge", "--version"]), "0.1")
        if nvrtc_of(prefix / "bin" / "attnforge", environment) != nvrtc:
            sys.exit(f"the installed program does not use {nvrtc}")
        if not sanitized:
            package = dict(environment, PYTHONPATH=str(prefix / "share" / "attnforge" / "python"), ATTNFORGE_CACHE=":memory:")
            output = run([sys.executable, "-c", PYTHON], env=package, cwd=folder)
            expect(output, libdir / "libattnforge.so")
            expect(output, nvrtc)
            expect(output, nvrtc.parent / "libnvrtc-builtins")
            expect(run([sys.executable, "-m", "attnforge", "--version"], env=package, cwd=folder), "0.1")


if __name__ == "__main__":
    main(*sys.argv[1:])
