// Kernels of fused attention and of its gradients against f64 loops on the host, within a bound on roundings: sizes
// around those of tiles, all layouts and masks, dropout by the host's Philox words. Two runs must have the same bits.
#include "gradus/tensor/cuda/kernels/attention.h"

#include <memory>

#include "device_test.h"

namespace device_test {
namespace {

using cuda::AttentionMask;

constexpr gradus::PhiloxKey kKey{0x123456789abcdef0, (uint64_t{3} << 40) + 17}, kPart{0xfedcba9876543210, 5};

// Memory layouts of the matrices [rows, columns] of a batch.
enum class Layout { kRows, kHeads, kGaps, kColumns, kShared, kOneRow };

struct Case {
  int64_t L, S, E, V;
  bool causal = false;
  AttentionMask mask = AttentionMask::kNone;
  double dropout = 0, scale = 0.3;
  Layout layout = Layout::kRows, mask_layout = Layout::kRows;
  size_t start = 0;         // first element of the operands, for misalignment
  bool is_special = false;  // NaN and infinities among the operands
  int64_t outer = 1;        // size of the outer batch dim; the inner one is kHeads
};
constexpr int64_t kHeads = 2;

std::vector<Case> cases() {
  constexpr AttentionMask kNone = AttentionMask::kNone;
  const bool small = options().small;
  std::vector<Case> all;
  for (const int64_t n : {1, 31, 32, 33, 63, 64, 65, 127, 128, 129}) {
    if (small && (n == 32 || n == 63 || n > 65)) continue;
    all.push_back({n, 65, 5, 6, n % 2 == 0}), all.push_back({33, n, 6, 5, n % 4 == 1});
  }
  for (const int64_t n : {1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256}) {
    if (small && (n == 9 || n == 31 || n == 63 || n == 127 || n == 255)) continue;
    all.push_back({9, 18, n, 3, true}), all.push_back({18, 9, 5, n, false, kNone, 0, 0.3});
    all.back().start = size_t(n % 3);
  }
  all.push_back({33, 34, 256, 256}), all.push_back({5, 7, 0, 3});
  for (const AttentionMask mask : {AttentionMask::kBool, AttentionMask::kAdded})
    for (const Layout l : {Layout::kRows, Layout::kColumns, Layout::kShared, Layout::kOneRow, Layout::kGaps})
      all.push_back({20, 40, 8, 8, l != Layout::kRows, mask, 0, 0.3, Layout::kRows, l, 0, false, 2});
  for (const double p : {0.1, 0.5, 1.0})
    for (const int64_t keys : {1, 7, 8, 67}) {
      if (small && p == 1 && keys > 7) continue;
      all.push_back({keys == 67 ? 66 : 20, keys, 8, 4, p == 0.1, p == 0.5 ? AttentionMask::kBool : kNone, p});
    }
  for (const Layout l : {Layout::kHeads, Layout::kGaps, Layout::kColumns, Layout::kShared, Layout::kOneRow})
    for (const size_t start : {0, 1, 4})
      if (!small || start != 4 || l == Layout::kHeads)
        all.push_back({10, 33, 16, 24, true, kNone, 0, 0.3, l, l, start, false, 2});
  // Beside a row of one head lies that of the next: results of several tiles and chunks, and of sizes of no vector.
  for (const auto& [head, value] : {std::pair<int64_t, int64_t>{5, 6}, {70, 66}, {16, 3}})
    for (const size_t start : {0, 1})
      if (!small || start == 0 || head == 5)
        all.push_back({66, 70, head, value, start == 0, start ? AttentionMask::kBool : kNone, start ? 0.1 : 0,
                       0.3, Layout::kHeads, Layout::kRows, start, false, 2});
  for (const double scale : {-0.7, 0., 40.})
    all.push_back({9, 70, 8, 8, false, AttentionMask::kAdded, 0, scale});
  for (const AttentionMask mask : {kNone, AttentionMask::kAdded})
    all.push_back({20, 70, 8, 8, false, mask, 0, 0.3, Layout::kRows, Layout::kRows, 0, true});
  if (!small) all.push_back({1000, 1027, 64, 64, true, kNone, 0.1}), all.push_back({300, 333, 256, 200});
  return all;
}

template <class T> constexpr double kUnit = std::is_same_v<T, double> ? 0x1p-53 : 0x1p-24;

// A batch of matrices with values from -1 to 1, in host and device memory.
template <class T> class Operand {
 public:
  Operand(Layout layout, int64_t outer, int64_t rows, int64_t columns, size_t start, uint64_t salt) {
    constexpr int64_t H = kHeads;
    const auto lay_out = [&](int64_t row, int64_t column, int64_t outer, int64_t inner) {
      row_ = row, column_ = column, batch_[0] = outer, batch_[1] = inner;
    };
    switch (layout) {
      case Layout::kRows:
        lay_out(columns, 1, H * rows * columns, rows * columns);
        break;
      case Layout::kHeads:
        lay_out(H * columns, 1, rows * H * columns, columns);
        break;
      case Layout::kGaps:
        lay_out(columns + 3, 1, H * rows * (columns + 3), rows * (columns + 3));
        break;
      case Layout::kColumns:
        lay_out(1, rows, H * rows * columns, rows * columns);
        break;
      case Layout::kShared:
        lay_out(columns, 1, 0, rows * columns);
        break;
      case Layout::kOneRow:
        lay_out(0, 1, columns, 0);
        break;
    }
    const int64_t last = std::max<int64_t>(0, rows - 1) * row_ + std::max<int64_t>(0, columns - 1) * column_ +
                         (outer - 1) * batch_[0] + (H - 1) * batch_[1];
    host_.resize(static_cast<size_t>(last + 1));
    for (size_t i = 0; i < host_.size(); ++i) host_[i] = sample<T>(i, salt, false);
    start_ = start;
  }
  T& at(int64_t g, int64_t i, int64_t j) {
    return host_[size_t(g / kHeads * batch_[0] + g % kHeads * batch_[1] + i * row_ + j * column_)];
  }
  double value(int64_t g, int64_t i, int64_t j) { return as_double(at(g, i, j)); }
  std::vector<T>& host() { return host_; }
  cuda::AttentionOperand on_device() {
    device_ = std::make_unique<Elements<T>>(host_, start_);
    cuda::AttentionOperand x{device_->data(), row_, column_, {}};
    x.batch[0] = batch_[0], x.batch[1] = batch_[1];
    return x;
  }

 private:
  std::vector<T> host_;
  size_t start_;
  int64_t row_, column_, batch_[2];
  std::unique_ptr<Elements<T>> device_;
};

// The memory of a batch of results: row-major, or with the heads within the rows.
template <class T> class Result {
 public:
  Result(bool has_heads_in_rows, int64_t outer, int64_t rows, int64_t columns, size_t start)
      : rows_(rows), columns_(columns), elements_(size_t(outer * kHeads * rows * columns), start) {
    row_ = has_heads_in_rows ? kHeads * columns : columns;
    head_ = has_heads_in_rows ? columns : rows * columns;
  }
  cuda::AttentionOperand on_device() const {
    cuda::AttentionOperand x{elements_.data(), row_, 1, {}};
    x.batch[0] = kHeads * rows_ * columns_, x.batch[1] = head_;
    return x;
  }
  bool is_clean() const { return elements_.is_clean(); }
  // Returns the elements, row-major.
  std::vector<T> take() const {
    const std::vector<T> from = elements_.take();
    std::vector<T> to;
    for (size_t i = 0; i < from.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const int64_t column = at % columns_, row = at / columns_ % rows_, g = at / columns_ / rows_;
      to.push_back(
          from[size_t(g / kHeads * kHeads * rows_ * columns_ + g % kHeads * head_ + row * row_ + column)]);
    }
    return to;
  }

 private:
  int64_t rows_, columns_, row_ = 0, head_ = 0;
  Elements<T> elements_;
};

template <class T> class Checker {
  using C = cuda::compute_t<T>;

 public:
  Checker(Group& group, const Case& c)
      : group_(group),
        c_(c),
        q_(c.layout, c.outer, c.L, c.E, c.start, 1),
        k_(c.layout, c.outer, c.S, c.E, c.start, 2),
        v_(c.layout, c.outer, c.S, c.V, c.start, 3),
        dy_(c.layout, c.outer, c.L, c.V, c.start, 4),
        added_(c.mask_layout, c.outer, c.L, c.S, 0, 5),
        seen_(c.mask_layout, c.outer, c.L, c.S, 0, 6) {
    for (size_t i = 0; i < seen_.host().size(); ++i) seen_.host()[i] = mix(i) % 4 != 0;
    for (int64_t l = 0; l < c.L; ++l)
      for (int64_t g = 0; g < matrices_; ++g) seen_.at(g, l, 0) = 1;  // no query has all keys masked
    if (!c.is_special) return;
    // Of matrix 0: NaN in query 1, a finite mask of huge numbers for query 5, all keys of query 7 masked. Of matrix 1:
    // an infinite key 3.
    q_.at(0, 1, 0) = from_double<T>(NAN), k_.at(1, 3, 0) = from_double<T>(INFINITY);
    for (int64_t s = 0; s < c.S; ++s) added_.at(0, 5, s) = from_double<T>(-65504);
    for (int64_t s = 0; s < c.S; ++s) added_.at(0, 7, s) = from_double<T>(-INFINITY);
  }

  void check() {
    cuda::Attention a{};
    a.L = c_.L, a.S = c_.S, a.E = c_.E, a.V = c_.V;
    a.matrices = matrices_, a.dims = 2, a.batch[0] = c_.outer, a.batch[1] = kHeads;
    a.q = q_.on_device(), a.k = k_.on_device(), a.v = v_.on_device(), a.dy = dy_.on_device();
    if (c_.mask == AttentionMask::kBool) a.mask = seen_.on_device();
    if (c_.mask == AttentionMask::kAdded) a.mask = added_.on_device();
    a.scale = c_.scale, a.keep_scale = keep_scale_;
    a.keep = gradus::draws::DropoutMask(1 - c_.dropout);
    a.drops = c_.dropout > 0, a.causal = c_.causal, a.mask_type = c_.mask;
    const Elements<uint64_t> base(std::vector<uint64_t>{kPart.seed, kPart.stream});

    const auto result = [&](int64_t rows, int64_t columns) {
      return Result<T>(c_.layout == Layout::kHeads, c_.outer, rows, columns, c_.start);
    };
    const Result<T> y = result(c_.L, c_.V), dq = result(c_.L, c_.E), dk = result(c_.S, c_.E),
                    dv = result(c_.S, c_.V);
    a.y = y.on_device(), a.dq = dq.on_device(), a.dk = dk.on_device(), a.dv = dv.on_device();
    const auto queries = size_t(matrices_ * c_.L);
    const Elements<C> stats(2 * queries), dy_y(queries);
    for (const bool again : {false, true}) {
      a.key = again ? cuda::DeviceKey{{kKey.seed - kPart.seed, kKey.stream - kPart.stream}, base.data()}
                    : cuda::DeviceKey{kKey};
      cuda::attention<T>("test", stats.data(), a, nullptr);
      cuda::attention_backward<T>("test", dy_y.data(), {stats.data()}, a, nullptr);
      const std::vector<T> now[] = {y.take(), dq.take(), dk.take(), dv.take()};
      for (size_t i = 0; i < 4; ++i) {
        group_.check(!again || same_bits(results_[i], now[i]), "%s: two runs differ in %zu", text().c_str(),
                     i);
        results_[i] = now[i];
      }
    }
    for (const Result<T>* x : {&y, &dq, &dk, &dv})
      group_.check(x->is_clean(), "%s: written outside", text().c_str());
    group_.check(stats.is_clean() && dy_y.is_clean(), "%s: stats written outside", text().c_str());
    stats_ = stats.take();
    for (int64_t g = 0; g < matrices_; ++g) compare(g);
  }

 private:
  bool kept(int64_t g, int64_t l, int64_t s) const {
    const auto i = static_cast<uint64_t>((g * c_.L + l) * c_.S + s);
    const uint32_t word = gradus::philox(kKey.seed, kKey.stream, i / 8)[i % 8 / 2];
    return c_.dropout == 0 || std::ldexp(word >> i % 2 * 16 & 0xffff, -16) < 1 - c_.dropout;
  }
  bool masked(int64_t g, int64_t l, int64_t s) {
    return (c_.causal && s > l) || (c_.mask == AttentionMask::kBool && !seen_.at(g, l, s)) ||
           (c_.mask == AttentionMask::kAdded && added_.value(g, l, s) == -INFINITY);
  }
  // The product of row i of x and row j of z, and of their absolute values.
  static std::pair<double, double> product(Operand<T>& x, int64_t i, Operand<T>& z, int64_t j, int64_t g,
                                           int64_t n) {
    double sum = 0, size = 0;
    for (int64_t e = 0; e < n; ++e) {
      const double term = x.value(g, i, e) * z.value(g, j, e);
      sum += term, size += std::abs(term);
    }
    return {sum, size};
  }

  // Sums of each result, and the sizes of their errors: the roundings of a score change its weight by a factor.
  void compare(int64_t g) {
    const auto [L, S, E, V] = std::tuple(c_.L, c_.S, c_.E, c_.V);
    const double u = kUnit<T>, steps = 4 * double(E + V + 48) * u;
    std::vector<double> dk(size_t(S * E)), dk_size(dk.size()), dv(size_t(S * V)), dv_size(dv.size());
    for (int64_t l = 0; l < L; ++l) {
      const auto zeros = [](int64_t n) { return std::vector<double>(static_cast<size_t>(n)); };
      std::vector<double> score = zeros(S), y = zeros(V), y_size = zeros(V), dq = zeros(E),
                          dq_size = zeros(E);
      double row_max = -INFINITY, total = 0, rounded = 0;  // rounded: the largest term of a score
      for (int64_t s = 0; s < S; ++s) {
        const auto [sum, size] = product(q_, l, k_, s, g, E);
        double& v = score[size_t(s)] = masked(g, l, s) ? -INFINITY : c_.scale * sum;
        if (masked(g, l, s)) continue;
        rounded = std::max(rounded, std::abs(c_.scale) * size);
        if (c_.mask == AttentionMask::kAdded)
          v += added_.value(g, l, s), rounded = std::max(rounded, std::abs(v));
        if (v > row_max) row_max = v;
      }
      const double wide = steps * (1 + 2 * rounded);  // the relative error of a weight
      for (int64_t s = 0; s < S; ++s) total += std::exp(score[size_t(s)] - row_max);
      const size_t row = size_t(g * L + l);
      is_near("max", as_double(stats_[2 * row]), row_max, steps * (rounded + std::abs(row_max)));
      is_near("total", as_double(stats_[2 * row + 1]), total, wide * total + double(S) * u);
      double dy_y = 0, dy_y_size = 0;
      for (int64_t c = 0; c < V; ++c) {
        const double term = dy_.value(g, l, c) * as_double(results_[0][row * size_t(V) + size_t(c)]);
        dy_y += term, dy_y_size += std::abs(term);
      }
      for (int64_t s = 0; s < S; ++s) {
        const bool keeps = kept(g, l, s), is_masked = masked(g, l, s);
        // Beyond the diagonal the kernels skip tiles.
        const double w = c_.causal && s > l ? 0 : std::exp(score[size_t(s)] - row_max) / total;
        const double scaled = keeps ? w * keep_scale_ : 0;
        const auto [sum, size] = product(dy_, l, v_, s, g, V);
        const double dw = keeps ? keep_scale_ * sum : 0, ds = is_masked ? 0 : c_.scale * w * (dw - dy_y),
                     ds_size = is_masked ? 0 : std::abs(c_.scale) * w * (keep_scale_ * size + dy_y_size);
        for (int64_t c = 0; c < V; ++c) {
          y[size_t(c)] += scaled * v_.value(g, s, c),
              y_size[size_t(c)] += std::abs(scaled * v_.value(g, s, c));
          dv[size_t(s * V + c)] += scaled * dy_.value(g, l, c);
          dv_size[size_t(s * V + c)] += wide * std::abs(scaled * dy_.value(g, l, c));
        }
        for (int64_t e = 0; e < E; ++e) {
          dq[size_t(e)] += ds * k_.value(g, s, e),
              dq_size[size_t(e)] += std::abs(ds_size * k_.value(g, s, e));
          dk[size_t(s * E + e)] += ds * q_.value(g, l, e);
          dk_size[size_t(s * E + e)] += wide * std::abs(ds_size * q_.value(g, l, e));
        }
      }
      // Sums of tiles are rounded after each of them.
      const double sums = wide + double(S + 64) * u;
      for (int64_t c = 0; c < V; ++c)
        rounds_to("y", 0, row * size_t(V) + size_t(c), y[size_t(c)], sums * y_size[size_t(c)]);
      for (int64_t e = 0; e < E; ++e)
        rounds_to("dq", 1, row * size_t(E) + size_t(e), dq[size_t(e)], sums * dq_size[size_t(e)]);
    }
    for (size_t i = 0; i < dk.size(); ++i)
      rounds_to("dk", 2, size_t(g) * dk.size() + i, dk[i], dk_size[i] * double(1 + L / 64));
    for (size_t i = 0; i < dv.size(); ++i)
      rounds_to("dv", 3, size_t(g) * dv.size() + i, dv[i], dv_size[i] * double(1 + L / 64));
  }

  void rounds_to(const char* what, size_t result, size_t i, double want, double allowed) {
    is_near(what, as_double(results_[result][i]), want, allowed + rounding_error<T>(std::abs(want) + allowed),
            i);
  }
  void is_near(const char* what, double got, double want, double allowed, size_t i = 0) {
    group_.check(std::isnan(want) ? std::isnan(got) : got == want || std::abs(got - want) <= allowed + 1e-37,
                 "%s, %s %zu: %.17g, not %.17g within %.3g", text().c_str(), what, i, got, want, allowed);
  }
  std::string text() const {
    char all[200];
    std::snprintf(all, sizeof all,
                  "L %d S %d E %d V %d, causal %d, mask %d, layouts %d %d + %zu, dropout %g, scale %g",
                  int(c_.L), int(c_.S), int(c_.E), int(c_.V), c_.causal, int(c_.mask), int(c_.layout),
                  int(c_.mask_layout), c_.start, c_.dropout, c_.scale);
    return all;
  }

  Group& group_;
  const Case c_;
  const int64_t matrices_ = c_.outer * kHeads;
  const double keep_scale_ = c_.dropout < 1 ? 1 / (1 - c_.dropout) : 0;
  Operand<T> q_, k_, v_, dy_, added_;
  Operand<unsigned char> seen_;
  std::vector<T> results_[4];  // y, dq, dk, dv
  std::vector<C> stats_;
};

template <class T> void test_type(const char* name) {
  Group group(std::string("attention of ") + name);
  if (!group) return;
  for (const Case& c : cases()) Checker<T>(group, c).check();
}

}  // namespace

void test_attention() {
  test_type<float>("f32");
  test_type<double>("f64");
  test_type<bf16>("bf16");
  test_type<f16>("f16");
}

}  // namespace device_test
