// Many tensors in one launch. A table of them travels in the kernel's arguments. Their elements are cut into
// chunks, and each block takes one. So the number of launches does not depend on their sizes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "gradus/tensor/cuda/kernels/kernel.h"

namespace gradus::cuda {

inline constexpr int kChunk = 4096;  // elements of a block
inline constexpr int kChunkThreads = 256;
inline constexpr int kArgumentBytes = 4096;  // of a launch, at most
inline constexpr int kOtherArguments = 224;  // what a table leaves of them

// Dense arrays of n elements each that are computed together, element by element.
template <int arrays> struct ArraysOfTensor {
  std::array<void*, arrays> data;
  int64_t n;
};

// A block's part of a tensor: `count` elements from element `from` on.
struct Chunk {
  int tensor;
  int count;
  int64_t from;
};

template <int arrays> struct TensorTable {
  // An odd number, so that no padding is between the members: kernels' arguments have none.
  static constexpr int kMaxTensors = ((kArgumentBytes - kOtherArguments) / (8 * arrays + 12) - 1) | 1;
  void* data[arrays][kMaxTensors];
  int64_t n[kMaxTensors];
  int32_t first_block[kMaxTensors];
  int32_t count = 0;

  // Returns the chunk of a block.
  __device__ __forceinline__ Chunk chunk_of(int64_t block) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      first_block[middle] <= block ? low = middle : high = middle;
    }
    const int64_t from = (block - first_block[low]) * kChunk;
    return {low, static_cast<int>(std::min<int64_t>(n[low] - from, kChunk)), from};
  }
  template <class T> __device__ __forceinline__ T* at(int array, const Chunk& chunk) const {
    return static_cast<T*>(data[array][chunk.tensor]) + chunk.from;
  }
};

// Calls f(table, number of blocks) for tables that have all tensors with elements.
template <int arrays, class F> void for_each_table(std::span<const ArraysOfTensor<arrays>> tensors, F&& f) {
  constexpr int64_t kMaxBlocks = 0x7fffffff;
  using Table = TensorTable<arrays>;
  static_assert(sizeof(Table) == (8 * arrays + 12) * Table::kMaxTensors + 4 &&
                sizeof(Table) <= kArgumentBytes - kOtherArguments + 4);
  Table table{};
  int64_t blocks = 0;
  for (const ArraysOfTensor<arrays>& tensor : tensors) {
    if (tensor.n == 0) continue;
    const int64_t more = blocks_for(tensor.n, kChunk);
    if (table.count == table.kMaxTensors || blocks + more > kMaxBlocks) {
      f(std::as_const(table), blocks);
      table.count = 0, blocks = 0;
    }
    for (int k = 0; k < arrays; ++k) table.data[k][table.count] = tensor.data[size_t(k)];
    table.n[table.count] = tensor.n;
    table.first_block[table.count] = static_cast<int32_t>(blocks);
    blocks += more, ++table.count;
  }
  if (blocks > 0) f(std::as_const(table), blocks);
}

// What a step of an optimizer updates: a parameter, its gradient and states, row-major.
struct StepArrays {
  void *param, *grad;
  std::array<void*, 3> state;
  int64_t n;
};

// What the device knows of a step: a rule for each tensor with elements, in their order, or null if the
// launch has one for all; and whether the step is left out: where *found is not 0. Null: it is not.
template <class Rule> struct KnownOnDevice {
  const Rule* rules = nullptr;
  const float* found = nullptr;
};

}  // namespace gradus::cuda
