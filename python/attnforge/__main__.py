"""The command-line tool: the command `attnforge` of an installed wheel, and `python3 -m attnforge` wherever the library is."""

import os
import sys

from ._library import library_path


def main():
    """Becomes the program attnforge, which is built and installed as bin/ beside the library's folder."""
    program = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(library_path()))), "bin", "attnforge")
    if not os.path.exists(program):
        sys.exit(f"attnforge: the command-line tool is not installed beside {library_path()}: {program} does not exist")
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
