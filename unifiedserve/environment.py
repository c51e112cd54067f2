"""Set up environments: of children, without secrets, and of libraries. It imports the standard library only."""

import os

#: the server's API keys, the one that a client of ours shows, and a cluster's
API_KEYS, API_KEY = "UNIFIEDSERVE_API_KEYS", "UNIFIEDSERVE_API_KEY"
CLUSTER_KEY = "UNIFIEDSERVE_CLUSTER_KEY"
#: environment variables with what only the process needs that answers HTTP
_SECRETS = (API_KEYS, API_KEY, CLUSTER_KEY, "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_THREADS_OF_NUMPY = "OPENBLAS_NUM_THREADS"  # started when it is imported; nothing uses them


def environment_without_secrets() -> dict[str, str]:
    """Return this process's environment, less the keys and tokens that children have no use for."""
    return {name: value for name, value in os.environ.items() if name not in _SECRETS}


def spare_threads() -> None:
    """Have numpy start no threads when this process imports it: each spins for a tenth of a second and stays."""
    os.environ.setdefault(_THREADS_OF_NUMPY, "1")


def environment_of_readers() -> dict[str, str]:
    """Return that of this process without secrets, in which numpy starts no threads."""
    return {**environment_without_secrets(), _THREADS_OF_NUMPY: "1"}


def environment_of_workers() -> dict[str, str]:
    """Return that of this process without secrets, with what libraries read when they are imported."""
    return {
        "OMP_WAIT_POLICY": "PASSIVE",  # spinning threads take the cores of other workers
        **environment_of_readers(),
    }
