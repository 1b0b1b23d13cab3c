"""Keeps a folder of cached files small: python3 trim_cache.py FOLDER BYTES.

Where its files take more than BYTES, those that were written or read longest ago go, until a quarter of BYTES is free.
When one was read is known to a day. Each is a cache's file: who wants it makes it again. What cannot be deleted stays.
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
            except OSError:  # another build's temporary file
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
        except OSError:
            continue
        taken -= size


if __name__ == "__main__":
    trim(sys.argv[1], int(sys.argv[2]))
