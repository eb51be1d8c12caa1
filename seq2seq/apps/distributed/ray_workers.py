"""Run tasks on a Ray cluster, perhaps of this machine alone. Every node must be able to read the files."""

import logging
import pickle
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, cast

import ray
from ray.exceptions import RayError

from seq2seq.errors import UserError

Task = TypeVar("Task")
Result = TypeVar("Result")
_QUEUED = 2  # tasks that an actor holds: the next one begins while this program does something else
_RETRIES = 3  # of a task whose process or machine died
_END = object()
_STORE = 100 << 20  # bytes of Ray's object store on this machine: a task and a result have some thousand lines
_AGAIN = ": the same command goes on from what is done"
_SHOWN = 200  # characters of a Ray error that a message quotes


class RayWorkers:
    """Maps functions over tasks on a Ray cluster; results come in the order of the tasks."""

    def __init__(self, address: str) -> None:
        """Take a cluster's address, "auto" for the cluster that runs here, or "local" to start a cluster here."""
        self.address = address

    def __enter__(self) -> "RayWorkers":
        """Connect, unless this process is connected already."""
        self._started = not ray.is_initialized()
        if self._started:
            own: dict[str, Any] = {"include_dashboard": False, "object_store_memory": _STORE}
            try:
                ray.init(
                    address=self.address,
                    logging_level=logging.ERROR,
                    log_to_driver=False,
                    **(own if self.address == "local" else {}),
                )
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise UserError(
                    f"--ray {self.address}: no Ray cluster there ({_shown(error)}); try --ray local"
                ) from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._started:
            ray.shutdown()

    def map_with(
        self,
        make: Callable[[], Callable[[Task], Result]],
        tasks: Iterable[Task],
        *,
        workers: int,
        num_cpus: int,
        num_gpus: int = 0,
    ) -> Iterator[Result]:
        """Apply a function to the tasks; `make` makes the function once in each of `workers` actors.

        A task goes to the first actor that is free. An actor for which the cluster has no room gets none.
        """
        remaining, submitted, position = iter(tasks), 0, 0
        retries = {"max_restarts": _RETRIES, "max_task_retries": _RETRIES}
        actor = cast(Any, ray.remote)(num_cpus=num_cpus, num_gpus=num_gpus, **retries)(_Work)
        pool = [actor.remote(make) for _ in range(workers)]
        running = {worker.__ray_ready__.remote(): (worker, -1) for worker in pool for _ in range(_QUEUED)}
        results: dict[int, Any] = {}
        task = next(remaining, _END)
        while task is not _END or position < submitted:
            (done,), _ = ray.wait(list(running))
            worker, number = running.pop(done)
            results[number] = done
            if task is not _END:
                running[worker.run.remote(pickle.dumps(task))] = worker, submitted
                submitted, task = submitted + 1, next(remaining, _END)
            while position in results:
                yield _take(results.pop(position))
                position += 1


def _take(reference: Any) -> Any:
    try:
        value, error = pickle.loads(ray.get(reference))
    except RayError as failure:
        raise UserError(f"the Ray job failed ({_shown(failure)}){_AGAIN}") from failure
    if error is not None:
        raise error
    return value


def _shown(error: Exception) -> str:
    """Return the last line of a Ray error: the cause, which follows a remote traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:_SHOWN]


class _Work:
    """Turns a task into its pickled result: the value, or the error.

    `make` is called at the first task, so that its errors are reported like the function's.
    """

    def __init__(self, make: Callable[[], Callable[[Any], Any]]) -> None:
        self._make = make
        self._function: Callable[[Any], Any] | None = None

    def run(self, task: bytes) -> bytes:
        try:
            self._function = self._function or self._make()
            result = self._function(pickle.loads(task)), None
        except UserError as error:
            result = None, error
        except Exception as error:  # such as a full disk; Ray would hide the cause
            failure = UserError(f"the Ray job failed ({type(error).__name__}: {error}){_AGAIN}")
            failure.add_note(traceback.format_exc())
            result = None, failure
        return pickle.dumps(result)
