#!/usr/bin/env python3
"""Checks that libattnforge.so shows the functions and classes of include/attnforge, all of them, and nothing else; and that
libattnforge.a shows the same, so that its fmt and JSON cannot clash with those of the program that it is linked into.

usage: exported_symbols.py ROOT LIBRARY [STATIC_LIBRARY]
"""
import pathlib
import re
import subprocess
import sys


def declared(root):
    """Names in the public headers: C functions, C++ free functions, C++ classes with members out of line."""
    c_functions, functions, classes, unmarked = set(), set(), set(), []
    for header in sorted((root / "include" / "attnforge").glob("*.h")):
        of_c = re.fullmatch(r"c(_\w+)?\.h", header.name) is not None
        text = re.sub(r"//.*|/\*.*?\*/", "", header.read_text(), flags=re.S if of_c else 0)
        if of_c:
            c_functions |= set(re.findall(r"\b(attnforge_\w+)\s*\([^;{}]*\)\s*;", text))
            continue
        # Declarations at namespace scope start in the first column; a function with a body is none.
        no_body = r"(?:(?!\) \{).)*?"
        for match in re.finditer(r"^(?!namespace|using|#|class|struct|enum|inline|template|typedef|\})[\w\[]"
                                 rf"{no_body}\b(\w+)\({no_body}\)\s*;", text, flags=re.M | re.S):
            functions.add(match.group(1))
            if "ATTNFORGE_API" not in match.group(0):
                unmarked.append(f"{header.name}: {match.group(1)}()")
        for match in re.finditer(r"^class (?:ATTNFORGE_API )?(\w+)[^;]*?\{(.*?)^\};", text, flags=re.M | re.S):
            classes.add(match.group(1))
            if not match.group(0).startswith("class ATTNFORGE_API"):
                unmarked.append(f"{header.name}: class {match.group(1)}")
    return c_functions, functions, classes, unmarked


def exported(library):
    out = subprocess.run(["nm", "-D", "--defined-only", "-C", library], check=True, capture_output=True, text=True).stdout
    return [line.split(" ", 2)[2] for line in out.splitlines() if line.split(" ", 2)[1] not in "A"]


def raw_symbols(library, *options):
    out = subprocess.run(["nm", "--defined-only", "--format=posix", *options, library], check=True, capture_output=True, text=True).stdout
    return {line.split()[0].split("@")[0] for line in out.splitlines() if len(line.split()) > 2}


def name_of(symbol):
    """("c", name), ("cpp", first identifier below attnforge::) or ("other", symbol)."""
    if re.fullmatch(r"attnforge_\w+", symbol):
        return "c", symbol
    match = re.match(r"(?:typeinfo for |typeinfo name for |vtable for |guard variable for )?attnforge::(\w+)", symbol)
    return ("cpp", match.group(1)) if match else ("other", symbol)


def main(root, library, static=None):
    c_functions, functions, classes, unmarked = declared(root)
    symbols = exported(library)
    names = {name_of(symbol) for symbol in symbols}
    problems = [f"exported but not public: {symbol}" for symbol in symbols
                if not (name_of(symbol) in {("c", n) for n in c_functions}
                        or name_of(symbol) in {("cpp", n) for n in functions | classes})]
    problems += [f"declared for C but not exported: {n}" for n in sorted(c_functions) if ("c", n) not in names]
    problems += [f"declared but not exported: attnforge::{n}" for n in sorted(functions) if ("cpp", n) not in names]
    problems += [f"without ATTNFORGE_API: {n}" for n in unmarked]
    if static:
        differ = raw_symbols(library, "-D") ^ raw_symbols(static, "-g")
        problems += [f"visible in one of both libraries only: {symbol}" for symbol in sorted(differ)]
    print("\n".join(problems))
    print(f"{len(symbols)} exported symbols; {len(c_functions)} C functions, {len(functions)} C++ functions and "
          f"{len(classes)} classes declared; {len(problems)} problems")
    return bool(c_functions) and bool(functions) and bool(classes) and not problems


if __name__ == "__main__":
    sys.exit(0 if main(pathlib.Path(sys.argv[1]), *sys.argv[2:]) else 1)
