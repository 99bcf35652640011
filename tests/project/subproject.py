#!/usr/bin/env python3
"""A project that adds this one: it gets the libraries, no tests, no programs, and needs no package of those. Its own file is compiled;
the library is not (that takes minutes) unless --whole is given. A compile without C++20 is refused in one sentence.

usage: subproject.py ROOT CMAKE_GENERATOR CXX_COMPILER CXX_FLAGS [--whole]
"""
import pathlib
import re
import sys

from installation import expect, run, temporary_folder

ONLY_OTHERS_NEED = ("GTest", "rapidcheck", "benchmark", "CLI11")


def main(root, generator, compiler, flags, *options):
    root = pathlib.Path(root)
    with temporary_folder() as folder:
        lines = re.search(r"^include\(FetchContent\).*?(?=^```)", (root / "examples" / "README.md").read_text(), flags=re.M | re.S)[0]
        (folder / "fetch.cmake").write_text(lines.replace("/path/of/the/clone", str(root)))
        fetch = f"-DFETCH={folder / 'fetch.cmake'}"
        run(["cmake", "-G", generator, "-S", root / "tests" / "project" / "subproject", "-B", folder / "build", fetch,
             f"-DCMAKE_CXX_COMPILER={compiler}", f"-DCMAKE_CXX_FLAGS={flags}", "-DCMAKE_BUILD_TYPE=Release",
             *[f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ONLY_OTHERS_NEED]])
        targets = run(["cmake", "--build", folder / "build", "--target", "help"])
        expect(targets, "attnforge_shared")
        for other in re.findall(r"\b(?:test_\w+|bench_\w+|attnforge_cli\w*|attnforge_test\w*|torture\w*|fuzz\w*)", targets):
            sys.exit(f"there is a target {other}")
        if "--whole" in options:
            run(["cmake", "--build", folder / "build", "-j2"])
            for kind in ("shared", "static"):
                expect(run([folder / "build" / f"user_{kind}"]), "fwd bf16")
        elif generator == "Ninja":  # one object, by its own command alone: ninja would make a library first, which that does not use
            objects = [line.split(":")[0] for line in run(["ninja", "-C", folder / "build", "-t", "targets", "all"]).splitlines()
                       if "user_shared.dir" in line and ".cpp.o:" in line]
            if len(objects) != 1:
                sys.exit(f"user_shared is not one object: {objects}")
            made = folder / "build" / objects[0]
            made.parent.mkdir(parents=True, exist_ok=True)
            run(["bash", "-c", run(["ninja", "-C", folder / "build", "-t", "commands", "-s", *objects])], cwd=folder / "build")
            if not made.exists():
                sys.exit("user_shared's object was not made")

        for header in sorted((root / "include" / "attnforge").glob("*.h")):
            if re.fullmatch(r"c(_\w+)?\.h", header.name):
                continue
            file = folder / "old.cpp"
            file.write_text(f"#include <attnforge/{header.name}>\n")
            command = [compiler, "-std=c++17", "-fsyntax-only", "-I", root / "include", file]
            errors = [line for line in run(command, expected_code=1).splitlines() if re.search(r":\d+:\d+: (fatal )?error: ", line)]
            if "attnforge needs C++20" not in errors[0] or len(errors) > 2:  # the second ends the compile
                sys.exit(f"{header.name} without C++20 is not refused in one sentence")


if __name__ == "__main__":
    main(*sys.argv[1:])
