// Output and timing for the recorders, programs that print a GPU's answers to CUDA calls. A record is text:
// lines that begin with # name card, driver and date; every other line is a group, a call, and its answer,
// separated by tabs.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

namespace record {

inline const char* group = "";

inline void line(const char* asked, const char* format, ...) __attribute__((format(printf, 2, 3)));
inline void line(const char* asked, const char* format, ...) {
  std::printf("%s\t%s\t", group, asked);
  va_list list;
  va_start(list, format);
  std::vprintf(format, list);
  va_end(list);
  std::printf("\n");
  std::fflush(stdout);
}

inline std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));
inline std::string text(const char* format, ...) {
  char buffer[2000];
  va_list list;
  va_start(list, format);
  std::vsnprintf(buffer, sizeof buffer, format, list);
  va_end(list);
  return buffer;
}

// Prints the lines with #. Card and driver come from the environment variable RECORD_CARD, which record.sh
// sets by nvidia-smi, so that a program can print them before its first CUDA call.
inline void header(const char* subject, const std::string& libraries = "") {
  const char* card = std::getenv("RECORD_CARD");
  char date[40];
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", std::gmtime(&now));
  std::printf("# %s\n# card and driver: %s\n# CUDA toolkit: %d.%d\n# date: %s\n", subject,
              card ? card : "unknown", CUDART_VERSION / 1000, CUDART_VERSION / 10 % 100, date);
  if (!libraries.empty()) std::printf("# %s\n", libraries.c_str());
  std::fflush(stdout);
}

inline double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Makes a call that must succeed. A failure ends the program with status 3, since later answers would be
// invalid.
#define MUST(call)                                                                                 \
  do {                                                                                             \
    const cudaError_t must_ = (call);                                                              \
    if (must_ != cudaSuccess) {                                                                    \
      std::printf("%s\t%s\tABORTED: %s, line %d\n", record::group, #call, cudaGetErrorName(must_), \
                  __LINE__);                                                                       \
      std::fflush(stdout);                                                                         \
      std::_Exit(3);                                                                               \
    }                                                                                              \
  } while (0)

// Returns the median of `times` (at most 64) durations of `work` in ms, each measured by events on the
// stream.
template <class F> double median_ms(cudaStream_t stream, int times, F work) {
  cudaEvent_t from, to;
  MUST(cudaEventCreate(&from));
  MUST(cudaEventCreate(&to));
  float all[64];
  if (times > 64) times = 64;
  for (int i = 0; i < times; ++i) {
    MUST(cudaEventRecord(from, stream));
    work();
    MUST(cudaEventRecord(to, stream));
    MUST(cudaEventSynchronize(to));
    MUST(cudaEventElapsedTime(&all[i], from, to));
  }
  for (int i = 0; i < times; ++i)
    for (int k = i + 1; k < times; ++k)
      if (all[k] < all[i]) {
        const float t = all[i];
        all[i] = all[k];
        all[k] = t;
      }
  MUST(cudaEventDestroy(from));
  MUST(cudaEventDestroy(to));
  return all[times / 2];
}

// A hash of bytes: FNV-1a with another initial value.
inline uint64_t hash(const void* data, size_t bytes) {
  uint64_t h = 1469598103934665603u;
  const auto* p = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < bytes; ++i) h = (h ^ p[i]) * 1099511628211u;
  return h;
}

}  // namespace record
