// run_elementwise: the loops of element-wise CPU kernels over operands of any dtype and layout, on several
// threads. Contiguous operands of the op's dtype are passed to the op's chunk function (one vectorized loop)
// by address. Other operands are gathered and converted chunk by chunk through buffers that stay in the
// first-level cache. Callers have broadcast-checked the shapes; the output may be an input, but does not
// overlap one otherwise.
#include "gradus/tensor/cpu/elementwise/elementwise.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "gradus/tensor/cpu/convert.h"
#include "gradus/tensor/cpu/strided_index.h"
#include "gradus/tensor/cpu/vectors-inl.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace gradus::cpu::HWY_NAMESPACE {

// memcpy with non-temporal stores, which bypass the cache.
void copy_nontemporal(char* to, const char* from, int64_t bytes) {
  const hn::ScalableTag<uint8_t> tag;
  constexpr int64_t kVector = hn::MaxLanes(tag);
  int64_t at = std::min<int64_t>(bytes, -reinterpret_cast<intptr_t>(to) & (kVector - 1));
  std::memcpy(to, from, at);
  for (; at + kVector <= bytes; at += kVector)
    hn::Stream(hn::LoadU(tag, reinterpret_cast<const uint8_t*>(from + at)), tag,
               reinterpret_cast<uint8_t*>(to + at));
  std::memcpy(to + at, from + at, bytes - at);
}

}  // namespace gradus::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace gradus::cpu {
namespace {

// Elements per chunk: the buffers of all operands fit into the first-level cache.
constexpr int64_t kChunk = 512;
// Minimum length of a row (the innermost loop) for one chunk call per row.
constexpr int64_t kLongRow = 128;

// How an operand is passed to the chunk function.
enum class Access : uint8_t {
  kDirect,  // contiguous, right type: by address
  kScalar,  // a single element, converted and repeated once
  kRows,    // contiguous along the innermost loop, right type: by address; chunks end where rows end
  kGather,  // any other: converted into a buffer for each chunk
};

struct Operand {
  char* base;    // first element
  int64_t size;  // bytes of an element
  Access access;
  ConvertFunction load;  // strided copy with conversion, into the buffer
};

// One element-wise call over operands that are not all contiguous. Operand 0 is the output.
class StridedLoops {
 public:
  StridedLoops(const ElementwiseCall& call, const StridedIndex& index, const Tensor& out,
               std::span<const Tensor* const> inputs)
      : call_(call), index_(index), inputs_(static_cast<int>(inputs.size())) {
    set_operand(0, out, call.out_type);
    store_ = converter(out.dtype(), call.out_type);
    for (int k = 0; k < inputs_; ++k) set_operand(k + 1, *inputs[k], call.in_types[k]);
    const bool long_rows = index.inner_size() >= kLongRow;
    for (int k = 0; k <= inputs_; ++k) {
      if (operands_[k].access == Access::kRows && !long_rows) operands_[k].access = Access::kGather;
      by_rows_ = by_rows_ || operands_[k].access == Access::kRows;
    }
    for (int k = 0; k <= inputs_; ++k)
      buffered_ =
          buffered_ || operands_[k].access == Access::kGather || operands_[k].access == Access::kScalar;
    // An operand that is broadcast along the innermost loop has one value per row: chunks end with rows.
    for (int k = 1; k <= inputs_; ++k) by_rows_ = by_rows_ || (long_rows && is_broadcast(k));
  }

  // Computes elements [begin, end) of the iteration space, in the output's order. Called by each thread.
  void run(int64_t begin, int64_t end) const {
    alignas(64) char buffers[4][kChunk * 8];
    const void* in[3];
    for (int k = 0; k < inputs_; ++k)
      if (operands_[k + 1].access == Access::kScalar)
        operands_[k + 1].load(std::min(kChunk, end - begin), buffers[k + 1], 1, operands_[k + 1].base, 0);
    for (int64_t at = begin; at < end;) {
      int64_t n = end - at;
      if (by_rows_) n = std::min(n, index_.inner_size() - at % index_.inner_size());
      if (buffered_) n = std::min(n, kChunk);
      int64_t offsets[kMaxOperands];
      if (by_rows_) index_.locate(at, offsets);
      for (int k = 1; k <= inputs_; ++k) in[k - 1] = load(k, at, n, offsets, buffers[k]);
      const Operand& out = operands_[0];
      switch (out.access) {
        case Access::kDirect:
          call_.chunk(n, out.base + at * out.size, in, call_.functor);
          break;
        case Access::kRows:
          call_.chunk(n, out.base + offsets[0] * out.size, in, call_.functor);
          break;
        default:
          call_.chunk(n, buffers[0], in, call_.functor);
          for_each_row(at, n, [&](const int64_t* row, int64_t done, int64_t length) {
            store_(length, out.base + row[0] * out.size, index_.inner_stride(0),
                   buffers[0] + done * size_of(call_.out_type), 1);
          });
      }
      at += n;
    }
  }

 private:
  void set_operand(int k, const Tensor& x, DType type) {
    Operand& o = operands_[k];
    o.base = static_cast<char*>(x.raw_ptr());
    o.size = size_of(x.dtype());
    o.load = converter(type, x.dtype());
    const bool same_dtype = x.dtype() == type;
    if (k > 0 && x.numel() == 1)
      o.access = Access::kScalar;
    else if (same_dtype && index_.is_contiguous(k))
      o.access = Access::kDirect;
    else if (same_dtype && index_.inner_stride(k) == 1)
      o.access = Access::kRows;
    else
      o.access = Access::kGather;
  }

  // Returns whether input k has one value per row.
  bool is_broadcast(int k) const {
    return operands_[k].access == Access::kGather && index_.inner_stride(k) == 0;
  }

  // Returns the address of elements [at, at + n) of input k in the op's dtype, maybe in `buffer`.
  const void* load(int k, int64_t at, int64_t n, const int64_t* offsets, char* buffer) const {
    const Operand& o = operands_[k];
    switch (o.access) {
      case Access::kDirect:
        return o.base + at * o.size;
      case Access::kScalar:
        return buffer;
      case Access::kRows:
        return o.base + offsets[k] * o.size;
      case Access::kGather:
        break;
    }
    const int64_t element = size_of(call_.in_types[k - 1]);
    for_each_row(at, n, [&](const int64_t* row, int64_t done, int64_t length) {
      o.load(length, buffer + done * element, 1, o.base + row[k] * o.size, index_.inner_stride(k));
    });
    return buffer;
  }

  // Calls f(offsets of all operands, first - at, length) for each part [first, first + length) of [at, at +
  // n) that lies within one row.
  template <class F> void for_each_row(int64_t at, int64_t n, F&& f) const {
    for (int64_t done = 0; done < n;) {
      int64_t row[kMaxOperands];
      index_.locate(at + done, row);
      const int64_t length = std::min(n - done, index_.inner_size() - (at + done) % index_.inner_size());
      f(row, done, length);
      done += length;
    }
  }
  const ElementwiseCall& call_;
  const StridedIndex& index_;
  int inputs_;
  Operand operands_[4];
  ConvertFunction store_;
  bool by_rows_ = false;   // chunks end where a row of the innermost loop ends
  bool buffered_ = false;  // chunks are no longer than the buffers
};

// Returns whether a large operand has another order of dims than the output. Such an operand is copied into
// the output's order first: a tiled transpose is many times faster than strided gathers.
bool needs_reordering(const StridedIndex& index, int k, const Tensor& x) {
  return index.inner_stride(k) > 1 && x.numel() == index.numel && index.numel >= 4096;
}

// Minimum size of results that are written with non-temporal stores. Such results would be evicted before
// they are read, and normal stores would first read the memory that they overwrite.
constexpr int64_t kMinNontemporalBytes = int64_t(48) << 20;

// Runs call.chunk on n contiguous elements into a buffer in the cache, and copies the results to `to` with
// non-temporal stores.
void run_nontemporal(const ElementwiseCall& call, int64_t n, char* to, const void* const* in,
                     const int64_t* sizes, size_t inputs) {
  constexpr int64_t kBufferElements = 1024;
  alignas(64) char buffer[kBufferElements * 8];
  const int64_t size = size_of(call.out_type);
  const void* from[3];
  for (int64_t at = 0; at < n; at += kBufferElements) {
    const int64_t length = std::min(kBufferElements, n - at);
    for (size_t k = 0; k < inputs; ++k) from[k] = static_cast<const char*>(in[k]) + at * sizes[k];
    call.chunk(length, buffer, from, call.functor);
    HWY_NAMESPACE::copy_nontemporal(to + at * size, buffer, length * size);
  }
  hwy::FlushStream();
}

}  // namespace

void run_elementwise(const ElementwiseCall& call, const Tensor& out, std::span<const Tensor* const> inputs) {
  const int64_t n = out.numel();
  if (n == 0) return;
  bool contiguous = out.is_row_major() && out.dtype() == call.out_type;
  const void* in[3];
  int64_t sizes[3];
  for (size_t k = 0; k < inputs.size(); ++k) {
    const Tensor& x = *inputs[k];
    contiguous = contiguous && x.is_row_major() && x.numel() == n && x.dtype() == call.in_types[k];
    in[k] = x.raw_ptr();
    sizes[k] = size_of(x.dtype());
  }
  if (contiguous && n <= kElementwiseGrain) return call.chunk(n, out.raw_ptr(), in, call.functor);
  if (contiguous) {
    char* const to = static_cast<char*>(out.raw_ptr());
    const int64_t size = size_of(out.dtype());
    const bool nontemporal =
        out.nbytes() >= kMinNontemporalBytes && std::find(in, in + inputs.size(), to) == in + inputs.size();
    return parallel_for(0, n, kElementwiseGrain, [&](int64_t begin, int64_t end) {
      const void* from[3];
      for (size_t k = 0; k < inputs.size(); ++k) from[k] = static_cast<const char*>(in[k]) + begin * sizes[k];
      if (nontemporal)
        return run_nontemporal(call, end - begin, to + begin * size, from, sizes, inputs.size());
      call.chunk(end - begin, to + begin * size, from, call.functor);
    });
  }
  const Tensor* operands[4] = {&out};
  std::copy(inputs.begin(), inputs.end(), operands + 1);
  const int count = static_cast<int>(inputs.size()) + 1;
  StridedIndex index = strided_index_of(operands, count);
  Tensor reordered[4];
  for (int k = 1; k < count; ++k) {
    if (!needs_reordering(index, k, *operands[k])) continue;
    const Tensor& x = *operands[k];
    reordered[k] = empty_like(out, x.dtype());
    raw::copy_kernel.cpu(reordered[k], x);
    operands[k] = &reordered[k];
  }
  if (reordered[1] || reordered[2] || reordered[3]) index = strided_index_of(operands, count);
  const StridedLoops loops(call, index, out, {operands + 1, inputs.size()});
  parallel_for(0, n, kElementwiseGrain, [&](int64_t begin, int64_t end) { loops.run(begin, end); });
}

}  // namespace gradus::cpu
