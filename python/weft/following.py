"""Logs of runs (``weft run --log run.jsonl``), as they are written, to what draws curves."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Callable, Dict, Iterator, Optional, Protocol, Tuple, Union

from .errors import FileError, UsageError

__all__ = ["LogError", "Sink", "follow", "read_log"]

Path = Union[str, "os.PathLike[str]"]


class LogError(FileError):
    """A line of a log is none. ``line`` is its number, from 1."""

    def __init__(self, path: str, line: int, why: str) -> None:
        super().__init__(f"{path}:{line}: {why}")
        self.path, self.line, self.why = path, line, why

    def __reduce__(self) -> Tuple[Any, ...]:
        """Into other processes: from what it was made of, which is not its text."""
        return LogError, (self.path, self.line, self.why), self.__dict__


class Sink(Protocol):
    """Where a log goes to."""

    def start(self, header: Dict[str, Any]) -> None:
        """A run begins; ``header`` is the first line of its log."""

    def log(self, step: int, metrics: Dict[str, float]) -> None:
        """A step is done."""

    def finish(self) -> None:
        """The log is read."""


def _missing(package: str, error: ImportError) -> ImportError:
    return ImportError(f"to follow a log with {package} it must be installed: pip install {package}")


class _Call:
    def __init__(self, function: Callable[[int, Dict[str, float]], Any], options: Dict[str, Any]):
        if options:
            raise UsageError("a function takes no options: " + ", ".join(options))
        self.log = function

    def start(self, header: Dict[str, Any]) -> None:
        pass

    def finish(self) -> None:
        pass


class _Wandb:
    def __init__(self, options: Dict[str, Any]) -> None:
        try:
            import wandb
        except ImportError as e:
            raise _missing("wandb", e) from e
        self.wandb, self.options, self.run = wandb, options, None  # type: Any, Dict[str, Any], Any

    def start(self, header: Dict[str, Any]) -> None:
        self.finish()
        options = {"name": header.get("name"), "config": header, **self.options}
        self.run = self.wandb.init(**options)

    def log(self, step: int, metrics: Dict[str, float]) -> None:
        self.run.log(metrics, step=step)

    def finish(self) -> None:
        if self.run is not None:
            self.run.finish()
        self.run = None


class _Mlflow:
    def __init__(self, options: Dict[str, Any]) -> None:
        try:
            import mlflow
        except ImportError as e:
            raise _missing("mlflow", e) from e
        self.mlflow, self.options, self.open = mlflow, options, False  # type: Any, Dict[str, Any], bool

    def start(self, header: Dict[str, Any]) -> None:
        self.finish()
        self.mlflow.start_run(**{"run_name": header.get("name"), **self.options})
        self.open = True
        self.mlflow.log_params(header)

    def log(self, step: int, metrics: Dict[str, float]) -> None:
        self.mlflow.log_metrics(metrics, step=step)

    def finish(self) -> None:
        if self.open:
            self.mlflow.end_run()
        self.open = False


class _TensorBoard:
    def __init__(self, options: Dict[str, Any]) -> None:
        writer: Any = None
        try:
            from torch.utils.tensorboard import SummaryWriter as writer  # type: ignore
        except ImportError:
            try:
                from tensorboardX import SummaryWriter as writer  # type: ignore
            except ImportError as e:
                raise _missing("tensorboardX", e) from e
        self.writer = writer(**options)

    def start(self, header: Dict[str, Any]) -> None:
        self.writer.add_text("run", json.dumps(header, indent=2))

    def log(self, step: int, metrics: Dict[str, float]) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)

    def finish(self) -> None:
        self.writer.close()


_SINKS: Dict[str, Callable[[Dict[str, Any]], Any]] = {
    "wandb": _Wandb,
    "mlflow": _Mlflow,
    "tensorboard": _TensorBoard,
}


def _sink(to: Any, options: Dict[str, Any]) -> Any:
    if isinstance(to, str):
        if to not in _SINKS:
            raise UsageError(f'cannot follow to "{to}": it is none of {", ".join(_SINKS)}')
        return _SINKS[to](options)
    if all(hasattr(to, name) for name in ("start", "log", "finish")):
        return to
    if callable(to):
        return _Call(to, options)
    raise UsageError(f"cannot follow to a {type(to).__name__}: a name, a function or a Sink is needed")


def _metrics(line: Dict[str, Any]) -> Dict[str, float]:
    """The numbers of a step, and the losses of its streams as ``sources/NAME/loss``."""
    out: Dict[str, float] = {}
    for key, value in line.items():
        if isinstance(value, (int, float)) and key != "step":
            out[key] = value
        elif isinstance(value, list):
            for part in value:
                name = part.get("name") if isinstance(part, dict) else None
                for field, x in part.items() if name else ():
                    if isinstance(x, (int, float)):
                        out[f"{key}/{name}/{field}"] = x
    return out


_ENDS = ("done", "stopped", "interrupted", "failed")  # events behind which no step comes


def _parse(path: str, number: int, line: bytes) -> Dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as e:
        raise LogError(path, number, f"this is no JSON: {e}") from e
    if not isinstance(value, dict) or not isinstance(value.get("run"), str):
        raise LogError(path, number, 'no line of a log of weft run: it has no "run"')
    if "event" not in value and not isinstance(value.get("step"), int):
        raise LogError(path, number, 'a line without "event" is a step, and has a number "step"')
    return value


def read_log(path: Path, *, wait: bool = False, poll: float = 0.5,
             timeout: Optional[float] = None) -> Iterator[Dict[str, Any]]:
    """The lines of a log as dicts.

    With ``wait`` it goes on with what is written later, looking every ``poll`` seconds, until
    the run has ended: its last step is done, or it was stopped, interrupted or has failed.
    ``timeout`` ends it, too, after so many seconds without a line. A line that is not finished
    yet is waited for; a last one that stays so is left out, as a run that was killed leaves it.
    Raises :class:`LogError` for a line that is none of a log."""
    name = os.fspath(path)
    number, rest, quiet, last = 0, b"", 0.0, None  # type: int, bytes, float, Optional[int]
    ended, half = False, b""
    while wait and not os.path.exists(name):
        if timeout is not None and quiet >= timeout:
            raise FileError(f"{name}: is not there after {timeout:g} seconds")
        time.sleep(poll)
        quiet += poll
    try:
        file = open(name, "rb")
    except OSError as e:
        raise FileError(f"{name}: {e.strerror}") from e
    with file:
        while True:
            chunk = file.read(1 << 16)
            if not chunk:
                quiet = quiet if rest == half else 0.0
                half = rest
                if file.seekable():  # a run that goes on cuts off what a killed one has left
                    file.seek(-len(rest), os.SEEK_CUR)
                    rest = b""
                if not wait or ended or (timeout is not None and quiet >= timeout):
                    return
                time.sleep(poll)
                quiet += poll
                continue
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            for text in lines:
                number, quiet = number + 1, 0.0
                if not text:
                    continue
                line = _parse(name, number, text)
                event = line.get("event")
                if event == "start":
                    # One that is resumed at its end has no step left.
                    last, began = line.get("steps"), (line.get("resumed") or {}).get("step", 0)
                    ended = last is not None and began >= last > 0
                elif event in _ENDS or (last and line.get("step") == last - 1):
                    ended = True
                yield line


def follow(path: Path, to: Any, *, wait: bool = True, poll: float = 0.5,
           timeout: Optional[float] = None, **options: Any) -> int:
    """Sends the steps of a log to ``to``, and returns how many there were.

    ``to`` is ``"wandb"``, ``"mlflow"``, ``"tensorboard"`` (``options`` are those of
    ``wandb.init``, ``mlflow.start_run``, ``SummaryWriter``), a function of a step's number and its
    metrics, or a :class:`Sink`. ``wait``, ``poll`` and ``timeout`` are those of
    :func:`read_log`. ImportError names the package that is missing."""
    sink = _sink(to, options)
    steps, header = 0, None  # type: int, Optional[Dict[str, Any]]
    try:
        for line in read_log(path, wait=wait, poll=poll, timeout=timeout):
            if line.get("event") == "start":
                header = line
                sink.start(line)
            elif "step" in line and "event" not in line:
                if header is None:
                    header = {"run": line["run"]}
                    sink.start(header)
                sink.log(line["step"], _metrics(line))
                steps += 1
    finally:
        sink.finish()
    return steps
