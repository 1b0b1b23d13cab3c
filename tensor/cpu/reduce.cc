// Reductions on the CPU.
//
// Note [Order of summation]
// A result is the same for any number of threads because the way its elements are combined follows from
// shapes alone: lanes within a block of at most kBlock steps, in the input's precision; blocks into a wide
// accumulator (f64 for floats); tasks of about kTask elements, each with a wide partial, combined in order.
// Threads only share out tasks.
#include <limits>
#include <vector>

#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/parallel.h"

namespace gradus::raw {
namespace {

constexpr int64_t kTask = 32768;  // elements
constexpr int64_t kBlock = 16;    // steps of a lane: few, so that f32 lanes round little
constexpr int kLanes = 32;
constexpr int64_t kTile = 256;  // columns

// --- what is combined: Lane in the inner loop, Wide outside it ---

template <class T>
using LaneOf = std::conditional_t<std::is_same_v<T, double>, double,
                                  std::conditional_t<is_floating(dtype_v<T>), float, int64_t>>;
template <class T>
using WideOf = std::conditional_t<is_floating(dtype_v<T>), double, int64_t>;

template <class T>
struct Sum {
  using Lane = LaneOf<T>;
  using Wide = WideOf<T>;
  double scale = 1;
  Lane start() const { return 0; }
  Lane step(Lane a, T x) const { return a + static_cast<Lane>(x); }
  Wide merge(Wide a, Wide b) const { return a + b; }
  Wide finish(Wide a) const {
    if constexpr (std::is_same_v<Wide, double>) return a * scale;
    return a;
  }
};

template <class T>
struct Prod {
  using Lane = WideOf<T>;  // a product of few f32 leaves their range easily
  using Wide = WideOf<T>;
  Lane start() const { return 1; }
  Lane step(Lane a, T x) const { return a * static_cast<Lane>(x); }
  Wide merge(Wide a, Wide b) const { return a * b; }
  Wide finish(Wide a) const { return a; }
};

// What values of T compare as.
template <class T>
using OrderOf = std::conditional_t<is_floating(dtype_v<T>), LaneOf<T>, T>;

template <class V>
constexpr bool is_nan(V v) {
  if constexpr (std::is_floating_point_v<V>) return v != v;
  return false;
}

// The largest or smallest, or NaN when there is one.
template <class T, bool largest>
struct Extreme {
  using Lane = OrderOf<T>;
  using Wide = Lane;
  Lane start() const {
    using L = std::numeric_limits<Lane>;
    if constexpr (L::has_infinity) return largest ? -L::infinity() : L::infinity();
    return largest ? L::lowest() : L::max();
  }
  Lane join(Lane a, Lane x) const { return (largest ? x > a : x < a) | is_nan(x) ? x : a; }
  Lane step(Lane a, T x) const { return join(a, static_cast<Lane>(x)); }
  Wide merge(Wide a, Wide b) const { return join(a, b); }
  Wide finish(Wide a) const { return a; }
};

// Of bools, bytes 0 and 1: all is the smallest, any the largest.
template <bool any>
struct Logical : Extreme<uint8_t, any> {
  uint8_t finish(uint8_t a) const { return a != 0; }
};

enum class Power { kZero, kOne, kTwo, kAny };

template <class T, Power power>
struct Norm : Sum<T> {
  using Lane = LaneOf<T>;
  double p = 2;
  bool root = true;
  Lane step(Lane a, T x) const {
    const Lane v = static_cast<Lane>(x);
    if constexpr (power == Power::kZero) return a + (v != 0);
    if constexpr (power == Power::kOne) return a + std::abs(v);
    if constexpr (power == Power::kTwo) return a + v * v;
    return a + std::pow(std::abs(v), static_cast<Lane>(p));
  }
  double finish(double a) const {
    a *= this->scale;
    if (!root || power == Power::kZero || power == Power::kOne) return a;
    return power == Power::kTwo ? std::sqrt(a) : std::pow(a, 1 / p);
  }
};

template <class T, bool largest>
struct ExtremeAbs : Extreme<T, largest> {
  using Lane = typename Extreme<T, largest>::Lane;
  Lane step(Lane a, T x) const { return this->join(a, std::abs(static_cast<Lane>(x))); }
};

// --- how x is walked ---

struct Axis {
  int64_t size, x_stride, out_stride;
  bool reduced;
};

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

// x's dims, outermost in memory first, neighbours that lie like one merged, the innermost apart.
struct Plan {
  Axes kept, reduced;  // without the innermost
  Axis inner{1, 1, 1, true};
  int64_t outputs = 1, reductions = 1;  // products of the sizes of kept and reduced
};

Plan make_plan(const Tensor& out, const Tensor& x) {
  Axes axes;
  for (int i = 0; i < x.dim(); ++i) {
    const int64_t n = x.shape()[i];
    if (n == 1) continue;
    const bool reduced = out.shape()[i] == 1;
    axes.push_back({n, x.strides()[i], reduced ? 0 : out.strides()[i], reduced});
  }
  // A stride of 0 is a broadcast: outermost, so that the inner loop has a real one.
  const auto rank = [](const Axis& a) {
    return a.x_stride == 0 ? std::numeric_limits<int64_t>::max() : a.x_stride;
  };
  std::stable_sort(axes.begin(), axes.end(), [&](const Axis& a, const Axis& b) { return rank(a) > rank(b); });
  Plan plan;
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
    plan.inner = merged.back();
    merged.pop_back();
  }
  for (const Axis& a : merged) {
    (a.reduced ? plan.reduced : plan.kept).push_back(a);
    (a.reduced ? plan.reductions : plan.outputs) *= a.size;
  }
  return plan;
}

// Steps through the positions of some axes in row-major order.
class Walker {
 public:
  Walker(const Axes& axes, int64_t position) : axes_(axes) {
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
typename Op::Wide reduce_row(const Op& op, const T* p, int64_t n, int64_t stride) {
  using Wide = typename Op::Wide;
  Wide total = static_cast<Wide>(op.start());
  int64_t i = 0;
  if (stride == 1) {
    while (n - i >= kLanes) {
      typename Op::Lane lanes[kLanes];
      for (auto& lane : lanes) lane = op.start();
      const int64_t steps = std::min(kBlock, (n - i) / kLanes);
      for (int64_t s = 0; s < steps; ++s, i += kLanes)
        for (int j = 0; j < kLanes; ++j) lanes[j] = op.step(lanes[j], p[i + j]);
      Wide wide[kLanes];
      for (int j = 0; j < kLanes; ++j) wide[j] = static_cast<Wide>(lanes[j]);
      for (int half = kLanes / 2; half > 0; half /= 2)
        for (int j = 0; j < half; ++j) wide[j] = op.merge(wide[j], wide[j + half]);
      total = op.merge(total, wide[0]);
    }
  }
  while (i < n) {
    typename Op::Lane lane = op.start();
    for (const int64_t stop = std::min(n, i + kBlock); i < stop; ++i) lane = op.step(lane, p[i * stride]);
    total = op.merge(total, static_cast<Wide>(lane));
  }
  return total;
}

// The innermost axis is reduced: each task of an output takes whole rows, or a piece of one.
template <class T, class Out, class Op>
void reduce_rows(Out* out, const T* x, const Plan& plan, const Op& op) {
  using Wide = typename Op::Wide;
  const int64_t length = plan.inner.size, piece = std::min(length, kTask);
  const int64_t pieces = (length + piece - 1) / piece;
  const int64_t units = plan.reductions * pieces, per_task = std::max<int64_t>(1, kTask / piece);
  const int64_t tasks = (units + per_task - 1) / per_task;
  std::vector<Wide> partials(tasks > 1 ? plan.outputs * tasks : 0);
  const int64_t elements = std::min(units, per_task) * piece;
  parallel_for(
      0, plan.outputs * tasks, std::max<int64_t>(1, 2 * kTask / elements), [&](int64_t begin, int64_t end) {
        Walker o(plan.kept, begin / tasks);
        for (int64_t i = begin; i < end; ++i) {
          const int64_t task = i % tasks;
          const int64_t first = task * per_task, last = std::min(units, first + per_task);
          Walker r(plan.reduced, first / pieces);
          Wide total = static_cast<Wide>(op.start());
          for (int64_t u = first; u < last; ++u) {
            const int64_t at = u % pieces * piece;
            const T* p = x + o.x + r.x + at * plan.inner.x_stride;
            total = op.merge(total, reduce_row(op, p, std::min(piece, length - at), plan.inner.x_stride));
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
  Walker o(plan.kept, 0);
  for (int64_t i = 0; i < plan.outputs; ++i, o.next()) {
    Wide total = partials[i * tasks];
    for (int64_t t = 1; t < tasks; ++t) total = op.merge(total, partials[i * tasks + t]);
    out[o.out] = static_cast<Out>(op.finish(total));
  }
}

template <class T, class Op, int64_t fixed_stride>
void add_rows(const Op& op, typename Op::Lane* __restrict lanes, const T* const* rows, int count,
              int64_t width, int64_t x_stride) {
  const int64_t st = fixed_stride ? fixed_stride : x_stride;
  if (count == 4) {
    const T *a = rows[0], *b = rows[1], *c = rows[2], *d = rows[3];
    for (int64_t j = 0; j < width; ++j)
      lanes[j] = op.step(op.step(op.step(op.step(lanes[j], a[j * st]), b[j * st]), c[j * st]), d[j * st]);
    return;
  }
  for (int r = 0; r < count; ++r)
    for (int64_t j = 0; j < width; ++j) lanes[j] = op.step(lanes[j], rows[r][j * st]);
}

// The innermost axis is kept: each task sums some rows of a tile of columns.
template <class T, class Out, class Op>
void reduce_columns(Out* out, const T* x, const Plan& plan, const Op& op) {
  using Wide = typename Op::Wide;
  const int64_t columns = plan.inner.size, x_stride = plan.inner.x_stride;
  const int64_t tile = std::min(columns, kTile), tiles = (columns + tile - 1) / tile;
  const int64_t rows = plan.reductions;
  const int64_t per_task = std::max<int64_t>(kBlock, kTask / tile),
                tasks = std::max<int64_t>(1, (rows + per_task - 1) / per_task);
  std::vector<Wide> partials(tasks > 1 ? plan.outputs * tasks * columns : 0);
  const int64_t elements = std::max<int64_t>(1, std::min(rows, per_task) * tile);
  // The index counts tasks of a tile fastest, then tiles, then outputs.
  parallel_for(0, plan.outputs * tiles * tasks, std::max<int64_t>(1, 2 * kTask / elements),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t task = i % tasks, t = i / tasks % tiles;
                   const Walker o(plan.kept, i / tasks / tiles);
                   const int64_t first = task * per_task, last = std::min(rows, first + per_task);
                   const int64_t at = t * tile, width = std::min(tile, columns - at);
                   Wide total[kTile];
                   typename Op::Lane lanes[kTile];
                   for (int64_t j = 0; j < width; ++j) total[j] = static_cast<Wide>(op.start());
                   Walker r(plan.reduced, first);
                   const T* base = x + o.x + at * x_stride;
                   for (int64_t row = first; row < last;) {
                     for (int64_t j = 0; j < width; ++j) lanes[j] = op.start();
                     for (const int64_t stop = std::min(last, row + kBlock); row < stop;) {
                       const T* four[4];
                       int count = 0;
                       for (; count < 4 && row < stop; ++row, r.next()) four[count++] = base + r.x;
                       x_stride == 1 ? add_rows<T, Op, 1>(op, lanes, four, count, width, 1)
                                     : add_rows<T, Op, 0>(op, lanes, four, count, width, x_stride);
                     }
                     for (int64_t j = 0; j < width; ++j)
                       total[j] = op.merge(total[j], static_cast<Wide>(lanes[j]));
                   }
                   if (tasks > 1) {
                     std::copy_n(total, width, &partials[(i / tasks / tiles * tasks + task) * columns + at]);
                   } else {
                     for (int64_t j = 0; j < width; ++j)
                       out[o.out + (at + j) * plan.inner.out_stride] = static_cast<Out>(op.finish(total[j]));
                   }
                 }
               });
  if (tasks == 1) return;
  Walker o(plan.kept, 0);
  for (int64_t i = 0; i < plan.outputs; ++i, o.next()) {
    for (int64_t j = 0; j < columns; ++j) {
      const Wide* p = &partials[i * tasks * columns + j];
      Wide total = p[0];
      for (int64_t t = 1; t < tasks; ++t) total = op.merge(total, p[t * columns]);
      out[o.out + j * plan.inner.out_stride] = static_cast<Out>(op.finish(total));
    }
  }
}

template <class T, class Out, class Op>
void reduce(const Tensor& out, const Tensor& x, const Op& op) {
  if (out.numel() == 0) return;
  Out* y = out.ptr<Out>();
  if (x.numel() == 0) {
    std::fill_n(y, out.numel(), static_cast<Out>(op.finish(static_cast<typename Op::Wide>(op.start()))));
    return;
  }
  const Plan plan = make_plan(out, x);
  plan.inner.reduced ? reduce_rows(y, x.ptr<T>(), plan, op) : reduce_columns(y, x.ptr<T>(), plan, op);
}

// --- the kernels ---

// Bools are bytes 0 and 1.
template <class F>
void dispatch(const Tensor& x, F&& f) {
  dispatch_all(x.dtype(), [&]<class T>() {
    f.template operator()<std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>>();
  });
}

template <class T>
using SumResult = std::conditional_t<is_floating(dtype_v<T>), T, int64_t>;

void sum_cpu(const Tensor& out, const Tensor& x, double scale) {
  dispatch(x, [&]<class T>() { reduce<T, SumResult<T>>(out, x, Sum<T>{scale}); });
}

void prod_cpu(const Tensor& out, const Tensor& x) {
  if (x.dtype() == DType::kI64) return reduce<int64_t, int64_t>(out, x, Prod<int64_t>{});
  dispatch_floating(x.dtype(), "prod", [&]<class T>() { reduce<T, T>(out, x, Prod<T>{}); });
}

template <bool largest>
void extreme_cpu(const Tensor& out, const Tensor& x) {
  if (x.dtype() == DType::kBool) return reduce<uint8_t, uint8_t>(out, x, Extreme<uint8_t, largest>{});
  dispatch_numeric(x.dtype(), "amax", [&]<class T>() { reduce<T, T>(out, x, Extreme<T, largest>{}); });
}

template <bool any>
void logical_cpu(const Tensor& out, const Tensor& x) {
  reduce<uint8_t, uint8_t>(out, x, Logical<any>{});
}

void norm_cpu(const Tensor& out, const Tensor& x, double p, double scale, bool root) {
  dispatch_floating(x.dtype(), "norm", [&]<class T>() {
    const auto run = [&]<Power power>() { reduce<T, T>(out, x, Norm<T, power>{{scale}, p, root}); };
    if (std::isinf(p)) {
      p > 0 ? reduce<T, T>(out, x, ExtremeAbs<T, true>{}) : reduce<T, T>(out, x, ExtremeAbs<T, false>{});
    } else if (p == 0) {
      run.template operator()<Power::kZero>();
    } else if (p == 1) {
      run.template operator()<Power::kOne>();
    } else if (p == 2) {
      run.template operator()<Power::kTwo>();
    } else {
      run.template operator()<Power::kAny>();
    }
  });
}

void extremum_cpu(const Tensor& values, const Tensor& indices, const Tensor& x, int64_t inner, bool largest) {
  const int64_t outputs = values.numel();
  if (outputs == 0) return;
  const int64_t n = x.numel() / outputs;
  dispatch(x, [&]<class T>() {
    using V = OrderOf<T>;
    const T* p = x.ptr<T>();
    T* v = values.ptr<T>();
    int64_t* k = indices.ptr<int64_t>();
    const auto scan = [&]<bool up>() {
      parallel_for(0, outputs, std::max<int64_t>(1, kTask / n), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const T* column = p + i / inner * n * inner + i % inner;
          V best = column[0];
          int64_t at = 0;
          for (int64_t j = 1; j < n; ++j) {
            const V c = column[j * inner];
            if ((up ? c > best : c < best) || (is_nan(c) && !is_nan(best))) best = c, at = j;
          }
          v[i] = static_cast<T>(best);
          k[i] = at;
        }
      });
    };
    largest ? scan.template operator()<true>() : scan.template operator()<false>();
  });
}

void cumsum_cpu(const Tensor& out, const Tensor& x, int64_t inner, bool reverse) {
  const int64_t outer = out.shape()[0], n = out.shape()[1];
  if (x.numel() == 0) return;
  dispatch(x, [&]<class T>() {
    using R = SumResult<T>;
    const T* p = x.ptr<T>();
    R* y = out.ptr<R>();
    parallel_for(0, outer * inner, std::max<int64_t>(1, kTask / n), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t base = i / inner * n * inner + i % inner;
        WideOf<T> total = 0;
        for (int64_t j = 0; j < n; ++j) {
          const int64_t at = base + (reverse ? n - 1 - j : j) * inner;
          total += static_cast<WideOf<T>>(p[at]);
          y[at] = static_cast<R>(total);
        }
      }
    });
  });
}

const RegisterKernel kSum(sum_kernel, DeviceType::kCPU, &sum_cpu);
const RegisterKernel kProd(prod_kernel, DeviceType::kCPU, &prod_cpu);
const RegisterKernel kMax(amax_kernel, DeviceType::kCPU, &extreme_cpu<true>);
const RegisterKernel kMin(amin_kernel, DeviceType::kCPU, &extreme_cpu<false>);
const RegisterKernel kAny(any_kernel, DeviceType::kCPU, &logical_cpu<true>);
const RegisterKernel kAll(all_kernel, DeviceType::kCPU, &logical_cpu<false>);
const RegisterKernel kNorm(norm_kernel, DeviceType::kCPU, &norm_cpu);
const RegisterKernel kExtremum(extremum_kernel, DeviceType::kCPU, &extremum_cpu);
const RegisterKernel kCumsum(cumsum_kernel, DeviceType::kCPU, &cumsum_cpu);

}  // namespace
}  // namespace gradus::raw
