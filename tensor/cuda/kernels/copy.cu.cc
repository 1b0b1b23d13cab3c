// Copies between strided layouts and dtypes, fills, arange and linspace. Copies within a dtype move words of
// up to 16 bytes, as layouts and alignment allow; if both layouts are dense, cudaMemcpyAsync; a transposition
// goes through tiles in shared memory. Several copies to one tensor are one launch. Dense casts between f32 and
// 16-bit floats are vectorized, other casts take one element per thread. The callers guarantee operands on the
// stream's device that do not overlap. Operand 0 is the destination, 1 the source.
#include "gradus/tensor/cuda/kernels/copy.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "gradus/tensor/cuda/kernels/chunk_loop.h"
#include "gradus/tensor/cuda/kernels/element.h"
#include "gradus/tensor/cuda/kernels/elementwise.h"
#include "gradus/tensor/cuda/kernels/strided.h"
#include "gradus/tensor/cuda/kernels/vector_io.h"
#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::cuda {
namespace {

constexpr int kThreads = 256;  // of a block
constexpr int kEach = 4;       // words per thread
constexpr int kTile = 32;      // rows and columns

// dst[i] = src[i] for positions i, in words W. Thread t of block b has words (b * kEach + e) * kThreads + t.
template <class W> __device__ __forceinline__ void copy_block(const StridedOperands<2>& o, uint32_t block) {
  const auto first = block * (kThreads * kEach) + threadIdx.x;
  W words[kEach];
  int64_t at[kEach][2];
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const uint32_t i = first + static_cast<uint32_t>(e * kThreads);
    if (i >= o.count) break;
    o.locate(i, at[e]);
    words[e] = load_vector<W>(static_cast<const W*>(o.data[1]) + at[e][1]);
  }
#pragma unroll
  for (int e = 0; e < kEach; ++e)
    if (first + static_cast<uint32_t>(e * kThreads) < o.count)
      store_vector(static_cast<W*>(o.data[0]) + at[e][0], words[e]);
}

template <class W> __global__ void __launch_bounds__(kThreads) copy_words(StridedOperands<2> o) {
  copy_block<W>(o, blockIdx.x);
}

// A kernel argument: `count` copies. Those of number k have the blocks from first_block[k] on.
struct CopyTable {
  static constexpr int kMaxCopies = 15;
  StridedOperands<2> copies[kMaxCopies];
  uint32_t first_block[kMaxCopies];
  int32_t count;
};
static_assert(sizeof(CopyTable) <= kArgumentBytes);

// dst[i] = src[i] for each copy of the table, in words W. A block has words of one copy.
template <class W> __global__ void __launch_bounds__(kThreads) copy_all_words(CopyTable table) {
  int k = 0;
  while (k + 1 < table.count && table.first_block[k + 1] <= blockIdx.x) ++k;
  copy_block<W>(table.copies[k], blockIdx.x - table.first_block[k]);
}

// A batch of matrix transpositions: dst[r * dst_row + c] = src[c * src_row + r], strides in elements.
struct Transposed {
  int64_t rows, columns, dst_row, src_row;
  int64_t row_tiles, column_tiles;  // number of tiles along rows and columns
  StridedOperands<2> planes;        // the loops over the matrices of the batch
};
// Rows are padded by at least 4 bytes, so that lanes that read a column of the tile access different banks.
template <class W> struct Tile {
  W v[kTile][kTile + (sizeof(W) < 4 ? 4 / sizeof(W) : 1)];
};

// dst[plane][r * dst_row + c] = src[plane][c * src_row + r]. A block has a tile of kTile x kTile elements in
// shared memory, so that neighboring lanes access neighboring elements of src and of dst.
template <class W> __global__ void __launch_bounds__(kThreads) copy_transposed(Transposed t) {
  auto& tile = shared_memory<Tile<W>>();
  const int64_t c0 = blockIdx.x % t.column_tiles * kTile;
  const int64_t r0 = blockIdx.x / t.column_tiles % t.row_tiles * kTile;
  int64_t plane[2];
  t.planes.locate(static_cast<uint32_t>(blockIdx.x / t.column_tiles / t.row_tiles), plane);
  const int lane = threadIdx.x % kTile, line = threadIdx.x / kTile;
  constexpr int kLines = kThreads / kTile;
  const W* src = static_cast<const W*>(t.planes.data[1]) + plane[1];
#pragma unroll
  for (int k = line; k < kTile; k += kLines)
    if (r0 + lane < t.rows && c0 + k < t.columns) tile.v[k][lane] = src[(c0 + k) * t.src_row + r0 + lane];
  __syncthreads();
  W* dst = static_cast<W*>(t.planes.data[0]) + plane[0];
#pragma unroll
  for (int k = line; k < kTile; k += kLines)
    if (r0 + k < t.rows && c0 + lane < t.columns) dst[(r0 + k) * t.dst_row + c0 + lane] = tile.v[lane][k];
}

// to[i] = pattern[i % 16] for i < bytes. `to` is aligned to 16 bytes. A thread writes 16 bytes.
__global__ void __launch_bounds__(kThreads)
    fill_dense(uint8_t* to, int64_t bytes, Vector<uint8_t, 16> pattern) {
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 16;
  store_first(to + at, pattern, bytes - at);
}

// dst[i] = word for positions i of the index space. A thread writes one word.
template <class W> __global__ void __launch_bounds__(kThreads) fill_words(StridedOperands<1> o, W word) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= o.count) return;
  int64_t at[1];
  o.locate(i, at);
  store_vector(static_cast<W*>(o.data[0]) + at[0], word);
}

struct Identity {
  template <class T> __device__ T operator()(T x) const { return x; }
};

// dst[i] = src[i], converted, for positions i of the index space. A thread has one element. Any dtypes:
// integers pass as i64 and floats as f64, which hold all values of narrower types.
__global__ void __launch_bounds__(kThreads) convert_any(StridedOperands<2> o) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= o.count) return;
  int64_t at[2];
  o.locate(i, at);
  if (is_floating(o.dtype[1]))
    store_as(o.data[0], o.dtype[0], at[0], load_as<double>(o.data[1], o.dtype[1], at[1]));
  else
    store_as(o.data[0], o.dtype[0], at[0], load_as<int64_t>(o.data[1], o.dtype[1], at[1]));
}

// Returns whether operand k is contiguous and all loops are merged into one.
bool is_flat(const StridedIndex& index, size_t k) {
  return index.dims == 1 && (index.numel == 1 || index.stride[k][0] == 1);
}

// Joins adjacent elements of the innermost loop into words of up to `max_bytes` while layouts and addresses allow
// it: halves its size and the other strides. Returns the size of a word.
int64_t join_words(StridedIndex* index, const View* views, int64_t max_bytes = 16) {
  int64_t bytes = size_of(views[0].dtype);
  const auto inner = static_cast<size_t>(index->dims - 1);
  if (index->inner_stride(0) != 1 || index->inner_stride(1) != 1) return bytes;
  while (bytes < max_bytes && index->size[inner] % 2 == 0) {
    for (size_t k = 0; k < 2; ++k) {
      if (!is_aligned(views[k].data, static_cast<size_t>(2 * bytes))) return bytes;
      for (size_t d = 0; d < inner; ++d)
        if (index->stride[k][d] % 2) return bytes;
    }
    for (size_t k = 0; k < 2; ++k)
      for (size_t d = 0; d < inner; ++d) index->stride[k][d] /= 2;
    index->size[inner] /= 2;
    index->numel /= 2;
    bytes *= 2;
  }
  return bytes;
}

// Calls f(o) with the operands of each part of a copy in words of `bytes` bytes.
template <class F> void for_each_copy(const StridedIndex& words, const View* views, int64_t bytes, F&& f) {
  for_each_part(words, kMaxDividend, {}, [&](const StridedIndex& part, const auto& offsets) {
    auto o = strided_operands<2>(part, views, {});
    for (size_t k = 0; k < 2; ++k) o.data[k] = static_cast<char*>(views[k].data) + offsets[k] * bytes;
    f(o);
  });
}

// Returns the loop with stride 1 in the source, if the destination has stride 1 in the innermost loop and the
// source does not: a transposition. -1 if there is none.
int transposed_loop(const StridedIndex& index) {
  if (index.inner_stride(0) != 1 || index.inner_stride(1) <= 1) return -1;
  for (int d = 0; d < index.dims - 1; ++d)
    if (index.stride[1][size_t(d)] == 1 && index.stride[0][size_t(d)] > 0) return d;
  return -1;
}

// Queues copy_transposed: `loop` are the rows of the destination, the innermost loop its columns.
void run_transposed(const char* op, const StridedIndex& index, int loop, const View* views,
                    cudaStream_t stream) {
  const auto along = static_cast<size_t>(loop), inner = static_cast<size_t>(index.dims - 1);
  Transposed t{};
  t.rows = index.size[along], t.columns = index.size[inner];
  t.dst_row = index.stride[0][along], t.src_row = index.stride[1][inner];
  t.row_tiles = blocks_for(t.rows, kTile), t.column_tiles = blocks_for(t.columns, kTile);
  StridedIndex planes = index;
  planes.dims = 0;
  planes.numel = index.numel / (t.rows * t.columns);
  for (size_t d = 0; d < inner; ++d) {
    if (d == along) continue;
    const auto at = static_cast<size_t>(planes.dims++);
    planes.size[at] = index.size[d];
    for (size_t k = 0; k < 2; ++k) planes.stride[k][at] = index.stride[k][d];
  }
  if (planes.dims == 0) planes.dims = 1, planes.size[0] = 1, planes.stride[0][0] = planes.stride[1][0] = 0;
  t.planes = strided_operands<2>(planes, views, {});
  const int64_t blocks = planes.numel * t.row_tiles * t.column_tiles;
  with_word(size_of(views[0].dtype), [&]<class W>(W) {
    launch(op, copy_transposed<W>, {blocks, kThreads, sizeof(Tile<W>)}, stream, t);
  });
}

// If this is a cast between f32 and a 16-bit float of dense tensors, queues it. Returns whether it is.
bool run_cast(const char* op, const StridedIndex& index, const View* views, cudaStream_t stream) {
  using elementwise_detail::run_dense;
  const DType from = views[1].dtype;
  if (from == DType::kF32)
    return run_dense<bf16, Identity, double, bf16, float>(op, {}, index, views, stream) ||
           run_dense<f16, Identity, double, f16, float>(op, {}, index, views, stream);
  if (views[0].dtype != DType::kF32) return false;
  return run_dense<bf16, Identity, double, float, bf16>(op, {}, index, views, stream) ||
         run_dense<f16, Identity, double, float, f16>(op, {}, index, views, stream);
}

// y[i] = x[i] for each tensor of the table: array 0 is y, array 1 is x. A block has one chunk. Equal types are words of
// any element type.
template <class To, class From>
__global__ void __launch_bounds__(kChunkThreads) copy_chunks(TensorTable<2> table) {
  const Chunk chunk = table.chunk_of(blockIdx.x);
  To* const y = table.at<To>(0, chunk);
  const From* const x = table.at<From>(1, chunk);
  constexpr int kEachVector = kVectorSize<From, To>;
  for_each_chunk_vector<kEachVector>(
      chunk, is_aligned(y, kEachVector * sizeof(To)) && is_aligned(x, kEachVector * sizeof(From)),
      [&]<int n>(int i) {
        const Vector<From, n> from = load<n>(x + i);
        if constexpr (std::is_same_v<To, From>) {
          store(y + i, from);
        } else {
          Vector<To, n> to;
#pragma unroll
          for (int e = 0; e < n; ++e) to.v[e] = convert<To>(from.v[e]);
          store(y + i, to);
        }
      });
}

// Evenly spaced values, from `start` before index `middle`, the others from `end`: both ends are exact.
struct Spacing {
  double start, end, step;
  int64_t middle;
};

// out[i] = start + i * step before `middle`, end - (n - 1 - i) * step from there on. A thread has one
// element. The multiply-adds are fused on the CPU too, by its compiler.
__global__ void __launch_bounds__(kThreads) evenly_spaced(void* out, DType dtype, int64_t n, Spacing values) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  const double value = i < values.middle ? m::fma(static_cast<double>(i), values.step, values.start)
                                         : m::fma(-static_cast<double>(n - 1 - i), values.step, values.end);
  store_as(out, dtype, i, value);
}

void run_evenly_spaced(const char* op, const View& out, int64_t n, const Spacing& values,
                       cudaStream_t stream) {
  if (n > 0)
    launch(op, evenly_spaced, {blocks_for(n, kThreads), kThreads}, stream, out.data, out.dtype, n, values);
}

}  // namespace

void copy(const char* op, const StridedIndex& index, const View* views, cudaStream_t stream) {
  if (index.numel == 0) return;
  if (views[0].dtype != views[1].dtype) {
    if (run_cast(op, index, views, stream)) return;
    return for_each_part(index, kMaxDividend, {}, [&](const StridedIndex& part, const auto& offsets) {
      launch(op, convert_any, {blocks_for(part.numel, kThreads), kThreads}, stream,
             strided_operands<2>(part, views, offsets));
    });
  }
  if (is_flat(index, 0) && is_flat(index, 1)) {
    const int64_t bytes = index.numel * size_of(views[0].dtype);
    check(op, "cudaMemcpyAsync",
          cudaMemcpyAsync(views[0].data, views[1].data, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice,
                          stream));
    return count_calls(op, {.copies_on_device = 1, .bytes_on_device = bytes});
  }
  if (const int loop = transposed_loop(index); loop >= 0 && index.numel < kMaxDividend)
    return run_transposed(op, index, loop, views, stream);
  StridedIndex words = index;
  const int64_t bytes = join_words(&words, views);
  for_each_copy(words, views, bytes, [&](const StridedOperands<2>& o) {
    with_word(bytes, [&]<class W>(W) {
      launch(op, copy_words<W>, {blocks_for(o.count, kThreads * kEach), kThreads}, stream, o);
    });
  });
}

void copy_all(const char* op, std::span<const StridedCopy> copies, cudaStream_t stream) {
  std::vector<StridedCopy> joined;
  int64_t bytes = 16;  // the largest word that the layouts of all joined copies allow
  for (const StridedCopy& c : copies) {
    if (copies.size() == 1 || c.views[0].dtype != c.views[1].dtype || transposed_loop(c.index) >= 0) {
      copy(op, c.index, c.views.data(), stream);
      continue;
    }
    StridedIndex words = c.index;
    bytes = std::min(bytes, join_words(&words, c.views.data()));
    joined.push_back(c);
  }
  CopyTable table{};
  int64_t blocks = 0;
  const auto launch_table = [&] {
    if (blocks > 0)
      with_word(bytes, [&]<class W>(W) { launch(op, copy_all_words<W>, {blocks, kThreads}, stream, table); });
    table.count = 0, blocks = 0;
  };
  for (StridedCopy& c : joined) {
    join_words(&c.index, c.views.data(), bytes);
    for_each_copy(c.index, c.views.data(), bytes, [&](const StridedOperands<2>& o) {
      if (table.count == CopyTable::kMaxCopies) launch_table();
      table.copies[table.count] = o;
      table.first_block[table.count++] = static_cast<uint32_t>(blocks);
      blocks += blocks_for(o.count, kThreads * kEach);
    });
  }
  launch_table();
}

void copy_each(const char* op, DType to, DType from, std::span<const ArraysOfTensor<2>> tensors,
               cudaStream_t stream) {
  for_each_table<2>(tensors, [&](const TensorTable<2>& table, int64_t blocks) {
    const Grid grid{blocks, kChunkThreads};
    if (to != from)
      return launch(op, to == DType::kBF16 ? copy_chunks<bf16, float> : copy_chunks<f16, float>, grid, stream,
                    table);
    with_word(size_of(to), [&]<class W>(W) { launch(op, copy_chunks<W, W>, grid, stream, table); });
  });
}

void fill(const char* op, const StridedIndex& index, const View& view, const void* element,
          cudaStream_t stream) {
  if (index.numel == 0) return;
  const int64_t bytes = size_of(view.dtype);
  if (is_flat(index, 0) && is_aligned(view.data, 16)) {
    Vector<uint8_t, 16> pattern;
    for (int64_t i = 0; i < 16; i += bytes) std::memcpy(pattern.v + i, element, static_cast<size_t>(bytes));
    return launch(op, fill_dense, {blocks_for(index.numel * bytes, kThreads * 16), kThreads}, stream,
                  static_cast<uint8_t*>(view.data), index.numel * bytes, pattern);
  }
  for_each_part(index, kMaxDividend, {}, [&](const StridedIndex& part, const auto& offsets) {
    const auto o = strided_operands<1>(part, &view, offsets);
    with_word(bytes, [&]<class W>(W word) {
      std::memcpy(&word, element, sizeof word);
      launch(op, fill_words<W>, {blocks_for(part.numel, kThreads), kThreads}, stream, o, word);
    });
  });
}

void arange(const char* op, const View& out, int64_t n, double start, double step, cudaStream_t stream) {
  run_evenly_spaced(op, out, n, {start, 0, step, n}, stream);
}

void linspace(const char* op, const View& out, int64_t n, double start, double end, cudaStream_t stream) {
  run_evenly_spaced(
      op, out, n, {start, end, n > 1 ? (end - start) / static_cast<double>(n - 1) : 0, (n + 1) / 2}, stream);
}

}  // namespace gradus::cuda
