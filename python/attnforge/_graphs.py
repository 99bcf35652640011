"""Under torch.compile a call of this package is an op of the graph: what stands for it there is in integrations/torch_ops.py."""

import functools
import sys

_with_ops = []
waiting = True  # for torch, which may be imported after this package


def with_op(function):
    """`function`, for which a caller that is traced has integrations.torch_ops' function of its name. It begins with

    if _graphs.waiting and _graphs.torch_is_there():
        return function(the same arguments)

    since a first call under torch.compile would else be traced in vain, and fail where the tracer does."""
    name = function.__name__

    @functools.wraps(function)
    def traced(*args, **kwargs):
        from .integrations import torch_ops

        return getattr(torch_ops, name)(*args, **kwargs)

    del traced.__wrapped__
    function._torchdynamo_inline = traced  # as what torch.jit compiled says what to trace; nothing is asked in a call
    _with_ops.append(function)
    return function


def torch_is_there():
    """Whether torch has come. From then on those functions, and all that they call, run as they are where they are called from outside
    of a graph."""
    global waiting
    torch = sys.modules.get("torch")
    if torch is None:  # or an import of it is refused: each call of who has other arrays comes here
        return False
    frames = getattr(getattr(getattr(torch, "_C", None), "_dynamo", None), "eval_frame", None)
    if frames is None:
        return False
    waiting = False
    try:
        skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
        for function in _with_ops:
            # torch._dynamo.reset() forgets what was said of code that was traced before, as a first call's may be now.
            function.__code__ = function.__code__.replace()
            frames.set_code_exec_strategy(function.__code__, skip)
    except (AttributeError, TypeError):  # torch before 2.7
        pass
    return True


torch_is_there._torchdynamo_disable = True
