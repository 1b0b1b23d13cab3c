// Kernels of layer norm and RMS norm of [rows, n] and of their gradients, against f64 loops on the host
// within bounds on roundings; two runs must have the same bits.
#include "gradus/tensor/cuda/kernels/norm/layer_norm.h"

#include "device_test.h"

namespace device_test {
namespace {

struct Rows {
  int64_t rows, n;
  size_t start = 0;  // first element of the operands, for misalignment
  bool centered = true, weighted = true;
  size_t weight_start = 0;  // of weight and bias
  size_t size() const { return static_cast<size_t>(rows * n); }
};

std::vector<Rows> shapes() {
  std::vector<Rows> all;
  for (const int64_t n : {1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 32, 33, 63, 64, 65})
    all.push_back({n < 9 ? 70 : 13, n, size_t(n % 3 == 2), n % 2 == 0, n % 5 != 3});
  // Around the longest rows that a warp or a block keeps in registers: 4 or 6 vectors for each thread.
  for (const int64_t n : {128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144})
    for (const int64_t more : {-4, -2, -1, 0, 1, 2, 4})
      if (!options().small || more % 4 == 0 || n < 1000)
        all.push_back({n < 1000 ? 9 : 2, n + more, 0, more % 2 == 0});
  for (const int64_t n : {128, 192, 1024, 1536})
    all.push_back({3, n, 1, false}), all.push_back({3, n + 4, 1}), all.push_back({3, n, 0, true, true, 1});
  // Around 1 and 16 rows for each thread of a block, and around the first split over several blocks.
  for (const int64_t rows : {31, 32, 33, 66, 67, 68, 133, 134, 135, 511, 512, 513}) all.push_back({rows, 32});
  for (const int64_t rows : {7, 8, 9, 127, 128, 129, 300}) all.push_back({rows, 33, 0, rows % 2 == 0});
  for (const int64_t rows : {255, 256, 257, 4095, 4097}) all.push_back({rows, 1}), all.push_back({rows, 4});
  all.push_back({2000, 12, 1}), all.push_back({1, 10'000}), all.push_back({1, 10'001, 0, false});
  if (!options().small)
    all.push_back({8192, 768}), all.push_back({100'000, 64}), all.push_back({3, 1'000'003});
  return all;
}

template <class T> constexpr double kUnit = std::is_same_v<T, double> ? 0x1p-53 : 0x1p-24;
constexpr double kEps = 1e-5;

template <class T> class LayerNormChecker {
 public:
  LayerNormChecker(Group& group, const Rows& s)
      : group_(group), s_(s), x_(s.size()), dy_(s.size()), weight_(size_t(s.n), T(1)), bias_(size_t(s.n)) {
    // Rows differ: constant, large mean with small spread, one outlier, one NaN.
    for (int64_t r = 0; r < s.rows; ++r)
      for (int64_t i = 0; i < s.n; ++i) {
        T& v = x_[at(r, i)] = sample<T>(at(r, i), 1, false);
        if ((r + s.n) % 8 == 2) v = 3;
        if ((r + s.n) % 8 == 4) v = T(1000 + 0.01 * double(v));
        if ((r + s.n) % 8 == 6 && i == s.n / 2) v = 300;
        if (s.n > 1 && (r + s.n) % 16 == 7 && i == s.n - 1) v = NAN;
        dy_[at(r, i)] = sample<T>(at(r, i), 2, false);
      }
    if (!s.weighted) return;
    for (size_t i = 0; i < weight_.size(); ++i)
      weight_[i] = sample<T>(i, 3, false), bias_[i] = sample<T>(i, 4, false);
  }

  // A thread adds at most 4 rounded differences in T, the rest in f64: 5 roundings of the largest difference.
  void check_forward() {
    const Elements<T> x(x_, s_.start), weight(weight_, s_.weight_start), bias(bias_, s_.weight_start),
        y(x_.size(), s_.start);
    const Elements<double> stats(static_cast<size_t>(2 * s_.rows));
    std::vector<double> got_stats;
    const std::vector<T> got = twice(y, [&] {
      cuda::layer_norm("test", y.data(), stats.data(), x.data(), s_.weighted ? weight.data() : nullptr,
                       s_.weighted ? bias.data() : nullptr, s_.rows, s_.n, kEps, s_.centered, nullptr);
      const std::vector<double> now = stats.take();
      group_.check(got_stats.empty() || same_bits(now, got_stats), "[%lld, %lld]: two runs differ in stats",
                   (long long)s_.rows, (long long)s_.n);
      got_stats = now;
    });
    group_.check(stats.is_clean(), "[%lld, %lld]: stats written outside", (long long)s_.rows,
                 (long long)s_.n);
    for (int64_t r = 0; r < s_.rows; ++r) {
      const auto [mean, var, spread] = moments(r);
      const double inv_std = 1 / std::sqrt(var + kEps), u = kUnit<T>, wide = 0x1p-53 * double(s_.n + 8);
      is_near("mean", r, 0, got_stats[size_t(2 * r)], mean,
              10 * (u + wide) * spread + 0x1p-51 * std::abs(mean));
      is_near("1 / std", r, 0, got_stats[size_t(2 * r + 1)], inv_std, (20 * u + 4 * wide) * inv_std);
      for (int64_t i = 0; i < s_.n; ++i) {
        const double w = weight_[size_t(i)], b = bias_[size_t(i)], z = (x_[at(r, i)] - mean) * inv_std;
        const double allowed = (24 * u + 16 * wide) * (spread * inv_std + std::abs(z)) * std::abs(w) +
                               2 * u * (std::abs(b) + std::abs(z * w));
        is_near("y", r, i, double(got[at(r, i)]), z * w + b, allowed);
      }
    }
  }

  // The statistics are given, so that no sum vanishes, and a NaN stays in its column of dweight. A sum adds
  // at most 4 rounded terms in T for a row, 16 for a column. A z is rounded 4 times.
  void check_backward() {
    std::vector<double> stats_in;
    for (int64_t r = 0; r < s_.rows; ++r) {
      const double mean = s_.centered ? moments(r).mean + 0.25 : 0;
      stats_in.push_back(std::isnan(mean) ? 0.25 : mean), stats_in.push_back(0.5 + double(r % 5));
    }
    const Elements<T> x(x_, s_.start), dy(dy_, s_.start), weight(weight_, s_.weight_start),
        dx(x_.size(), s_.start);
    const Elements<T> dweight(weight_.size()), dbias(weight_.size());
    const Elements<double> stats(stats_in);
    const Buffer workspace(static_cast<size_t>(cuda::layer_norm_backward_workspace(s_.rows, s_.n)));
    std::vector<T> dw, db;
    const std::vector<T> got = twice(dx, [&] {
      cuda::layer_norm_backward("test", dx.data(), dweight.data(), dbias.data(), dy.data(), x.data(),
                                stats.data(), s_.weighted ? weight.data() : nullptr, s_.rows, s_.n,
                                s_.centered, workspace.data(), nullptr);
      const std::vector<T> now_w = dweight.take(), now_b = dbias.take();
      group_.check(dw.empty() || (same_bits(now_w, dw) && same_bits(now_b, db)),
                   "[%lld, %lld]: two runs differ in dweight or dbias", (long long)s_.rows, (long long)s_.n);
      dw = now_w, db = now_b;
    });
    group_.check(dweight.is_clean() && dbias.is_clean(), "[%lld, %lld]: dweight or dbias written outside",
                 (long long)s_.rows, (long long)s_.n);
    const double u = kUnit<T>, n = double(s_.n);
    std::vector<double> want_dw(dw.size()), size_dw(dw.size()), want_db(dw.size()), size_db(dw.size());
    for (int64_t r = 0; r < s_.rows; ++r) {
      const double mean = stats_in[size_t(2 * r)], inv_std = stats_in[size_t(2 * r + 1)],
                   wide = 0x1p-53 * (n + 8);
      double g_sum = 0, gz_sum = 0, g_size = 0, gz_size = 0;
      for (int64_t i = 0; i < s_.n; ++i) {
        const double d = dy_[at(r, i)], g = d * weight_[size_t(i)], z = (x_[at(r, i)] - mean) * inv_std;
        g_sum += g, gz_sum += g * z, g_size += std::abs(g), gz_size += std::abs(g * z);
        want_dw[size_t(i)] += d * z, size_dw[size_t(i)] += std::abs(d * z);
        want_db[size_t(i)] += d, size_db[size_t(i)] += std::abs(d);
      }
      const double mean_g = s_.centered ? g_sum / n : 0, mean_gz = gz_sum / n;
      for (int64_t i = 0; i < s_.n; ++i) {
        const double g = dy_[at(r, i)] * weight_[size_t(i)], z = (x_[at(r, i)] - mean) * inv_std;
        const double allowed = inv_std * ((8 * u + 2 * wide) * (std::abs(g) + g_size / n) +
                                          (20 * u + 4 * wide) * std::abs(z) * gz_size / n);
        is_near("dx", r, i, double(got[at(r, i)]), (g - mean_g - z * mean_gz) * inv_std, allowed);
      }
    }
    const double wide = 0x1p-53 * double(s_.rows + 8);
    for (size_t i = 0; i < dw.size(); ++i) {
      is_near("dweight", 0, int64_t(i), double(dw[i]), want_dw[i], (23 * u + 2 * wide) * size_dw[i]);
      is_near("dbias", 0, int64_t(i), double(db[i]), want_db[i], (17 * u + 2 * wide) * size_db[i]);
    }
  }

 private:
  size_t at(int64_t r, int64_t i) const { return static_cast<size_t>(r * s_.n + i); }

  // spread: the largest difference of two elements; not centered: the largest element.
  struct Moments {
    double mean, var, spread;
  };
  Moments moments(int64_t r) const {
    long double sum = 0, squares = 0;
    double least = s_.centered ? INFINITY : 0, most = s_.centered ? -INFINITY : 0;
    for (int64_t i = 0; i < s_.n; ++i) {
      const double v = x_[at(r, i)];
      sum += v, least = std::min(least, v), most = std::max(most, v);
    }
    const long double mean = s_.centered ? sum / s_.n : 0;
    for (int64_t i = 0; i < s_.n; ++i) squares += (x_[at(r, i)] - mean) * (x_[at(r, i)] - mean);
    return {double(mean), double(squares / s_.n), most - least};
  }
  template <class F> std::vector<T> twice(const Elements<T>& result, F&& run) {
    run();
    const std::vector<T> first = result.take();
    run();
    const std::vector<T> second = result.take();
    group_.check(same_bits(first, second), "[%lld, %lld]: two runs differ", (long long)s_.rows,
                 (long long)s_.n);
    group_.check(result.is_clean(), "[%lld, %lld]: written outside", (long long)s_.rows, (long long)s_.n);
    return first;
  }
  void is_near(const char* what, int64_t r, int64_t i, double got, double want, double allowed) {
    group_.check(std::isnan(want) ? std::isnan(got) : got == want || std::abs(got - want) <= allowed + 1e-44,
                 "%s of [%lld, %lld] + %zu, centered %d, at %lld, %lld: %.17g, not %.17g within %.3g", what,
                 (long long)s_.rows, (long long)s_.n, s_.start, s_.centered, (long long)r, (long long)i, got,
                 want, allowed);
  }

  Group& group_;
  Rows s_;
  std::vector<T> x_, dy_, weight_, bias_;
};

template <class T> void test_type(const char* name) {
  Group group(std::string("layer norm of ") + name);
  if (!group) return;
  for (const Rows& s : shapes()) {
    LayerNormChecker<T> checker(group, s);
    checker.check_forward();
    checker.check_backward();
  }
}

}  // namespace

void test_layer_norm() {
  test_type<float>("f32");
  test_type<double>("f64");
}

}  // namespace device_test
