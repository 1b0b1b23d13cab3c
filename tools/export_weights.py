#!/usr/bin/env python3
"""Exports weights from PyTorch to a safetensors file, which Gradus loads by the same names:

    tools/export_weights.py resnet50 -o resnet50.safetensors               # torchvision's, trained on ImageNet
    tools/export_weights.py timm/resnet50.a1_in1k -o resnet50.safetensors  # timm's
    tools/export_weights.py run/last.pth -o net.safetensors                # a checkpoint of one's own
    tools/export_weights.py resnet18 --random --seed 1 --classes 10 -o net.safetensors

It needs torch, and torchvision or timm for their models; neither Gradus nor the safetensors package. In C++:

    models::ResNet net(models::resnet50());
    io::load_weights(net, "resnet50.safetensors");
"""
import argparse
import json
import os
import struct
import sys
import tempfile

import torch

DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}
# Where training programs put the weights inside of a checkpoint.
KEYS = ("state_dict", "model_state_dict", "model", "net", "state_dict_ema", "model_ema")
# What DataParallel, DistributedDataParallel and torch.compile put before every name.
PREFIXES = ("module.", "_orig_mod.")


def write_safetensors(path, tensors, metadata):
    """Writes named tensors: u64 length of the header, the header in JSON, the elements, widest dtypes first, then by
    name. The file appears under its name when it is whole. Returns its size."""
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header, at = {"__metadata__": {k: str(v) for k, v in metadata.items()}}, 0
    for name in order:
        t = tensors[name]
        if t.dtype not in DTYPES:
            raise SystemExit(f"{name} is {t.dtype}, which Gradus does not have; --dtype converts floating-point weights")
        size = t.numel() * t.element_size()
        header[name] = {"dtype": DTYPES[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + size]}
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
                t = tensors[key].detach().cpu().contiguous().reshape(-1)
                part.write(memoryview(t.view(torch.uint8).numpy()) if t.numel() else b"")
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


def of_torchvision(args):
    import torchvision

    source = {"torchvision": torchvision.__version__}
    torch.manual_seed(args.seed)
    if args.random:
        return torchvision.models.get_model(args.model, weights=None, **classes(args)), source
    weights = args.weights or "DEFAULT"
    source["weights"] = weights
    return torchvision.models.get_model(args.model, weights=weights, **classes(args)), source


def of_timm(args):
    import timm

    torch.manual_seed(args.seed)
    return timm.create_model(args.model[len("timm/"):], pretrained=not args.random, **classes(args)), {"timm": timm.__version__}


def classes(args):
    return {} if args.classes is None else {"num_classes": args.classes}


def of_checkpoint(args):
    try:
        # Nothing but tensors and plain containers: a pickle can run any program.
        content = torch.load(args.model, map_location="cpu", weights_only=not args.trust)
    except Exception as e:
        hint = "" if args.trust else "\nIf you trust the file, which may run any program, add --trust."
        raise SystemExit(f"{args.model}: {e}{hint}")
    if isinstance(content, torch.nn.Module):
        content = content.state_dict()
    key = args.key or next((k for k in KEYS if isinstance(content, dict) and isinstance(content.get(k), dict)), None)
    if key is not None:
        if not isinstance(content, dict) or key not in content:
            raise SystemExit(f"{args.model} has no '{key}'; it has {', '.join(map(str, content))}")
        content = content[key]
    if isinstance(content, torch.nn.Module):
        content = content.state_dict()
    if not isinstance(content, dict):
        raise SystemExit(f"{args.model}: expected named tensors, found {type(content).__name__}")
    state = {k: v for k, v in content.items() if isinstance(v, torch.Tensor)}
    if not state:
        raise SystemExit(f"{args.model} has no tensors; it has {', '.join(map(str, content)) or 'nothing'}; --key says where they are")
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in state):
            state = {name[len(prefix):]: t for name, t in state.items()}
    # Files older than PyTorch 0.4.1 do not count batch norm's batches; PyTorch starts at 0 then.
    for name in [n for n in state if n.endswith("running_var")]:
        state.setdefault(name[:-len("running_var")] + "num_batches_tracked", torch.tensor(0))
    return state, {"checkpoint": os.path.basename(args.model)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", help="a name in torchvision, timm/NAME, or a checkpoint file")
    p.add_argument("-o", "--output", help="default: the model's name with .safetensors")
    p.add_argument("--random", action="store_true", help="random weights instead of trained ones")
    p.add_argument("--seed", type=int, default=0, help="of random weights (and of a new head)")
    p.add_argument("--classes", type=int, help="another number of classes")
    p.add_argument("--weights", help="which of torchvision's weights; default: DEFAULT, its best")
    p.add_argument("--key", help="where in a checkpoint the weights are; default: the first of " + ", ".join(KEYS))
    p.add_argument("--trust", action="store_true", help="load a checkpoint that is more than tensors; it may run any program")
    p.add_argument("--dtype", choices=["f64", "f32", "f16", "bf16"], help="convert floating-point weights")
    args = p.parse_args()

    metadata = {"format": "pt", "model": args.model, "torch": torch.__version__}
    if os.path.isfile(args.model):
        if args.random or args.classes is not None or args.weights:
            p.error("--random, --classes and --weights are for models, not for checkpoint files")
        state, source = of_checkpoint(args)
    else:
        if args.key or args.trust:
            p.error(f"there is no file {args.model}")
        try:
            model, source = (of_timm if args.model.startswith("timm/") else of_torchvision)(args)
        except (ImportError, KeyError, RuntimeError, ValueError) as e:
            raise SystemExit(f"{args.model} is no file, and as a model: {e}")
        state = model.state_dict()
        if args.random:
            source["random"] = f"seed {args.seed}"
    if args.dtype:
        dtype = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[args.dtype]
        state = {k: v.to(dtype) if v.is_floating_point() else v for k, v in state.items()}
    output = args.output or os.path.splitext(os.path.basename(args.model))[0] + ".safetensors"
    size = write_safetensors(output, state, {**metadata, **source})
    elements = sum(t.numel() for t in state.values())
    print(f"{output}: {len(state)} tensors, {elements:,} elements, {size:,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
