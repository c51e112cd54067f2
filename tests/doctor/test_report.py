"""The report as a whole: exit code, JSON, plain text, and machines that lack something."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve import doctor
from unifiedserve.doctor import ffmpeg, isolation, report, system, torch_stack
from unifiedserve.doctor.check import Check, Status, version_tuple
from unifiedserve.doctor.isolation import ProbeError, call

REPOSITORY = Path(__file__).resolve().parents[2]


def test_json_tells_what_the_exit_code_tells() -> None:
    command = [sys.executable, "-m", "unifiedserve.doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    answer = json.loads(done.stdout)
    assert done.returncode == (0 if answer["ok"] else 1)
    names = {check["name"] for check in answer["checks"]}
    assert {"CPU", "memory", "/dev/shm", "FFmpeg", "torch", "libcuda", "nvidia-cuda-mps-control"} <= names
    blocking = [c for c in answer["checks"] if c["required"] and c["status"] == "missing"]
    assert answer["ok"] == (not blocking)
    assert all(check["remedy"] for check in blocking)


def test_runs_on_the_standard_library_alone() -> None:
    """As on a machine where nothing is installed: no site-packages (-S), hence no rich."""
    code = (
        f"import sys; sys.path[:0] = [{str(REPOSITORY)!r}]; import unifiedserve.doctor as d; raise SystemExit(d.main())"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "torch" in done.stdout
    assert "Not ready to serve" in done.stdout
    assert done.stderr == ""


def test_main_prints_a_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "MACHINE", (("Machine", lambda: [Check("CPU", "one")]),))
    monkeypatch.setattr(doctor.gpu, "has_device", lambda: False)
    assert doctor.main() == 0
    out = capsys.readouterr().out
    assert "CPU" in out
    assert "Ready to serve" in out


def test_a_probe_that_raises_becomes_a_warning() -> None:
    def broken() -> list[Check]:
        raise RuntimeError("boom")

    (check,) = doctor.checked("Machine", broken)
    assert check.status is Status.WARN
    assert "RuntimeError: boom" in check.value


@pytest.mark.parametrize(
    ("required", "status", "works"),
    [(True, Status.MISSING, False), (True, Status.WARN, True), (False, Status.MISSING, True)],
)
def test_only_what_is_required_and_missing_blocks(required: bool, status: Status, works: bool) -> None:
    checks = [("Machine", [Check("thing", "?", status, "get one", required)])]
    assert report.cpu_path_works(checks) is works
    assert json.loads(report.as_json(checks))["ok"] is works
    assert ("Not ready to serve: thing" in report.as_text(checks)) is not works


def test_plain_text_shows_remedies() -> None:
    text = report.as_text([("Machine", [Check("thing", "none", Status.MISSING, "get one")])])
    assert "→ get one" in text


def test_too_little_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "SHM_REQUIRED", 2**62)
    monkeypatch.setattr(system, "SHM_COMFORTABLE", 2**63)
    check = system.shared_memory()
    assert check.blocks
    assert "--shm-size" in check.remedy


def test_no_shared_memory() -> None:
    assert system.shared_memory("/nowhere").blocks


def test_shared_memory_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a file system has no blocks, neither free nor taken."""
    unlimited = SimpleNamespace(f_blocks=0, f_bavail=0, f_frsize=4096)
    monkeypatch.setattr("os.statvfs", lambda directory: unlimited)
    check = system.shared_memory()
    assert (check.status, check.value) == (Status.OK, "no limit of its own")


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (
            "model name : AMD EPYC\ncpu family : 25\nmodel : 17\nflags : avx2 avx512f avx512_bf16",
            "AMD EPYC, family 25 model 17 (avx2, avx512, avx512_bf16)",
        ),
        ("model name : Neoverse-V1\nFeatures : asimd sve", "Neoverse-V1 (neon, sve)"),
    ],
)
def test_the_processor_is_told_with_its_generation(
    info: str, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cpuinfo").write_text(info)
    monkeypatch.setattr(system, "CPUINFO", tmp_path / "cpuinfo")
    assert system.cpu().value == expected


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    check = system.compiler()
    assert check.status is Status.MISSING
    assert "g++" in check.remedy


def test_ffmpeg_libraries_decode_what_the_ffmpeg_program_says() -> None:
    try:
        found = call("ffmpeg:libraries")
    except ProbeError as error:
        pytest.skip(str(error))
    listing = subprocess.run(["ffmpeg", "-v", "error", "-decoders"], capture_output=True, text=True).stdout
    names = {line.split()[1] for line in listing.splitlines() if len(line.split()) > 2}
    expected = {codec: any(name in names for name in options) for codec, options in ffmpeg.DECODERS.items()}
    assert {codec: bool(name) for codec, name in found["decoders"].items()} == expected


def test_old_ffmpeg_is_not_enough() -> None:
    found = {"version": "4.4", "libavcodec": "58.134.100", "path": "libavcodec.so.58", "decoders": {}}
    assert ffmpeg.version(found).blocks


def test_ffmpeg_without_a_codec_is_a_warning() -> None:
    check = ffmpeg.decoders({name: "" if name == "av1" else name for name in ffmpeg.DECODERS})
    assert check.status is Status.WARN
    assert "av1" in check.remedy


def test_torch_of_this_interpreter_is_reported() -> None:
    torch = pytest.importorskip("torch")
    assert torch_stack.torch().value.startswith(torch.__version__)


def test_serving_needs_the_packages_of_the_extra_and_their_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """An extra of `pyproject.toml` is all of it: pip would install what the doctor asks for."""
    extra = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]["serve"]
    parts = (re.match(r"([\w-]+)>=([\d.]+)", requirement) for requirement in extra)
    oldest = {part[1]: version_tuple(part[2]) for part in parts if part}
    models = {"torch": torch_stack.OLDEST_TORCH, "transformers": torch_stack.OLDEST_TRANSFORMERS}
    assert oldest == torch_stack.SERVING | models
    assert not torch_stack.serving().blocks
    versions = dict.fromkeys(torch_stack.SERVING, "99") | {"starlette": "0.45.3"}
    del versions["python-multipart"]
    monkeypatch.setattr(torch_stack, "_version", versions.get)
    assert torch_stack.serving().blocks
    assert torch_stack.serving().value == "without python-multipart; too old: starlette 0.45.3"


def test_a_containers_memory_is_what_it_may_have(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n")
    monkeypatch.setattr(system, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(system, "CGROUP", tmp_path)
    assert system.memory().value == "16.0 GiB, 8.0 GiB available"
    files = {"max": 3 * 2**30, "current": 2 * 2**30, "stat": f"anon 5\ninactive_file {2**29}"}
    for name, content in files.items():
        (tmp_path / f"memory.{name}").write_text(f"{content}\n")
    check = system.memory()
    assert check.value == "16.0 GiB, of which this container may have 3.0 GiB, 1.5 GiB available"
    assert check.status is Status.WARN
    (tmp_path / "memory.max").write_text("max\n")
    assert system.memory().status is Status.OK


def test_isolated_functions_return_and_raise() -> None:
    assert call("torch_stack:import_module", "json").endswith("json/__init__.py")
    with pytest.raises(ProbeError, match="No module named 'nothing_of_this_name'"):
        call("torch_stack:import_module", "nothing_of_this_name")


@pytest.mark.parametrize(
    ("returncode", "out", "err", "reason"),
    [(-11, "", "", "SIGSEGV"), (1, "", "first\nlast", "last"), (0, "noise", "", "printed no result")],
)
def test_children_that_die_say_how(returncode: int, out: str, err: str, reason: str) -> None:
    with pytest.raises(ProbeError, match=reason):
        isolation.result_of(returncode, out, err)


@given(st.lists(st.integers(0, 999), min_size=1, max_size=4), st.sampled_from(["", "+cpu", "+cu130", ".dev1"]))
def test_versions(numbers: list[int], suffix: str) -> None:
    assert version_tuple(".".join(map(str, numbers)) + suffix)[: len(numbers)] == tuple(numbers)
