// Parallel reduction on the CPU over any set of dims of a tensor with any layout: reduce<T, Out>(out, x, op),
// below. x has dtype T; out is row-major, of dtype Out, with x's dims, with size 1 where reduced. The
// template parameter Op (see reduce_types.h) defines how elements are combined; `combine` is associative up
// to rounding:
//
//   struct Op {
//     using BlockAccumulator = ...;  // accumulator of the inner loop
//     using Accumulator = ...;       // accumulator across blocks
//     BlockAccumulator identity() const;                           // the neutral element
//     BlockAccumulator accumulate(BlockAccumulator a, T x) const;  // a combined with element x
//     Accumulator combine(Accumulator a, Accumulator b) const;     // two accumulators combined
//     auto finish(Accumulator a) const;                            // the result
//   };
//
// An Op that reads elements more than once (variance) has BlockAccumulator = Accumulator, and instead of
// accumulate:
//
//   // Reduces x[i * stride] for i < n. n <= kBlock * kLanes.
//   Accumulator block(const T* x, int64_t n, int64_t stride) const;
//   // Merges rows[r][j * stride] for r < n into total[j] for j < width. n <= kBlock.
//   void add_rows(Accumulator* total, const T* const* rows, int n, int64_t width, int64_t stride) const;
//
// Note [Order of summation]
// A result is the same for any number of threads, because the order in which elements are combined follows
// from shapes and strides alone. Each of kLanes SIMD lanes accumulates at most kBlock elements in
// BlockAccumulator (f32). Lanes are then merged in Accumulator (f64 for floats). A task of about kTask
// elements has one Accumulator partial result, and the partial results are merged in order. The number of
// threads only decides which thread runs a task.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tensor/tensor.h"

namespace gradus::cpu {

inline constexpr int64_t kTask = 32768;  // elements per partial result
inline constexpr int64_t kBlock = 16;    // elements per lane and block: few, to bound the rounding error
inline constexpr int kLanes = 32;
inline constexpr int64_t kTile = 1024;  // columns per tile: long enough for the hardware prefetcher

// A dim of x, or several merged ones. Strides count elements.
struct Axis {
  int64_t size, x_stride, out_stride;  // out_stride is 0 for a reduced axis
  bool reduced;
};

// A list of up to kMaxDims axes, stored inline.
class Axes {
 public:
  void push_back(const Axis& a) { axes_[n_++] = a; }
  void pop_back() { --n_; }
  int size() const { return n_; }
  bool empty() const { return n_ == 0; }
  const Axis& operator[](int i) const { return axes_[i]; }
  Axis& back() { return axes_[n_ - 1]; }
  Axis* begin() { return axes_.data(); }
  Axis* end() { return axes_.data() + n_; }

 private:
  std::array<Axis, kMaxDims> axes_;
  int n_ = 0;
};

// The loops of a reduction: x's dims without those of size 1, outermost in memory first, adjacent dims merged
// where their strides allow it. The innermost one is `inner`.
struct ReductionLoops {
  Axes kept, reduced;  // without `inner`
  Axis inner{1, 1, 1, true};
  int64_t outputs = 1, reductions = 1;  // products of the sizes of kept and reduced

  // Returns whether rows of `width` columns are adjacent in memory. False for a tile narrower than a row.
  bool rows_are_contiguous(int64_t width) const {
    return inner.x_stride == 1 && reduced.size() == 1 && reduced[0].x_stride == width;
  }
};

// Returns the loops that reduce x to `out`. out has x's dims, with size 1 where reduced.
inline ReductionLoops loops_of(const Tensor& out, const Tensor& x) {
  Axes axes;
  for (int i = 0; i < x.dim(); ++i) {
    const int64_t n = x.shape()[i];
    if (n == 1) continue;
    const bool reduced = out.shape()[i] == 1;
    axes.push_back({n, x.strides()[i], reduced ? 0 : out.strides()[i], reduced});
  }
  // Broadcast dims (stride 0) go outermost, so the inner loop has a nonzero stride.
  const auto rank = [](const Axis& a) {
    return a.x_stride == 0 ? std::numeric_limits<int64_t>::max() : a.x_stride;
  };
  std::stable_sort(axes.begin(), axes.end(), [&](const Axis& a, const Axis& b) { return rank(a) > rank(b); });
  ReductionLoops loops;
  Axes merged;
  for (const Axis& a : axes) {
    if (!merged.empty()) {
      Axis& m = merged.back();
      if (m.reduced == a.reduced && m.x_stride == a.size * a.x_stride &&
          m.out_stride == a.size * a.out_stride) {
        m = {m.size * a.size, a.x_stride, a.out_stride, a.reduced};
        continue;
      }
    }
    merged.push_back(a);
  }
  if (!merged.empty()) {
    loops.inner = merged.back();
    merged.pop_back();
  }
  for (const Axis& a : merged) {
    (a.reduced ? loops.reduced : loops.kept).push_back(a);
    (a.reduced ? loops.reductions : loops.outputs) *= a.size;
  }
  return loops;
}

// Iterates over the positions of `axes` in row-major order, from linear index `position`. `x` and `out` are
// the offsets at the current position.
class AxesIterator {
 public:
  AxesIterator(const Axes& axes, int64_t position) : axes_(axes) {
    for (int i = axes.size() - 1; i >= 0; --i) {
      at_[i] = position % axes[i].size;
      position /= axes[i].size;
      x += at_[i] * axes[i].x_stride;
      out += at_[i] * axes[i].out_stride;
    }
  }
  void next() {
    for (int i = axes_.size() - 1; i >= 0; --i) {
      const Axis& a = axes_[i];
      x += a.x_stride;
      out += a.out_stride;
      if (++at_[i] < a.size) return;
      x -= a.size * a.x_stride;
      out -= a.size * a.out_stride;
      at_[i] = 0;
    }
  }
  int64_t x = 0, out = 0;

 private:
  const Axes& axes_;
  std::array<int64_t, kMaxDims> at_{};
};

template <class Op, class T>
concept ReducesBlocks = requires(const Op& op, const T* x) { op.block(x, 1, 1); };

// Returns the reduction of p[i * stride] for i < n, on the calling thread. See Note [Order of summation].
template <class Op, class T>
typename Op::Accumulator reduce_row(const Op& op, const T* p, int64_t n, int64_t stride) {
  using Accumulator = typename Op::Accumulator;
  Accumulator total = static_cast<Accumulator>(op.identity());
  int64_t i = 0;
  if constexpr (ReducesBlocks<Op, T>) {
    for (; i < n; i += kBlock * kLanes)
      total = op.combine(total, op.block(p + i * stride, std::min(n - i, kBlock * kLanes), stride));
    return total;
  } else {
    if (stride == 1) {
      while (n - i >= kLanes) {
        typename Op::BlockAccumulator lanes[kLanes];
        for (auto& lane : lanes) lane = op.identity();
        const int64_t steps = std::min(kBlock, (n - i) / kLanes);
        // A block is too short for the hardware prefetcher, so the next one, perhaps of the next row, is
        // prefetched here.
        if (n >= kBlock * kLanes)
          for (int64_t k = 0; k < kBlock * kLanes; k += 64 / int64_t(sizeof(T)))
            __builtin_prefetch(p + i + kBlock * kLanes + k);
        for (int64_t s = 0; s < steps; ++s, i += kLanes)
          for (int j = 0; j < kLanes; ++j) lanes[j] = op.accumulate(lanes[j], p[i + j]);
        Accumulator wide[kLanes];
        for (int j = 0; j < kLanes; ++j) wide[j] = static_cast<Accumulator>(lanes[j]);
        for (int half = kLanes / 2; half > 0; half /= 2)
          for (int j = 0; j < half; ++j) wide[j] = op.combine(wide[j], wide[j + half]);
        total = op.combine(total, wide[0]);
      }
    }
    while (i < n) {
      typename Op::BlockAccumulator lane = op.identity();
      for (const int64_t stop = std::min(n, i + kBlock); i < stop; ++i)
        lane = op.accumulate(lane, p[i * stride]);
      total = op.combine(total, static_cast<Accumulator>(lane));
    }
    return total;
  }
}

// Reduction whose innermost axis is reduced: out[o] = reduce over r and i of x[o, r, i], where o runs over
// the kept axes, r over the other reduced axes and i over the innermost one. A row (o, r) is cut into pieces
// of at most kTask elements; a task takes consecutive pieces of one output.
template <class T, class Out, class Op>
void reduce_rows(Out* out, const T* x, const ReductionLoops& loops, const Op& op) {
  using Accumulator = typename Op::Accumulator;
  const int64_t length = loops.inner.size, piece = std::min(length, kTask);
  const int64_t pieces = (length + piece - 1) / piece;
  const int64_t units = loops.reductions * pieces, per_task = std::max<int64_t>(1, kTask / piece);
  const int64_t tasks = (units + per_task - 1) / per_task;
  std::vector<Accumulator> partials(tasks > 1 ? loops.outputs * tasks : 0);
  const int64_t elements = std::min(units, per_task) * piece;
  parallel_for(
      0, loops.outputs * tasks, std::max<int64_t>(1, 2 * kTask / elements), [&](int64_t begin, int64_t end) {
        AxesIterator o(loops.kept, begin / tasks);
        for (int64_t i = begin; i < end; ++i) {
          const int64_t task = i % tasks;
          const int64_t first = task * per_task, last = std::min(units, first + per_task);
          AxesIterator r(loops.reduced, first / pieces);
          Accumulator total = static_cast<Accumulator>(op.identity());
          for (int64_t u = first; u < last; ++u) {
            const int64_t at = u % pieces * piece;
            const T* p = x + o.x + r.x + at * loops.inner.x_stride;
            total = op.combine(total, reduce_row(op, p, std::min(piece, length - at), loops.inner.x_stride));
            if (at + piece >= length) r.next();
          }
          if (tasks > 1) {
            partials[i] = total;
          } else {
            out[o.out] = static_cast<Out>(op.finish(total));
          }
          if (task == tasks - 1) o.next();
        }
      });
  if (tasks == 1) return;
  AxesIterator o(loops.kept, 0);
  for (int64_t i = 0; i < loops.outputs; ++i, o.next()) {
    Accumulator total = partials[i * tasks];
    for (int64_t t = 1; t < tasks; ++t) total = op.combine(total, partials[i * tasks + t]);
    out[o.out] = static_cast<Out>(op.finish(total));
  }
}

// lanes[j] = accumulate(lanes[j], rows[r][j * stride]) for each of `count` rows in order, j < width.
// fixed_stride 0: the stride is x_stride.
template <class T, class Op, int64_t fixed_stride>
void add_rows(const Op& op, typename Op::BlockAccumulator* __restrict lanes, const T* const* rows, int count,
              int64_t width, int64_t x_stride) {
  const int64_t st = fixed_stride ? fixed_stride : x_stride;
  if (count == 4) {
    const T *a = rows[0], *b = rows[1], *c = rows[2], *d = rows[3];
    for (int64_t j = 0; j < width; ++j)
      lanes[j] = op.accumulate(
          op.accumulate(op.accumulate(op.accumulate(lanes[j], a[j * st]), b[j * st]), c[j * st]), d[j * st]);
    return;
  }
  for (int r = 0; r < count; ++r)
    for (int64_t j = 0; j < width; ++j) lanes[j] = op.accumulate(lanes[j], rows[r][j * st]);
}

// Merges rows [first, last) of `width` adjacent columns into total[j], j < width <= kTile. `base`: row 0.
template <class T, class Op>
void reduce_column_block(const Op& op, typename Op::Accumulator* total, const T* base,
                         const ReductionLoops& loops, int64_t first, int64_t last, int64_t width) {
  using Accumulator = typename Op::Accumulator;
  const int64_t x_stride = loops.inner.x_stride;
  int64_t row = first;
  if constexpr (ReducesBlocks<Op, T>) {
    AxesIterator r(loops.reduced, row);
    while (row < last) {
      const T* rows[kBlock];
      int count = 0;
      for (; count < kBlock && row < last; ++row, r.next()) rows[count++] = base + r.x;
      op.add_rows(total, rows, count, width, x_stride);
    }
  } else {
    typename Op::BlockAccumulator lanes[kTile];
    // Narrow contiguous rows: `pack` rows are processed as one long row to fill the lanes.
    if (const int64_t pack = kLanes / width; pack > 1 && loops.rows_are_contiguous(width)) {
      const int64_t wide = pack * width;
      while (last - row >= pack) {
        for (int64_t j = 0; j < wide; ++j) lanes[j] = op.identity();
        const int64_t steps = std::min(kBlock, (last - row) / pack);
        for (int64_t s = 0; s < steps; ++s, row += pack) {
          const T* p = base + row * width;
          for (int64_t j = 0; j < wide; ++j) lanes[j] = op.accumulate(lanes[j], p[j]);
        }
        for (int64_t j = 0; j < wide; ++j)
          total[j % width] = op.combine(total[j % width], static_cast<Accumulator>(lanes[j]));
      }
    }
    AxesIterator r(loops.reduced, row);
    while (row < last) {
      for (int64_t j = 0; j < width; ++j) lanes[j] = op.identity();
      for (const int64_t stop = std::min(last, row + kBlock); row < stop;) {
        const T* four[4];
        int count = 0;
        for (; count < 4 && row < stop; ++row, r.next()) four[count++] = base + r.x;
        x_stride == 1 ? add_rows<T, Op, 1>(op, lanes, four, count, width, 1)
                      : add_rows<T, Op, 0>(op, lanes, four, count, width, x_stride);
      }
      for (int64_t j = 0; j < width; ++j) total[j] = op.combine(total[j], static_cast<Accumulator>(lanes[j]));
    }
  }
}

// Reduction whose innermost axis is kept: out[o, j] = reduce over rows r of x[o, r, j]. A task takes a range
// of rows of one tile of columns.
template <class T, class Out, class Op>
void reduce_columns(Out* out, const T* x, const ReductionLoops& loops, const Op& op) {
  using Accumulator = typename Op::Accumulator;
  const int64_t columns = loops.inner.size, out_stride = loops.inner.out_stride, rows = loops.reductions;
  const int64_t tile = std::min(columns, kTile), tiles = (columns + tile - 1) / tile;
  const int64_t per_task = std::max(kBlock, 4 * kTask / tile), tasks = (rows + per_task - 1) / per_task;
  std::vector<Accumulator> partials(tasks > 1 ? loops.outputs * tasks * columns : 0);
  const int64_t grain = std::max<int64_t>(1, 2 * kTask / (std::min(rows, per_task) * tile));
  // In the index i, tasks of a tile run fastest, then tiles, then outputs.
  parallel_for(0, loops.outputs * tiles * tasks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t task = i % tasks, at = i / tasks % tiles * tile, output = i / tasks / tiles;
      const int64_t width = std::min(tile, columns - at), first = task * per_task;
      const AxesIterator o(loops.kept, output);
      Accumulator total[kTile];
      for (int64_t j = 0; j < width; ++j) total[j] = static_cast<Accumulator>(op.identity());
      reduce_column_block(op, total, x + o.x + at * loops.inner.x_stride, loops, first,
                          std::min(rows, first + per_task), width);
      if (tasks > 1) {
        std::copy_n(total, width, &partials[(output * tasks + task) * columns + at]);
      } else {
        for (int64_t j = 0; j < width; ++j)
          out[o.out + (at + j) * out_stride] = static_cast<Out>(op.finish(total[j]));
      }
    }
  });
  if (tasks == 1) return;
  AxesIterator o(loops.kept, 0);
  for (int64_t i = 0; i < loops.outputs; ++i, o.next()) {
    Accumulator* total = &partials[i * tasks * columns];
    for (int64_t t = 1; t < tasks; ++t)
      for (int64_t j = 0; j < columns; ++j) total[j] = op.combine(total[j], total[t * columns + j]);
    for (int64_t j = 0; j < columns; ++j) out[o.out + j * out_stride] = static_cast<Out>(op.finish(total[j]));
  }
}

// out = reduction of x by `op` over the dims in which out has size 1. An empty x gives op.finish(op.identity()).
template <class T, class Out, class Op> void reduce(const Tensor& out, const Tensor& x, const Op& op) {
  if (out.numel() == 0) return;
  Out* y = out.ptr<Out>();
  if (x.numel() == 0) {
    std::fill_n(y, out.numel(),
                static_cast<Out>(op.finish(static_cast<typename Op::Accumulator>(op.identity()))));
    return;
  }
  const ReductionLoops loops = loops_of(out, x);
  loops.inner.reduced ? reduce_rows(y, x.ptr<T>(), loops, op) : reduce_columns(y, x.ptr<T>(), loops, op);
}

}  // namespace gradus::cpu
