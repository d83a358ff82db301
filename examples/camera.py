"""A camera draws straight into the file; three processes look at the same pixels. No frame is ever copied.

python examples/camera.py
"""

import multiprocessing
import os
import tempfile

import numpy as np

import ytp

SHAPE = (480, 640)
FRAMES = 50


def camera(path: str) -> None:
    with ytp.open(path) as bus:
        channel = bus.peer("camera").channel("frames")
        y, x = np.ogrid[: SHAPE[0], : SHAPE[1]]
        for number in range(FRAMES):
            with channel.reserve(SHAPE[0] * SHAPE[1]) as space:  # part of the mapped file
                frame = np.frombuffer(space, np.uint8).reshape(SHAPE)
                np.copyto(frame, y + x + number, casting="unsafe")
                del frame  # the view ends before the message is published


def observer(path: str, name: str) -> None:
    with ytp.open(path) as bus:
        results = bus.peer(name).channel("results")
        total = 0
        for _, message in zip(range(FRAMES), bus.subscribe("frames"), strict=False):
            total += int(np.frombuffer(message, np.uint8).sum(dtype=np.uint64))  # a view of the same bytes
        results.write(str(total).encode())


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "camera.ytp")
        context = multiprocessing.get_context("spawn")
        names = ["observer-1", "observer-2", "observer-3"]
        crew = [context.Process(target=observer, args=(path, name)) for name in names]
        crew.append(context.Process(target=camera, args=(path,)))
        for process in crew:
            process.start()
        with ytp.open(path) as bus:
            results = bus.subscribe("results")
            for _ in names:
                result = results.poll(timeout=60)
                print(
                    "nothing"
                    if result is None
                    else f"{FRAMES} frames, sum of all pixels {result.data.decode()}"
                )
        for process in crew:
            process.join()


if __name__ == "__main__":
    main()
