// make_golden.py has the same formulas and does the same step with torchvision.
#include "gradus/tests/golden/resnet/training_step.h"

#include <cmath>

#include "gradus/autograd/grad_manager.h"
#include "gradus/models/resnet.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::golden {
namespace {

double power_of_two(double x) { return std::exp2(std::floor(std::log2(x) + 0.5)); }

// offset + scale * uniform
Tensor from_formula(const std::string& name, const Shape& shape, double scale, double offset = 0) {
  std::vector<double> v = uniform(name, shape.product());
  for (double& u : v) u = offset + scale * u;
  return tensor(v, shape);
}

// Weights are scaled by their fan.
Tensor value_of(const std::string& name, const Shape& shape) {
  if (name.ends_with("num_batches_tracked")) return tensor(std::vector<int64_t>{41}, {});
  if (shape.size() == 4)
    return from_formula(name, shape, power_of_two(std::sqrt(6.0 / (shape[0] * shape[2] * shape[3]))));
  if (shape.size() == 2) return from_formula(name, shape, power_of_two(1 / std::sqrt(double(shape[1]))));
  if (name.ends_with("running_var")) return from_formula(name, shape, 0.5, 1);
  return name.ends_with("weight") ? from_formula(name, shape, 0.25, 1) : from_formula(name, shape, 0.125);
}

// Gives the optimizer momentum, as after earlier steps.
void set_momentum(optim::SGD& opt, const nn::Module& net) {
  optim::State state = opt.state_dict();
  int number = 0;
  for (const auto& [name, p] : net.named_parameters()) {
    const std::string prefix = "state." + std::to_string(number++);
    state.numbers.emplace_back(prefix + ".step", 1);
    state.tensors.emplace_back(prefix + ".momentum_buffer",
                               from_formula(name + "/momentum", p.shape(), 1.0 / 256));
  }
  opt.load_state_dict(state);
}

}  // namespace

nn::StateDict state_from_formula(const nn::Module& net) {
  nn::StateDict state;
  for (const auto& [name, t] : net.state_dict()) state.emplace_back(name, value_of(name, t.shape()));
  return state;
}

nn::StateDict state_from_formula(const std::string& network) {
  Context context = Context::current().snapshot();
  context.device = {DeviceType::kMeta};
  const ContextScope scope(context);
  return state_from_formula(models::ResNet(models::resnet(network, {})));
}

TrainingStep training_step(const std::string& network, const nn::StateDict& state, int64_t size,
                           DType dtype) {
  models::ResNet net(models::resnet(network, {}));
  net.to(dtype).load_state_dict(state);
  GradManager gm;
  gm.attach(net.parameters());
  optim::SGD opt(net.parameters(), {.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-4});
  set_momentum(opt, net);
  const Tensor x = raw::to(from_formula("x", {4, 3, size, size}, 2), dtype);
  const Tensor target = tensor({3, 141, 592, 653});

  TrainingStep step;
  {
    auto recording = gm.record();
    step.logits = net(x);
    step.loss = nn::cross_entropy(step.logits, target);
    gm.backward(step.loss);
  }
  for (const auto& [name, p] : net.named_parameters()) step.grads.emplace_back(name, p.grad());
  opt.step();
  step.params = net.named_parameters();
  step.buffers = net.named_buffers();
  return step;
}

double norm_of(const Tensor& x) {
  double sum = 0;
  for (double v : x.to_vector<double>()) sum += v * v;
  return std::sqrt(sum);
}

double distance(const Tensor& x, const Tensor& y) {
  const std::vector<double> a = x.to_vector<double>(), b = y.to_vector<double>();
  if (a.size() != b.size()) return INFINITY;
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

}  // namespace gradus::golden
