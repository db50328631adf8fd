"""The embedded server: one Spark driver with a Thrift and a Spark Connect endpoint per lake.

``ensure`` finds the server of a lake or starts it; it listens on loopback only, outlives its
caller and stops on its own after an idle time. ``catalog_properties`` gives PyIceberg the same
catalog that the server uses.
"""

from sparkwap.server.catalog import CATALOG_NAME, catalog_properties
from sparkwap.server.config import Endpoint, ServerConfig
from sparkwap.server.process import (
    ServerStatus,
    at_rest,
    ensure,
    logs,
    register_client,
    status,
    stop,
)

__all__ = [
    "CATALOG_NAME",
    "Endpoint",
    "ServerConfig",
    "ServerStatus",
    "at_rest",
    "catalog_properties",
    "ensure",
    "logs",
    "register_client",
    "status",
    "stop",
]
