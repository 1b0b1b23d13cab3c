// What the cases of the kernel report have in common: the limits of their traffic, and device memory for operands. Each
// family of cases has a file, cases_*.cu.cc.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "cases.h"
#include "gradus/tensor/cuda/kernels/strided_index.h"
#include "gradus/tensor/cuda/runtime/error.h"

namespace report {

using namespace gradus::cuda;  // NOLINT
using gradus::bf16;
using gradus::DType;
using gradus::dtype_v;
using gradus::f16;
using Sizes = std::vector<int64_t>;

inline constexpr int64_t kBytes = int64_t(1) << 20;
inline constexpr int64_t kFloats = kBytes / 4, kHalves = kBytes / 2, kPixels = kFloats / 64;
inline constexpr double kAll = kBytes;
inline constexpr double kDense = 1.1, kStrided = 1.3;  // Case::most of dense operands, and of others

// The cases of a family.
std::vector<Case> elementwise_cases();  // element-wise ops, copies, random numbers, steps of optimizers
std::vector<Case> reduction_cases();    // reductions, scans, softmax, losses, normalizations
std::vector<Case> arrange_cases();      // indexing, masks, sorting, search
std::vector<Case> layer_cases();        // images, attention, recurrent cells

// Device memory that holds zeros.
class Zeros {
 public:
  explicit Zeros(int64_t bytes = kBytes) {
    check("report", "cudaMalloc", cudaMalloc(&p_, static_cast<size_t>(bytes)));
    check("report", "cudaMemset", cudaMemset(p_, 0, static_cast<size_t>(bytes)));
  }
  ~Zeros() { cudaFree(p_); }
  Zeros(const Zeros&) = delete;
  Zeros& operator=(const Zeros&) = delete;
  char* data() const { return static_cast<char*>(p_); }

 private:
  void* p_ = nullptr;
};
// Device memory that holds values of the host.
template <class T> struct Elements : Zeros {
  explicit Elements(const std::vector<T>& host) : Zeros(static_cast<int64_t>(host.size() * sizeof(T))) {
    check("report", "cudaMemcpy",
          cudaMemcpy(data(), host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
};

template <class T> T* as(const Zeros& memory) { return reinterpret_cast<T*>(memory.data()); }
template <class T> View view_of(const Zeros& memory) { return {memory.data(), dtype_v<T>}; }

// Returns 0 .. n - 1 in random order, each modulo `modulus` and multiplied by `scale`; the same in every run.
template <class T> std::vector<T> shuffled(int64_t n, int64_t modulus, double scale = 1) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937());
  std::vector<T> values;
  for (const int64_t i : order) values.push_back(static_cast<T>(static_cast<double>(i % modulus) * scale));
  return values;
}

inline void synchronize() { check("report", "cudaDeviceSynchronize", cudaDeviceSynchronize()); }

}  // namespace report
