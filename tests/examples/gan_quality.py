#!/usr/bin/env python3
"""Trains GANs with `./run gan`, measures them with `./run gan evaluate`, and says whether they are as good as they should be.

    tools/gan-quality.sh --data DIR                            MNIST: DCGAN against PyTorch's, then every other model
    tools/gan-quality.sh --data DIR matched                    DCGAN against PyTorch's alone: --python names its interpreter
    tools/gan-quality.sh --data DIR --seeds 1 wgan_gp pggan    these, with one seed

What is trained stays in --out, with the figures beside it: the same command goes on where it was. The checks are in
CHECKS below. Status 1 if one fails.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What is trained: options of ./run gan. Each has at most 15 minutes on two cores.
RUNS = {
    'dcgan': ['--model', 'dcgan', '--width', '32', '--batch', '128', '--images', '600k'],
    'bf16': ['--model', 'dcgan', '--width', '32', '--batch', '128', '--images', '600k', '--amp', 'bf16'],
    'ranks': ['--model', 'dcgan', '--width', '32', '--batch', '128', '--images', '600k', '--nproc', '2'],
    'conditional': ['--model', 'dcgan', '--width', '32', '--batch', '128', '--images', '600k', '--conditional'],
    'wgan_gp': ['--model', 'wgan_gp', '--width', '16', '--batch', '64', '--images', '1M', '--lr', '4e-4'],
    'pggan': ['--model', 'pggan', '--width', '16', '--batch', '32', '--images', '220k', '--images-per-scale',
              '4:20k,8:20k,16:40k,32:140k', '--fade', '10k'],
}
ALONE = {'wgan_gp', 'pggan'}


class Quality:
    def __init__(self, args):
        self.args = args
        self.out = pathlib.Path(args.out)
        self.out.mkdir(parents=True, exist_ok=True)

    def _run(self, command, log):
        print('gan_quality:', ' '.join(map(str, command)), flush=True)
        with open(log, 'a') as f:
            status = subprocess.run(list(map(str, command)), stdout=f, stderr=subprocess.STDOUT).returncode
        if status:
            sys.exit(f'gan_quality: status {status}: {log}')

    def _gan(self, name, *command):
        self._run([self.args.gan, *command], self.out / f'{name}.log')

    def _evaluated(self, name, *which):
        """Figures of the averaged weights and of the last ones."""
        results = []
        for kind, flag in (('averaged', which[0]), ('last', which[1])):
            file = self.out / f'{name}.{kind}.json'
            if not file.exists():
                self._gan(name, 'evaluate', '--data', self.args.data, '--number', 10000, '--summary', file, *flag)
            numbers = json.loads(file.read_text())['metrics']
            results.append({name: number['value'] for name, number in numbers.items()} | {
                'floor': numbers['frechet']['floor']})
        return results

    def trained(self, kind, seed, options=(), suffix=''):
        """Trains unless it has been, and returns the summary with the figures."""
        name = f'{kind}{suffix}-{seed}'
        summary, checkpoints = self.out / f'{name}.json', self.out / name
        if not summary.exists():
            threads = max(1, self.args.threads // 2) if kind == 'ranks' else self.args.threads
            self._gan(name, '--data', self.args.data, '--size', 32, *(options or RUNS[kind]), '--seed', seed, '--threads',
                      threads, '--checkpoint-dir', checkpoints, '--log-interval', 500, '--summary', summary)
        checkpoint = checkpoints / 'gan.ckpt'
        return json.loads(summary.read_text()), self._evaluated(name, ['--checkpoint', checkpoint],
                                                                ['--checkpoint', checkpoint, '--plain'])

    def untrained(self, kind):
        """The same network after a step of no length."""
        options = ['--images', 64, '--lr', '1e-30']
        if kind == 'pggan':
            options += ['--images-per-scale', '32:64']
        return self.trained(kind, 1, RUNS[kind][:6] + options, '-untrained')

    def pytorch(self, seed):
        name = f'pytorch-{seed}'
        summary, samples = self.out / f'{name}.json', self.out / f'{name}.safetensors'
        if not summary.exists():
            self._run([self.args.python, ROOT / 'tools/gan_pytorch.py', '--data', self.args.data, '--width', 32, '--images',
                       '600k', '--seed', seed, '--threads', self.args.threads, '--out', samples, '--summary',
                       summary], self.out / f'{name}.log')
        return json.loads(summary.read_text()), self._evaluated(
            name, ['--samples', samples.with_suffix('.ema.safetensors')], ['--samples', samples])


def mean(values):
    return sum(values) / len(values)


def squared_error_of_mean(values):
    m = mean(values)
    return sum((v - m) ** 2 for v in values) / max(len(values) - 1, 1) / len(values)


class Report:
    def __init__(self):
        self.failed = 0

    def row(self, name, summary, figures):
        for kind, f in zip(('averaged', 'last'), figures):
            agreement = f'  agreement {100 * f["agreement"]:.1f} %' if 'agreement' in f else ''
            print(f'{name:16} {kind:9} FID {f["frechet"]:8.2f}  floor {f["floor"]:.2f}  score {f["score"]:.2f}  '
                  f'confident {100 * f["confident"]:.1f} %  classes {f["classes"]}  '
                  f'total variation {f["total_variation"]:.3f}{agreement}  {summary["seconds"]:.0f} s')

    def check(self, ok, text):
        self.failed += not ok
        print(f'{"holds " if ok else "FAILS "} {text}')


def matched(quality, report, seeds):
    """DCGAN against the same in PyTorch."""
    ours = [quality.trained('dcgan', s) for s in seeds]
    theirs = [quality.pytorch(s) for s in seeds]
    for who, runs in (('dcgan', ours), ('PyTorch dcgan', theirs)):
        for seed, run in zip(seeds, runs):
            report.row(f'{who} {seed}', *run)
    for k, kind in enumerate(('averaged', 'last')):
        a = [figures[k]['frechet'] for _, figures in ours]
        b = [figures[k]['frechet'] for _, figures in theirs]
        room = max(0.1 * mean(b), 2 * math.sqrt(squared_error_of_mean(a) + squared_error_of_mean(b)))
        report.check(mean(a) <= mean(b) + room,
                     f'{kind}: mean FID-MNIST {mean(a):.2f}, PyTorch {mean(b):.2f}, at most {mean(b) + room:.2f}')
        for key, more, sign in (('confident', 0.03, -1), ('total_variation', 0.03, 1)):
            x, y = (mean([figures[k][key] for _, figures in runs]) for runs in (ours, theirs))
            report.check(sign * (x - y) <= more, f'{kind}: mean {key} {x:.4f}, PyTorch {y:.4f}, at most {more} worse')
        report.check(all(figures[k]['classes'] == 10 for _, figures in ours), f'{kind}: 10 of 10 classes in every run')
    return ours


def alone(quality, report, kind, seeds):
    runs = [quality.trained(kind, s) for s in seeds]
    before = quality.untrained(kind)
    report.row(f'{kind} untrained', *before)
    for seed, run in zip(seeds, runs):
        report.row(f'{kind} {seed}', *run)
    for seed, (summary, figures) in zip(seeds, runs):
        report.check(figures[0]['classes'] == 10, f'{kind}, seed {seed}: 10 of 10 classes')
        share = figures[0]['frechet'] / before[1][1]['frechet']
        report.check(share <= CHECKS[kind], f'{kind}, seed {seed}: FID-MNIST {share:.3f} of the untrained network\'s, '
                                            f'at most {CHECKS[kind]}')
        report.check(summary['seconds'] <= 900, f'{kind}, seed {seed}: {summary["seconds"]:.0f} s of 900')


# A trained network's FID-MNIST, divided by the untrained network's.
CHECKS = {'wgan_gp': 0.2, 'pggan': 0.2}


def within_spread(quality, report, kind, seeds):
    """FID-MNIST as in f32 on one process: the means differ by at most 10 % or two standard errors of the difference."""
    base = [quality.trained('dcgan', s)[1] for s in seeds]
    runs = [quality.trained(kind, s) for s in seeds]
    for seed, run in zip(seeds, runs):
        report.row(f'{kind} {seed}', *run)
    for k, name in enumerate(('averaged', 'last')):
        a, b = ([figures[k]['frechet'] for figures in all_figures] for all_figures in (base, [run[1] for run in runs]))
        room = max(0.1 * mean(a), 2 * math.sqrt(squared_error_of_mean(a) + squared_error_of_mean(b)))
        report.check(abs(mean(b) - mean(a)) <= room,
                     f'{kind}, {name}: mean FID-MNIST {mean(b):.2f}, f32 on one process {mean(a):.2f} +- {room:.2f}')


def costs(quality, report, rounds=3):
    """What grids and metrics take of a run of 600,000 images, at their intervals of a tenth."""
    images, out = 32_000, quality.out / 'costs'
    kinds = {'bare': ['--sample-every', '100M'], 'grids': [],
             'metrics': ['--sample-every', '100M', '--metrics', 'frechet,scores']}
    seconds = {kind: [] for kind in kinds}
    out.mkdir(exist_ok=True)
    for _ in range(rounds):
        for kind, options in kinds.items():
            summary = out / 's.json'
            quality._gan('costs', '--data', quality.args.data, '--size', 32, *RUNS['dcgan'][:6], '--images', images,
                         '--threads', quality.args.threads, '--samples', out / 'samples', '--summary', summary, *options)
            seconds[kind].append(json.loads(summary.read_text())['seconds'])
    bare = statistics.median(seconds['bare'])
    for kind in ('grids', 'metrics'):
        share = (statistics.median(seconds[kind]) - bare) / (bare * 600_000 / images)
        report.check(share <= 0.02, f'costs: ten times {kind} take {100 * share:.1f} % of a run of 600,000 images, '
                                    f'at most 2 %')


def conditional(quality, report):
    run = quality.trained('conditional', 1)
    report.row('conditional 1', *run)
    report.check(run[1][0]['agreement'] >= 0.9,
                 f'conditional: label and classifier agree on {100 * run[1][0]["agreement"]:.1f} %, at least 90 %')


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('what', nargs='*', help='of: matched, bf16, ranks, conditional, costs, pggan, wgan_gp')
    parser.add_argument('--data', required=True, help='folder with MNIST')
    parser.add_argument('--gan', required=True, help='the gan program')
    parser.add_argument('--out', required=True, help='folder of what is trained')
    parser.add_argument('--python', help='interpreter with PyTorch')
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--seeds', default='1,2,3')
    args = parser.parse_args()
    everything = ['matched', 'bf16', 'ranks', 'conditional', 'costs', *ALONE]
    for name in args.what:
        if name not in everything:
            parser.error(f'expected some of {", ".join(everything)}, given {name}')
    what = args.what or everything
    if 'matched' in what and not args.python:
        parser.error('matched: --python names an interpreter with PyTorch')
    quality, report = Quality(args), Report()
    seeds = [int(s) for s in args.seeds.split(',')]
    if 'matched' in what:
        matched(quality, report, seeds)
    for kind in ('bf16', 'ranks'):
        if kind in what:
            within_spread(quality, report, kind, seeds)
    if 'conditional' in what:
        conditional(quality, report)
    if 'costs' in what:
        costs(quality, report)
    for kind in sorted(ALONE):
        if kind in what:
            alone(quality, report, kind, seeds)
    print(f'{report.failed} checks fail')
    sys.exit(report.failed > 0)


if __name__ == '__main__':
    main()
