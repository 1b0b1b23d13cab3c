#!/usr/bin/env python3
"""Times training steps of DCGAN in turn with PyTorch's: `./run gan_steps [--model dcgan64|dcgan32] [--rounds N]`.

Both sides do the same work: images that are generated once serve the discriminator's step and the generator's. PyTorch
runs channels-last, eager and compiled, each in a process that waits for its turn. Gradus' side is profile_step. The
printed ratio is PyTorch's time divided by Gradus', the median over the rounds, with the 10th and 90th percentile.
"""
import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

MODELS = {'dcgan64': {'size': 64, 'channels': 3, 'width': 64, 'batch': 64},
          'dcgan32': {'size': 32, 'channels': 1, 'width': 32, 'batch': 128}}


def serve(model, compiled, threads):
    """Runs as many steps as each line of the input says, and prints their mean time in ms."""
    import torch
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / 'tools'))
    from gan_pytorch import LATENT, bce, discriminator, generator
    torch.set_num_threads(threads)
    o = MODELS[model]
    gen = generator(o['size'], o['channels'], o['width']).to(memory_format=torch.channels_last)
    disc = discriminator(o['size'], o['channels'], o['width']).to(memory_format=torch.channels_last)
    run_gen, run_disc = (torch.compile(gen), torch.compile(disc)) if compiled else (gen, disc)
    opt_g, opt_d = (torch.optim.Adam(net.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True) for net in (gen, disc))
    real = torch.tanh(torch.randn(o['batch'], o['channels'], o['size'], o['size']))
    real = real.contiguous(memory_format=torch.channels_last)

    def step():
        fake = run_gen(torch.randn(o['batch'], LATENT, 1, 1))
        opt_d.zero_grad()
        (bce(run_disc(real), 1) + bce(run_disc(fake.detach()), 0)).backward()
        opt_d.step()
        disc.requires_grad_(False)  # the generator's step makes no gradients for the discriminator's weights
        opt_g.zero_grad()
        bce(run_disc(fake), 1).backward()
        opt_g.step()
        disc.requires_grad_(True)

    for _ in range(3):
        step()
    print(f'PyTorch {torch.__version__}', flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        for _ in range(int(line)):
            step()
        print((time.perf_counter() - start) / int(line) * 1e3, flush=True)


class Peer:
    def __init__(self, args, compiled):
        command = [args.python, __file__, '--serve', '--model', args.model, '--threads', str(args.threads)]
        self.process = subprocess.Popen(command + ['--compiled'] * compiled, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.name = self._line().strip() + (', compiled' if compiled else ', eager')

    def _line(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit('gan_steps: PyTorch has ended')
        return line

    def time(self, steps):
        print(steps, file=self.process.stdin, flush=True)
        return float(self._line())


def gradus_time(args):
    out = subprocess.run([args.profile_step, '--model', args.model, '--steps', str(args.steps), '--threads',
                          str(args.threads), '--by', 'op'], check=True, capture_output=True, text=True).stdout
    return float(re.search(r'steps of ([\d.]+) ms', out)[1])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--model', choices=MODELS, default='dcgan64')
    p.add_argument('--rounds', type=int, default=11)
    p.add_argument('--steps', type=int, default=5, help='of a round, per side')
    p.add_argument('--threads', type=int, default=os.cpu_count())
    p.add_argument('--python', default=sys.executable, help='with PyTorch')
    p.add_argument('--profile-step', help=argparse.SUPPRESS)
    p.add_argument('--serve', action='store_true', help=argparse.SUPPRESS)
    p.add_argument('--compiled', action='store_true', help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.rounds < 3 or args.steps < 1 or args.threads < 1:
        p.error('needs at least 3 rounds, 1 step and 1 thread')
    if args.serve:
        return serve(args.model, args.compiled, args.threads)
    peers = [Peer(args, compiled) for compiled in (False, True)]
    own, theirs = [], [[] for _ in peers]
    for _ in range(args.rounds):
        own.append(gradus_time(args))
        for times, peer in zip(theirs, peers):
            times.append(peer.time(args.steps))
    print(f'{args.model}, {args.threads} threads: Gradus {statistics.median(own):.1f} ms a step')
    for times, peer in zip(theirs, peers):
        ratios = sorted(t / o for t, o in zip(times, own))
        tenth = len(ratios) // 10
        print(f'{peer.name}: {statistics.median(times):.1f} ms, ratio {statistics.median(ratios):.2f} '
              f'({ratios[tenth]:.2f} to {ratios[-1 - tenth]:.2f})')
    for peer in peers:
        peer.process.kill()


if __name__ == '__main__':
    main()
