#!/usr/bin/env python3
"""A build that took its headers from pip wheels installs their NVRTC beside the library; one that did not installs none.

usage: nvrtc_of_wheel.py ROOT CMAKE_GENERATOR
"""
import sys

from installation import run, temporary_folder

PROJECT = """cmake_minimum_required(VERSION 3.22)
project(nvrtc_of_wheel LANGUAGES NONE)
set(CMAKE_INSTALL_LIBDIR lib64)
include({root}/cmake/InstallNvrtc.cmake)
attnforge_install_nvrtc("${{FOLDERS}}")
message(STATUS "installed: ${{ATTNFORGE_NVRTC_INSTALLED}}")
"""


def installed(root, generator, folder, name, *definitions):
    """Names below the prefix of a project configured with `definitions`."""
    run(["cmake", "-G", generator, "-S", folder, "-B", folder / name, *definitions])
    run(["cmake", "--install", folder / name, "--prefix", folder / f"{name}-prefix"])
    prefix = folder / f"{name}-prefix"
    return sorted(str(file.relative_to(prefix)) for file in prefix.rglob("*") if file.is_file())


def main(root, generator):
    with temporary_folder() as folder:
        (folder / "CMakeLists.txt").write_text(PROJECT.format(root=root))
        for place in ("venv/lib/python3.11/site-packages/nvidia/cu13", "toolkit"):
            for file in ("include/nvrtc.h", "lib/libnvrtc.so.13", "lib/libnvrtc.alt.so.13", "lib/libnvrtc-builtins.so.13.0",
                         "lib/libnvrtc-builtins.alt.so.13.0", "lib/libnvrtc_static.a"):
                (folder / place / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / place / file).write_text("")
        wheel = f"-DFOLDERS={folder}/toolkit/nothing;{folder}/venv/lib/python3.11/site-packages/nvidia/cu13/include"
        expected = ["lib64/attnforge/libnvrtc-builtins.so.13.0", "lib64/attnforge/libnvrtc.so.13"]
        for name, definitions, wanted in (
            ("wheel", [wheel], expected),
            ("toolkit", [f"-DFOLDERS={folder}/toolkit/include"], []),
            ("unwanted", [wheel, "-DATTNFORGE_INSTALL_NVRTC=OFF"], []),
        ):
            files = installed(root, generator, folder, f"build-{name}", *definitions)
            if files != wanted:
                sys.exit(f"{name}: installed {files}, not {wanted}")


if __name__ == "__main__":
    main(*sys.argv[1:])
