"""Cluster files: what is read of them, and one line for each thing that is wrong."""

import re
from pathlib import Path

import pytest

from unifiedserve.cluster.cluster_file import Cluster, Pool, Resources, read_cluster
from unifiedserve.errors import ConfigError

WHOLE = """
[router]
host = "0.0.0.0"
ports = [8000, 8001]
policy = "round-robin"

[[pool]]
name = "video"
model = "/models/some"
placement = "ep-d"
min = 1
max = 4
[pool.serve]
kv-cache-mib = 64
no-pacing = true
naive = false
allowed-hosts = ["a.example", "b.example"]
[pool.resources]
cpus = 4
memory_gib = 6.5
custom = { fast = 1 }

[[pool]]
name = "text"
"""


def read(text: str, folder: Path) -> Cluster:
    path = folder / "cluster.toml"
    path.write_text(text)
    return read_cluster(path)


def test_what_a_file_says_is_read(tmp_path: Path) -> None:
    cluster = read(WHOLE, tmp_path)
    video, text = cluster.pool
    assert (cluster.router.host, cluster.router.ports, cluster.router.policy) == (
        "0.0.0.0",
        (8000, 8001),
        "round-robin",
    )
    assert (video.least, video.most, text.least, text.most) == (1, 4, 1, 1)
    assert video.resources == Resources(cpus=4, memory_gib=6.5, custom={"fast": 1})
    assert cluster.pool_of("text") is text


def test_options_are_those_of_the_command_line(tmp_path: Path) -> None:
    video, text = read(WHOLE, tmp_path).pool
    assert sorted(video.options()) == [
        "--allowed-hosts=a.example",
        "--allowed-hosts=b.example",
        "--kv-cache-mib=64",
        "--no-pacing",
        "--placement=ep-d",
        "--torch-threads=4",
        "--vision-threads=4",
    ]
    assert list(text.options()) == ["--placement=shared"]


def test_threads_that_are_given_stay() -> None:
    pool = Pool(name="a", serve={"torch-threads": 2}, resources=Resources(cpus=4))
    assert {"--torch-threads=2", "--vision-threads=4"} < set(pool.options())


def test_a_revision_is_of_what_nodes_are_started_with() -> None:
    one = Pool(name="a", count=1, serve={"kv-cache-mib": 64, "max-running": 8})
    assert one.revision == Pool(name="b", min=2, max=5, serve={"max-running": 8, "kv-cache-mib": 64}).revision
    others = [
        Pool(name="a", model="m"),
        Pool(name="a", placement="one"),
        Pool(name="a", serve={"kv-cache-mib": 65, "max-running": 8}),
        Pool(name="a", resources=Resources(cpus=1)),
    ]
    assert len({one.revision, *(pool.revision for pool in others)}) == 5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["pool"]),
        ("pool = []", ["no [[pool]]"]),
        ("[[pool]", ["no TOML"]),
        ("[[pool]]\nname = 'a'\nnodes = 3", ["nodes"]),
        ("[[pool]]\nname = 'A pool'", ["name"]),
        ("[[pool]]\nname = 'a'\ncount = -1", ["count"]),
        ("[[pool]]\nname = 'a'\ncount = 2\nmax = 3", ["pool a", "count, or min and max"]),
        ("[[pool]]\nname = 'a'\nmin = 2", ["pool a", "min and max go together"]),
        ("[[pool]]\nname = 'a'\nmin = 3\nmax = 2", ["pool a", "min = 3", "max = 2"]),
        ("[[pool]]\nname = 'a'\n[[pool]]\nname = 'a'", ["pool a", "two of this name"]),
        ("[[pool]]\nname = 'router'", ["pool router", "another name"]),
        ("[[pool]]\nname = 'a'\nserve = { speed = 3 }", ["pool a", "serve.speed", "no option --speed"]),
        ("[[pool]]\nname = 'a'\nserve = { kv_cache_mib = 3 }", ["pool a", "no option --kv_cache_mib"]),
        ("[[pool]]\nname = 'a'\nserve = { port = 3 }", ["pool a", "serve.port", "[router] host and ports"]),
        ("[[pool]]\nname = 'a'\nserve = { model = 'm' }", ["pool a", "serve.model", "beside the name"]),
        ("[[pool]]\nname = 'a'\nserve = { kv-cache-mib = 'much' }", ["pool a", "--kv-cache-mib", "int"]),
        ("[[pool]]\nname = 'a'\nresources = { cpus = -1 }", ["cpus"]),
        ("[[pool]]\nname = 'a'\nresources = { disks = 1 }", ["disks"]),
        ("[[pool]]\nname = 'a'\n[router]\nports = [99999]", ["ports", "65535"]),
        ("[[pool]]\nname = 'a'\n[router]\nports = []", ["router.ports", "none"]),
        ("[[pool]]\nname = 'a'\n[router]\npolicy = 'best'", ["policy", "best"]),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        read(text, tmp_path)
    line = str(refused.value)
    assert "\n" not in line
    assert all(word in line for word in ["cluster.toml", *words]), line


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        read_cluster(tmp_path / "none.toml")


def test_an_unknown_pool_is_told_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no pool images: there are video, text"):
        read(WHOLE, tmp_path).pool_of("images")


def test_pools_of_stages_complete_each_other(tmp_path: Path) -> None:
    media, text = '[[pool]]\nname = "media"\nplacement = "v+e"\n', '[[pool]]\nname = "text"\nplacement = "p+d"\n'
    assert [pool.placement for pool in read(media + text, tmp_path).pool] == ["v+e", "p+d"]
    whole = '[[pool]]\nname = "whole"\n'
    for alone, lacking, wanted in ((text, "encode", "v+e"), (media, "prefill", "p+d")):
        with pytest.raises(ConfigError, match=f"it leaves {lacking} to another pool of its model, and there is none"):
            read(alone + whole, tmp_path)
        with pytest.raises(ConfigError, match=re.escape(f'add one with placement = "{wanted}"')):
            read(alone + media + 'model = "another"\n' if alone == text else alone + text + 'model = "x"\n', tmp_path)
