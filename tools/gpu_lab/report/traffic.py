#!/usr/bin/env python3
"""What a GPU counts of the report's cases: sectors, passes over shared memory, bytes of DRAM, times.

    traffic.py CASES_ON_GPU [NCU]
    traffic.py --compare RECORD COUNTS

The first runs the program under Nsight Compute, and prints a line for each case, with tabs between. Sectors have 32
bytes. Requests and passes are those of shared memory, loads and stores together. `kernel_report --counts` prints the
same of the emulated device, as far as that has it. The second prints where such counts and such a record differ by more
than 2 percent.
"""
import csv
import subprocess
import sys

GLOBAL = 'l1tex__t_sectors_pipe_lsu_mem_global_op_'
LOCAL = 'l1tex__t_sectors_pipe_lsu_mem_local_op_'
PASSES = 'l1tex__data_pipe_lsu_wavefronts_mem_shared_op_'
REQUESTS = 'smsp__inst_executed_op_shared_'
COLUMNS = {
    'sectors read': [GLOBAL + 'ld.sum'],
    'sectors written': [GLOBAL + 'st.sum'],
    'requests': [REQUESTS + 'ld.sum', REQUESTS + 'st.sum'],
    'passes': [PASSES + 'ld.sum', PASSES + 'st.sum'],
    'local sectors': [LOCAL + 'ld.sum', LOCAL + 'st.sum'],
    'DRAM bytes': ['dram__bytes_read.sum', 'dram__bytes_write.sum'],
    'ns': ['gpu__time_duration.sum'],
}
COMPARED = ['sectors read', 'sectors written', 'requests', 'passes']


def read(path):
    with open(path) as file:
        head, *rows = [line.rstrip('\n').split('\t') for line in file if not line.startswith('#')]
    return {row[0]: dict(zip(head[1:], map(int, row[1:]))) for row in rows}


def compare(record, counts):
    recorded, counted = read(record), read(counts)
    for case in sorted(recorded.keys() ^ counted.keys()):
        print(f'{case}: only', 'recorded' if case in recorded else 'on the emulated device')
    for column in COMPARED:
        pairs = [(case, recorded[case][column], counted[case][column])
                 for case in sorted(recorded.keys() & counted.keys())]
        pairs = [p for p in pairs if p[1] or p[2]]
        differ = [p for p in pairs if abs(p[1] - p[2]) > 0.02 * max(p[1:])]
        for case, there, here in differ:
            print(f'{case}: {column}: {here} on the emulated device, {there} on the GPU')
        print(f'{column}: {len(pairs) - len(differ)} of {len(pairs)} cases agree')


def main():
    if sys.argv[1] == '--compare':
        return compare(*sys.argv[2:])
    program, ncu = sys.argv[1], (sys.argv[2:] or ['ncu'])[0]
    metrics = [m for names in COLUMNS.values() for m in names]
    run = subprocess.run([ncu, '--csv', '--page', 'raw', '--print-units', 'base', '--clock-control', 'none',
                          '--metrics', ','.join(metrics), program], capture_output=True, text=True)
    names = [line.split('\t', 1)[1] for line in run.stdout.splitlines() if line.startswith('case\t')]
    table = [line for line in run.stdout.splitlines() if line.startswith('"')]
    if not names or len(table) < 3:
        sys.exit(f'traffic: {ncu} failed:\n{run.stdout[-3000:]}{run.stderr[-3000:]}')
    rows = csv.DictReader(table)
    next(rows)  # the units: bytes and nanoseconds
    counts, case = [], -1
    for row in rows:
        if 'case_begins' in row['Kernel Name']:
            case += 1
            counts.append(dict.fromkeys([*COLUMNS, 'kernels'], 0))
            continue
        if case < 0:
            continue
        counts[case]['kernels'] += 1
        for column, parts in COLUMNS.items():
            for m in parts:
                counts[case][column] += float(row[m].replace(',', ''))
    if len(counts) != len(names):
        sys.exit(f'traffic: {len(names)} cases, but {len(counts)} marks')
    print('case', *counts[0], sep='\t')
    for name, count in zip(names, counts):
        print(name, *(f'{v:.0f}' for v in count.values()), sep='\t')


if __name__ == '__main__':
    main()
