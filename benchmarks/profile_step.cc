// Says where the time of a model's training step goes.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <memory>

#include "gradus/gradus.h"
#include "gradus/models/mnist_net.h"
#include "gradus/models/resnet.h"

namespace gradus::bench {
namespace {

struct Model {
  std::function<std::unique_ptr<nn::Layer>()> make;
  int64_t batch;
  Shape sample;
  int64_t classes;
};

std::map<std::string, Model> models_by_name() {
  const auto resnet = [](models::ResNetOptions options, int64_t batch, int64_t size) {
    return Model{[options] { return std::make_unique<models::ResNet>(options); },
                 batch,
                 {3, size, size},
                 options.classes};
  };
  return {
      {"mnist_cnn", {[] { return std::make_unique<models::MnistNet>(); }, 64, {1, 28, 28}, 10}},
      {"resnet18", resnet(models::resnet18(), 16, 224)},
      {"resnet50", resnet(models::resnet50(), 8, 224)},
      {"resnet20", resnet(models::cifar_resnet(20), 128, 32)},
  };
}

int run(int argc, char** argv) {
  const std::map<std::string, Model> models = models_by_name();
  const std::map<std::string, Profiler::By> groupings{{"op", Profiler::kOp},
                                                      {"shape", Profiler::kOpAndShape},
                                                      {"module", Profiler::kModule},
                                                      {"range", Profiler::kRange}};
  std::string model = "resnet18", trace;
  std::vector<std::string> by{"op", "range"};
  int64_t batch = 0, steps = 5, warmup = 3, limit = 30;
  int threads = usable_cores();
  bool bf16 = false;
  CLI::App app("Says where the time of a training step goes.");
  app.add_option("--model", model, "what to train")->check(CLI::IsMember(&models))->capture_default_str();
  app.add_option("--batch", batch, "samples (0: the model's own)")->check(CLI::Range(0, 100000));
  app.add_option("--steps", steps, "recorded steps")->check(CLI::Range(1, 100000))->capture_default_str();
  app.add_option("--warmup", warmup, "steps before them")
      ->check(CLI::Range(0, 100000))
      ->capture_default_str();
  app.add_option("--by", by, "tables: op, shape, module, range")
      ->check(CLI::IsMember(&groupings))
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--limit", limit, "rows of a table")->check(CLI::Range(1, 100000))->capture_default_str();
  app.add_option("--threads", threads)->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_flag("--bf16", bf16, "forward in mixed precision");
  app.add_option("--trace", trace, "write a trace for ui.perfetto.dev to this file");
  CLI11_PARSE(app, argc, argv);

  set_num_threads(threads);
  manual_seed(1);
  const Model& chosen = models.at(model);
  Shape shape = chosen.sample;
  shape.insert(0, batch > 0 ? batch : chosen.batch);
  const Tensor x = randn(shape), y = randint(0, chosen.classes, {shape[0]});
  const std::unique_ptr<nn::Layer> net = chosen.make();
  GradManager gm;
  gm.attach(net->parameters());
  optim::SGD opt(net->parameters(), {.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-4});

  Profiler profiler({.skip = warmup, .steps = steps});
  {
    auto scope = profiler.record();
    for (int64_t i = 0; i < warmup + steps; ++i, profiler.step()) {
      auto recording = gm.record();
      const Tensor loss = [&] {
        auto range = profile_range("forward");
        auto amp = autocast(DType::kBF16, {.enabled = bf16});
        return nn::cross_entropy((*net)(x), y);
      }();
      gm.backward(loss);
      opt.step().clear_grad();
    }
  }
  std::printf("%s, input %s, %d threads\n", model.c_str(), to_string(shape).c_str(), threads);
  for (const std::string& grouping : by)
    std::cout << '\n' << profiler.table({.by = groupings.at(grouping), .limit = limit});
  if (!trace.empty()) profiler.write_trace(trace);
  return 0;
}

}  // namespace
}  // namespace gradus::bench

int main(int argc, char** argv) {
  try {
    return gradus::bench::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
