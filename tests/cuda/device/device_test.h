// Test support of kernels_on_device: groups of checks, guarded device buffers and sample values. It compares
// CUDA kernels with host loops, on a GPU (compiled by nvcc) or on the GPU emulator.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gradus/tensor/base/dtype.h"
#include "gradus/tensor/cuda/kernels/strided_index.h"
#include "gradus/tensor/cuda/runtime/error.h"

namespace device_test {

using gradus::bf16;
using gradus::DType;
using gradus::f16;
namespace cuda = gradus::cuda;

// Command-line options.
struct Options {
  bool small = false;   // fewer and smaller shapes: the emulator is slow
  double seconds = 50;  // no group begins later
  std::string only;     // runs the groups whose names contain this
};
Options& options();
double elapsed();  // seconds since its first call

// Counts checks; its destructor prints one line, with the text of the first check that failed.
class Group {
 public:
  explicit Group(std::string name);
  ~Group();
  explicit operator bool() const { return runs_; }  // false: skipped by options or time
  void check(bool right, const char* format, ...) __attribute__((format(printf, 3, 4)));

  static std::atomic<int> passed, failed, left_out;

 private:
  std::string name_;
  bool runs_;
  double begin_;
  int64_t checks_ = 0, wrong_ = 0;
  std::string first_;
};

inline void must(cudaError_t status, const char* what) { cuda::check("device test", what, status); }
#define MUST(call) device_test::must((call), #call)

// Device memory between guard bytes of 0xA5. On the emulator there are none: it detects out-of-bounds
// accesses.
class Buffer {
 public:
#if defined(__CUDACC__)
  static constexpr size_t kMargin = 512;
#else
  static constexpr size_t kMargin = 0;
#endif
  explicit Buffer(size_t bytes) : bytes_(bytes) {
    void* p;
    MUST(cudaMalloc(&p, std::max<size_t>(1, bytes + 2 * kMargin)));
    base_ = static_cast<char*>(p);
    MUST(cudaMemset(base_, 0xA5, bytes + 2 * kMargin));
  }
  ~Buffer() { cudaFree(base_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  char* data() const { return base_ + kMargin; }
  size_t bytes() const { return bytes_; }
  void put(const void* from, size_t bytes) const {
    MUST(cudaMemcpy(data(), from, bytes, cudaMemcpyHostToDevice));
  }
  // Returns all bytes, with the margins.
  std::vector<unsigned char> take() const {
    std::vector<unsigned char> all(bytes_ + 2 * kMargin);
    MUST(cudaMemcpy(all.data(), base_, all.size(), cudaMemcpyDeviceToHost));
    return all;
  }

 private:
  size_t bytes_;
  char* base_;
};

// `count` elements of a buffer from element `start` on; start > 0 misaligns them.
template <class T> class Elements {
 public:
  explicit Elements(size_t count, size_t start = 0)
      : count_(count), start_(start), buffer_((start + count) * sizeof(T)) {}
  explicit Elements(const std::vector<T>& x, size_t start = 0) : Elements(x.size(), start) {
    MUST(cudaMemcpy(data(), x.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  T* data() const { return reinterpret_cast<T*>(buffer_.data()) + start_; }
  std::vector<T> take() const {
    std::vector<T> x(count_);
    MUST(cudaMemcpy(x.data(), data(), count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return x;
  }
  // Whether the bytes around the elements are unchanged.
  bool is_clean() const {
    const std::vector<unsigned char> all = buffer_.take();
    const size_t first = Buffer::kMargin + start_ * sizeof(T);
    for (size_t i = 0; i < all.size(); ++i)
      if ((i < first || i >= first + count_ * sizeof(T)) && all[i] != 0xA5) return false;
    return true;
  }

 private:
  size_t count_, start_;
  Buffer buffer_;
};

// The finalizer of SplitMix64, for pseudorandom test values.
inline uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// Conversions of 16-bit floats on the host. nvcc lacks _Float16, so build.sh compiles f16 in software
// (half.cc).
template <class T> T from_double(double v) {
  if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>)
    return T(static_cast<float>(v));
  else
    return static_cast<T>(v);
}
template <class T> auto widened(T x) {
  if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>)
    return static_cast<float>(x);
  else if constexpr (std::is_same_v<T, int16_t> || std::is_same_v<T, int8_t>)
    return static_cast<int32_t>(x);
  else
    return x;
}
// A computed value in the type in which it is stored.
template <class Out, class C> Out stored(C x) {
  if constexpr (std::is_same_v<Out, f16> || std::is_same_v<Out, bf16>)
    return Out(static_cast<float>(x));
  else
    return static_cast<Out>(x);
}

// The largest error of rounding a number of at most this size to a T of 16 bits; 0 for other T.
template <class T> double rounding_error(double size) {
  if (std::is_same_v<T, f16>) return size * 0x1p-11 + 0x1p-25;  // a subnormal number has an absolute error
  return std::is_same_v<T, bf16> ? size * 0x1p-8 + 0x1p-134 : 0;
}

// Element i of the pseudorandom sequence `salt`: floats between -1 and 1; if `wild`, of all magnitudes, with
// infinities, NaN and subnormals.
template <class T> T sample(uint64_t i, uint64_t salt, bool wild = true) {
  const uint64_t z = mix((i + salt * 0x51ed27) * 0x9E3779B97F4A7C15u);
  if constexpr (std::is_same_v<T, bool>) {
    return z >> 40 & 1;
  } else if constexpr (std::is_integral_v<T>) {
    return wild && z % 4 == 0 ? static_cast<T>(z >> 20) : static_cast<T>(z >> 20 & 63);
  } else {
    const double unit = static_cast<double>(static_cast<int64_t>(mix(z + 77))) * 0x1p-63;
    if (!wild) return from_double<T>(unit);
    constexpr double kSpecial[] = {0.,  -0.,    1.,    -1.,    INFINITY, -INFINITY, NAN,   1e-45,
                                   0.5, -1e-40, 1e-38, 3.4e38, -3.4e38,  88.8,      -104., 65504.};
    if (z % 64 == 0) return from_double<T>(kSpecial[z >> 32 & 15]);
    if (z % 5 == 0) return from_double<T>(unit * std::ldexp(1., static_cast<int>(z >> 32 & 127) - 64));
    return from_double<T>(z % 3 == 1 ? unit * 10 : unit);
  }
}

template <class T> bool is_nan(T x) {
  const auto v = widened(x);
  return v != v;
}
// Equal bits; all NaN are equal.
template <class T> bool same(T a, T b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (is_nan(a) && is_nan(b));
}
// Returns whether two results have the same bits. They may be empty, which memcmp() does not allow of data().
template <class T> bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}
template <class T> double as_double(T x) { return static_cast<double>(widened(x)); }

using Sizes = std::vector<int64_t>;

// Calls f(array of each operand's element offset) for every position, in row-major order.
template <class F>
void for_each_position(const Sizes& sizes, const std::vector<cuda::Strides>& strides,
                       const std::vector<int64_t>& start, F&& f) {
  int64_t n = 1;
  for (const int64_t s : sizes) n *= s;
  std::vector<int64_t> at(strides.size());
  for (int64_t i = 0; i < n; ++i) {
    at = start;
    int64_t rest = i;
    for (size_t d = sizes.size(); d-- > 0; rest /= sizes[d])
      for (size_t k = 0; k < strides.size(); ++k) at[k] += rest % sizes[d] * strides[k][d];
    f(at.data());
  }
}
inline cuda::Strides row_major(const Sizes& sizes) {
  cuda::Strides s{};
  int64_t next = 1;
  for (size_t d = sizes.size(); d-- > 0; next *= sizes[d]) s[d] = next;
  return s;
}

void test_elementwise_floats();
void test_elementwise_integers();
void test_copies();
void test_reductions();
void test_loss_sums();
void test_softmax();
void test_cross_entropy();
void test_pooling();
void test_direct_conv();
void test_random();
void test_batch_norm();
void test_layer_norm();
void test_group_norm();
void test_arrange();
void test_sort();
void test_scans();
void test_search();
void test_recurrent();
void test_gradients();
void test_index();
void test_unfold();
void test_upfirdn();
void test_attention();
void test_optim_steps();
void time_kernels();

}  // namespace device_test
