#!/usr/bin/env python3
"""Counts the files that name a part of a problem, beside tests and documents, and fails where more do than are listed here: an
option that spreads is a seam that is missing (docs/ARCHITECTURE.md, "What a part costs").

    python3 tests/project/part_counts.py .          the counts
    python3 tests/project/part_counts.py . --list   the files too
"""

import os
import pathlib
import re
import sys

FOLDERS = "include generator templates reference runtime cache tuner plan cli python".split()
# A part's own words. What goes through a seam (`tile.lengths.kv()`, which dense kernels say too) does not name the part.
PARTS = {
    "lengths": (
        r"kFeatureLengths|LengthArrays|LengthsArgument|LengthsParams|WithLengths|(Packed|Used)Lengths|(packed|used)_lengths"
        r"|k(Fixed|Packed|Used)Lengths|Lengths::k(Fixed|Packed|Used)|lengths_(q|kv)|lengths\.(q|kv)\b(?!\()|lengths\.tokens|tokens_(q|kv)\b|cu_seqlens"
        r"|used_(q|kv)\b|lengths=|LengthFiles|with_lengths|attnforge_lengths|attnforge::Lengths",
        25,
    ),
    # Interfaces too: the masks of C++, C, Python and the command line, their generators, drawings and files.
    "block_mask": (
        r"kFeatureBlockMask|[bB]lockMask|(?<!host/)block_mask(?!_part)|mask_block|mask_(heads|batch|bits)\b|bit_blocks|blocks=|BlockMaskArgument|\bdensity=", 79),
    "user_code": (
        r"kFeature(Score|Mask)Code|CodeArgument|code_arguments|code_suffix|has_score_code|user_(score|mask|code)|User(Code|Score|Mask|Rule|Row)"
        r"|WithCode|CodeParams|has_code|check_code|problem\.(score|mask|args)|CodeTexts|add_code", 66),
    "sinks": (r"kFeatureSinks|Sink(Params|Output)|WithSinks|(?<!host/)\bsinks\b|[a-z]_sinks", 25),
    "pages": (
        r"kFeaturePages|Page(s(Params|Argument)|Table)|Paged(Tma)?Keys|paged_(tma_)?keys|WithPages|page_(size|table)|has_pages|num_pages"
        r"|pages_(of_|part)|of_pages|tensors\.pages", 25),
    "rope": (r"(?<![a-zA-Z])[rR]ope(?![a-z])|[a-z_]rope_|kFeatureRope|RopeParams|RopeTables|fused_rope", 30),
    # Beside what is of backward alone by its name.
    "gradients": (
        r"kFeature(Deterministic|Accumulate|Dlse|Fp32Gradients)|[gG]radients|is_backward|Op::kBackward|\bdlse\b|\bdout\b|\bd[qkv]\b|[bB]wd(?!_)", 25),
    "softcap": (r"[sS]oftcap", 23),
    "window": (r"window_(left|right)|effective_window|(left|right)_bound", 25),
}
# Functions and classes beside problems, with lengths, pages and ropes of their own.
BESIDE = re.compile(r"append|input_check|kv_cache")


def files():
    for folder in FOLDERS:
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if path.suffix in {".h", ".cpp", ".cuh", ".py", ".map", ".sql"} and not BESIDE.search(str(path)):
                yield path


def main(root, *options):
    os.chdir(root)
    texts = {path: path.read_text() for path in files()}
    failed = False
    for part, (words, most) in PARTS.items():
        own = re.compile("bwd|gradient|backward|autograd|darg" if part == "gradients" else "$^")
        naming = [path for path, text in texts.items() if re.search(words, text) and not own.search(str(path))]
        failed |= len(naming) > most
        print(f"{part}: {len(naming)} files, at most {most}")
        if "--list" in options or len(naming) > most:
            print("".join(f"  {path}\n" for path in naming), end="")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
