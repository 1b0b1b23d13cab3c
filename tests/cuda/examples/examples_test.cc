// Runs the example programs as processes on the emulated cuda:0: a few steps give the losses of --device cpu
// (1e-4, in bf16 2e-2), checkpoints load on both devices, and unsupported options fail at the start.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gradus/io/save_image.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tests/examples/program_run.h"

namespace gradus::examples {
namespace {

using Arguments = std::vector<std::string>;
using testing::HasSubstr;
using testing::Not;

struct Case {
  std::string name, program;
  Arguments args;
  std::vector<std::string> figures;  // fields of --summary's JSON to compare, beside the loss history
};

// Arguments of gpt for a network of two blocks, and more.
Arguments small_gpt(std::initializer_list<std::string> more) {
  return with({"--data",
               "text.txt",
               "--layers",
               "2",
               "--heads",
               "2",
               "--width",
               "8",
               "--context",
               "8",
               "--batch",
               "4",
               "--lr",
               "1e-2",
               "--warmup",
               "1",
               "--dropout",
               "0.1",
               "--validation-interval",
               "2"},
              more);
}

const std::vector<Case>& all_cases() {
  static const std::vector<Case> cases = {
      {"mnist",
       "mnist",
       {"--epochs", "1", "--train-samples", "8", "--batch-size", "4", "--test-samples", "2", "--lr", "0.1"},
       {"test_loss"}},
      {"cifar10",
       "cifar10",
       {"--epochs", "1", "--train-samples", "8", "-b", "4", "--test-samples", "2", "--lr", "0.01"},
       {"test_loss"}},
      {"imagenet",
       "imagenet",
       {"--dummy", "-a", "resnet20", "--image-size", "32", "--epochs", "1", "--train-samples", "8", "-b", "4",
        "--val-samples", "2", "--lr", "0.01", "--workers", "2"},
       {"test_loss"}},
      {"dcgan",
       "gan",
       {"--model", "dcgan", "--size", "16", "--width", "4", "--batch", "8", "--iterations", "3"},
       {"loss_d", "loss_g", "diversity"}},
      {"lsgan",
       "gan",
       {"--model", "lsgan", "--size", "32", "--width", "2", "--batch", "4", "--iterations", "2"},
       {"loss_d", "loss_g", "diversity"}},
      {"wgan_gp",
       "gan",
       {"--model", "wgan_gp", "--size", "28", "--width", "2", "--batch", "4", "--iterations", "2",
        "--disc-steps", "2"},
       {"loss_d", "loss_g", "penalty", "diversity"}},
      {"wgan_gp_with_blocks",
       "gan",
       {"--model", "wgan_gp", "--size", "16", "--width", "2", "--batch", "4", "--iterations", "2",
        "--disc-steps", "2"},
       {"loss_d", "loss_g", "penalty", "diversity"}},
      {"conditional_dcgan",
       "gan",
       {"--model", "dcgan", "--conditional", "--size", "16", "--width", "4", "--batch", "8", "--iterations",
        "3"},
       {"loss_d", "loss_g", "diversity"}},
      {"pggan_that_grows",
       "gan",
       {"--model", "pggan", "--size", "8", "--width", "2", "--batch", "4", "--images", "16",
        "--images-per-scale", "4:8,8:8", "--fade", "4"},
       {"loss_d", "loss_g", "penalty", "diversity"}},
      {"gpt", "gpt", small_gpt({"--iterations", "3"}), {"loss", "validation_loss"}}};
  return cases;
}

// Sends `signal`, unless it is 0, once the output has `text`. Does not time convolutions, which the emulator computes
// slowly.
Result run_program(const Scratch& s, const std::string& program, Arguments args, int signal = 0,
                   const std::string& text = "") {
  if (program == "gan") {
    args.insert(args.end(), {"--data", "images"});
    manual_seed(1);
    for (int i = 0; i < 16; ++i) {
      const auto folder = s.dir() / "images" / (i % 2 ? "a" : "b");
      std::filesystem::create_directories(folder);
      io::save_image(folder / (std::to_string(i) + ".png"), rand({3, 9, 9}));
    }
  }
  if (program == "gpt") {
    std::ofstream file(s.dir() / "text.txt");
    for (int i = 0; i < 10; ++i) file << "to be, or not to be: that is the question\n";
  }
  args.push_back("--cudnn-benchmark=false");
  return run("tests/cuda/examples/" + program, s.dir(), args, signal, text);
}

// Trains with `more` arguments; returns the JSON of --summary.
nlohmann::json train(const Case& c, const Arguments& more) {
  Scratch s;
  Arguments args = c.args;
  args.insert(args.end(), {"--threads", "1", "--log-interval", "1", "--summary", "s.json"});
  args.insert(args.end(), more.begin(), more.end());
  const Result r = run_program(s, c.program, args);
  EXPECT_EQ(r.status, 0) << r.output;
  return r.status == 0 ? summary(s.dir() / "s.json") : nlohmann::json();
}

// Tolerance relative to max(1, |CPU's value|).
void expect_alike(const Case& c, const Arguments& more, double tolerance) {
  Arguments on_cuda = more;
  on_cuda.insert(on_cuda.end(), {"--device", "cuda"});
  const nlohmann::json expected = train(c, more), given = train(c, on_cuda);
  if (expected.is_null() || given.is_null()) return;
  EXPECT_EQ(expected.at("device"), "cpu");
  EXPECT_EQ(given.at("device"), "cuda:0");
  const auto compare = [&](const std::string& name, const nlohmann::json& a, const nlohmann::json& b) {
    const double x = a.at(name).get<double>(), y = b.at(name).get<double>();
    EXPECT_NEAR(y, x, tolerance * std::max(1.0, std::abs(x))) << name;
  };
  for (const std::string& figure : c.figures) compare(figure, expected, given);
  for (size_t i = 0; i < expected.at("history").size(); ++i)
    compare("train_loss", expected.at("history")[i], given.at("history")[i]);
}

class OnCuda : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Programs, OnCuda, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(OnCuda, TrainsAsOnTheCpu) { expect_alike(GetParam(), {}, 1e-4); }
TEST_P(OnCuda, TrainsAsOnTheCpuInMixedPrecision) {
  if (GetParam().name == "cifar10") GTEST_SKIP() << "imagenet trains the same network";
  expect_alike(GetParam(), {"--amp", "bf16"}, 2e-2);
}

// Each of two devices runs its part of a batch. cifar10 trains the network of imagenet.
TEST(SeveralGpus, TrainAsSeveralCpuDevices) {
  for (const Case& c : all_cases()) {
    if (c.program != "mnist" && c.program != "imagenet") continue;
    const nlohmann::json expected = train(c, {"--devices", "cpu:1,cpu:2"}),
                         given = train(c, {"--devices", "cuda:0,cuda:1"});
    if (expected.is_null() || given.is_null()) continue;
    EXPECT_EQ(given.at("device"), "cuda:0,cuda:1");
    const auto compare = [&](const nlohmann::json& a, const nlohmann::json& b, const char* name) {
      const double x = a.at(name).get<double>(), y = b.at(name).get<double>();
      EXPECT_NEAR(y, x, 1e-4 * std::max(1.0, std::abs(x))) << c.name << ' ' << name;
    };
    compare(expected, given, "test_loss");
    for (size_t i = 0; i < expected.at("history").size(); ++i)
      compare(expected.at("history")[i], given.at("history")[i], "train_loss");
  }
}

// The ranks are on cuda:0 and cuda:1. A batch of mnist is that of one rank, so an epoch has one step.
TEST(RanksOnCuda, TrainAsRanksOnTheCpu) {
  for (const Case& c : all_cases()) {
    if (c.program == "gan" && c.name != "dcgan") continue;
    Arguments ranks = {"--nproc", "2"};
    if (c.program == "mnist") ranks.insert(ranks.end(), {"--iterations", "2"});
    SCOPED_TRACE(c.name);
    expect_alike(c, ranks, 1e-4);
  }
}

// The figures of each epoch, without its time.
nlohmann::json history(const nlohmann::json& summary) {
  nlohmann::json epochs = summary.at("history");
  for (nlohmann::json& epoch : epochs) epoch.erase("seconds");
  return epochs;
}

// The last steps are replays: of wgan_gp one with a step of the generator, and one without. A grid of samples of gan would
// end the recording.
void expect_captured_as_without(const Arguments& ranks) {
  for (Case c : all_cases()) {
    if (!ranks.empty() && (c.program == "gpt" || c.name == "wgan_gp")) continue;
    if (c.program == "gan" && c.name != "dcgan" && c.name != "wgan_gp") continue;
    const auto set = [&](const char* option, const char* value) {
      if (const auto at = std::ranges::find(c.args, option); at != c.args.end()) *std::next(at) = value;
    };
    const bool alternates = c.name == "wgan_gp";
    set("--epochs", "3"), set("--iterations", alternates ? "10" : "6");
    set("--validation-interval", "100"), set("--disc-steps", alternates ? "2" : "1");
    if (c.program == "gan") c.args.insert(c.args.end(), {"--sample-every", "1000"});
    const bool is_tested_on_cpu =
        c.program == "mnist" || c.program == "gpt" || c.program == "gan";  // tests/examples
    for (const std::string device : {"cpu", "cuda"}) {
      if ((is_tested_on_cpu || !ranks.empty()) && device == "cpu") continue;
      Arguments args = {"--device", device, "--deterministic"};
      args.insert(args.end(), ranks.begin(), ranks.end());
      const nlohmann::json expected = train(c, args);
      args.push_back("--capture");
      const nlohmann::json given = train(c, args);
      if (expected.is_null() || given.is_null()) continue;
      EXPECT_EQ(history(given), history(expected)) << c.name << " on " << device;
      for (const std::string& figure : c.figures) EXPECT_EQ(given.at(figure), expected.at(figure)) << figure;
    }
  }
}

TEST(CapturedOnCuda, TrainsAsWithout) { expect_captured_as_without({}); }
TEST(CapturedOnCuda, RanksTrainAsWithout) { expect_captured_as_without({"--nproc", "2"}); }

// Engines of convolutions are timed by the first run, and cached in $XDG_CACHE_HOME/gradus.
TEST(PlansOnCuda, AreMeasuredAndCached) {
  Scratch s;
  const auto train = [&](Arguments more) {
    Arguments args = {"--train-samples", "1", "--test-samples", "1", "--epochs", "1", "--threads", "1"};
    args.insert(args.end(), more.begin(), more.end());
    const Result r = run("tests/cuda/examples/mnist", s.dir(), args);
    EXPECT_EQ(r.status, 0) << r.output;
    return r.output;
  };
  const std::filesystem::path cache = s.dir() / "gradus";
  const std::filesystem::path file = cache / "cudnn_plans" / "Gradus_emulated_device_cudnn91900.txt";
  train({"--device", "cpu"});
  train({"--device", "cuda", "--cudnn-benchmark=false"});
  EXPECT_FALSE(std::filesystem::exists(cache));
  EXPECT_THAT(train({"--device", "cuda"}), Not(HasSubstr("warning")));
  const std::string choices = bytes_of(file);
  EXPECT_GE(count_of("\nforward ", choices), 2);
  EXPECT_GE(count_of("\nweight_grad ", choices), 2);
  EXPECT_EQ(count_of(" deterministic 1 ", choices), 0);
  // The next run uses the choices, also those that it would not make, and adds its own.
  std::string other = choices;
  for (size_t at = 0; (at = other.find("engine ", at)) != std::string::npos; ++at)
    other.replace(at, other.find('\n', at) - at, "engine 0 knobs 0");
  std::ofstream(file) << other;
  train({"--device", "cuda"});
  EXPECT_EQ(bytes_of(file), other);
  train({"--device", "cuda", "--deterministic", "--tf32"});
  EXPECT_EQ(count_of(" deterministic 0 ", bytes_of(file)), count_of("engine 0 knobs 0\n", other));
  EXPECT_EQ(count_of(" deterministic 1 ", bytes_of(file)), count_of("engine ", choices));
  EXPECT_EQ(count_of(" tf32 1 ", bytes_of(file)), count_of("engine ", choices));
  // A file that is none of plans is replaced.
  std::ofstream(file) << "{";
  EXPECT_EQ(count_of("warning: [load_plans]", train({"--device", "cuda"})), 1);
  EXPECT_EQ(bytes_of(file).find("gradus_conv_plans "), 0u);
  // A folder that cannot be made.
  std::filesystem::remove_all(cache);
  std::ofstream(cache) << "a file";
  EXPECT_EQ(count_of("warning: ", train({"--device", "cuda"})), 1);
}

TEST(CheckpointsOnCuda, FitBothDevices) {
  Scratch s;
  const auto train = [&](const std::string& device, const std::string& epochs) {
    Arguments args = {"--train-samples", "4", "--batch-size", "4", "--test-samples", "2", "--threads", "1"};
    args.insert(args.end(),
                {"--checkpoint-dir", "c", "--summary", "s.json", "--device", device, "--epochs", epochs});
    if (epochs != "1") args.insert(args.end(), {"--resume", "c/mnist.ckpt"});
    const Result r = run_program(s, "mnist", args);
    EXPECT_EQ(r.status, 0) << r.output;
    EXPECT_EQ(summary(s.dir() / "s.json").at("epochs"), std::stoi(epochs));
    return r.output;
  };
  train("cuda", "1");
  EXPECT_THAT(train("cpu", "2"), HasSubstr("Resuming from c/mnist.ckpt: epoch 2"));
  EXPECT_THAT(train("cuda", "3"), HasSubstr("Resuming from c/mnist.ckpt: epoch 3"));
}

// A training that was interrupted on cuda:0 resumes on either device, and ends as one on the CPU.
TEST(GptOnCuda, ResumesOnBothDevices) {
  const auto train = [](const Scratch& s, const std::string& device, int signal) {
    const Result r =
        run_program(s, "gpt",
                    small_gpt({"--iterations", "8", "--threads", "1", "--log-interval", "1",
                               "--checkpoint-dir", "c", "--summary", "s.json", "--device", device}),
                    signal, "step 1 ");
    EXPECT_EQ(r.status, signal == 0 ? 0 : 130) << r.output;
    return r.output;
  };
  Scratch straight;
  train(straight, "cpu", 0);
  const double expected = summary(straight.dir() / "s.json").at("validation_loss");
  for (const std::string device : {"cpu", "cuda"}) {
    Scratch s;
    train(s, "cuda", SIGINT);
    EXPECT_THAT(train(s, device, 0), HasSubstr("Resuming from c/gpt.ckpt: epoch 1, ")) << device;
    EXPECT_NEAR(summary(s.dir() / "s.json").at("validation_loss"), expected, 1e-4 * expected) << device;
  }
}

// Both devices draw the same characters, at the end of a training and from a checkpoint.
TEST(GptOnCuda, WritesTheTextOfTheCpu) {
  constexpr size_t kLength = 12;
  std::vector<std::string> texts;
  for (const std::string device : {"cpu", "cuda"}) {
    Scratch s;
    const Result trained =
        run_program(s, "gpt",
                    small_gpt({"--iterations", "2", "--threads", "1", "--checkpoint-dir", "c", "--sample",
                               std::to_string(kLength), "--device", device}));
    ASSERT_EQ(trained.status, 0) << trained.output;
    const Result sampled = run("tests/cuda/examples/gpt", s.dir(),
                               {"sample", "--checkpoint", "c/gpt.ckpt", "--prompt", "to be", "--length",
                                std::to_string(kLength), "--device", device});
    ASSERT_EQ(sampled.status, 0) << sampled.output;
    // The training's text begins with the first of all characters, and ends the output, with a newline.
    texts.push_back(trained.output.substr(trained.output.size() - (kLength + 2)) + sampled.output);
  }
  EXPECT_THAT(texts[0], HasSubstr("to be"));
  EXPECT_EQ(texts[0], texts[1]);
}

// The device checks gradients for NaN and infinity.
TEST(GradientsOnCuda, ThatAreNotFiniteEndTheTraining) {
  Scratch s;
  const Result r = run_program(s, "gan",
                               {"--size", "8", "--width", "2", "--batch", "4", "--iterations", "2", "--lr",
                                "1e30", "--device", "cuda"});
  EXPECT_EQ(r.status, 1) << r.output;
  EXPECT_THAT(r.output, HasSubstr("step 1, gen: rank 0 has NaN or infinity in the gradient of gen.main."));
}

TEST(MistakesOnCuda, AreToldAtTheStart) {
  Scratch s;
  const auto expect_error = [&](const std::string& program, Arguments args, const std::string& text,
                                const std::string& device = "cuda") {
    args.insert(args.end(), {device.find(',') < device.size() ? "--devices" : "--device", device});
    const Result r = run_program(s, program, args);
    EXPECT_EQ(r.status, 1) << r.output;
    EXPECT_THAT(r.output, HasSubstr(text));
    EXPECT_THAT(r.output, Not(HasSubstr("loss"))) << "nothing was computed before";
  };
  expect_error("gpt", {"--pipeline", "2"}, "--pipeline trains on CPUs");
  for (const std::string program : {"cifar10", "imagenet"}) {
    expect_error(program, {"--micro-batches", "2"}, "--pipeline trains on CPUs");
    expect_error(program, {"--micro-batches", "2"}, "does not go with --devices cuda:0,cuda:1",
                 "cuda:0,cuda:1");
    expect_error(program, {"--pipeline", "2"},
                 "--devices goes with one rank alone, without --nproc and "
                 "--pipeline, got 2",
                 "cuda:0,cuda:1");
  }
  expect_error("mnist", {"--train-samples", "4"}, "cuda:5 does not exist", "cuda:5");
  expect_error("mnist", {"--train-samples", "4"}, "cuda:5 does not exist", "cuda:0,cuda:5");
}

}  // namespace
}  // namespace gradus::examples
