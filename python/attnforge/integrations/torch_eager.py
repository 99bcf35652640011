"""Calls outside of graphs that go through the shim's ops: those with gradients, where a step of Python each way is left of autograd.

Like the fast path of calls without gradients this is for calls like an earlier one, which has passed every check: known by all that it was
given but addresses. Each line here costs.
"""

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .._calls.fast import fast, find
from .._plans import plan_cache
from . import torch_kernels, torch_shim  # the first defines the ops
from .options import encode

__all__ = ["torch_kernels"]
_run_forward = torch.ops.attnforge.run_forward.default
_run_backward = torch.ops.attnforge.run_backward.default
_backward = torch.ops.attnforge.backward.default
_is_grad_enabled, _is_deterministic = torch.is_grad_enabled, torch.are_deterministic_algorithms_enabled
_transform = torch._C._functorch.peek_interpreter_stack
_PLAIN = frozenset((bool, int, float, str, type(None)))


class _Known:
    """Options as ops have them, of a call whose only tensors are q, k and v."""

    __slots__ = ("text", "numbers", "return_lse")

    def __init__(self, options, always):
        options = dict(options)
        self.return_lse = bool(options.pop("return_lse", False))
        self.numbers = []
        if always:
            options["deterministic"] = True
        self.text = encode(lambda _: False, options, [], self.numbers)


def _raise(error):
    """The exception of Python's that became the RuntimeError of a call of an op, if it did."""
    raise torch_shim.failure() or error


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, known, q, k, v):
        try:
            o, lse = _run_forward(q, k, v, (), known.numbers, known.text)
        except RuntimeError as error:
            _raise(error)
        ctx.known = known
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.set_materialize_grads(False)
        return (o, lse) if known.return_lse else o

    @staticmethod
    def backward(ctx, dout, dlse=None):
        if dout is None and dlse is None:
            return None, None, None, None
        op = _backward if _is_grad_enabled() else _run_backward  # create_graph=True
        try:
            return None, *op(*ctx.saved_tensors, dout, dlse, (), ctx.known.numbers, ctx.known.text, ())
        except RuntimeError as error:
            _raise(error)


def _are_plain(values):
    for each in values:
        if type(each) not in _PLAIN and not (type(each) is tuple and _are_plain(each)):
            return False
    return True


def _key(q, k, v, options):
    """None of what is not plain."""
    if type(q) is not Tensor or type(k) is not Tensor or type(v) is not Tensor or not _is_grad_enabled():
        return None
    if not (q.requires_grad or k.requires_grad or v.requires_grad) or _transform() is not None or forward_ad._current_level >= 0:
        return None
    if q.is_neg() or k.is_neg() or v.is_neg():
        return None
    if not _are_plain(options.values()):
        return None
    return (
        "trains",
        _is_deterministic(),
        *options.items(),
        q.shape,
        q.is_contiguous() or q.stride(),
        q.dtype,
        k.shape,
        k.is_contiguous() or k.stride(),
        k.dtype,
        v.shape,
        v.is_contiguous() or v.stride(),
        v.dtype,
        q.get_device(),
    )


def attend(q, k, v, options):
    """attention() of a call with gradients like an earlier one; None of others."""
    known = find(_key(q, k, v, options))
    return None if known is None else _Attention.apply(known, q, k, v)


def remember(q, k, v, options, epoch):
    """After attention() with gradients of these. epoch: plan_cache's when it began."""
    if all(each.dtype in (torch.float16, torch.bfloat16) for each in (q, k, v)):
        key = _key(q, k, v, options)
        if key is not None:
            plan_cache.put_call(key, _Known(options, key[1]), epoch)


def attend_backward(q, k, v, o, lse, dout, dlse, options):
    """attention_backward() of a call like an earlier one that made its gradients; None of others."""
    known = find(("backward by an op", *options.items())) if _are_plain(options.values()) else None
    if known is None or _is_deterministic() or _transform() is not None:
        return None
    if forward_ad._current_level >= 0:
        return None
    grad = _is_grad_enabled()
    for each in (q, k, v, o, lse, dout, dlse):
        if each is not None and (type(each) is not Tensor or grad and each.requires_grad):
            return None
    try:
        return tuple(_run_backward(q, k, v, o, lse, dout, dlse, (), known.numbers, known.text, ()))
    except RuntimeError as error:
        _raise(error)


def remember_backward(options, epoch):
    """After attention_backward() with these options, which have no tensor."""
    if _are_plain(options.values()):
        plan_cache.put_call(("backward by an op", *options.items()), _Known(options, False), epoch)


def install():
    """From now on attention() and attention_backward() ask here first."""
    if torch_shim.is_open():
        fast.attend, fast.remember, fast.attend_backward, fast.remember_backward = attend, remember, attend_backward, remember_backward
