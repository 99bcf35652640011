#!/usr/bin/env python3
"""Writes python/attnforge/_c.py, the C API for ctypes, from include/attnforge/c.h and the headers that it includes.

    python3 tools/c_mirror.py           # writes _c.py
    python3 tools/c_mirror.py --check   # fails when it differs from what would be written

The headers are read by their form, not parsed. A type that is not known here ends it with the line.
"""

import pathlib
import re
import sys
import textwrap

import written

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = [ROOT / "include/attnforge" / name for name in ("c_tensors.h", "c.h", "c_block_mask.h", "c_tools.h")]
MIRROR = ROOT / "python/attnforge/_c.py"
START = '''\
"""The structs, constants and functions of include/attnforge/c.h and the headers that it includes. Written by tools/c_mirror.py; change those."""

from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
'''
SCALARS = {"int": "c_int", "attnforge_status": "c_int", "double": "c_double", "size_t": "c_size_t"}
SCALARS.update({f"{sign}int{bits}_t": f"c_{sign}int{bits}" for sign in ("", "u") for bits in (32, 64)})


def camel(name):
    """attnforge_plan_options: PlanOptions."""
    return "".join(word.capitalize() for word in name.removeprefix("attnforge_").split("_"))


class Types:
    """What a C type is for ctypes; knows the structs and callbacks that were declared so far."""

    def __init__(self):
        self.structs, self.callbacks = set(), set()

    def of(self, text):
        """Strings that are read are c_char_p. Other pointers, and strings that the library allocates, are addresses."""
        text = " ".join(text.replace("*", " * ").split())
        if text == "const char *":
            return "c_char_p"
        if text.endswith("*"):
            return "c_void_p"
        if text in SCALARS:
            return SCALARS[text]
        if text in self.structs | self.callbacks:
            return camel(text)
        raise SystemExit(f"tools/c_mirror.py: no type of ctypes is known for: {text}")

    def of_callback(self, text):
        """A struct that a callback is shown may be looked into."""
        struct = re.fullmatch(r"const (\w+) ?\*", text)
        return f"POINTER({camel(struct[1])})" if struct and struct[1] in self.structs else self.of(text)


def parameters(text):
    """Types of a list of parameters."""
    return [] if text.strip() == "void" else [re.sub(r"\w+$", "", part.strip()) for part in text.split(",")]


def wrapped(lead, items, end):
    """A list over as many lines as it takes."""
    one = f"{lead}{', '.join(items)}{end}"
    if len(one) <= 130:
        return one
    indent = " " * (len(lead) - len(lead.lstrip()))
    lines, text = [], ", ".join(item.replace(" ", "\0") for item in items) + ","
    for line in textwrap.wrap(text, 130, initial_indent=indent + "    ", subsequent_indent=indent + "    "):
        lines.append(line.replace("\0", " "))
    return "\n".join([lead, *lines, indent + end])


def mirror():
    """The text of _c.py."""
    types, out, functions = Types(), [START], []
    code = "\n".join(re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S) for path in HEADERS)
    constants = [("ABI_VERSION", re.search(r"#define ATTNFORGE_ABI_VERSION (\d+)", code)[1])]
    constants += re.findall(r"\bATTNFORGE_(\w+) = (\d+)", code)
    out.append("\n".join(f"{name} = {value}" for name, value in constants))
    declared = (
        r"typedef struct (?P<struct>\w+) \{(?P<fields>.*?)\}"
        r"|typedef (?P<result>\w+) \(\*(?P<callback>\w+)\)\((?P<shown>.*?)\);"
        r"|ATTNFORGE_API (?P<type>[^();]*?)(?P<function>attnforge_\w+)\((?P<taken>.*?)\);"
    )
    for found in re.finditer(declared, code, flags=re.S):
        if found["struct"]:
            fields = re.findall(r"([^;]+?)(\w+);", " ".join(found["fields"].split()))
            items = [f'("{name}", {types.of(kind)})' for kind, name in fields]
            out.append(f"\n\nclass {camel(found['struct'])}(Structure):\n" + wrapped("    _fields_ = [", items, "]"))
            types.structs.add(found["struct"])
        elif found["callback"]:
            result = "None" if found["result"] == "void" else types.of(found["result"])
            shown = [types.of_callback(kind.strip()) for kind in parameters(found["shown"])]
            out.append(f"\n\n{camel(found['callback'])} = CFUNCTYPE({', '.join([result, *shown])})")
            types.callbacks.add(found["callback"])
        else:
            result = found["type"].strip()
            taken = [types.of(kind) for kind in parameters(found["taken"])]
            result = "None" if result == "void" else types.of(result)
            functions.append(wrapped(f'    "{found["function"]}": ({result}, [', taken, "]),"))
    out.append("\n\n# Result and arguments. Structs that are passed by their addresses are c_void_p, as handles are.")
    out.append("\n".join(["FUNCTIONS = {", *functions, "}"]))
    return "\n".join(out) + "\n"


def main():
    return written.main(__doc__, lambda: {MIRROR: mirror()}, lambda _: "python/attnforge/_c.py is not what tools/c_mirror.py writes: run it")


if __name__ == "__main__":
    sys.exit(main())
