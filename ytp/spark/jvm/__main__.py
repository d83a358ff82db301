"""Prints where the jar is: ``spark-submit --jars $(python -m ytp.spark.jvm) ...``."""

import sys

from ytp.spark.java import jar

if __name__ == "__main__":
    path = jar()
    if path is None:
        sys.exit("this ytp has no yamal.jar: it was built without javac")
    print(path)
