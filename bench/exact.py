"""Attention and its gradients written out in fp32, for one sequence and the heads of its first head of K: what results are judged by.

Importing this file imports no torch.
"""

import math

import peer_kernels

MOST_SCORES = 1 << 27  # at once


def hidden(torch, begin, end, rows, keys, causal, window, device):
    """Whether queries begin to end of `rows` do not see a key: [end - begin, keys]. Bottom-right aligned; window: -1 for open."""
    beyond = torch.arange(keys, device=device) - (torch.arange(begin, end, device=device)[:, None] + keys - rows)
    left, right = window[0], 0 if causal else window[1]
    never = torch.zeros_like(beyond, dtype=torch.bool)
    return (beyond > right if right >= 0 else never) | (-beyond > left if left >= 0 else never)


def exact(torch, q, k, v, dout=None, causal=False, window=(-1, -1), softcap=0.0, seen=None):
    """[o], or with dout [dq, dk, dv], of one sequence, [seqlen, heads, head_dim]: of the first head of k and its group alone, in fp32.
    seen(query, key): of tensors, which pairs of these a mask leaves."""
    group, rows, keys = q.shape[1] // k.shape[1], q.shape[0], k.shape[0]
    inputs = [x[:, :heads].transpose(0, 1).float() for x, heads in ((q, group), (k, 1), (v, 1))]
    q, k, v = (x.detach().requires_grad_(dout is not None) for x in inputs)
    step, outputs = max(16, MOST_SCORES // (group * keys)), []
    with torch.set_grad_enabled(dout is not None):
        for begin in range(0, rows, step):
            end = min(rows, begin + step)
            s = q[:, begin:end] @ k.transpose(1, 2) / math.sqrt(k.shape[2])
            s = softcap * torch.tanh(s / softcap) if softcap else s
            s = s.masked_fill(hidden(torch, begin, end, rows, keys, causal, window, k.device), -math.inf)
            if seen:
                s = s.masked_fill(~seen(torch.arange(begin, end, device=k.device)[:, None], torch.arange(keys, device=k.device)), -math.inf)
            o = torch.softmax(s, -1) @ v
            if dout is None:
                outputs.append(o)
            else:
                (o * dout[begin:end, :group].transpose(0, 1).float()).sum().backward()
    found = [torch.cat(outputs, 1)] if dout is None else [x.grad for x in (q, k, v)]
    return [x.transpose(0, 1) for x in found]


def error_of(results, wanted):
    """The largest relative error of results of the sequence, [seqlen, heads, head_dim] each, in the heads that exact() gives."""
    worst = 0.0
    for got, of in zip(results, wanted):
        error = peer_kernels.relative_error(got[:, : of.shape[1]], of)
        worst = max(worst, error) if error == error else math.inf
    return worst
