"""The search attributes of a namespace that lists on a cluster need, and their registration."""

from __future__ import annotations

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from craftcore.errors import ConfigInvalid, StateRefused
from craftcore.temporal.workflow.search_attributes import ATTRIBUTES

TYPES = {
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "KeywordList": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
}


async def list_missing(client: Client) -> list[str]:
    """Return the attributes that the namespace does not have. Raises StateRefused for one of another type."""
    request = ListSearchAttributesRequest(namespace=client.namespace)
    found = (await client.operator_service.list_search_attributes(request)).custom_attributes
    for name, kind in ATTRIBUTES.items():
        if name in found and found[name] != TYPES[kind]:
            raise StateRefused(
                f"the search attribute {name} of namespace {client.namespace} is not a {kind}: remove it, and run "
                "craftcore temporal setup"
            )
    return [name for name in ATTRIBUTES if name not in found]


async def register(client: Client) -> list[str]:
    """Register the missing attributes in the namespace, and return them. Raises StateRefused, as `list_missing`."""
    missing = await list_missing(client)
    if missing:
        wanted = {name: TYPES[ATTRIBUTES[name]] for name in missing}
        await client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(namespace=client.namespace, search_attributes=wanted)
        )
    return missing


async def require_attributes(client: Client) -> None:
    """Raise ConfigInvalid where the namespace lacks attributes, with the command that registers them.

    A cluster that lists them to administrators only is trusted.
    """
    try:
        missing = await list_missing(client)
    except RPCError as error:
        if error.status in (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED):
            return
        raise
    if missing:
        raise ConfigInvalid(
            f"namespace {client.namespace} lacks the search attributes {', '.join(missing)}: run "
            "craftcore temporal setup once, as an administrator"
        )


async def read_retention(client: Client) -> float:
    """Return the seconds for which the namespace keeps an ended task."""
    found = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    return float(found.config.workflow_execution_retention_ttl.seconds)
