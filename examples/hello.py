"""Two processes and a file: one says hello, the other answers.

python examples/hello.py
"""

import multiprocessing
import os
import tempfile

import ytp


def answer(path: str) -> None:
    with ytp.open(path) as bus:
        replies = bus.peer("echo").channel("replies")
        for greeting in bus.subscribe("greetings"):  # waits, asleep, for whatever comes
            replies.write(b"you said: " + greeting.data)
            return


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "hello.ytp")
        other = multiprocessing.get_context("spawn").Process(target=answer, args=(path,))
        other.start()
        with ytp.open(path) as bus:  # either side may come first
            bus.peer("main").channel("greetings").write(b"hello")
            reply = bus.subscribe("replies").poll(timeout=30)
            print("nothing came" if reply is None else f"{reply.peer}: {reply.data.decode()}")
        other.join()


if __name__ == "__main__":
    main()
