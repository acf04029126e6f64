"""Which Ray cluster is meant, and a connection to it."""

import logging
import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import Any

from trimol._extras import require
from trimol._failures import BadValue, RunError

LOCAL = "ray"
_ADDRESS = re.compile(r"(ray://)?(?P<host>[\w.-]+|\[[\da-fA-F:.]+\]):(?P<port>\d{1,5})")
_joined: set[str] = set()  # what this process is connected to was called so
REACH = 5.0  # seconds in which a cluster must answer
# Runs come and go as files; nothing large is kept in Ray's memory. It takes no less.
_OBJECT_STORE = 80 * 2**20


def cluster(text: str, *, called: str = "") -> str:
    """What says which cluster, if it can be one.

    >>> cluster("ray"), cluster("ray://head:10001"), cluster("10.0.0.1:6379")
    ('ray', 'ray://head:10001', '10.0.0.1:6379')
    >>> cluster("head")
    Traceback (most recent call last):
    trimol._failures.BadValue: must be ray, ray://HOST:PORT or HOST:PORT, found 'head'
    """
    if not isinstance(text, str) or (text != LOCAL and _ADDRESS.fullmatch(text) is None):
        raise BadValue(f"{called}must be ray, ray://HOST:PORT or HOST:PORT, found {text!r}")
    return text


def connect(on: str, cpus: int) -> Any:
    """Ray, connected to a cluster until this process ends: a study comes back many times.

    Args:
        on: ``"ray"`` for the cluster that this process is connected to, or else that of
            ``RAY_ADDRESS``, or else one on this machine that is started now and ends with this
            process; or an address.
        cpus: How many a cluster gets that is started here.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # what is run here is told to nobody
    # Ray prints its own troubles to stdout, where the result goes: what matters of them we say.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    ray = require("ray", extra="ray", purpose="--on")
    if not ray.is_initialized():
        address = os.environ.get("RAY_ADDRESS") if on == LOCAL else on
        with _signals_as_they_were():
            _connect(ray, address or None, cpus)
        _joined.clear()
        _joined.add(on)
    elif on != LOCAL and on not in _joined:
        raise RunError(
            f"this process is connected to a Ray cluster already: say on={LOCAL!r} to use that "
            f"one, found {on!r}"
        )
    return ray


def _connect(ray: Any, address: str | None, cpus: int) -> None:
    quietly: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address is None or address == "local":
        here = {"include_dashboard": False, "object_store_memory": _OBJECT_STORE}
        how = {"address": "local", "num_cpus": cpus, **here, **quietly}
        alone: AbstractContextManager[None] = _on_loopback()
    else:
        reach(address)
        how, alone = {"address": address, **quietly}, nullcontext()
    try:
        with alone:
            ray.init(**how)
    except Exception as error:
        # A node that does not start in time raises an Exception and nothing more.
        known = (RuntimeError, ConnectionError, ValueError, TimeoutError)
        if type(error) is not Exception and not isinstance(error, known):
            raise
        said = " ".join(str(error).split())
        raise RunError(f"cannot connect to the Ray cluster {address or 'here'}: {said}") from error


def reach(address: str) -> None:
    """Ask whether there is a cluster: Ray waits for minutes.

    Raises:
        RunError: There is none.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None:  # "auto", and what else RAY_ADDRESS may be: Ray's to understand
        return
    try:
        place = found["host"].strip("[]"), int(found["port"])
        socket.create_connection(place, timeout=REACH).close()
    except (OSError, OverflowError) as error:
        raise RunError(f"no Ray cluster answers at {address}: {error}") from error
    if not os.environ.get("RAY_USE_TLS"):
        _greet(address)


def _greet(address: str) -> None:
    """Whoever answers must speak as Ray does, by gRPC."""
    grpc = require("grpc", extra="ray", purpose="--on")
    with grpc.insecure_channel(address.removeprefix("ray://")) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=REACH)
        except grpc.FutureTimeoutError:
            raise RunError(f"what answers at {address} is no Ray cluster") from None


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Let Ray's servers listen on loopback alone: whoever reaches them can run code.

    On macOS and Windows they do; elsewhere if Ray, and what it starts, takes itself to be there.
    """
    constants: Any = import_module("ray._private.ray_constants")
    flag = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    before, said = getattr(constants, "ENABLE_RAY_CLUSTER", None), os.environ.get(flag)
    constants.ENABLE_RAY_CLUSTER, os.environ[flag] = False, "0"
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before
        os.environ.pop(flag)
        os.environ.update({} if said is None else {flag: said})


@contextmanager
def _signals_as_they_were() -> Iterator[None]:
    """Ray has its own answer to SIGTERM, and leaves it there."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is not before:
            signal.signal(signal.SIGTERM, before)
