// Group norm with its first and second gradients, and sums over windows of channels, against host loops in long double.
// Samples have large means, outliers and NaN; sizes are around a warp and a block of channels, 16 rows of a thread, and
// several pieces of rows.
#include "gradus/tensor/cuda/kernels/norm/group_norm.h"

#include "device_test.h"

namespace device_test {
namespace {

struct Batch {
  int64_t samples, rows, channels, groups;
  bool weighted = true;
  size_t size() const { return static_cast<size_t>(samples * rows * channels); }
};

std::vector<Batch> shapes() {
  std::vector<Batch> all = {{1, 1, 1, 1},    {2, 7, 3, 1},     {2, 7, 3, 3, false}, {3, 33, 4, 2},
                            {2, 16, 31, 1},  {2, 17, 32, 4},   {1, 129, 33, 11},    {2, 127, 64, 1, false},
                            {2, 40, 96, 32}, {1, 300, 257, 1}, {1, 9, 512, 2},      {4, 65, 24, 24},
                            {1, 4100, 2, 1}, {2, 2050, 4, 2},  {1, 1, 600, 1},      {70, 5, 8, 2, false},
                            {1, 1500, 40, 5}};
  if (!options().small) all.insert(all.end(), {{32, 3136, 256, 32}, {8, 65536, 16, 16}, {1, 100'003, 3, 1}});
  return all;
}

template <class T> constexpr double kUnit = std::is_same_v<T, double> ? 0x1p-53 : 0x1p-24;
constexpr double kEps = 1e-3;

template <class T> class GroupNormChecker {
 public:
  GroupNormChecker(Group& group, const Batch& s)
      : group_(group), s_(s), x_(s.size()), dy_(s.size()), ddx_(s.size()) {
    for (size_t i = 0; i < x_.size(); ++i) {
      const size_t sample = i / size_t(s.rows * s.channels), c = i % size_t(s.channels);
      x_[i] = device_test::sample<T>(i, 1, false), dy_[i] = device_test::sample<T>(i, 2, false);
      ddx_[i] = device_test::sample<T>(i, 3, false);
      if (sample % 3 == 1) x_[i] = T(1000 + 0.01 * double(x_[i]));
      if (sample % 4 == 0 && i % 5000 == 77) x_[i] = 300;
      if (sample == 5 && c == 0) x_[i] = T(NAN);
    }
    for (size_t c = 0; c < size_t(s.channels); ++c) {
      weight_.push_back(s.weighted ? device_test::sample<T>(c, 4, false) : T(1));
      bias_.push_back(s.weighted ? device_test::sample<T>(c, 5, false) : T(0));
      ddweight_.push_back(s.weighted ? device_test::sample<T>(c, 6, false) : T(0));
      ddbias_.push_back(s.weighted ? device_test::sample<T>(c, 7, false) : T(0));
    }
  }

  void check() {
    const size_t statistics = size_t(s_.samples * s_.groups), channels = size_t(s_.channels);
    const Elements<T> x(x_), dy(dy_), ddx(ddx_), weight(weight_), bias(bias_), ddweight(ddweight_),
        ddbias(ddbias_);
    const Elements<double> mean(statistics), var(statistics);
    const auto bytes = [&](auto workspace_of) {
      return size_t(workspace_of(s_.samples, s_.rows, s_.channels));
    };
    const Buffer workspace(bytes(&cuda::group_norm_workspace<T>)),
        backward_workspace(bytes(&cuda::group_norm_backward_workspace<T>)),
        double_workspace(bytes(&cuda::group_norm_double_backward_workspace<T>));
    const auto or_null = [&](const Elements<T>& p) { return s_.weighted ? p.data() : nullptr; };
    const cuda::GroupNorm<T> problem{s_.samples,      s_.rows,     s_.channels, s_.groups, x.data(),
                                     or_null(weight), mean.data(), var.data(),  kEps};
    using Results = std::vector<std::vector<T>>;
    const auto run = [&] {
      const Elements<T> y(x_.size()), dx(x_.size()), ddy(x_.size()), dx2(x_.size()), dw(channels),
          db(channels), dw2(channels);
      cuda::group_norm("test", problem, y.data(), or_null(bias), workspace.data(), nullptr);
      cuda::group_norm_backward("test", problem, dx.data(), dw.data(), db.data(), dy.data(),
                                backward_workspace.data(), nullptr);
      cuda::group_norm_double_backward("test", problem, ddy.data(), dx2.data(), dw2.data(), ddx.data(),
                                       or_null(ddweight), or_null(ddbias), dy.data(), double_workspace.data(),
                                       nullptr);
      Results all;
      for (const Elements<T>* e : {&y, &dx, &dw, &db, &ddy, &dx2, &dw2}) {
        all.push_back(e->take());
        group_.check(e->is_clean(), "%s: written outside", name().c_str());
      }
      return all;
    };
    const Results got = run(), again = run();
    for (size_t r = 0; r < got.size(); ++r)
      group_.check(same_bits(got[r], again[r]), "%s: two runs differ in result %zu", name().c_str(), r);
    const std::vector<double> got_mean = mean.take(), got_var = var.take();
    std::vector<Sum> dw(channels), db(channels), dw2(channels);
    for (int64_t n = 0; n < s_.samples; ++n)
      for (int64_t g = 0; g < s_.groups; ++g)
        check_group(n, g, got, got_mean[size_t(n * s_.groups + g)], got_var[size_t(n * s_.groups + g)], dw,
                    db, dw2);
    for (size_t c = 0; c < channels; ++c) {
      is_near("dweight", double(got[2][c]), double(dw[c].value), 40 * kUnit<T> * dw[c].size);
      is_near("dbias", double(got[3][c]), double(db[c].value), 20 * kUnit<T> * db[c].size);
      is_near("dweight of the second gradient", double(got[6][c]), double(dw2[c].value),
              60 * kUnit<T> * dw2[c].size);
    }
  }

 private:
  // A sum with the sum of the absolute values of its terms.
  struct Sum {
    long double value;
    double size;
    Sum() : value(0), size(0) {}
    void add(long double term, double term_size) { value += term, size += term_size; }
    void add(long double term) { add(term, std::abs(double(term))); }
  };
  std::string name() const {
    return "[" + std::to_string(s_.samples) + ", " + std::to_string(s_.rows) + ", " +
           std::to_string(s_.channels) + "] in " + std::to_string(s_.groups) + " groups";
  }
  void is_near(const char* what, double got, double want, double allowed) {
    group_.check(std::isnan(want) ? std::isnan(got) : got == want || std::abs(got - want) <= allowed + 1e-44,
                 "%s of %s: %.17g, not %.17g within %.3g", what, name().c_str(), got, want, allowed);
  }

  void check_group(int64_t n, int64_t g, const std::vector<std::vector<T>>& got, double got_mean,
                   double got_var, std::vector<Sum>& dw, std::vector<Sum>& db, std::vector<Sum>& dw2) {
    const int64_t per_group = s_.channels / s_.groups;
    const auto for_each = [&](auto f) {
      for (int64_t r = 0; r < s_.rows; ++r)
        for (int64_t c = g * per_group; c < (g + 1) * per_group; ++c)
          f(size_t((n * s_.rows + r) * s_.channels + c), size_t(c));
    };
    const long double size = (long double)(s_.rows * per_group);
    long double mean = 0, var = 0;
    double least = INFINITY, most = -INFINITY;
    for_each([&](size_t i, size_t) {
      mean += x_[i] / size, least = std::min(least, double(x_[i])), most = std::max(most, double(x_[i]));
    });
    for_each([&](size_t i, size_t) { var += (x_[i] - mean) * (x_[i] - mean) / size; });
    const double u = kUnit<T>, spread = most - least;
    is_near("mean", got_mean, double(mean), 30 * u * spread + 0x1p-50 * std::abs(double(mean)));
    is_near("var", got_var, double(var), 60 * u * spread * spread);
    // What follows takes the kernels' statistics, so that errors of small variances are not counted again.
    mean = got_mean, var = got_var;
    const long double r = 1 / std::sqrt(var + kEps);
    const auto z = [&](size_t i) { return (x_[i] - mean) * r; };
    Sum u_sum, uz, a, az, au, q, qz;
    for_each([&](size_t i, size_t c) {
      const long double w = weight_[c], dy = dy_[i], ddx = ddx_[i];
      u_sum.add(dy * w / size), uz.add(dy * w * z(i) / size), a.add(ddx / size), az.add(ddx * z(i) / size);
      au.add(ddx * dy * w / size), q.add(ddweight_[c] * dy / size), qz.add(ddweight_[c] * dy * z(i) / size);
    });
    const long double h = q.value - r * (a.value * uz.value + u_sum.value * az.value);
    const double h_size = q.size + double(r) * (a.size * uz.size + u_sum.size * az.size);
    const long double hz = qz.value - 2 * r * az.value * uz.value;
    const double hz_size = qz.size + 2 * double(r) * az.size * uz.size;
    const long double of_std = au.value - a.value * u_sum.value - az.value * uz.value;
    const double std_size = au.size + a.size * u_sum.size + az.size * uz.size;
    for_each([&](size_t i, size_t c) {
      const long double w = weight_[c], dy = dy_[i], ddx = ddx_[i], v = z(i), dq = ddweight_[c];
      const double inv = double(r), abs_z = std::abs(double(v)), abs_w = std::abs(double(w));
      is_near("y", double(got[0][i]), double(v * w + bias_[c]),
              20 * u * (std::abs(double(v * w)) + inv * spread * abs_w + std::abs(double(bias_[c]))));
      is_near("dx", double(got[1][i]), double(r * (dy * w - u_sum.value - v * uz.value)),
              60 * u * inv * (std::abs(double(dy * w)) + u_sum.size + (1 + abs_z) * uz.size));
      dw[c].add(dy * v, std::abs(double(dy)) * (1 + abs_z)), db[c].add(dy);
      const long double p = ddx - a.value - v * az.value;
      const double p_size = std::abs(double(ddx)) + a.size + (1 + abs_z) * az.size;
      is_near("ddy", double(got[4][i]), double(w * r * p + dq * v + ddbias_[c]),
              60 * u *
                  (abs_w * inv * p_size + std::abs(double(dq)) * (1 + abs_z) + std::abs(double(ddbias_[c]))));
      const long double direct = dq * dy - r * (ddx * uz.value + w * dy * az.value);
      const double direct_size = std::abs(double(dq * dy)) +
                                 inv * (std::abs(double(ddx)) * uz.size + std::abs(double(w * dy)) * az.size);
      is_near("dx of the second gradient", double(got[5][i]),
              double(r * (direct - h - v * hz) - r * r * v * of_std),
              100 * u * inv * (direct_size + h_size + (1 + abs_z) * (hz_size + inv * std_size)));
      dw2[c].add(dy * r * p, std::abs(double(dy)) * inv * p_size);
    });
  }

  Group& group_;
  Batch s_;
  std::vector<T> x_, dy_, ddx_, weight_, bias_, ddweight_, ddbias_;
};

template <class T> void test_windows(Group& group) {
  for (const int64_t channels : {1, 5, 33, 300})
    for (const auto& [before, after] : {std::pair<int64_t, int64_t>{0, 0}, {2, 1}, {400, 3}, {1, 299}}) {
      std::vector<T> x(size_t(7 * channels)), want;
      for (size_t i = 0; i < x.size(); ++i) x[i] = sample<T>(i, 1);
      for (int64_t i = 0; i < 7 * channels; ++i) {
        const int64_t c = i % channels;
        T sum = x[size_t(i)];
        for (int64_t d = 1; d <= std::min(before, c); ++d) sum += x[size_t(i - d)];
        for (int64_t d = 1; d <= std::min(after, channels - 1 - c); ++d) sum += x[size_t(i + d)];
        want.push_back(sum);
      }
      const Elements<T> from(x), to(x.size());
      cuda::channel_window_sum("test", to.data(), from.data(), 7, channels, before, after, nullptr);
      const std::vector<T> got = to.take();
      group.check(std::equal(got.begin(), got.end(), want.begin(), &same<T>) && to.is_clean(),
                  "window of %lld, %lld in %lld channels", (long long)before, (long long)after,
                  (long long)channels);
    }
}

template <class T> void test_type(const char* name) {
  Group group(std::string("group norm of ") + name);
  if (!group) return;
  for (const Batch& s : shapes()) GroupNormChecker<T>(group, s).check();
  test_windows<T>(group);
}

}  // namespace

void test_group_norm() {
  test_type<float>("f32");
  test_type<double>("f64");
}

}  // namespace device_test
