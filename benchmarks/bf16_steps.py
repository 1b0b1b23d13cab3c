#!/usr/bin/env python3
"""Compares training steps in bf16 and in f32, with kernels limited to each instruction set level: `tools/bf16-steps.sh`.

Prints a table for docs/internals/performance.md. Each ratio is the time in bf16 divided by the time in f32, the median over the
rounds, with minimum and maximum. A round runs profile_step in both; the order alternates. A level that the processor
does not support means the highest supported level.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys

MODELS = ('mnist_cnn', 'resnet18', 'gpt')
LEVELS = ('sse41', 'avx2', 'avx512', 'avx512_bf16', 'amx')


def step_time(args, model, level, flags):
    command = [args.profile_step, '--model', model, '--unprofiled', '--warmup', '1', '--steps', str(args.steps),
               *flags]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ, GRADUS_CPU=level))
    if run.returncode:
        sys.exit(f'bf16_steps: profile_step has failed: {model}, {level}')
    return float(re.search(r'steps of ([\d.]+) ms', run.stdout)[1])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--models', nargs='+', default=MODELS)
    p.add_argument('--levels', nargs='+', default=LEVELS)
    p.add_argument('--rounds', type=int, default=5)
    p.add_argument('--steps', type=int, default=5, help='that each run times')
    p.add_argument('--profile-step', default='bazel-bin/benchmarks/profile_step')
    args = p.parse_args()
    if args.rounds < 1 or args.steps < 1:
        p.error('needs at least 1 round and 1 step')
    print('| model | processor | f32 ms | bf16 ms | bf16 / f32 |\n| --- | --- | --- | --- | --- |')
    for model in args.models:
        for level in args.levels:
            f32, bf16 = [], []
            for i in range(args.rounds):
                for times, flags in [(f32, []), (bf16, ['--bf16'])][::1 if i % 2 else -1]:
                    times.append(step_time(args, model, level, flags))
            ratios = sorted(b / f for f, b in zip(f32, bf16))
            print(f'| {model} | {level} | {statistics.median(f32):.1f} | {statistics.median(bf16):.1f} '
                  f'| {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |', flush=True)


if __name__ == '__main__':
    main()
