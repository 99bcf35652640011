"""Errors of dq, dk and dv beside those of torch's FlashAttention-2, both relative to fp64: where rows are long, inputs have outliers, or
keys have much in common.

    python3 bench/gradient_error.py --out bench/results/h100/gradient_error.csv
    python3 bench/gradient_error.py --ways bwd_mma_sm80 --keys 1024,16384 --out /tmp/gradient_error.csv

128 queries, 2 heads. Ways are the default choice, a family forced, a family with deterministic. Soft caps have no peer. `ratio` is the
largest of ours over theirs of dq, dk and dv. Ends with 1 if one is above 1.3, or 1.6 of `bwd_mma_sm80` in bf16, which rounds P before
it makes dS.
"""

import itertools
import math
import os
import sys

import machine

WAYS = "default,bwd_mma_sm80,bwd_mma_sm80:deterministic,bwd_wgmma_sm90a"
COLUMNS = "way,dtype,head_dim,keys,inputs,softcap,dq,dk,dv,flash_dq,flash_dk,flash_dv,ratio".split(",")
HEADS, ROWS = 2, 128


def reference(torch, q, k, v, dout, softcap):
    """o in the dtype of q, lse, and dq, dk, dv in fp64; [1, heads, rows, head_dim]. delta is of that o, as a kernel has it."""
    leaves, wide = [x.double().requires_grad_() for x in (q, k, v)], dout.double()
    s = leaves[0] @ leaves[1].transpose(-1, -2) / math.sqrt(q.shape[-1])
    s = softcap * torch.tanh(s / softcap) if softcap else s
    lse, o = torch.logsumexp(s, -1), torch.softmax(s, -1) @ leaves[2]
    stored = o.detach().to(q.dtype)
    of_rounding = (wide * (o.detach() - stored.double())).sum(-1)  # what delta lacks; the derivative of lse is the probabilities
    ((wide * o).sum() + (of_rounding * lse).sum()).backward()
    return stored, lse.detach().float(), [x.grad for x in leaves]


def inputs(torch, kind, head_dim, keys, dtype):
    """q, k, v, dout. "outliers": some columns and rows are much larger; "offset": keys have much in common, so that sums of dS are 0 and
    their errors are not; "uniform": all keys count alike."""
    torch.manual_seed(7)
    q, k, v, dout = (torch.randn(1, HEADS, n, head_dim, device="cuda") for n in (ROWS, keys, keys, ROWS))
    if kind == "outliers":
        k[..., :2] *= 5
        v[..., 3:5] *= 20
        dout[:, :, ::16] *= 20
    if kind == "offset":
        k += 4 * torch.randn(1, HEADS, 1, head_dim, device="cuda")
    if kind == "uniform":
        q *= 1e-3
    return tuple(x.to(dtype) for x in (q, k, v, dout))


def flash(torch, q, k, v, dout):
    q, k, v = (x.detach().clone().requires_grad_() for x in (q, k, v))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        torch.nn.functional.scaled_dot_product_attention(q, k, v).backward(dout)
    return q.grad, k.grad, v.grad


def points(keys):
    kinds = [("normal", softcap) for softcap in (0, 30, 2)] + [(kind, 0) for kind in ("outliers", "offset", "uniform")]
    for *point, kind in itertools.product(("float16", "bfloat16"), (64, 128, 256), keys, kinds):
        yield *point, *kind


def rms(x):
    return x.double().square().mean().sqrt()


def measure(torch, way, keys):
    """Rows of one way."""
    import torch.nn.attention

    import attnforge

    def errors(found, wanted):
        return [(rms(x - y) / rms(y)).item() for x, y in zip(found, wanted)]

    family, _, deterministic = way.partition(":")
    attnforge.configure(family="" if family == "default" else family)
    for dtype, head_dim, each, kind, softcap in points(keys):
        q, k, v, dout = inputs(torch, kind, head_dim, each, getattr(torch, dtype))
        o, lse, wanted = reference(torch, q, k, v, dout, softcap)
        options = {"softcap": softcap or None, "layout": "bhsd", "deterministic": bool(deterministic)}
        ours = errors(attnforge.attention_backward(q, k, v, o, lse, dout, **options), wanted)
        theirs = [] if softcap else errors(flash(torch, q, k, v, dout), wanted)
        ratio = max((a / b for a, b in zip(ours, theirs)), default=None)
        cells = [f"{x:.2e}" for x in ours] + ([f"{x:.2e}" for x in theirs] or [""] * 3) + ["" if ratio is None else f"{ratio:.3f}"]
        yield [way, dtype, head_dim, each, kind, softcap, *cells]


def most_ratio(way, dtype):
    return 1.6 if way.startswith("bwd_mma_sm80") and dtype == "bfloat16" else 1.3


def main():
    parser = machine.options(__doc__)
    parser.add_argument("--ways", default=WAYS, help="default, or families, each perhaps with :deterministic after it")
    parser.add_argument("--keys", default="1024,16384,65536,131072")
    args = parser.parse_args()
    torch = machine.torch()
    os.environ["ATTNFORGE_CACHE"] = ":memory:"
    file, out = machine.table(args.out, COLUMNS, machine.about(torch), f"peer flash: torch {torch.__version__}")
    too_large = False
    for way in args.ways.split(","):
        rows = list(measure(torch, way, [int(each) for each in args.keys.split(",")]))
        ratios = [(float(row[-1]), most_ratio(*row[:2])) for row in rows if row[-1]]
        too_large |= any(ratio > most for ratio, most in ratios)
        print(f"{way}: largest ratio {max(ratios, default=(0, 0))[0]:.3f}", file=sys.stderr, flush=True)
        out.writerows(rows)
        file.flush()
    return int(too_large)


if __name__ == "__main__":
    sys.exit(main())
