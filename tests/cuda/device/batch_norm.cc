// Kernels for batch norm of channels-last data [rows, channels], forward, backward and running statistics,
// against long double loops on the host within bounds on roundings; two runs must have the same bits.
#include "gradus/tensor/cuda/kernels/norm/batch_norm.h"

#include "device_test.h"

namespace device_test {
namespace {

struct Image {
  int64_t rows, channels;
  size_t start = 0;  // first element of the operands, for misalignment
  bool weighted = true;
  bool brief = false;  // checks few ops, each run once
  int64_t size() const { return rows * channels; }
  size_t at(int64_t row, int64_t c) const { return static_cast<size_t>(row * channels + c); }
};

std::vector<Image> images() {
  std::vector<Image> all;
  for (const int64_t channels : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65})
    for (const int64_t rows : {1, 9}) all.push_back({rows, channels, size_t(channels % 5 == 2)});
  for (const int64_t channels : {3, 8}) all.push_back({2, channels});
  // Around one row per thread, four rows per thread, and the first split over several blocks.
  for (const int64_t rows : {31, 32, 33, 127, 128, 129, 257}) all.push_back({rows, 32, 0, rows % 2 == 1});
  for (const int64_t rows : {7, 8, 9, 31, 32, 33, 130}) all.push_back({rows, 33});
  for (const int64_t rows : {255, 256, 257, 1023, 1024, 1025, 3000})
    all.push_back({rows, 1, size_t(rows == 1024)});
  all.push_back({511, 16});
  all.push_back({513, 16, 1});
  all.push_back({1500, 3});
  all.push_back({150, 80});
  all.push_back({10'000, 32, 0, true, true});  // more rows per thread than one partial sum takes
  if (!options().small)
    all.push_back({100'000, 64, 0, true, true}), all.push_back({40, 4096}), all.push_back({60'000, 5, 1});
  return all;
}

// Unit roundoff of the compute type, and the additional one of 16-bit elements; absolute error near 0.
template <class T> constexpr double kUnit = std::is_same_v<T, double> ? 0x1p-53 : 0x1p-24;
template <class T>
constexpr double kStored = std::is_same_v<T, f16>    ? 0x1p-11
                           : std::is_same_v<T, bf16> ? 0x1p-8
                                                     : 0;
template <class T> constexpr double kLeast = std::is_same_v<T, f16> ? 0x1p-25 : 1e-40;

template <class T> using Wide = cuda::compute_t<T>;
using Numbers = std::vector<long double>;  // one per channel

// Channels differ: constant, large mean with small spread, one outlier, one NaN.
template <class T> std::vector<T> pixels(const Image& s, uint64_t salt) {
  std::vector<T> x(static_cast<size_t>(s.size()));
  for (int64_t row = 0; row < s.rows; ++row)
    for (int64_t c = 0; c < s.channels; ++c) {
      double v = as_double(sample<T>(s.at(row, c), salt, false)) + static_cast<double>(c % 3) - 1;
      if (c % 8 == 3) v = 3;
      if (c % 8 == 4) v = 1000 + 0.01 * v;
      if (c % 8 == 5 && row == 0) v = 300;
      if (c % 16 == 14 && row == s.rows / 2) v = NAN;
      x[s.at(row, c)] = from_double<T>(v);
    }
  return x;
}
template <class T> std::vector<T> by_channel(const Image& s, uint64_t salt, double least) {
  std::vector<T> v(static_cast<size_t>(s.channels));
  for (size_t c = 0; c < v.size(); ++c) v[c] = static_cast<T>(least + sample<double>(c, salt, false));
  return v;
}

// Expects got = old + kMomentum * (times * batch - old).
constexpr double kMomentum = 0.3;
template <class R, class A>
void expect_moved(Group& group, const std::vector<R>& got, const std::vector<R>& old,
                  const std::vector<A>& batch, double times) {
  for (size_t c = 0; c < old.size(); ++c) {
    const double from = as_double(old[c]), to = double(batch[c]) * times,
                 want = from + kMomentum * (to - from), is = as_double(got[c]);
    const double allowed = (kUnit<R> + kStored<R>)*1.01 * std::abs(want) +
                           4 * 0x1p-53 * (std::abs(from) + std::abs(to)) + kLeast<R>;
    group.check(std::isnan(want) ? std::isnan(is) : is == want || std::abs(is - want) <= allowed,
                "of %zu channels, %zu is %.17g, not %.17g", old.size(), c, is, want);
  }
}

template <class T> class Checker {
 public:
  using A = Wide<T>;
  Checker(Group& group, const Image& s)
      : group_(group),
        s_(s),
        x_(pixels<T>(s, 1)),
        weight_(by_channel<A>(s, 2, s.weighted ? 0 : 1)),
        bias_(by_channel<A>(s, 3, 0)),
        x(x_, s.start),
        weight(weight_),
        bias(bias_),
        mean(static_cast<size_t>(s.channels)),
        var(static_cast<size_t>(s.channels)),
        workspace(static_cast<size_t>(cuda::batch_norm_workspace(s.rows, s.channels))) {
    if (!s.weighted) {
      weight_.assign(weight_.size(), A(1));
      bias_.assign(bias_.size(), A(0));
    }
  }

  void check_all() {
    check_forward();
    if (!s_.brief) check_statistics();
    check_backward();
  }

 private:
  static constexpr double kEps = 1e-3;

  cuda::BatchNorm<T> problem() const {
    return {s_.rows,
            s_.channels,
            x.data(),
            mean.data(),
            var.data(),
            s_.weighted ? weight.data() : nullptr,
            s_.weighted ? bias.data() : nullptr,
            kEps};
  }
  template <class V> void is_near(const char* what, size_t i, V got, long double want, double allowed) {
    const double v = as_double(got), w = static_cast<double>(want);
    const bool overflows = std::is_same_v<V, f16> && std::abs(w) + allowed > 65504;
    const bool right = std::isnan(w) ? std::isnan(v)
                                     : v == w || std::abs(v - want) <= allowed + kLeast<V> ||
                                           (overflows && std::isinf(v) && (v > 0) == (w > 0));
    group_.check(right, "%s of [%lld, %lld] + %zu, element %zu: %.17g, not %.17g within %.3g", what,
                 (long long)s_.rows, (long long)s_.channels, s_.start, i, v, w, allowed);
  }
  // Runs twice, so `run` restores what it overwrites.
  template <class V, class F> std::vector<V> result(const char* what, const Elements<V>& got, F&& run) {
    run();
    const std::vector<V> first = got.take();
    if (s_.brief) return first;
    run();
    const std::vector<V> second = got.take();
    group_.check(same_bits(first, second), "%s of [%lld, %lld]: two runs differ", what, (long long)s_.rows,
                 (long long)s_.channels);
    group_.check(got.is_clean(), "%s of [%lld, %lld]: written outside", what, (long long)s_.rows,
                 (long long)s_.channels);
    return first;
  }
  template <class F> void for_each(F&& f) const {
    for (int64_t row = 0; row < s_.rows; ++row)
      for (int64_t c = 0; c < s_.channels; ++c) f(s_.at(row, c), static_cast<size_t>(c));
  }
  long double pixel(size_t i) const { return as_double(x_[i]); }

  // A sums at most 16 rounded differences from one of the elements: 17 roundings, relative to the largest
  // difference. The sum of squares rounds as often, and the rounding of a difference counts twice in its
  // square.
  void check_moments(const char* what, const std::vector<double>& got_mean,
                     const std::vector<double>& got_var, double stored) {
    const auto n = static_cast<long double>(s_.rows);
    Numbers sums(weight_.size()), squares(weight_.size()), most(weight_.size());
    for_each([&](size_t i, size_t c) { sums[c] += pixel(i); });
    for_each([&](size_t i, size_t c) {
      const long double d = pixel(i) - sums[c] / n;
      squares[c] += d * d;
      most[c] = std::max(most[c], std::abs(d));
    });
    for (size_t c = 0; c < sums.size(); ++c) {
      const auto apart = static_cast<double>(2 * most[c]);
      is_near(what, c, got_mean[c], sums[c] / n,
              17 * kUnit<T> * apart + stored * std::abs(got_mean[c]) + 0x1p-52 * double(n) * apart);
      if (std::isnan(sums[c])) continue;
      is_near(
          what, c, got_var[c], squares[c] / n,
          (18 + 34) * kUnit<T> * apart * apart + stored * got_var[c] + 0x1p-50 * double(n) * apart * apart);
    }
  }

  void check_forward() {
    // 1 / sqrt(var + eps) * weight is rounded 3 times at most.
    const std::vector<T> other = pixels<T>(s_, 4);
    const Elements<T> y(other.size(), s_.start), residual(other, s_.start);
    const auto normalized = [&](const char* what, const std::vector<T>& got, bool adds, double slope) {
      const std::vector<A> m = mean.take(), v = var.take();
      for_each([&](size_t i, size_t c) {
        const long double t = (pixel(i) - m[c]) / std::sqrt((long double)(v[c]) + kEps) * weight_[c];
        const long double normal = t + bias_[c],
                          sum = normal + (adds ? (long double)(as_double(other[i])) : 0);
        const long double want = sum < 0 ? slope * sum : sum;
        const auto size = static_cast<double>(5 * std::abs(t) + std::abs(normal) + std::abs(sum));
        is_near(what, i, got[i], want, kUnit<T> * size + kStored<T> * 1.01 * std::abs(double(sum)));
      });
    };
    const auto run = [&](T* to, const T* add, double slope, const cuda::RunningStatistics& running = {}) {
      cuda::batch_norm("test", problem(), to, add, slope, running, workspace.data(), nullptr);
    };
    normalized("normalized", result("normalized", y, [&] { run(y.data(), nullptr, 1); }), false, 1);
    const std::vector<A> m = mean.take(), v = var.take();
    check_moments("mean and variance", {m.begin(), m.end()}, {v.begin(), v.end()}, kUnit<T>);
    if (s_.brief) return;
    normalized("rectified", result("rectified", y, [&] { run(y.data(), nullptr, 0); }), false, 0);
    const auto moves = [&]<class R>(R, double slope) {
      std::vector<R> old_mean(m.size()), old_var(m.size());
      for (size_t c = 0; c < m.size(); ++c)
        old_mean[c] = sample<R>(c, 13, false), old_var[c] = sample<R>(c, 14, false);
      const Elements<R> running_mean(old_mean), running_var(old_var);
      const Elements<int64_t> batches(std::vector<int64_t>{41});
      constexpr int kIsWide = std::is_same_v<R, A>;
      const std::vector<T> got = result("with a slope", y, [&] {
        put(running_mean, old_mean), put(running_var, old_var), put(batches, std::vector<int64_t>{41});
        run(y.data(), nullptr, slope,
            {running_mean.data(), running_var.data(), batches.data(), 1.5, kMomentum, kIsWide, kIsWide});
      });
      normalized("with a slope", got, false, slope);
      expect_moved(group_, running_mean.take(), old_mean, mean.take(), 1);
      expect_moved(group_, running_var.take(), old_var, var.take(), 1.5);
      group_.check(batches.take()[0] == 42, "%lld batches", (long long)batches.take()[0]);
      group_.check(running_mean.is_clean() && running_var.is_clean(), "running statistics: written outside");
    };
    moves(A(), 0.25);
    if (!std::is_same_v<T, A>) moves(T(), -0.5);
    normalized("rectified sum",
               result("rectified sum", residual,
                      [&] {
                        put(residual, other);
                        run(residual.data(), residual.data(), 0);
                      }),
               true, 0);
    normalized("by given statistics",
               result("by given statistics", y,
                      [&] { cuda::batch_norm_apply("test", problem(), y.data(), nullptr); }),
               false, 1);
  }

  void check_statistics() {
    const Elements<double> center(weight_.size()), m2(weight_.size());
    const std::vector<double> got_mean = result("mean", center, [&] {
      cuda::batch_statistics("test", center.data(), m2.data(), static_cast<const T*>(x.data()), s_.rows,
                             s_.channels, workspace.data(), nullptr);
    });
    std::vector<double> got_var = m2.take();
    for (double& v : got_var) v /= static_cast<double>(s_.rows);
    check_moments("statistics", got_mean, got_var, 0x1p-52);

    const std::vector<A> about = by_channel<A>(s_, 5, 0), offset = by_channel<A>(s_, 6, 0),
                         slope = by_channel<A>(s_, 7, 0);
    const Elements<A> means(about), offsets(offset), slopes(slope);
    std::vector<A> add(x_.size());
    for (size_t i = 0; i < add.size(); ++i) add[i] = sample<A>(i, 8, false);
    const Elements<A> adds(add, s_.start);
    const Elements<T> dx(x_.size(), s_.start);
    for (const bool added : {false, true}) {
      const std::vector<T> got = result("gradient of statistics", dx, [&] {
        cuda::batch_statistics_backward<T>("test", dx.data(), added ? adds.data() : nullptr, x.data(),
                                           means.data(), offsets.data(), slopes.data(), s_.rows, s_.channels,
                                           nullptr);
      });
      for_each([&](size_t i, size_t c) {
        const long double t = (pixel(i) - about[c]) * slope[c], line = offset[c] + t,
                          want = line + (added ? (long double)(add[i]) : 0);
        is_near("gradient of statistics", i, got[i], want,
                kUnit<T> * double(2 * std::abs(t) + std::abs(line) + std::abs(want)) * 1.01 +
                    kStored<T> * 1.01 * std::abs(double(want)));
      });
    }
  }

  // g: gradients of the normalized elements, summed in groups of at most 16; each term is rounded once or
  // twice.
  void check_gradients(const char* what, const std::vector<double>& g, const std::vector<A>& dweight,
                       const std::vector<A>& dbias, const std::vector<T>* dx, bool is_scaled = true) {
    const double n = static_cast<double>(s_.rows), u = kUnit<T>;
    const std::vector<A> m = mean.take(), v = var.take();
    Numbers sum(m.size()), centered(m.size()), size(m.size()), centered_size(m.size());
    for_each([&](size_t i, size_t c) {
      const long double of = g[i] * (pixel(i) - m[c]);
      sum[c] += g[i], centered[c] += of;
      size[c] += std::abs(g[i]), centered_size[c] += std::abs(of);
    });
    const auto inv_std = [&](size_t c) { return 1 / std::sqrt((long double)(v[c]) + kEps); };
    const double wide = 0x1p-52 * n;
    for (size_t c = 0; c < m.size(); ++c) {
      const double scale = is_scaled ? double(inv_std(c)) : 1;
      is_near(what, c, dbias[c], sum[c], (16 * u + wide) * double(size[c]) + u * std::abs(double(sum[c])));
      is_near(
          what, c, dweight[c], centered[c] * scale,
          (18 * u + wide) * double(centered_size[c]) * scale + 4 * u * std::abs(double(centered[c]) * scale));
    }
    if (!dx) return;
    for_each([&](size_t i, size_t c) {
      const long double inv = inv_std(c), scale = inv * weight_[c], offset = sum[c] / n,
                        slope = centered[c] * inv * inv / n, d = pixel(i) - m[c],
                        want = scale * (g[i] - offset - d * slope);
      const double of_sums = (17 * u + wide) * double(size[c]) / n +
                             (20 * u + wide) * double(std::abs(d) * centered_size[c] * inv * inv) / n;
      const double rounded = u * double(7 * std::abs(d * slope) + 3 * std::abs(g[i]) + 3 * std::abs(offset));
      is_near(what, i, (*dx)[i], want,
              double(std::abs(scale)) * (of_sums + rounded) * 1.01 +
                  (5 * u + 1.01 * kStored<T>)*std::abs(double(want)));
    });
  }

  void check_backward() {
    std::vector<T> dy(x_.size());
    for (size_t i = 0; i < dy.size(); ++i) dy[i] = sample<T>(i, 9, false);
    // Arbitrary mean and variance, so that no sum vanishes; no normalized element is so near 0 that its sign
    // is uncertain.
    const std::vector<A> m = by_channel<A>(s_, 10, 0), v = by_channel<A>(s_, 11, 1.5);
    put(mean, m), put(var, v);
    for_each([&](size_t i, size_t c) {
      while (std::abs(normal(i, c, m, v)) < 1e-3 * (1 + std::abs(pixel(i))))
        x_[i] = from_double<T>(as_double(x_[i]) + 0.25);
    });
    put(x, x_);
    const size_t channels = m.size();
    const Elements<T> slopes(dy, s_.start), dx(dy.size(), s_.start);
    const Elements<A> dweight(channels), dbias(channels);
    for (const double slope : {1., 0., -0.25}) {
      std::vector<double> g(dy.size());
      for_each([&](size_t i, size_t c) { g[i] = as_double(dy[i]) * (normal(i, c, m, v) <= 0 ? slope : 1); });
      const Elements<T>& to = slope == 0 ? slopes : dx;  // in place or not
      const std::vector<T> got = result("gradient", to, [&] {
        put(slopes, dy);
        cuda::batch_norm_backward("test", problem(), to.data(), dweight.data(), dbias.data(),
                                  static_cast<const T*>(slopes.data()), slope, workspace.data(), nullptr);
      });
      check_gradients(slope == 1 ? "gradient" : "gradient of what was rectified", g, dweight.take(),
                      dbias.take(), &got);
      if (s_.brief) return;
    }
    check_add_relu(dy, slopes, dx, dweight, dbias);

    // batch_norm_apply_backward: the sums and the scaled gradient alone.
    std::vector<double> g(dy.size());
    for (size_t i = 0; i < g.size(); ++i) g[i] = as_double(dy[i]);
    const Elements<A> scaled(dy.size(), s_.start);
    put(slopes, dy);
    const std::vector<A> got = result("scaled gradient", scaled, [&] {
      cuda::batch_norm_apply_backward("test", problem(), scaled.data(), dbias.data(), dweight.data(),
                                      static_cast<const T*>(slopes.data()), workspace.data(), nullptr);
    });
    check_gradients("sums of gradients", g, dweight.take(), dbias.take(), nullptr, false);
    for_each([&](size_t i, size_t c) {
      const long double want = g[i] * weight_[c] / std::sqrt((long double)(v[c]) + kEps);
      is_near("scaled gradient", i, got[i], want, 4 * kUnit<T> * std::abs(double(want)));
    });
  }

  void check_add_relu(const std::vector<T>& dy, const Elements<T>& slopes, const Elements<T>& dx,
                      const Elements<A>& dweight, const Elements<A>& dbias) {
    std::vector<T> y(dy.size()), kept(dy.size());
    std::vector<double> g(dy.size());
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] = from_double<T>(std::max(0., as_double(sample<T>(i, 12, false))));
      kept[i] = as_double(y[i]) <= 0 ? from_double<T>(0) : dy[i];
      g[i] = as_double(kept[i]);
    }
    const Elements<T> outputs(y, s_.start), dresidual(y.size(), s_.start);
    for (const bool in_place : {false, true}) {
      const Elements<T>&to = in_place ? outputs : dx, &other = in_place ? slopes : dresidual;
      const std::vector<T> got = result("gradient of a rectified sum", to, [&] {
        put(slopes, dy), put(outputs, y);
        cuda::batch_norm_add_relu_backward("test", problem(), to.data(), other.data(), dweight.data(),
                                           dbias.data(), static_cast<const T*>(slopes.data()),
                                           static_cast<const T*>(outputs.data()), workspace.data(), nullptr);
      });
      check_gradients("gradient of a rectified sum", g, dweight.take(), dbias.take(), &got);
      const std::vector<T> added = other.take();
      for (size_t i = 0; i < added.size(); ++i)
        group_.check(same(added[i], kept[i]), "gradient of what was added: element %zu is %.17g, not %.17g",
                     i, as_double(added[i]), as_double(kept[i]));
    }
  }

  template <class V> static void put(const Elements<V>& to, const std::vector<V>& from) {
    MUST(cudaMemcpy(to.data(), from.data(), from.size() * sizeof(V), cudaMemcpyHostToDevice));
  }
  // NaN has no sign, and is never near 0.
  double normal(size_t i, size_t c, const std::vector<A>& m, const std::vector<A>& v) const {
    return (as_double(x_[i]) - m[c]) / std::sqrt(double(v[c]) + kEps) * weight_[c] + bias_[c];
  }

  Group& group_;
  Image s_;
  std::vector<T> x_;
  std::vector<A> weight_, bias_;
  Elements<T> x;
  Elements<A> weight, bias, mean, var;
  Buffer workspace;
};

template <class R, class A> void check_update(Group& group, int64_t channels, int64_t rows) {
  const Image s{1, channels};
  std::vector<R> mean(static_cast<size_t>(channels)), var(mean.size());
  for (size_t c = 0; c < mean.size(); ++c) mean[c] = sample<R>(c, 1, false), var[c] = sample<R>(c, 2, false);
  const std::vector<A> m = by_channel<A>(s, 3, 0), v = by_channel<A>(s, 4, 1);
  const Elements<R> running_mean(mean), running_var(var);
  const Elements<int64_t> batches(std::vector<int64_t>{41});
  const Elements<A> of_mean(m), of_var(v);
  const double factor = double(rows) / double(rows - 1);
  constexpr int kIsWide = std::is_same_v<R, A>;
  cuda::batch_norm_update<R>(
      "test", {running_mean.data(), running_var.data(), batches.data(), factor, kMomentum, kIsWide, kIsWide},
      of_mean.data(), of_var.data(), channels, nullptr);
  const int64_t counted = batches.take()[0];
  group.check(counted == 42, "of %lld channels, %lld batches", (long long)channels, (long long)counted);
  expect_moved(group, running_mean.take(), mean, m, 1);
  expect_moved(group, running_var.take(), var, v, factor);
  group.check(running_mean.is_clean() && running_var.is_clean(), "running statistics: written outside");
}

template <class T> void test_type(const char* name) {
  Group group(std::string("batch norm of ") + name);
  if (!group) return;
  for (const Image& s : images()) Checker<T>(group, s).check_all();
  for (const int64_t channels : {1, 3, 255, 256, 257})
    for (const int64_t rows : {1, 2, 1000}) check_update<T, Wide<T>>(group, channels, rows);
}

}  // namespace

void test_batch_norm() {
  test_type<float>("f32");
  test_type<double>("f64");
  test_type<f16>("f16");
  test_type<bf16>("bf16");
}

}  // namespace device_test
