"""Why could the local stack not start or go on? One error per reason, each one clear line."""

from pathlib import Path


class StackError(Exception):
    """The local stack cannot start or go on; `str()` is the one line shown to the person (X1)."""


class RedisBinaryMissingError(StackError):
    """No Redis or Valkey server program was found on this machine."""

    def __init__(self, looked_for: tuple[str, ...]) -> None:
        super().__init__(
            f"no Redis server found (looked for {', '.join(looked_for)}): "
            "install one, or set REDIS_URL to a server that runs already"
        )


class DataFolderLockedError(StackError):
    """Another process holds the lock of the data folder."""

    def __init__(self, folder: Path, holder: str) -> None:
        self.folder = folder
        who = f" (process {holder})" if holder else ""
        super().__init__(
            f"the data folder {folder} is in use by another genqueue{who}: "
            "stop that one, or choose another folder with --data"
        )


class RedisStartFailedError(StackError):
    """The embedded server ended, or did not answer in time."""

    def __init__(self, reason: str, log_tail: str = "") -> None:
        tail = f": {log_tail}" if log_tail else ""
        super().__init__(f"the embedded Redis did not start, {reason}{tail}")


class RedisUnreachableError(StackError):
    """The server that REDIS_URL names does not answer; the line shows no password."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(
            f"the Redis at {address} (REDIS_URL) cannot be used: {reason}; "
            "unset REDIS_URL to have make run start its own"
        )


class RedisPolicyWrongError(StackError):
    """The server may drop keys when its memory is full, so accepted work could be lost (X13)."""

    def __init__(self, address: str, policy: str) -> None:
        super().__init__(
            f"the Redis at {address} has maxmemory-policy {policy} and could drop accepted work: "
            "set it to noeviction"
        )


class PortBusyError(StackError):
    """Something listens on the port that the API was to have."""

    def __init__(self, port: int) -> None:
        super().__init__(f"port {port} is in use: choose another one with --port")


class ChildDiedError(StackError):
    """A process of the stack ended before the API was ready; carries its last lines of output."""

    def __init__(self, name: str, how: str, log_path: Path, last_lines: str) -> None:
        self.name = name
        self.last_lines = last_lines
        super().__init__(f"{name} ended before the stack was ready ({how}); see {log_path}")


class StackNotReadyError(StackError):
    """`/readyz` did not answer 200 in time."""

    def __init__(self, url: str, waited_s: float, last_answer: str) -> None:
        super().__init__(f"{url} was not ready within {waited_s:.0f} s: {last_answer}")


class KeyNotMadeError(StackError):
    """The command line could not make a development key."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"no development key could be made: {reason}")


class TeamNotMadeError(StackError):
    """The command line could not make a development team, or a token of it."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"no development team could be made: {reason}")


class SampleFailedError(StackError):
    """The sample prompt, or the sample generation, did not come back with an answer."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the sample failed: {reason}")


class StopRequestedError(StackError):
    """The stack was asked to stop before it served."""

    def __init__(self) -> None:
        super().__init__("stopped before it was ready")
