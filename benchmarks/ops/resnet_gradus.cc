// Workloads: training steps of residual networks, in Gradus.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in other files of
// this folder (resnet_libtorch.cc).
#include "benchmarks/workloads.h"
#include "gradus/gradus.h"
#include "gradus/models/resnet.h"

namespace gradus::bench {
namespace {

Workload train_step(const models::ResNetOptions& options, int64_t batch, int64_t size, bool in_bf16 = false) {
  struct Step {
    explicit Step(const models::ResNetOptions& options) : net(options) { gm.attach(net.parameters()); }
    models::ResNet net;
    GradManager gm;
    optim::SGD opt{net.parameters(), {.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-4}};
    Tensor x, y;
  };
  auto s = std::make_shared<Step>(options);
  s->x = randn({batch, 3, size, size});
  s->y = randint(0, options.classes, {batch});
  return work([s, in_bf16] {
    auto recording = s->gm.record();
    const Tensor loss = [&] {
      auto amp = autocast(DType::kBF16, {.enabled = in_bf16});
      return nn::cross_entropy(s->net(s->x), s->y);
    }();
    s->gm.backward(loss);
    s->opt.step().clear_grad();
    loss.item<float>();
  });
}

struct Step {
  const char* name;
  models::ResNetOptions options;
  int64_t batch, size;
};
const Step kSteps[] = {
    {"resnet18 train step, batch 16", models::resnet18(), 16, 224},
    {"resnet50 train step, batch 8", models::resnet50(), 8, 224},
    {"cifar resnet20 train step, batch 128", models::cifar_resnet(20), 128, 32},
};

std::vector<Entry> steps() {
  std::vector<Entry> entries;
  for (const bool in_bf16 : {false, true})
    for (const Step& s : kSteps)
      entries.push_back({std::string(s.name) + (in_bf16 ? ", bf16" : ""),
                         [=] { return train_step(s.options, s.batch, s.size, in_bf16); }});
  return entries;
}

// The f32 references of the bf16 steps (Side::kGradusF32).
std::vector<Entry> steps_in_f32() {
  std::vector<Entry> entries;
  for (const Step& s : kSteps)
    entries.push_back(
        {std::string(s.name) + ", bf16", [=] { return train_step(s.options, s.batch, s.size); }});
  return entries;
}

}  // namespace

static const AddWorkloads added(Side::kGradus, "resnet", steps());
static const AddWorkloads added_f32(Side::kGradusF32, "resnet", steps_in_f32());

}  // namespace gradus::bench
