// Kernels for cross entropy and NLL loss with class indices, forward and gradient, against f64 loops on the
// host within a bound on roundings; two runs must have the same bits. Scores of elements E are computed in
// T = compute_t<E>; gradients of 16 bits are rounded once.
#include "gradus/tensor/cuda/kernels/losses/cross_entropy.h"

#include <memory>

#include "device_test.h"

namespace device_test {
namespace {

constexpr int64_t kIgnored = -100;

// Scores [outer, classes, inner]; log_probs: the input is logarithms of probabilities (NLL loss).
struct Problem {
  int64_t outer, classes, inner;
  bool weighted, log_probs;
  double smoothing;
  cuda::LossReduction kind;
};

std::vector<Problem> problems() {
  using cuda::LossReduction;
  std::vector<Problem> all;
  for (const int64_t classes : {1, 2, 10, 33, 128, 1001, 5000})
    for (const int64_t inner : {1, 5, 40}) {
      if (classes * inner > 6000) continue;
      const int64_t outer = classes > 100 ? 2 : inner > 1 ? 7 : 37;
      all.push_back({outer, classes, inner, false, false, 0, LossReduction::kMean});
      all.push_back({outer, classes, inner, true, false, 0.25, LossReduction::kNone});
      all.push_back({outer, classes, inner, true, true, 0, LossReduction::kSum});
      all.push_back({outer, classes, inner, true, true, 0.25, LossReduction::kMean});
      all.push_back({outer, classes, inner, false, false, 0.25, LossReduction::kSum});
    }
  // Few samples in one block, with rows about as long as a warp's registers hold.
  for (const int64_t outer : {2, 3, 4, 8})
    for (const int64_t classes : {512, 1024, 2048, 2056, 4096}) {
      all.push_back({outer, classes, 1, false, false, 0, LossReduction::kMean});
      all.push_back({outer, classes, 1, true, true, 0.25, LossReduction::kMean});
    }
  all.push_back({3000, 10, 1, true, false, 0, LossReduction::kMean});
  all.push_back(
      {1, 1000, 1, true, false, 0.25, LossReduction::kMean});  // its only sample has target kIgnored
  all.push_back({0, 10, 1, false, false, 0, LossReduction::kSum});
  return all;
}

template <class T> constexpr double kUnit = std::is_same_v<T, double> ? 0x1p-53 : 0x1p-24;

// Scores are between -4 and 4: log(sum e^x) is within 64 units (softmax.cc), and -log p adds few more. Host
// and device sum over the classes in f64; the sums are at most 16.
template <class T> double rounding_of(const Problem& p) {
  return kUnit<T> * (96 + 8 * std::log(double(p.classes))) + double(p.classes) * 0x1p-53 * 16;
}

// with_bad_target: the last two targets are out of range, whose loss and gradient are NaN.
template <class E> void check(Group& group, const Problem& p, bool with_bad_target) {
  using T = cuda::compute_t<E>;
  const int64_t samples = p.outer * p.inner;
  std::vector<E> x(static_cast<size_t>(samples * p.classes));
  std::vector<T> w(static_cast<size_t>(p.classes));
  std::vector<int64_t> target(static_cast<size_t>(samples));
  for (size_t i = 0; i < x.size(); ++i) x[i] = from_double<E>(4 * as_double(sample<E>(i, 1, false)));
  for (size_t i = 0; i < w.size(); ++i) w[i] = T(1) + sample<T>(i, 2, false) / 2;
  for (size_t i = 0; i < target.size(); ++i)
    target[i] = i % 6 == (samples == 1 ? 0 : 5)
                    ? kIgnored
                    : static_cast<int64_t>(mix(i) % static_cast<uint64_t>(p.classes));
  const int64_t bad = samples - 1;
  if (with_bad_target) target[size_t(bad)] = p.classes, target[size_t(bad - 1)] = -1;

  const Elements<E> scores(x), dx(x.size());
  const Elements<T> weight(w), stats(size_t(2 * samples)), total(1);
  const Elements<int64_t> targets(target);
  const bool each = p.kind == cuda::LossReduction::kNone;
  const auto losses = static_cast<size_t>(each ? samples : 1);
  std::vector<T> g(losses);
  for (size_t i = 0; i < losses; ++i) g[i] = T(0.5) + sample<T>(i, 3, false) / 4;
  const Elements<T> loss(losses), dy(g);
  const cuda::CrossEntropy<E> s{scores.data(),
                                targets.data(),
                                p.weighted ? weight.data() : nullptr,
                                p.log_probs ? nullptr : stats.data(),
                                p.outer,
                                p.classes,
                                p.inner,
                                kIgnored,
                                p.smoothing};
  const Buffer workspace(size_t(cuda::cross_entropy_workspace(s)));
  std::vector<T> got;
  std::vector<E> slopes;
  for (const bool again : {false, true}) {
    cuda::cross_entropy("test", s, p.kind, loss.data(), total.data(), workspace.data(), nullptr);
    cuda::cross_entropy_grad("test", s, p.kind, dx.data(), dy.data(), total.data(), workspace.data(),
                             nullptr);
    const std::vector<T> y = loss.take();
    const std::vector<E> d = dx.take();
    group.check(!again || (same_bits(y, got) && same_bits(d, slopes)), "%lld classes: two runs differ",
                (long long)p.classes);
    got = y, slopes = d;
  }
  group.check(loss.is_clean() && total.is_clean() && dx.is_clean() && stats.is_clean(),
              "%lld classes: written outside", (long long)p.classes);

  const auto expect = [&](const char* what, int64_t i, double value, double want, double allowed) {
    group.check(
        std::isnan(want) ? std::isnan(value) : std::abs(value - want) <= allowed,
        "[%lld, %lld, %lld], weights %d, logarithms %d, smoothing %g, kind %d: %s %lld is %.17g, not %.17g",
        (long long)p.outer, (long long)p.classes, (long long)p.inner, p.weighted, p.log_probs, p.smoothing,
        int(p.kind), what, (long long)i, value, want);
  };
  const auto at = [&](int64_t i, int64_t c) {
    return static_cast<size_t>((i / p.inner * p.classes + c) * p.inner + i % p.inner);
  };
  const auto weight_of = [&](int64_t c) { return p.weighted ? double(w[size_t(c)]) : 1.; };
  double sum = 0, counted = 0, all_weights = 0, size = 0;
  for (int64_t c = 0; c < p.classes; ++c) all_weights += weight_of(c);
  std::vector<double> shifts(static_cast<size_t>(samples));
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t y = target[size_t(i)];
    double powers = 0, one = 0;
    if (!p.log_probs)
      for (int64_t c = 0; c < p.classes; ++c) powers += std::exp(as_double(x[at(i, c)]));
    const double shift = shifts[size_t(i)] = p.log_probs ? 0 : std::log(powers);
    if (y >= 0 && y < p.classes) {
      one = (1 - p.smoothing) * weight_of(y) * (shift - as_double(x[at(i, y)]));
      if (p.smoothing != 0)
        for (int64_t c = 0; c < p.classes; ++c)
          one += p.smoothing / double(p.classes) * weight_of(c) * (shift - as_double(x[at(i, c)]));
      counted += weight_of(y);
      size += 1;
    } else if (y != kIgnored) {
      one = counted = NAN;
    }
    if (each) expect("loss", i, double(got[size_t(i)]), one, 2 * rounding_of<T>(p));
    sum += one;
  }
  const double share = p.kind == cuda::LossReduction::kMean ? 1 / counted : 1;
  if (!each) expect("loss", 0, double(got[0]), sum * share, (2 * size * share + 1) * rounding_of<T>(p) * 8);
  expect("total", 0, double(total.take()[0]), counted, counted * (kUnit<T> + double(samples) * 0x1p-53));
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t y = target[size_t(i)];
    const bool is_bad = y != kIgnored && (y < 0 || y >= p.classes);
    const double scale = double(g[each ? size_t(i) : 0]) * share;
    const double hit = y == kIgnored || is_bad ? 0 : (1 - p.smoothing) * weight_of(y);
    for (int64_t c = 0; c < p.classes; ++c) {
      double want = 0, terms = 0;
      if (y != kIgnored) {
        const double smooth = p.smoothing / double(p.classes);
        const double power = p.log_probs ? 0 : std::exp(as_double(x[at(i, c)]) - shifts[size_t(i)]);
        want = scale * (power * (hit + smooth * all_weights) - (c == y ? hit : 0) - smooth * weight_of(c));
        terms =
            scale * (power * (hit + smooth * all_weights) * 2 + (c == y ? hit : 0) + smooth * weight_of(c));
        if (is_bad) want = NAN;
      }
      const double allowed = std::abs(terms) * rounding_of<T>(p);
      expect("slope", i * p.classes + c, as_double(slopes[at(i, c)]), want,
             allowed + rounding_error<E>(std::abs(want) + allowed));
    }
  }
}

template <class E> void test_type(const char* name) {
  Group group(std::string("cross entropy of ") + name);
  if (!group) return;
  for (const Problem& p : problems()) check<E>(group, p, false);
  check<E>(group, {37, 10, 1, true, false, 0, cuda::LossReduction::kNone}, true);
  check<E>(group, {37, 10, 1, true, true, 0.25, cuda::LossReduction::kNone}, true);
  check<E>(group, {7, 10, 5, false, false, 0.25, cuda::LossReduction::kMean}, true);
}

}  // namespace

void test_cross_entropy() {
  test_type<float>("f32");
  test_type<double>("f64");
  test_type<bf16>("bf16");
  test_type<f16>("f16");
}

}  // namespace device_test
