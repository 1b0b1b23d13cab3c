// Rows of the op test table for combinations of ops in which an op may reuse a buffer: a temporary, a
// gradient that several backward functions receive, a result saved for backward, memory shared by views.
// References compute the same with every intermediate in a variable, which forbids reuse. op_table.h explains
// the fields.
#include "gradus/autograd/ops/dropout.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/random.h"
#include "gradus/tests/ops/table/op_table.h"

namespace gradus::optest {
namespace {

using Run = std::function<Tensor(X)>;

// `kept`: `run` with every intermediate in a variable. Without it only the gradients and the other properties
// that need no reference are tested.
void row(const char* op, const char* variant, Sample sample, Run run, Run kept = nullptr) {
  Reference reference;
  if (kept) {
    reference = [kept](A arrays) {
      std::vector<Tensor> x;
      for (const Array& a : arrays) x.push_back(tensor(a.v, a.shape));
      return to_arrays({kept(x)})[0];
    };
  }
  add_row({.op = op,
           .variant = variant,
           .samples = {std::move(sample)},
           .run = std::move(run),
           .reference = std::move(reference),
           .terms = 64});
}

const Shape kImage{2, 3, 4, 4};

void add_activations() {
  row("relu", "of a result that tanh saved", {off_zero({3, 5})}, RUN(relu(tanh(x[0]))), [](X x) {
    const Tensor h = tanh(x[0]);
    return relu(h);
  });
  row("relu", "beside the tanh it came from", {off_zero({3, 5})}, [](X x) {
    const Tensor h = tanh(x[0]);
    return relu(h) * h + relu(exp(h));
  });
  row("relu", "of a view", {off_zero({3, 4})},
      RUN(relu(flatten(x[0])) + flatten(x[0]) + relu(reshape(transpose(x[0], 0, 1), {12}))), [](X x) {
        const Tensor f = flatten(x[0]), t = transpose(x[0], 0, 1), r = reshape(t, {12});
        return relu(f) + f + relu(r);
      });
  row("relu", "of a sum", {off_zero({3, 4}), in({4}, 0.2, 0.3)}, RUN(relu(relu(x[0]) - x[1] + x[0])));
  row("relu", "twice", {off_zero({3, 4})}, RUN(relu(relu(x[0] * 2)) * x[0]));
  // All operands get the same gradient tensor; no backward function may overwrite it for the others.
  row(
      "add", "of all activations", {off_zero({3, 5})},
      [](X x) {
        const Tensor& v = x[0];
        return relu(v) + tanh(v) + sigmoid(v) + gelu(v) + silu(v) + leaky_relu(v, 0.1) + elu(v) +
               clamp(v, -2, 2) + v;
      },
      [](X x) {
        const Tensor v = x[0], a = relu(v), b = tanh(v), c = sigmoid(v), d = gelu(v), e = silu(v);
        const Tensor f = leaky_relu(v, 0.1), g = elu(v), h = clamp(v, -2, 2);
        return a + b + c + d + e + f + g + h + v;
      });
  row("mul", "of a tensor with itself", {in({3, 5})}, RUN(x[0] * x[0] * exp(x[0]) * x[0]));
  row("log_softmax", "times its exp", {in({3, 5})}, RUN(exp(log_softmax(x[0], 1)) * log_softmax(x[0], 1)));
  row("clamp", "of a result that exp saved", {in({3, 5})}, RUN(clamp(exp(x[0]), 0.4, 2.2) * 3));
}

void add_dropout() {
  const auto seeded = [](std::function<Tensor(X)> f) {
    return [f](X x) {
      manual_seed(3);
      return f(x);
    };
  };
  row("dropout", "of a relu", {off_zero({4, 9})}, seeded(RUN(dropout(relu(x[0]), 0.4, true))),
      seeded([](X x) {
        const Tensor h = relu(x[0]);
        return dropout(h, 0.4, true);
      }));
  row("dropout", "of a result that tanh saved", {in({4, 9})},
      seeded(RUN(dropout(tanh(x[0]), 0.4, true) * 2)));
  row("relu", "of a dropout", {off_zero({4, 9})}, seeded(RUN(relu(dropout(x[0], 0.4, true)) + x[0])));
  row("dropout", "of a view", {in({4, 9})}, seeded(RUN(dropout(flatten(x[0]), 0.4, true) + flatten(x[0]))));
}

void add_pooling() {
  const MaxPool2dOptions disjoint{.kernel = 2}, overlapping{.kernel = 3, .stride = 1};
  row("max_pool2d", "of a relu", {distinct(kImage)}, RUN(max_pool2d(relu(x[0]), disjoint)), [=](X x) {
    const Tensor h = relu(x[0]), again = h * 1;
    return max_pool2d(again, disjoint);
  });
  row("max_pool2d", "of a relu of a temporary", {distinct(kImage)},
      RUN(max_pool2d(relu(x[0] * 2), disjoint) * 3));
  row("max_pool2d", "of an overlapping relu", {distinct(kImage)}, RUN(max_pool2d(relu(x[0]), overlapping)));
  row(
      "max_pool2d", "of a relu that is used again", {distinct(kImage)},
      [=](X x) {
        const Tensor h = relu(x[0]);
        return max_pool2d(h, disjoint) + avg_pool2d(h, {.kernel = 2}) * max_pool2d(h, disjoint);
      },
      [=](X x) {
        const Tensor h = relu(x[0]), copy = h * 1;
        return max_pool2d(copy, disjoint) + avg_pool2d(h, {.kernel = 2}) * max_pool2d(copy, disjoint);
      });
  row("max_pool2d", "of a relu in a variable that is moved", {distinct(kImage)}, [=](X x) {
    Tensor h = relu(x[0]);
    h = max_pool2d(h, disjoint);
    return flatten(h, 1);
  });
  row("max_pool2d", "of a relu of a result that tanh saved", {distinct(kImage, -1, 1)},
      RUN(max_pool2d(relu(tanh(x[0])), disjoint)));
  row("max_pool2d", "of a relu that leaves a rest", {distinct({1, 2, 5, 5})},
      RUN(max_pool2d(relu(x[0]), disjoint)));
}

// Layers in sequence, as in networks: second derivatives pass through each pair of neighbors.
void add_networks() {
  row("conv2d", "relu, pool, linear", {in({2, 2, 6, 6}), in({3, 2, 3, 3}), in({3}), in({2, 12}), in({2})},
      [](X x) {
        Tensor h = relu(conv2d(x[0], x[1], x[2]));
        h = flatten(max_pool2d(h, {.kernel = 2}), 1);
        return linear(h, x[3], x[4]);
      });
  row("conv2d", "batch norm, leaky relu, conv",
      {in({3, 2, 4, 4}), in({3, 2, 3, 3}), in({3}), in({3}), in({2, 3, 1, 1})}, [](X x) {
        const Tensor h =
            batch_norm(conv2d(x[0], x[1], {}, {.padding = 1}), x[2], x[3], {}, {}, {.training = true});
        return conv2d(leaky_relu(h, 0.2), x[4]);
      });
  row("batch_norm", "relu, pool", {distinct({3, 2, 4, 4}), in({2}, 0.5, 1.5), in({2})},
      RUN(max_pool2d(relu(batch_norm(x[0], x[1], x[2], {}, {}, {.training = true})), {.kernel = 2})));
  row("cross_entropy", "of a network",
      {in({4, 6}), in({5, 6}), in({5}), in({3, 5}), in({3}), indices({4}, {2, 0, 1, 2})},
      RUN(cross_entropy(linear(relu(linear(x[0], x[1], x[2])), x[3], x[4]), x[5])));
  row("norm", "squared distance from 1", {in({3, 2, 2, 2})}, RUN(mean(square(norm(x[0], {1, 2, 3}) - 1))));
  row("softmax", "attention", {in({2, 3, 4}), in({2, 5, 4}), in({2, 5, 4})},
      RUN(matmul(softmax(matmul(x[0], transpose(x[1], -1, -2)) / 2, -1), x[2])));
}

}  // namespace

static const bool added = [] {
  add_activations();
  add_dropout();
  add_pooling();
  add_networks();
  return true;
}();

}  // namespace gradus::optest
