"""A case: a clip in a container with faults, as a line of text that says all there is to it."""

from dataclasses import dataclass, replace
from pathlib import Path

from once import once

from faulty_files.clips import CLIPS, encode
from faulty_files.containers.formats import FORMATS
from faulty_files.faults import FAULTS, JOINTS
from faulty_files.recording import Recording


@dataclass(frozen=True)
class Case:
    """`str(case)` is its text, for instance "h264 mp4 keys_none lost=7,2"."""

    clip: str
    container: str
    faults: tuple[tuple[str, tuple[int, ...]], ...]

    def __str__(self) -> str:
        return " ".join([self.clip, self.container, *(_fault_text(*fault) for fault in self.faults)])

    @classmethod
    def parse(cls, text: str) -> "Case":
        clip, container, *faults = text.split()
        return cls(clip, container, tuple(_parse_fault(fault) for fault in faults))


def _fault_text(name: str, numbers: tuple[int, ...]) -> str:
    return "=".join([name, ",".join(map(str, numbers))] if numbers else [name])


def _parse_fault(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, numbers = text.partition("=")
    return name, tuple(int(number) for number in numbers.split(",")) if numbers else ()


def partners(clip: str, container: str) -> list[str]:
    """Return the clips that this one can be joined with, itself among them.

    Those of other pixel formats are not: FFmpeg's command line would convert them to the first one's. Nor do Matroska
    and fragments hold the headers of two videos.
    """
    if container in ("mkv", "fragments"):
        return [clip]
    this = CLIPS[clip]
    alike = {name: other for name, other in CLIPS.items() if other.codec == this.codec and other.pixels == this.pixels}
    return [name for name, other in alike.items() if container in other.containers]


@dataclass(frozen=True)
class Workshop:
    """Writes the files of cases from clips that FFmpeg encodes once, into a folder."""

    folder: Path

    def write(self, case: Case, path: Path) -> Path:
        """Write the file of a case beside `path`, with the suffix of its container."""
        recording = self._recording(case.clip, case.container)
        for name, numbers in case.faults:
            if name in JOINTS:
                partner, end, begin = numbers
                if CLIPS[case.clip].codec == "vp8":  # FFmpeg reads segment maps that are not there
                    begin = 0
                recording = JOINTS[name].apply(recording, self._partner(case, partner), end, begin)
            else:
                recording = FAULTS[name].apply(recording, *numbers)
        if CLIPS[case.clip].codec in ("av1", "mjpeg"):
            recording = replace(recording, edits=())  # FFmpeg 5.1 shows the frames outside of them, later ones do not
        form = FORMATS[case.container]
        path = path.with_suffix(f".{form.suffix}")
        path.write_bytes(form.write(recording if form.gaps else recording.timed()))
        return path

    def _partner(self, case: Case, which: int) -> Recording:
        names = partners(case.clip, case.container)
        return self._recording(names[which % len(names)], case.container)

    def _recording(self, clip: str, container: str) -> Recording:
        formats = sorted({FORMATS[name].ffmpeg for name in CLIPS[clip].containers})
        folder = once(self.folder / clip, lambda folder: encode(clip, formats, folder))
        form = FORMATS[container]
        return form.read((folder / form.ffmpeg).read_bytes())
