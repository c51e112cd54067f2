"""Read CLUSTER.toml: the pools of nodes, what each node serves and needs, and where the routers listen."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from unifiedserve import __version__
from unifiedserve.cli.options import from_options, options_of
from unifiedserve.cluster.routing import Policy
from unifiedserve.config import EngineConfig
from unifiedserve.errors import ConfigError
from unifiedserve.placement import Stage, read_placement

ROUTER = "router"  # the pool of the routers, and the command that is one

_MOST_CORES = 1 << 12

_Amount = Annotated[float, Meta(ge=0)]
_Count = Annotated[int, Meta(ge=0)]
_Port = Annotated[int, Meta(ge=1, le=65535)]
_OF_THE_POOL = {"model", "placement"}  # options of `serve` that have a place of their own in the file
_OF_THE_NODE = {"host", "port"}  # and those that each node finds itself


class Resources(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Set what Ray keeps free for each node of a pool."""

    cpus: _Amount = 0.0  # 0: cores are shared, and not reckoned with
    gpus: _Amount = 0.0
    memory_gib: _Amount = 0.0
    custom: dict[str, _Amount] = {}  # resources that machines were given by `ray start --resources`


class Pool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Describe nodes that are alike: each is an engine with this model, placement and options."""

    name: Annotated[str, Meta(pattern="^[a-z][a-z0-9-]*$", max_length=40)]
    model: str = ""  # a directory or an id of the hub; empty: the bundled model
    placement: str = "shared"
    count: _Count | None = None
    min: _Count | None = None  # 0: it sleeps while nothing comes
    max: _Count | None = None
    serve: dict[str, Any] = {}  # options of `unifiedserve serve`, as on its command line without the dashes
    resources: Resources = Resources()

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Return the stages that each node hosts, as far as known here. Cores are those of the node's machine."""
        try:
            return read_placement(self.placement, range(_MOST_CORES)).stages
        except ConfigError:
            return tuple(Stage)  # each node says what is wrong with it

    @property
    def least(self) -> int:
        """Return the fewest nodes."""
        if self.min is not None:
            return self.min
        return 1 if self.count is None else self.count

    @property
    def most(self) -> int:
        """Return the most nodes that load may bring about."""
        return self.least if self.max is None else self.max

    @property
    def scales(self) -> bool:
        """Tell whether its load decides how many nodes there are."""
        return self.least < self.most

    @property
    def revision(self) -> str:
        """Return a name for all that its nodes are started with: where it differs, a node is to be replaced."""
        return _digest((self.model, self.placement, sorted(self.serve.items()), self.resources, __version__))

    @property
    def drain_timeout(self) -> float:
        """Return the seconds that its engines have to end their answers."""
        return float(self.serve.get("drain-timeout", EngineConfig().server.drain_timeout))

    def options(self) -> Iterator[str]:
        """Yield its arguments of `unifiedserve serve`, beside the model, host and port."""
        threads = int(self.resources.cpus)
        options = {"placement": self.placement, **self.serve}
        if threads:
            options = {"torch-threads": threads, "vision-threads": threads} | options
        for name, value in options.items():
            if value is True:
                yield f"--{name}"
            elif value is not False:
                yield from (f"--{name}={each}" for each in (value if isinstance(value, list) else [value]))

    def check(self) -> None:
        """Raise ConfigError for what contradicts itself, or is no option of `serve`."""
        if self.count is not None and (self.min is not None or self.max is not None):
            raise ConfigError("give count, or min and max, not both")
        if (self.min is None) != (self.max is None):
            raise ConfigError("min and max go together")
        if self.least > self.most:
            raise ConfigError(f"min = {self.least} is more than max = {self.most}")
        known = {field.name.replace("_", "-") for field, _ in options_of(EngineConfig)}
        for name in self.serve:
            if name in _OF_THE_POOL:
                raise ConfigError(f"serve.{name}: write {name} = … beside the name of the pool")
            if name in _OF_THE_NODE:
                raise ConfigError(f"serve.{name}: each node finds its own; the routers' are [router] host and ports")
            if name not in known:
                raise ConfigError(f"serve.{name}: `unifiedserve serve` has no option --{name}")
        from_options(EngineConfig, {name.replace("-", "_"): value for name, value in self.serve.items()})


class RouterOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Set where the routers listen, one for each port. A port may come again where they are on several machines."""

    host: str = "127.0.0.1"
    ports: tuple[_Port, ...] = (8000,)
    policy: Policy = Policy.COST
    allowed_hosts: tuple[str, ...] = ()  # names that requests may address it by, as of `serve --allowed-hosts`
    cors_origins: tuple[str, ...] = ()  # whose pages may call it from browsers, as of `serve --cors-origins`
    resources: Resources = Resources()

    def revision(self, port: int) -> str:
        """Return a name for all that the router on a port is started with."""
        access = (self.allowed_hosts, self.cors_origins)
        return _digest((self.host, port, self.policy, access, self.resources, __version__))


class Cluster(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hold all of a cluster file."""

    pool: tuple[Pool, ...]
    router: RouterOptions = RouterOptions()

    def check(self) -> None:
        """Raise ConfigError for what contradicts itself."""
        if not self.pool:
            raise ConfigError("there is no [[pool]]")
        names = Counter(pool.name for pool in self.pool)
        if twice := next((name for name, count in names.items() if count > 1), None):
            raise ConfigError(f"pool {twice}: there are two of this name")
        if not self.router.ports:
            raise ConfigError("router.ports: there is none")
        for pool in self.pool:
            if pool.name == ROUTER:
                raise ConfigError(f"pool {ROUTER}: it needs another name, because routers have this one")
            try:
                pool.check()
            except ConfigError as error:
                raise ConfigError(f"pool {pool.name}: {error}") from error
        for pool in self.pool:
            self._check_partners(pool)

    def _check_partners(self, pool: Pool) -> None:
        """Raise ConfigError if no other pool has the stages that nodes of this one lack."""
        partners = [each for each in self.pool if each.model == pool.model and each.stages != tuple(Stage)]
        for lacking, placement in ((Stage.ENCODE, "v+e"), (Stage.PREFILL, "p+d")):
            if lacking not in pool.stages and not any(lacking in each.stages for each in partners):
                raise ConfigError(
                    f'pool {pool.name}: with placement = "{pool.placement}" it leaves {lacking} to another pool of its '
                    f'model, and there is none: add one with placement = "{placement}"'
                )

    def pool_of(self, name: str) -> Pool:
        """Return the pool of this name. Raises ConfigError, which names all of them."""
        for pool in self.pool:
            if pool.name == name:
                return pool
        raise ConfigError(f"there is no pool {name}: there are {', '.join(pool.name for pool in self.pool)}")


def _digest(started_with: object) -> str:
    return hashlib.sha256(msgspec.json.encode(started_with)).hexdigest()[:8]


def read_cluster(path: Path) -> Cluster:
    """Read a cluster file. Raises ConfigError, a line that says what is wrong with it."""
    try:
        cluster = msgspec.toml.decode(path.read_bytes(), type=Cluster)
        cluster.check()
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the file: {error.strerror}") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {str(error).replace('`$.', '`')}") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise ConfigError(f"{path}: the file is no TOML: {error}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    return cluster
