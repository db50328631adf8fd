"""What a Python model asks of its session, told as a statement: its own commands are among it."""

from __future__ import annotations

from typing import Any

_QUIET = frozenset({"create_dataframe_view", "register_function", "checkpoint_command"})


def statement_of(request: Any) -> str | None:
    """A request of Spark Connect as a statement; None where it can change nothing but a frame.

    :param request: SQL is given as it is, a write by what it does and to which table, a change of
        settings as ``set`` with their names.
    """
    kind = request.DESCRIPTOR.name
    if kind == "ExecutePlanRequest" and request.plan.HasField("command"):
        return _command(request.plan.command)
    if kind == "ConfigRequest":
        operation = request.operation
        keys = [*(pair.key for pair in operation.set.pairs), *operation.unset.keys]
        return f"set {' '.join(keys)}" if keys else None
    return None


def _command(command: Any) -> str | None:
    kind = command.WhichOneof("command_type")
    if kind in _QUIET:
        return None
    if kind == "sql_command":
        given = command.sql_command
        return str(given.input.sql.query or given.sql)
    if kind == "write_operation":
        return f"insert into {command.write_operation.table.table_name}"
    if kind == "write_operation_v2":
        operation = command.write_operation_v2
        creates = operation.mode in (
            operation.MODE_CREATE,
            operation.MODE_REPLACE,
            operation.MODE_CREATE_OR_REPLACE,
        )
        verb = "create or replace table" if creates else "insert into"
        return f"{verb} {operation.table_name}"
    return str(command)
