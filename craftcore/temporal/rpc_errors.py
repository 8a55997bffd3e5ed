"""The meaning of errors of calls to a cluster."""

from __future__ import annotations

from temporalio.service import RPCError, RPCStatusCode

_OF_NAMESPACE = b"NamespaceNotFoundFailure"
"""The name of the detail of an error about the namespace, in the bytes of its status."""


def is_missing(error: RPCError) -> bool:
    """Return whether the workflow, activity or schedule of a call is not there, or has ended.

    A server that has just started answers so for its namespace, whatever workflow was asked for.
    """
    return error.status is RPCStatusCode.NOT_FOUND and _OF_NAMESPACE not in error.raw_grpc_status


def is_of_no_task(error: RPCError) -> bool:
    """Return whether an id is of no task: no workflow has it, or none can."""
    return is_missing(error) or error.status is RPCStatusCode.INVALID_ARGUMENT
