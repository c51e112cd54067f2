"""Read by OpenCV as vLLM and transformers do: grab every frame up to the last one wanted, retrieve the wanted ones."""

import cv2
import numpy as np

from .sharing import Indices, Pixels, Size


def frames(path: str, indices: Indices, size: Size, threads: int) -> Pixels:
    """Read from the first frame on; raises EOFError if the file ends before the last one wanted."""
    capture = cv2.VideoCapture(path, cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, threads])
    try:
        height, width = size or (
            int(capture.get(cv2.CAP_PROP_FRAME_HEIGHT)),
            int(capture.get(cv2.CAP_PROP_FRAME_WIDTH)),
        )
        order = np.argsort(indices, kind="stable")
        pictures = np.empty((len(indices), height, width, 3), np.uint8)
        number = -1
        for place in order:
            while number < indices[place]:
                if not capture.grab():
                    raise EOFError(f"no more frames after {number}")
                number += 1
            _, picture = capture.retrieve()
            if size is not None:
                picture = cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA)
            cv2.cvtColor(picture, cv2.COLOR_BGR2RGB, dst=pictures[place])
        return pictures
    finally:
        capture.release()
