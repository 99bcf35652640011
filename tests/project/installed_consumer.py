#!/usr/bin/env python3
"""Installs the build into an empty folder and uses it from there: find_package (shared and static), pkg-config, CLI, headers.

usage: installed_consumer.py BUILD_DIR CONSUMER_DIR CMAKE_GENERATOR CXX_COMPILER CXX_FLAGS
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

EXPECTED = "fwd bf16"


def run(command, **kwargs):
    print("+", shlex.join(map(str, command)), flush=True)
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kwargs)
    print(done.stdout, end="", flush=True)
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode}")
    return done.stdout


def expect(text, wanted):
    if wanted not in text:
        sys.exit(f"expected {wanted!r} in this output")


def main(build, consumer, generator, compiler, flags):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="attnforge-consumer-"))
    try:
        staged, prefix = folder / "staged", folder / "moved"
        run(["cmake", "--install", build, "--prefix", staged])
        staged.rename(prefix)  # the package may be moved after it was installed

        own = sorted(p.name for p in (prefix / "include").iterdir())
        if own != ["attnforge"]:
            sys.exit(f"include/ holds {own}, not attnforge alone")
        for file in prefix.rglob("*"):
            if file.suffix in {".cmake", ".pc", ".h", ".py"} and str(build) in file.read_text():
                sys.exit(f"{file} names the build folder")

        run(["cmake", "-G", generator, "-S", consumer, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={prefix}",
             f"-DCMAKE_CXX_COMPILER={compiler}", f"-DCMAKE_CXX_FLAGS={flags}"])
        run(["cmake", "--build", folder / "build", "-j2"])
        for kind in ("shared", "static"):
            expect(run([folder / "build" / f"consumer_{kind}"]), EXPECTED)

        library = next(prefix.rglob("libattnforge.so"))
        needed = run(["readelf", "-d", library])
        expect(needed, "SONAME")
        if re.search(r"NEEDED.*(sqlite|zstd|xxhash|cuda|nvrtc|fmt)", needed):
            sys.exit("libattnforge.so needs a library that should be inside it or opened at run time")

        if shutil.which("pkg-config"):
            env = dict(os.environ, PKG_CONFIG_PATH=str(library.parent / "pkgconfig"))
            arguments = shlex.split(run(["pkg-config", "--cflags", "--libs", "attnforge"], env=env))
            run([compiler, *shlex.split(flags), "-std=c++20", pathlib.Path(consumer) / "main.cpp", "-o",
                 folder / "by_pkg_config", *arguments])
            expect(run([folder / "by_pkg_config"], env=dict(os.environ, LD_LIBRARY_PATH=str(library.parent))), EXPECTED)

        expect(run([prefix / "bin" / "attnforge", "--version"]), "0.1")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
