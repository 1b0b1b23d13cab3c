// Builds the training steps of steps.h: classifiers with cross entropy, and DCGAN.
#include "gradus/tests/cuda/training/steps.h"

#include <algorithm>
#include <memory>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/models/models.h"
#include "gradus/nn/losses.h"
#include "gradus/optim/optimizers/adam.h"
#include "gradus/optim/optimizers/rmsprop.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/ops/random.h"

namespace gradus {
namespace {

// A network created on a device, with its optimizer.
template <class Net, class Optimizer> struct Trained {
  template <class Options, class... Args>
  Trained(Device device, const Options& options, const Args&... args)
      : net(make_on(device, args...)), opt(net->parameters(), options) {
    gm.attach(net->parameters());
  }
  template <class... Args> static std::unique_ptr<Net> make_on(Device device, const Args&... args) {
    Context context = Context::current().snapshot();
    context.device = device;
    const ContextScope there(context);
    return std::make_unique<Net>(args...);
  }

  std::unique_ptr<Net> net;
  GradManager gm;
  Optimizer opt;
};

template <class Net, class Optimizer, class Options, class... Args>
Step classifier(const StepOptions& o, int64_t channels, int64_t classes, const Options& options,
                const Args&... network) {
  const auto t = std::make_shared<Trained<Net, Optimizer>>(o.device, options, network...);
  const Tensor x = randn({o.batch, channels, o.size, o.size}, {.device = o.device});
  const Tensor target = randint(classes, {o.batch}, {DType::kI64, o.device});
  return [=, bf16 = o.bf16] {
    const auto amp = autocast(DType::kBF16, {.enabled = bf16});
    auto recording = t->gm.record();
    t->gm.backward(nn::cross_entropy((*t->net)(x), target));
    t->opt.step().clear_grad();
  };
}

Step mnist(const StepOptions& o) {
  return classifier<models::MnistNet, optim::Adadelta>(o, 1, 10, optim::AdadeltaOptions{.lr = 1});
}

Step resnet(const StepOptions& o, models::ResNetOptions network, const optim::SGDOptions& sgd) {
  if (o.width) network.width = o.width;
  return classifier<models::ResNet, optim::SGD>(o, 3, network.classes, sgd, network);
}
Step of_cifar10(const StepOptions& o) {
  return resnet(o, models::cifar_resnet(20),
                {.lr = 0.2, .momentum = 0.9, .weight_decay = 5e-4, .nesterov = true});
}
Step of_imagenet(const StepOptions& o, const models::ResNetOptions& network) {
  return resnet(o, network, {.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-4});
}

// Images that are generated once serve both networks.
Step dcgan(const StepOptions& o) {
  using models::DCGANDiscriminator, models::DCGANGenerator;
  constexpr int64_t kChannels = 3;
  const int64_t width = o.width ? o.width : 64;
  const optim::AdamOptions adam{.lr = 2e-4, .betas = {0.5, 0.999}};
  const auto gen = std::make_shared<Trained<DCGANGenerator, optim::Adam>>(
      o.device, adam, models::DCGANGeneratorOptions{.size = o.size, .channels = kChannels, .width = width});
  const auto disc = std::make_shared<Trained<DCGANDiscriminator, optim::Adam>>(
      o.device, adam,
      models::DCGANDiscriminatorOptions{.size = o.size, .channels = kChannels, .width = width});
  const Tensor real = randn({o.batch, kChannels, o.size, o.size}, {.device = o.device});
  const Tensor noise = randn({o.batch, gen->net->options().latent}, {.device = o.device});
  const auto loss_of = [](const Tensor& scores, double label) {  // as train/gan/losses.h has it
    return nn::binary_cross_entropy_with_logits_to(scores, label);
  };
  return [=, bf16 = o.bf16] {
    const auto amp = autocast(DType::kBF16, {.enabled = bf16});
    Recording making = gen->gm.record();
    const Tensor fake = (*gen->net)(noise);
    making.pause();
    {
      Recording judging = disc->gm.record();
      const Tensor real_scores = (*disc->net)(real), fake_scores = (*disc->net)(detach(fake));
      judging.backward(loss_of(real_scores, 1) + loss_of(fake_scores, 0));
      disc->opt.step().clear_grad();
    }
    making.resume();
    making.backward(loss_of((*disc->net)(fake), 1));
    gen->opt.step().clear_grad();
  };
}

}  // namespace

const std::vector<Example>& examples() {
  static const std::vector<Example> all{
      {"MNIST's network", 64, 1, 28, mnist},
      {"ResNet-20", 128, 3, 32, of_cifar10},
      {"ResNet-18", 256, 3, 224, [](const auto& o) { return of_imagenet(o, models::resnet18()); }},
      {"ResNet-50", 256, 3, 224, [](const auto& o) { return of_imagenet(o, models::resnet50()); }},
      {"DCGAN", 128, 3, 64, dcgan},
  };
  return all;
}

const Example& example(const std::string& name) {
  return *std::ranges::find(examples(), name, &Example::name);
}

}  // namespace gradus
