// scaled_dot_product_attention on cuda:0 beyond the op table: broadcast operands, dropout and higher derivatives
// against the CPU's; which calls store the weights, and which are cuDNN's.
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "gradus/autograd/captured_step.h"
#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/ops/values.h"
#include "gradus/tools/cuda_emulator/libraries/cudnn.h"

namespace gradus {
namespace {

using Tensors = std::vector<Tensor>;
const Device kCuda = Device::parse("cuda:0");

Tensor on(Device device, const Tensor& x) { return x.defined() ? raw::to(x, device) : x; }

// Returns y, the gradients of q, k and v, and those of the sum of their squares, computed on `device`.
Tensors results(Device device, const Tensors& qkv, AttentionOptions o) {
  Tensors x;
  for (const Tensor& t : qkv) x.push_back(on(device, t));
  o.mask = on(device, o.mask);
  const auto y = [&](const Tensors& t) {
    manual_seed(3);  // the same dropout mask each time
    return scaled_dot_product_attention(t[0], t[1], t[2], o);
  };
  Tensors all{y(x)};
  const Tensor dy = on(device, random_tensor(all[0].shape(), all[0].dtype(), 9));
  const auto grads = [&](const Tensors& t) { return autograd::grad(y, t, dy); };
  for (const Tensor& g : grads(x)) all.push_back(g);
  const auto squares = [&](const Tensors& t) {
    const Tensors g = grads(t);
    return sum(square(g[0])) + sum(square(g[1])) + sum(square(g[2]));
  };
  for (const Tensor& g : autograd::grad(squares, x)) all.push_back(g);
  for (Tensor& t : all) t = raw::to(on(kCPU, t), DType::kF64);
  return all;
}

Tensors operands(const Shape& q, const Shape& k, const Shape& v, DType dtype) {
  return {random_tensor(q, dtype, 1), random_tensor(k, dtype, 2), random_tensor(v, dtype, 3)};
}

void expect_as_on_the_cpu(const Tensors& qkv, const AttentionOptions& o) {
  const Tensors got = results(kCuda, qkv, o), want = results(kCPU, qkv, o);
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "result " << i << " for " << describe(qkv[0]) << ", dropout "
                                    << o.dropout);
    expect_near(got[i], want[i], 1e-4);
  }
}

TEST(CudaAttention, GivesTheResultsOfTheCpu) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    expect_as_on_the_cpu(operands({2, 3, 9, 8}, {3, 10, 8}, {2, 1, 10, 4}, dtype), {.causal = true});
    expect_as_on_the_cpu(operands({9, 8}, {10, 8}, {10, 4}, dtype), {.dropout = 0.3});
    expect_as_on_the_cpu(operands({2, 9, 8}, {2, 10, 8}, {2, 10, 8}, dtype),
                         {.mask = random_tensor({2, 1, 10}, dtype, 5), .causal = true, .dropout = 0.5});
    expect_as_on_the_cpu(operands({2, 5, 257}, {2, 6, 257}, {2, 6, 8}, dtype), {.dropout = 0.3});
  }
}

// The launches of a forward and of a backward: none splits heads or joins them.
TEST(CudaAttention, ReadsAndWritesHeadsInPlace) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto heads = [](const Tensor& x) {
      return transpose(reshape(x, {2, x.size(1), 4, x.size(2) / 4}), 1, 2);
    };
    const auto joined = [&](const Tensors& t) {
      const Tensor y = scaled_dot_product_attention(heads(t[0]), heads(t[1]), heads(t[2]), {.causal = true});
      return reshape(transpose(y, 1, 2), {2, 9, 24});
    };
    Tensors x;
    for (const Tensor& t : operands({2, 9, 32}, {2, 10, 32}, {2, 10, 24}, dtype)) x.push_back(on(kCuda, t));
    const Tensor dy = on(kCuda, random_tensor({2, 9, 24}, dtype, 9));
    cuda::HostCallScope calls;
    autograd::grad(joined, x, dy);
    EXPECT_EQ(calls.total().launches, 3) << calls.table();
  }
}

TEST(CudaAttention, IsOneLaunchWithoutAMatrixOfWeights) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    Tensors x;
    for (const Tensor& t : operands({2, 9, 256}, {2, 10, 256}, {2, 10, 8}, dtype)) x.push_back(on(kCuda, t));
    cuda::HostCallScope calls;
    scaled_dot_product_attention(x[0], x[1], x[2], {.causal = true});
    EXPECT_EQ(calls.total().launches, 1);
    EXPECT_EQ(calls.total().library_calls, 0);
  }
}

// ---- 16-bit floats in training, by cuDNN

class AttentionByCudnn : public testing::Test {
 protected:
  ~AttentionByCudnn() override {
    Context::current().deterministic = false;
    cuda::emulated::refuse_graphs(cuda::emulated::RefusedGraphs::kNone);
  }
};

// The gradients of a call on `device`, with y's gradient `dy`; on the CPU, in f64. Calls f after the forward.
Tensors gradients_of(Device device, const Tensors& qkv, const Tensor& dy, const AttentionOptions& o,
                     const std::function<void()>& f = {}) {
  Tensors x;
  for (const Tensor& t : qkv) x.push_back(on(device, t));
  Tensors all = autograd::grad(
      [&](const Tensors& t) {
        const Tensor y = scaled_dot_product_attention(t[0], t[1], t[2], o);
        if (f) f();
        return y;
      },
      x, on(device, dy));
  for (Tensor& t : all) t = raw::to(on(kCPU, t), DType::kF64);
  return all;
}
struct Results {
  Tensors all;
  int64_t launches, library_calls;
};
Results gradients(Device device, const Tensors& qkv, const Tensor& dy, const AttentionOptions& o,
                  const std::function<void()>& f = {}) {
  cuda::HostCallScope calls;
  const Tensors all = gradients_of(device, qkv, dy, o, f);
  // Conversions to f64 are made on the host.
  return {all, calls.total().launches, calls.total().library_calls};
}
// The rounding of a result of up to 4, and of the sums before it.
double tolerance(DType dtype) { return dtype == DType::kBF16 ? 3e-2 : 4e-3; }

void expect_all_near(const Tensors& got, const Tensors& want, double tolerance) {
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "gradient " << i);
    expect_near(got[i], want[i], tolerance);
  }
}

TEST_F(AttentionByCudnn, GradientsAreTheCpus) {
  const struct {
    Shape q, k, v;
  } shapes[] = {{{2, 3, 64, 16}, {2, 3, 128, 16}, {2, 3, 128, 24}},
                {{1, 2, 1, 80, 8}, {1, 2, 1, 128, 8}, {1, 2, 1, 128, 8}},
                {{150, 32}, {128, 32}, {128, 128}}};
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const bool causal : {false, true}) {
      for (const auto& [q, k, v] : shapes) {
        SCOPED_TRACE(testing::Message() << q << ", causal " << causal);
        const Tensors x = operands(q, k, v, dtype);
        Shape y = q;
        y[y.size() - 1] = v[v.size() - 1];
        const Tensor dy = random_tensor(y, dtype, 9);
        const AttentionOptions o{.causal = causal, .scale = 0.2};
        const Results got = gradients(kCuda, x, dy, o);
        expect_all_near(got.all, gradients(kCPU, x, dy, o).all, tolerance(dtype));
        EXPECT_EQ(got.library_calls, 2);
        EXPECT_EQ(got.launches, 0);
      }
    }
  }
}

TEST_F(AttentionByCudnn, ReadsAndWritesHeadsInPlace) {
  const auto attend = [](const Tensors& t) {
    Tensors heads;
    for (const Tensor& x : chunk(t[0], 3, -1)) heads.push_back(transpose(reshape(x, {2, 128, 2, 16}), 1, 2));
    return reshape(transpose(scaled_dot_product_attention(heads[0], heads[1], heads[2]), 1, 2), {2, 128, 32});
  };
  const Tensor x = random_tensor({2, 128, 96}, DType::kBF16, 1),
               dy = random_tensor({2, 128, 32}, DType::kBF16, 2);
  cuda::HostCallScope calls;
  const Tensor got = autograd::grad(attend, {on(kCuda, x)}, on(kCuda, dy))[0];
  EXPECT_EQ(calls.total().library_calls, 2);
  expect_near(raw::to(on(kCPU, got), DType::kF64), raw::to(autograd::grad(attend, {x}, dy)[0], DType::kF64),
              tolerance(DType::kBF16));
}

// The gradient of a sum has stride 0: it is copied.
TEST_F(AttentionByCudnn, TakesAnExpandedGradient) {
  const Tensors x = operands({2, 64, 16}, {2, 64, 16}, {2, 64, 16}, DType::kBF16);
  const auto sums = [&](Device device) {
    Tensors on_device;
    for (const Tensor& t : x) on_device.push_back(on(device, t));
    Tensors all = autograd::grad(
        [&](const Tensors& t) { return sum(scaled_dot_product_attention(t[0], t[1], t[2])); }, on_device);
    for (Tensor& t : all) t = raw::to(on(kCPU, t), DType::kF64);
    return all;
  };
  expect_all_near(sums(kCuda), sums(kCPU), tolerance(DType::kBF16));
}

TEST_F(AttentionByCudnn, ComputesNoOtherCalls) {
  const auto library_calls = [](const Tensors& x, const AttentionOptions& o) {
    const Tensor dy = random_tensor({2, x[0].size(1), x[2].size(2)}, x[0].dtype(), 9);
    return gradients(kCuda, x, dy, o).library_calls;
  };
  const auto of = [](int64_t L, int64_t S, int64_t E, int64_t V, DType dtype = DType::kBF16) {
    return operands({2, L, E}, {2, S, E}, {2, S, V}, dtype);
  };
  const Tensors x = of(64, 128, 16, 16);
  EXPECT_EQ(library_calls(x, {}), 2);
  EXPECT_EQ(library_calls(x, {.dropout = 0.5}), 0);
  EXPECT_EQ(library_calls(x, {.mask = on(kCuda, full({64, 128}, true, {DType::kBool, kCPU}))}), 0);
  EXPECT_EQ(library_calls(x, {.scale = -0.2}), 0);
  EXPECT_EQ(library_calls(of(64, 128, 16, 16, DType::kF32), {}), 0);
  EXPECT_EQ(library_calls(of(63, 128, 16, 16), {}), 0);
  EXPECT_EQ(library_calls(of(64, 64, 16, 16), {}), 0);
  EXPECT_EQ(library_calls(of(64, 128, 12, 16), {}), 0);
  EXPECT_EQ(library_calls(of(64, 128, 136, 16), {}), 0);
  EXPECT_EQ(library_calls({x[0], random_tensor({128, 16}, DType::kBF16, 2), x[2]}, {}), 0) << "broadcasts";
  const Tensor rows = on(kCuda, random_tensor({2, 129, 16}, DType::kBF16, 1));
  const Tensor shifted = view_as_strided(rows, {2, 128, 16}, {129 * 16, 16, 1}, 4);
  cuda::HostCallScope calls;
  autograd::grad([](const Tensors& t) { return scaled_dot_product_attention(t[0], t[0], t[0]); }, {shifted},
                 on(kCuda, random_tensor({2, 128, 16}, DType::kBF16, 9)));
  EXPECT_EQ(calls.total().library_calls, 0) << "not aligned";
  scaled_dot_product_attention(shifted, rows, rows, {});
  EXPECT_EQ(calls.total().library_calls, 0) << "not in training";
}

TEST_F(AttentionByCudnn, IsNotDeterministic) {
  const Tensors x = operands({2, 128, 16}, {2, 256, 16}, {2, 256, 16}, DType::kBF16);
  const Tensor dy = random_tensor({2, 128, 16}, DType::kBF16, 9);
  const Results by_cudnn = gradients(kCuda, x, dy, {});
  Context::current().deterministic = true;
  const Results one = gradients(kCuda, x, dy, {}), two = gradients(kCuda, x, dy, {});
  EXPECT_EQ(one.library_calls, 0);
  for (size_t i = 0; i < 3; ++i) expect_near(one.all[i], two.all[i], 0);
  expect_all_near(by_cudnn.all, one.all, tolerance(DType::kBF16));
}

// The backward of a forward by cuDNN, in a context that forbids cuDNN.
TEST_F(AttentionByCudnn, LeavesTheBackwardToOurKernels) {
  const Tensors x = operands({2, 3, 64, 16}, {2, 3, 128, 16}, {2, 3, 128, 24}, DType::kF16);
  const Tensor dy = random_tensor({2, 3, 64, 24}, DType::kF16, 9);
  const Results got = gradients(kCuda, x, dy, {}, [] { Context::current().deterministic = true; });
  EXPECT_EQ(got.library_calls, 1);
  expect_all_near(got.all, gradients(kCPU, x, dy, {}).all, tolerance(DType::kF16));
}

TEST_F(AttentionByCudnn, LeavesGraphsWithoutAPlanToOurKernels) {
  const Tensors x = operands({4, 64, 16}, {4, 128, 16}, {4, 128, 24}, DType::kBF16);
  const Tensor dy = random_tensor({4, 64, 24}, DType::kBF16, 9);
  cuda::emulated::refuse_graphs(cuda::emulated::RefusedGraphs::kAll);
  const Results got = gradients(kCuda, x, dy, {});
  EXPECT_EQ(got.library_calls, 0);
  expect_all_near(got.all, gradients(kCPU, x, dy, {}).all, tolerance(DType::kBF16));
}

// Both runs of a checkpoint have one kernel, and so the same bits: also where q depends on a weight outside.
TEST_F(AttentionByCudnn, IsNotUsedInCheckpoints) {
  Tensors x;
  for (const Tensor& t : operands({2, 64, 16}, {2, 128, 16}, {2, 128, 16}, DType::kBF16))
    x.push_back(on(kCuda, t));
  x.push_back(on(kCuda, random_tensor({16}, DType::kBF16, 4)));
  cuda::HostCallScope calls;
  autograd::grad(
      [](const Tensors& t) {
        const auto attend = [weight = t[3]](const Tensors& u) {
          return scaled_dot_product_attention(u[0] * weight, u[1], u[2]);
        };
        return sum(autograd::checkpoint(attend, {t[0], t[1], t[2]}));
      },
      x);
  EXPECT_EQ(calls.total().library_calls, 0);
}

TEST_F(AttentionByCudnn, RunsInACapturedStep) {
  const auto step = [](const Tensors& x) {
    return autograd::grad(
        [](const Tensors& t) { return sum(square(scaled_dot_product_attention(t[0], t[1], t[2]))); }, x);
  };
  CapturedStep captured(step);
  for (int run = 0; run < 6; ++run) {
    Tensors x;
    for (int i = 0; i < 3; ++i)
      x.push_back(on(kCuda, random_tensor({2, 128, 16}, DType::kBF16, uint64_t(3 * run + i + 1))));
    const Tensors got = captured(x), want = step(x);
    for (size_t i = 0; i < 3; ++i)
      expect_near(raw::to(on(kCPU, got[i]), DType::kF64), raw::to(on(kCPU, want[i]), DType::kF64),
                  tolerance(DType::kBF16));
  }
}

TEST_F(AttentionByCudnn, ThreadsComputeOnTheirDevices) {
  const Tensors x = operands({2, 64, 16}, {2, 128, 16}, {2, 128, 16}, DType::kF16);
  const Tensor dy = random_tensor({2, 64, 16}, DType::kF16, 9);
  const Tensors want = gradients_of(kCPU, x, dy, {});
  std::vector<std::thread> threads;
  std::vector<Tensors> got(4);
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      got[size_t(i)] = gradients_of({DeviceType::kCUDA, int16_t(i % 2)}, x, dy, {});
    });
  for (std::thread& t : threads) t.join();
  for (const Tensors& g : got) expect_all_near(g, want, tolerance(DType::kF16));
}

}  // namespace
}  // namespace gradus
