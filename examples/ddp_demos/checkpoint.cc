// A checkpoint of a data-parallel model: rank 0 writes the weights, all ranks load them and train on.
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

// Trains for `steps` steps on the rank's samples. Returns the last loss.
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
  const double uninterrupted = train(ddp, 10);
  dist::barrier();  // rank 0 has written the file

  manual_seed(500 + static_cast<uint64_t>(rank));
  ToyModel new_model;
  // Ranks of other machines may not see the file: DistributedDataParallel sends them the weights of rank 0.
  if (fs::exists(file)) new_model.load_state_dict(io::load_safetensors(file).tensors);
  dist::DistributedDataParallel loaded(new_model);
  const double resumed = train(loaded, 10);
  show("checkpoint: rank 0 saves, all load, and go on (loss without and with the way through the file)",
       text(uninterrupted), text(resumed), resumed == uninterrupted ? text(uninterrupted) : "the same bits");
  dist::barrier();  // all ranks have read the file
  if (rank == 0) fs::remove(file);
}

}  // namespace gradus::examples
