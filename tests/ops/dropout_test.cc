// Dropout of channels and alpha dropout: results, statistics, gradients, random draws.
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tensor/runtime/random.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

using Form = Tensor (*)(const Tensor&, double, bool);  // (x, p, training)

// Expects each channel of y, of `area` elements, to be all 0 or all `kept`. Returns the share of those.
double share_of_whole_channels(const Tensor& y, int64_t area, double kept) {
  const auto v = y.to_vector<double>();
  int64_t channels = 0, count = 0;
  for (size_t i = 0; i < v.size(); i += size_t(area), ++channels) {
    for (size_t k = i; k < i + size_t(area); ++k) EXPECT_EQ(v[k], v[i]);
    EXPECT_TRUE(v[i] == 0 || std::abs(v[i] - kept) < 1e-6) << v[i];
    count += v[i] != 0;
  }
  return double(count) / double(channels);
}

TEST(ChannelDropout, DropsWholeChannels) {
  manual_seed(1);
  const double bound = 5 * std::sqrt(0.25 * 0.75 / 20000);
  EXPECT_NEAR(share_of_whole_channels(dropout1d(ones({200, 100, 3}), 0.25), 3, 1 / 0.75), 0.75, bound);
  EXPECT_NEAR(share_of_whole_channels(dropout1d(ones({20000, 3}), 0.25), 3, 1 / 0.75), 0.75, bound);
  EXPECT_NEAR(share_of_whole_channels(dropout2d(ones({200, 100, 2, 3}), 0.25), 6, 1 / 0.75), 0.75, bound);
  EXPECT_NEAR(share_of_whole_channels(dropout2d(ones({200, 100, 3}), 0.25), 3, 1 / 0.75), 0.75, bound);
  EXPECT_NEAR(share_of_whole_channels(dropout3d(ones({200, 100, 2, 2, 2}), 0.25), 8, 1 / 0.75), 0.75, bound);
  EXPECT_NEAR(share_of_whole_channels(dropout3d(ones({20000, 2, 2, 2}), 0.25), 8, 1 / 0.75), 0.75, bound);
}

TEST(ChannelDropout, LayoutAndThreadsDoNotMatter) {
  set_num_threads(1);
  const Tensor x = random_tensor({8, 40, 5, 6});
  manual_seed(3);
  const auto expected = dropout2d(x, 0.5).to_vector<float>();
  manual_seed(3);
  const Tensor last = dropout2d(raw::channels_last(x), 0.5);
  EXPECT_TRUE(last.is_channels_last());
  EXPECT_EQ(last.to_vector<float>(), expected);
  manual_seed(3);
  set_num_threads(3);
  EXPECT_EQ(dropout2d(x, 0.5).to_vector<float>(), expected);
  set_num_threads(1);
}

TEST(AlphaDropout, KeepsMeanAndVariance) {
  manual_seed(2);
  constexpr int64_t n = 400000;
  for (double p : {0.1, 0.5, 0.9}) {
    const Tensor y = alpha_dropout(randn({n}, {.dtype = DType::kF64}), p);
    EXPECT_NEAR(mean(y).item<double>(), 0, 0.01) << p;
    EXPECT_NEAR(var(y).item<double>(), 1, 0.03) << p;
  }
}

TEST(AlphaDropout, ElementsAreScaledOrAtSelusLowerEnd) {
  manual_seed(4);
  constexpr double alpha = 1.7580993408473766, p = 0.25;
  const double a = 1 / std::sqrt(0.75 * (1 + p * alpha * alpha)), b = alpha * a * p;
  for (Form f : {&alpha_dropout, &feature_alpha_dropout}) {
    const Tensor x = random_tensor({50, 40, 3}, DType::kF64);
    const auto in = x.to_vector<double>(), out = f(x, p, true).to_vector<double>();
    int64_t kept = 0;
    bool mixed = false;  // a channel of both kinds
    for (size_t i = 0; i < in.size(); ++i) {
      const bool dropped = std::abs(out[i] - (b - alpha * a)) < 1e-12;
      if (!dropped) {
        ASSERT_NEAR(out[i], a * in[i] + b, 1e-12);
      }
      kept += !dropped;
      mixed = mixed || dropped != (std::abs(out[i / 3 * 3] - (b - alpha * a)) < 1e-12);
    }
    EXPECT_NEAR(double(kept) / double(in.size()), 0.75, 0.05);
    EXPECT_EQ(mixed, f == &alpha_dropout);
  }
}

TEST(Dropouts, TheGradientPassesWhereTheElementDid) {
  for (Form f : {&dropout1d, &dropout2d, &alpha_dropout, &feature_alpha_dropout}) {
    const Tensor x = full({20, 10, 4}, 2, {.dtype = DType::kF64});
    GradManager gm;
    gm.attach(x);
    auto recording = gm.record();
    const Tensor y = f(x, 0.5, true);
    gm.backward(sum(y));
    const auto v = y.to_vector<double>(), dx = x.grad().to_vector<double>();
    const double top = max(y).item<double>();
    for (size_t i = 0; i < v.size(); ++i) EXPECT_EQ(dx[i] != 0, v[i] == top) << v[i];
  }
}

TEST(Dropouts, AreOneDrawEach) {
  const Tensor x = ones({4, 6, 2, 2});
  for (Form f : {&dropout2d, &alpha_dropout, &feature_alpha_dropout}) {
    manual_seed(5);
    f(x, 0.5, true);
    const auto after = rand({8}).to_vector<float>();
    manual_seed(5);
    dropout(x, 0.5);
    EXPECT_EQ(rand({8}).to_vector<float>(), after);
    manual_seed(5);
    f(x, 0.5, false);
    EXPECT_NE(rand({8}).to_vector<float>(), after);  // nothing is drawn in evaluation
  }
}

}  // namespace
}  // namespace gradus
