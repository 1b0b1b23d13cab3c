#!/usr/bin/env python3
"""Compares scaled_dot_product_attention, forward and backward in f32, with PyTorch's: bazel-bin/benchmarks/attention
--serve computes Gradus' side. Run it with a Python that has PyTorch.

The sides alternate, each in a process that is idle while the other is measured. The printed ratio is PyTorch's time
divided by Gradus', the median over the rounds, with minimum and maximum. --cpu-time compares the CPU time of all
threads, for a busy machine; take 1 thread then, because idle threads of PyTorch spin.
"""
import argparse
import os
import statistics
import subprocess
import time

import torch

CASES = [(48, 256, False), (48, 256, True), (8, 1024, False), (8, 1024, True)]  # heads, tokens, causal


def torch_step(heads, tokens, causal):
    q, k, v = (torch.randn(1, heads, tokens, 64, requires_grad=True) for _ in range(3))
    dy = torch.randn(1, heads, tokens, 64)

    def step():
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        torch.autograd.grad(y, (q, k, v), dy)

    return step


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--threads', type=int, default=os.cpu_count())
    p.add_argument('--rounds', type=int, default=11)
    p.add_argument('--steps', type=int, default=5, help='of a round, per side')
    p.add_argument('--cpu-time', action='store_true')
    p.add_argument('--attention', default='bazel-bin/benchmarks/attention', help="Gradus' program")
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    clock = time.process_time if args.cpu_time else time.perf_counter
    peer = subprocess.Popen([args.attention, '--serve', '--threads', str(args.threads)], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)
    print(f'PyTorch {torch.__version__}, {args.threads} threads, {"CPU" if args.cpu_time else "elapsed"} time')
    for heads, tokens, causal in CASES:
        step = torch_step(heads, tokens, causal)
        step()
        own, theirs = [], []
        for _ in range(args.rounds):
            print(heads, tokens, int(causal), args.steps, file=peer.stdin, flush=True)
            cpu, elapsed = map(float, peer.stdout.readline().split())
            own.append(cpu if args.cpu_time else elapsed)
            start = clock()
            for _ in range(args.steps):
                step()
            theirs.append((clock() - start) / args.steps * 1e3)
        ratios = sorted(b / a for a, b in zip(own, theirs))
        print(f'{heads} heads, {tokens} tokens{", causal" * causal}: Gradus {statistics.median(own):.2f} ms, PyTorch '
              f'{statistics.median(theirs):.2f} ms, ratio {statistics.median(ratios):.2f} '
              f'({ratios[0]:.2f} to {ratios[-1]:.2f})', flush=True)
    peer.stdin.close()
    peer.wait()


if __name__ == '__main__':
    main()
