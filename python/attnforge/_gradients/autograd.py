"""attention() with a derivative, for tensors of torch: the function of autograd, made once torch is there, and autocast."""

import itertools
from typing import NamedTuple

from .. import _checks
from .._calls import native, parts as _parts
from .._calls.arguments import check_inputs, view_inputs
from .._arrays import backend_of
from .._block_mask import by_number
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


_CHECKED = "checked"  # what is remembered of a call with a block mask: it differs from call to call


class Given(dict):
    """The options of a call, with a Leaf for each tensor; they are remembered, but those with a block mask."""

    def __init__(self, options, epoch, again=None):
        """epoch: plan_cache's when the call began. again: what the function of autograd does for calls like an earlier one."""
        super().__init__(options)
        self.again, self.epoch = again, epoch
        self.forward = {**options, "return_lse": True}
        self.numbers = numbers_of(self.get("args"))
        self._places = tuple(_places_of_leaves(options))
        self._wanted = {}  # by which gradients are
        self._backward = {}  # a BackwardCall by the layouts of its arrays: hooks of saved tensors may change these

    def leaves_of(self, options):
        """The tensors in options of a call like this one."""
        return [options[name] if inner is None else options[name][inner] for name, inner in self._places]

    def wanted(self, needs):
        """wanted_of() it."""
        found = self._wanted.get(needs)
        if found is None:
            found = self._wanted[needs] = wanted_of(self, needs)
        return found

    def gradients(self, saved, dout, options, values=None):
        """Those of attention_backward() of a call like an earlier one; None where more must be looked at. values: those of fast.native() that
        are to be remembered."""
        since = 0 if values is None else native.epoch()
        if self.epoch != plan_cache.epoch or dout.is_neg():
            return None
        call = self._backward.get(("sinks" in options, *_layouts(saved, dout)))
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
            if len(self._backward) >= 64:
                self._backward.clear()
            self._backward["sinks" in options, *_layouts(saved, dout)] = call


_numbered, _numbers = {}, itertools.count(1)
plan_cache.on_clear.append(_numbered.clear)


def again(number, q, k, v, attn_mask, options):
    """attention() of a call with gradients that is known by a number; None where more must be looked at."""
    known, of_mask = _numbered.get(number, (None, None))
    if known is None:
        return None
    if of_mask is not None:
        options = {**options, "args": {**(options.get("args") or {}), of_mask: attn_mask}}
    elif attn_mask is not None:
        from ..integrations.masks import with_attn_mask

        options = with_attn_mask(attn_mask, q, k, options)
    return known.again(known, q, k, v, *known.leaves_of(options))


def _remember(known, q, k, v, values, of_mask):
    """The call of `values` has a number from now on, if autocast has nothing to convert in it, and no block mask would be kept by it."""
    if known.get("block_mask") is not None:
        return
    since, number = native.epoch(), next(_numbers)
    if len(_numbered) >= plan_cache.limit:
        _numbered.clear()
    if known.again is not None and known.epoch == plan_cache.epoch and all(each.element_size() == 2 for each in (q, k, v)):
        _numbered[number] = known, of_mask
        native.remember_number(number, since, values)


def _name_of_mask(mask, args, others):
    """By which name args have attn_mask as it is, beside others; None where it was copied."""
    for name, value in args.items():
        if name not in others and type(value) is type(mask) and value.data_ptr() == mask.data_ptr() and value.numel() == mask.numel():
            return name if mask.is_contiguous() else None
    return None


def numbers_of(args):
    """Of them a key has the types alone."""
    return repr([value for value in args.values() if type(value) in (bool, int, float)]) if args else ""


def _places_of_leaves(options):
    for name, value in options.items():
        if isinstance(value, Leaf):
            yield name, None
        elif type(value) is tuple:
            yield from ((name, i) for i, each in enumerate(value) if isinstance(each, Leaf))
        elif type(value) is dict:
            yield from ((name, inner) for inner, each in value.items() if isinstance(each, Leaf))


def _layouts(saved, dout):
    return tuple([(type(x), x.shape, x.dtype, x.device, x.is_contiguous() or x.stride()) for x in (*saved, dout)])


def without_tensors(torch, value, leaves):
    """`value` of an argument, or of what is in it, with a Leaf for each tensor, which goes to `leaves`."""
    if isinstance(value, torch.Tensor):
        leaves.append(value)
        return Leaf(len(leaves) - 1)
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
    torch, function = backend.torch, _function_of(backend.torch, attention)
    asked = getattr(torch, "are_deterministic_algorithms_enabled", None)
    always = bool(asked and asked())
    key = of_mask = None
    if values is not None and values[7] is not None:
        of_mask = _name_of_mask(values[7], given.args or {}, values[8].get("args") or {})
        if of_mask is not None:
            given = given._replace(args={**given.args, of_mask: values[7]})
    if out is None and stream is None:
        key, known = _find(torch, always, q, k, v, given)
        if known is not None:
            if known is _CHECKED or known.numbers != numbers_of(given.args):
                leaves = []
                named = without_tensors(torch, given._replace(deterministic=given.deterministic or always).named(), leaves)
                known = Given(named, epoch, function.again)
            else:
                leaves = known.leaves_of(given.named())
            if values is not None:
                _remember(known, q, k, v, values, of_mask)
            return function.apply(known, q, k, v, *leaves)

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

    leaves = []
    known = Given(without_tensors(torch, given.named(), leaves), epoch, function.again)
    if key is not None:
        plan_cache.put_call(key, known if given.block_mask is None else _CHECKED, epoch)
    if given.cu_seqlens is not None and key is not None and values is not None:  # calls of other numbers of rows are like it
        _remember(known, q, k, v, values, of_mask)
    return function.apply(known, q, k, v, *leaves)


def rows_may_not_count(options):
    """Whether rows of o and lse may not be written, of options by their names."""
    used = options.get("used_kv")
    return "cu_seqlens" in options or type(used) in (tuple, list) and used[0] is not None


def attend_to_rows(attention, q, k, v, options):
    """(o, lse) of tensors whose rows_may_not_count(): what the kernels leave out is 0, lest something made of it is no number. options: of
    attention(), with return_lse."""
    values = TRAINING, None, q, k, v, None, 0, None, by_number(options)
    made = found = fast.native(*values)
    if not found:
        packed = "cu_seqlens" in options
        out = None if packed else _zeros(q, v, options)
        key = fast.key_of_attention(q, k, v, out, options) if found is False else None
        first = find(key) is None
        made = attention(q, k, v, out=out, **options)
        if packed:
            clear_rest_of_tensors(options["cu_seqlens"], made)
        if key is not None:
            native.remember_attention(key, values, made, options, first)
    return made


def shape_of_o(q, v):
    """Of tensors of torch, as _calls/arguments.py has it of views."""
    return (*q.shape[:-1], v.shape[-1] * (2 if v.dtype == backend_of(q).torch.uint8 else 1))  # a byte has two numbers of 4 bits


def dtype_of_o(q):
    torch = backend_of(q).torch
    return torch.bfloat16 if q.dtype == torch.float8_e4m3fn else q.dtype


def _zeros(q, v, options):
    """(o, lse) of padded tensors of torch."""
    rows = q.shape[:3] if options.get("layout") == "bhsd" else (q.shape[0], q.shape[2], q.shape[1])
    return q.new_zeros(shape_of_o(q, v), dtype=dtype_of_o(q)), q.new_zeros(rows, dtype=backend_of(q).torch.float32)


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
        def forward(ctx, given, q, k, v, *leaves):
            forward = with_tensors(given.forward, leaves) if leaves else given.forward
            if rows_may_not_count(forward):
                made = attend_to_rows(attention, q, k, v, forward)
            else:
                made = fast.native(ATTENTION, None, q, k, v, None, 0, None, by_number(forward)) or attention(q, k, v, **forward)
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
            given, saved, needs, told = ctx.given, ctx.saved_tensors, ctx.needs_input_grad[1:], None
            plain = dout is not None and not again
            if plain:
                options, of_sinks, of_args = wanted = given.wanted(needs)
                leaves = saved[5:]
                options = with_tensors(options, leaves) if leaves else options
                values = (BACKWARD, None, *saved[:5], dout, dlse, by_number(options), *([tuple(of_args)] if of_args else ()))
                found = fast.native(*values)
                told = values if found is False else None
                plain = dlse is None and not of_args
                if found or plain and (found := given.gradients(saved, dout, options, told)):
                    return (None, *(of_leaves(given, wanted, found, leaves) if leaves else found))
            with torch.no_grad():
                gradients = gradients_of(torch, given, saved, needs, dout, dlse, told)
                if plain:
                    given.remember(saved, dout, options)
            if again:
                q, k, v, _, _, *leaves = saved
                inputs = q, k, v, *leaves
                there = iter(NoSecond.apply(len(inputs), *inputs, *(each for each in gradients if each is not None)))
                gradients = [None if each is None else next(there) for each in gradients]
            return (None, *gradients)

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
        return None if transforms() else apply(given, q, k, v, *leaves)

    Attention.again = None if transforms is None else staticmethod(again)
    return Attention


def of_backward(options):
    return {name: value for name, value in options.items() if name not in OF_FORWARD}


_not_whole = set()  # kinds of calls


def wanted_of(given, needs):
    """(options of backward, whether there is a gradient of sinks, {name: place among leaves} of arrays in args that have one). given: options
    with a Leaf for each tensor; needs: which of q, k, v and the leaves have a gradient."""
    sinks, args, options = given.get("sinks"), given.get("args") or {}, of_backward(given)
    of_sinks = sinks is not None and needs[3 + sinks.index]
    if not of_sinks:
        options.pop("sinks", None)
    return options, of_sinks, {name: leaf.index for name, leaf in args.items() if isinstance(leaf, Leaf) and needs[3 + leaf.index]}


def of_leaves(given, wanted, found, leaves):
    """Gradients of q, k, v and the other tensors of a call, None where nobody asks. wanted: wanted_of() it; found: those of q, k, v, then
    of sinks and of arrays in args."""
    _, of_sinks, of_args = wanted
    gradients = [*found[:3], *(None,) * len(leaves)]
    if of_sinks:
        gradients[3 + given["sinks"].index] = found[3]
    for i, gradient in zip(of_args.values(), found[3 + of_sinks :]):
        gradient = gradient.to(leaves[i].dtype)
        gradients[3 + i] = gradient if gradients[3 + i] is None else gradients[3 + i] + gradient
    return gradients


def gradients_of(torch, given, saved, needs, dout, dlse, told=None):
    """Those of q, k, v and the other tensors of a call, None where nobody asks. given: its options, with a Leaf for each of these; saved:
    q, k, v, o, lse and they. told: the values of fast.native() that are to be remembered."""
    q, k, v, o, lse, *leaves = saved
    options, of_sinks, of_args = wanted = wanted_of(given, needs)
    options = with_tensors(options, leaves)
    as_given = dout, dlse
    dout = torch.zeros_like(o) if dout is None else readable(torch, dout)
    dlse = None if dlse is None else dlse.resolve_neg().contiguous()
    told = told if dout is as_given[0] and dlse is as_given[1] else None
    trained = {each: leaves[i] for each, i in of_args.items()}
    kind = q.dtype, q.device, q.shape[0] > 1, options.get("score"), options.get("softcap"), *trained
    dargs, whole = new_dargs(torch, trained, kind not in _not_whole)
    try:
        found = _by_kernels(q, k, v, o, lse, dout, dlse, dargs, options, told)
    except (InvalidError, UnsupportedError):
        if not whole:
            raise
        _not_whole.add(kind)  # no kernel writes it: added up in float32 it is
        dargs, _ = new_dargs(torch, trained, False)
        found = _by_kernels(q, k, v, o, lse, dout, dlse, dargs, options, told)
    gradients = of_leaves(given, wanted, (*found, *dargs.values()), leaves)
    return [each if i >= 3 or needs[i] else None for i, each in enumerate(gradients)]


def _by_kernels(q, k, v, o, lse, dout, dlse, dargs, options, told):
    """attention_backward(). dargs: new arrays, which share memory with no other. told: as by_plans() has it, of gradients of args."""
    if dargs:
        return by_plans(q, k, v, o, lse, dout, dlse, dargs, options, dargs_are_new=True, told=told)
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
