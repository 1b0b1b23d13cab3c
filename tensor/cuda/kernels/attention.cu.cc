// Fused attention and its gradients (attention.h): online softmax over tiles of scores, which only registers and
// shared memory hold. With dw = keep_scale keep (dy v^T) and ds = w (dw - sum_c dy y), 0 where masked:
//   dq = scale ds k,  dk = scale ds^T q,  dv = keep_scale (keep w)^T dy
// A block owns kSize rows of the results: queries for y and dq, keys for dk and dv. It visits the other dimension
// in tiles of kSize. Thread (ty, tx) of 16 x 16 computes kEach x kEach scores of a tile, in rows ty + 16 i and
// columns tx + 16 j, and of the results rows ty + 16 i, columns kChunk c + kVector tx + m. Weights pass through
// shared memory. Operands are staged there in slices of kDepth, in the type that they are computed in.
// Source: Dao, "FlashAttention-2: faster attention with better parallelism and work partitioning", 2023.
#include "gradus/tensor/cuda/kernels/attention.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "gradus/tensor/cuda/kernels/element.h"
#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/cuda/kernels/thread_groups.h"
#include "gradus/tensor/cuda/kernels/vector_io.h"
#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::cuda {
namespace {

constexpr int kSide = 16, kThreads = kSide * kSide, kDepth = 32;

// Returns the offset of the first element of an operand's matrix at position `matrix` of the batch.
__device__ inline int64_t offset_of(const AttentionOperand& x, const Attention& a, int64_t matrix) {
  int64_t offset = 0;
#pragma unroll
  for (int d = kMaxDims - 3; d >= 0; --d) {
    if (d >= a.dims) continue;
    const int64_t outer = d ? matrix / a.batch[d] : 0;
    offset += (matrix - outer * a.batch[d]) * x.batch[d];
    matrix = outer;
  }
  return offset;
}

// The matrix of an operand at one batch position.
template <class T> struct Matrix {
  const T* data;
  int64_t row, column, rows, columns;  // strides, sizes

  __device__ Matrix(const AttentionOperand& x, const Attention& a, int64_t matrix, int64_t rows,
                    int64_t columns)
      : data(static_cast<const T*>(x.data) + offset_of(x, a, matrix)),
        row(x.row),
        column(x.column),
        rows(rows),
        columns(columns) {}

  // Returns elements [i, j .. j + n), 0 outside of the matrix. Loads a vector if elements are adjacent and aligned.
  template <int n> __device__ __forceinline__ Vector<T, n> load_row(int64_t i, int64_t j) const {
    const T* const from = data + i * row + j * column;
    const int64_t left = i < rows ? columns - j : 0;
    if (left >= n && column == 1 && is_aligned(from, sizeof(T) * n)) return load<n>(from);
    Vector<T, n> v;
#pragma unroll
    for (int k = 0; k < n; ++k) v.v[k] = k < left ? from[k * column] : T();
    return v;
  }
};

// A block for results of at most `head` columns, as its threads see it.
template <class T, int head> struct Block {
  using C = compute_t<T>;
  static constexpr int kVector = kVectorSize<C>;
  using V = Vector<C, kVector>;
  static constexpr int kEach = sizeof(C) == 8 || head > 128 ? 2 : 4;  // what fits the registers
  static constexpr int kBlocks = kEach == 4 && head == 64 ? 2 : 1;    // of a multiprocessor, without spills
  static constexpr int kSize = kSide * kEach;
  static constexpr int kChunk = kSide * kVector, kChunks = head / kChunk;
  // Rows have a vector more than they need, so that neighboring rows begin in other banks. keep: the dropout mask.
  struct alignas(16) Shared {
    C rows[kSize][kDepth + kVector], columns[kSize][kDepth + kVector];
    C weights[kSize][kSize + kVector], values[kDepth][kChunk + kVector];
    bool keep[kSize][kSize + 8];
  };
  using Scores = C[kEach][kEach];
  using Result = C[kEach][kChunks][kVector];

  const Attention& a;
  Shared& shared = shared_memory<Shared>();
  const int ty = threadIdx.x / kSide, tx = threadIdx.x % kSide;
  const int64_t tiles, matrix;  // of the rows of one matrix, and the position in the batch
  const int64_t first;          // the first row that the block owns
  const int64_t mask_offset;
  const Matrix<T> q, k, v, dy;

  // Causal blocks with many tiles start first: the last queries, or the first keys.
  __device__ Block(const Attention& a, bool owns_keys)
      : a(a),
        tiles(blocks_for(owns_keys ? a.S : a.L, kSize)),
        matrix(blockIdx.x / tiles),
        first((owns_keys ? blockIdx.x % tiles : tiles - 1 - blockIdx.x % tiles) * kSize),
        mask_offset(offset_of(a.mask, a, matrix)),
        q(a.q, a, matrix, a.L, a.E),
        k(a.k, a, matrix, a.S, a.E),
        v(a.v, a, matrix, a.S, a.V),
        dy(a.dy, a, matrix, a.L, a.V) {}

  // The rows and columns of the thread's elements of a tile of scores.
  __device__ __forceinline__ int row(int i) const { return ty + kSide * i; }
  __device__ __forceinline__ int column(int j) const { return tx + kSide * j; }

  // to[r][c] = x[first_row + r, first_column + c]
  template <int rows, int pitch>
  __device__ __forceinline__ void stage(C (&to)[rows][pitch], const Matrix<T>& x, int64_t first_row,
                                        int64_t first_column) const {
    constexpr int n = kVectorSize<T>, columns = pitch - kVector;
    for (int i = threadIdx.x; i < rows * columns / n; i += kThreads) {
      const int r = i / (columns / n), c = i % (columns / n) * n;
      const auto from = x.template load_row<n>(first_row + r, first_column + c);
#pragma unroll
      for (int m = 0; m < n; ++m) to[r][c + m] = widen(from.v[m]);
    }
  }

  // sum[i][j] += sum_e x[x_first + ty + 16 i, e] * y[y_first + tx + 16 j, e]
  __device__ __forceinline__ void add_products(Scores& sum, const Matrix<T>& x, int64_t x_first,
                                               const Matrix<T>& y, int64_t y_first) const {
    for (int64_t e = 0; e < x.columns; e += kDepth) {
      stage(shared.rows, x, x_first, e);
      stage(shared.columns, y, y_first, e);
      __syncthreads();
#pragma unroll 1
      for (int c = 0; c < kDepth; c += kVector) {
        V left[kEach];
#pragma unroll
        for (int i = 0; i < kEach; ++i) left[i] = load_vector<V>(&shared.rows[row(i)][c]);
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          const V right = load_vector<V>(&shared.columns[column(j)][c]);
#pragma unroll
          for (int m = 0; m < kVector; ++m)
#pragma unroll
            for (int i = 0; i < kEach; ++i) sum[i][j] = m::fma(left[i].v[m], right.v[m], sum[i][j]);
        }
      }
      __syncthreads();
    }
  }

  // sum[i][c][m] += sum_r shared.weights[ty + 16 i][r] * x[x_first + r, kChunk c + kVector tx + m]
  __device__ __forceinline__ void add_weighted(Result& sum, const Matrix<T>& x, int64_t x_first) const {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if (c * kChunk >= x.columns) continue;
      for (int slice = 0; slice < kSize; slice += kDepth) {
        stage(shared.values, x, x_first + slice, c * kChunk);
        __syncthreads();
#pragma unroll 1
        for (int first_r = 0; first_r < kDepth; first_r += kVector) {
          V weights[kEach];
#pragma unroll
          for (int i = 0; i < kEach; ++i)
            weights[i] = load_vector<V>(&shared.weights[row(i)][slice + first_r]);
#pragma unroll
          for (int r = 0; r < kVector; ++r) {
            const V value = load_vector<V>(&shared.values[first_r + r][tx * kVector]);
#pragma unroll
            for (int i = 0; i < kEach; ++i)
#pragma unroll
              for (int m = 0; m < kVector; ++m)
                sum[i][c][m] = m::fma(weights[i].v[r], value.v[m], sum[i][c][m]);
          }
        }
        __syncthreads();
      }
    }
  }

  // Returns the score of query l and key s from the product of their vectors.
  __device__ __forceinline__ C score(C product, int64_t l, int64_t s) const {
    if (l >= a.L || s >= a.S || (a.causal && s > l)) return kLowest<C>;
    const C scaled = product * static_cast<C>(a.scale);
    if (a.mask_type == AttentionMask::kNone) return scaled;
    const int64_t at = mask_offset + l * a.mask.row + s * a.mask.column;
    if (a.mask_type == AttentionMask::kAdded) return scaled + widen(static_cast<const T*>(a.mask.data)[at]);
    return static_cast<const bool*>(a.mask.data)[at] ? scaled : kLowest<C>;
  }

  // Row_max, 1 / total and sum_c dy y of a query.
  struct QueryStats {
    C row_max = 0, inverse = 0, dy_y = 0;
  };
  // Returns keep w for a score, and changes `product`, an element of dy v^T, to ds.
  __device__ __forceinline__ C differentiate(C score, C& product, bool kept, const QueryStats& query) const {
    const C weight = m::exp(score - query.row_max) * query.inverse;
    const C dw = kept ? product * static_cast<C>(a.keep_scale) : C(0);
    product = score == kLowest<C> ? C(0) : weight * (dw - query.dy_y);
    return kept ? weight : C(0);
  }

  // The number of an element of the dropout mask [matrices, L, S].
  __device__ __forceinline__ uint64_t element(int64_t l, int64_t s) const {
    return static_cast<uint64_t>((matrix * a.L + l) * a.S + s);
  }
  // Draws the dropout mask of the tile of queries from l on and keys from s on. A Philox counter has 8 elements,
  // so a row of shared.keep begins with an element whose number is a multiple of 8.
  __device__ __forceinline__ void draw_mask(int64_t l, int64_t s) const {
    if (!a.drops) return;
    constexpr int kCounters = kSize / 8 + 1;
    const PhiloxKey key = read(a.key);
    __syncthreads();
    for (int i = threadIdx.x; i < kSize * kCounters; i += kThreads) {
      const int query = i / kCounters, counter = i % kCounters;
      uint32_t words[4];
      draws::philox(key, element(l + query, s) / 8 + static_cast<uint64_t>(counter), words);
      draws::make_elements<1>(a.keep, words, &shared.keep[query][8 * counter]);
    }
    __syncthreads();
  }
  // Whether dropout keeps a weight of the tile from (l, s) on.
  __device__ __forceinline__ bool keeps(int64_t l, int64_t s, int query, int key) const {
    if (!a.drops) return true;
    return shared.keep[query][element(l + query, s) % 8 + static_cast<uint64_t>(key)];
  }

  // to[matrix, first + ty + 16 i, kChunk c + kVector tx + m] = sum[i][c][m] * scale(i). to: [matrices, rows, columns].
  template <class F>
  __device__ __forceinline__ void store_rows(const AttentionOperand& to, int64_t rows, int64_t columns,
                                             const Result& sum, F&& scale) const {
    T* const data = static_cast<T*>(to.data) + offset_of(to, a, matrix);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int64_t l = first + row(i);
      if (l >= rows) continue;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        const int64_t column = c * kChunk + tx * kVector;
        T* const at = data + l * to.row + column;
        Vector<T, kVector> v;
#pragma unroll
        for (int m = 0; m < kVector; ++m) v.v[m] = convert<T>(sum[i][c][m] * scale(i));
        if (column + kVector <= columns && is_aligned(at, sizeof v)) {
          store(at, v);
          continue;
        }
#pragma unroll
        for (int m = 0; m < kVector; ++m)
          if (column + m < columns) at[m] = v.v[m];
      }
    }
  }
};

// Combines the values of the threads with one ty, which are neighbors in a warp.
template <class C, class F> __device__ __forceinline__ C merge_columns(C value, F&& merge) {
#pragma unroll
  for (int d = kSide / 2; d > 0; d /= 2) value = merge(value, __shfl_xor_sync(kAllLanes, value, d));
  return value;
}

// y = keep_scale (keep w) v, and stats. A block owns queries. After each tile of keys, `total` and `sum` are those of
// exp(s - row_max) for the keys so far; a new maximum rescales them.
template <class T, int head>
__global__ void __launch_bounds__(kThreads, Block<T, head>::kBlocks)
    attend(compute_t<T>* stats, Attention a) {
  using B = Block<T, head>;
  using C = compute_t<T>;
  const B block(a, false);
  typename B::Result sum{};
  C row_max[B::kEach], total[B::kEach]{};
#pragma unroll
  for (C& m : row_max) m = kLowest<C>;
  const int64_t keys = a.causal ? std::min(a.S, block.first + B::kSize) : a.S;
  for (int64_t key = 0; key < keys; key += B::kSize) {
    typename B::Scores scores{};
    block.add_products(scores, block.q, block.first, block.k, key);
    block.draw_mask(block.first, key);
#pragma unroll
    for (int i = 0; i < B::kEach; ++i) {
      C tile_max = row_max[i];
#pragma unroll
      for (int j = 0; j < B::kEach; ++j) {
        scores[i][j] = block.score(scores[i][j], block.first + block.row(i), key + block.column(j));
        tile_max = MaxOp()(tile_max, scores[i][j]);
      }
      tile_max = merge_columns(tile_max, MaxOp());
      // While all keys are masked, the shift is 0, so that weights are 0 instead of NaN.
      const C shift = tile_max == kLowest<C> ? C(0) : tile_max, rescale = m::exp(row_max[i] - shift);
      row_max[i] = tile_max;
      total[i] *= rescale;
#pragma unroll
      for (int c = 0; c < B::kChunks; ++c)
#pragma unroll
        for (int m = 0; m < B::kVector; ++m) sum[i][c][m] *= rescale;
#pragma unroll
      for (int j = 0; j < B::kEach; ++j) {
        const C weight = m::exp(scores[i][j] - shift);
        total[i] += weight;
        block.shared.weights[block.row(i)][block.column(j)] =
            block.keeps(block.first, key, block.row(i), block.column(j)) ? weight : C(0);
      }
    }
    block.add_weighted(sum, block.v, key);
  }
#pragma unroll
  for (int i = 0; i < B::kEach; ++i) {
    const int64_t l = block.first + block.row(i);
    total[i] = merge_columns(total[i], std::plus<>());
    if (row_max[i] == kLowest<C>) total[i] = std::numeric_limits<C>::quiet_NaN();
    if (block.tx == 0 && l < a.L)
      store(stats + 2 * (block.matrix * a.L + l), Vector<C, 2>{row_max[i], total[i]});
  }
  block.store_rows(a.y, a.L, a.V, sum, [&](int i) { return static_cast<C>(a.keep_scale) / total[i]; });
}

// Returns 1 / total of a query; 1 if stats are logsumexp, whose shift divides already.
template <class C> __device__ __forceinline__ C inverse_total(const SoftmaxStats<C>& stats, int64_t query) {
  return stats.count == 2 ? 1 / stats.data[2 * query + 1] : C(1);
}

// dq = scale ds k, and dy_y[l] = sum_c dy[l, c] y[l, c]. A block owns queries.
template <class T, int head>
__global__ void __launch_bounds__(kThreads, Block<T, head>::kBlocks)
    query_gradient(compute_t<T>* dy_y, SoftmaxStats<compute_t<T>> stats, Attention a) {
  using B = Block<T, head>;
  using C = compute_t<T>;
  const B block(a, false);
  const Matrix<T> y(a.y, a, block.matrix, a.L, a.V);
  typename B::QueryStats queries[B::kEach];
#pragma unroll
  for (int i = 0; i < B::kEach; ++i) {
    const int64_t l = block.first + block.row(i), row = block.matrix * a.L + l;
    C partial_sum = 0;
    if (l < a.L)
      for (int64_t c = block.tx; c < a.V; c += kSide)
        partial_sum = m::fma(widen(block.dy.data[l * block.dy.row + c * block.dy.column]),
                             widen(y.data[l * y.row + c]), partial_sum);
    queries[i].dy_y = merge_columns(partial_sum, std::plus<>());
    if (l >= a.L) continue;
    queries[i].row_max = stats.data[stats.count * row], queries[i].inverse = inverse_total(stats, row);
    if (block.tx == 0) dy_y[row] = queries[i].dy_y;
  }
  typename B::Result sum{};
  const int64_t keys = a.causal ? std::min(a.S, block.first + B::kSize) : a.S;
  for (int64_t key = 0; key < keys; key += B::kSize) {
    typename B::Scores scores{}, products{};
    block.add_products(scores, block.q, block.first, block.k, key);
    block.add_products(products, block.dy, block.first, block.v, key);
    block.draw_mask(block.first, key);
#pragma unroll
    for (int e = 0; e < B::kEach * B::kEach; ++e) {
      const int i = e / B::kEach, j = e % B::kEach, l = block.row(i), s = block.column(j);
      const C score = block.score(scores[i][j], block.first + l, key + s);
      block.differentiate(score, products[i][j], block.keeps(block.first, key, l, s), queries[i]);
      block.shared.weights[block.row(i)][block.column(j)] = products[i][j];
    }
    block.add_weighted(sum, block.k, key);
  }
  block.store_rows(a.dq, a.L, a.E, sum, [&](int) { return static_cast<C>(a.scale); });
}

// dk = scale ds^T q, dv = keep_scale (keep w)^T dy. A block owns keys: rows are keys here, columns are queries.
template <class T, int head>
__global__ void __launch_bounds__(kThreads, Block<T, head>::kBlocks)
    key_gradients(const compute_t<T>* dy_y, SoftmaxStats<compute_t<T>> stats, Attention a) {
  using B = Block<T, head>;
  using C = compute_t<T>;
  const B block(a, true);
  typename B::Result sum_k{}, sum_v{};
  for (int64_t query = a.causal ? block.first : 0; query < a.L; query += B::kSize) {
    typename B::Scores scores{}, products{};
    block.add_products(scores, block.k, block.first, block.q, query);
    block.add_products(products, block.v, block.first, block.dy, query);
    block.draw_mask(query, block.first);
#pragma unroll
    for (int j = 0; j < B::kEach; ++j) {
      const int l = block.column(j);
      const int64_t row = block.matrix * a.L + query + l;
      typename B::QueryStats of;
      if (query + l < a.L) of = {stats.data[stats.count * row], inverse_total(stats, row), dy_y[row]};
#pragma unroll
      for (int i = 0; i < B::kEach; ++i) {
        const C score = block.score(scores[i][j], query + l, block.first + block.row(i));
        const bool kept = block.keeps(query, block.first, l, block.row(i));
        block.shared.weights[block.row(i)][l] = block.differentiate(score, products[i][j], kept, of);
      }
    }
    block.add_weighted(sum_v, block.dy, query);
#pragma unroll
    for (int e = 0; e < B::kEach * B::kEach; ++e)
      block.shared.weights[block.row(e / B::kEach)][block.column(e % B::kEach)] =
          products[e / B::kEach][e % B::kEach];
    block.add_weighted(sum_k, block.q, query);
  }
  block.store_rows(a.dk, a.S, a.E, sum_k, [&](int) { return static_cast<C>(a.scale); });
  block.store_rows(a.dv, a.S, a.V, sum_v, [&](int) { return static_cast<C>(a.keep_scale); });
}

// Calls f<head>() with the smallest of the compiled numbers of columns that holds E and V.
template <class F> void with_head(const Attention& a, F&& f) {
  const int64_t columns = std::max(a.E, a.V);
  if (columns > 128) return f.template operator()<256>();
  columns > 64 ? f.template operator()<128>() : f.template operator()<64>();
}
template <class B> Grid grid_of(const Attention& a, int64_t rows) {
  return {a.matrices * blocks_for(rows, B::kSize), kThreads, sizeof(typename B::Shared)};
}

}  // namespace

template <class T>
void attention(const char* op, compute_t<T>* stats, const Attention& a, cudaStream_t stream) {
  with_head(
      a, [&]<int head>() { launch(op, attend<T, head>, grid_of<Block<T, head>>(a, a.L), stream, stats, a); });
}

template <class T>
void attention_backward(const char* op, compute_t<T>* dy_y, SoftmaxStats<compute_t<T>> stats,
                        const Attention& a, cudaStream_t stream) {
  with_head(a, [&]<int head>() {
    using B = Block<T, head>;
    launch(op, query_gradient<T, head>, grid_of<B>(a, a.L), stream, dy_y, stats, a);
    launch(op, key_gradients<T, head>, grid_of<B>(a, a.S), stream, dy_y, stats, a);
  });
}

#define GRADUS_INSTANTIATE(T)                                                                 \
  template void attention<T>(const char*, compute_t<T>*, const Attention&, cudaStream_t);     \
  template void attention_backward<T>(const char*, compute_t<T>*, SoftmaxStats<compute_t<T>>, \
                                      const Attention&, cudaStream_t);
GRADUS_INSTANTIATE(float)
GRADUS_INSTANTIATE(double)
GRADUS_INSTANTIATE(bf16)
GRADUS_INSTANTIATE(f16)
#undef GRADUS_INSTANTIATE

}  // namespace gradus::cuda
