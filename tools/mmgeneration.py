"""Makes Gradus' weights of mmgeneration's: DCGAN, LSGAN, WGAN-GP, PGGAN and StyleGAN.

The networks of the last four have the same names in Gradus; DCGAN's have those of PyTorch's example. StyleGAN's blurs
are constants in Gradus. mmgeneration reads images as BGR. Gradus' are RGB, so the order of color channels is reversed in
the layers that make images and in those that take them.

Tensors are anything with `shape` and `flip(dim)`. What is wrong is a ValueError.
"""
import re

PARTS = ("generator", "generator_ema", "discriminator")  # of a training
MOST_STAGES = 16  # 4 * 2^16 pixels
MOST_SHOWN = 200  # lines of an error
NORM = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def convert(state, part, order):
    """Returns the tensors under Gradus' names, and a line about each network.

    `state` has the tensors of one network, or of a whole training: then those of the generator become "gen.", those of
    the discriminator "disc.". A `part` is one network of a training, under its names alone. `order` is that of the color
    channels of the images it was trained on: "bgr" or "rgb"."""
    parts = {name: below(state, name + ".") for name in PARTS}
    if part:
        if not parts[part]:
            raise ValueError(f"has no names below '{part}.'; it has {shown(state)}")
        renamed, about = network(parts[part], "", order)
        return renamed, [about]
    if not any(parts.values()):
        renamed, about = network(state, "", order)
        return renamed, [about]
    whole, lines, wrong = {}, [], []
    for name, ours in (("generator", "gen"), ("discriminator", "disc")):
        if parts[name]:
            try:
                renamed, about = network(parts[name], name + ".", order)
            except ValueError as e:
                wrong.append(str(e))
                continue
            whole.update({f"{ours}.{key}": t for key, t in renamed.items()})
            lines.append(f"{ours}: {about}")
    if wrong:
        raise ValueError("\n".join(wrong))
    if not whole:
        raise ValueError("has a generator_ema alone: --part generator_ema")
    return whole, lines


def printable(name):
    return name if name.isprintable() else repr(name)


def listed(wrong):
    return "\n  ".join(wrong[:MOST_SHOWN] + ([f"and {len(wrong) - MOST_SHOWN} more"] if len(wrong) > MOST_SHOWN else []))


def below(state, prefix):
    return {name[len(prefix):]: t for name, t in state.items() if name.startswith(prefix)}


def shown(names):
    names = sorted(names)
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "") or "nothing"


def network(state, prefix, order):
    for begins, convert_one in (("convs.0.conv1.input", stylegan_generator), ("from_rgb.0.", stylegan_discriminator),
                                ("noise2feat.conv.", dcgan_generator), ("upsampling.", dcgan_generator),
                                ("downsamples.", dcgan_discriminator), ("noise2feat_head.", lsgan_generator),
                                ("decision.0.", lsgan_discriminator), ("to_rgb.", wgan_gp_generator),
                                ("from_rgb.", wgan_gp_discriminator), ("torgb_layers.", pggan_generator),
                                ("fromrgb_layers.", pggan_discriminator)):
        if any(name.startswith(begins) for name in state):
            return convert_one(state, prefix, order)
    raise ValueError(f"{prefix or 'it'} is no DCGAN, LSGAN, WGAN-GP, PGGAN or StyleGAN of mmgeneration: it has {shown(state)}")


def stages(state, name):
    """How many layers the list `name` has: the largest index and one. Indices that no network has are unexpected names."""
    found = [re.match(re.escape(name) + r"\.(\d{1,2})\.", key) for key in state]
    return max((int(m[1]) + 1 for m in found if m and int(m[1]) < MOST_STAGES), default=0)


def rename(network, state, prefix, layers):
    """`layers` has the old name, the new one and the shape of each tensor. Lists all that does not fit."""
    wrong = [f"missing: {prefix}{old}" for old, _, _ in layers if old not in state]
    known = {old for old, _, _ in layers}
    wrong += [f"unexpected: {prefix}{printable(name)}" for name in sorted(state) if name not in known]
    wrong += [f"{prefix}{old}: expected {list(shape)}, got {list(state[old].shape)}" for old, _, shape in layers
              if old in state and tuple(state[old].shape) != tuple(shape)]
    if wrong:
        raise ValueError(f"{prefix or 'it'} is no {network} of mmgeneration:\n  " + listed(wrong))
    return {new: state[old] for old, new, _ in layers}


def norm(old, new, channels):
    return [(f"{old}.{x}", f"{new}.{x}", () if x == "num_batches_tracked" else (channels,)) for x in NORM]


def size_of(state, name, dim, otherwise=1):
    """A size of a tensor, as far as it has one: what is missing or misshapen is listed later."""
    shape = state[name].shape if name in state else ()
    return int(shape[dim]) if len(shape) == 4 and shape[dim] > 0 else otherwise


def dcgan_generator(state, prefix, order):
    n = stages(state, "upsampling")
    latent, width = (size_of(state, "noise2feat.conv.weight", dim) for dim in (0, 1))
    channels = size_of(state, "output_layer.conv.weight", 1, 3)
    layers = [("noise2feat.conv.weight", "main.0.weight", (latent, width, 4, 4)), *norm("noise2feat.bn", "main.1", width)]
    for i in range(n):
        layers += [(f"upsampling.{i}.conv.weight", f"main.{3 * i + 3}.weight", (width, width // 2, 4, 4)),
                   *norm(f"upsampling.{i}.bn", f"main.{3 * i + 4}", width // 2)]
        width //= 2
    last = f"main.{3 * n + 3}"
    layers += [("output_layer.conv.weight", last + ".weight", (width, channels, 4, 4)),
               ("output_layer.conv.bias", last + ".bias", (channels,))]
    renamed = rename("DCGANGenerator", state, prefix, layers)
    about = f"DCGANGenerator, size {8 << n}, channels {channels}, width {width}, latent {latent}"
    return reverse(renamed, [(last + ".weight", 1), (last + ".bias", 0)], prefix, order), about


def dcgan_discriminator(state, prefix, order):
    n = max(stages(state, "downsamples"), 1)
    channels, width = size_of(state, "downsamples.0.conv.weight", 1, 3), size_of(state, "downsamples.0.conv.weight", 0)
    outputs = size_of(state, "output_layer.conv.weight", 0)
    layers = [("downsamples.0.conv.weight", "main.0.weight", (width, channels, 4, 4)),
              ("downsamples.0.conv.bias", "main.0.bias", (width,))]
    for i in range(1, n):
        wide = width << i
        layers += [(f"downsamples.{i}.conv.weight", f"main.{3 * i - 1}.weight", (wide, wide // 2, 4, 4)),
                   *norm(f"downsamples.{i}.bn", f"main.{3 * i}", wide)]
    last = f"main.{3 * n - 1}"
    layers += [("output_layer.conv.weight", last + ".weight", (outputs, width << (n - 1), 4, 4)),
               ("output_layer.conv.bias", last + ".bias", (outputs,))]
    renamed = rename("DCGANDiscriminator", state, prefix, layers)
    about = f"DCGANDiscriminator, size {4 << n}, channels {channels}, width {width}, outputs {outputs}"
    return reverse(renamed, [("main.0.weight", 1)], prefix, order), about


def lsgan_generator(state, prefix, order):
    last = f"conv_blocks.{max(stages(state, 'conv_blocks'), 1) - 1}.conv"
    return reverse(dict(state), [(last + ".weight", 1), (last + ".bias", 0)], prefix, order), "LSGANGenerator"


def lsgan_discriminator(state, prefix, order):
    return reverse(dict(state), [("conv_blocks.0.conv.weight", 1)], prefix, order), "LSGANDiscriminator"


def wgan_gp_generator(state, prefix, order):
    return reverse(dict(state), [("to_rgb.conv.weight", 0), ("to_rgb.conv.bias", 0)], prefix, order), "WGANGPGenerator"


def wgan_gp_discriminator(state, prefix, order):
    return reverse(dict(state), [("from_rgb.conv.weight", 1)], prefix, order), "WGANGPDiscriminator"


def pggan_generator(state, prefix, order):
    layers = [f"torgb_layers.{i}.conv." for i in range(max(stages(state, "torgb_layers"), 1))]
    dims = [(layer + name, 0) for layer in layers for name in ("weight_orig", "bias")]
    return reverse(dict(state), dims, prefix, order), "PGGANGenerator"


def pggan_discriminator(state, prefix, order):
    layers = range(max(stages(state, "fromrgb_layers"), 1))
    return reverse(dict(state), [(f"fromrgb_layers.{i}.conv.weight_orig", 1) for i in layers], prefix, order), "PGGANDiscriminator"


def without_blurs(state):
    """Blurs are no part of the state in Gradus."""
    return {name: t for name, t in state.items() if not re.fullmatch(r"convs\.\d{1,2}\.(conv1\.)?1\.kernel", name)}


def stylegan_generator(state, prefix, order):
    layers = [f"to_rgbs.{i}.conv." for i in range(max(stages(state, "to_rgbs"), 1))]
    dims = [(layer + name, 0) for layer in layers for name in ("weight_orig", "bias")]
    return reverse(without_blurs(state), dims, prefix, order), "StyleGANGenerator"


def stylegan_discriminator(state, prefix, order):
    layers = range(max(stages(state, "from_rgb"), 1))
    dims = [(f"from_rgb.{i}.conv.weight_orig", 1) for i in layers]
    return reverse(without_blurs(state), dims, prefix, order), "StyleGANDiscriminator"


def reverse(state, dims, prefix, order):
    """Reverses the color channels, which are a dimension of each of these tensors. Gray images have none."""
    wrong, channels = [], set()
    for name, dim in dims:
        if name not in state:
            wrong.append(f"missing: {prefix}{name}")
        elif len(state[name].shape) != (1 if name.endswith("bias") else 4):
            wrong.append(f"{prefix}{name}: expected a {'bias' if name.endswith('bias') else 'convolution'}, "
                         f"given {list(state[name].shape)}")
        else:
            channels.add(int(state[name].shape[dim]))
    if len(channels) > 1:
        wrong.append(f"{prefix}*: expected images of one number of channels, got {', '.join(map(str, sorted(channels)))}")
    elif order == "bgr" and not channels <= {1, 3}:
        wrong.append(f"{prefix}*: images of {channels.pop()} channels are neither gray nor BGR; --channels rgb keeps their order")
    if wrong:
        raise ValueError("the layers of images do not fit:\n  " + listed(wrong))
    if order == "bgr" and channels == {3}:
        for name, dim in dims:
            state[name] = state[name].flip(dim)
    return state
