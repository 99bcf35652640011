"""attention() with a derivative, for tensors of torch: the function of autograd, made once torch is there, and autocast."""

from typing import NamedTuple

from . import _checks
from ._arguments import check_block_mask, check_inputs, shape_of_lse, shape_of_o, view_inputs
from ._arrays import FP32, backend_of
from ._backward import attention_backward, why_not_served
from ._code import check_devices, code_of
from ._errors import InvalidError, UnsupportedError
from ._lengths import lengths_of, view_lengths
from ._options import block_words_of, options_of


class Settings(NamedTuple):
    """What a call has beside tensors."""

    plain: dict  # what attention() and attention_backward() take alike: names and values
    max_seqlen: object
    return_lse: object
    batch_invariant: object
    deterministic: object
    block_mask: object
    score: object
    mask: object
    args: object  # numbers, and None for an array: those go beside


def autocast(q, k, v):
    """q, k and v as torch.autocast would have them: all of its dtype if one is float32. None where nothing changes."""
    torch = backend_of(q).torch
    if torch is None or not is_autocast_enabled(torch):
        return None
    if not all(isinstance(x, torch.Tensor) for x in (q, k, v)) or all(x.dtype != torch.float32 for x in (q, k, v)):
        return None
    dtype = _autocast_dtype(torch)
    if dtype == torch.float32 or any(x.dtype not in (torch.float32, torch.float16, torch.bfloat16) for x in (q, k, v)):
        return None
    return tuple(x if x.dtype == dtype else x.to(dtype) for x in (q, k, v))


def is_autocast_enabled(torch):
    try:
        return torch.is_autocast_enabled("cuda")
    except TypeError:  # before 2.4 it has no argument
        return torch.is_autocast_enabled()


def _autocast_dtype(torch):
    if hasattr(torch, "get_autocast_dtype"):
        return torch.get_autocast_dtype("cuda")
    return torch.get_autocast_gpu_dtype()


def name_that_requires_grad(args, **tensors):
    """The first that autograd follows in this call, of args the arrays; None where there is none."""
    torch = backend_of(tensors["q"]).torch
    if torch is None or not torch.is_grad_enabled():
        return None
    for name, tensor in tensors.items():
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
            return name
    for name, array in args.items() if isinstance(args, dict) else ():
        if isinstance(array, torch.Tensor) and array.requires_grad:
            return f"args[{name!r}]"
    return None


def attend(attention, name, q, k, v, settings, sinks, cu_seqlens, used_kv, out, stream, without):
    """attention() of tensors of which the one called `name` requires grad. without: (argument, whether it was passed, what to do
    instead) of those that have no gradients. Raises UnsupportedError, which names the reason, where no kernel computes gradients.
    """
    # ---- 1. What has no gradients ----
    backend = backend_of(q)
    torch = backend.torch
    instead = f"call it under torch.no_grad(), or pass {name}.detach()"
    for argument, passed, advice in without:
        if passed:
            raise UnsupportedError(f"{name} requires grad, but a call with {argument} has no gradients: {advice}, or {instead}")
    if out is not None:
        raise InvalidError(f"{name} requires grad, and out= does not go with gradients: leave it out, or {instead}")
    kind, of_q, of_kv = lengths_of(cu_seqlens, used_kv)
    if sinks is not None and not isinstance(sinks, torch.Tensor):
        raise InvalidError(f"{name} requires grad, and sinks is of another framework than torch; pass a tensor, or {instead}")
    asked = getattr(torch, "are_deterministic_algorithms_enabled", None)
    deterministic = _checks.flag("deterministic", settings.deterministic) or bool(asked and asked())
    arrays = {each: x for each, x in settings.args.items() if isinstance(x, torch.Tensor)} if isinstance(settings.args, dict) else {}
    dargs = ", ".join(each for each, x in arrays.items() if x.requires_grad)
    settings = settings._replace(deterministic=deterministic, return_lse=_checks.flag("return_lse", settings.return_lse))
    with torch.no_grad():  # what cannot be read is refused here: the function below must not meet tensors of torch.func
        inputs = view_inputs(q, k, v, None)
        lengths = view_lengths(kind, of_q, of_kv, None)
        if sinks is not None:
            backend_of(sinks).view("sinks", sinks)
        code = code_of(settings.score, settings.mask, settings.args, None, settings.block_mask)
    blocks = block_words_of(settings.block_mask)
    of_sequences = {"lengths": kind, "max_seqlen": settings.max_seqlen}
    options = options_of(code=code.texts, block_words=blocks, **of_sequences, **settings.plain)
    check_inputs(*inputs, options)
    check_block_mask(blocks, options, *inputs[:2])
    check_devices(code, inputs[0].device)
    if stream is not None and stream != backend.stream(inputs[0].device):
        raise InvalidError(
            f"{name} requires grad, and gradients run on torch's current stream: use torch.cuda.stream() instead of stream=, or {instead}"
        )
    of_sinks = sinks is not None and sinks.requires_grad
    reason = why_not_served(*inputs, options, lengths, deterministic, settings.return_lse, of_sinks, dargs)
    if reason:
        raise UnsupportedError(f"{name} requires grad, but no kernel computes the gradients of this call: {reason}; {instead}")

    # ---- 2. Outputs: what the kernels leave out is 0, lest something made of it is no number ----
    place = None
    if kind != "fixed":
        device, queue = inputs[0].device, backend.stream(inputs[0].device)

        def place():
            o = backend.zeros(shape_of_o(inputs[0], inputs[2]), inputs[0].code, device, queue)
            return o, backend.zeros(shape_of_lse(inputs[0], options.places), FP32, device, queue)

    if arrays:
        settings = settings._replace(args={each: None if each in arrays else x for each, x in settings.args.items()})
    return _function_of(torch).apply(attention, settings, place, q, k, v, sinks, kind, of_q, of_kv, *arrays.values())


def _with_arrays(args, arrays):
    """Settings.args with the arrays at their places."""
    there = iter(arrays)
    return {each: next(there) if x is None else x for each, x in args.items()} if isinstance(args, dict) else args


def _lengths_options(kind, of_q, of_kv, max_seqlen):
    if kind == "packed":
        return {"cu_seqlens": of_q if of_q is of_kv else (of_q, of_kv), "max_seqlen": max_seqlen}
    return {} if kind == "fixed" else {"used_kv": (of_q, of_kv)}


_functions = {}


def _function_of(torch):
    function = _functions.get(torch)
    if function is None:
        function = _functions[torch] = _make_function(torch)
    return function


def _make_function(torch):
    class Attention(torch.autograd.Function):
        """o, and lse where it was asked for, of q, k, v, sinks and arrays. Keeps these, o and lse, and nothing else of their size."""

        @staticmethod
        def forward(ctx, attention, settings, place, q, k, v, sinks, kind, of_q, of_kv, *arrays):
            given = settings._replace(args=_with_arrays(settings.args, arrays))._asdict()
            given.update(given.pop("plain"), return_lse=True, **_lengths_options(kind, of_q, of_kv, given.pop("max_seqlen")))
            del given["deterministic"]
            o, lse = attention(q, k, v, sinks=sinks, out=place and place(), **given)
            same = of_q is of_kv
            lengths = (of_q, None if same else of_kv)
            saved = [each if isinstance(each, torch.Tensor) else None for each in lengths]
            ctx.other_lengths = [None if isinstance(each, torch.Tensor) else each for each in lengths]
            ctx.settings, ctx.kind, ctx.same_lengths, ctx.arrays = settings, kind, same, len(arrays)
            ctx.save_for_backward(q, k, v, o, lse, sinks, *saved, *arrays)  # refuses what was written to in between
            ctx.set_materialize_grads(False)
            return (o, lse) if settings.return_lse else o

        @staticmethod
        def backward(ctx, dout, dlse=None):
            if dout is None and dlse is None:
                return (None,) * (10 + ctx.arrays)
            again = torch.is_grad_enabled()  # create_graph=True
            with torch.no_grad():
                gradients = Attention.gradients(ctx, dout, dlse)
            if again:
                q, k, v, *others = ctx.saved_tensors
                inputs = q, k, v, *others[len(others) - ctx.arrays :]
                there = iter(NoSecond.apply(len(inputs), *inputs, *(each for each in gradients if each is not None)))
                gradients = [None if each is None else next(there) for each in gradients]
            return (None, None, None, *gradients[:4], None, None, None, *gradients[4:])

        @staticmethod
        def gradients(ctx, dout, dlse):
            """Those of q, k, v, sinks and arrays; None where nobody asks."""
            q, k, v, o, lse, sinks, *saved = ctx.saved_tensors
            of_q, of_kv = (other if each is None else each for each, other in zip(saved[:2], ctx.other_lengths))
            s = ctx.settings
            dout = torch.zeros_like(o) if dout is None else _readable(torch, dout)
            dlse = None if dlse is None else dlse.resolve_neg().contiguous()
            needs = ctx.needs_input_grad[3:7]
            arrays = saved[2:]
            names = [each for each, x in s.args.items() if x is None] if arrays else []
            needed = [array if needed else None for array, needed in zip(arrays, ctx.needs_input_grad[10:])]
            dargs = {name: torch.zeros(x.shape, dtype=torch.float32, device=x.device) for name, x in zip(names, needed) if x is not None}
            gradients = attention_backward(
                q,
                k,
                v,
                o,
                lse,
                dout,
                **s.plain,
                dlse=dlse,
                deterministic=s.deterministic,
                block_mask=s.block_mask,
                score=s.score,
                mask=s.mask,
                args=_with_arrays(s.args, arrays),
                dargs=dargs,
                sinks=sinks if needs[3] else None,
                **_lengths_options(ctx.kind, of_q, of_q if ctx.same_lengths else of_kv, s.max_seqlen),
            )
            of_arrays = [None if x is None else dargs[name].to(x.dtype) for name, x in zip(names, needed)]
            return [each if wanted else None for each, wanted in zip((*gradients, None), needs)] + of_arrays

    class NoSecond(torch.autograd.Function):
        """Gradients as they are, of which no derivative is taken without a word."""

        @staticmethod
        def forward(ctx, inputs, *tensors):  # so many are inputs: autograd follows what comes of them
            return tuple(each.detach() for each in tensors[inputs:])

        @staticmethod
        def backward(ctx, *_):
            raise UnsupportedError("attention has a first derivative, but no second one: its gradients were differentiated again")

    return Attention


def _readable(torch, tensor):
    """A gradient as kernels can read it: those of sums are one element with strides of 0, others may begin anywhere."""
    tensor = tensor.resolve_neg()
    item, bits = tensor.element_size(), tensor.data_ptr()
    for size, stride in zip(tensor.shape[:-1], tensor.stride()[:-1]):
        if size > 1:
            bits |= stride * item or 1
    last = tensor.stride()[-1] == 1 or tensor.shape[-1] == 1
    return tensor if last and bits % 16 == 0 else tensor.clone(memory_format=torch.contiguous_format)
