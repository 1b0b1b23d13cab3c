// SGD on random images. All steps wait for both devices, so that memory is reused and times are complete.
#include "gradus/examples/two_devices/training.h"

#include <chrono>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/examples/ddp_demos/toy.h"
#include "gradus/nn/losses.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tensor/runtime/allocator.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus::examples {
namespace {

void wait_for_both_devices() {
  synchronize(kFirst);
  synchronize(kSecond);
}

// Runs forward and backward. Waits in between: the host would otherwise allocate the memory of both at once.
void backward(GradManager& gm, const Trainee& net, const Batch& batch) {
  auto recording = gm.record();
  const Tensor y = net.forward(batch.images);
  wait_for_both_devices();
  gm.backward(nn::mse_loss(y, to(batch.labels, y.device())));
}

}  // namespace

Batch random_batch(const BatchOptions& o) {
  const Tensor index = randint(0, o.classes, {o.images});
  return {randn({o.images, 3, o.size, o.size}), one_hot(index, o.classes, DType::kF32)};
}

std::vector<Tensor> gradients_of(const Trainee& net, const Batch& batch) {
  GradManager gm;
  gm.attach(net.parameters);
  backward(gm, net, batch);
  std::vector<Tensor> gradients;
  for (const Tensor& p : net.parameters) {
    gradients.push_back(p.grad());
    p.set_grad({});
  }
  return gradients;
}

double train_seconds(const Trainee& net, const std::vector<Batch>& batches) {
  GradManager gm;
  gm.attach(net.parameters);
  optim::SGD opt(net.parameters, {.lr = 0.001});
  const auto train = [&](const Batch& batch) {
    backward(gm, net, batch);
    opt.step().clear_grad();
    wait_for_both_devices();  // else the host would allocate memory for all batches at once
  };
  for (const Device device : {kCPU, kFirst, kSecond}) empty_cache(device);  // blocks of other sizes
  train(batches[0]);  // warms up: allocates the memory that the measured steps reuse
  const auto start = std::chrono::steady_clock::now();
  for (const Batch& batch : batches) train(batch);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace gradus::examples
