// Data-parallel training: each rank has the whole model and a part of the batch, and DistributedDataParallel
// averages the gradients. Checks that the weights are those of one process with the whole batch.
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

void show_basic() {
  constexpr int kSteps = 100;
  constexpr double kLr = 0.1;
  const auto [x, y] = samples_of(dist::get_rank());

  // Different weights on every rank, until DistributedDataParallel broadcasts those of rank 0.
  manual_seed(static_cast<uint64_t>(dist::get_rank()));
  ToyModel model;
  const float initial = model.net1.weight.data<float>()[0];
  dist::DistributedDataParallel ddp(model);
  manual_seed(0);
  ToyModel rank0;
  show("DistributedDataParallel: all ranks start with rank 0's weights (net1.weight[0,0])",
       text(double(initial)), text(double(model.net1.weight.data<float>()[0])),
       text(double(rank0.net1.weight.data<float>()[0])));

  GradManager gm;
  ddp.attach(gm);
  optim::SGD opt(ddp.parameters(), {.lr = kLr});
  double first = 0, last = 0;
  for (int step = 0; step < kSteps; ++step) {
    auto recording = gm.record();
    const Tensor loss = nn::mse_loss(ddp(x), y);
    gm.backward(loss);  // gradients are the mean over all ranks
    opt.step().clear_grad();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  show("the loss of each rank's own samples falls in 100 steps", text(first), text(last),
       last < 0.9 * first ? text(last) : "less");
  // This model is seeded as rank 0, so it has the initial weights of all ranks.
  const double difference = difference_from_one_process(rank0, kLr, kSteps, model);
  show("and the weights are those of one process that has all samples", "the largest difference",
       rounding(difference), "within rounding");
}

}  // namespace gradus::examples
