"""Read which nodes encode a request's media, as the cluster's router names them."""

from starlette.requests import Request

from unifiedserve.config import CLUSTER_KEY
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.messages.encoding import NODES_HEADER, read_nodes
from unifiedserve.messages.load import EncodeNode
from unifiedserve.server.access.cluster import has_cluster_key


def encode_nodes(request: Request) -> list[EncodeNode]:
    """Return the nodes that a router names.

    Raises RequestError for names that no router of this cluster has written.
    """
    if NODES_HEADER not in request.headers:
        return []
    if not has_cluster_key(request):
        raise RequestError(
            f"{NODES_HEADER} is for routers with this node's {CLUSTER_KEY}: set the same one for all nodes and routers",
            ErrorKind.UNAVAILABLE,
        )
    try:
        return read_nodes(request.headers[NODES_HEADER])
    except ValueError as error:
        raise RequestError(f"{NODES_HEADER}: {error}") from error
