"""A program that is linked with GPUs starts like one that is not, trains on the CPU, and says why there is no GPU.

    python3 startup_test.py PROGRAM PROGRAM_WITH_GPUS

PROGRAM [STEPS [DEVICE]] (program.cc) prints the last loss if STEPS > 0, and its current resident memory in KiB.
"""
import re
import subprocess
import sys
import time
import unittest

PLAIN, WITH_GPUS = sys.argv[1:3]
RUNS = 25
MILLISECONDS, MIB = 20, 10


def run(program, *arguments):
    begin = time.monotonic()
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, 1000 * (time.monotonic() - begin)


def resident(text):
    return int(re.search(r"^resident (\d+)$", text, re.M)[1]) / 1024


class Startup(unittest.TestCase):
    def test_takes_little_more_time_and_memory(self):
        times, memory = {PLAIN: [], WITH_GPUS: []}, {PLAIN: [], WITH_GPUS: []}
        for _ in range(RUNS):  # in turn, since others use the machine too
            for program in times:
                status, text, milliseconds = run(program)
                self.assertEqual(status, 0)
                times[program].append(milliseconds)
                memory[program].append(resident(text))
        for program in times:
            print("%s: %.1f ms, %.1f MiB resident" % (program, min(times[program]), min(memory[program])))
        self.assertLess(min(times[WITH_GPUS]) - min(times[PLAIN]), MILLISECONDS)
        self.assertLess(min(memory[WITH_GPUS]) - min(memory[PLAIN]), MIB)

    def test_trains_on_the_cpu(self):
        losses = [re.search(r"^loss (\S+)$", run(program, "3")[1], re.M)[1] for program in (PLAIN, WITH_GPUS)]
        self.assertEqual(losses[0], losses[1])

    def test_says_why_there_is_no_gpu(self):
        status, text, _ = run(WITH_GPUS, "1", "cuda:0")
        if status == 0:
            self.skipTest("there is a GPU")
        self.assertEqual(status, 3)
        self.assertRegex(text, r"there is no CUDA device: (no NVIDIA driver is installed|the NVIDIA driver )")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
