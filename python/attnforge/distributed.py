"""One choice of kernels for all ranks of a job: one rank decides, the others follow.

    import attnforge.distributed
    attnforge.distributed.agree(group, ["fwd bf16 num_heads=32:8 seqlen=8192 head_dim=128 causal"])   # before the first step
    attnforge.distributed.agree()                                  # or after a step: of what the deciding rank computed in it
"""

import json

from ._errors import AttnforgeError
from ._plans import plan_cache, plan_of
from ._problem import as_problem


def agree(group=None, problems=()):
    """Later calls of all ranks of a group compute what was agreed upon by the same configs. Returns them: {problem: config}.

    group: of torch.distributed, whose backend may be any; None: all ranks. All ranks call it, at the same place. Its first rank decides:
    for each of problems (texts or Problems; the other ranks' are not looked at), which it tunes where nobody has, and for all that it has
    made plans of so far. The decision goes to the others as text. It holds for the bucket of each problem, as winners do, until the next
    agree(), which adds to it, and configure(family=) and configure(config=) come before it. A plan made by it has the provenance "forced".
    GPUs of a group are of one kind. Raises AttnforgeError on every rank where the first cannot decide. No call of attention() waits for
    another rank.
    """
    import torch
    from torch import distributed

    first = 0 if group is None else distributed.get_global_rank(group, 0)
    decision = {}
    if distributed.get_rank() == first:
        try:
            device = torch.cuda.current_device() if torch.cuda.is_available() else 0
            for each in problems:
                plan_of(as_problem(each), device)
            decision["agreed"] = {plan.problem.bucket(): plan.config for plan in plan_cache}
        except Exception as error:  # whatever it is, the others wait
            decision["error"] = str(error)
    decision = json.loads(_text_of_first(json.dumps(decision), first, group))
    if "error" in decision:
        raise AttnforgeError(f"rank {first} could not decide: {decision['error']}")
    plan_cache.agreed = {**plan_cache.agreed, **decision["agreed"]}
    plan_cache.clear()
    return decision["agreed"]


def _text_of_first(text, first, group):
    """The text of the first rank, of ASCII: as bytes in a tensor, where the backend takes them."""
    import torch
    from torch import distributed

    device = "cuda" if distributed.get_backend(group) == "nccl" else "cpu"
    length = torch.tensor([len(text)], device=device)
    distributed.broadcast(length, first, group)
    letters = torch.zeros(int(length), dtype=torch.uint8, device=device)
    if distributed.get_rank() == first:
        letters.copy_(torch.tensor(list(text.encode()), dtype=torch.uint8))
    distributed.broadcast(letters, first, group)
    return bytes(letters.tolist()).decode()
