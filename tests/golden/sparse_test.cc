// Optimizers on sparse gradients of an embedding table, in f64, against PyTorch's; sparse.py documents the
// steps. "adam" is PyTorch's SparseAdam with an eps of almost nothing.
#include <functional>
#include <memory>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/sparse_gradient.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/optim/optim.h"
#include "gradus/tests/golden/golden.h"

namespace gradus {
namespace {

using namespace optim;

constexpr int64_t kRows = 11, kWidth = 3;

// The rows that step t reads, some twice.
Tensor index(int64_t t) {
  std::vector<int64_t> rows;
  for (int64_t k = 0; k < 6; ++k) rows.push_back((k * k + 3 * t) % kRows);
  return tensor(rows, {6});
}

struct Case {
  const char* name;
  std::function<std::unique_ptr<Optimizer>(const Tensor&)> make;
  std::optional<int64_t> padding = {};  // padding_idx of the embedding
  double clip = 0;                      // maximal gradient norm; 0: none
  int64_t batches = 1;                  // whose gradients a step accumulates
};

template <class O, class Options>
Case of(const char* name, Options options, std::optional<int64_t> padding = {}, double clip = 0,
        int64_t batches = 1) {
  return {name, [options](const Tensor& p) { return std::make_unique<O>(std::vector{p}, options); }, padding,
          clip, batches};
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      of<SGD>("sgd", SGDOptions{.lr = 0.1}),
      of<SGD>("sgd_maximize", SGDOptions{.lr = 0.01, .maximize = true}),
      of<SGD>("sgd_momentum", SGDOptions{.lr = 0.1, .momentum = 0.9}),
      of<SGD>("sgd_padding", SGDOptions{.lr = 0.1}, 4),
      of<SGD>("sgd_clipped", SGDOptions{.lr = 0.1}, {}, 1.5),
      of<SGD>("sgd_accumulated", SGDOptions{.lr = 0.1}, {}, 0, 2),
      of<Adagrad>("adagrad", AdagradOptions{.lr = 0.1, .lr_decay = 0.01, .initial_accumulator_value = 0.2}),
      of<Adagrad>("adagrad_padding", AdagradOptions{.lr = 0.1}, -2),
      of<Adam>("adam", AdamOptions{.lr = 0.02, .betas = {0.8, 0.95}, .eps = 1e-30}),
      of<AdamW>("adam", AdamWOptions{.lr = 0.02, .betas = {0.8, 0.95}, .eps = 1e-30, .weight_decay = 0}),
      of<Adam>("adam_accumulated", AdamOptions{.lr = 0.02, .eps = 1e-30}, {}, 0, 2),
      of<SparseAdam>("sparse_adam", SparseAdamOptions{.lr = 0.02, .betas = {0.8, 0.95}, .eps = 1e-3}),
      of<SparseAdam>("sparse_adam_maximize", SparseAdamOptions{.lr = 0.01, .maximize = true}, {}, 0, 2),
      of<RMSprop>("rmsprop", RMSpropOptions{.lr = 0.01, .alpha = 0.9}),
      of<RMSprop>("rmsprop_both",
                  RMSpropOptions{.lr = 0.002, .eps = 1e-3, .momentum = 0.8, .centered = true}),
  };
  return all;
}

class SparseSteps : public testing::TestWithParam<size_t> {};

TEST_P(SparseSteps, AgreeWithPyTorch) {
  static const io::SafetensorsFile file = golden::load("sparse");
  const Case& c = cases()[GetParam()];
  const std::string name = c.name;
  const std::vector<int64_t> steps = file.at("steps").to_vector<int64_t>();
  const std::vector<double> expected = file.at(name + "/p").to_vector<double>();
  const Tensor table = tensor(golden::formula(kRows * kWidth, 3, 1.0), {kRows, kWidth});
  GradManager gm;
  gm.attach(table);
  const auto opt = c.make(table);
  size_t kept = 0;
  for (int64_t t = 1; t <= steps.back(); ++t) {
    opt->clear_grad();
    for (int64_t b = 0; b < c.batches; ++b) {
      auto recording = gm.record();
      const Tensor y = embedding(index(t + b), table, {.padding_idx = c.padding, .sparse = true});
      gm.backward(sum(sin(3 * y + 0.1 * double(t))));
    }
    ASSERT_TRUE(autograd::is_sparse(table.grad()));
    if (c.clip > 0) {
      const Tensor norm = clip_grad_norm_({table}, c.clip);
      EXPECT_NEAR(norm.item<double>(), file.at(name + "/norm").to_vector<double>()[size_t(t - 1)], 1e-12);
    }
    opt->step();
    if (t != steps[kept]) continue;
    const std::vector<double> values = table.to_vector<double>();
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(values[i], expected[kept * values.size() + i], 1e-11)
          << name << " step " << t << " element " << i;
    ++kept;
  }
  EXPECT_EQ(kept, steps.size());
}

INSTANTIATE_TEST_SUITE_P(PyTorch, SparseSteps, testing::Range(size_t(0), cases().size()),
                         [](const auto& info) { return concat(cases()[info.param].name, "_", info.param); });

}  // namespace
}  // namespace gradus
