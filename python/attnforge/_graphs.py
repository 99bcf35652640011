"""Under torch.compile a call of this package is between two graphs: nothing inside it is traced."""

import sys

_outside = []
waiting = True  # for torch, which may be imported after this package


def outside(function):
    """`function`, where tracing of a caller ends: it launches kernels that no graph knows. It begins with

    if _graphs.waiting and _graphs.torch_is_there():
        return function(the same arguments)

    since a first call under torch.compile would else be traced in vain, and fail where the tracer does."""
    function._torchdynamo_disable = True  # as torch.compiler.disable() marks its own, which would need all of the compiler
    function._torchdynamo_disable_msg = "attnforge launches kernels that no graph knows"
    _outside.append(function)
    return function


def torch_is_there():
    """Whether torch has come. From then on those functions, and all that they call, run as they are."""
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
        for function in _outside:
            # torch._dynamo.reset() forgets what was said of code that was traced before, as a first call's may be now.
            function.__code__ = function.__code__.replace()
            frames.set_code_exec_strategy(function.__code__, skip)
    except (AttributeError, TypeError):  # torch before 2.7
        pass
    return True


torch_is_there._torchdynamo_disable = True
