#!/usr/bin/env python3
"""Compares training steps, and features of Inception v3, with PyTorch's: `tools/pytorch-steps.sh [--model resnet18] [--rounds N] ...`.

Both sides train the same network on one fixed batch, in alternating order. In a GAN step, the same generated images
are used for the discriminator's and the generator's loss. PyTorch runs channels-last, eager and compiled, each in a
process that is idle while others are measured. Gradus' side is profile_step. The printed ratio is PyTorch's time
divided by Gradus', the median over the rounds, with the 10th and 90th percentile, or minimum and maximum for fewer
than 10 rounds. --cpu limits both sides to AVX2. On a GPU, both sides compute f32 without TF32, or with --tf32
products and convolutions in TF32; --pytorch-defaults leaves PyTorch its own settings: TF32 in convolutions alone.
profile_step must be built with --config=cuda. --capture replays Gradus' step by CapturedStep, and lets PyTorch's
compiled side use CUDA graphs.
"""
import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

GANS = {'dcgan64': {'size': 64, 'channels': 3, 'width': 64, 'batch': 64},
        'dcgan32': {'size': 32, 'channels': 1, 'width': 32, 'batch': 128}}
CLASSIFIERS = {'mnist_cnn': (64, 1, 28, 10), 'resnet20': (128, 3, 32, 10), 'resnet18': (16, 3, 224, 1000),
               'resnet50': (8, 3, 224, 1000)}  # batch, channels, size, classes
WARM_UP = 3  # warm-up steps of both sides
# Limits PyTorch's kernels, oneDNN, MKL and Gradus to AVX2.
AVX2 = {'ATEN_CPU_CAPABILITY': 'avx2', 'ONEDNN_MAX_CPU_ISA': 'AVX2', 'MKL_ENABLE_INSTRUCTIONS': 'AVX2',
        'GRADUS_CPU': 'avx2'}


def mnist_cnn():
    from torch import nn
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Dropout(0.25), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5),
                         nn.Linear(128, 10))


def resnet20():
    """He et al. 2015, section 4.2: three groups of three blocks; shortcuts pad the new channels with zeros."""
    import torch
    from torch import nn
    F = nn.functional

    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn1, self.bn2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
            self.stride, self.more = stride, outputs - inputs

        def forward(self, x):
            y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
            if self.more:
                x = F.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, self.more // 2, self.more // 2))
            return F.relu(y + x)

    widths = [16] * 4 + [32] * 3 + [64] * 3
    blocks = [Block(a, b, 1 if a == b else 2) for a, b in zip(widths, widths[1:])]
    return nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), *blocks,
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def classifier(args, run):
    """Returns what one step does, where run() prepares a network for running."""
    import torch
    model = args.model
    batch, channels, size, classes = CLASSIFIERS[model]
    batch = args.batch or batch
    if model in globals():
        net = globals()[model]()
    else:
        import torchvision
        net = getattr(torchvision.models, model)()
    net = net.to(memory_format=torch.channels_last)
    x = torch.randn(batch, channels, size, size).contiguous(memory_format=torch.channels_last)
    y = torch.randint(0, classes, (batch,))
    forward = run(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, fused=True)

    def step(amp):
        opt.zero_grad()
        with amp:
            loss = torch.nn.functional.cross_entropy(forward(x).float(), y)
        loss.backward()
        opt.step()

    return step


def gpt(args, run):
    """The network of profile_step: 6 blocks of 6 heads, width 384, 4 rows of 256 characters out of 65."""
    import torch
    from torch import nn
    F, width, heads, layers, context = nn.functional, 384, 6, 6, 256

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.drop = nn.Dropout(0.1)

        def forward(self, x):
            n, t, _ = x.shape
            q, k, v = (a.view(n, t, heads, width // heads).transpose(1, 2)
                       for a in self.qkv(self.ln_1(x)).chunk(3, -1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1)
            x = x + self.drop(self.proj(y.transpose(1, 2).reshape(n, t, width)))
            return x + self.drop(self.out(F.gelu(self.fc(self.ln_2(x)))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(65, width), nn.Embedding(context, width)
            self.drop = nn.Dropout(0.1)
            self.h = nn.Sequential(*[Block() for _ in range(layers)])
            self.ln_f = nn.LayerNorm(width)

        def forward(self, x):
            y = self.h(self.drop(self.wte(x) + self.wpe(torch.arange(x.shape[1]))))
            return F.linear(self.ln_f(y), self.wte.weight)

    net = GPT()
    x, y = (torch.randint(0, 65, (args.batch or 4, context)) for _ in range(2))
    forward = run(net)
    opt = torch.optim.AdamW(net.parameters(), lr=3e-4, fused=True)

    def step(amp):
        opt.zero_grad()
        with amp:
            logits = forward(x)
        F.cross_entropy(logits.float().flatten(0, 1), y.flatten()).backward()
        opt.step()

    return step


def inception_features(args, run):
    """2048 features of Inception v3 in evaluation; the compiled side folds the batch norms into the convolutions."""
    import torch
    import torch._inductor.config
    import torchvision
    net = torchvision.models.inception_v3(weights=None, aux_logits=False, init_weights=False)
    net.fc = torch.nn.Identity()
    net = net.eval().to(memory_format=torch.channels_last)
    x = (torch.rand(args.batch or 16, 3, 299, 299) * 2 - 1).contiguous(memory_format=torch.channels_last)
    torch._inductor.config.freezing = True
    forward = run(net)

    def step(amp):
        with torch.no_grad(), amp:
            forward(x)

    return step


def gan(args, run):
    import torch
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / 'tools'))
    from gan_pytorch import LATENT, bce, discriminator, generator
    o = GANS[args.model]
    batch = args.batch or o['batch']
    gen = generator(o['size'], o['channels'], o['width']).to(memory_format=torch.channels_last)
    disc = discriminator(o['size'], o['channels'], o['width']).to(memory_format=torch.channels_last)
    run_gen, run_disc = run(gen), run(disc)
    opt_g, opt_d = (torch.optim.Adam(net.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True) for net in (gen, disc))
    real = torch.tanh(torch.randn(batch, o['channels'], o['size'], o['size']))
    real = real.contiguous(memory_format=torch.channels_last)

    def step(amp):
        with amp:
            fake = run_gen(torch.randn(batch, LATENT, 1, 1))
            opt_d.zero_grad()
            loss = bce(run_disc(real), 1) + bce(run_disc(fake.detach()), 0)
        loss.backward()
        opt_d.step()
        disc.requires_grad_(False)  # the generator's step needs no gradients of the discriminator's weights
        opt_g.zero_grad()
        with amp:
            loss = bce(run_disc(fake), 1)
        loss.backward()
        opt_g.step()
        disc.requires_grad_(True)

    return step


def serve(args):
    """Runs as many steps as each line of the input says, and prints their mean time in ms."""
    import torch
    torch.set_num_threads(args.threads)
    torch.set_default_device(args.device)
    if not args.pytorch_defaults:
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = args.tf32
    wait = torch.cuda.synchronize if args.device == 'cuda' else lambda: None
    mode = 'reduce-overhead' if args.capture else 'default'  # with CUDA graphs
    run = (lambda net: torch.compile(net, mode=mode)) if args.compiled else lambda net: net
    of_model = {'gpt': gpt, 'inception_features': inception_features, **dict.fromkeys(GANS, gan)}
    step = of_model.get(args.model, classifier)(args, run)
    amp = torch.autocast(args.device, torch.bfloat16, enabled=args.bf16)
    for _ in range(WARM_UP):
        step(amp)
    print(f'PyTorch {torch.__version__}', flush=True)
    for line in sys.stdin:
        wait()
        start = time.perf_counter()
        for _ in range(int(line)):
            step(amp)
        wait()
        print((time.perf_counter() - start) / int(line) * 1e3, flush=True)


def flags(args):
    return ['--bf16'] * args.bf16 + ['--tf32'] * args.tf32 + ['--capture'] * args.capture


class Peer:
    def __init__(self, args, compiled):
        command = [args.python, __file__, '--serve', '--model', args.model, '--threads', str(args.threads)]
        command += ['--device', args.device, '--batch', str(args.batch)]
        command += ['--compiled'] * compiled + flags(args) + ['--pytorch-defaults'] * args.pytorch_defaults
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.name = self._line().strip() + (', compiled' if compiled else ', eager')

    def _line(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit('pytorch_steps: PyTorch has ended')
        return line

    def time(self, steps):
        print(steps, file=self.process.stdin, flush=True)
        return float(self._line())


def gradus_time(args):
    command = [args.profile_step, '--model', args.model, '--steps', str(args.steps), '--threads', str(args.threads),
               '--warmup', str(WARM_UP), '--device', args.device, '--batch', str(args.batch), '--unprofiled']
    command += flags(args)
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if run.returncode:
        sys.exit('pytorch_steps: profile_step has failed')
    out = run.stdout
    return float(re.search(r'steps of ([\d.]+) ms', out)[1])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--model', choices=[*CLASSIFIERS, 'gpt', 'inception_features', *GANS], default='resnet18')
    p.add_argument('--rounds', type=int, default=11)
    p.add_argument('--steps', type=int, default=5, help='of a round, per side')
    p.add_argument('--threads', type=int, default=os.cpu_count())
    p.add_argument('--cpu', choices=['avx2'], help='the level of processor, for both sides')
    p.add_argument('--batch', type=int, default=0, help="samples (0: the model's own)")
    p.add_argument('--device', choices=['cpu', 'cuda'], default='cpu')
    p.add_argument('--bf16', action='store_true', help='both sides in mixed precision')
    p.add_argument('--tf32', action='store_true', help='on a GPU: both sides round operands in f32 to TF32')
    p.add_argument('--capture', action='store_true', help="replay Gradus' step; CUDA graphs for PyTorch's compiled side")
    p.add_argument('--pytorch-defaults', action='store_true', help='PyTorch computes convolutions in TF32 on a GPU')
    p.add_argument('--eager', action='store_true', help="without PyTorch's compiled side, which compiles for a minute")
    p.add_argument('--python', default=sys.executable, help='with PyTorch')
    p.add_argument('--profile-step', default='bazel-bin/benchmarks/profile_step', help="Gradus' program")
    p.add_argument('--serve', action='store_true', help=argparse.SUPPRESS)
    p.add_argument('--compiled', action='store_true', help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.rounds < 3 or args.steps < 1 or args.threads < 1 or args.batch < 0:
        p.error('needs at least 3 rounds, 1 step and 1 thread, and a batch of 0 or more')
    if args.serve:
        return serve(args)
    if args.cpu:
        os.environ.update(AVX2)
    peers = [Peer(args, compiled) for compiled in ([False] if args.eager else [False, True])]
    own, theirs = [], [[] for _ in peers]
    for _ in range(args.rounds):
        own.append(gradus_time(args))
        for times, peer in zip(theirs, peers):
            times.append(peer.time(args.steps))
    dtype = 'bf16' if args.bf16 else 'tf32' if args.tf32 else 'f32'
    print(f'{args.model}, {dtype}, {args.device}, {args.threads} threads: '
          f'Gradus {statistics.median(own):.3g} ms a step')
    for times, peer in zip(theirs, peers):
        ratios = sorted(t / o for t, o in zip(times, own))
        tenth = len(ratios) // 10
        print(f'{peer.name}: {statistics.median(times):.3g} ms, ratio {statistics.median(ratios):.2f} '
              f'({ratios[tenth]:.2f} to {ratios[-1 - tenth]:.2f})')
    for peer in peers:
        peer.process.kill()


if __name__ == '__main__':
    main()
