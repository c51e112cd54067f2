"""Access the frames of a video at random, with TorchCodec's methods and semantics."""

from flashcodec.bitstream import Bitstream, Indices, Source
from flashcodec.decoder import Decoder
from flashcodec.frames import Frame, FrameBatch
from flashcodec.reading import Allocator, Pixels, host_memory


class VideoDecoder(Decoder[Pixels, Frame, FrameBatch]):
    """Decode frames of one video stream by index or time, as RGB arrays of NumPy.

    Those of flashcodec.torch are tensors of PyTorch.

    Args:
        source: path, bytes-like object or 1-d uint8 array (kept, not copied), file-like object with read and seek,
            or Bitstream.
        stream_index: which stream of the container; by default the best video stream.
        dimension_order: "NCHW" or "NHWC". Either way pixels lie in memory as NHWC; NCHW is a view of that.
        num_threads: decoding threads of its own; 0 shares the process-wide pool, one thread a core.
        device: "cpu"; for frames on a GPU there is flashcodec.torch.
        seek_mode: "exact" or "approximate", which is exact as well: frames are always the ones asked for, and
            analysis reads the container's tables, not the whole file, where there are any.
        size: of the frames that are returned, (height, width), or the shorter side (the ratio of the sides is
            kept). By default that of the video.
        interpolation: how they are resized: "bicubic", "bilinear" or "area", always antialiased.
        snap: "keyframe" returns the key frame nearest in time instead of each frame asked for: far quicker, but
            other frames. Their own numbers and times are returned.
        snap_tolerance: seconds; frames whose nearest key frame is further away are decoded themselves.
        fast: leave out the loop filter of frames that are not asked for: quicker, but frames differ a little.
        on_error: what becomes of frames that are damaged. "raise": frames that do not come out raise a DecodeError;
            frames that the decoder could conceal are returned and listed in `damaged` of the batch. "skip": the
            batch has only the intact frames. "nearest": the intact frame of the batch that is nearest in time
            takes the place of a damaged one, with its own number and time. `indices` of the batch tells which
            frames it has, `damaged` what is wrong with the others. If none is intact a DecodeError is raised.
        limits: by default `Limits()`.

    A decoder may be used by several threads, and after a fork by both processes (not on a file-like object, whose
    position they share). One on a path or on bytes can be pickled: it is then opened again. `progress` of the
    methods is called with (frames done, frames in all) in the calling thread.

    Raises DecodeError if the source holds no video that can be decoded, TypeError for a source of another kind,
    ValueError for arguments out of range. Methods raise DecodeError for frames that are damaged, IndexError for
    frames that are not there, ValueError once the decoder is closed.
    """

    def _gpus(self, device: str) -> tuple[int, ...]:
        if device.partition(":")[0] == "cpu":
            return ()
        if device.startswith("cuda"):
            raise ValueError(
                f'device="{device}": arrays of NumPy are not on a GPU. Use flashcodec.torch.VideoDecoder for tensors '
                "there, or FlashCodec(device=...) for arrays of any library"
            )
        raise ValueError(f'Invalid device ({device}). Supported is "cpu".')

    def _allocator(self) -> Allocator:
        return host_memory

    def _channels_first(self, data: Pixels) -> Pixels:
        return data.transpose(0, 3, 1, 2)

    def _pixels(self, data: Pixels) -> Pixels:
        return data

    def _frame(self, frame: Frame) -> Frame:
        return frame

    def _batch(self, batch: FrameBatch) -> FrameBatch:
        return batch


def yuv_frames_at(source: Source | Bitstream, indices: Indices) -> list[Pixels]:
    """Call `VideoDecoder.get_yuv_frames_at` of the best stream of a source."""
    with VideoDecoder(source) as decoder:
        return decoder.get_yuv_frames_at(indices)
