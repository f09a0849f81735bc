"""The error tree. Every error is also the built-in exception it resembles."""


class TaskThemeError(Exception):
    """Base of all errors that tasktheme raises on purpose; its message is one clear line."""


class SettingsError(TaskThemeError, ValueError):
    """A setting is unknown, out of range, or contradicts another."""


class DataError(TaskThemeError, ValueError):
    """Data has the wrong shape, type or values, or too little of it."""


class MissingDataError(DataError, FileNotFoundError):
    """A named data set or file is not where it was looked for."""


class ModelFileError(TaskThemeError, ValueError):
    """A saved model or task file is damaged, foreign or of a newer format."""


class OutputError(TaskThemeError, OSError):
    """An output path exists already or cannot be written."""


class NotFittedError(TaskThemeError, RuntimeError):
    """The model must be fitted before it is asked."""


class TrainingError(TaskThemeError, ArithmeticError):
    """Training met a NaN, an infinity or a covariance that is not positive definite."""


class LostProcess(TaskThemeError, ConnectionError):
    """Another process of a shared run has ended or does not answer, so this one cannot go on."""


class TrainingWarning(UserWarning):
    """What its user should know of a training that goes on, or of its model: themes or embeddings that say nothing, a step
    not compiled, tasks that are all alike to it."""


class Interrupted(TaskThemeError, KeyboardInterrupt):
    """Training was interrupted; the message says what was kept and how to go on."""


def out_of_memory(error: Exception) -> str | None:
    """One line instead of torch's account of a GPU's memory; None for any other error."""
    name = type(error).__name__  # of torch's error: torch is not loaded for this
    if name != "OutOfMemoryError" and "CUDA error: out of memory" not in str(error):  # where not even the driver has room
        return None
    return "the GPU has no memory left: other programs may use it; what was saved goes on as after an interrupt"
