// The machine's peak: multiply-adds per second in registers, and bytes per second from and to memory.
#pragma once

namespace gradus::bench {

// f32 operations per second, multiply and add counted as two.
double peak_flops(int threads);

// Bytes per second, read plus written, of a loop that passes through memory once with about this proportion
// of reads and writes: the better of plain and of non-temporal stores. Measured once for each proportion.
double peak_bandwidth(int threads, double reads, double writes);

}  // namespace gradus::bench
