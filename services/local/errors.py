"""What stops the local system from starting, told in words that fit a terminal."""


class LocalError(Exception):
    """The system cannot start or go on; `str(error)` is the line that its user is told."""


class StartFailed(LocalError):
    """A child process did not come up; `log_tail` is the end of what it had to say."""

    def __init__(self, text: str, *, log_tail: str = ""):
        super().__init__(f"{text}\n{log_tail}" if log_tail else text)
        self.log_tail = log_tail
