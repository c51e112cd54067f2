"""Profiles of hardware: written and read again, and what is said of those that cannot be used."""

import datetime
import math
import string
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.errors import ConfigError
from unifiedserve.placement import Stage
from unifiedserve.profiles import (
    DeviceSize,
    HardwareProfile,
    ModelSizes,
    check_file,
    hardware_name,
    keep_profile,
    read_profile,
    stored_profile,
    write_profile,
)
from unifiedserve.scheduling.simulation import StageCosts

BY_HAND = """
format = 1
model = "qwen2.5-vl-7b"
hardware = "A100-SXM4-80GB"
date = 2026-11-28
[device]
kind = "cuda"
memory_gib = 80
video_engines = 5
[model_sizes]
weights_gib = {encoder = 1.3, language = 14.2}
frame_tokens = 66
[costs]
decode_pass = 0.0105
[interference.decode]
encode = 1.35
[sources]
"costs.decode_pass" = "a paper, Fig. 1"
"""

PROFILE = HardwareProfile(
    model="half-billion",
    digest="ab12",
    hardware="a processor, 2 cores",
    versions={"torch": "2.11"},
    date=datetime.date(2026, 11, 28),
    device=DeviceSize(kind="cpu", cores=2),
    costs=StageCosts(decode_pass=0.05),
)

seconds = st.floats(min_value=0, max_value=1e6)
names = st.text(string.printable, min_size=1, max_size=20)
costs = st.builds(StageCosts, decode_pass=seconds, prompt_token=seconds, pull=seconds, half=st.floats(1, 3))
factors = st.dictionaries(st.sampled_from(Stage), st.floats(1, 100))
profiles = st.builds(
    HardwareProfile,
    model=names,
    hardware=names,
    versions=st.dictionaries(names, names, max_size=2),
    device=st.one_of(
        st.builds(DeviceSize, kind=st.just("cpu"), cores=st.integers(1, 512)),
        st.builds(DeviceSize, kind=st.just("cuda"), cores=st.integers(0, 512)),
    ),
    model_sizes=st.builds(ModelSizes, frame_tokens=seconds, kv_token_bytes=st.integers(0, 2**40)),
    costs=costs,
    interference=st.dictionaries(st.sampled_from(Stage), factors),
    sources=st.dictionaries(names, names, max_size=2),
    date=st.dates(),
)


@given(profiles)
def test_what_is_written_is_read_again(profile: HardwareProfile) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "new" / "profile.toml"
        write_profile(path, profile)
        assert read_profile(path) == profile
        assert list(path.parent.iterdir()) == [path]


def test_a_profile_written_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "a100.toml"
    path.write_text(BY_HAND)
    profile = read_profile(path)
    assert profile.factor(Stage.DECODE, Stage.ENCODE) == 1.35
    assert profile.factor(Stage.ENCODE, Stage.DECODE) == 1.0, "what is not given does not interfere"
    assert profile.device == DeviceSize(kind="cuda", memory_gib=80, video_engines=5)
    assert profile.model_sizes.weights_gib == {"encoder": 1.3, "language": 14.2}
    profile.check("qwen2.5-vl-7b", "A100-SXM4-80GB")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("format = 1", "format = 2", "`format`"),
        ('kind = "cuda"', 'kind = "tpu"', "`device.kind`"),
        ("decode_pass = 0.0105", "decode_pass = -1", "costs.decode_pass is -1"),
        ("decode_pass = 0.0105", "decode_pas = 1", "decode_pas"),
        ("decode_pass = 0.0105", "half = 0.5", "costs.half is 0.5, which must be 1 or more"),
        ("decode_pass = 0.0105", "image = nan", "costs.image is nan"),
        ("encode = 1.35", "encode = 0.7", "interference.decode.encode is 0.7"),
        ("encode = 1.35", "audio = 1.35", "audio"),
        ('kind = "cuda"', 'kind = "cpu"', "device.cores is 0, which must be 1 or more"),
        ("memory_gib = 80", "memory_gib = inf", "device.memory_gib is inf"),
        ("frame_tokens = 66", "frame_tokens = inf", "model_sizes.frame_tokens is inf"),
        ("language = 14.2", "language = inf", "model_sizes.weights_gib.language is inf"),
        ("decode_pass = 0.0105", "gop_seconds = 0", "costs.gop_seconds is 0"),
        ("[costs]", "[costs", "no TOML"),
        ("format = 1", "\udc80", "no TOML"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path, old: str, new: str, says: str) -> None:
    path = tmp_path / "damaged.toml"
    path.write_text(BY_HAND.replace(old, new), errors="surrogateescape")
    with pytest.raises(ConfigError) as refused:
        read_profile(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read: No such file"):
        read_profile(tmp_path / "none.toml")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        write_profile(tmp_path / "file" / "profile.toml", PROFILE)
    for place in (tmp_path / "file" / "profile.toml", tmp_path):
        with pytest.raises(ConfigError, match="cannot be written"):
            check_file(place)
    check_file(tmp_path / "new" / "profile.toml")
    assert not (tmp_path / "new").exists()


def test_another_model_or_other_hardware_is_refused_with_both_names() -> None:
    PROFILE.check("half-billion", "a processor, 2 cores")
    PROFILE.check("ab12", "a processor, 2 cores")
    with pytest.raises(ConfigError, match="of the model half-billion, not of another"):
        PROFILE.check("another", "a processor, 2 cores")
    with pytest.raises(ConfigError, match="of a processor, 2 cores, not of H100"):
        PROFILE.check("half-billion", "H100")


def test_a_stored_profile_is_found_by_model_and_hardware(tmp_path: Path) -> None:
    keep_profile(PROFILE, tmp_path)
    assert stored_profile("ab12", PROFILE.hardware, {"torch": "2.11"}, tmp_path) == PROFILE
    assert stored_profile("cd34", PROFILE.hardware, folder=tmp_path) is None
    assert stored_profile("ab12", "H100", folder=tmp_path) is None


def test_a_stored_profile_that_does_not_fit_is_as_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = keep_profile(PROFILE, tmp_path)
    assert stored_profile("ab12", PROFILE.hardware, {"torch": "3.0"}, tmp_path) is None
    assert "measured with torch 2.11, now 3.0" in caplog.text
    write_profile(path, msgspec.structs.replace(PROFILE, hardware="H100"))
    assert stored_profile("ab12", PROFILE.hardware, folder=tmp_path) is None
    path.write_bytes(b"\x00damaged")
    assert stored_profile("ab12", PROFILE.hardware, folder=tmp_path) is None
    assert len(caplog.records) == 3, "one line each"


def test_numbers_are_checked_where_a_profile_is_made() -> None:
    with pytest.raises(ValueError, match=r"costs\.image is inf"):
        msgspec.structs.replace(PROFILE, costs=StageCosts(image=math.inf))


def test_the_hardware_has_the_name_that_the_doctor_gives() -> None:
    assert hardware_name("NVIDIA H100") == "NVIDIA H100"
    assert hardware_name().endswith(" cores")
