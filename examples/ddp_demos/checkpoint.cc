// A checkpoint: rank 0 writes it, and all go on from it.
#include <unistd.h>

#include <filesystem>

#include "gradus/autograd/grad_manager.h"
#include "gradus/distributed/data_parallel/distributed_data_parallel.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/examples/ddp_demos/demos.h"
#include "gradus/examples/ddp_demos/show.h"
#include "gradus/examples/ddp_demos/toy.h"
#include "gradus/io/safetensors.h"
#include "gradus/nn/losses.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::examples {
namespace {

namespace fs = std::filesystem;

// Returns the last loss.
double train(dist::DistributedDataParallel<ToyModel>& ddp, int steps) {
  const auto [x, y] = samples_of(dist::get_rank());
  GradManager gm;
  ddp.attach(gm);
  optim::SGD opt(ddp.parameters(), {.lr = 0.1});
  double last = 0;
  for (int step = 0; step < steps; ++step) {
    auto recording = gm.record();
    const Tensor loss = nn::mse_loss(ddp(x), y);
    gm.backward(loss);
    opt.step().clear_grad();
    last = loss.item<double>();
  }
  return last;
}

}  // namespace

void show_checkpoint() {
  const int rank = dist::get_rank();
  const fs::path file = dist::broadcast_object(
      (fs::temp_directory_path() / ("ddp-" + std::to_string(getpid()) + ".safetensors")).string());
  ToyModel model;
  dist::DistributedDataParallel ddp(model);
  train(ddp, 10);
  if (rank == 0) io::save_safetensors(file, ddp.state_dict());  // the model's own names, no "module."
  const double straight = train(ddp, 10);
  dist::barrier();  // now the file is there

  manual_seed(500 + static_cast<uint64_t>(rank));
  ToyModel fresh;
  // Ranks of other machines may not see the file: they get rank 0's weights when ddp is made.
  if (fs::exists(file)) fresh.load_state_dict(io::load_safetensors(file).tensors);
  dist::DistributedDataParallel loaded(fresh);
  const double resumed = train(loaded, 10);
  show("checkpoint: rank 0 saves, all load, and go on (loss without and with the way through the file)",
       text(straight), text(resumed), resumed == straight ? text(straight) : "the same bits");
  dist::barrier();  // nobody reads it any more
  if (rank == 0) fs::remove(file);
}

}  // namespace gradus::examples
