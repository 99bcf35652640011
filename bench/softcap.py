"""How far soft caps in fp32 are from fp64: attnforge's attention() and the same arithmetic written in PyTorch.

    python3 bench/softcap.py --out bench/results/h200/softcap_accuracy.csv

Random normal q, k and v; the largest and the mean absolute error of o over all elements. PyTorch's matrix products are made in
fp32, not TF32. Needs a GPU and torch.
"""

import argparse
import csv
import pathlib
import sys

import machine

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))

CAPS = (5, 30, 50, 100, 1e3, 1e4, 1e6, 1e8, 1e12)


def plain(torch, q, k, v, cap):
    """[batch, heads, seqlen, head_dim], in the dtype of its arguments."""
    s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return torch.softmax(cap * torch.tanh(s / cap), -1) @ v


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--seqlen", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", help="CSV file; default: standard output")
    args = parser.parse_args()

    torch = machine.torch()
    import attnforge

    torch.manual_seed(args.seed)
    torch.backends.cuda.matmul.allow_tf32 = False
    shape = (1, args.heads, args.seqlen, args.head_dim)
    q, k, v = (torch.randn(shape, device="cuda") for _ in range(3))
    file = open(args.out, "w", newline="") if args.out else sys.stdout
    gpu = torch.cuda.get_device_name()
    file.write(f"# {gpu}, torch {torch.__version__}, attnforge {attnforge.version()}\n")
    file.write(f"# {machine.command()}\n")
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(["softcap", "attnforge_max", "attnforge_mean", "torch_max", "torch_mean"])
    for cap in CAPS:
        exact = plain(torch, q.double(), k.double(), v.double(), cap)
        errors = []
        for o in (attnforge.attention(q, k, v, softcap=cap, layout="bhsd"), plain(torch, q, k, v, cap)):
            error = (o.double() - exact).abs()
            errors += [f"{error.max().item():.2e}", f"{error.mean().item():.2e}"]
        rows.writerow([f"{cap:g}", *errors])


if __name__ == "__main__":
    main()
