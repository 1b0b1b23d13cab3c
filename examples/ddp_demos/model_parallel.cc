// Model parallelism with data parallelism: each rank divides the model between two devices, and
// DistributedDataParallel averages the gradients over the ranks.
#include "gradus/autograd/grad_manager.h"
#include "gradus/distributed/data_parallel/distributed_data_parallel.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/examples/ddp_demos/demos.h"
#include "gradus/examples/ddp_demos/show.h"
#include "gradus/examples/ddp_demos/toy.h"
#include "gradus/nn/losses.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::examples {

void show_model_parallel() {
  constexpr int kSteps = 50;
  constexpr double kLr = 0.1;
  const auto [x, y] = samples_of(dist::get_rank());
  manual_seed(7);
  TwoDeviceToyModel model;
  dist::DistributedDataParallel ddp(model);  // no device_ids: the layers stay where they are
  GradManager gm;
  ddp.attach(gm);
  optim::SGD opt(ddp.parameters(), {.lr = kLr});
  double first = 0, last = 0;
  for (int step = 0; step < kSteps; ++step) {
    auto recording = gm.record();
    const Tensor loss = nn::mse_loss(ddp(x), to(y, kSecond));
    gm.backward(loss);
    opt.step().clear_grad();
    last = to(loss, kCPU).item<double>();
    if (step == 0) first = last;
  }
  const std::string devices =
      to_string(model.net1.weight.device()) + " and " + to_string(model.net2.weight.device());
  show("model parallel: net1 and net2 of each rank are on two devices", "cpu", devices, "cpu:1 and cpu:2");
  show("the loss of each rank's own samples falls in 50 steps", text(first), text(last),
       last < first ? text(last) : "less");
  manual_seed(7);
  ToyModel alone;
  const double difference = difference_from_one_process(alone, kLr, kSteps, model);
  show("and the weights are those of one process and one device", "the largest difference",
       rounding(difference), "within rounding");
}

}  // namespace gradus::examples
