"""The exceptions for mistakes that a user can correct, and the meaning of other exceptions; knows nothing else."""

_JOINERS = "\u200c\u200d"  # emoji, Persian and Indic scripts are spelt with them


class UserError(ValueError):
    """A caller's mistake, described in one line: what is wrong, the value found, and how to correct it."""


class StoppedError(UserError):
    """The user or the system ended a run by Ctrl-C or a signal; the message says what the run has saved."""


def printable(text: str) -> str:
    """Return a line with question marks in place of characters that a terminal would obey, or that it cannot show."""
    return "".join(character if character.isprintable() or character in _JOINERS else "?" for character in text)


def shorten(told: object) -> str:
    """Return the text of an error or value in one line of at most 200 characters; of an error without text, its class.

    Characters that a terminal would obey, such as escape sequences, become question marks.
    """
    text = str(told) or (type(told).__name__ if isinstance(told, BaseException) else "")
    return printable(" ".join(text.split()))[:200]


_NO_MEMORY = (  # PyTorch's allocators; cuBLAS and cuDNN, which have no exception of their own
    "out of memory", "defaultcpuallocator", "cublas_status_alloc_failed", "cudnn_status_alloc_failed",
    "cudnn_status_internal_error_host_allocation_failed", "cudnn_status_internal_error_device_allocation_failed",
)  # fmt: skip


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception means that memory ran out, so that a smaller batch could work."""
    message = str(error).lower()
    return isinstance(error, MemoryError) or any(words in message for words in _NO_MEMORY)
