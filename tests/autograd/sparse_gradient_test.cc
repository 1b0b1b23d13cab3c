// Sparse gradients of embeddings: accumulation, conversion to dense, optimizer steps, clipping, GradScaler.
// The reference is the same table with dense gradients, mostly bit for bit; tests/golden compares with
// PyTorch.
#include "gradus/autograd/graph/sparse_gradient.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/layers/embedding.h"
#include "gradus/nn/layers/linear.h"
#include "gradus/optim/optim.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/random.h"

namespace gradus {
namespace {

using autograd::is_sparse;
using testing::ElementsAre;

constexpr Device kQueued{DeviceType::kCPU, 1};  // runs kernels asynchronously

// A table, its manager, and a loss whose gradient is different in every element that was read.
struct Table {
  explicit Table(bool sparse, DType dtype = DType::kF32, Device device = kCPU, bool attach = true)
      : sparse(sparse), weight(to(to(reshape(linspace(-1, 1, 21), {7, 3}), dtype), device)) {
    if (attach) gm.attach(weight);
  }
  Tensor read(const std::vector<int64_t>& rows) const {
    return embedding(tensor(rows, {int64_t(rows.size())}, weight.device()), weight,
                     {.padding_idx = padding, .scale_grad_by_freq = by_freq, .sparse = sparse});
  }
  static Tensor loss_of(const Tensor& y) { return sum(sin(to(y, DType::kF32) * 3)); }
  void backward(const std::vector<int64_t>& rows) {
    auto recording = gm.record();
    gm.backward(loss_of(read(rows)));
  }
  std::vector<double> dense_grad() const { return autograd::to_dense(weight.grad()).to_vector<double>(); }

  bool sparse;
  std::optional<int64_t> padding = {};
  bool by_freq = false;
  Tensor weight;
  GradManager gm;
};

// Runs f on a dense and on a sparse table: their gradients must be bit-equal.
template <class F> void expect_same(F f) {
  Table dense(false), sparse(true);
  f(dense), f(sparse);
  EXPECT_TRUE(is_sparse(sparse.weight.grad()));
  EXPECT_EQ(sparse.dense_grad(), dense.dense_grad());
}

TEST(SparseGradient, HasTheRowsThatWereReadInOrder) {
  Table t(true);
  t.backward({5, 2, 5, 0, 2, 2});
  const Tensor grad = t.weight.grad();
  ASSERT_TRUE(is_sparse(grad));
  EXPECT_EQ(grad.shape(), Shape({7, 3}));
  EXPECT_EQ(grad.dtype(), DType::kF32);
  EXPECT_THAT(autograd::sparse_rows(grad).indices.to_vector<int64_t>(), ElementsAre(0, 2, 5));
  EXPECT_EQ(autograd::sparse_rows(grad).values.shape(), Shape({3, 3}));
  EXPECT_FALSE(is_sparse(Tensor()));
  EXPECT_FALSE(is_sparse(t.weight));
  EXPECT_THROW(autograd::sparse_rows(t.weight), ValueError);
}

TEST(SparseGradient, IsTheDenseOneBitForBit) {
  expect_same([](Table& t) { t.backward({5, 2, 5, 0, 2, 2}); });
  expect_same([](Table& t) { t.padding = 2, t.backward({5, 2, 5, 0, 2, 2}); });
  expect_same([](Table& t) { t.padding = -1, t.backward({6, 6}); });  // no row is left
  expect_same([](Table& t) { t.by_freq = true, t.backward({5, 2, 5, 0, 2, 2}); });
  expect_same([](Table& t) { t.backward({}); });
  for (const DType dtype : {DType::kF64, DType::kBF16, DType::kF16}) {
    Table dense(false, dtype), sparse(true, dtype);
    dense.backward({1, 6, 1, 1}), sparse.backward({1, 6, 1, 1});
    EXPECT_EQ(sparse.weight.grad().dtype(), dtype);
    EXPECT_EQ(sparse.dense_grad(), dense.dense_grad());
  }
}

TEST(SparseGradient, AddsUpOverLookupsAndBackwards) {
  expect_same([](Table& t) {
    auto recording = t.gm.record();
    t.gm.backward(Table::loss_of(t.read({5, 2})) + Table::loss_of(t.read({2, 1})));
  });
  expect_same([](Table& t) { t.backward({5, 2}), t.backward({2, 1}), t.backward({0}); });
}

// Tied weights (also an operand of matmul), and accumulation into a dense gradient.
TEST(SparseGradient, IsDenseInASumWithADenseOne) {
  std::vector<std::vector<double>> sums;
  for (const bool sparse : {false, true}) {
    Table t(sparse);
    {
      auto recording = t.gm.record();
      const Tensor y = t.read({5, 2});
      t.gm.backward(Table::loss_of(matmul(y, transpose(t.weight, 0, 1))));
    }
    EXPECT_FALSE(is_sparse(t.weight.grad()));
    t.backward({2, 1});
    EXPECT_FALSE(is_sparse(t.weight.grad()));
    sums.push_back(t.dense_grad());
  }
  EXPECT_EQ(sums[0], sums[1]);
}

TEST(SparseGradient, IsDenseForCallbacksRulesAndFunctions) {
  Table plain(false), t(true, DType::kF32, kCPU, /*attach=*/false);
  plain.backward({5, 2, 5});
  bool seen = false;
  t.gm.attach(t.weight, [&](const Tensor&, const Tensor& grad) {
    seen = true;
    EXPECT_EQ(grad.to_vector<double>(), plain.dense_grad());
    return grad;
  });
  t.backward({5, 2, 5});
  EXPECT_TRUE(seen);
  EXPECT_FALSE(is_sparse(t.weight.grad()));

  const auto loss = [](const Tensor& w) {
    return Table::loss_of(embedding(tensor({5, 2, 5}), w, {.sparse = true}));
  };
  EXPECT_EQ(autograd::grad(loss, t.weight).to_vector<double>(), plain.dense_grad());
  // The table is the result of another op, whose rule needs all rows.
  EXPECT_EQ(autograd::grad([&](const Tensor& w) { return loss(w * 1); }, t.weight).to_vector<double>(),
            plain.dense_grad());
  t.gm = GradManager();
  t.weight.set_grad({});
  t.gm.attach(t.weight);
  auto recording = t.gm.record();
  t.gm.backward(autograd::checkpoint([&](const Tensor& w) { return loss(w); }, t.weight));
  EXPECT_EQ(t.dense_grad(), plain.dense_grad());
}

TEST(SparseGradient, HasDerivatives) {
  const Tensor w = reshape(linspace(-1, 1, 21, {.dtype = DType::kF64}), {7, 3});
  const auto penalty = [](bool sparse) {
    return [sparse](const Tensor& w) {
      const auto loss = [sparse](const Tensor& v) {
        return sum(sin(embedding(tensor({5, 2, 5}), v, {.sparse = sparse}) * 3));
      };
      return sum(square(autograd::grad(loss, w)));
    };
  };
  EXPECT_EQ(autograd::grad(penalty(true), w).to_vector<double>(),
            autograd::grad(penalty(false), w).to_vector<double>());
}

// Ops without support for sparse gradients throw; none reads a sparse gradient as zeros.
TEST(SparseGradient, IsRefusedByOpsThatDoNotKnowIt) {
  Table t(true);
  t.backward({1});
  const Tensor grad = t.weight.grad();
  EXPECT_THROW((void)(grad + t.weight), Error);
  EXPECT_THROW((void)grad.to_vector<float>(), Error);
  EXPECT_THROW((void)sum(grad).item<float>(), Error);
  EXPECT_FALSE(is_sparse(reshape(grad, {21})));
  EXPECT_THROW(t.weight.set_grad(grad * 2), DeviceError);
  t.weight.set_grad({});
  t.weight.set_grad(grad);
  EXPECT_TRUE(is_sparse(t.weight.grad()));
}

// The table after three steps of optimizer O; `master`: with f32 master weights.
template <class O, class Options>
std::vector<double> trained(bool sparse, Options options, DType dtype = DType::kF32, Device device = kCPU,
                            bool master = false) {
  Table t(sparse, dtype, device);
  O opt({t.weight}, options);
  opt.keep_master_weights(master);
  for (const std::vector<int64_t>& rows : {std::vector<int64_t>{5, 2, 5}, {2, 1}, {6}}) {
    t.backward(rows);
    opt.step().clear_grad();
  }
  return t.weight.template to_vector<double>();
}

// These optimizers leave rows with zero gradients unchanged, so dense and sparse steps are bit-equal.
TEST(SparseSteps, OfSGDAndAdagradAreTheDenseOnes) {
  using namespace optim;
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    EXPECT_EQ((trained<SGD>(true, SGDOptions{.lr = 0.1}, dtype)),
              (trained<SGD>(false, SGDOptions{.lr = 0.1}, dtype)));
    EXPECT_EQ((trained<Adagrad>(true, AdagradOptions{.lr = 0.1}, dtype)),
              (trained<Adagrad>(false, AdagradOptions{.lr = 0.1}, dtype)));
  }
  EXPECT_EQ((trained<SGD>(true, SGDOptions{.lr = 0.1}, DType::kF32, kQueued)),
            (trained<SGD>(false, SGDOptions{.lr = 0.1})));
  EXPECT_EQ((trained<SGD>(true, SGDOptions{.lr = 1e-3}, DType::kBF16, kCPU, true)),
            (trained<SGD>(false, SGDOptions{.lr = 1e-3}, DType::kBF16, kCPU, true)));
}

// These optimizers move rows with zero gradients too, so their steps convert gradients to dense.
TEST(SparseSteps, OfOthersAreDense) {
  using namespace optim;
  EXPECT_EQ((trained<SGD>(true, SGDOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true})),
            (trained<SGD>(false, SGDOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true})));
  EXPECT_EQ((trained<LAMB>(true, LAMBOptions{.lr = 0.1})), (trained<LAMB>(false, LAMBOptions{.lr = 0.1})));
  EXPECT_EQ((trained<NAdam>(true, NAdamOptions{.lr = 0.1})),
            (trained<NAdam>(false, NAdamOptions{.lr = 0.1})));
}

TEST(SparseSteps, OfAdamAndRMSpropLeaveOtherRowsAndTheirStateAlone) {
  using namespace optim;
  const auto check = [](auto make) {
    Table t(true);
    const auto opt = make(t.weight);
    t.backward({1, 3});
    opt->step().clear_grad();
    const std::vector<double> before = t.weight.to_vector<double>();
    const std::vector<double> state = opt->state_dict().tensors[0].second.template to_vector<double>();
    t.backward({3});
    opt->step().clear_grad();
    const std::vector<double> after = t.weight.to_vector<double>();
    const std::vector<double> later = opt->state_dict().tensors[0].second.template to_vector<double>();
    for (size_t i = 0; i < after.size(); ++i) {
      EXPECT_EQ(after[i] != before[i], i / 3 == 3) << i;
      EXPECT_EQ(later[i] != state[i], i / 3 == 3) << i;
    }
  };
  check([](const Tensor& w) { return std::make_unique<Adam>(std::vector{w}); });
  check([](const Tensor& w) {
    return std::make_unique<AdamW>(std::vector{w}, AdamWOptions{.weight_decay = 0});
  });
  check([](const Tensor& w) { return std::make_unique<RMSprop>(std::vector{w}); });
}

TEST(SparseSteps, RefuseWeightDecay) {
  using namespace optim;
  const auto check = [](auto make) {
    Table t(true);
    const auto opt = make(t.weight);
    t.backward({1, 3});
    const std::vector<double> before = t.weight.to_vector<double>();
    EXPECT_THROW(opt->step(), ValueError);
    EXPECT_EQ(t.weight.to_vector<double>(), before);
  };
  check([](const Tensor& w) {
    return std::make_unique<SGD>(std::vector{w}, SGDOptions{.lr = 1, .weight_decay = 1});
  });
  check([](const Tensor& w) {
    return std::make_unique<Adagrad>(std::vector{w}, AdagradOptions{.weight_decay = 1});
  });
  check(
      [](const Tensor& w) { return std::make_unique<Adam>(std::vector{w}, AdamOptions{.weight_decay = 1}); });
  check([](const Tensor& w) { return std::make_unique<AdamW>(std::vector{w}); });
  check([](const Tensor& w) {
    return std::make_unique<RMSprop>(std::vector{w}, RMSpropOptions{.weight_decay = 1});
  });
}

TEST(SparseGradient, IsClippedAndUnscaledAsTheDenseOne) {
  using namespace optim;
  std::vector<std::vector<double>> results;
  for (const bool sparse : {false, true}) {
    Table t(sparse);
    SGD opt({t.weight}, {.lr = 0.1});
    GradScaler scaler({.init_scale = 1024});
    double norm = 0;
    for (int step = 0; step < 3; ++step) {
      for (int batch = 0; batch < 2; ++batch) {
        auto recording = t.gm.record();
        scaler.backward(t.gm, Table::loss_of(t.read({5, 2, 5, batch})));
      }
      EXPECT_EQ(is_sparse(t.weight.grad()), sparse);
      EXPECT_THROW(opt.step(), StateError) << "still multiplied by the scale";
      EXPECT_TRUE(scaler.step(opt, {.clip_norm = 0.5}));
      norm = scaler.grad_norm().item<double>();
      opt.clear_grad();
      t.backward({4, 4, 1});
      clip_grad_value_({t.weight}, 0.75);
      opt.step().clear_grad();
    }
    results.push_back(t.weight.to_vector<double>());
    results.back().push_back(norm);
  }
  for (size_t i = 0; i < results[0].size(); ++i) EXPECT_NEAR(results[0][i], results[1][i], 1e-6) << i;

  Table t(true);
  SGD opt({t.weight}, {.lr = 0.1});
  GradScaler scaler;
  auto recording = t.gm.record();
  scaler.backward(t.gm, sum(t.read({1})) * INFINITY);
  EXPECT_FALSE(scaler.step(opt));
}

TEST(Embedding, HasSparseGradientsIfAsked) {
  nn::Embedding table({.num_embeddings = 9, .embedding_dim = 4, .padding_idx = 0, .sparse = true});
  GradManager gm;
  gm.attach(table.parameters());
  {
    auto recording = gm.record();
    gm.backward(sum(table(tensor({{3, 0}, {3, 8}}))));
  }
  EXPECT_THAT(autograd::sparse_rows(table.weight.grad()).indices.to_vector<int64_t>(), ElementsAre(3, 8));
  EXPECT_THAT(autograd::sparse_rows(table.weight.grad()).values.to_vector<float>(),
              ElementsAre(2, 2, 2, 2, 1, 1, 1, 1));
  table.to(DType::kF64);  // with its gradient
  EXPECT_EQ(autograd::to_dense(table.weight.grad()).dtype(), DType::kF64);
}

}  // namespace
}  // namespace gradus
