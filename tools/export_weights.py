#!/usr/bin/env python3
"""Exports weights from PyTorch to a safetensors file, which Gradus loads by the same names:

    tools/export_weights.py resnet50 -o resnet50.safetensors               # torchvision's, trained on ImageNet
    tools/export_weights.py timm/resnet50.a1_in1k -o resnet50.safetensors  # timm's
    tools/export_weights.py run/last.pth -o net.safetensors                # a checkpoint of one's own
    tools/export_weights.py resnet18 --random --seed 1 --classes 10 -o net.safetensors
    tools/export_weights.py dcgan.pth --from mmgeneration -o dcgan.safetensors  # renamed; BGR becomes RGB

It needs torch, and torchvision or timm for their models; neither Gradus nor the safetensors package. A checkpoint that is
a safetensors file itself needs nothing but Python. In C++:

    models::ResNet net(models::resnet50());
    io::load_weights(net, "resnet50.safetensors");
"""
import argparse
import math
import os
import sys

import mmgeneration
import safetensors_file

# In PyTorch and in the file.
DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}
# Where training programs put the weights inside of a checkpoint.
KEYS = ("state_dict", "model_state_dict", "model", "net", "state_dict_ema", "model_ema")
# What DataParallel, DistributedDataParallel and torch.compile put before every name.
PREFIXES = ("module.", "_orig_mod.")


def write_safetensors(path, tensors, metadata):
    """Writes named tensors. The file appears under its name when it is whole. Returns its size."""
    return safetensors_file.write(path, {name: as_array(name, t) for name, t in tensors.items()}, metadata)


def as_array(name, t):
    """A tensor of torch as what a file has; its memory is shared where it is contiguous."""
    if isinstance(t, safetensors_file.Array):
        return t
    import torch

    dtype = DTYPES.get(str(t.dtype).removeprefix("torch."))
    if dtype is None:
        raise SystemExit(f"{name} is {t.dtype}, which Gradus does not have; --dtype converts floating-point weights")
    if t.layout != torch.strided or t.is_meta or t.is_quantized:
        raise SystemExit(f"{name} has no plain elements: it is sparse, quantized, or on the meta device")
    flat = t.detach().cpu().contiguous().reshape(-1)
    return safetensors_file.Array(dtype, t.shape, memoryview(flat.view(torch.uint8).numpy()) if flat.numel() else b"")


def converted(t, name):
    """A tensor in another floating-point dtype."""
    import torch

    dtype = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[name]
    if isinstance(t, safetensors_file.Array):
        of = getattr(torch, {ours: theirs for theirs, ours in DTYPES.items()}[t.dtype])
        t = torch.frombuffer(bytearray(t.data), dtype=of).reshape(t.shape) if t.data else torch.empty(t.shape, dtype=of)
    return t.to(dtype) if t.is_floating_point() else t


def of_torchvision(args):
    import torch
    import torchvision

    source = {"torch": torch.__version__, "torchvision": torchvision.__version__}
    torch.manual_seed(args.seed)
    if args.random:
        return torchvision.models.get_model(args.model, weights=None, **classes(args)), source
    weights = args.weights or "DEFAULT"
    source["weights"] = weights
    return torchvision.models.get_model(args.model, weights=weights, **classes(args)), source


def of_timm(args):
    import timm
    import torch

    torch.manual_seed(args.seed)
    model = timm.create_model(args.model[len("timm/"):], pretrained=not args.random, **classes(args))
    return model, {"torch": torch.__version__, "timm": timm.__version__}


def classes(args):
    return {} if args.classes is None else {"num_classes": args.classes}


def of_file(args):
    source = {"checkpoint": os.path.basename(args.model)}
    if begins_as_safetensors(args.model):
        if args.key or args.trust:
            raise SystemExit(f"{args.model} is a safetensors file: --key and --trust are for PyTorch's")
        state, _ = safetensors_file.read(args.model)
    else:
        state, source["torch"] = of_checkpoint(args)
    if not state:
        raise SystemExit(f"{args.model} has no tensors")
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in state):
            state = {name[len(prefix):]: t for name, t in state.items()}
    return state, source


def begins_as_safetensors(path):
    """By its name, or since its header is behind the eight bytes of its length."""
    with open(path, "rb") as file:
        return path.endswith(".safetensors") or file.read(9)[8:] == b"{"


def of_checkpoint(args):
    import torch

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
    state = {k: v for k, v in content.items() if isinstance(k, str) and isinstance(v, torch.Tensor)}
    if not state:
        raise SystemExit(f"{args.model} has no tensors; it has {', '.join(map(str, content)) or 'nothing'}; --key says where they are")
    # Files older than PyTorch 0.4.1 do not count batch norm's batches; PyTorch starts at 0 then.
    for name in [n for n in state if n.endswith("running_var")]:
        state.setdefault(name[:-len("running_var")] + "num_batches_tracked", torch.tensor(0))
    return state, torch.__version__


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", help="a name in torchvision, timm/NAME, or a checkpoint file: PyTorch's, or safetensors")
    p.add_argument("-o", "--output", help="default: the model's name with .safetensors")
    p.add_argument("--random", action="store_true", help="random weights instead of trained ones")
    p.add_argument("--seed", type=int, default=0, help="of random weights (and of a new head)")
    p.add_argument("--classes", type=int, help="another number of classes")
    p.add_argument("--weights", help="which of torchvision's weights; default: DEFAULT, its best")
    p.add_argument("--key", help="where in a checkpoint the weights are; default: the first of " + ", ".join(KEYS))
    p.add_argument("--trust", action="store_true", help="load a checkpoint that is more than tensors; it may run any program")
    p.add_argument("--dtype", choices=["f64", "f32", "f16", "bf16"], help="convert floating-point weights")
    p.add_argument("--from", dest="origin", choices=["mmgeneration"], help="whose networks a checkpoint has: a DCGAN gets Gradus' "
                   "names, and BGR becomes RGB in DCGAN, LSGAN, WGAN-GP, PGGAN and StyleGAN")
    p.add_argument("--part", choices=mmgeneration.PARTS, help="with --from: this network alone; default: gen.* and disc.*")
    p.add_argument("--channels", choices=["bgr", "rgb"], help="with --from: the color channels of the images it was trained on "
                   "[bgr]; rgb keeps their order")
    args = p.parse_args()
    try:
        export(p, args)
    except (OSError, ValueError) as e:
        raise SystemExit(f"{e}")
    except ImportError as e:
        raise SystemExit(f"{args.model}: {e}; it needs PyTorch")
    except MemoryError:
        raise SystemExit(f"{args.model} does not fit into memory")


def export(p, args):
    metadata = {"format": "pt", "model": args.model}
    if os.path.isfile(args.model):
        if args.random or args.classes is not None or args.weights:
            p.error("--random, --classes and --weights are for models, not for checkpoint files")
        state, source = of_file(args)
    else:
        if args.key or args.trust or args.origin:
            raise SystemExit(f"there is no file {args.model}")
        try:
            model, source = (of_timm if args.model.startswith("timm/") else of_torchvision)(args)
        except (ImportError, KeyError, RuntimeError, ValueError) as e:
            raise SystemExit(f"{args.model} is no file, and as a model: {e}")
        state = model.state_dict()
        if args.random:
            source["random"] = f"seed {args.seed}"
    if args.origin:
        try:
            state, lines = mmgeneration.convert(state, args.part, args.channels or "bgr")
        except ValueError as e:
            raise SystemExit(f"{args.model}: {e}")
        source["networks"] = "; ".join(lines)
        print("\n".join(lines), file=sys.stderr)
    elif args.part or args.channels:
        raise SystemExit("--part and --channels are for --from mmgeneration")
    if args.dtype:
        state = {k: converted(v, args.dtype) for k, v in state.items()}
    output = args.output or os.path.splitext(os.path.basename(args.model))[0] + ".safetensors"
    state = {name: as_array(name, t) for name, t in state.items()}
    if os.path.exists(output) and os.path.exists(args.model) and os.path.samefile(output, args.model):
        raise SystemExit(f"{output} is the checkpoint itself; -o names another file")
    size = write_safetensors(output, state, {**metadata, **source})
    elements = sum(math.prod(t.shape) for t in state.values())
    print(f"{output}: {len(state)} tensors, {elements:,} elements, {size:,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
