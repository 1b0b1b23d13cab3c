// scaled_dot_product_attention on cuda:0 beyond the op table: broadcast operands, dropout and higher derivatives
// against the CPU's; which calls store the weights.
#include <gtest/gtest.h>

#include <vector>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/ops/values.h"

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

}  // namespace
}  // namespace gradus
