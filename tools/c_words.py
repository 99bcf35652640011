#!/usr/bin/env python3
"""Writes the list of a problem's words in include/attnforge/c.h from that of docs/PROBLEM.md, which a test compares with the library.

    python3 tools/c_words.py           # writes c.h
    python3 tools/c_words.py --check   # fails when the list in c.h is another one
"""

import pathlib
import re
import sys
import textwrap

import written

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER = ROOT / "include/attnforge/c.h"
FIRST = """\
 * Words (written by tools/c_words.py from docs/PROBLEM.md). In brackets the values of each, and
 * what holds where it is left out:
"""
LAST = " * (end of the words)\n"
WIDTH = 100  # of a line


def plain(markdown):
    """Its text: no marks of code and no links."""
    return re.sub(r"\[(.*?)\]\(.*?\)", r"\1", markdown).replace("`", "")


def folded(lead, text):
    """Lines of a comment that begin with `lead`, those after the first as deep."""
    indent = " * " + " " * (len(lead) - 3)
    return "".join(f"{line}\n" for line in textwrap.wrap(text, WIDTH, initial_indent=lead, subsequent_indent=indent))


def words(page):
    """The list, of the text of docs/PROBLEM.md."""
    rows = re.findall(r"^\| `(.*?)` \| (.*?) \| (.*?) \| (.*?) \|$", page, flags=re.M)
    if len(rows) < 40:
        raise SystemExit("tools/c_words.py: docs/PROBLEM.md has no table of the words")
    column = max(len(form) for form, *_ in rows) + 2
    out = ""
    for form, meaning, fallback, values in rows:
        out += folded(f" *   {form:{column}}", f"{meaning} [{values}; {fallback}]" if values.strip() else f"{meaning} [{fallback}]")
    together = re.search(r"^Words that belong together:\n\n(.*?)\n\n", page, flags=re.M | re.S)[1]
    out += " * Words that belong together:\n"
    for item in re.split(r"^- ", together, flags=re.M)[1:]:
        out += folded(" *   ", plain(" ".join(item.split())))
    return out


def header(text, page):
    """c.h with the list of now."""
    before, rest = text.split(FIRST)
    return before + FIRST + words(page) + LAST + rest.split(LAST)[1]


def main():
    old = "include/attnforge/c.h has not the words of docs/PROBLEM.md: run tools/c_words.py, then tools/api_pages.py"
    page = (ROOT / "docs/PROBLEM.md").read_text()
    return written.main(__doc__, lambda: {HEADER: header(HEADER.read_text(), page)}, lambda _: old)


if __name__ == "__main__":
    sys.exit(main())
