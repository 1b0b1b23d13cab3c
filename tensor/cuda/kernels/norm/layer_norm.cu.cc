// CUDA kernels of layer norm and RMS norm over the n elements of a row, and of their gradients
// (layer_norm.h). A thread group (thread_groups.h) normalizes a row, or computes dx of a row: it keeps the
// row in registers if it fits, otherwise each pass over the row reads the row again. dweight and dbias are
// sums over the rows, by tiles of columns and pieces of rows (Note [Sums by channel] in channel_sums.h): one
// launch writes the sums of each piece, a second one adds them in the order of the pieces. Elements of a
// vector, or of 16 rows, are added in T, these sums in f64.
#include "gradus/tensor/cuda/kernels/norm/layer_norm.h"

#include "gradus/tensor/cuda/kernels/norm/batch_norm.h"
#include "gradus/tensor/cuda/kernels/norm/channel_sums.h"
#include "gradus/tensor/cuda/kernels/thread_groups.h"
#include "gradus/tensor/ops/formulas/layer_norm.h"

namespace gradus::cuda {
namespace {

namespace column_sums = channel_sums_detail;
using formulas::RowNormalizer;

// Vectors of each operand that a thread caches: as many as nvcc compiles to 64 registers without spills.
constexpr int kForwardVectors = 6, kBackwardVectors = 4;

// Shared memory of a block, for two sums of a thread group.
struct SumScratch {
  double first[kBlockThreads], second[kBlockThreads];
};

// The calling thread's vectors of a row, of type V. If each > 0, at most `each` vectors, in registers; otherwise
// any number, which every pass loads again. load(i) loads the vector at element i of the row.
template <class V, int vector, int each> struct RowVectors {
  V cached[each > 0 ? each : 1];

  template <class Load>
  __device__ __forceinline__ void fill(const ThreadGroups& groups, const ThreadIndex& thread, Load&& load) {
    for_each_cached<each, vector>(groups, thread, [&](int e, int i) { cached[e] = load(i); });
  }
  // Calls f(i, v) for each vector v, at element i of the row.
  template <class Load, class F>
  __device__ __forceinline__ void for_each(const ThreadGroups& groups, const ThreadIndex& thread, Load&& load,
                                           F&& f) const {
    if constexpr (each > 0)
      for_each_cached<each, vector>(groups, thread, [&](int e, int i) { f(i, cached[e]); });
    else
      for_each_vector<vector>(groups, thread, [&](int64_t i) { f(i, load(i)); });
  }
};

// y[r, i] = z * weight[i] + bias[i]
//   z = (x[r, i] - mean) * inv_std, mean = mean_i(x[r, i])
//   inv_std = 1 / sqrt(var + eps), var = mean_i((x[r, i] - mean)^2)
// stats[r] = (mean, inv_std). If not `centered`, mean = 0. inv_n = 1 / n; dividing here would take registers. A
// thread group has row r. The first pass sums differences to x[r, 0], so that a large mean costs no precision.
template <class T, int vector, int each>
__global__ void __launch_bounds__(kBlockThreads, 4)
    layer_norm_rows(T* y, double* stats, const T* x, const T* weight, const T* bias, ThreadGroups groups,
                    double inv_n, double eps, bool centered) {
  using V = Vector<T, vector>;
  const ThreadIndex thread = thread_index(groups);
  auto& scratch = shared_memory<SumScratch>();
  const auto load_x = [&](auto i) { return load_from_row<vector>(x, groups, thread, i); };
  const T first = thread.limit > 0 ? x[thread.first] : T(0);
  RowVectors<V, vector, each> row;
  row.fill(groups, thread, load_x);
  const auto mean_of = [&](double(&shared)[kBlockThreads], auto&& term) {
    double sum = 0;
    row.for_each(groups, thread, load_x, [&](auto, const V& v) {
      T partial_sum = 0;
#pragma unroll
      for (int k = 0; k < vector; ++k) partial_sum += term(v.v[k]);
      sum += static_cast<double>(partial_sum);
    });
    return merge_group(groups, sum, shared, AddOp{}) * inv_n;
  };
  double mean = 0;
  if (centered) mean = static_cast<double>(first) + mean_of(scratch.first, [&](T v) { return v - first; });
  const T rounded_mean = static_cast<T>(mean);
  const double rounding = static_cast<double>(rounded_mean) - mean;
  double var = mean_of(scratch.second, [&](T v) { return (v - rounded_mean) * (v - rounded_mean); }) -
               rounding * rounding;
  if (var < 0) var = 0;  // negative by rounding; NaN stays NaN
  const double inv_std = 1 / m::sqrt(var + eps);
  if (thread.rank == 0 && thread.limit > 0)
    store_vector(stats + 2 * thread.row, Vector<double, 2>{mean, inv_std});
  const RowNormalizer<T> normalize(mean, inv_std);
  row.for_each(groups, thread, load_x, [&](auto i, const V& v) {
    V out;
#pragma unroll
    for (int k = 0; k < vector; ++k) out.v[k] = normalize(v.v[k]);
    if (weight) {
      const V w = load<vector>(weight + i);
#pragma unroll
      for (int k = 0; k < vector; ++k) out.v[k] *= w.v[k];
    }
    if (bias) {
      const V b = load<vector>(bias + i);
#pragma unroll
      for (int k = 0; k < vector; ++k) out.v[k] += b.v[k];
    }
    store_to_row(y, groups, thread, i, out);
  });
}

// Vectors of two operands at one position.
template <class V> struct VectorPair {
  V first, second;
};

// dx[r, i] = (g - mean_i(g) - z * mean_i(g * z)) * inv_std
//   g = dy[r, i] * weight[i], z = (x[r, i] - mean) * inv_std, (mean, inv_std) = stats[r]
// Without mean_i(g) if not `centered`. inv_n = 1 / n. A thread group has row r.
template <class T, int vector, int each>
__global__ void __launch_bounds__(kBlockThreads, 4)
    layer_norm_backward_rows(T* dx, const T* dy, const T* x, const double* stats, const T* weight,
                             ThreadGroups groups, double inv_n, bool centered) {
  using V = Vector<T, vector>;
  const ThreadIndex thread = thread_index(groups);
  auto& scratch = shared_memory<SumScratch>();
  const auto load_dy_x = [&](auto i) {
    return VectorPair<V>{load_from_row<vector>(dy, groups, thread, i),
                         load_from_row<vector>(x, groups, thread, i)};
  };
  Vector<double, 2> row_stats{};
  if (thread.limit > 0) row_stats = load_vector<Vector<double, 2>>(stats + 2 * thread.row);
  RowVectors<VectorPair<V>, vector, each> row;
  row.fill(groups, thread, load_dy_x);
  const RowNormalizer<T> normalize(row_stats.v[0], row_stats.v[1]);
  // Returns g and z.
  const auto terms_of = [&](auto i, VectorPair<V> v) {
    if (weight) {
      const V w = load<vector>(weight + i);
#pragma unroll
      for (int k = 0; k < vector; ++k) v.first.v[k] *= w.v[k];
    }
#pragma unroll
    for (int k = 0; k < vector; ++k) v.second.v[k] = normalize(v.second.v[k]);
    return v;
  };
  double sum_g = 0, sum_gz = 0;
  row.for_each(groups, thread, load_dy_x, [&](auto i, const VectorPair<V>& v) {
    const auto [g, z] = terms_of(i, v);
    T partial_g = 0, partial_gz = 0;
#pragma unroll
    for (int k = 0; k < vector; ++k) partial_g += g.v[k], partial_gz += g.v[k] * z.v[k];
    sum_g += static_cast<double>(partial_g), sum_gz += static_cast<double>(partial_gz);
  });
  T mean_g = 0;
  if (centered) mean_g = static_cast<T>(merge_group(groups, sum_g, scratch.first, AddOp{}) * inv_n);
  const T mean_gz = static_cast<T>(merge_group(groups, sum_gz, scratch.second, AddOp{}) * inv_n);
  row.for_each(groups, thread, load_dy_x, [&](auto i, const VectorPair<V>& v) {
    const auto [g, z] = terms_of(i, v);
    V out;
#pragma unroll
    for (int k = 0; k < vector; ++k) out.v[k] = normalize.gradient(g.v[k], z.v[k], mean_g, mean_gz);
    store_to_row(dx, groups, thread, i, out);
  });
}

// sums[p, 0, i] = sum_r dy[r, i] * z, sums[p, 1, i] = sum_r dy[r, i], over the rows r of piece p
//   z = (x[r, i] - mean) * inv_std, (mean, inv_std) = stats[r]
// If there is one piece, these sums are dweight[i] and dbias[i]. A block has one piece and a tile of columns, a
// thread `columns` neighboring columns of every grid.groups-th row.
template <class T, int columns>
__global__ void __launch_bounds__(kBlockThreads, 4)
    layer_norm_parameter_sums(column_sums::GridPartition grid, T* dweight, T* dbias, const T* dy, const T* x,
                              const double* stats, double* sums) {
  constexpr int kRows = column_sums::kRowsInFlight / 2;  // registers do not suffice for more
  column_sums::ThreadIndex thread = column_sums::thread_index<columns>(grid);
  auto& shared = shared_memory<column_sums::Sums<columns>>();
  shared.clear(grid);
  if (thread.channel < grid.channels) {
    int64_t row = thread.piece * grid.length + threadIdx.x / grid.lanes;  // the next row to load
    column_sums::for_each_stretch(thread, [&](int rows) {
      T sum_dy[columns]{}, sum_dyz[columns]{};
      Vector<T, columns> g[kRows], v[kRows];
      Vector<double, 2> row_stats[kRows];
      column_sums::for_each_row<kRows>(
          thread, rows,
          [&](int e, int64_t at) {
            g[e] = load<columns>(dy + at), v[e] = load<columns>(x + at);
            row_stats[e] = load_vector<Vector<double, 2>>(stats + 2 * row);
            row += grid.groups;
          },
          [&](int e, int64_t) {
            const RowNormalizer<T> normalize(row_stats[e].v[0], row_stats[e].v[1]);
#pragma unroll
            for (int k = 0; k < columns; ++k) {
              sum_dyz[k] += g[e].v[k] * normalize(v[e].v[k]);
              sum_dy[k] += g[e].v[k];
            }
          });
#pragma unroll
      for (int k = 0; k < columns; ++k)
        shared.add(grid, k, static_cast<double>(sum_dyz[k]), static_cast<double>(sum_dy[k]));
    });
  }
  column_sums::reduce_groups(grid, thread, shared, [&](int i, int k, double sum) {
    const int64_t column = thread.channel + k;
    if (grid.pieces == 1)
      (i == 0 ? dweight : dbias)[column] = static_cast<T>(sum);
    else
      sums[(int64_t{thread.piece} * 2 + i) * grid.channels + column] = sum;
  });
}

// Calls f<vector, each>(groups) with the groups for one row each. A thread caches at most `each` = `vectors`
// vectors of 16 bytes, or of one element if rows are not aligned; each = 0: rows that do not fit.
template <class T, int vectors, class F> void with_groups(int64_t rows, int64_t n, bool in_vectors, F&& f) {
  const auto choose = [&]<int vector>() {
    const ThreadGroups groups = thread_groups_for(rows, n, 1, vector, vectors * vector);
    if (n <= int64_t{groups.size} * vectors * vector) return f.template operator()<vector, vectors>(groups);
    f.template operator()<vector, 0>(groups);
  };
  in_vectors ? choose.template operator()<kVectorSize<T>>() : choose.template operator()<1>();
}

Grid grid_of(const ThreadGroups& groups) { return {groups.blocks(), kBlockThreads, sizeof(SumScratch)}; }

}  // namespace

template <class T>
void layer_norm(const char* op, T* y, double* stats, const T* x, const T* weight, const T* bias, int64_t rows,
                int64_t n, double eps, bool centered, cudaStream_t stream) {
  const bool in_vectors = has_vector_rows(n, 1, y, x, weight, bias);
  with_groups<T, kForwardVectors>(rows, n, in_vectors, [&]<int vector, int each>(const ThreadGroups& groups) {
    launch(op, layer_norm_rows<T, vector, each>, grid_of(groups), stream, y, stats, x, weight, bias, groups,
           1.0 / static_cast<double>(n), eps, centered);
  });
}

// The sums of the pieces have the layout of batch norm's: f64 [pieces, 2, n].
int64_t layer_norm_backward_workspace(int64_t rows, int64_t n) { return batch_norm_workspace(rows, n); }

template <class T>
void layer_norm_backward(const char* op, T* dx, T* dweight, T* dbias, const T* dy, const T* x,
                         const double* stats, const T* weight, int64_t rows, int64_t n, bool centered,
                         void* workspace, cudaStream_t stream) {
  const bool in_vectors = has_vector_rows(n, 1, dx, dy, x, weight);
  with_groups<T, kBackwardVectors>(
      rows, n, in_vectors, [&]<int vector, int each>(const ThreadGroups& groups) {
        launch(op, layer_norm_backward_rows<T, vector, each>, grid_of(groups), stream, dx, dy, x, stats,
               weight, groups, 1.0 / static_cast<double>(n), centered);
      });
  auto* const sums = static_cast<double*>(workspace);
  column_sums::with_partition<column_sums::kSummedChannels<T>>(
      rows, n,
      [&]<int columns>(const column_sums::GridPartition& grid) {
        launch(op, layer_norm_parameter_sums<T, columns>,
               column_sums::grid_of<column_sums::Sums<columns>>(grid), stream, grid, dweight, dbias, dy, x,
               stats, sums);
        const T* const none = nullptr;
        if (grid.pieces > 1)
          column_sums::run_finish(op, dweight, dbias, none, rows, n, sums, grid.pieces, stream);
      },
      x, dy);
}

#define GRADUS_INSTANTIATE(T)                                                                                \
  template void layer_norm(const char*, T*, double*, const T*, const T*, const T*, int64_t, int64_t, double, \
                           bool, cudaStream_t);                                                              \
  template void layer_norm_backward(const char*, T*, T*, T*, const T*, const T*, const double*, const T*,    \
                                    int64_t, int64_t, bool, void*, cudaStream_t);
GRADUS_INSTANTIATE(float)
GRADUS_INSTANTIATE(double)
#undef GRADUS_INSTANTIATE

}  // namespace gradus::cuda
