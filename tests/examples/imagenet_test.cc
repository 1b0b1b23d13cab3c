// examples/imagenet as a process, on small pictures: what it learns, prints and saves, on one rank and on
// several, and that a killed and resumed run ends with the same bits. Exit codes: 1 error, 2 bad option.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gradus/io/checkpoint.h"
#include "gradus/io/safetensors.h"
#include "gradus/io/save_image.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/random.h"
#include "gradus/tests/examples/program_run.h"

namespace gradus::examples {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kTrain = 40, kVal = 7;  // of each class
const std::vector<std::string> kClasses = {"blue", "green", "red"};

// Returns a noisy picture. The channel of its class is brighter than the others.
Tensor picture(size_t label, uint64_t seed, uint64_t index) {
  const int64_t height = 40 + int64_t(index % 3) * 5, width = 48;
  Tensor x = zeros({3, height, width}, {.dtype = DType::kU8});
  uint8_t* pixels = x.mutable_data<uint8_t>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const bool own = size_t(i / (height * width)) == 2 - label;
    pixels[i] = uint8_t(philox(seed, index * 3 + label, uint64_t(i))[0] % 130 + (own ? 90 : 30));
  }
  return x;
}

void write_classes(const fs::path& dir, int64_t count, uint64_t seed) {
  for (size_t label = 0; label < kClasses.size(); ++label) {
    fs::create_directories(dir / kClasses[label]);
    for (int64_t i = 0; i < count; ++i)
      io::save_image(dir / kClasses[label] / (std::to_string(i) + ".png"), picture(label, seed, uint64_t(i)));
  }
}

// A folder with the pictures in "d".
struct Place : Scratch {
  Place() {
    write_classes(dir() / "d/train", kTrain, 1);
    write_classes(dir() / "d/val", kVal, 2);
  }
};

Result run(const fs::path& dir, const std::vector<std::string>& args, int signal = 0,
           const std::string& text = "") {
  return examples::run("imagenet", dir, args, signal, text);
}

const std::vector<std::string> kSmall = {"d",  "-a",        "resnet20", "--image-size", "32", "-b",
                                         "12", "-j",        "2",        "--threads",    "1",  "-p",
                                         "1",  "--summary", "s.json"};

TEST(ImagenetProgram, LearnsKeepsTheBestAndEvaluatesIt) {
  Place s;
  const Result r = run(s.dir(), with(kSmall, {"--epochs", "3", "--lr", "0.02", "--checkpoint-dir", "c"}));
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_THAT(r.output, HasSubstr("120 training and 21 validation images of 3 classes"));
  EXPECT_THAT(r.output, HasSubstr("Epoch: [0][ 1/10]\tTime "));
  EXPECT_THAT(r.output, HasSubstr("Epoch: [2][10/10]\tTime "));
  EXPECT_THAT(r.output, HasSubstr("Test: [1/2]\tLoss "));
  EXPECT_EQ(count_of(" * Acc@1 ", r.output), 3);
  const nlohmann::json j = summary(s.dir() / "s.json");
  ASSERT_EQ(j.at("history").size(), 3u);
  EXPECT_GE(j.at("best_test_accuracy").get<double>(), 0.9) << r.output;
  EXPECT_EQ(j["history"][2].at("test_accuracy_in_5"), 1.0);  // of three classes
  EXPECT_LT(j["history"][2].at("train_loss").get<double>(), j["history"][0].at("train_loss").get<double>());
  EXPECT_LT(j["history"][2].at("train_loss").get<double>(), 0.8);
  EXPECT_EQ(j.at("test_samples"), 21);

  // Both ways to load the best weights reproduce the best accuracy.
  const double best = j.at("best_test_accuracy");
  for (const char* option : {"--resume", "--pretrained"}) {
    const Result e = run(s.dir(), with(kSmall, {"--evaluate", option, "c/imagenet.best.ckpt"}));
    ASSERT_EQ(e.status, 0) << e.output;
    EXPECT_THAT(e.output, Not(HasSubstr("Epoch: [")));
    EXPECT_EQ(summary(s.dir() / "s.json").at("test_accuracy"), best) << option;
  }
}

TEST(ImagenetProgram, LearnsInMixedPrecisionAndWritesEvents) {
  Place s;
  const Result r =
      run(s.dir(), with(kSmall, {"--epochs", "8", "--lr", "0.01", "--amp", "bf16", "--tensorboard", "t"}));
  ASSERT_EQ(r.status, 0) << r.output;
  const nlohmann::json j = summary(s.dir() / "s.json");
  EXPECT_GE(j.at("best_test_accuracy").get<double>(), 0.9) << r.output;
  EXPECT_LT(j["history"][7].at("train_loss").get<double>(), 0.8);
  std::string events;
  for (const auto& file : fs::directory_iterator(s.dir() / "t")) events += bytes_of(file.path());
  for (const char* tag : {"train/images", "train/loss", "train/accuracy", "test/loss", "learning_rate"})
    EXPECT_THAT(events, HasSubstr(tag));
}

TEST(ImagenetProgram, WithoutTrainAndValTheFolderIsBoth) {
  Scratch s;
  write_classes(s.dir() / "d", 2, 1);
  const Result r = run(s.dir(), with(kSmall, {"--epochs", "1"}));
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_THAT(r.output, HasSubstr("There is no train and no val in d"));
  EXPECT_THAT(r.output, HasSubstr("6 training and 6 validation images of 3 classes"));
}

TEST(ImagenetProgram, ImagesThatCannotBeReadAreErrorsOrAreSkippedAndCounted) {
  Place s;
  std::ofstream(s.dir() / "d/train/green/7.png") << "no picture";
  std::ofstream(s.dir() / "d/val/red/3.png") << "nor this";
  const Result stopped = run(s.dir(), with(kSmall, {"--epochs", "1"}));
  EXPECT_EQ(stopped.status, 1);
  EXPECT_THAT(stopped.output, HasSubstr("d/train/green/7.png"));
  for (const auto& [ranks, pipeline] : {std::pair("1", "1"), {"2", "1"}, {"2", "2"}}) {
    const Result r =
        run(s.dir(),
            with(kSmall, {"--epochs", "1", "--on-error", "skip", "--nproc", ranks, "--pipeline", pipeline}));
    ASSERT_EQ(r.status, 0) << r.output;
    EXPECT_THAT(r.output, HasSubstr("1 training images could not be read"));
    EXPECT_THAT(r.output, HasSubstr("1 validation images could not be read"));
    EXPECT_EQ(summary(s.dir() / "s.json").at("test_samples"), 20);
    EXPECT_EQ(summary(s.dir() / "s.json").at("skipped"), 2);
  }
}

TEST(ImagenetProgram, TakesOverWeightsForOtherClasses) {
  Place s;
  ASSERT_EQ(run(s.dir(), with(kSmall, {"--epochs", "1", "--checkpoint-dir", "c"})).status, 0);
  write_classes(s.dir() / "e/train", 4, 1);
  fs::create_directories(s.dir() / "e/train/white");
  io::save_image(s.dir() / "e/train/white/1.png", full({3, 40, 40}, 255, {.dtype = DType::kU8}));
  fs::copy(s.dir() / "e/train", s.dir() / "e/val", fs::copy_options::recursive);
  std::vector<std::string> args = with(kSmall, {"--epochs", "1"});
  args[0] = "e";
  io::save_safetensors(s.dir() / "w.safetensors",
                       io::load_checkpoint(s.dir() / "c/imagenet.ckpt").checkpoint.tensors("model"));
  std::set<double> losses;
  const auto run_with = [&](const std::vector<std::string>& division,
                            std::initializer_list<std::string> more) {
    std::vector<std::string> all = args;
    all.insert(all.end(), division.begin(), division.end());
    return run(s.dir(), with(all, more));
  };
  for (const std::vector<std::string>& division :
       {std::vector<std::string>{}, {"--pipeline", "2", "--micro-batches", "1"}}) {
    for (const char* file : {"c/imagenet.ckpt", "w.safetensors"}) {
      const Result r = run_with(division, {"--pretrained", file, "--dry-run"});
      EXPECT_EQ(r.status, 0) << r.output;
      EXPECT_THAT(r.output, HasSubstr("fc.weight begins anew"));
      losses.insert(summary(s.dir() / "s.json").at("history")[0].at("train_loss").get<double>());
    }
    // A training cannot be resumed with other classes.
    const Result resumed = run_with(division, {"--resume", "c/imagenet.ckpt"});
    EXPECT_EQ(resumed.status, 1);
    EXPECT_THAT(resumed.output, HasSubstr("number of classes 3, not with 4"));
    const Result none = run_with(division, {"--pretrained", "none.safetensors"});
    EXPECT_EQ(none.status, 1);
    EXPECT_THAT(none.output, HasSubstr("none.safetensors"));
  }
  EXPECT_EQ(losses.size(), 1u) << testing::PrintToString(losses);
}

TEST(ImagenetInAPipeline, LearnsKeepsTheBestAndEvaluatesIt) {
  Place s;
  const std::vector<std::string> args =
      with(kSmall, {"--pipeline", "2", "--nproc", "4", "--micro-batches", "1", "--amp", "bf16"});
  const Result r = run(s.dir(), with(args, {"--epochs", "4", "--lr", "0.05", "--checkpoint-dir", "c"}));
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_THAT(r.output, HasSubstr("stage 1 on rank 1: "));
  EXPECT_THAT(r.output, HasSubstr("Epoch: [3][10/10]\tTime "));
  EXPECT_THAT(r.output, HasSubstr("Test: [1/2]\tLoss "));
  const nlohmann::json j = summary(s.dir() / "s.json");
  EXPECT_GE(j.at("best_test_accuracy").get<double>(), 0.9) << r.output;
  EXPECT_EQ(j["history"][3].at("test_accuracy_in_5"), 1.0);  // of three classes
  EXPECT_EQ(j.at("test_samples"), 21);

  // With or without a pipeline, the best weights reproduce the best accuracy.
  for (const char* option : {"--resume", "--pretrained"})
    for (const bool in_pipeline : {true, false}) {
      const Result e = run(s.dir(), with(in_pipeline ? args : with(kSmall, {"--amp", "bf16"}),
                                         {"--evaluate", option, "c/imagenet.best.ckpt"}));
      ASSERT_EQ(e.status, 0) << e.output;
      EXPECT_EQ(summary(s.dir() / "s.json").at("test_accuracy"), j.at("best_test_accuracy")) << option;
      EXPECT_EQ(summary(s.dir() / "s.json").at("test_samples"), 21);
    }
}

TEST(ImagenetProgram, DummyImagesTakeAStep) {
  Scratch s;
  const Result r = run(s.dir(), {"--dummy", "--dry-run", "--image-size", "64", "-b", "4", "-j", "1",
                                 "--threads", "1", "--start-epoch", "31"});
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_THAT(r.output, HasSubstr("resnet18: 11689512 parameters"));
  EXPECT_THAT(r.output, HasSubstr("Epoch: [31][     1/320292]"));
}

TEST(ImagenetProgram, MistakesGiveAStatus) {
  Place s;
  EXPECT_EQ(run(s.dir(), with(kSmall, {"-a", "vgg16"})).status, 2);
  EXPECT_EQ(run(s.dir(), with(kSmall, {"--on-error", "cry"})).status, 2);
  const Result data = run(s.dir(), {"nowhere"});
  EXPECT_EQ(data.status, 1);
  EXPECT_THAT(data.output, HasSubstr("nowhere"));
  const Result weights = run(s.dir(), with(kSmall, {"--pretrained", "none.safetensors"}));
  EXPECT_EQ(weights.status, 1);
  EXPECT_THAT(weights.output, HasSubstr("none.safetensors"));
  fs::remove_all(s.dir() / "d/val/red");
  const Result classes = run(s.dir(), kSmall);
  EXPECT_EQ(classes.status, 1);
  EXPECT_THAT(classes.output, HasSubstr("different classes: 3 and 2"));
}

// ---- going on after a kill ----

const std::vector<std::string> kResumed =
    with(kSmall, {"--epochs", "2", "--lr", "0.02", "--sample-log", "log"});
const std::vector<std::string> kSaving =
    with(kResumed, {"--checkpoint-dir", "c", "--checkpoint-interval", "3"});

// Expects the weights, optimizer state and samples of the uninterrupted run `straight`.
void expect_same(const fs::path& resumed, const fs::path& straight) {
  EXPECT_EQ(check_each_once(resumed / "log", 3 * kTrain, 2), "");
  EXPECT_EQ(steps_in(resumed / "log"), steps_in(straight / "log"));
  for (const fs::path& dir : {resumed, straight}) {
    const io::Checkpoint c = io::load_checkpoint(dir / "c/imagenet.ckpt").checkpoint;
    io::save_safetensors(dir / "model", c.tensors("model"));
    io::save_safetensors(dir / "optimizer", c.tensors("optimizer"));
  }
  for (const char* part : {"model", "optimizer"}) {
    EXPECT_GT(fs::file_size(resumed / part), 1'000'000u);
    EXPECT_TRUE(bytes_of(resumed / part) == bytes_of(straight / part)) << part << " differs";
  }
}

TEST(ImagenetProgram, ContinuesBitIdenticallyAfterBeingKilled) {
  Place straight, s;
  ASSERT_EQ(run(straight.dir(), with(kSaving, {"--amp", "bf16"})).status, 0);
  EXPECT_EQ(run(s.dir(), with(kSaving, {"--amp", "bf16"}), SIGKILL, "Epoch: [1][ 5/10]").status,
            128 + SIGKILL);
  const Result more = run(s.dir(), with(kSaving, {"--amp", "bf16", "--resume", "c/imagenet.ckpt"}));
  ASSERT_EQ(more.status, 0) << more.output;
  EXPECT_THAT(more.output, HasSubstr("Resuming from c/imagenet.ckpt: epoch 2, 36 images done"));
  expect_same(s.dir(), straight.dir());
}

TEST(ImagenetInAPipeline, ContinuesBitIdenticallyAfterBeingKilled) {
  Place straight, s;
  const std::vector<std::string> args = with(kSaving, {"--pipeline", "2", "--schedule", "zb-h1"});
  const Result whole = run(straight.dir(), args);
  ASSERT_EQ(whole.status, 0) << whole.output;
  const auto killed = start_ranks("imagenet", s.dir(), {args, args});
  ASSERT_TRUE(killed[0]->wait_for("Epoch: [1][ 5/10]"));
  for (const auto& rank : killed) rank->kill(SIGKILL);
  for (const auto& rank : killed) EXPECT_EQ(rank->end().status, 128 + SIGKILL);
  const Result more = run(s.dir(), with(args, {"--resume", "c/imagenet.ckpt"}));
  ASSERT_EQ(more.status, 0) << more.output;
  expect_same(s.dir(), straight.dir());
}

TEST(ImagenetOnSeveralRanks, TwoThatAreKilledContinueOnTwoOrOnOne) {
  Place straight;
  ASSERT_EQ(run(straight.dir(), with(kSaving, {"--nproc", "2"})).status, 0);
  for (const char* ranks : {"2", "1"}) {
    Place s;
    const auto killed = start_ranks("imagenet", s.dir(), {kSaving, kSaving});
    ASSERT_TRUE(killed[0]->wait_for("Epoch: [1][ 5/10]"));
    for (const auto& rank : killed) rank->kill(SIGKILL);
    for (const auto& rank : killed) EXPECT_EQ(rank->end().status, 128 + SIGKILL);
    const Result more = run(s.dir(), with(kSaving, {"--nproc", ranks, "--resume", "c/imagenet.ckpt"}));
    ASSERT_EQ(more.status, 0) << more.output;
    if (std::string(ranks) == "2") expect_same(s.dir(), straight.dir());
    // -b is the batch of all ranks together, so one rank takes the same steps with the same samples.
    EXPECT_EQ(check_each_once(s.dir() / "log", 3 * kTrain, 2), "");
    EXPECT_EQ(steps_in(s.dir() / "log"), steps_in(straight.dir() / "log"));
    EXPECT_EQ(summary(s.dir() / "s.json").at("test_samples"), 3 * kVal);
  }
}

}  // namespace
}  // namespace gradus::examples
