"""The connection to a cluster, and whether that cluster is open to anyone."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

from apoint.errors import UsageError, first_line

REACH_SECONDS = 5.0
KNOCK_SECONDS = 20.0
_LET_IN, _REFUSED = 10, 11
_KNOCK = f"""
import sys
from ray._private.authentication.authentication_token_setup import ensure_token_if_auth_enabled
from ray.exceptions import AuthenticationError
try:
    ensure_token_if_auth_enabled(None, create_token_if_missing=False)
    if sys.argv[2] == "ray":
        import grpc
        from ray._private.grpc_utils import init_grpc_channel
        from ray.core.generated import ray_client_pb2, ray_client_pb2_grpc
        stub = ray_client_pb2_grpc.RayletDriverStub(init_grpc_channel(sys.argv[1]))
        kind = ray_client_pb2.ClusterInfoType.PING
        try:
            stub.ClusterInfo(ray_client_pb2.ClusterInfoRequest(type=kind), timeout=10)
        except grpc.RpcError as error:
            sys.exit({_REFUSED} if error.code() is grpc.StatusCode.UNAUTHENTICATED else 1)
    else:
        from ray._raylet import GcsClient
        GcsClient(address=sys.argv[1]).internal_kv_keys(b"", b"session", timeout=10)
except AuthenticationError:
    sys.exit({_REFUSED})
sys.exit({_LET_IN})
"""


class Connection:
    """A connection to a cluster; closing it restores what Ray changed in this process.

    Args:
        address: See `RayBackend`.
        allow_open: Whether the cluster may lack authentication.
    """

    def __init__(self, address: str, allow_open: bool = False) -> None:
        self.address, self._allow_open = address, allow_open
        self._undo = contextlib.ExitStack()

    def open(self) -> Any:
        """Connect, and return the Ray module.

        Raises:
            UsageError: There is no cluster, it refuses access, or it is open to anyone.
        """
        for name in ("RAY_USAGE_STATS_ENABLED", "RAY_ENABLE_UV_RUN_RUNTIME_ENV"):
            os.environ.setdefault(name, "0")  # no usage reports, no copies of folders to the cluster
        ray = importlib.import_module("ray")
        if ray.is_initialized():
            raise UsageError(
                "this process is connected to a Ray cluster already; call ray.shutdown() before training"
            )
        with contextlib.ExitStack() as undo:
            self.address = _find(self.address)
            mode = self._knock()
            undo.callback(_set_authentication, os.environ.get("RAY_AUTH_MODE"))
            _set_authentication(mode)
            undo.enter_context(_without_messages())
            if _is_only_at_loopback(self.address):
                undo.enter_context(_staying_at_loopback())
            undo.callback(ray.shutdown)
            self._connect(ray)
            self._undo = undo.pop_all()
        importlib.import_module("ray.util.scheduling_strategies")
        return ray

    def close(self) -> None:
        """Leave the cluster; a second call does nothing."""
        self._undo.close()

    def _knock(self) -> str | None:
        """Check whether the cluster requires a token and whether ours is right; return the mode to use."""
        _reach(self.address)
        stranger = _knock(self.address, {"RAY_AUTH_MODE": "disabled"})
        if stranger == _REFUSED:
            if _knock(self.address, {**_credentials(), "RAY_AUTH_MODE": "token"}) == _LET_IN:
                return "token"
            raise UsageError(
                f"the Ray cluster at {self.address} asks for a token, and there is none here or a wrong one; "
                "set RAY_AUTH_TOKEN to it, or RAY_AUTH_TOKEN_PATH to a file that holds it"
            )
        if self._allow_open:
            return os.environ.get("RAY_AUTH_MODE")
        if stranger == _LET_IN:
            raise UsageError(
                f"the Ray cluster at {self.address} asks for no authentication, so that anyone who reaches "
                "its port can run code on it and change results; start it with RAY_AUTH_MODE=token, or use "
                "it all the same with --allow-open-cluster"
            )
        raise UsageError(
            f"it cannot be told whether the Ray cluster at {self.address} asks for authentication, since it "
            "does not answer as Ray does; correct the address, or, if the cluster is protected in another "
            "way, use --allow-open-cluster"
        )

    def _connect(self, ray: Any) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        handler = signal.getsignal(signal.SIGTERM) if is_main else None
        try:
            ray.init(address=self.address, log_to_driver=False, logging_level=logging.CRITICAL)
        except Exception as error:
            elsewhere = "" if "://" in self.address else "; from a machine outside it, use ray://host:10001"
            raise UsageError(
                f"cannot connect to the Ray cluster at {self.address}: {first_line(error)}{elsewhere}"
            ) from None
        finally:
            if handler is not None:  # Ray replaces it with its own
                signal.signal(signal.SIGTERM, handler)


def _find(address: str) -> str:
    """The address of the cluster on this machine for `auto`; any other unchanged."""
    if address == "auto":
        services = importlib.import_module("ray._private.services")
        try:
            address = services.get_ray_address_from_environment("auto", None) or ""
        except ConnectionError:
            address = ""
        if not address:
            raise UsageError(
                "no Ray cluster runs on this machine; start one with ray start --head, or name the address "
                "of another"
            )
    return address


def _is_only_at_loopback(address: str) -> bool:
    """Whether a cluster at 127.0.0.1 cannot be reached at the address that other machines use for this one.

    Ray replaces 127.0.0.1 with that address when it connects. On machines whose network came up later, or
    where Ray was started for this machine alone, nothing answers there.
    """
    if "://" in address:
        return False
    services = importlib.import_module("ray._private.services")
    host, _, port = address.rpartition(":")
    elsewhere = services.resolve_ip_for_localhost(host)
    return bool(elsewhere != host and not _answers(elsewhere, int(port)))


@contextlib.contextmanager
def _staying_at_loopback() -> Iterator[None]:
    """Let Ray use 127.0.0.1 as the address of this machine, as it does where clusters are disabled."""
    constants: Any = importlib.import_module("ray._private.ray_constants")
    before = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), REACH_SECONDS).close()
    except OSError:
        return False
    return True


def _reach(address: str) -> None:
    """Refuse an invalid address, or one where nothing answers."""
    parts = urllib.parse.urlsplit(address if "://" in address else f"//{address}")
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme not in ("", "ray") or not parts.hostname or not port:
        raise UsageError(
            f"{address!r} is not the address of a Ray cluster; it is auto, or host:port as in 10.0.0.5:6379, "
            "or ray://host:port"
        )
    try:
        socket.create_connection((parts.hostname, port), REACH_SECONDS).close()
    except OSError as error:
        raise UsageError(
            f"no Ray cluster answers at {address} ({error.strerror or error}); see whether it runs, and "
            "whether this machine may reach it"
        ) from None


def _credentials() -> dict[str, str]:
    names = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    return {name: os.environ[name] for name in names if name in os.environ}


def _knock(address: str, credentials: Mapping[str, str]) -> int | None:
    """Make a harmless request with these credentials only; None if it is neither granted nor refused.

    This runs in a separate process, because Ray reads credentials once, retries for a long time, and ends a
    process that it rejects. It is tried twice, because a busy cluster may be too slow.
    """
    names = {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}
    setting = {name: value for name, value in os.environ.items() if name not in names}
    scheme, _, place = address.rpartition("://")
    command, nothing = [sys.executable, "-c", _KNOCK, place, scheme], subprocess.DEVNULL
    for _ in range(2):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process = subprocess.run(
                command,
                env={**setting, **credentials},
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,
                timeout=KNOCK_SECONDS,
                check=False,
            )
            if process.returncode in (_LET_IN, _REFUSED):
                return process.returncode
    return None


def _set_authentication(mode: str | None) -> None:
    """Set the mode, and make Ray, which read the environment when it was imported, read it again."""
    if mode is None:
        os.environ.pop("RAY_AUTH_MODE", None)
    else:
        os.environ["RAY_AUTH_MODE"] = mode
    raylet = importlib.import_module("ray._raylet")
    with contextlib.suppress(AttributeError):
        raylet.Config.initialize("")
        raylet.AuthenticationTokenLoader.instance().reset_cache()


@contextlib.contextmanager
def _without_messages() -> Iterator[None]:
    """Keep Ray from printing what happens on the cluster; the fleet reports what matters."""
    worker: Any = importlib.import_module("ray._private.worker")
    before = getattr(worker, "_worker_logs_enabled", True)
    worker._worker_logs_enabled = False
    try:
        yield
    finally:
        worker._worker_logs_enabled = before
