"""The fast path: a call of torch's tensors like an earlier one is one look-up and one call of the library.

Each function that has it remembers its calls in plan_cache, by a key of all that it was given but addresses, numbers of streams
and offsets. What differs, or is wrong, goes the long way, which checks it. Each line here costs.
"""

import ctypes

from . import native
from .._block_mask import BlockMask, block_words_of
from .._library import lib
from .._plans import plan_cache

_PLAIN = frozenset((bool, int, float, str, type(None)))
_NUMBERS = frozenset((bool, int, float))
_STREAM_LIMIT = 2**64
find = plan_cache.get_call  # None of None


class _Queues(dict):
    """Numbers of streams as ctypes passes them fastest."""

    def __missing__(self, number):
        if len(self) >= 4096:
            self.clear()
        queue = self[number] = ctypes.c_void_p(number)
        return queue


class FastPath:
    """What it takes of torch; closed until a call has brought tensors."""

    NO_BYTES = ctypes.c_size_t(0)

    def __init__(self):
        self.queues = _Queues()
        self.close()

    def close(self):
        self.torch = None
        self.native = _no_key  # call() of native.py
        self.key_of = self.key_of_attention = _no_key

    def open(self, backend):
        """backend: that of the tensors of a call."""
        torch = backend.torch
        if torch is None or torch is self.torch or not native.makes_plain_tensors(torch):
            return
        self.run = lib()["attnforge_run"]  # another object than lib().attnforge_run: without conversions, all arguments are ctypes'
        self.stream, self.scratch = backend.stream, backend.current_scratch
        self.autocasts = lambda: is_autocast_enabled(torch)
        self.torch = torch
        self.key_of, self.key_of_attention = _key_functions(torch)
        self.native = backend.native and native.open_calls(torch, *backend.native) or _no_key

    def again(self, names, values, *arguments):
        """(key, ran) of a call with these values, of which each is plain, None, a tensor, args, a block mask, or a tuple or list of such.
        ran: what the run() of an earlier one gave for the arguments, (status, result), or None where the long way is to be gone; key:
        None where that has to find one of its own."""
        try:
            key = self.key_of(names, values)
            call = find(key)
            return key, None if call is None else call.run(*arguments)
        except Exception:  # whatever it is, the long way says it
            return None, None

    def queue(self, device, stream, allocates):
        """The stream of a run; None where memory has to be allocated for another one than the current, which takes more care."""
        current = self.stream(device)
        if stream is None or stream == current:
            return current
        return None if allocates or type(stream) is not int or not 0 <= stream < _STREAM_LIMIT else stream


def is_autocast_enabled(torch):
    try:
        return torch.is_autocast_enabled("cuda")
    except TypeError:  # before 2.4 it has no argument
        return torch.is_autocast_enabled()


def _no_key(*_):
    return None


def _key_functions(torch):
    """key_of() and key_of_attention(); None is the key of what is not plain."""
    Tensor, grad_enabled, forward_ad, plain = torch.Tensor, torch.is_grad_enabled, torch.autograd.forward_ad, _PLAIN

    def key_of(names, values):
        key, grad = [*names], grad_enabled()
        for value in values:
            kind = type(value)
            if kind is Tensor:
                if value.is_neg() or grad and value.requires_grad:
                    return None
                # Strides of contiguous tensors follow from their shapes, and True is found faster.
                key += (value.shape, value.is_contiguous() or value.stride(), value.dtype, value.get_device())
            elif kind in plain:
                key.append(value)
            elif kind is tuple or kind is list:
                inner = key_of((), value)
                if inner is None:
                    return None
                key.append(inner)
            elif kind is dict:  # args: of numbers a problem has the type alone
                inner = key_of(value, [type(each).__name__ if type(each) in _NUMBERS else each for each in value.values()])
                if inner is None:
                    return None
                key.append(inner)
            elif kind is BlockMask and value.mask is None:
                key.append(block_words_of(value))
            else:
                return None
        return None if forward_ad._current_level >= 0 else tuple(key)

    def key_of_attention(q, k, v, out, options):
        """The same of (q, k, v, out) and of options by their names, written out."""
        if type(q) is not Tensor or type(k) is not Tensor or type(v) is not Tensor or forward_ad._current_level >= 0:
            return None
        grad = grad_enabled()
        if q.is_neg() or k.is_neg() or v.is_neg() or grad and (q.requires_grad or k.requires_grad or v.requires_grad):
            return None
        named = ()
        if options:
            for value in options.values():
                if type(value) not in plain:
                    named = key_of(options, options.values())
                    if named is None:
                        return None
                    break
            else:
                named = tuple(options.items())
        key = (
            named,
            q.shape,
            q.is_contiguous() or q.stride(),
            q.dtype,
            q.get_device(),
            k.shape,
            k.is_contiguous() or k.stride(),
            k.dtype,
            k.get_device(),
            v.shape,
            v.is_contiguous() or v.stride(),
            v.dtype,
            v.get_device(),
        )
        if out is None:
            pass
        elif type(out) is Tensor:
            if out.is_neg() or grad and out.requires_grad:
                return None
            key += (out.shape, out.is_contiguous() or out.stride(), out.dtype, out.get_device())
        else:
            key += key_of((), out)  # raises where there is none
        return key

    return key_of, key_of_attention


fast = FastPath()
