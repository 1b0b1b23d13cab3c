"""Keeps a folder of cached files small: python3 trim_cache.py FOLDER BYTES.

Where its files take more than BYTES, those that were read longest ago go, until a quarter of BYTES is free. Each is a
cache's file: who wants it makes it again.
"""
import os
import sys


def files_of(folder):
    """(when last read or written, size, path) of each file."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            try:
                status = os.lstat(path)
            except FileNotFoundError:  # another build's temporary file
                continue
            yield max(status.st_atime, status.st_mtime), status.st_size, path


def trim(folder, limit):
    files = sorted(files_of(folder))
    taken = sum(size for _, size, _ in files)
    if taken <= limit:
        return
    for _, size, path in files:
        if taken <= limit * 3 // 4:
            break
        try:
            os.remove(path)
        except FileNotFoundError:
            pass
        taken -= size


if __name__ == "__main__":
    trim(sys.argv[1], int(sys.argv[2]))
