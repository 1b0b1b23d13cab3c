// Kernels on another stream than their operands were allocated on must record that use with the allocator
// (record_stream), for each operand: a block freed afterward is not reused before the kernel has run.
#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "gradus/tensor/ops/activations.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/arrange.h"
#include "gradus/tensor/ops/comparison.h"
#include "gradus/tensor/ops/concat.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/elementwise.h"
#include "gradus/tensor/ops/images/conv.h"
#include "gradus/tensor/ops/images/pool.h"
#include "gradus/tensor/ops/images/resample.h"
#include "gradus/tensor/ops/index.h"
#include "gradus/tensor/ops/linalg/matmul.h"
#include "gradus/tensor/ops/loss_scale.h"
#include "gradus/tensor/ops/losses/cross_entropy.h"
#include "gradus/tensor/ops/losses/pointwise_losses.h"
#include "gradus/tensor/ops/norm/batch_norm.h"
#include "gradus/tensor/ops/norm/group_norm.h"
#include "gradus/tensor/ops/norm/layer_norm.h"
#include "gradus/tensor/ops/optim_step.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tensor/ops/recurrent.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/ops/softmax.h"
#include "gradus/tensor/ops/sort.h"
#include "gradus/tensor/runtime/allocator.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/device_runtime.h"
#include "gradus/tensor/runtime/memory.h"
#include "gradus/tools/cuda_emulator/order.h"

namespace gradus {
namespace {

const Device kCuda = Device::parse("cuda:0");

using Operands = std::vector<Tensor>;

// Unlike {x...}, creates no second handle.
template <class... Tensors> Operands all_of(Tensors... x) {
  Operands all;
  (all.push_back(std::move(x)), ...);
  return all;
}

struct CudaUsers : testing::Test {
  CudaUsers() { cuda::emulated::set_seed(1); }
  ~CudaUsers() override { clear(); }
  void clear() {
    blocks_between_.clear();
    synchronize(kCuda);
    empty_cache(kCuda);
  }

  // A tensor whose block has no free neighbor.
  Tensor filled(const Shape& shape, DType dtype, double value) {
    const Tensor x = full(shape, dtype == DType::kBool ? Number(value != 0) : Number(value), {dtype, kCuda});
    blocks_between_.push_back(empty({1}, {.device = kCuda}));
    return x;
  }
  Tensor ones(const Shape& shape, DType dtype = DType::kF32) { return filled(shape, dtype, 1); }
  Tensor zeros(const Shape& shape, DType dtype) { return filled(shape, dtype, 0); }

  // Runs f on another stream, frees the operands, and returns how many of their blocks are used again while f
  // has yet to run.
  size_t used_too_early(Operands& x, const std::function<void()>& f) {
    synchronize(kCuda);
    const Stream side = Stream::create(kCuda);
    const auto native = internal::native_stream(side);
    const internal::NativeEvent event(native->runtime(), 0);
    for (int i = 0; i < 300; ++i) native->record(event);  // keeps the stream busy before f
    {
      const StreamScope scope(side);
      f();
    }
    size_t early = 0;
    Operands next;
    for (Tensor& operand : x) {
      const void* const p = operand.raw_ptr();
      const int64_t bytes = operand.nbytes();
      const int64_t live = memory_stats(kCuda).live_bytes;
      operand = {};
      EXPECT_LT(memory_stats(kCuda).live_bytes, live);
      next.push_back(empty({bytes}, {DType::kU8, kCuda}));
      early += next.back().raw_ptr() == p;
    }
    EXPECT_FALSE(native->is_idle());
    return early;
  }

  // Expects that the kernel recorded its use of all operands.
  void expect_told(const char* kernel, Operands x, const std::function<void(const Operands&)>& f) {
    EXPECT_EQ(used_too_early(x, [&] { f(x); }), 0u) << kernel;
    clear();
  }

 private:
  Operands blocks_between_;
};

// A copy that bypasses the kernel slots records nothing.
TEST_F(CudaUsers, TheTestWouldNotice) {
  Operands x = all_of(ones({100}), ones({2}), ones({100}));
  const auto f = [&] {
    const Tensor y = empty({100}, {.device = kCuda});
    const auto stream = internal::current_native_stream(kCuda);
    stream->runtime().copy(y.raw_ptr(), x[0].raw_ptr(), 400, stream->handle());
  };
  EXPECT_EQ(used_too_early(x, f), 3u);
}

TEST_F(CudaUsers, OfCopiesAndSequences) {
  expect_told("copy", all_of(ones({4}), ones({4})), [](const Operands& x) { raw::copy_kernel(x[0], x[1]); });
  expect_told("cat", all_of(ones({4}), ones({1}), ones({3})), [](const Operands& x) {
    raw::cat_kernel(x[0], {x[1], x[2]}, 0);
  });
  expect_told("fill", all_of(ones({4})), [](const Operands& x) { raw::fill_kernel(x[0], 3); });
  expect_told("arange", all_of(ones({4})), [](const Operands& x) { raw::arange_kernel(x[0], 0, 1); });
  expect_told("linspace", all_of(ones({4})), [](const Operands& x) { raw::linspace_kernel(x[0], 0, 1); });
  expect_told("from the host", all_of(ones({4})),
              [](const Operands& x) { raw::copy_kernel(x[0], empty({4})); });
  const Tensor elsewhere = empty({4}, {.device = Device::parse("cuda:1")});
  expect_told("to another device", all_of(ones({4})),
              [&](const Operands& x) { raw::copy_kernel(elsewhere, x[0]); });
  expect_told("from another device", all_of(ones({4})),
              [&](const Operands& x) { raw::copy_kernel(x[0], elsewhere); });
}

TEST_F(CudaUsers, OfElementwiseKernels) {
  expect_told("relu", all_of(ones({4}), ones({4})),
              [](const Operands& x) { raw::Unary<functors::Relu>::kernel(x[0], x[1], {}); });
  expect_told("add", all_of(ones({2, 4}), ones({4}), ones({2, 1})),
              [](const Operands& x) { raw::Binary<functors::Add>::kernel(x[0], x[1], x[2], {}); });
  expect_told("where", all_of(ones({4}), ones({4}, DType::kBool), ones({4}), ones({4})),
              [](const Operands& x) { raw::where_kernel(x[0], x[1], x[2], x[3]); });
}

TEST_F(CudaUsers, OfReductions) {
  expect_told("sum", all_of(ones({1}), ones({40})),
              [](const Operands& x) { raw::sum_kernel(x[0], x[1], 1); });
  expect_told("extremum", all_of(ones({4, 1}), ones({4, 1}, DType::kI64), ones({4, 3})),
              [](const Operands& x) { raw::extremum_kernel(x[0], x[1], x[2], 1, true); });
  expect_told("softmax", all_of(ones({4, 3}), ones({4, 3})),
              [](const Operands& x) { raw::softmax_kernel(x[0], x[1], 3, 1, false); });
  expect_told("softmax_backward", all_of(ones({4, 3}), ones({4, 3}), ones({4, 3})),
              [](const Operands& x) { raw::softmax_backward_kernel(x[0], x[1], x[2], 3, 1, false); });
}

TEST_F(CudaUsers, OfProducts) {
  expect_told("matmul", all_of(ones({2, 4}), ones({2, 3}), ones({3, 4})),
              [](const Operands& o) { raw::matmul_kernel(o[0], o[1], o[2], {}); });
  expect_told("linear_weight_grad", all_of(ones({3, 4}), ones({3}), ones({2, 3}), ones({2, 4})),
              [](const Operands& o) { raw::linear_weight_grad_kernel(o[0], o[1], o[2], o[3]); });
  expect_told("matmul with a bias", all_of(ones({2, 4}), ones({2, 3}), ones({3, 4}), ones({4})),
              [](const Operands& o) { raw::matmul_relu_kernel(o[0], o[1], o[2], o[3]); });
}

TEST_F(CudaUsers, OfConvolutions) {
  raw::ConvGeometry g;
  g.stride = g.dilation = g.padding = {1, 1};
  const Shape image = {1, 1, 3, 3};
  expect_told("conv", all_of(ones(image), ones(image), ones(image), ones({1})),
              [=](const Operands& x) { raw::conv_kernel(x[0], x[1], x[2], x[3], g); });
  expect_told("conv_input_grad", all_of(ones(image), ones(image), ones(image), ones({1})),
              [=](const Operands& x) { raw::conv_input_grad_kernel(x[0], x[1], x[2], x[3], g); });
  expect_told("conv_weight_grad", all_of(ones(image), ones({1}), ones(image), ones(image)),
              [=](const Operands& x) { raw::conv_weight_grad_kernel(x[0], x[1], x[2], x[3], g); });
}

TEST_F(CudaUsers, OfPooling) {
  PoolWindows w;
  w.input = {1, 2, 2}, w.output = 1, w.kernel = w.stride = {1, 2, 2};
  const Shape in = {1, 1, 2, 2}, out = {1, 1, 1, 1};
  const auto index = [&] { return zeros(out, DType::kU8); };
  expect_told("max_pool", all_of(ones(out), index(), ones(in)),
              [=](const Operands& x) { raw::max_pool_kernel(x[0], x[1], x[2], w); });
  expect_told("max_pool_scatter", all_of(ones(in), ones(out), index()),
              [=](const Operands& x) { raw::max_pool_scatter_kernel(x[0], x[1], x[2], w); });
  expect_told("max_pool_gather", all_of(ones(out), ones(in), index()),
              [=](const Operands& x) { raw::max_pool_gather_kernel(x[0], x[1], x[2], w); });
  expect_told("max_pool_positions", all_of(ones(out, DType::kI64), index()),
              [=](const Operands& x) { raw::max_pool_positions_kernel(x[0], x[1], w); });
  expect_told("max_pool_relu_grad", all_of(ones(in), ones(out)),
              [=](const Operands& x) { raw::max_pool_relu_grad_kernel(x[0], x[1], w); });
  expect_told("avg_pool", all_of(ones(out), ones(in)),
              [=](const Operands& x) { raw::avg_pool_kernel(x[0], x[1], w); });
  expect_told("avg_pool_spread", all_of(ones(in), ones(out)),
              [=](const Operands& x) { raw::avg_pool_spread_kernel(x[0], x[1], w); });
}

TEST_F(CudaUsers, OfLosses) {
  raw::CrossEntropySpec spec;
  spec.classes = 3;
  const auto target = [&] { return zeros({4}, DType::kI64); };
  expect_told(
      "cross_entropy", all_of(ones({}), ones({4, 2}), ones({}), ones({4, 3}), target(), ones({3})),
      [=](const Operands& x) { raw::cross_entropy_kernel(x[0], x[1], x[2], x[3], x[4], x[5], spec); });
  expect_told("cross_entropy_grad",
              all_of(ones({4, 3}), ones({}), ones({4, 3}), target(), ones({3}), ones({4, 2}), ones({})),
              [=](const Operands& x) {
                raw::cross_entropy_grad_kernel(x[0], x[1], x[2], x[3], x[4], x[5], x[6], spec);
              });
  const raw::PointLossSpec squared{raw::PointLoss::kSquaredError};
  expect_told("point_loss", all_of(ones({4}), ones({4}), ones({4})),
              [=](const Operands& x) { raw::point_loss_kernel(x[0], x[1], x[2], squared); });
  expect_told("point_loss_sum", all_of(ones({1}), ones({4}), ones({4}), ones({4})),
              [=](const Operands& x) { raw::point_loss_sum_kernel(x[0], x[1], x[2], x[3], squared, 1); });
  expect_told(
      "point_loss_backward", all_of(ones({4}), ones({4}), ones({4}), ones({4})),
      [=](const Operands& x) { raw::point_loss_backward_kernel(x[0], x[1], x[2], x[3], squared, 1); });
}

TEST_F(CudaUsers, OfBatchNorm) {
  const auto x = [&] { return ones({4, 3}); };
  const auto c = [&] { return ones({3}); };
  const auto running = [](const Tensor& mean, const Tensor& var, const Tensor& batches) {
    return raw::RunningStatistics{mean, var, batches, 0.1};
  };
  const auto batches = [&] { return ones({1}, DType::kI64); };
  expect_told("batch_norm", all_of(x(), c(), c(), x(), c(), c(), c(), c(), batches()),
              [=](const Operands& o) {
                raw::batch_norm_kernel(o[0], o[1], o[2], o[3], o[4], o[5], 1e-5, running(o[6], o[7], o[8]));
              });
  expect_told("batch_norm_relu", all_of(x(), c(), c(), x(), x(), c(), c()), [=](const Operands& o) {
    raw::batch_norm_relu_kernel(o[0], o[1], o[2], o[3], o[4], o[5], o[6], 1e-5, 0, {});
  });
  expect_told("batch_norm_apply", all_of(x(), x(), c(), c(), c(), c()), [](const Operands& o) {
    raw::batch_norm_apply_kernel(o[0], o[1], o[2], o[3], o[4], o[5], 1e-5);
  });
  expect_told(
      "batch_norm_backward", all_of(x(), c(), c(), x(), x(), c(), c(), c(), c()), [](const Operands& o) {
        raw::batch_norm_backward_kernel(o[0], o[1], o[2], o[3], o[4], o[5], o[6], o[7], o[8], 1e-5, 0);
      });
  expect_told("batch_norm_add_relu_backward", all_of(x(), x(), c(), c(), x(), x(), x(), c(), c(), c()),
              [](const Operands& o) {
                raw::batch_norm_add_relu_backward_kernel(o[0], o[1], o[2], o[3], o[4], o[5], o[6], o[7], o[8],
                                                         o[9], 1e-5);
              });
  expect_told("batch_norm_apply_backward", all_of(x(), c(), c(), x(), x(), c(), c(), c()),
              [](const Operands& o) {
                raw::batch_norm_apply_backward_kernel(o[0], o[1], o[2], o[3], o[4], o[5], o[6], o[7], 1e-5);
              });
  const auto wide = [&] { return ones({3}, DType::kF64); };
  expect_told("batch_statistics", all_of(wide(), wide(), x()),
              [](const Operands& o) { raw::batch_statistics_kernel(o[0], o[1], o[2]); });
  expect_told("batch_statistics_backward", all_of(x(), x(), x(), c(), c(), c()), [](const Operands& o) {
    raw::batch_statistics_backward_kernel(o[0], o[1], o[2], o[3], o[4], o[5]);
  });
  expect_told("batch_norm_update", all_of(c(), c(), c(), c(), batches()), [=](const Operands& o) {
    raw::batch_norm_update_kernel(o[0], o[1], running(o[2], o[3], o[4]), 4);
  });
}

TEST_F(CudaUsers, OfLayerNorm) {
  const auto x = [&] { return ones({4, 3}); };
  const auto c = [&] { return ones({3}); };
  const auto stats = [&] { return ones({4, 2}, DType::kF64); };
  expect_told("layer_norm", all_of(x(), stats(), x(), c(), c()),
              [](const Operands& o) { raw::layer_norm_kernel(o[0], o[1], o[2], o[3], o[4], {}); });
  expect_told("layer_norm_backward", all_of(x(), c(), c(), x(), x(), stats(), c()), [](const Operands& o) {
    raw::layer_norm_backward_kernel(o[0], o[1], o[2], o[3], o[4], o[5], o[6], {});
  });
}

TEST_F(CudaUsers, OfGradients) {
  const auto list = [](const Operands& x, size_t from) {
    return Operands(x.begin() + int64_t(from), x.end());
  };
  expect_told("add_all", all_of(ones({4}), ones({5}), ones({4}), ones({5})), [=](const Operands& x) {
    raw::add_all_kernel(x[0], {x[0], x[1]}, list(x, 2));
  });
  expect_told("norm_of", all_of(ones({}), ones({4}), ones({5})),
              [=](const Operands& x) { raw::norm_of_kernel(x[0], list(x, 1), 2); });
  expect_told("hashes_of", all_of(ones({2}, DType::kI64), ones({4}), ones({5})),
              [=](const Operands& x) { raw::hashes_of_kernel(x[0], list(x, 1)); });
  expect_told("clip_by_norm", all_of(ones({}), ones({4}), ones({5})),
              [=](const Operands& x) { raw::clip_by_norm_kernel(x[0], list(x, 1), 1); });
  expect_told("clip_by_value", all_of(ones({4}), ones({5})),
              [=](const Operands& x) { raw::clip_by_value_kernel(x[0], x, 1); });
  expect_told("unscale", all_of(ones({}), ones({1}, DType::kF64), ones({4}), ones({5})),
              [=](const Operands& x) { raw::unscale_kernel(x[0], list(x, 2), 1, x[1]); });
  const auto scale = [&] { return ones({4}, DType::kF64); };
  expect_told("move_scale", all_of(scale(), scale(), scale(), ones({})), [](const Operands& x) {
    raw::move_scale_kernel(x[0], x[1], x[2], x[3], {2, 0.5, 10});
  });
}

TEST_F(CudaUsers, OfGroupNorm) {
  const auto x = [&] { return ones({2, 4, 3}); };
  const auto c = [&] { return ones({4}); };
  const auto stats = [&] { return ones({2, 2}, DType::kF64); };
  const raw::GroupNormSpec spec{.groups = 2};
  expect_told("group_norm", all_of(x(), stats(), stats(), x(), c(), c()),
              [=](const Operands& o) { raw::group_norm_kernel(o[0], o[1], o[2], o[3], o[4], o[5], spec); });
  expect_told("group_norm_backward", all_of(x(), c(), c(), x(), x(), stats(), stats(), c()),
              [=](const Operands& o) {
                raw::group_norm_backward_kernel(o[0], o[1], o[2], o[3], o[4], o[5], o[6], o[7], spec);
              });
  expect_told("group_norm_double_backward",
              all_of(x(), x(), c(), x(), c(), c(), x(), x(), stats(), stats(), c()), [=](const Operands& o) {
                raw::group_norm_double_backward_kernel(o[0], o[1], o[2], o[3], o[4], o[5], o[6], o[7], o[8],
                                                       o[9], o[10], spec);
              });
  expect_told("channel_window_sum", all_of(x(), x()), [](const Operands& o) {
    raw::channel_window_sum_kernel(o[0], o[1], {.before = 1, .after = 1});
  });
}

TEST_F(CudaUsers, OfSortsAndSearches) {
  const auto indices = [&](const Shape& shape) { return ones(shape, DType::kI64); };
  expect_told("sort", all_of(ones({1, 5, 1}), indices({1, 5, 1}), ones({1, 5, 1})),
              [](const Operands& o) { raw::sort_kernel(o[0], o[1], o[2], false); });
  expect_told("sort_rows", all_of(indices({5}), ones({5, 2})),
              [](const Operands& o) { raw::sort_rows_kernel(o[0], o[1]); });
  expect_told("kthvalue", all_of(ones({2, 1, 4}), indices({2, 1, 4}), ones({2, 3, 4})),
              [](const Operands& o) { raw::select_kernel(o[0], o[1], o[2], raw::Selection::kMedian, 0); });
  expect_told("searchsorted", all_of(indices({2, 4}), ones({2, 3}), ones({2, 4})),
              [](const Operands& o) { raw::searchsorted_kernel(o[0], o[1], o[2], false); });
  for (const double high : {0, 1})
    expect_told("histc", all_of(ones({3}), ones({4})),
                [=](const Operands& o) { raw::histc_kernel(o[0], o[1], 0, high); });
}

TEST_F(CudaUsers, OfScans) {
  const auto x = [&] { return ones({2, 3, 4}); };
  expect_told("cumsum", all_of(x(), x()), [](const Operands& o) { raw::cumsum_kernel(o[0], o[1], false); });
  expect_told("cumprod", all_of(x(), x()), [](const Operands& o) { raw::cumprod_kernel(o[0], o[1], false); });
  expect_told("logcumsumexp", all_of(x(), x()),
              [](const Operands& o) { raw::logcumsumexp_kernel(o[0], o[1]); });
  expect_told("cummax", all_of(x(), ones({2, 3, 4}, DType::kI64), x()),
              [](const Operands& o) { raw::running_extremes_kernel(o[0], o[1], o[2], true); });
  expect_told("linear_recurrence", all_of(x(), x(), x()),
              [](const Operands& o) { raw::linear_recurrence_kernel(o[0], o[1], o[2], false); });
}

TEST_F(CudaUsers, OfRecurrentCells) {
  const auto state = [&] { return ones({2, 3}); };
  const auto gates = [&](int64_t count) { return ones({2, 3 * count}); };
  expect_told("lstm_cell", all_of(state(), state(), gates(4), state()),
              [](const Operands& o) { raw::lstm_cell_kernel(o[0], o[1], o[2], o[3]); });
  expect_told("lstm_cell_backward", all_of(gates(4), state(), state(), state(), gates(4), state()),
              [](const Operands& o) { raw::lstm_cell_backward_kernel(o[0], o[1], o[2], o[3], o[4], o[5]); });
  expect_told("gru_cell", all_of(state(), gates(3), gates(3), state()),
              [](const Operands& o) { raw::gru_cell_kernel(o[0], o[1], o[2], o[3]); });
  expect_told(
      "gru_cell_backward", all_of(gates(3), gates(3), state(), state(), gates(3), gates(3), state()),
      [](const Operands& o) { raw::gru_cell_backward_kernel(o[0], o[1], o[2], o[3], o[4], o[5], o[6]); });
}

TEST_F(CudaUsers, OfMasksAndArrangements) {
  const auto mask = [&] { return ones({5}, DType::kBool); };
  expect_told("nonzero", all_of(ones({5, 1}, DType::kI64), mask()),
              [](const Operands& o) { raw::nonzero_kernel(o[0], o[1]); });
  expect_told("masked_select", all_of(ones({5}), ones({5}), mask()),
              [](const Operands& o) { raw::masked_select_kernel(o[0], o[1], o[2]); });
  expect_told("masked_scatter", all_of(ones({5}), ones({5}), mask(), ones({5})),
              [](const Operands& o) { raw::masked_scatter_kernel(o[0], o[1], o[2], o[3]); });
  expect_told("triangle", all_of(ones({3, 3}), ones({3, 3})),
              [](const Operands& o) { raw::triangle_kernel(o[0], o[1], 0, false); });
  expect_told("repeat", all_of(ones({5}, DType::kI64), ones({5}, DType::kI64)),
              [](const Operands& o) { raw::repeat_kernel(o[0], o[1]); });
  expect_told("resample", all_of(ones({1, 2, 3}), ones({1, 2, 3})),
              [](const Operands& o) { raw::resample_kernel(o[0], o[1], {}); });
}

TEST_F(CudaUsers, OfIndices) {
  const raw::IndexedDim d{.outer = 2, .n = 3, .inner = 4};
  const auto x = [&] { return ones({2, 3, 4}); };
  const auto index = [&](const Shape& shape) { return ones(shape, DType::kI64); };
  expect_told("gather", all_of(ones({2, 1, 4}), x(), index({2, 1, 4})),
              [=](const Operands& o) { raw::gather_kernel(o[0], o[1], o[2], d); });
  expect_told("index_select", all_of(ones({2, 5, 4}), x(), index({5})),
              [=](const Operands& o) { raw::index_select_kernel(o[0], o[1], o[2], d); });
  for (const raw::WriteMode mode : {raw::WriteMode::kAssign, raw::WriteMode::kAdd}) {
    expect_told("scatter", all_of(x(), index({2, 1, 4}), ones({2, 1, 4})),
                [=](const Operands& o) { raw::scatter_kernel(o[0], o[1], o[2], d, mode); });
    expect_told("index_put", all_of(x(), index({5}), ones({2, 5, 4})),
                [=](const Operands& o) { raw::index_put_kernel(o[0], o[1], o[2], d, mode); });
  }
  expect_told("flat_index", all_of(index({5}), index({5})),
              [=](const Operands& o) { raw::flat_index_kernel(o[0], o[1], d, 4); });
  expect_told("one_hot", all_of(ones({5, 3}), index({5})),
              [=](const Operands& o) { raw::one_hot_kernel(o[0], o[1]); });
}

TEST_F(CudaUsers, OfRandomNumbers) {
  const auto base = [&] { return zeros({4}, DType::kI64); };
  const auto key = [](const Tensor& b) { return raw::DrawKey{{}, b}; };
  expect_told("uniform", all_of(ones({4}), base()),
              [=](const Operands& x) { raw::uniform_kernel(x[0], 0, 1, key(x[1])); });
  expect_told("normal", all_of(ones({4}), base()),
              [=](const Operands& x) { raw::normal_kernel(x[0], 0, 1, key(x[1])); });
  expect_told("bernoulli", all_of(ones({4}, DType::kBool), base()),
              [=](const Operands& x) { raw::bernoulli_kernel(x[0], 0.5, key(x[1])); });
  expect_told("dropout_mask", all_of(ones({4}, DType::kBool), base()),
              [=](const Operands& x) { raw::dropout_mask_kernel(x[0], 0.5, key(x[1])); });
  expect_told("randint", all_of(ones({4}, DType::kI64), base()),
              [=](const Operands& x) { raw::randint_kernel(x[0], 0, 9, key(x[1])); });
  expect_told("randperm", all_of(ones({4}, DType::kI64), base()),
              [=](const Operands& x) { raw::randperm_kernel(x[0], key(x[1])); });
  expect_told("dropout", all_of(ones({4}), ones({4}, DType::kBool), ones({4}), base()),
              [=](const Operands& x) { raw::dropout_kernel(x[0], x[1], x[2], 0.5, 2, key(x[3])); });
  expect_told("masked_scale", all_of(ones({4}), ones({4}), ones({4}, DType::kBool)),
              [](const Operands& x) { raw::masked_scale_kernel(x[0], x[1], x[2], 2); });
  expect_told("below", all_of(ones({4}), ones({4})),
              [](const Operands& x) { raw::bernoulli_from_uniform_kernel(x[0], x[1]); });
  expect_told("multinomial",
              all_of(ones({1, 2}, DType::kI64), ones({1, 3}, DType::kF64), filled({1, 2}, DType::kF64, 0.5)),
              [](const Operands& x) { raw::multinomial_kernel(x[0], x[1], x[2], true); });
}

}  // namespace
}  // namespace gradus
