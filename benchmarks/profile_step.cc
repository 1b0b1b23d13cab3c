// Profiles a training step of a model: prints the time per op, shape, module or range, and writes a trace. Or
// times the steps without profiling (--unprofiled, --each), also captured (--capture).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/gan_steps.h"
#include "benchmarks/statistics.h"
#include "gradus/gradus.h"
#include "gradus/models/gpt.h"
#include "gradus/models/inception.h"
#include "gradus/models/mnist_net.h"
#include "gradus/models/resnet.h"

namespace gradus::bench {
namespace {

// A training step of a model on one fixed batch.
struct Training {
  std::string batch;  // description of the batch
  std::function<void()> step;
};

struct Options {
  int64_t batch = 0;  // batch size; 0: the model's default
  bool bf16 = false;  // run the forward under autocast to bf16
  Device device = kCPU;
};
using Model = std::function<Training(const Options&)>;  // creates a model, its optimizer and its batch

Model classifier(std::function<std::shared_ptr<nn::Layer>()> make, int64_t batch, const Shape& sample,
                 int64_t classes) {
  return [=](const Options& o) {
    struct State {
      State(std::shared_ptr<nn::Layer> n, Device device)
          : net(std::move(n)),
            opt(net->to(device).parameters(), {.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-4}) {
        gm.attach(net->parameters());
      }
      std::shared_ptr<nn::Layer> net;
      GradManager gm;
      optim::SGD opt;
    };
    Shape shape = sample;
    shape.insert(0, o.batch > 0 ? o.batch : batch);
    const Tensor x = randn(shape, {.device = o.device}),
                 y = randint(0, classes, {shape[0]}, {DType::kI64, o.device});
    const auto state = std::make_shared<State>(make(), o.device);
    return Training{"input " + to_string(shape), [=, bf16 = o.bf16] {
                      auto recording = state->gm.record();
                      const Tensor loss = [&] {
                        auto range = profile_range("forward");
                        auto amp = autocast(DType::kBF16, {.enabled = bf16});
                        return nn::cross_entropy((*state->net)(x), y);
                      }();
                      state->gm.backward(loss);
                      state->opt.step().clear_grad();
                    }};
  };
}

// Features of the Inception network of FID, in evaluation without recording.
Training inception_features(const Options& o) {
  const Shape shape{o.batch > 0 ? o.batch : 16, 3, 299, 299};
  const auto net = std::make_shared<models::InceptionV3>(models::fid_inception_v3());
  net->to(o.device).eval();
  const Tensor x = rand(shape, {.device = o.device}) * 2 - 1;
  return {"input " + to_string(shape), [=, bf16 = o.bf16] {
            const auto off = no_record();
            auto amp = autocast(DType::kBF16, {.enabled = bf16});
            net->features(x);
          }};
}

// A small GPT on sequences of 256 characters.
Training gpt_step(const Options& o) {
  struct State {
    explicit State(Device device) : opt(net.to(device).parameters(), {.lr = 3e-4}) {
      gm.attach(net.parameters());
    }
    models::GPT net{{.vocabulary = 65, .context = 256, .layers = 6, .heads = 6, .width = 384}};
    GradManager gm;
    optim::AdamW opt;
  };
  const Shape shape{o.batch > 0 ? o.batch : 4, 256};
  const TensorOptions tokens{DType::kI64, o.device};
  const Tensor x = randint(0, 65, shape, tokens), y = randint(0, 65, {shape.product()}, tokens);
  const auto state = std::make_shared<State>(o.device);
  return {"tokens " + to_string(shape), [=, bf16 = o.bf16] {
            auto recording = state->gm.record();
            const Tensor loss = [&] {
              auto range = profile_range("forward");
              auto amp = autocast(DType::kBF16, {.enabled = bf16});
              return nn::cross_entropy(flatten(state->net(x), 0, 1), y);
            }();
            state->gm.backward(loss);
            state->opt.step().clear_grad();
          }};
}

// A GAN whose whole step runs under autocast if Options::bf16 is set.
template <class Step>
Model gan_step(int64_t batch, std::function<std::shared_ptr<Step>(int64_t, Device)> make) {
  return [=](const Options& o) {
    const int64_t images = o.batch > 0 ? o.batch : batch;
    const auto step = make(images, o.device);
    return Training{concat("batch ", images), [=, bf16 = o.bf16] {
                      auto amp = autocast(DType::kBF16, {.enabled = bf16});
                      step->run();
                    }};
  };
}

std::map<std::string, Model> models_by_name() {
  const auto resnet = [](models::ResNetOptions options, int64_t batch, int64_t size) {
    return classifier([options] { return std::make_shared<models::ResNet>(options); }, batch, {3, size, size},
                      options.classes);
  };
  const auto dcgan = [](DcganStepOptions o) {
    return gan_step<DcganStep>(o.batch, [o](int64_t batch, Device device) {
      DcganStepOptions options = o;
      options.batch = batch, options.device = device;
      return std::make_shared<DcganStep>(options);
    });
  };
  const auto wgan_gp = [](int64_t batch, Device device) {
    return std::make_shared<WganGpCriticStep>(64, 64, batch, device);
  };
  const auto pggan = [](int64_t batch, Device device) {
    return std::make_shared<PgganStep>(32, 16, batch, device);
  };
  return {
      {"mnist_cnn", classifier([] { return std::make_shared<models::MnistNet>(); }, 64, {1, 28, 28}, 10)},
      {"resnet18", resnet(models::resnet18(), 16, 224)},
      {"resnet50", resnet(models::resnet50(), 8, 224)},
      {"resnet20", resnet(models::cifar_resnet(20), 128, 32)},
      {"gpt", gpt_step},
      {"inception_features", inception_features},
      {"dcgan64", dcgan({})},
      {"dcgan32", dcgan({.size = 32, .channels = 1, .width = 32, .batch = 128})},
      {"wgan_gp64", gan_step<WganGpCriticStep>(64, wgan_gp)},
      {"pggan32", gan_step<PgganStep>(32, pggan)},
  };
}

int run(int argc, char** argv) {
  const std::map<std::string, Model> models = models_by_name();
  const std::map<std::string, Profiler::By> groupings{{"op", Profiler::kOp},
                                                      {"shape", Profiler::kOpAndShape},
                                                      {"module", Profiler::kModule},
                                                      {"range", Profiler::kRange}};
  std::string model = "resnet18", device = "cpu", trace;
  std::vector<std::string> by{"op", "range"};
  int64_t batch = 0, steps = 5, warmup = 3, limit = 30;
  int threads = usable_cores();
  bool bf16 = false, unprofiled = false, each = false, flush_odd = false, capture = false;
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
  app.add_flag("--bf16", bf16, "forward (of a GAN: the step) in mixed precision");
  app.add_flag("--tf32", Context::current().tf32, "on a GPU: f32 products and convolutions in TF32");
  app.add_option("--device", device, "cpu, or cuda where the program is built with --config=cuda")
      ->capture_default_str();
  app.add_flag("--unprofiled", unprofiled, "only the time of a step, without the recorder's own");
  app.add_flag("--capture", capture, "with --unprofiled: replay the step by CapturedStep")
      ->needs(app.get_option("--unprofiled"));
  app.add_flag("--each", each, "only the time of each step after the warm-up");
  app.add_flag("--flush-odd", flush_odd, "with --each: flush denormal numbers in all ops of each odd step");
  app.add_option("--trace", trace, "write a trace for ui.perfetto.dev to this file");
  CLI11_PARSE(app, argc, argv);

  set_num_threads(threads);
  manual_seed(1);
  const Training training = models.at(model)({.batch = batch, .bf16 = bf16, .device = device});
  if (each) {
    for (int64_t i = 0; i < warmup + steps; ++i) {
      if (flush_odd) set_flush_denormal(i % 2 != 0);
      const std::clock_t start = std::clock();
      const double seconds = seconds_of([&] { training.step(), synchronize(device); });
      const double processor = double(std::clock() - start) / CLOCKS_PER_SEC;
      if (i >= warmup)
        std::printf("step %lld: %.4f ms, of processors %.4f ms\n", static_cast<long long>(i), seconds * 1e3,
                    processor * 1e3);
    }
    return 0;
  }
  if (unprofiled) {
    CapturedStep replayed([&](const CapturedStep::Tensors&) -> CapturedStep::Tensors {
      training.step();
      return {};
    });
    const auto step = [&] { capture ? static_cast<void>(replayed({})) : training.step(); };
    // A captured step records after three plain ones.
    for (int64_t i = 0; i < (capture ? std::max<int64_t>(warmup, 5) : warmup); ++i) step();
    synchronize(device);
    const double seconds = seconds_of([&] {
      for (int64_t i = 0; i < steps; ++i) step();
      synchronize(device);
    });
    std::printf("%s, %s, %s, %d threads: %lld steps of %.4f ms\n", model.c_str(), training.batch.c_str(),
                device.c_str(), threads, static_cast<long long>(steps),
                seconds / static_cast<double>(steps) * 1e3);
    return 0;
  }
  Profiler profiler({.skip = warmup, .steps = steps});
  {
    auto scope = profiler.record();
    for (int64_t i = 0; i < warmup + steps; ++i, profiler.step()) training.step();
  }
  std::printf("%s, %s, %d threads\n", model.c_str(), training.batch.c_str(), threads);
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
