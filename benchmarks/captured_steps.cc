// Training steps replayed by CapturedStep beside the same steps without it, alternating, on the CPU: an MLP of
// 3 layers with 32 features, MNIST's network, ResNet-20, and a small GPT. Prints medians and the median ratio.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/statistics.h"
#include "gradus/gradus.h"

namespace gradus::bench {
namespace {

using Tensors = CapturedStep::Tensors;

// A network with its optimizer, a batch, and the memory that a step adds to them.
struct Workload {
  std::unique_ptr<nn::Layer> net;
  std::unique_ptr<optim::Optimizer> opt;
  GradManager gm;
  Tensors batch;

  Workload(std::unique_ptr<nn::Layer> n, Tensor input, Tensor target)
      : net(std::move(n)), opt(std::make_unique<optim::Adam>(net->parameters())), batch{input, target} {
    gm.attach(net->parameters());
  }
  Tensors step(const Tensors& in) {
    auto recording = gm.record();
    const Tensor logits = (*net)(in[0]);
    const Tensor loss = nn::cross_entropy(reshape(logits, {-1, logits.size(-1)}), flatten(in[1]));
    gm.backward(loss);
    opt->step().clear_grad();
    return {loss};
  }
};

std::unique_ptr<Workload> make(const std::string& name) {
  manual_seed(1);
  const auto of = [](std::unique_ptr<nn::Layer> net, Tensor input, const Shape& targets, int64_t classes) {
    return std::make_unique<Workload>(std::move(net), std::move(input), randint(0, classes, targets));
  };
  if (name == "mlp") {
    std::vector<nn::LayerFactory> layers;
    for (const int64_t out : {32, 32, 10}) {
      if (!layers.empty()) layers.push_back(nn::layer<nn::ReLU>());
      layers.push_back(nn::layer<nn::Linear>({.in = 32, .out = out}));
    }
    return of(std::make_unique<nn::Sequential>(layers), randn({8, 32}), {8}, 10);
  }
  if (name == "mnist") return of(std::make_unique<models::MnistNet>(), randn({64, 1, 28, 28}), {64}, 10);
  if (name == "resnet20")
    return of(std::make_unique<models::ResNet>(models::cifar_resnet(20)), randn({32, 3, 32, 32}), {32}, 10);
  return of(std::make_unique<models::GPT>(
                models::GPTOptions{.vocabulary = 65, .context = 64, .layers = 4, .heads = 4, .width = 128}),
            randint(0, 65, {8, 64}), {8, 64}, 65);
}

void compare(const std::string& name, int64_t rounds) {
  const std::unique_ptr<Workload> plain = make(name), captured = make(name);
  CapturedStep replayed([&](const Tensors& in) { return captured->step(in); });
  const auto step = [&] { plain->step(plain->batch); };
  const auto replay = [&] { replayed(captured->batch); };
  for (int i = 0; i < 5; ++i) step(), replay();
  // Many steps a round where a step is short.
  const double seconds = seconds_of(step);
  const auto repeats = static_cast<int64_t>(std::clamp(0.02 / seconds, 1.0, 2000.0));
  const auto timed = [&](const std::function<void()>& f) {
    return seconds_of([&] {
             for (int64_t i = 0; i < repeats; ++i) f();
           }) /
           static_cast<double>(repeats);
  };
  std::vector<double> eager_ms, replay_ms, ratio;
  for (int64_t i = 0; i < rounds; ++i) {
    eager_ms.push_back(1e3 * timed(step));
    replay_ms.push_back(1e3 * timed(replay));
    ratio.push_back(eager_ms.back() / replay_ms.back());
  }
  reset_peak_memory();
  const int64_t live = memory_stats().live_bytes;
  step();
  std::printf(
      "%-9s plain %9.4f ms   captured %9.4f ms   plain / captured %.2f (%.2f to %.2f)   memory of a step "
      "%.1f MiB, captured %.1f MiB\n",
      name.c_str(), median(eager_ms), median(replay_ms), median(ratio), quantile(ratio, .1),
      quantile(ratio, .9), static_cast<double>(memory_stats().peak_bytes - live) / (1 << 20),
      static_cast<double>(replayed.memory_bytes()) / (1 << 20));
}

int run(int argc, char** argv) {
  std::vector<std::string> models = {"mlp", "mnist", "resnet20", "gpt"};
  int64_t rounds = 15;
  int threads = usable_cores();
  CLI::App app("Times captured training steps beside plain ones.");
  app.add_option("--models", models)->check(CLI::IsMember(models));
  app.add_option("--rounds", rounds)->check(CLI::Range(1, 10000))->capture_default_str();
  app.add_option("--threads", threads)->check(CLI::Range(1, 1024))->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  set_num_threads(threads);
  for (const std::string& name : models) compare(name, rounds);
  return 0;
}

}  // namespace
}  // namespace gradus::bench

int main(int argc, char** argv) { return gradus::bench::run(argc, argv); }
