// examples/cifar10 as a process: what it learns, in f32 and in mixed precision, on one rank and on several,
// and that a run that is killed and resumed ends with the same bits. Exit codes: 1 error, 2 bad option.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "gradus/io/checkpoint.h"
#include "gradus/io/safetensors.h"
#include "gradus/models/resnet.h"
#include "gradus/tensor/runtime/random.h"
#include "gradus/tests/examples/program_run.h"

namespace gradus::examples {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kTrain = 320, kTest = 101;

// Writes noisy images in CIFAR-10's format. Each class has its own color.
void write_images(const fs::path& file, int64_t count, uint64_t seed) {
  std::ofstream out(file, std::ios::binary);
  for (int64_t i = 0; i < count; ++i) {
    const int label = int(i % 10);
    std::string record(1, char(label));
    for (int c = 0; c < 3; ++c)
      for (int pixel = 0; pixel < 1024; ++pixel) {
        const int noise = int(philox(seed, uint64_t(i), uint64_t(c * 1024 + pixel))[0] % 60);
        record += char(30 + (label + 1) * (c + 2) % 11 * 10 + noise);
      }
    out << record;
  }
}

// A folder with the data set in "d".
struct Place : Scratch {
  Place() {
    fs::create_directory(dir() / "d");
    write_images(dir() / "d/data_batch_1.bin", kTrain, 1);
    write_images(dir() / "d/test_batch.bin", kTest, 2);
  }
};

Result run(const fs::path& dir, const std::vector<std::string>& args, int signal = 0,
           const std::string& text = "") {
  return examples::run("cifar10", dir, args, signal, text);
}

const std::vector<std::string> kShort = {
    "--data",    "d", "--epochs",       "2", "-b",           "40",        "--threads", "1",
    "--workers", "2", "--log-interval", "1", "--save-model", "--summary", "s.json",    "--sample-log",
    "log"};
const std::vector<std::string> kLearns = {"--data", "d",   "--epochs",  "10", "-b",        "32",
                                          "--lr",   "0.1", "--threads", "1",  "--summary", "s.json"};

TEST(Cifar10Program, LearnsToTellColorsApart) {
  Place s;
  const Result r = run(s.dir(), with(kLearns, {"--save-model", "--checkpoint-dir", "c"}));
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_THAT(r.output, HasSubstr("320 training and 101 test images of CIFAR10; cpu, 1 threads; seed 1"));
  EXPECT_THAT(r.output, HasSubstr("resnet20: 269722 parameters"));
  EXPECT_THAT(r.output, HasSubstr("/101 ("));
  const nlohmann::json j = summary(s.dir() / "s.json");
  EXPECT_GE(j.at("test_accuracy").get<double>(), 0.9) << r.output;
  EXPECT_EQ(j.at("test_samples"), kTest);
  EXPECT_EQ(j.at("options").at("lr"), 0.1);
  EXPECT_EQ(j.at("options").at("momentum"), 0.9);
  ASSERT_EQ(j.at("history").size(), 10u);
  EXPECT_LT(j["history"][9].at("train_loss").get<double>(),
            0.6 * j["history"][0].at("train_loss").get<double>());
  EXPECT_LT(j["history"][9].at("train_loss").get<double>(), 1.0);
  EXPECT_EQ(j["history"][9].at("test_accuracy"), j.at("test_accuracy"));

  double best = 0;
  for (const auto& epoch : j["history"]) best = std::max(best, epoch.at("test_accuracy").get<double>());
  EXPECT_EQ(j.at("best_test_accuracy"), best);
  const io::Checkpoint kept = io::load_checkpoint(s.dir() / "c/cifar10.best.ckpt").checkpoint;
  EXPECT_EQ(double(kept.get<double>("history." + std::to_string(kept.get<int64_t>("history.size") - 1) +
                                    ".test.sum.accuracy")) /
                kTest,
            best);
  models::ResNet net(models::cifar_resnet(20));
  net.load_state_dict(io::load_safetensors(s.dir() / "cifar10_resnet20.safetensors").tensors);
}

TEST(Cifar10Program, WithoutDataItSaysSo) {
  Scratch s;
  const Result r = run(s.dir(), {"--train-samples", "64", "--test-samples", "10", "--epochs", "1", "-b", "32",
                                 "--threads", "1", "--arch", "resnet32"});
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_THAT(r.output, HasSubstr("Training on random images"));
  EXPECT_THAT(r.output, HasSubstr("resnet32: 464154 parameters"));
}

TEST(Cifar10Program, TrainsOnSeveralDevices) {
  Place s;
  const Result r = run(s.dir(), {"--data", "d", "--epochs", "1", "-b", "32", "--lr", "0.05", "--threads", "1",
                                 "--devices", "cpu:1,cpu:2", "--summary", "s.json"});
  ASSERT_EQ(r.status, 0) << r.output;
  const nlohmann::json j = summary(s.dir() / "s.json");
  EXPECT_EQ(j.at("device"), "cpu:1,cpu:2");
  EXPECT_EQ(j.at("test_samples"), kTest);
  EXPECT_GT(j.at("test_loss").get<double>(), 0);  // NaN is no number in JSON
}

TEST(Cifar10Program, MistakesGiveAStatus) {
  Scratch s;
  EXPECT_EQ(run(s.dir(), {"--arch", "alexnet"}).status, 2);
  EXPECT_EQ(run(s.dir(), {"--amp", "f8"}).status, 2);
  EXPECT_EQ(run(s.dir(), {"--lr", "0"}).status, 2);
  const Result data = run(s.dir(), {"--data", "nowhere"});
  EXPECT_EQ(data.status, 1);
  EXPECT_THAT(data.output, HasSubstr("nowhere"));
}

// ---- going on after a kill ----

// Expects the weights, results and samples of the uninterrupted run `straight`.
void expect_same(const fs::path& resumed, const fs::path& straight) {
  EXPECT_EQ(check_each_once(resumed / "log", kTrain, 2), "");
  EXPECT_EQ(steps_in(resumed / "log"), steps_in(straight / "log"));
  EXPECT_TRUE(bytes_of(resumed / "cifar10_resnet20.safetensors") ==
              bytes_of(straight / "cifar10_resnet20.safetensors"))
      << "the weights differ";
  nlohmann::json a = summary(resumed / "s.json").at("history"),
                 b = summary(straight / "s.json").at("history");
  for (nlohmann::json* history : {&a, &b})
    for (auto& epoch : *history) epoch.erase("seconds");
  EXPECT_EQ(a, b);
}

TEST(Cifar10Program, ContinuesBitIdenticallyAfterBeingKilledInMixedPrecision) {
  const std::vector<std::string> args = with(kShort, {"--amp", "bf16"});
  Place straight;
  ASSERT_EQ(run(straight.dir(), args).status, 0);
  ASSERT_FALSE(bytes_of(straight.dir() / "cifar10_resnet20.safetensors").empty());

  Place s;
  const Result r = run(s.dir(), with(args, {"--checkpoint-dir", "c", "--checkpoint-interval", "3"}), SIGKILL,
                       "Train Epoch: 2 [200/320");
  EXPECT_EQ(r.status, 128 + SIGKILL);
  const Result more = run(s.dir(), with(args, {"--resume", "c/cifar10.ckpt"}));
  ASSERT_EQ(more.status, 0) << more.output;
  EXPECT_THAT(more.output, HasSubstr("Resuming from c/cifar10.ckpt: epoch 2, 120 images done"));
  expect_same(s.dir(), straight.dir());
}

TEST(Cifar10OnSeveralRanks, TwoThatAreKilledContinueBitIdenticallyOrOnOneRank) {
  Place straight, s;
  Scratch one;
  ASSERT_EQ(run(straight.dir(), with(kShort, {"--nproc", "2"})).status, 0);
  const std::vector<std::string> args = with(kShort, {"--checkpoint-dir", "c", "--checkpoint-interval", "3"});
  const auto killed = start_ranks("cifar10", s.dir(), {args, args});
  ASSERT_TRUE(killed[0]->wait_for("Train Epoch: 2 [200/320"));
  for (const auto& rank : killed) rank->kill(SIGKILL);
  for (const auto& rank : killed) EXPECT_EQ(rank->end().status, 128 + SIGKILL);
  fs::copy(s.dir(), one.dir(), fs::copy_options::recursive);

  const Result more = run(s.dir(), with(kShort, {"--nproc", "2", "--resume", "c/cifar10.ckpt"}));
  ASSERT_EQ(more.status, 0) << more.output;
  expect_same(s.dir(), straight.dir());

  // One rank takes the same steps with the same samples. Results differ since batch norm's batches do.
  const Result alone = run(one.dir(), with(kShort, {"--resume", "c/cifar10.ckpt"}));
  ASSERT_EQ(alone.status, 0) << alone.output;
  EXPECT_EQ(check_each_once(one.dir() / "log", kTrain, 2), "");
  EXPECT_EQ(steps_in(one.dir() / "log"), steps_in(straight.dir() / "log"));
  const nlohmann::json j = summary(one.dir() / "s.json");
  EXPECT_EQ(j.at("test_samples"), kTest);
  EXPECT_EQ(j.at("world_size"), 1);
  EXPECT_EQ(j.at("history").size(), 2u);
}

// ---- pipelines ----

const std::vector<std::string> kPipeline = {
    "--data",           "d", "--epochs",       "2", "-b",        "40",     "--threads",    "1",
    "--workers",        "2", "--log-interval", "1", "--summary", "s.json", "--sample-log", "log",
    "--checkpoint-dir", "c", "--pipeline",     "2"};

// The same for checkpoints, since a pipeline writes no weights file.
void expect_same_checkpoints(const fs::path& resumed, const fs::path& straight) {
  EXPECT_EQ(check_each_once(resumed / "log", kTrain, 2), "");
  EXPECT_EQ(steps_in(resumed / "log"), steps_in(straight / "log"));
  for (const char* kind : {"cifar10.ckpt", "cifar10.best.ckpt"}) {
    const io::Checkpoint a = io::load_checkpoint(resumed / "c" / kind).checkpoint,
                         b = io::load_checkpoint(straight / "c" / kind).checkpoint;
    for (const char* part : {"model", "optimizer"}) {
      io::save_safetensors(resumed / part, a.tensors(part));
      io::save_safetensors(straight / part, b.tensors(part));
      EXPECT_GT(fs::file_size(resumed / part), 1'000'000u);
      EXPECT_TRUE(bytes_of(resumed / part) == bytes_of(straight / part)) << kind << ' ' << part << " differs";
    }
  }
  nlohmann::json a = summary(resumed / "s.json").at("history"),
                 b = summary(straight / "s.json").at("history");
  for (nlohmann::json* history : {&a, &b})
    for (auto& epoch : *history) epoch.erase("seconds");
  EXPECT_EQ(a, b);
}

TEST(Cifar10InAPipeline, GoesOnBitIdenticallyAndOnOtherRanks) {
  Place straight, s;
  Scratch copy;
  const std::vector<std::string> args =
      with(kPipeline, {"--micro-batches", "4", "--checkpoint-interval", "3"});
  const Result whole = run(straight.dir(), args);
  ASSERT_EQ(whole.status, 0) << whole.output;
  EXPECT_THAT(whole.output, HasSubstr("resnet20: 269722 parameters\nstage 0 on rank 0, to "));
  EXPECT_THAT(whole.output, HasSubstr("]\tLoss: "));
  EXPECT_THAT(whole.output, Not(HasSubstr("\tAccuracy: ")));  // of training
  EXPECT_THAT(whole.output, HasSubstr("/101 ("));
  EXPECT_EQ(summary(straight.dir() / "s.json").at("test_samples"), kTest);
  EXPECT_EQ(summary(straight.dir() / "s.json").at("world_size"), 2);

  const auto killed = start_ranks("cifar10", s.dir(), {args, args});
  ASSERT_TRUE(killed[0]->wait_for("Train Epoch: 2 [200/320"));
  for (const auto& rank : killed) rank->kill(SIGKILL);
  for (const auto& rank : killed) EXPECT_EQ(rank->end().status, 128 + SIGKILL);
  fs::copy(s.dir(), copy.dir(), fs::copy_options::recursive);
  const Result more = run(s.dir(), with(args, {"--resume", "c/cifar10.ckpt"}));
  ASSERT_EQ(more.status, 0) << more.output;
  EXPECT_THAT(more.output, HasSubstr("Resuming from c/cifar10.ckpt: epoch 2, 120 images done"));
  expect_same_checkpoints(s.dir(), straight.dir());

  // Data parallel, from the file of a pipeline.
  const Result other = run(copy.dir(), with(kShort, {"--resume", "c/cifar10.ckpt"}));
  ASSERT_EQ(other.status, 0) << other.output;
  EXPECT_EQ(check_each_once(copy.dir() / "log", kTrain, 2), "");
  EXPECT_EQ(steps_in(copy.dir() / "log"), steps_in(straight.dir() / "log"));
}

TEST(Cifar10InAPipeline, GoesOnFromACheckpointWithoutOne) {
  Place straight, s;
  const std::vector<std::string> args = with(kShort, {"--checkpoint-dir", "c", "--checkpoint-interval", "3"});
  EXPECT_EQ(run(s.dir(), args, SIGKILL, "Train Epoch: 2 [200/320").status, 128 + SIGKILL);
  // A pipeline of one stage and one micro-batch trains as no pipeline does.
  ASSERT_EQ(run(straight.dir(), args).status, 0);
  const Result more = run(s.dir(), with(kPipeline, {"--micro-batches", "1", "--resume", "c/cifar10.ckpt"}));
  ASSERT_EQ(more.status, 0) << more.output;
  const nlohmann::json got = summary(s.dir() / "s.json"), want = summary(straight.dir() / "s.json");
  EXPECT_EQ(got["history"].size(), 2u);
  // Five steps of sums in another order, in f32.
  EXPECT_NEAR(got.at("test_loss"), want.at("test_loss").get<double>(), 1e-3);
}

TEST(Cifar10InAPipeline, MistakesAreErrorsBeforeTheFirstStep) {
  Place s;
  const auto expect_mistake = [&](const std::vector<std::string>& args, int status, const std::string& text) {
    std::vector<std::string> all = {"--data", "d", "--threads", "1"};
    all.insert(all.end(), args.begin(), args.end());
    const Result got = run(s.dir(), all);
    EXPECT_EQ(got.status, status) << got.output;
    EXPECT_THAT(got.output, HasSubstr(text));
    EXPECT_THAT(got.output, Not(HasSubstr("Train Epoch")));
  };
  expect_mistake({"--pipeline", "0"}, 2, "--pipeline");
  expect_mistake({"--pipeline", "2", "--schedule", "fastest"}, 2, "--schedule");
  expect_mistake({"--pipeline", "2", "--save-model"}, 1, "--save-model needs the whole network on a rank");
  expect_mistake({"--pipeline", "2", "--nproc", "3"}, 1, "3 ranks cannot be cut into");
  expect_mistake({"--pipeline", "2", "--micro-batches", "many"}, 1, "expected auto, or a number");
  expect_mistake({"--pipeline", "2", "--devices", "cpu:0,cpu:1"}, 1, "--devices goes with one rank alone");
  expect_mistake({"--micro-batches", "2", "--devices", "cpu:0,cpu:1"}, 1,
                 "does not go with --devices cpu,cpu:1");
}

TEST(Cifar10Program, RefusesTheCheckpointOfAnotherTraining) {
  Place s;
  const std::vector<std::string> small = {"--data",         "d",  "--threads", "1", "--train-samples", "64",
                                          "--test-samples", "10", "-b",        "32"};
  ASSERT_EQ(run(s.dir(), with(small, {"--epochs", "1", "--checkpoint-dir", "c"})).status, 0);
  for (const char* pipeline : {"1", "2"}) {
    const auto resumed = [&](std::initializer_list<std::string> more) {
      return run(s.dir(), with(with(small, {"--resume", "c/cifar10.ckpt", "--pipeline", pipeline}), more));
    };
    const Result network = resumed({"--epochs", "1", "--arch", "resnet32"});
    EXPECT_EQ(network.status, 1);
    EXPECT_THAT(network.output, HasSubstr("was trained with network resnet20, not with resnet32"));
    const Result longer = resumed({"--epochs", "3"});
    EXPECT_EQ(longer.status, 1);
    EXPECT_THAT(longer.output, HasSubstr("was trained with number of steps 2, not with 6"));
    EXPECT_EQ(resumed({"--epochs", "1"}).status, 0);
  }
}

}  // namespace
}  // namespace gradus::examples
