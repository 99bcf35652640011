#!/usr/bin/env python3
"""Writes the API pages of docs/api from the comments of the public headers and the docstrings of the Python package.

    python3 tools/api_pages.py           # writes docs/api/c.md, cpp.md and python.md
    python3 tools/api_pages.py --check   # fails when a page differs from what would be written

A page begins with what stands there by hand, as far as the example. A header is read line by line, not parsed: it is formatted by
clang-format, a comment stands right before what it describes, and a blank line ends an entry. Examples are those of the sources: the
opening comment of c.h, the program of README.md, the docstring of the package.
"""

import ast
import inspect
import pathlib
import re
import sys
import textwrap

import written

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = ROOT / "include/attnforge"
sys.path.insert(0, str(ROOT / "python"))

import attnforge  # noqa: E402

# In reading order; every public header is in one of these, except:
OTHER_HEADERS = {"attnforge.h", "c.h", "c_tensors.h", "c_block_mask.h", "c_tools.h", "cxx20.h"}
CPP_HEADERS = {
    "Problems and plans": ("problem.h", "element_format.h", "code_texts.h", "device.h", "plan.h", "block_mask.h", "device_block_mask.h", "merge_states.h", "append_kv.h", "weights.h", "provenance.h", "error.h"),
    "Tuning and the database": ("tune.h", "cache.h"),
    "Looking": ("inspect.h", "assembly_info.h", "json.h", "problem_words.h", "printable.h", "version.h"),
    "For programs without data or memory of their own": ("host_tensors.h", "device_memory.h", "check.h", "measure.h"),
}
EXAMPLE = "## The smallest example"  # from here on a page is written


# ---- prose ----


def prose(lines, language="text"):
    """Markdown of a comment's lines: what is indented is code."""
    out, code = [], []
    for line in [*lines, None]:
        if line is not None and (line.startswith("  ") or (code and not line)):
            code.append(line)
            continue
        if code:
            indent = min(len(text) - len(text.lstrip()) for text in code if text)
            out += ["", f"```{language}", *"\n".join(text[indent:] for text in code).strip("\n").split("\n"), "```", ""]
            code = []
        out.append((line or "").replace("<", "\\<"))
    return re.sub(r"\n\n\n+", "\n\n", "\n".join(out)).strip()


def with_items(text, names):
    """Markdown in which every sentence that begins with `name: ` or `name, name: ` of `names` begins an item of a list."""
    one = f"(?:{'|'.join(names)})"
    paragraphs = []
    for paragraph in text.split("\n\n"):
        lead, *items = re.split(rf"(?:^|(?<=\.)\s)({one}(?:, {one})*): ", paragraph) if names else [paragraph]
        if items:
            paragraphs += [lead] if lead else []
            pairs = zip(items[::2], items[1::2])
            paragraphs.append("\n".join(textwrap.fill(f"- `{name}`: {rest}", 130, subsequent_indent="  ") for name, rest in pairs))
        else:
            paragraphs.append(paragraph)
    return "\n\n".join(paragraphs)


# ---- headers ----


def comment_text(line):
    """The text of a comment line of either style, without its marks."""
    line = re.sub(r"^\s*(///|//|/\*| \*(?!/)| \*/) ?", "", line)
    return re.sub(r"\s*\*/$", "", line).rstrip()


def opening(text):
    """(the lines of a header's first comment, the rest of the header)."""
    lines = text.splitlines()
    count = next(i for i, line in enumerate(lines) if not line.startswith(("//", "/*", " *")))
    return [comment_text(line) for line in lines[:count]], lines[count:]


ENDS = r"\#if|\#endif|\#else|\#include|\#pragma|namespace|}|extern\ "
# A declaration goes on in lines that are indented, and from a brace at the end of one to a brace that is not.
PIECES = re.compile(
    rf"""(?P<comment>(?://[^\n]*\n)+|/\*.*?\*/\n)
    |(?P<end>\n|(?:{ENDS})[^\n]*\n)
    |(?P<left_out>\#define\ ATTNFORGE_C_(?:\w+_)?H\n|\#define\ ATTNFORGE_API[^\n]*\n|class\ \w+;[^\n]*\n)  # the last one for its friends
    |(?P<macro>\#define(?:[^\n]*\\\n)*[^\n]*\n)
    |(?P<braces>(?:[^\n;]*\n\ )*[^\n;]*{{\n.*?\n}}[^\n]*\n)
    |(?P<lines>[^\n]*\n(?:\ [^\n]*\n)*)""",
    re.S | re.X,
)


def entries(lines):
    """Yields ("section", title) and ("entry", comment lines, declaration lines) in their order."""
    comment, declarations = [], []
    for piece in PIECES.finditer("\n".join([*lines, "", ""])):
        text = piece[0].splitlines()
        if piece.lastgroup in ("comment", "end"):
            if declarations:
                yield "entry", comment, declarations
            comment = [comment_text(line) for line in text] if piece.lastgroup == "comment" else []
            declarations = []
            title = comment and re.fullmatch(r"---- (.*) ----", comment[0])
            if title:
                yield "section", title[1]
                comment = []
        elif piece.lastgroup != "left_out":
            declarations = declarations + text


def shown(declaration):
    """A declaration as the page shows it: no export macro, no private part, no friends, no body of a free function."""
    aligned = re.compile(r"^" + " " * len("ATTNFORGE_API "))
    exported = any("ATTNFORGE_API " in line and not line.startswith("class ") for line in declaration)
    lines = [aligned.sub("", line) for line in declaration] if exported else declaration
    text = "\n".join(lines).replace("ATTNFORGE_API ", "")
    text = re.sub(r"[ \t]+\\\n", r" \\\n", text)
    text = re.sub(r"\n private:\n.*?(?=\n};)", "", text, flags=re.S)
    text = re.sub(r"\n  friend [^\n]*(?=\n)", "", text)
    text = re.sub(r"^((?:inline|constexpr) [^\n]*\)) \{(?:\n.*?\n\}|[^\n]*\})$", r"\1;", text, flags=re.S | re.M)
    return re.sub(r"\n\n(?=};)", "\n", re.sub(r"\n\n\n+", "\n\n", text))


def names_of(declaration):
    """What a heading calls a group of declarations."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/|ATTNFORGE_API ", "", "\n".join(declaration), flags=re.S)
    values = re.match(r"\s*enum \{(.*?)\}", text, flags=re.S)
    if values:
        return re.findall(r"(\w+) =", values[1])
    found = []
    forms = (
        r"(?:typedef )?(?:struct|enum class|class|enum) (\w+)",
        r"#define (\w+)",
        r"using (\w+)",
        r"typedef \w+ \(\*(\w+)\)",
        r"inline constexpr [^=(]*?(\w+) =",
        r"(?:\[\[noreturn\]\] )?[\w:][^(=;]*?[\s*&](\w+)\(",
    )
    for match in re.finditer("|".join(f"^{form}" for form in forms), text, flags=re.M):
        name = next(group for group in match.groups() if group)
        if name not in found:
            found.append(name)
    return found


def header_page(path, language, level):
    """Markdown of all entries of a header."""
    out = []
    for kind, *rest in entries(opening(path.read_text())[1]):
        if kind == "section":
            out.append(f"{'#' * (level - 1)} {rest[0]}")
            continue
        comment, declaration = rest
        names = ", ".join(f"`{name}`" for name in names_of(declaration))
        out.append(f"{'#' * level} {names}")
        out.append(f"```{language}\n{shown(declaration)}\n```")
        if comment:
            out.append(prose(comment))
    return out


def c_page():
    comment, _ = opening((HEADERS / "c.h").read_text())
    example = next(i for i, line in enumerate(comment) if line.startswith("  "))
    end = next(i for i in range(example, len(comment)) if comment[i] and not comment[i].startswith("  "))
    contract = [re.sub(r"^([A-Z]\w+(?: contexts)?)\. ", r"**\1.** ", line) for line in comment[end:]]
    out = [prose(comment[example:end], "c"), "## The contract", prose(contract), "## Status codes", *header_page(HEADERS / "c.h", "c", 3)]
    for title, name in (("What a run reads and writes", "c_tensors.h"), ("Block masks", "c_block_mask.h"), ("Tools", "c_tools.h")):
        out += [f"## {title}", *header_page(HEADERS / name, "c", 3)]
    return out


def cpp_page():
    out = [re.search(r"```cpp\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)[0]]
    listed = {name for names in CPP_HEADERS.values() for name in names} | OTHER_HEADERS
    missing = {path.name for path in HEADERS.glob("*.h")} ^ listed
    if missing:
        raise SystemExit(f"tools/api_pages.py: CPP_HEADERS and include/attnforge differ in {', '.join(sorted(missing))}")
    for title, names in CPP_HEADERS.items():
        out.append(f"## {title}")
        for name in names:
            sentence = prose(opening((HEADERS / name).read_text())[0]).removeprefix(f"{name} - ")
            out += [f"### attnforge/{name}", sentence[0].upper() + sentence[1:], *header_page(HEADERS / name, "cpp", 4)]
    return out


# ---- Python ----


def docstring(thing, names):
    return with_items(prose(inspect.getdoc(thing).splitlines(), "python"), names)


def signature(name, function):
    found = inspect.signature(function)
    one_line = f"{name}{found.replace(parameters=[each for each in found.parameters.values() if each.name != 'self'])}"
    if len(one_line) <= 100:
        return one_line
    return f"{name}(\n" + "".join(f"    {argument},\n" for argument in re.split(r", (?![^(]*\))", one_line[len(name) + 1 : -1])) + ")"


def public_function(title, name, function, level="###"):
    names = [each.name for each in inspect.signature(function).parameters.values() if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    return [f"{level} `{title}`", f"```python\n{signature(name, function)}\n```", docstring(function, names)]


def public_class(title, kind):
    """A class: bases, fields, and methods that have no underscore and a docstring."""
    bases = ", ".join(base.__name__ for base in kind.__bases__ if base is not object)
    fields = getattr(kind, "__annotations__", {})
    shown = [f"    {name}: {inspect.formatannotation(of)}" + (f" = {getattr(kind, name)!r}" if hasattr(kind, name) else "") for name, of in fields.items()]
    out = [f"### `{title}`", "\n".join([f"```python\nclass {kind.__name__}" + f"({bases})" * bool(bases) + ":" * bool(fields), *shown, "```"])]
    out += [docstring(kind, list(fields))] if kind.__doc__ else []
    for name, method in vars(kind).items():
        method = getattr(method, "__func__", None) or getattr(method, "fget", None) or method
        if inspect.isfunction(method) and not name.startswith("_") and method.__doc__:
            out += public_function(f"{kind.__name__}.{name}", name, method, "####")
    return out


def integration_pages():
    """Of modules that import torch or JAX, which need not be here: read, not imported."""
    out, package = [], ROOT / "python/attnforge"
    for path in ("distributed", "integrations/__init__", *(f"integrations/{name}" for name in ("flex", "jax", "sdpa", "transformers")), "flash_attn/flash_attn_interface", "flash_attn/v3"):
        tree = ast.parse((package / f"{path}.py").read_text())
        name = "attnforge." + path.replace("/__init__", "").replace("/", ".").removesuffix(".flash_attn_interface")
        out += [f"### `{name}`", prose(ast.get_docstring(tree).splitlines(), "python")]
        for each in tree.body:
            if isinstance(each, ast.FunctionDef) and not each.name.startswith("_") and ast.get_docstring(each):
                one_line = f"{each.name}({ast.unparse(each.args)})"
                shown = "\n".join(textwrap.wrap(one_line, 130, subsequent_indent=" " * (len(each.name) + 1)))
                names = [argument.arg for argument in [*each.args.args, *each.args.kwonlyargs]]
                out += [f"#### `{name}.{each.name}`", f"```python\n{shown}\n```", with_items(prose(ast.get_docstring(each).splitlines(), "python"), names)]
    return out


def python_page():
    out = [prose(inspect.getdoc(attnforge).splitlines()[2:], "python")]
    groups = {"Functions": [], "Objects": [], "Errors and warnings": []}
    for name in attnforge.__all__:
        thing = getattr(attnforge, name)
        if inspect.isfunction(thing):
            groups["Functions"] += public_function(name, name, thing)
        elif inspect.ismodule(thing):
            for each, of in vars(thing).items():
                if inspect.isfunction(of) and not each.startswith("_"):
                    groups["Functions"] += public_function(f"{name}.{each}", f"{name}.{each}", of)
        else:
            group = "Errors and warnings" if name.endswith(("Error", "Warning")) else "Objects"
            groups[group] += public_class(name, thing if inspect.isclass(thing) else type(thing))
    for title, texts in groups.items():
        out += [f"## {title}", *texts]
    return [*out, "## Under the names of others", *integration_pages()]


def pages():
    """{path: text} of every page."""
    made = {ROOT / "docs/api/c.md": c_page, ROOT / "docs/api/cpp.md": cpp_page, ROOT / "docs/api/python.md": python_page}
    return {path: path.read_text().partition(EXAMPLE)[0] + "\n\n".join([EXAMPLE, *page()]) + "\n" for path, page in made.items()}


def main():
    return written.main(__doc__, pages, lambda path: f"{path.relative_to(ROOT)} is not what tools/api_pages.py writes: run it")


if __name__ == "__main__":
    sys.exit(main())
