// What the machine can do: multiply-adds per second in registers, and bytes per second from and to memory.
#pragma once

namespace gradus::bench {

struct MachinePeak {
  double flops = 0;             // f32, multiply and add counted as two
  double bytes_per_second = 0;  // of a copy: read plus written
};

MachinePeak measure_machine_peak(int threads);

}  // namespace gradus::bench
