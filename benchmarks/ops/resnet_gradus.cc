// Training steps of residual networks, as a Gradus user would write them.
#include "benchmarks/contest.h"
#include "gradus/gradus.h"
#include "gradus/models/resnet.h"

namespace gradus::bench {
namespace {

Workload train_step(const models::ResNetOptions& options, int64_t batch, int64_t size) {
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
  return work([s] {
    auto recording = s->gm.record();
    const Tensor loss = nn::cross_entropy(s->net(s->x), s->y);
    s->gm.backward(loss);
    s->opt.step().clear_grad();
    loss.item<float>();
  });
}

}  // namespace

static const AddWorkloads added(
    Side::kGradus, "resnet",
    {
        {"resnet18 train step, batch 16", [] { return train_step(models::resnet18(), 16, 224); }},
        {"resnet50 train step, batch 8", [] { return train_step(models::resnet50(), 8, 224); }},
        {"cifar resnet20 train step, batch 128",
         [] { return train_step(models::cifar_resnet(20), 128, 32); }},
    });

}  // namespace gradus::bench
