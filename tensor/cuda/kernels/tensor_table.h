// Multi-tensor apply: one launch for many tensors, as torch._foreach ops. A TensorTable, passed as a kernel
// argument, has their pointers and sizes. Each tensor is divided into chunks of kChunk elements, and each
// block computes one chunk.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "gradus/tensor/cuda/kernels/kernel.h"

namespace gradus::cuda {

inline constexpr int kChunk = 4096;              // elements of a chunk
inline constexpr int kChunkThreads = 256;        // threads of a block
inline constexpr int kArgumentBytes = 4096;      // maximal bytes of a kernel's arguments
inline constexpr int kOtherArgumentBytes = 224;  // of these, reserved for arguments besides the table

// Device arrays of n contiguous elements each that are processed together: a parameter and its gradient, say.
template <int arrays> struct ArraysOfTensor {
  std::array<void*, arrays> data;
  int64_t n;
};

// The chunk of a block: elements from .. from + count - 1 of tensor number `tensor` of the table.
struct Chunk {
  int tensor;
  int count;
  int64_t from;
};

// A kernel argument: for each of `count` tensors its arrays, its size n and the first of its blocks.
template <int arrays> struct TensorTable {
  // An odd number, so that no padding is between the members: kernels' arguments have none.
  static constexpr int kMaxTensors = ((kArgumentBytes - kOtherArgumentBytes) / (8 * arrays + 12) - 1) | 1;
  void* data[arrays][kMaxTensors];
  int64_t n[kMaxTensors];
  int32_t first_block[kMaxTensors];
  int32_t count = 0;

  // Returns the chunk of block number `block`, by binary search.
  __device__ __forceinline__ Chunk chunk_of(int64_t block) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      first_block[middle] <= block ? low = middle : high = middle;
    }
    const int64_t from = (block - first_block[low]) * kChunk;
    return {low, static_cast<int>(std::min<int64_t>(n[low] - from, kChunk)), from};
  }
  // Returns the chunk's first element in an array.
  template <class T> __device__ __forceinline__ T* at(int array, const Chunk& chunk) const {
    return static_cast<T*>(data[array][chunk.tensor]) + chunk.from;
  }
};

// Calls f(table, blocks), which launches `blocks` blocks, for one or more tables that together have all
// tensors, in their order, without those of 0 elements.
template <int arrays, class F> void for_each_table(std::span<const ArraysOfTensor<arrays>> tensors, F&& f) {
  constexpr int64_t kMaxBlocks = 0x7fffffff;
  using Table = TensorTable<arrays>;
  static_assert(sizeof(Table) == (8 * arrays + 12) * Table::kMaxTensors + 4 &&
                sizeof(Table) <= kArgumentBytes - kOtherArgumentBytes + 4);
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

// The arrays of one parameter in an optimizer step: device pointers to n elements. Unused states are null.
struct StepArrays {
  void *param, *grad;
  std::array<void*, 3> state;
  int64_t n;
};
// Inputs of a step in device memory. rules: an update rule for each tensor with elements, in their order;
// null: the rule that is a kernel argument applies to all. found: the found-inf flag; kernels return at once
// if *found is not 0. Null: no step is skipped.
template <class Rule> struct DeviceRules {
  const Rule* rules = nullptr;
  const float* found = nullptr;
};

}  // namespace gradus::cuda
