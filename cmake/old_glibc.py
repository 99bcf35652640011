#!/usr/bin/env python3
"""Makes libraries to link with in place of this machine's glibc: what an older glibc has of it, by the names and versions that it had.

usage: old_glibc.py VERSION COMPILER FOLDER

A glibc keeps every version of a function that it ever had. Linkers take the newest; of these libraries, which have no code, the newest that
VERSION knows. What first came later is not there, and a link that needs it fails: old_glibc.c has what this project needs of that.
"""
import pathlib
import re
import subprocess
import sys

# dlopen() and threads had libraries of their own before 2.34. A symbol is looked up in all that are loaded, so that these need only be named.
EMPTY = {"dl": "libdl.so.2", "pthread": "libpthread.so.0"}
FULL = {"c": "libc.so.6", "m": "libm.so.6"}


def run(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def number(version):
    return tuple(map(int, version.split(".")))


def symbols(library, newest):
    """{name: (version, type, size)} of a library, each as of `newest`."""
    found = {}
    for line in run("readelf", "--dyn-syms", "--wide", library).splitlines():
        fields = re.match(r" *\d+: \w+ +(\w+) (FUNC|IFUNC|OBJECT) +(?:GLOBAL|WEAK) +DEFAULT +\d+ (\w+)@@?GLIBC_([\d.]+)", line)
        if fields:
            size, kind, name, version = fields.groups()
            if number(version) <= newest and number(version) > number(found.get(name, ("0",))[0]):
                found[name] = version, kind, int(size, 0)
    return found


def assembly(found):
    lines = [".section .note.GNU-stack", ".bss"]
    for i, (name, (version, kind, size)) in enumerate(found.items()):
        what = "object" if kind == "OBJECT" else "function"
        lines += [f".globl s{i}", f".type s{i}, %{what}", f".size s{i}, {size or 1}", f"s{i}: .zero {size or 1 if what == 'object' else 1}",
                  f'.symver s{i}, {name}@@@GLIBC_{version}']
    return "\n".join(lines) + "\n"


def make(compiler, folder, name, soname, found):
    (folder / f"{name}.s").write_text(assembly(found))
    versions = sorted({version for version, _, _ in found.values()}, key=number)
    (folder / f"{name}.map").write_text("".join(f"GLIBC_{version} {{}};\n" for version in versions) or "{};\n")
    options = f"-Wl,-soname,{soname},--version-script,{folder}/{name}.map"
    run(compiler, "-shared", "-nostdlib", options, folder / f"{name}.s", "-o", folder / soname)
    script = pathlib.Path(run(compiler, "-print-file-name=libc.so").strip()).read_text() if name == "c" else "INPUT(libc.so.6)"
    (folder / f"lib{name}.so").write_text(re.sub(r"[^\s(]*libc\.so\.6", str(folder / soname), script))  # libc.so has static parts too


def main(version, compiler, folder):
    folder = pathlib.Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for name, soname in {**FULL, **EMPTY}.items():
        library = run(compiler, f"-print-file-name={soname}").strip()
        make(compiler, folder, name, soname, symbols(library, number(version)) if name in FULL else {})


if __name__ == "__main__":
    main(*sys.argv[1:])
