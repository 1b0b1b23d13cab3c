// Built against an installed Gradus by install_test.sh: data-parallel training on two ranks (processes), a
// checkpoint and a picture in the folder argv[1]. Fails if the ranks end with different weights.
#include <filesystem>
#include <iostream>

#include "gradus/gradus.h"

using namespace gradus;

struct Net : nn::Layer {
  nn::Linear fc1{this, "fc1", {.in = 784, .out = 32}}, fc2{this, "fc2", {.in = 32, .out = 10}};
  Tensor forward(const Tensor& x) override { return fc2(relu(fc1(flatten(x, 1)))); }
};

int main(int argc, char** argv) {
  const std::filesystem::path folder = argc > 1 ? argv[1] : ".";
  return dist::launcher({.nproc_per_node = 2}, [&] {
    manual_seed(1);
    Net net;
    dist::DistributedDataParallel ddp(net);
    GradManager gm;
    ddp.attach(gm);
    optim::SGD opt(net.parameters(), {.lr = 0.1});
    for (const data::Batch& b :
         data::DataLoader(data::GeneratedDigits({.size = 256}), {.batch_size = 32, .drop_last = true})) {
      auto recording = gm.record();
      gm.backward(nn::cross_entropy(ddp(b.input), b.target));
      opt.step().clear_grad();
    }
    const Tensor total = sum(net.fc1.weight.detach());
    if (dist::get_rank() == 0) {
      io::Checkpoint checkpoint;
      checkpoint.put("net", net);
      io::save_checkpoint(folder / "net.safetensors", checkpoint);
      io::save_image(folder / "picture.png", rand({1, 3, 8, 8}));
    }
    dist::barrier();
    const float own = total.item<float>();
    dist::all_reduce(total);
    if (total.item<float>() != 2 * own) throw std::runtime_error("the ranks differ");
    std::cout << "rank " << dist::get_rank() << " done" << std::endl;
  });
}
