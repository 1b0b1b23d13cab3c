// CPU kernels of copy_ and fill_ for any dtypes and strides. StridedIndex merges the dims of the operands into few
// nested loops. Permuted dims (NCHW <-> NHWC) are copied as tiled matrix transposes if both dtypes are equal, all
// others row by row along the innermost loop. Callers skip empty tensors and pass operands of one shape that
// do not overlap. src may have strides of 0 (broadcast) or below (reversed).
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/kernel.h"

#include "gradus/tensor/cpu/convert.h"
#include "gradus/tensor/cpu/strided_index.h"
#include "gradus/tensor/cpu/transpose.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::raw {
namespace {

using namespace cpu;  // NOLINT

// Converts the elements of src to dst's dtype, row by row along the innermost loop. Long rows are split into
// blocks of kBlock elements, and the blocks are distributed over threads. dst_size and src_size are the bytes per
// element; a src_size of 0 reads one element for all of dst.
void copy_rows(const StridedIndex& index, char* dst, int64_t dst_size, const char* src, int64_t src_size,
               ConvertFunction convert) {
  constexpr int64_t kBlock = 16384;
  const int64_t inner = index.inner_size(), blocks = (inner + kBlock - 1) / kBlock;
  const int64_t rows = index.numel / inner;
  const int64_t grain = std::max<int64_t>(1, kElementwiseGrain / std::min(inner, kBlock));
  parallel_for(0, rows * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t first = item % blocks * kBlock;
      int64_t at[2];
      index.locate(item / blocks * inner + first, at);
      convert(std::min(kBlock, inner - first), dst + at[0] * dst_size, index.inner_stride(0),
              src + at[1] * src_size, index.inner_stride(1));
    }
  });
}

// Returns the loop along which the source (operand 1) has stride 1, if the destination (operand 0) has stride 1
// along the innermost loop and the source has a larger stride there. Returns -1 otherwise.
int transposed_dim(const StridedIndex& index) {
  if (index.inner_stride(0) != 1 || index.inner_stride(1) <= 1) return -1;
  for (int d = 0; d < index.dims - 1; ++d)
    if (index.stride[1][d] == 1) return d;
  return -1;
}

// Copies [rows, cols] matrices as transposes, for elements of `size` bytes. Row r is index r of loop `dim`, along
// which the source has stride 1. Column c is index c of the innermost loop, along which the destination has
// stride 1. There is one matrix per index of the other loops.
void copy_transposed(const StridedIndex& index, int dim, char* dst, const char* src, int64_t size) {
  // A work item is a strip of 16 to 512 consecutive rows of one matrix, of about 8192 elements if possible.
  const int64_t rows = index.size[dim], cols = index.inner_size();
  const int64_t strip = std::clamp<int64_t>(8192 / cols, 16, 512);
  const int64_t strips = (rows + strip - 1) / strip, planes = index.numel / (rows * cols);
  const int64_t dst_stride = index.stride[0][dim], src_stride = index.inner_stride(1);
  const int64_t grain = std::max<int64_t>(1, kElementwiseGrain / (std::min(strip, rows) * cols));
  parallel_for(0, planes * strips, grain, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t first = item % strips * strip, count = std::min(strip, rows - first);
      int64_t dst_at = first * dst_stride, src_at = first;
      int64_t plane = item / strips;
      for (int d = index.dims - 2; d >= 0; --d) {
        if (d == dim) continue;
        dst_at += plane % index.size[d] * index.stride[0][d];
        src_at += plane % index.size[d] * index.stride[1][d];
        plane /= index.size[d];
      }
      transpose(size, dst + dst_at * size, dst_stride, src + src_at * size, src_stride, count, cols);
    }
  });
}

void copy_cpu(const Tensor& dst, const Tensor& src) {
  char* to = static_cast<char*>(dst.raw_ptr());
  const char* from = static_cast<const char*>(src.raw_ptr());
  const int64_t dst_size = size_of(dst.dtype()), src_size = size_of(src.dtype());
  if (dst.numel() == 1) return converter(dst.dtype(), src.dtype())(1, to, 1, from, 1);
  const Tensor* operands[] = {&dst, &src};
  const StridedIndex index = strided_index_of(operands, 2);
  if (dst.dtype() == src.dtype())
    if (const int dim = transposed_dim(index); dim >= 0)
      return copy_transposed(index, dim, to, from, dst_size);
  copy_rows(index, to, dst_size, from, src_size, converter(dst.dtype(), src.dtype()));
}

void copy_each_cpu(const Tensor&, const std::vector<Tensor>& dst, const std::vector<Tensor>& src) {
  for (size_t i = 0; i < dst.size(); ++i)
    if (src[i].numel() > 0) copy_cpu(dst[i], src[i]);
}

void fill_cpu(const Tensor& dst, Number value) {
  const Tensor* operands[] = {&dst};
  StridedIndex index = strided_index_of(operands, 1);
  index.operands = 2;  // the source is one element with stride 0
  const ConvertFunction convert = converter(dst.dtype(), dst.dtype());
  alignas(8) char element[8];  // the number, converted once
  const double floating = value.to_double();
  const int64_t integer = value.is_floating() ? 0 : value.integer();
  if (value.is_floating())
    converter(dst.dtype(), DType::kF64)(1, element, 1, &floating, 1);
  else
    converter(dst.dtype(), DType::kI64)(1, element, 1, &integer, 1);
  copy_rows(index, static_cast<char*>(dst.raw_ptr()), size_of(dst.dtype()), element, 0, convert);
}

}  // namespace

constinit decltype(copy_kernel) copy_kernel{"copy", &copy_cpu};
constinit decltype(copy_each_kernel) copy_each_kernel{"copy_each", &copy_each_cpu};
constinit decltype(fill_kernel) fill_kernel{"fill_", &fill_cpu};

}  // namespace gradus::raw
