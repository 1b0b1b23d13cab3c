"""Exchanges tensors with the safetensors library for Python (made with safetensors 0.8.0, numpy 2.4).

    python3 interchange.py write interchange.safetensors     # the golden file, as that library writes it
    python3 interchange.py check FILE                        # FILE, written by Gradus, holds the same

The tensors are those of golden_tensors() in safetensors_test.cc.
"""
import sys

import numpy as np
from safetensors import TensorSpec, deserialize, serialize_file

METADATA = {"format": "gradus"}


def golden_tensors():
    """name -> (dtype, array of the raw elements)"""
    i = np.arange(6)
    upper_half = (i.astype(np.float32) * 0.5 - 1).view(np.uint32) >> 16
    return {
        "weights.f64": ("float64", (i * 0.125 - 0.25).reshape(2, 3)),
        "weights.f32": ("float32", (i.astype(np.float32) * np.float32(0.5) - 1).reshape(3, 2)),
        "weights.f16": ("float16", (i.astype(np.float32) * 0.5 - 1).astype(np.float16)),
        "weights.bf16": ("bfloat16", upper_half.astype(np.uint16)),
        "counts.i64": ("int64", i * 1_000_000_007 - 5),
        "counts.i32": ("int32", (i * 1000 - 5).astype(np.int32)),
        "pixels": ("uint8", (i * 50).astype(np.uint8).reshape(1, 6)),
        "mask": ("bool", i % 2 == 1),
        "scalar": ("float32", np.array(3.5, np.float32)),
        "empty": ("float32", np.zeros((0, 3), np.float32)),
        'name "quoted" \\ \u00e4\n\u0001': ("uint8", np.array([7], np.uint8)),
    }


def write(path):
    tensors = golden_tensors()
    specs = {
        name: TensorSpec(dtype=dtype, shape=list(a.shape), data_ptr=a.ctypes.data, data_len=a.nbytes)
        for name, (dtype, a) in tensors.items()
    }
    serialize_file(specs, path, metadata=METADATA)


def check(path):
    with open(path, "rb") as file:
        read = dict(deserialize(file.read()))
    names = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
             "I64": "int64", "I32": "int32", "U8": "uint8", "BOOL": "bool"}
    expected = golden_tensors()
    assert read.keys() == expected.keys(), (read.keys(), expected.keys())
    for name, (dtype, array) in expected.items():
        got = read[name]
        assert names[got["dtype"]] == dtype, name
        assert tuple(got["shape"]) == array.shape, name
        assert bytes(got["data"]) == array.tobytes(), name
    print(len(read), "tensors are the same")


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](sys.argv[2])
