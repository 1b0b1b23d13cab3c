// A training step of the MNIST network, and its matrix products and convolutions without the rest of the step.
#pragma once

#include "gradus/gradus.h"
#include "gradus/models/mnist_net.h"
#include "gradus/tensor/ops/images/conv.h"
#include "gradus/tensor/ops/linalg/matmul.h"
#include "gradus/tensor/ops/view.h"

namespace gradus::bench {

// Forward, backward and SGD with momentum on one fixed batch of random digits.
class MnistStep {
 public:
  // `callbacks` are attached to the parameters.
  explicit MnistStep(int64_t batch, std::vector<Callback> callbacks = {})
      : x_(randn({batch, 1, 28, 28})),
        y_(randint(0, 10, {batch})),
        opt_(net_.parameters(), {.lr = 0.01, .momentum = 0.9, .weight_decay = 5e-4}) {
    gm_.attach(net_.parameters(), std::move(callbacks));
  }

  nn::Module& net() { return net_; }

  Tensor run() {
    auto recording = gm_.record();
    Tensor loss = nn::cross_entropy(net_(x_), y_);
    gm_.backward(loss);
    opt_.step().clear_grad();
    return loss;
  }

  // Returns the minimal memory of a step in bytes: parameters, gradients, optimizer state, and tensors saved for
  // backward.
  int64_t needed_bytes() {
    run();  // creates the optimizer's state
    const int64_t before = memory_stats().live_bytes;
    auto recording = gm_.record();
    const Tensor loss = nn::cross_entropy(net_(x_), y_);
    int64_t gradients = 0;
    for (const Tensor& p : net_.parameters()) gradients += allocation_size(p.nbytes());
    return before + (memory_stats().live_bytes - before) + gradients;
  }

 private:
  models::MnistNet net_;
  Tensor x_, y_;
  GradManager gm_;
  optim::SGD opt_;
};

// The step's convolutions and matrix products, forward and backward, on tensors with the same layouts as in the
// step. The second convolution's gradient has passed through dropout, pooling and relu, so most of it is zeros.
class MnistKernels {
 public:
  explicit MnistKernels(int64_t n)
      : x_(randn({n, 1, 28, 28})),
        h1_(channels_last(randn({n, 32, 26, 26}))),
        g2_(pooled_gradient(n)),
        f_(randn({n, 9216})),
        g_(randn({n, 128})),
        l_(randn({n, 10})),
        w1_(randn({32, 1, 3, 3})),
        b1_(randn({32})),
        w2_(randn({64, 32, 3, 3})),
        b2_(randn({64})),
        w3_(randn({128, 9216})),
        b3_(randn({128})),
        w4_(randn({10, 128})),
        b4_(randn({10})) {}

  void run() {
    raw::conv2d(x_, w1_, b1_);
    raw::conv2d(h1_, w2_, b2_);
    raw::linear(f_, w3_, b3_);
    raw::linear(g_, w4_, b4_);
    raw::matmul(l_, w4_);
    raw::matmul(raw::transpose(l_, 0, 1), g_);
    raw::matmul(g_, w3_);
    raw::matmul(raw::transpose(g_, 0, 1), f_);
    raw::conv2d_weight_grad(g2_, h1_, w2_.shape(), true);
    raw::conv2d_input_grad(g2_, w2_, h1_.shape());
    raw::conv2d_weight_grad(h1_, x_, w1_.shape(), true);
  }

 private:
  static Tensor pooled_gradient(int64_t n) {
    return autograd::grad([](const Tensor& t) { return max_pool2d(relu(t), {.kernel = 2}); },
                          channels_last(randn({n, 64, 24, 24})), dropout(randn({n, 64, 12, 12}), 0.25, true));
  }

  // x_: images; h1_: output of the first convolution; g2_: gradient of the second one's output; f_, g_: input
  // and output of the first linear layer; l_: gradient of the logits; w, b: weights and biases. Other
  // gradients reuse tensors of equal shape.
  Tensor x_, h1_, g2_, f_, g_, l_, w1_, b1_, w2_, b2_, w3_, b3_, w4_, b4_;
};

}  // namespace gradus::bench
