// Measures the machine's peak floating-point rate (FMA in registers) and memory bandwidth, as reference values.
#pragma once

namespace gradus::bench {

// Returns f32 operations per second; an FMA counts as two.
double peak_flops(int threads);

// Returns bytes per second, read plus written, of a streaming loop with about this ratio of reads to writes: the
// maximum of regular and non-temporal stores. Results are cached per ratio.
double peak_bandwidth(int threads, double reads, double writes);

}  // namespace gradus::bench
