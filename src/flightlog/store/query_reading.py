"""What a query is, before it is run: one SELECT, and the tables it names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from flightlog.core.errors import UsageError
from flightlog.store.connecting import private_connection
from flightlog.store.query_errors import explained

_NEVER = "a query changes neither runs nor files nor settings"
_QUERIES = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"}
"""Nodes of a parsed query that read. Others (`INSERT_QUERY_NODE`, `COPY_QUERY_NODE`, …) may stand within
WITH."""
_HARMLESS = {"unnest", "range", "generate_series", "generate_subscripts", "json_each", "json_tree", "repeat"}
"""Table functions that look at no table."""
_CATALOGUE = {
    "query_table",
    "duckdb_columns",
    "duckdb_functions",
    "duckdb_tables",
    "duckdb_types",
    "duckdb_views",
    "pragma_table_info",
    "pragma_show",
    "sql_auto_complete",
}
"""Table functions that look at tables by name. No others can be used: some read files, some run other
queries."""


def names_in(query: str) -> frozenset[str] | None:
    """The tables that a query names, in lower case; None where it could mean any.

    A `UsageError` where it is not exactly one SELECT (or DESCRIBE, SUMMARIZE, SHOW, which are SELECTs too).
    """
    import duckdb

    with private_connection() as connection:
        try:
            statements = connection.extract_statements(query)
        except duckdb.Error as error:
            raise UsageError(explained(error, ())) from None
        if len(statements) != 1:
            found = f"there are {len(statements)} statements" if statements else "there is nothing"
            raise UsageError(f"a query is one SELECT, and {found}")
        (statement,) = statements
        kind = statement.type.name
        if kind == "MULTI":
            raise UsageError(
                "PIVOT needs the values it makes columns of: PIVOT … ON state IN ('completed', 'failed') …"
            )
        if kind not in {"SELECT", "SELECT_STATEMENT"}:
            raise UsageError(f"only SELECT is allowed, and this is {_spoken(kind)}: {_NEVER}")
        tree = json.loads(_serialized(connection, statement.query))
    if tree.get("error"):
        raise UsageError(f"the query cannot be checked for what it reads: {tree.get('error_message')}")
    nodes = list(_nodes(tree))
    types = {str(node["type"]) for node in nodes if "type" in node}
    if {name for name in types if name.endswith("_NODE")} - _QUERIES:
        raise UsageError(f"only SELECT is allowed, also within WITH: {_NEVER}")
    functions = {node["function"]["function_name"] for node in nodes if node.get("type") == "TABLE_FUNCTION"}
    for name in sorted(functions - _HARMLESS - _CATALOGUE):
        raise UsageError(f"a query reads the tables of runs and nothing else: {name}() cannot be used in it")
    if functions & _CATALOGUE or "SHOW_REF" in types:
        return None
    tables = [node for node in nodes if node.get("type") == "BASE_TABLE"]
    if any(node.get("schema_name") not in {"", "main", None} for node in tables):
        return None
    return frozenset(node["table_name"].casefold() for node in tables)


def _serialized(connection: Any, query: str) -> str:
    row = connection.execute("SELECT json_serialize_sql($query)", {"query": query}).fetchone()
    return str(row[0])


def _spoken(kind: str) -> str:
    return kind.removesuffix("_STATEMENT").replace("_", " ")


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Every object in the parsed query."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
