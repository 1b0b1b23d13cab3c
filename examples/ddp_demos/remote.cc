// A model of two layers on two ranks: remote_send transfers a tensor, and backward transfers its gradient
// back. Checks that the layers learn the same weights as in one process.
#include "gradus/distributed/group/remote.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/examples/ddp_demos/demos.h"
#include "gradus/examples/ddp_demos/show.h"
#include "gradus/examples/ddp_demos/toy.h"
#include "gradus/nn/losses.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::examples {
namespace {

constexpr int kSteps = 50;
constexpr double kLr = 0.05;
constexpr int64_t kMicroBatches = 4;

// Rank 0 has the first layer and the samples, rank 1 the second layer and the targets.
void step(GradManager& gm, nn::Linear& layer, const Tensor& x, const Tensor& y) {
  auto recording = gm.record();
  if (dist::get_rank() == 0) {
    dist::remote_send(layer(x), {.dest_rank = 1});
    gm.backward();  // no loss here: the gradient comes from rank 1
  } else {
    const Tensor h = dist::remote_recv({.src_rank = 0});  // the message contains shape and dtype
    gm.backward(nn::mse_loss(layer(h), y));
  }
}

// The same in micro-batches: rank 0 computes the next micro-batch while rank 1 computes the previous one.
void step_in_micro_batches(GradManager& gm, nn::Linear& layer, const Tensor& x, const Tensor& y) {
  const std::vector<Tensor> xs = chunk(x, kMicroBatches), ys = chunk(y, kMicroBatches);
  std::vector<Recording> in_flight;
  for (size_t i = 0; i < xs.size(); ++i) {
    Recording recording = gm.record();
    if (dist::get_rank() == 0) {
      dist::remote_send(layer(xs[i]), {.dest_rank = 1});
      in_flight.push_back(std::move(recording).pause());
    } else {
      const Tensor h = dist::remote_recv({.src_rank = 0});
      recording.backward(nn::mse_loss(layer(h), ys[i]) / kMicroBatches);
    }
  }
  for (Recording& recording : in_flight) recording.backward();  // gradients add up
}

nn::Linear layer_of(int rank) {
  manual_seed(static_cast<uint64_t>(rank));
  return nn::Linear({.in = 1, .out = 1});
}

// Trains the two ranks' layers. Returns this rank's weight and bias.
template <class Step> std::vector<Tensor> trained(Step step, const Tensor& x, const Tensor& y) {
  nn::Linear layer = layer_of(dist::get_rank());
  GradManager gm;
  gm.attach(layer.parameters());
  optim::SGD opt(layer.parameters(), {.lr = kLr});
  for (int i = 0; i < kSteps; ++i) {
    step(gm, layer, x, y);
    opt.step().clear_grad();
  }
  return layer.parameters();
}

// Returns rank 0's weight and bias, and rank 1's, after the same training in one process.
std::vector<std::vector<Tensor>> trained_in_one_process(const Tensor& x, const Tensor& y) {
  nn::Linear first = layer_of(0), second = layer_of(1);
  GradManager gm;
  gm.attach(first.parameters()).attach(second.parameters());
  optim::SGD opt(gm.attached_tensors(), {.lr = kLr});
  for (int i = 0; i < kSteps; ++i) {
    auto recording = gm.record();
    gm.backward(nn::mse_loss(second(first(x)), y));
    opt.step().clear_grad();
  }
  return {first.parameters(), second.parameters()};
}

}  // namespace

void show_remote() {
  if (dist::get_world_size() == 1) return training::print("\nMessages with gradients need two ranks.");
  manual_seed(42);
  const Tensor x = randn({16, 1}), y = 2 * x + 1;
  const auto expected = trained_in_one_process(x, y);
  const auto show_training = [&](const std::string& title, auto step) {
    const auto rank = static_cast<size_t>(dist::get_rank());
    if (rank > 1) return show(title, "-", "-", "-");
    show(title, "the largest difference", rounding(largest_difference(trained(step, x, y), expected[rank])),
         "within rounding");
  };
  show_training("remote_send and remote_recv: layers of two ranks learn what they learn in one process",
                &step);
  show_training("the same in 4 micro-batches", &step_in_micro_batches);
}

}  // namespace gradus::examples
