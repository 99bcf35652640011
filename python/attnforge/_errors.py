"""Status codes of the C API as exceptions."""

from . import _c


class AttnforgeError(RuntimeError):
    """Something that attnforge refused or could not do; the text says what to do about it."""


class InvalidError(AttnforgeError, ValueError):
    """A problem or an argument is wrong; nothing was launched."""


class UnsupportedError(AttnforgeError, NotImplementedError):
    """A valid problem that no kernel family serves on this GPU."""


class WorkspaceError(AttnforgeError):
    """The workspace of a run is missing or too small."""


class CompileError(AttnforgeError):
    """NVRTC refused a kernel's source."""


class CudaError(AttnforgeError):
    """A call of the CUDA driver failed."""


class NotReadyError(AttnforgeError):
    """A kernel would have to be compiled or tuned, which was forbidden."""


class NoDriverError(AttnforgeError):
    """libcuda, libnvrtc or the GPU is missing."""


class PerformanceWarning(UserWarning):
    """A problem runs many times slower than it would with another dtype or address; the text says with which."""


_BY_STATUS = {
    _c.ERR_INVALID: InvalidError,
    _c.ERR_UNSUPPORTED: UnsupportedError,
    _c.ERR_WORKSPACE: WorkspaceError,
    _c.ERR_COMPILE: CompileError,
    _c.ERR_CUDA: CudaError,
    _c.ERR_NOT_READY: NotReadyError,
    _c.ERR_NO_MEMORY: MemoryError,
    _c.ERR_NO_DRIVER: NoDriverError,
    _c.ERR_IO: OSError,
}


def error_of(status, text):
    """The exception for a status of the C API that is not 0."""
    return _BY_STATUS.get(status, AttnforgeError)(text)
