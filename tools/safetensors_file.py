"""Reads and writes safetensors files; needs neither torch nor the safetensors package.

A file is hostile: its header is bounded and checked before any tensor is read. What is wrong is a ValueError.
"""
import json
import math
import os
import struct
import tempfile

SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
MOST_HEADER_BYTES = 100_000_000
MOST_DIMS = 64
MOST_ELEMENTS = 1 << 62


class Array:
    """A tensor's dtype (as in the file: "F32"), shape and bytes."""

    def __init__(self, dtype, shape, data):
        self.dtype, self.shape, self.data = dtype, tuple(shape), data

    def flip(self, dim):
        """The same with the order of a dimension reversed."""
        outer, n = math.prod(self.shape[:dim]), self.shape[dim]
        step = math.prod(self.shape[dim + 1:]) * SIZES[self.dtype]
        parts = [self.data[(i * n + j) * step:(i * n + j + 1) * step] for i in range(outer) for j in reversed(range(n))]
        return Array(self.dtype, self.shape, b"".join(parts))


def read(path):
    """Returns the tensors by name, as Arrays, and the metadata."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
        if length > min(MOST_HEADER_BYTES, size - 8):
            raise ValueError(f"{path}: is no safetensors file, or was cut off: its header is said to have {length} bytes")
        header = parse_header(path, file.read(length), size - 8 - length)
        metadata = header.pop("__metadata__", {})
        tensors = {}
        for name, (dtype, shape, begin, end) in header.items():
            file.seek(8 + length + begin)
            data = file.read(end - begin)
            if len(data) != end - begin:
                raise ValueError(f"{path}: ends within '{name}'")
            tensors[name] = Array(dtype, shape, data)
    return tensors, metadata


def parse_header(path, text, size):
    """Returns dtype, shape, begin and end of each tensor in `size` bytes, and the metadata."""

    def fail(why):
        raise ValueError(f"{path}: its header {why}")

    def once(pairs):
        found = dict(pairs)
        if len(found) != len(pairs):
            fail("has a name twice")
        return found

    try:
        header = json.loads(text.decode(), object_pairs_hook=once, parse_constant=lambda c: fail(f"has {c}"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as e:
        fail(f"is no JSON: {e}")
    except ValueError as e:
        if str(path) in str(e):
            raise
        fail(f"has a number that is too long: {e}")
    if not isinstance(header, dict):
        fail("is no JSON object")

    def counts(x, most):
        return isinstance(x, list) and all(type(n) is int and 0 <= n <= most for n in x)

    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        fail("has metadata other than strings")
    found = {}
    for name, entry in header.items():
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            fail(f"does not give dtype, shape and data_offsets of {name!r}")
        dtype, shape, at = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(dtype, str) or dtype not in SIZES:
            fail(f"gives {name!r} the dtype {dtype!r}, which Gradus does not have")
        if not counts(shape, MOST_ELEMENTS) or len(shape) > MOST_DIMS or math.prod(shape) > MOST_ELEMENTS:
            fail(f"gives {name!r} no shape of at most {MOST_DIMS} sizes")
        if not counts(at, size) or len(at) != 2 or at[1] - at[0] != math.prod(shape) * SIZES[dtype]:
            fail(f"gives {name!r} {dtype}{shape}, but not as many of the {size} bytes behind it")
        found[name] = (dtype, shape, *at)
    ends = 0
    for begin, end, name in sorted((begin, end, name) for name, (_, _, begin, end) in found.items()):
        if begin != ends:
            fail(f"has a hole or an overlap before {name!r}")
        ends = end
    if ends != size:
        fail(f"describes {ends} of {size} bytes")
    return {**found, "__metadata__": metadata}


def write(path, tensors, metadata):
    """Writes named Arrays: u64 length of the header, the header in JSON, the elements, widest dtypes first, then by
    name. The file appears under its name when it is whole. Returns its size."""
    if "__metadata__" in tensors:
        raise ValueError("'__metadata__' is no name for a tensor: the format has it for itself")
    order = sorted(tensors, key=lambda name: (-SIZES[tensors[name].dtype], name))
    header, at = {"__metadata__": {k: str(v).encode(errors="replace").decode() for k, v in metadata.items()}}, 0
    for name in order:
        t = tensors[name]
        size = math.prod(t.shape) * SIZES[t.dtype]
        header[name] = {"dtype": t.dtype, "shape": list(t.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    folder, name = os.path.split(os.path.abspath(path))
    part = tempfile.NamedTemporaryFile(dir=folder, prefix=name + ".", delete=False)
    try:
        with part:
            part.write(struct.pack("<Q", len(text)))
            part.write(text)
            for key in order:
                part.write(tensors[key].data)
            part.flush()
            os.fsync(part.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(part.name, 0o666 & ~umask)
        os.replace(part.name, path)
    except BaseException:
        os.unlink(part.name)
        raise
    return 8 + len(text) + at
