"""NVRTC's time for one kernel, on one core and without a cache, of the winners that peers.py and backward.py found on an H200 and an H100.
Needs no GPU.

    python3 bench/compile_time.py --only bwd_ --rounds 3 --out bench/results/backward_compile.csv
"""

import sys

import figures
import machine

ARCH = "sm_90a"
FILES = ("h200/hopper.csv", "h200/backward.csv", "h100/backward.csv")


def compile_ms(problem, **choice):
    """choice: config or family, whose first choice it then is."""
    import attnforge

    return attnforge.inspect(problem, arch=ARCH, max_candidates=1, **choice)["compiled"]["compile_ms"]


def winners(only):
    """[(problem, config)] of configs with `only` in them, each kernel once. Configs that are no longer legal are left out."""
    import attnforge

    found = {}
    for row in (row for name in FILES for row in figures.read_csv(figures.RESULTS / name)[1]):
        if row["impl"] == "attnforge" and row["config"] and only in row["config"]:
            try:
                text = figures.problem_of(row, "lse")
                digest = attnforge.inspect(text, arch=ARCH, config=row["config"], compile=False, max_candidates=1)["digest"]
            except attnforge.AttnforgeError:
                continue
            found.setdefault(digest, (text, row["config"]))
    return list(found.values())


def main():
    parser = machine.options(__doc__)
    parser.add_argument("--only", default="", help="configs that have this, as bwd_wgmma")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    machine.package()
    _, out = machine.table(args.out, ["problem", "config", "least_ms", "most_ms"], machine.cpu())
    for problem, config in winners(args.only):
        times = [compile_ms(problem, config=config) for _ in range(args.rounds)]
        out.writerow([problem, config, f"{min(times):.0f}", f"{max(times):.0f}"])
        print(f"{max(times):.0f} ms: {problem}: {config}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
