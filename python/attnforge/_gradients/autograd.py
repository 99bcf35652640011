"""attention() with a derivative, for tensors of torch: the function of autograd, made once torch is there, and autocast."""

import itertools
from typing import NamedTuple

from .. import _checks
from .._calls import native, parts as _parts
from .._calls.arguments import check_inputs, new_outputs, view_inputs
from .._arrays import backend_of
from .backward import attention_backward, by_plans, why_not_served
from .._calls.code import check_devices, code_of, name_of, new_dargs
from .._errors import InvalidError, UnsupportedError
from .._calls.fast import fast, find, is_autocast_enabled
from .._calls.native import ATTENTION, BACKWARD, TRAINING
from .._calls.rest import clear_rest_of_tensors
from .._library import check
from .._options import NO_GRADIENTS, OF_FORWARD, check_options
from .._plans import plan_cache


class Leaf(NamedTuple):
    """In the place of a tensor of torch, which autograd must see beside."""

    index: int


_CHECKED = "checked"  # what is remembered of a call with other tensors, or blocks: it differs from call to call


class Plain(dict):
    """The options of a call whose only tensors are q, k and v, and cu_seqlens, which is remembered."""

    def __init__(self, options, epoch, again=None):
        """epoch: plan_cache's when the call began. again: what the function of autograd does for calls like an earlier one."""
        super().__init__(options)
        self.again = again
        self.forward, self.epoch = {**options, "return_lse": True}, epoch
        self.of_backward = of_backward(options)
        self.packed = "cu_seqlens" in options
        self.backward = {}  # a BackwardCall by the layouts of its arrays: hooks of saved tensors may change these

    def with_ends(self, options, leaves):
        """Options of this call with cu_seqlens, which are its leaves."""
        return {**options, "cu_seqlens": leaves[0] if len(leaves) == 1 else tuple(leaves)} if self.packed else options

    def gradients(self, saved, dout, options, values=None):
        """(dq, dk, dv) of a call like an earlier one; None where more must be looked at. options: of_backward with_ends(); values: those of
        fast.native() that are to be remembered."""
        since = 0 if values is None else native.epoch()
        if self.epoch != plan_cache.epoch or dout.is_neg():
            return None
        call = self.backward.get(_layouts(saved, dout))
        ran = call and call.run(*saved[:5], dout, None, None, None, options, None)
        if not ran:
            return None
        status, found = ran
        if status:
            check(status)
        if values is not None:
            native.remember_backward(call, since, values, found)
        return found

    def remember(self, saved, dout, options):
        """After attention_backward() of these: what it found out of their layouts."""
        values = *saved[:5], dout, None, None, False, False, *options.values()
        call = find(fast.key_of(("backward", *options), values))
        if call is not None:
            if len(self.backward) >= 64:
                self.backward.clear()
            self.backward[_layouts(saved, dout)] = call


_numbered, _numbers = {}, itertools.count(1)
plan_cache.on_clear.append(_numbered.clear)


def again(number, q, k, v, options):
    """attention() of a call with gradients that is known by a number; None where more must be looked at."""
    known = _numbered.get(number)
    return None if known is None else known.again(known, q, k, v, *_ends_of(options.get("cu_seqlens")))


def _remember(known, q, k, v, values):
    """The call of `values` has a number from now on, if autocast has nothing to convert in it."""
    since, number = native.epoch(), next(_numbers)
    if len(_numbered) >= plan_cache.limit:
        _numbered.clear()
    if known.again is not None and known.epoch == plan_cache.epoch and all(each.element_size() == 2 for each in (q, k, v)):
        _numbered[number] = known
        native.remember_number(number, since, values)


def _ends_of(cu_seqlens):
    """Leaves of a Plain."""
    if cu_seqlens is None:
        return ()
    return tuple(cu_seqlens) if isinstance(cu_seqlens, (tuple, list)) else (cu_seqlens,)


def _layouts(saved, dout):
    return tuple([(type(x), x.shape, x.dtype, x.device, x.is_contiguous() or x.stride()) for x in (*saved, dout)])


def without_tensors(torch, value, leaves):
    """`value` of an argument, or of what is in it, with a Leaf for each tensor, which goes to `leaves`, the same one once."""
    if isinstance(value, torch.Tensor):
        index = next((i for i, leaf in enumerate(leaves) if leaf is value), len(leaves))
        if index == len(leaves):
            leaves.append(value)
        return Leaf(index)
    if type(value) in (tuple, list):
        return tuple(without_tensors(torch, each, leaves) for each in value)
    if isinstance(value, dict):
        return {name: without_tensors(torch, each, leaves) for name, each in value.items()}
    return value


def with_tensors(value, leaves):
    """The same the other way round."""
    if isinstance(value, Leaf):
        return leaves[value.index]
    if type(value) is tuple:
        return tuple(with_tensors(each, leaves) for each in value)
    if isinstance(value, dict):
        return {name: with_tensors(each, leaves) for name, each in value.items()}
    return value


def autocast(torch, q, k, v):
    """q, k and v as torch.autocast would have them: all of its dtype if one is float32. None where nothing changes."""
    if not is_autocast_enabled(torch):
        return None
    if not all(isinstance(x, torch.Tensor) for x in (q, k, v)) or all(x.dtype != torch.float32 for x in (q, k, v)):
        return None
    dtype = _autocast_dtype(torch)
    if dtype == torch.float32 or any(x.dtype not in (torch.float32, torch.float16, torch.bfloat16) for x in (q, k, v)):
        return None
    return tuple(x if x.dtype == dtype else x.to(dtype) for x in (q, k, v))


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


def _find(torch, always, q, k, v, given):
    """(key, what is known of a call like it); None where there is none."""
    try:
        needs = [name for name, x in (given.args or {}).items() if isinstance(x, torch.Tensor) and x.requires_grad]
        with torch.no_grad():
            key = fast.key_of(("attend", always, given.sinks is not None and given.sinks.requires_grad, *needs), (q, k, v, *given))
        known = find(key)
        if known is not None and not (q.data_ptr() and k.data_ptr() and v.data_ptr()):  # tensors of modes and transforms of torch
            known = None
        return key, known
    except Exception:  # whatever it is, the long way says it
        return None, None


def _check_has_gradients(torch, name, given, out, instead):
    """Raises for arguments that do not go with gradients. instead: what to do."""
    for argument, advice in NO_GRADIENTS.items():
        if getattr(given, argument) is not None:
            raise UnsupportedError(f"{name} requires grad, but a call with {argument} has no gradients: {advice}, or {instead}")
    if out is not None:
        raise InvalidError(f"{name} requires grad, and out= does not go with gradients: leave it out, or {instead}")
    if given.sinks is not None and not isinstance(given.sinks, torch.Tensor):
        raise InvalidError(f"{name} requires grad, and sinks is of another framework than torch; pass a tensor, or {instead}")


def attend(attention, name, q, k, v, given, out, stream, values=None):
    """attention() of tensors of which the one called `name` requires grad. given: its Options. values: those of fast.native() that are
    to be remembered. Raises UnsupportedError, which names the reason, where no kernel computes gradients.
    """
    backend, epoch = backend_of(q), plan_cache.epoch
    torch = backend.torch
    asked = getattr(torch, "are_deterministic_algorithms_enabled", None)
    always = bool(asked and asked())
    key = None
    if out is None and stream is None:
        key, known = _find(torch, always, q, k, v, given)
        if known is not None:
            leaves = _ends_of(given.cu_seqlens)
            if known is _CHECKED:
                leaves = []
                known = without_tensors(torch, given._replace(deterministic=given.deterministic or always).named(), leaves)
            elif values is not None:
                _remember(known, q, k, v, values)
            return _function_of(torch, attention).apply(known, None, q, k, v, *leaves)

    # ---- 1. What has no gradients ----
    instead = f"call it under torch.no_grad(), or pass {name}.detach()"
    _check_has_gradients(torch, name, given, out, instead)
    sinks, args = given.sinks, given.args
    deterministic = _checks.flag("deterministic", given.deterministic) or always
    return_lse = _checks.flag("return_lse", given.return_lse)
    given = given._replace(deterministic=deterministic, return_lse=return_lse)
    in_args = args.items() if isinstance(args, dict) else ()
    dargs = ", ".join(name_of(each) for each, x in in_args if isinstance(x, torch.Tensor) and x.requires_grad)
    with torch.no_grad():  # what cannot be read is refused here: the function below must not meet tensors of torch.func
        inputs = view_inputs(q, k, v, None)
        code = code_of(given.score, given.mask, args, None, given.block_mask)
        kind, arrays = _parts.view(given, None)
    backward = given._replace(return_lse=False, batch_invariant=False)
    options = check_options(backward, _parts.words_of(given, code, kind, arrays))
    check_inputs(*inputs, options)
    check_devices(code, inputs[0].device)
    if stream is not None and stream != backend.stream(inputs[0].device):
        raise InvalidError(
            f"{name} requires grad, and gradients run on torch's current stream: use torch.cuda.stream() instead of stream=, or {instead}"
        )
    of_sinks = sinks is not None and sinks.requires_grad
    reason = why_not_served(
        *inputs, options, arrays, deterministic=deterministic, dlse=return_lse, sinks=of_sinks, dargs=dargs
    )
    if reason:
        raise UnsupportedError(f"{name} requires grad, but no kernel computes the gradients of this call: {reason}; {instead}")

    # ---- 2. Outputs: what the kernels leave out is 0, lest something made of it is no number ----
    place = None
    if options.parts.rows_may_not_count and not options.parts.packed:
        queue = backend.stream(inputs[0].device)

        def place():
            return new_outputs(backend, inputs, options.places, True, queue, zeros=True)

    leaves, function = [], _function_of(torch, attention)
    ends, named = _ends_of(given.cu_seqlens), given.named()
    others = without_tensors(torch, {name: value for name, value in named.items() if name != "cu_seqlens"}, leaves)
    plain = key is not None and place is None and not leaves and "args" not in others and "block_mask" not in others
    if plain:
        if ends:
            of_ends = tuple(map(Leaf, range(len(ends))))
            others["cu_seqlens"] = of_ends[0] if len(ends) == 1 else of_ends
        leaves, given = ends, Plain(others, epoch, function.again)
    else:
        leaves = []
        given = without_tensors(torch, named, leaves)
    if key is not None and place is None:
        plan_cache.put_call(key, given if plain else _CHECKED, epoch)
    if plain and ends and values is not None:  # calls of other numbers of rows are like it
        _remember(given, q, k, v, values)
    return function.apply(given, place, q, k, v, *leaves)


def attend_packed(attention, q, k, v, options):
    """(o, lse) of packed tensors, of which rows after the last sequence are 0. options: of attention(), with return_lse."""
    values = TRAINING, None, q, k, v, None, 0, None, options
    made = found = fast.native(*values)
    if not found:
        key = fast.key_of_attention(q, k, v, None, options) if found is False else None
        first = find(key) is None
        made = attention(q, k, v, **options)
        clear_rest_of_tensors(options["cu_seqlens"], made)
        if key is not None:
            native.remember_attention(key, values, made, options, first)
    return made


_functions = {}


def _function_of(torch, attention):
    function = _functions.get(torch)
    if function is None:
        function = _functions[torch] = _make_function(torch, attention)
    return function


def _make_function(torch, attention):
    class Attention(torch.autograd.Function):
        """o, and lse where it was asked for, of q, k, v and the other tensors of a call. Keeps these, o and lse, and nothing else of
        their size."""

        @staticmethod
        def forward(ctx, given, place, q, k, v, *leaves):
            plain = type(given) is Plain
            forward = given.with_ends(given.forward, leaves) if plain else {**with_tensors(given, leaves), "return_lse": True}
            if "cu_seqlens" in forward:
                made = attend_packed(attention, q, k, v, forward)
            else:
                made = plain and fast.native(ATTENTION, None, q, k, v, None, 0, None, forward)
                made = made or attention(q, k, v, out=place and place(), **forward)
            o, lse = made
            ctx.given = given
            ctx.save_for_backward(q, k, v, o, lse, *leaves)  # refuses what was written to in between
            ctx.set_materialize_grads(False)
            return (o, lse) if "return_lse" in given else o

        @staticmethod
        def backward(ctx, dout, dlse=None):
            if dout is None and dlse is None:
                return (None,) * len(ctx.needs_input_grad)
            again = torch.is_grad_enabled()  # create_graph=True
            plain = type(ctx.given) is Plain and dlse is None and not again
            saved = ctx.saved_tensors
            if plain:
                options = ctx.given.with_ends(ctx.given.of_backward, saved[5:])
                values = (BACKWARD, None, *saved[:5], dout, None, options)
                found = fast.native(*values)
                if found or (found := ctx.given.gradients(saved, dout, options, values if found is False else None)):
                    return (None, None, *found, *(None,) * (len(saved) - 5))
            with torch.no_grad():
                gradients = gradients_of(torch, ctx.given, saved, ctx.needs_input_grad[2:], dout, dlse)
                if plain:
                    ctx.given.remember(saved, dout, options)
            if again:
                q, k, v, _, _, *leaves = saved
                inputs = q, k, v, *leaves
                there = iter(NoSecond.apply(len(inputs), *inputs, *(each for each in gradients if each is not None)))
                gradients = [None if each is None else next(there) for each in gradients]
            return (None, None, *gradients)

    class NoSecond(torch.autograd.Function):
        """Gradients as they are, of which no derivative is taken without a word."""

        @staticmethod
        def forward(ctx, inputs, *tensors):  # so many are inputs: autograd follows what comes of them
            return tuple(each.detach() for each in tensors[inputs:])

        @staticmethod
        def backward(ctx, *_):
            raise UnsupportedError("attention has a first derivative, but no second one: its gradients were differentiated again")

    # Function.apply() looks for torch.func's transforms in all that it is given, which takes a third of its time.
    apply = getattr(super(torch.autograd.Function, Attention), "apply", Attention.apply)
    transforms = getattr(getattr(torch, "_C", None), "_are_functorch_transforms_active", None)

    def again(given, q, k, v, *leaves):
        return None if transforms() else apply(given, None, q, k, v, *leaves)

    Attention.again = None if transforms is None else staticmethod(again)
    return Attention


def of_backward(options):
    return {name: value for name, value in options.items() if name not in OF_FORWARD}


_not_whole = set()  # kinds of calls


def gradients_of(torch, given, saved, needs, dout, dlse):
    """Those of q, k, v and the other tensors of a call, None where nobody asks. given: its options, with a Leaf for each of these; saved:
    q, k, v, o, lse and they."""
    q, k, v, o, lse, *leaves = saved
    options = of_backward(with_tensors(given, leaves))
    dout = torch.zeros_like(o) if dout is None else readable(torch, dout)
    dlse = None if dlse is None else dlse.resolve_neg().contiguous()
    sinks = given.get("sinks")
    of_sinks = sinks is not None and needs[3 + sinks.index]
    of_args = {each: leaf.index for each, leaf in (given.get("args") or {}).items() if isinstance(leaf, Leaf)}
    of_args = {each: i for each, i in of_args.items() if needs[3 + i]}
    if not of_sinks:
        options.pop("sinks", None)
    trained = {each: leaves[i] for each, i in of_args.items()}
    kind = q.dtype, q.device, q.shape[0] > 1, options.get("score"), options.get("softcap"), *trained
    dargs, whole = new_dargs(torch, trained, kind not in _not_whole)
    try:
        found = _by_kernels(q, k, v, o, lse, dout, dlse, dargs, options)
    except (InvalidError, UnsupportedError):
        if not whole:
            raise
        _not_whole.add(kind)  # no kernel writes it: added up in float32 it is
        dargs, _ = new_dargs(torch, trained, False)
        found = _by_kernels(q, k, v, o, lse, dout, dlse, dargs, options)
    gradients = [each if wanted else None for each, wanted in zip(found[:3], needs)] + [None] * len(leaves)
    if of_sinks:
        gradients[3 + sinks.index] = found[3]
    for each, i in of_args.items():
        gradient = dargs[each].to(leaves[i].dtype)
        gradients[3 + i] = gradient if gradients[3 + i] is None else gradients[3 + i] + gradient
    return gradients


def _by_kernels(q, k, v, o, lse, dout, dlse, dargs, options):
    """attention_backward(). dargs: new arrays, which share memory with no other."""
    if dargs:
        return by_plans(q, k, v, o, lse, dout, dlse, dargs, options, dargs_are_new=True)
    return attention_backward(q, k, v, o, lse, dout, dlse=dlse, **options)


def readable(torch, tensor):
    """A gradient as kernels can read it: those of sums are one element with strides of 0, others may begin anywhere."""
    tensor = tensor.resolve_neg()
    item, bits = tensor.element_size(), tensor.data_ptr()
    for size, stride in zip(tensor.shape[:-1], tensor.stride()[:-1]):
        if size > 1:
            bits |= stride * item or 1
    last = tensor.stride()[-1] == 1 or tensor.shape[-1] == 1
    return tensor if last and bits % 16 == 0 else tensor.clone(memory_format=torch.contiguous_format)
