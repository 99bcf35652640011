"""What tools that write files of the tree share: they write them, or with --check say which are old."""

import sys


def main(doc, texts, old):
    """The exit code. texts(): {path: text}; old(path): the sentence about a file that has another text; doc: the answer to other arguments."""
    if sys.argv[1:] not in ([], ["--check"]):
        raise SystemExit(doc)
    differ = {path: text for path, text in texts().items() if not path.exists() or path.read_text() != text}
    for path, text in differ.items():
        if sys.argv[1:]:
            print(old(path), file=sys.stderr)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    return int(bool(differ) and bool(sys.argv[1:]))
