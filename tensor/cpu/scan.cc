// CPU kernels along one dim of a row-major tensor: max and min with indices, and the scans cumsum, cumprod,
// logcumsumexp, cummax, cummin and first-order linear recurrences. Tensors are viewed as [outer, n, inner]
// around the dim of size n (KernelSlots in tensor/ops/reduce.h), which is not 0 for max and min. Indices are
// i64, and so are sums of integers; other results have x's dtype. Floats accumulate in f64 (AccumulatorOf),
// in an order that does not depend on the number of threads. `reverse` scans from the end.
#include <limits>

#include "gradus/tensor/cpu/reduce_loops.h"
#include "gradus/tensor/cpu/reduce_types.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/formulas/scan.h"
#include "gradus/tensor/ops/reduce.h"

namespace gradus::raw {
namespace {

using namespace cpu;

// Returns the number of adjacent columns that are processed together: up to kTile, fewer if threads would be
// idle. Results do not depend on it.
int64_t column_tile(int64_t outer, int64_t inner) {
  return std::clamp<int64_t>((outer * inner / num_threads() + 15) / 16 * 16, 1, std::min(inner, kTile));
}

// The maximum (`largest`) or minimum of a row and its first index. NaN counts as the extremum.
template <class T, bool largest> void extremum_row(T* value, int64_t* index, const T* x, int64_t n) {
  using V = ComparisonType<T>;
  const V best = reduce_row(Extreme<T, largest>{}, x, n, 1);
  const auto matches = [best](T v) {
    return (static_cast<V>(v) == best) | (is_nan(best) & is_nan(static_cast<V>(v)));
  };
  // Finds the block with the first match without a branch per element, then the element.
  int64_t at = 0;
  for (int any_match = 0; at + kLanes <= n; at += kLanes) {
    for (int j = 0; j < kLanes; ++j) any_match |= matches(x[at + j]);
    if (any_match) break;
  }
  while (!matches(x[at])) ++at;
  *value = static_cast<T>(best);
  *index = at;
}

// The extrema of `width` adjacent columns of an [n, inner] matrix. Row numbers are integers of the size of
// the values, so that a vector of values and one of row numbers have the same lanes. They are relative to
// `first`, which advances before they could overflow.
template <class T, bool largest>
void extremum_columns(T* values, int64_t* indices, const T* x, int64_t n, int64_t inner, int64_t width) {
  using V = ComparisonType<T>;
  using Step = std::conditional_t<sizeof(V) == 8, int64_t, int32_t>;
  constexpr int64_t kSteps = int64_t(1) << 30;
  V best[kTile];
  Step at[kTile];
  for (int64_t j = 0; j < width; ++j) best[j] = static_cast<V>(x[j]), indices[j] = 0;
  for (int64_t first = 0; first < n; first += kSteps) {
    for (int64_t j = 0; j < width; ++j) at[j] = -1;
    const Step steps = static_cast<Step>(std::min(kSteps, n - first));
    for (Step i = 0; i < steps; ++i) {
      const T* row = x + (first + i) * inner;
      for (int64_t j = 0; j < width; ++j) {
        const V v = static_cast<V>(row[j]);
        const bool better = (largest ? v > best[j] : v < best[j]) | (is_nan(v) & !is_nan(best[j]));
        best[j] = better ? v : best[j];
        at[j] = better ? i : at[j];
      }
    }
    for (int64_t j = 0; j < width; ++j) indices[j] = at[j] < 0 ? indices[j] : first + at[j];
  }
  for (int64_t j = 0; j < width; ++j) values[j] = static_cast<T>(best[j]);
}

// values and indices (i64) [outer, inner]; x [outer, n, inner].
template <class T, bool largest>
void extremum(const Tensor& values, const Tensor& indices, const Tensor& x, int64_t inner) {
  const int64_t outputs = values.numel(), n = x.numel() / outputs;
  const T* p = x.ptr<T>();
  T* v = values.ptr<T>();
  int64_t* at = indices.ptr<int64_t>();
  if (inner == 1) {
    parallel_for(0, outputs, std::max<int64_t>(1, kTask / n), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) extremum_row<T, largest>(v + i, at + i, p + i * n, n);
    });
    return;
  }
  const int64_t tile = column_tile(outputs / inner, inner), tiles = (inner + tile - 1) / tile;
  const int64_t grain = std::max<int64_t>(1, kTask / (n * tile));
  parallel_for(0, outputs / inner * tiles, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t outer = i / tiles, first = i % tiles * tile, out = outer * inner + first;
      extremum_columns<T, largest>(v + out, at + out, p + outer * n * inner + first, n, inner,
                                   std::min(tile, inner - first));
    }
  });
}

void extremum_cpu(const Tensor& values, const Tensor& indices, const Tensor& x, int64_t inner, bool largest) {
  if (values.numel() == 0) return;
  dispatch_bool_as_u8(x, [&]<class T>() {
    largest ? extremum<T, true>(values, indices, x, inner) : extremum<T, false>(values, indices, x, inner);
  });
}

// Scans `count` rows of length n interleaved, to hide the latency of the dependency between successive steps
// of a row.
template <int count, class State, class Visit>
void scan_rows(int64_t first, int64_t n, bool reverse, const State& start, Visit&& visit) {
  State states[count];
  for (State& s : states) s = start;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = first + (reverse ? n - 1 - i : i);
    for (int r = 0; r < count; ++r) visit(states[r], at + r * n, i);
  }
}

// Sequential scan along dim 1 of x [outer, n, inner]: for each of the outer * inner slices calls
// visit(state, offset, step) for step = 0..n-1, where offset is the element's position in x. `state` begins
// as `start`; `reverse` visits from the end. Slices run in parallel.
template <class State, class Visit>
void scan(const Tensor& x, bool reverse, const State& start, Visit&& visit) {
  const int64_t outer = x.shape()[0], n = x.shape()[1], inner = x.shape()[2];
  if (x.numel() == 0) return;
  if (inner == 1) {
    constexpr int kGroup = 8;
    parallel_for(0, (outer + kGroup - 1) / kGroup, std::max<int64_t>(1, kTask / kGroup / n),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t g = begin; g < end; ++g) {
                     if (const int64_t row = g * kGroup; row + kGroup <= outer) {
                       scan_rows<kGroup>(row * n, n, reverse, start, visit);
                     } else {
                       for (int64_t r = row; r < outer; ++r) scan_rows<1>(r * n, n, reverse, start, visit);
                     }
                   }
                 });
    return;
  }
  const int64_t tile = column_tile(outer, inner);
  const int64_t tiles = (inner + tile - 1) / tile;
  parallel_for(0, outer * tiles, std::max<int64_t>(1, kTask / (n * tile)), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t first = t % tiles * tile, width = std::min(tile, inner - first);
      const int64_t base = t / tiles * n * inner + first;
      State states[kTile];
      for (int64_t j = 0; j < width; ++j) states[j] = start;
      for (int64_t i = 0; i < n; ++i) {
        const int64_t at = base + (reverse ? n - 1 - i : i) * inner;
        for (int64_t j = 0; j < width; ++j) visit(states[j], at + j, i);
      }
    }
  });
}

// Note [Running sums of a row]
// Two-pass parallel prefix sum. A row is divided into segments of kSegment elements. The first pass computes
// the total of each segment; a segment's scan then starts from the sum of the totals before it. So the scans
// of kStreams segments are interleaved, which hides the latency of the additions, and several threads can
// share a long row.
constexpr int64_t kSegment = 512, kStreams = 8, kBatch = kSegment * kStreams;

// Returns the sum of kSegment elements.
template <class T> AccumulatorOf<T> segment_total(const T* x) {
  AccumulatorOf<T> lanes[16] = {};
  for (int64_t i = 0; i < kSegment; i += 16)
    for (int j = 0; j < 16; ++j) lanes[j] += static_cast<AccumulatorOf<T>>(x[i + j]);
  for (int half = 8; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  return lanes[0];
}

// The prefix sums y of one row x of n elements. `step` is 1 (forward) or -1 (reverse); x and y point to the
// first elements in that direction.
template <class T, class R, int64_t step> class RowSums {
 public:
  using Accumulator = AccumulatorOf<T>;
  RowSums(R* y, const T* x, int64_t n) : y_(y), x_(x), n_(n) {}
  void run() const {
    Accumulator carry = 0;
    int64_t at = 0;
    for (; n_ - at >= kBatch; at += kBatch) {
      Accumulator totals[kStreams];
      for (int64_t s = 0; s < kStreams; ++s) totals[s] = total(at + s * kSegment);
      carry = run_batch(at, totals, carry);
    }
    run_tail(at, carry);
  }

  // Computes the same bits as run(), on several threads.
  void run_parallel() const {
    const int64_t batches = n_ / kBatch;
    std::vector<Accumulator> totals(batches * kStreams), carries(batches + 1);
    parallel_for(0, batches * kStreams, 16, [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) totals[s] = total(s * kSegment);
    });
    for (int64_t p = 0; p < batches; ++p) {
      carries[p + 1] = carries[p];
      for (int64_t s = 0; s < kStreams; ++s) carries[p + 1] += totals[p * kStreams + s];
    }
    parallel_for(0, batches, 2, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) run_batch(p * kBatch, &totals[p * kStreams], carries[p]);
    });
    run_tail(batches * kBatch, carries[batches]);
  }

 private:
  Accumulator total(int64_t at) const { return segment_total(step > 0 ? x_ + at : x_ - at - (kSegment - 1)); }

  // Writes kBatch prefix sums from element `at`. Returns the sum before the next batch (carry).
  Accumulator run_batch(int64_t at, const Accumulator* totals, Accumulator carry) const {
    Accumulator sums[kStreams];
    for (int64_t s = 0; s < kStreams; ++s) sums[s] = carry, carry += totals[s];
    const T* x = x_ + step * at;
    R* y = y_ + step * at;
    for (int64_t i = 0; i < kSegment; ++i)
      for (int64_t s = 0; s < kStreams; ++s) {
        sums[s] += static_cast<Accumulator>(x[step * (s * kSegment + i)]);
        y[step * (s * kSegment + i)] = static_cast<R>(sums[s]);
      }
    return carry;
  }

  void run_tail(int64_t at, Accumulator sum) const {
    for (; at < n_; ++at) y_[step * at] = static_cast<R>(sum += static_cast<Accumulator>(x_[step * at]));
  }
  R* y_;
  const T* x_;
  int64_t n_;
};

// Cumulative sums of `rows` contiguous rows of length n. Few long rows are divided among threads.
template <class T, class R, int64_t step> void cumsum_rows(R* y, const T* x, int64_t rows, int64_t n) {
  const int64_t first = step > 0 ? 0 : n - 1;
  if (rows < num_threads() && n >= 4 * kBatch) {
    for (int64_t r = 0; r < rows; ++r)
      RowSums<T, R, step>(y + r * n + first, x + r * n + first, n).run_parallel();
    return;
  }
  parallel_for(0, rows, std::max<int64_t>(1, kTask / n), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) RowSums<T, R, step>(y + r * n + first, x + r * n + first, n).run();
  });
}

void cumsum_cpu(const Tensor& out, const Tensor& x, bool reverse) {
  if (x.numel() == 0) return;
  dispatch_bool_as_u8(x, [&]<class T>() {
    using R = SumResult<T>;
    const T* p = x.ptr<T>();
    R* y = out.ptr<R>();
    if (x.shape()[2] == 1) {
      const int64_t rows = x.shape()[0], n = x.shape()[1];
      return reverse ? cumsum_rows<T, R, -1>(y, p, rows, n) : cumsum_rows<T, R, 1>(y, p, rows, n);
    }
    scan(x, reverse, AccumulatorOf<T>(0), [=](AccumulatorOf<T>& sum, int64_t at, int64_t) {
      sum += static_cast<AccumulatorOf<T>>(p[at]);
      y[at] = static_cast<R>(sum);
    });
  });
}

template <class T> void cumprod_of(const Tensor& out, const Tensor& x, bool reverse) {
  const T* p = x.ptr<T>();
  T* y = out.ptr<T>();
  scan(x, reverse, AccumulatorOf<T>(1), [=](AccumulatorOf<T>& product, int64_t at, int64_t) {
    product *= static_cast<AccumulatorOf<T>>(p[at]);
    y[at] = static_cast<T>(product);
  });
}

void cumprod_cpu(const Tensor& out, const Tensor& x, bool reverse) {
  if (x.dtype() == DType::kI64) return cumprod_of<int64_t>(out, x, reverse);
  dispatch_floating(x.dtype(), "cumprod", [&]<class T>() { cumprod_of<T>(out, x, reverse); });
}

// out[i] = log(sum over j <= i of exp(x[j])).
void logcumsumexp_cpu(const Tensor& out, const Tensor& x) {
  dispatch_floating(x.dtype(), "logcumsumexp", [&]<class T>() {
    const T* p = x.ptr<T>();
    T* y = out.ptr<T>();
    constexpr double kLogZero = -std::numeric_limits<double>::infinity();
    scan(x, false, kLogZero, [=](double& total, int64_t at, int64_t) {
      total = formulas::log_add_exp(total, static_cast<double>(p[at]));
      y[at] = static_cast<T>(total);
    });
  });
}

// cummax, cummin: the extremum so far and its index; the last of equal ones, as in PyTorch. A NaN stays.
template <class T, bool largest>
void running_extremes(const Tensor& values, const Tensor& indices, const Tensor& x) {
  using V = ComparisonType<T>;
  struct Best {
    V value;
    int64_t index;
  };
  const T* p = x.ptr<T>();
  T* v = values.ptr<T>();
  int64_t* at_best = indices.ptr<int64_t>();
  scan(x, false, Best{Extreme<T, largest>{}.identity(), 0}, [=](Best& best, int64_t at, int64_t i) {
    const V here = static_cast<V>(p[at]);
    const bool better = largest ? here >= best.value : here <= best.value;
    if (better | is_nan(here)) best = {here, i};
    v[at] = static_cast<T>(best.value);
    at_best[at] = best.index;
  });
}

void running_extremes_cpu(const Tensor& values, const Tensor& indices, const Tensor& x, bool largest) {
  dispatch_bool_as_u8(x, [&]<class T>() {
    largest ? running_extremes<T, true>(values, indices, x) : running_extremes<T, false>(values, indices, x);
  });
}

// out[i] = b[i] + a[i] * out[i - 1], out[0] = b[0]; in reverse out[i] = b[i] + a[i] * out[i + 1].
void linear_recurrence_cpu(const Tensor& out, const Tensor& a, const Tensor& b, bool reverse) {
  dispatch_floating(b.dtype(), "linear_recurrence", [&]<class T>() {
    const T *pa = a.ptr<T>(), *pb = b.ptr<T>();
    T* y = out.ptr<T>();
    scan(b, reverse, 0.0, [=](double& last, int64_t at, int64_t i) {
      // The first visited element has no predecessor. Its factor is not read, so it may be NaN or infinite.
      last = i == 0 ? static_cast<double>(pb[at])
                    : static_cast<double>(pb[at]) + static_cast<double>(pa[at]) * last;
      y[at] = static_cast<T>(last);
    });
  });
}

}  // namespace

constinit decltype(extremum_kernel) extremum_kernel{"max", &extremum_cpu};
constinit decltype(cumsum_kernel) cumsum_kernel{"cumsum", &cumsum_cpu};
constinit decltype(cumprod_kernel) cumprod_kernel{"cumprod", &cumprod_cpu};
constinit decltype(logcumsumexp_kernel) logcumsumexp_kernel{"logcumsumexp", &logcumsumexp_cpu};
constinit decltype(running_extremes_kernel) running_extremes_kernel{"cummax", &running_extremes_cpu};
constinit decltype(linear_recurrence_kernel) linear_recurrence_kernel{"linear_recurrence",
                                                                      &linear_recurrence_cpu};

}  // namespace gradus::raw
