// CUDA kernels of multinomial sampling: out[row, :] = `count` indices in [0, n), drawn in proportion to
// weights[row, :] from given uniform random numbers. With replacement: prefix sums in the order of Note [Order of
// running sums] (tensor/ops/formulas/multinomial.h), then two binary searches per draw, for the chunk and within
// the chunk. Without replacement: the first `count` elements of a merge sort by arrival time (same file).
#include "gradus/tensor/cuda/kernels/multinomial.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/cuda/kernels/merge_sort.h"
#include "gradus/tensor/cuda/kernels/report.h"
#include "gradus/tensor/ops/formulas/multinomial.h"

namespace gradus::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kGroup = draws::kGroupWeights, kChunk = draws::kChunkWeights;
static_assert(kChunk == kWarp * kGroup);

// kChunk neighboring weights of a row; the last chunk of a row may be shorter.
struct Chunk {
  double sum;  // after sum_chunks: the sum of its weights; after add_chunks: the row's running sum at its end
  int64_t positive;  // number of weights above 0
};

// Shared memory: the chunk of each warp. One unused element after each group of kGroup makes the lanes, which read
// one group each, access different banks. place_of maps an element of the chunk to its index in the padded array.
struct Staged {
  double v[kWarps][kChunk + kWarp];
};
__device__ __forceinline__ int place_of(int element) { return element + element / kGroup; }

// chunks[row, c] = sum and number of positive weights of chunk c of weights[rows, n]; sums[row, i] = running sum
// at weight i within its chunk, unless `sums` is null. `per_row` is the number of chunks in a row. An invalid
// weight (negative, infinite or NaN) is replaced by NaN, which makes the sum of its chunk NaN. A warp sums one
// chunk, a lane one group of kGroup weights.
__global__ void __launch_bounds__(kThreads, 4)
    sum_chunks(Chunk* chunks, double* sums, const double* weights, int64_t rows, int64_t n, int64_t per_row) {
  const int lane = threadIdx.x % kWarp;
  double* const local = shared_memory<Staged>().v[threadIdx.x / kWarp];
  const int64_t chunk = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp, row = chunk / per_row;
  const int64_t before = chunk % per_row * kChunk, first = row * n + before,
                left = row < rows ? n - before : 0;
#pragma unroll
  for (int k = 0; k < kGroup; ++k) {
    const int e = k * kWarp + lane;
    const double w = e < left ? weights[first + e] : 0;
    local[place_of(e)] = draws::is_valid_weight(w) ? w : std::numeric_limits<double>::quiet_NaN();
  }
  __syncwarp(kAllLanes);
  double* const group = local + place_of(lane * kGroup);
  double sum = 0;
  int positive = 0;
#pragma unroll
  for (int k = 0; k < kGroup; ++k) {
    sum += group[k];
    positive += group[k] > 0;
  }
  double groups = 0;  // sum of the groups before this lane's
#pragma unroll
  for (int l = 0; l < kWarp - 1; ++l) {
    const double other = __shfl_sync(kAllLanes, sum, l);
    if (l < lane) groups += other;
  }
#pragma unroll
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) positive += __shfl_xor_sync(kAllLanes, positive, lanes);
  if (lane == kWarp - 1 && left > 0) chunks[chunk] = {groups + sum, positive};
  if (!sums) return;
  sum = 0;
#pragma unroll
  for (int k = 0; k < kGroup; ++k) {
    sum += group[k];
    group[k] = groups + sum;
  }
  __syncwarp(kAllLanes);
#pragma unroll
  for (int k = 0; k < kGroup; ++k) {
    const int e = k * kWarp + lane;
    if (e < left) sums[first + e] = local[place_of(e)];
  }
}

// chunks[row, c].sum = sum of chunks 0 .. c of a row. Reports an error of the row, with p = row * reports.per_row:
// at position p + i the first invalid weight i, at p + n a total that is not positive and finite, at p + n + 1 a
// number of positive weights less than `needed`. The host throws the report with the smallest position. A warp
// sums one row, a lane reads every kWarp-th chunk.
__global__ void __launch_bounds__(kThreads, 4)
    add_chunks(Chunk* chunks, const double* weights, int64_t rows, int64_t n, int64_t per_row, int64_t needed,
               ValueReports reports) {
  const int lane = threadIdx.x % kWarp;
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (row >= rows) return;
  Chunk* const of_row = chunks + row * per_row;
  double total = 0;
  // wrong: where the lane's first chunk with a running sum of NaN begins; n: there is none.
  int64_t positive = 0, wrong = n;
  for (int64_t at = 0; at < per_row; at += kWarp) {
    const int64_t number = at + lane;
    const Chunk chunk = number < per_row ? of_row[number] : Chunk{0, 0};
    double sum = 0;
#pragma unroll
    for (int l = 0; l < kWarp; ++l) {
      total += __shfl_sync(kAllLanes, chunk.sum, l);
      if (l == lane) sum = total;
    }
    positive += chunk.positive;
    if (number < per_row) of_row[number].sum = sum;
    if (sum != sum) wrong = std::min(wrong, number * kChunk);
  }
#pragma unroll
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) positive += __shfl_xor_sync(kAllLanes, positive, lanes);
  const int64_t position = row * reports.per_row;
  // One lane has the row's first chunk with an invalid weight. Others report greater positions, if any.
  const int64_t behind = std::min(n, wrong + kChunk);
  for (int64_t i = wrong; i < behind; ++i) {
    const double w = weights[row * n + i];
    if (draws::is_valid_weight(w)) continue;
    report(reports, position + i, std::bit_cast<uint64_t>(w));
    break;
  }
  if (lane != 0 || total != total) return;
  if (!draws::is_valid_total(total))
    report(reports, position + n, std::bit_cast<uint64_t>(total));
  else if (positive < needed)
    report(reports, position + n + 1, static_cast<uint64_t>(positive));
}

// Returns the first i in [0, count) with sum(i) > v, or count - 1 if there is none. sum(i) must not decrease.
template <class F> __device__ __forceinline__ int64_t first_above(double v, int64_t count, F&& sum) {
  int64_t first = 0, last = count - 1;
  while (first < last) {
    const int64_t middle = (first + last) / 2;
    if (sum(middle) > v)
      last = middle;
    else
      first = middle + 1;
  }
  return first;
}

// With replacement: out[row, i] = first element whose running sum is above uniform[row, i] * total; 0 for a
// row whose total is invalid. A thread computes one draw: it finds the chunk, then the weight.
__global__ void __launch_bounds__(kThreads, 4)
    draw_again(Multinomial m, const Chunk* chunks, const double* sums, int64_t per_row) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x, row = i / m.count;
  if (row >= m.rows) return;
  const Chunk* const of_row = chunks + row * per_row;
  const double total = of_row[per_row - 1].sum;
  int64_t drawn = 0;
  if (draws::is_valid_total(total)) {
    const double v = draws::threshold(m.uniform[i], total, draws::previous_double(total));
    const int64_t chunk = first_above(v, per_row, [&](int64_t c) { return of_row[c].sum; });
    const double before = chunk > 0 ? of_row[chunk - 1].sum : 0;
    const int64_t first = chunk * kChunk, left = m.n - first;
    const double* const of_chunk = sums + row * m.n + first;
    drawn = first +
            first_above(v, std::min<int64_t>(kChunk, left), [&](int64_t e) { return before + of_chunk[e]; });
  }
  m.out[i] = drawn;
}

// Without replacement the elements with the `count` smallest arrival times are drawn. The key of an element: the
// bits of its arrival time, a double >= 0; such bits are ordered as the numbers are.
struct ArrivalBits {
  const double *uniform, *weights;
  __device__ __forceinline__ uint64_t operator()(int64_t i) const {
    return std::bit_cast<uint64_t>(draws::arrival_time(uniform[i], weights[i]));
  }
};

// Number of chunks in a row of n weights.
int64_t chunks_of(int64_t n) { return blocks_for(n, kChunk); }
// The sort by arrival times of a draw without replacement.
MergeSortArgs sort_of(const Multinomial& m) { return {m.rows, m.n, m.count, m.out}; }

}  // namespace

// The workspace: the chunks of all rows, then with replacement the running sums within chunks [rows, n], without
// replacement the workspace of the sort.
int64_t multinomial_workspace(const Multinomial& m, bool replacement) {
  const int64_t chunks = m.rows * chunks_of(m.n) * int64_t{sizeof(Chunk)};
  const int64_t sums = m.rows * m.n * int64_t{sizeof(double)};
  return chunks + (replacement ? sums : merge_sort_workspace(sort_of(m)));
}

void multinomial(const char* op, const Multinomial& m, bool replacement, void* workspace,
                 const ValueReports& reports, cudaStream_t stream) {
  const int64_t per_row = chunks_of(m.n);
  auto* const chunks = static_cast<Chunk*>(workspace);
  void* const behind = chunks + m.rows * per_row;
  double* const sums = replacement ? static_cast<double*>(behind) : nullptr;
  launch(op, sum_chunks, {blocks_for(m.rows * per_row, kWarps), kThreads, sizeof(Staged)}, stream, chunks,
         sums, m.weights, m.rows, m.n, per_row);
  launch(op, add_chunks, {blocks_for(m.rows, kWarps), kThreads}, stream, chunks, m.weights, m.rows, m.n,
         per_row, replacement ? 0 : m.count, reports);
  if (replacement)
    launch(op, draw_again, {blocks_for(m.rows * m.count, kThreads), kThreads}, stream, m, chunks, sums,
           per_row);
  else
    merge_sort(op, sort_of(m), ArrivalBits{m.uniform, m.weights}, behind, stream);
}

}  // namespace gradus::cuda
