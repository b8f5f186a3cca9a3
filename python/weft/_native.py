"""libweftlua by ctypes: the functions of weft.h that Python calls, and where they are found.

The environment variables WEFT_LIBRARY and WEFT_PROGRAM name a library and a program to use in
the place of those in the package; without any of these, those of the system are used."""

from __future__ import annotations

import array
import atexit
import ctypes
import ctypes.util
import json
import operator
import os
import shutil
import signal
import threading
import weakref
from ctypes import POINTER, byref, c_char, c_char_p, c_double, c_int, c_int32, c_int64
from ctypes import c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Callable, List, Optional, Sequence, Tuple

from ._version import __version__
from .errors import BY_STATUS, Diagnostic, UsageError, WeftError

HERE = Path(__file__).resolve().parent / "native"
EPLAN = 1


class Error(ctypes.Structure):
    _fields_ = [
        ("code", c_int),
        ("line", c_int),
        ("rank", c_int),
        ("file", c_char * 256),
        ("text", c_char * 1024),
    ]


class PlanOptions(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("alloc", c_void_p),
        ("set", POINTER(c_char_p)),
        ("define", POINTER(c_char_p)),
        ("stop", POINTER(c_int)),
        ("memory_limit", c_uint64),
        ("instruction_limit", c_int64),
        ("print", c_void_p),
        ("ud", c_void_p),
        ("data", POINTER(c_char_p)),
        ("compile_limit", c_uint64),
        ("cpu_limit", c_double),
    ]


class Param(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("ndim", c_int), ("dim", c_int64 * 8), ("count", c_int64)]


class Proof(ctypes.Structure):
    _fields_ = [
        ("transfers", c_int64),
        ("collectives", c_int64),
        ("instructions", c_int64),
        ("communicators", c_int),
    ]


class RunOptions(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("comm", c_char_p),
        ("threads", c_int),
        ("stop", POINTER(c_int)),
        ("patience_s", c_double),
    ]


class Step(ctypes.Structure):
    _fields_ = [
        ("step", c_int64),
        ("tokens", c_int64),
        ("loss", c_double),
        ("grad_norm", c_double),
        ("lr", c_double),
        ("ms", c_double),
        ("loss_scale", c_double),
        ("skipped", c_int),
    ]


class Evaluation(ctypes.Structure):
    _fields_ = [
        ("loss", c_double),
        ("cross_entropy", c_double),
        ("tokens", c_int64),
        ("ms", c_double),
    ]


class VerifyOptions(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("ranks", c_int),
        ("steps", c_int),
        ("tolerance", c_double),
        ("stop", POINTER(c_int)),
    ]


class VerifyResult(ctypes.Structure):
    _fields_ = [
        ("ranks", c_int),
        ("steps", c_int),
        ("tensors", c_int),
        ("loss", c_double),
        ("grad_norm", c_double),
        ("grad", c_double),
        ("param", c_double),
        ("tolerance", c_double),
        ("worst", c_char * 160),
        ("not_covered", c_char * 1024),
        ("rounding", c_char * 512),
    ]


# name -> result, arguments; a function that may fail has Error as its last argument.
_ERROR = POINTER(Error)
_FUNCTIONS: List[Tuple[str, Any, List[Any]]] = [
    ("weft_version", c_char_p, []),
    ("weft_plan_load", c_int, [POINTER(PlanOptions), c_char_p, POINTER(c_void_p), _ERROR]),
    ("weft_plan_free", None, [c_void_p]),
    ("weft_plan_report_json", c_char_p, [c_void_p]),
    ("weft_plan_compile", c_int, [c_void_p, c_int, _ERROR]),
    ("weft_plan_check", c_int, [c_void_p, _ERROR]),
    ("weft_plan_name", c_char_p, [c_void_p]),
    ("weft_plan_steps", c_int64, [c_void_p]),
    ("weft_plan_sequences", c_int64, [c_void_p]),
    ("weft_plan_tokens", c_int64, [c_void_p]),
    ("weft_plan_microbatches", c_int, [c_void_p]),
    ("weft_plan_parameters", c_uint64, [c_void_p]),
    ("weft_plan_memory", c_uint64, [c_void_p, c_int]),
    ("weft_plan_param_count", c_int, [c_void_p]),
    ("weft_plan_param_at", c_int, [c_void_p, c_int, POINTER(Param), _ERROR]),
    ("weft_plan_proof", c_int, [c_void_p, POINTER(Proof), _ERROR]),
    ("weft_plan_program", c_int, [c_void_p, c_int, POINTER(c_char_p), _ERROR]),
    ("weft_plan_show", c_int, [c_void_p, c_char_p, c_int, POINTER(c_char_p), _ERROR]),
    ("weft_run_open", c_int, [c_void_p, POINTER(RunOptions), POINTER(c_void_p), _ERROR]),
    ("weft_run_close", None, [c_void_p]),
    ("weft_run_init", c_int, [c_void_p, _ERROR]),
    ("weft_run_load", c_int, [c_void_p, c_char_p, _ERROR]),
    ("weft_run_resume", c_int, [c_void_p, c_char_p, POINTER(c_int64), _ERROR]),
    ("weft_run_save", c_int, [c_void_p, c_int64, _ERROR]),
    ("weft_run_export", c_int, [c_void_p, c_char_p, _ERROR]),
    ("weft_run_notes", c_char_p, [c_void_p]),
    ("weft_run_evaluate", c_int, [c_void_p, c_int64, POINTER(Evaluation), _ERROR]),
    ("weft_run_steps", c_int, [c_void_p, POINTER(c_int64), _ERROR]),
    ("weft_run_step", c_int, [c_void_p, c_int64, POINTER(Step), _ERROR]),
    (
        "weft_run_step_tokens",
        c_int,
        [c_void_p, c_void_p, c_void_p, c_size_t, c_int64, POINTER(Step), _ERROR],
    ),
    ("weft_run_count", c_int, [c_void_p, c_int, c_char_p, POINTER(c_size_t), _ERROR]),
    (
        "weft_run_get",
        c_int,
        [c_void_p, c_int, c_char_p, c_void_p, c_size_t, _ERROR],
    ),
    (
        "weft_run_set",
        c_int,
        [c_void_p, c_int, c_char_p, c_void_p, c_size_t, _ERROR],
    ),
    ("weft_verify", c_int, [c_void_p, POINTER(VerifyOptions), POINTER(VerifyResult), _ERROR]),
]


def _library_path() -> str:
    named = os.environ.get("WEFT_LIBRARY")
    if named:
        return named
    for path in sorted(HERE.glob("lib/**/libweftlua.so.*")):
        return str(path)
    found = ctypes.util.find_library("weftlua")
    if found:
        return found
    raise ImportError(
        "libweftlua is not there: install the wheel of weft or Debian's libweft0, or set "
        "WEFT_LIBRARY to the library of a build"
    )


def _open(path: str) -> ctypes.CDLL:
    # OpenMP reads how long its threads spin when it is loaded; see docs/embedding.md.
    mine = not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & set(os.environ)
    if mine:
        os.environ["GOMP_SPINCOUNT"] = "20000"
    try:
        library = ctypes.CDLL(path)
    except OSError as e:
        raise ImportError(f"{path} cannot be opened: {e}") from e
    finally:
        if mine:
            del os.environ["GOMP_SPINCOUNT"]
    for name, result, arguments in _FUNCTIONS:
        function = getattr(library, name, None)
        if function is None:
            raise ImportError(f"{path} is of another version of weft: it has no {name}")
        function.restype, function.argtypes = result, arguments
    version = library.weft_version().decode()
    if version != __version__:
        raise ImportError(f"{path} is weft {version}, the package is {__version__}")
    return library


_loaded: Optional[ctypes.CDLL] = None
_loading = threading.Lock()


def loaded() -> Any:
    """libweftlua, opened when it is first needed."""
    global _loaded
    with _loading:
        if _loaded is None:
            _loaded = _open(_library_path())
        return _loaded


def _on_path() -> Optional[str]:
    # A script of that name would be the one of this package, which starts the program.
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = shutil.which("weft", path=folder) if folder else None
        if path and Path(path).read_bytes()[:4] == b"\x7fELF":
            return path
    return None


def program() -> str:
    """The path of the program weft."""
    named = os.environ.get("WEFT_PROGRAM")
    own = HERE / "bin" / "weft"
    found = named or (str(own) if own.exists() else _on_path())
    if not found:
        raise ImportError(
            "the program weft is not there: install the wheel of weft or Debian's weft, or set "
            "WEFT_PROGRAM to the program of a build"
        )
    return found


def encoded(item: Any, what: str) -> bytes:
    """A text or path as C has it, where it ends at the first NUL."""
    if not isinstance(item, (str, bytes, os.PathLike)):
        raise UsageError(f"{what} is a {type(item).__name__}, and not a text: {item!r}")
    coded = os.fsencode(item)
    if b"\0" in coded:
        raise UsageError(f"{what} has a NUL, where it would be cut off: {item!r}")
    return coded


def strings(items: Sequence[str], what: str) -> Any:
    """A list of C strings that ends with NULL; NULL for no items."""
    if not items:
        return None
    return (c_char_p * (len(items) + 1))(*[encoded(s, what) for s in items], None)


def paths(items: Any, what: str) -> List[str]:
    """A list of paths. One by itself is none: its letters would be folders, as "/" is."""
    if isinstance(items, (str, bytes, os.PathLike)):
        raise UsageError(f"{what} is {items!r}; a list of paths is needed: [{items!r}]")
    return [os.fspath(item) for item in items]


def integer(value: Any, what: str, bits: int = 32) -> int:
    """An integer of Python or numpy that C has, too; ctypes would cut off what is beyond."""
    n = operator.index(value)
    if not -(1 << (bits - 1)) <= n < 1 << (bits - 1):
        raise UsageError(f"{what} is {n}, which has more than {bits} bits")
    return n


def floats(values: Any, what: str) -> "array.array[float]":
    """An array of f32: of itself, of a buffer of them in C order and any shape, else of numbers."""
    if isinstance(values, array.array) and values.typecode == "f":
        return values
    try:
        view = memoryview(values)
        if view.format == "f" and view.c_contiguous:
            given = array.array("f")
            given.frombytes(view.cast("B"))
            return given
    except TypeError:
        pass  # it is no buffer
    try:
        return array.array("f", values)
    except (TypeError, ValueError, RuntimeError) as e:  # rows of rows, of lists or of tensors
        raise UsageError(
            f"{what} takes numbers, or a buffer of f32 in C order of any shape, as "
            f"numpy.ascontiguousarray(values, 'float32') makes one: {e}"
        ) from e


def token_ids(values: Any, what: str) -> "array.array[int]":
    """An array of int32: of itself, of a buffer of integers in C order, of any width and shape,
    else of integers."""
    if isinstance(values, array.array) and values.typecode == "i":
        return values
    try:
        view = memoryview(values)
        if view.c_contiguous and view.format in tuple("bBhHiIlLqQ"):
            given: Any = array.array(view.format)
            given.frombytes(view.cast("B"))
            values = given
    except TypeError:
        pass  # it is no buffer
    try:
        return array.array("i", list(values))
    except (TypeError, OverflowError, NotImplementedError) as e:
        raise UsageError(
            f"{what} takes token ids, or a buffer of integers in C order of any shape: {e}"
        ) from e


def text(s: bytes) -> str:
    return s.decode("utf-8", "replace")


def fail(status: int, error: Error, report: Optional[bytes] = None) -> WeftError:
    """The exception of a status; a report of the plan has all that is wrong with it."""
    found: List[Diagnostic] = []
    if report and status == EPLAN:
        found = [Diagnostic.of_json(d) for d in json.loads(report)["diagnostics"]]
    message, place = text(error.text), text(error.file)
    if place:
        message = f"{place}:{error.line}: {message}" if error.line else f"{place}: {message}"
    return BY_STATUS[status](message, found)


def call(function: Callable[..., int], *arguments: Any) -> None:
    """Calls a function that may fail; raises its error."""
    error = Error()
    status = function(*arguments, byref(error))
    if status:
        raise fail(status, error)


_all: "weakref.WeakSet[Interruptible]" = weakref.WeakSet()


@atexit.register
def _end_calls() -> None:
    found = list(_all)
    for long in found:
        long.ask()
    for long in found:
        long.end()


class Interruptible:
    """Long calls, which run in a thread of their own so that Ctrl-C can end them: Python
    handles signals only between its own instructions. `flag` is the stop flag of weft.h.

    No call returns while its thread runs: the handle is not that of the caller until then. So
    the thread says itself that it is done, by a lock: where KeyboardInterrupt lands in
    Thread.join, Python before 3.13 takes the thread for one that has ended."""

    def __init__(self) -> None:
        self.flag = c_int(0)
        self._work: Optional[_Work] = None
        self._inside, self._ended, self._process = threading.Lock(), False, os.getpid()
        _all.add(self)

    @property
    def busy(self) -> bool:
        """Whether a thread of its own is in a call. Seen by the thread that waits for it, in a
        handler of a signal."""
        return self._work is not None and not self._work.over

    def call(self, function: Callable[..., int], *arguments: Any) -> Tuple[int, Error]:
        error = Error()
        self.flag.value = 0  # a signal may have come as the last call ended
        if threading.current_thread() is not threading.main_thread():
            return self._aside(function, *arguments, byref(error)), error
        work = _Work(function, (*arguments, byref(error)))
        noted: List[int] = []

        def note(number: int, frame: Any) -> None:
            self.flag.value = 1
            noted[:] = [number]

        raised: Optional[BaseException] = None
        try:  # already here: the handler of another signal may raise between any two lines
            _takes_interrupts(note)
            raised = self._run(work)
        finally:
            if signal.getsignal(signal.SIGINT) is note:
                signal.signal(signal.SIGINT, signal.default_int_handler)
        self.flag.value = 0
        if raised is not None:
            raise raised
        if noted:
            raise KeyboardInterrupt(text(error.text) if error.code else "the call was done")
        if work.failure:
            raise work.failure[0]
        return work.status[0], error

    def _aside(self, function: Callable[..., int], *arguments: Any) -> int:
        """A call of another thread than the first, which the end of the process ends."""
        status = 0
        if not self._ended:
            with self._inside:
                status = function(*arguments)
        if self._ended:
            raise SystemExit  # of this thread alone, which says nothing of it
        return status

    def ask(self) -> None:
        """Asks the call of another thread to end. None begins after it."""
        if self._process == os.getpid():  # a fork has none of these threads
            self._ended = True
            self.flag.value = 1

    def end(self, patience: float = 10) -> None:
        """Ends the call of another thread, before the libraries whose kernels it runs end what
        they have."""
        self.ask()
        if self._process == os.getpid():
            self._inside.acquire(timeout=patience)

    def _run(self, work: "_Work") -> Optional[BaseException]:
        """Until it is done; what handlers of other signals raise meanwhile stops it."""
        raised: Optional[BaseException] = None
        asked = False
        while not work.over:
            try:
                if not asked:
                    asked, self._work = True, work
                    threading.Thread(target=work.run, daemon=True).start()
                work.done.acquire()
            except BaseException as e:
                raised = raised or e
                self.flag.value = 1
                if work.take():  # its thread has not begun, and now finds that it is too late
                    work.over = True
        return raised


def _takes_interrupts(handler: Callable[[int, Any], None]) -> None:
    """Has Ctrl-C call the handler, which raises nothing, in the place of KeyboardInterrupt,
    which can come between any two instructions, those of an except clause too. A handler of
    the caller's own stays."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        try:
            signal.signal(signal.SIGINT, handler)
        except ValueError:
            pass  # of another interpreter than the first


class Exclusive:
    """The lock of a plan and its runs, of one thread at a time. That thread may enter again,
    but not out of a handler of a signal while its call is under way: the handle is then that
    of the thread of the call."""

    def __init__(self, long: Interruptible) -> None:
        self._lock, self._long = threading.RLock(), long

    def lock(self) -> Any:
        """For `with`, which enters a lock of C in one instruction: between two of Python
        KeyboardInterrupt can come, and the lock would stay held. Calls of other threads than
        the first have no thread of their own, and are not busy."""
        if self._long.busy and threading.current_thread() is threading.main_thread():
            raise UsageError(
                "a call of this plan is under way: in a handler of a signal, note that it came, "
                "and save or close after the step"
            )
        return self._lock


class _Work:
    """A call of a thread. Who takes it first has it: the thread, or who no longer wants it."""

    def __init__(self, function: Callable[..., int], arguments: Tuple[Any, ...]) -> None:
        self.function, self.arguments = function, arguments
        self.status: List[int] = []
        self.failure: List[BaseException] = []
        self.over = False
        self.taken, self.done = threading.Lock(), threading.Lock()
        self.done.acquire()

    def take(self) -> bool:
        return self.taken.acquire(False)

    def run(self) -> None:
        if not self.take():
            return
        try:
            self.status.append(self.function(*self.arguments))
        except BaseException as e:  # an argument that is none of C
            self.failure.append(e)
        self.over = True
        self.done.release()


__all__ = ["loaded", "program"]
