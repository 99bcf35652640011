#!/usr/bin/env python3
"""Counts the files that name a part of a problem, beside tests and documents, and fails where more do than are listed here: an
option that spreads is a seam that is missing (docs/ARCHITECTURE.md, "What a part costs").

Of parts that are libraries of their own the files are told apart: those that are about the part and nothing else, by their paths;
those that are about another such part, as the blocks of a mask's text are; and the rest, which everybody shares.

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
        r"kFeatureBlockMask|[bB]lockMask|block_mask|mask_block|mask_(heads|batch|bits)\b|bit_blocks|blocks=|BlockSight|\bdensity=",
        24,
    ),
    "user_code": (
        r"kFeature(Score|Mask)Code|Code(Argument|Params|Functions|Pair|Texts|Options)|code_(arguments|suffix|functions)|\bcode_of\(|(has|check|add)_(score_)?code"
        r"|user_(score|mask|code)|User(Code|Score|Mask|Rule|Row|Slope|Terms)|WithCode|\b(problem|p|text)\.(score|mask|args)\b"
        r"|Problem::(score|mask|args)\b|(given|parts)\.code|code_part|errors_in_code|score: str",
        27,
    ),
    "sinks": (r"kFeatureSinks|Sink(Params|Output)|WithSinks|(?<!host/)\bsinks\b|[a-z]_sinks", 25),
    "pages": (
        r"kFeaturePages|Page(s(Params|Argument)|Table)|Paged(Tma)?Keys|paged_(tma_)?keys|WithPages|page_(size|table)|has_pages|num_pages"
        r"|pages_(of_|part)|of_pages|tensors\.pages", 25),
    "rope": (r"(?<![a-zA-Z])[rR]ope(?![a-z])|[a-z_]rope_|kFeatureRope|RopeParams|RopeTables|fused_rope", 25),
    # Beside what is of backward alone by its name.
    "gradients": (
        r"kFeature(Deterministic|Accumulate|Dlse|Fp32Gradients)|[gG]radients|is_backward|Op::kBackward|\bdlse\b|\bdout\b|\bd[qkv]\b|[bB]wd(?!_)", 25),
    "softcap": (r"[sS]oftcap", 22),
    "window": (r"window_(left|right)|effective_window|(left|right)_bound", 24),
}
# By their paths: (files that are about the part and nothing else, how many; of those that are about another part here, how many).
OWN = {
    "block_mask": (r"block_(mask|lists|bits|text|source)|mask_(row|files|part|drawing)|(bwd|query)_tiles|query_tile_bits|listed_queries|exact_mask", 40, 3),
    "user_code": (
        r"user_(code|mask|score|slope|terms)|(^|/)_?code_?(texts|functions|errors|options|part)?\.(h|cpp|py)|mask_windows|params_code|score_with_slope"
        r"|block_text|text_blocks|text_functions|wide_indexes|exact_mask|dargs?[._]",
        44,
        9,
    ),
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

    def report(what, found, most):
        nonlocal failed
        failed |= len(found) > most
        print(f"{what}: {len(found)} files, at most {most}")
        if "--list" in options or len(found) > most:
            print("".join(f"  {path}\n" for path in found), end="")

    for part, (words, most) in PARTS.items():
        beside = re.compile("bwd|gradient|backward|autograd|darg" if part == "gradients" else "$^")
        naming = [path for path, text in texts.items() if re.search(words, text) and not beside.search(str(path))]
        if part in OWN:
            of_part, own_most, others_most = OWN[part]
            of_others = "|".join(row[0] for other, row in OWN.items() if other != part)
            own = [path for path in naming if re.search(of_part, str(path))]
            others = [path for path in naming if path not in own and re.search(of_others, str(path))]
            report(f"{part}, its own", own, own_most)
            report(f"{part}, another part's own", others, others_most)
            naming = [path for path in naming if path not in own and path not in others]
        report(part, naming, most)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
