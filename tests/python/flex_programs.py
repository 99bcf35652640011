"""Twenty programs of FlexAttention: score_mod and mask_mod functions as people write them, each a (name, score_mod, mask_mod, tensors that get
gradients). Of `heads` heads and `rows` queries and keys."""

import torch


def programs(heads, rows, device):
    torch.manual_seed(5)
    at = torch.arange(rows, device=device)
    slopes = torch.exp2(-8.0 * (torch.arange(heads, device=device) + 1) / heads).requires_grad_()
    table = torch.randn(heads, 2 * rows - 1, device=device).mul(0.3).requires_grad_()
    pairs = torch.randn(rows, rows, device=device).mul(0.3)
    gates = torch.randn(rows, device=device).requires_grad_()
    temperature = torch.rand((), device=device).add(0.5).requires_grad_()
    document = (at // max(rows // 5, 1)).to(torch.int32)
    prefix = torch.tensor([rows // 3, rows // 2], device=device)
    parent = torch.zeros(rows, rows, dtype=torch.bool, device=device)
    for i in range(rows):  # a binary tree: each node sees its ancestors
        node = i
        while node > 0:
            parent[i, node] = True
            node = (node - 1) // 2
        parent[i, 0] = parent[i, i] = True
    width, cap = 8, 20.0

    def causal(b, h, q, k):
        return q >= k

    def sliding(b, h, q, k):
        return (q >= k) & (q - k < 16)

    def both_sides(b, h, q, k):
        return (q - k).abs() <= 9

    def prefix_lm(b, h, q, k):
        return (k < prefix[b]) | (q >= k)

    def documents(b, h, q, k):
        return (document[q] == document[k]) & (q >= k)

    def dilated(b, h, q, k):
        return ((q - k) % 3 == 0) & (q >= k)

    def natten(b, h, q, k):
        x, y, i, j = q // width, q % width, k // width, k % width
        return ((x - i).abs() <= 2) & ((y - j).abs() <= 2)

    def blocks(b, h, q, k):
        return (q // 16 == k // 16) | (k < 4)

    def tree(b, h, q, k):
        return parent[q, k]

    def per_head(b, h, q, k):
        return torch.where(h % 2 == 0, q >= k, k >= q)

    def sinks_and_window(b, h, q, k):
        return ((q - k < 12) | (k < 4)) & ~(k > q)

    def nothing(b, h, q, k):
        return k >= 0

    return [
        ("causal", None, causal, ()),
        ("sliding window", None, sliding, ()),
        ("window on both sides", None, both_sides, ()),
        ("ALiBi", lambda s, b, h, q, k: s + slopes[h] * (k - q), causal, (slopes,)),
        ("soft cap", lambda s, b, h, q, k: cap * torch.tanh(s / cap), causal, ()),
        ("prefix LM", None, prefix_lm, ()),
        ("documents", None, documents, ()),
        ("relative bias", lambda s, b, h, q, k: s + table[h, q - k + rows - 1], None, (table,)),
        ("dilated", None, dilated, ()),
        ("NATTEN", None, natten, ()),
        ("tree", None, tree, ()),
        ("blocks and globals", None, blocks, ()),
        ("a bias of pairs", lambda s, b, h, q, k: s + pairs[q, k], None, ()),
        ("gates of keys", lambda s, b, h, q, k: s + torch.log(torch.sigmoid(gates[k]) + 1e-3), causal, (gates,)),
        ("temperature", lambda s, b, h, q, k: s * temperature, None, (temperature,)),
        ("where in the score", lambda s, b, h, q, k: torch.where(q >= k, s, -float("inf")), None, ()),
        ("each head its mask", None, per_head, ()),
        ("sinks and a window", None, sinks_and_window, ()),
        ("distances", lambda s, b, h, q, k: s - 0.1 * torch.abs(q - k).clamp(max=30) ** 2 / 7, nothing, ()),
        ("cap, slopes and documents", lambda s, b, h, q, k: cap * (s / cap).tanh() - slopes[h].exp() * (q - k), documents, (slopes,)),
    ]


def dense(q, k, v, score_mod, mask_mod, scale):
    """(o, lse) of a program by plain operators in float64, [batch, heads, rows, head_dim]."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    s = q @ k.transpose(2, 3) * scale
    places = [torch.arange(size, device=q.device).view([-1 if i == j else 1 for j in range(4)]) for i, size in enumerate(s.shape)]
    s = s if score_mod is None else score_mod(s, *places)
    s = s if mask_mod is None else s.masked_fill(~mask_mod(*places), -float("inf"))
    lse = torch.logsumexp(s, -1)
    return torch.exp(s - lse[..., None]).nan_to_num(0.0) @ v, lse
