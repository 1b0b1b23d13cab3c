// examples/mnist as a process: what it learns, prints and writes, on one rank and on several, and that an
// interrupted or killed run that is resumed ends with the same bits. Exit codes: 1 error, 2 bad option, 130
// interrupted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "gradus/io/safetensors.h"
#include "gradus/tests/examples/program_run.h"

namespace gradus::examples {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

Result run(const fs::path& dir, const std::vector<std::string>& args, int signal = 0,
           const std::string& text = "") {
  return examples::run("mnist", dir, args, signal, text);
}

TEST(MnistProgram, LearnsGeneratedDigits) {
  Scratch s;
  const Result r = run(s.dir(), {"--train-samples", "6400", "--test-samples", "500", "--epochs", "1",
                                 "--threads", "1", "--summary", "s.json", "--save-model"});
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_THAT(r.output, HasSubstr("Training on generated digits"));
  EXPECT_THAT(r.output, HasSubstr("Train Epoch: 1 [64/6400 (1%)]\tLoss: "));
  EXPECT_THAT(r.output, HasSubstr("1,199,882 parameters"));
  EXPECT_THAT(r.output, HasSubstr("Test loss "));
  const nlohmann::json j = summary(s.dir() / "s.json");
  EXPECT_GE(j.at("test_accuracy").get<double>(), 0.85);
  EXPECT_LE(j.at("test_loss").get<double>(), 0.5);
  EXPECT_EQ(j.at("example"), "mnist");
  EXPECT_EQ(j.at("dataset"), "GeneratedDigits");
  EXPECT_EQ(j.at("train_samples"), 6400);
  EXPECT_EQ(j.at("test_samples"), 500);
  EXPECT_EQ(j.at("epochs"), 1);
  EXPECT_EQ(j.at("seed"), 1);
  EXPECT_EQ(j.at("device"), "cpu");
  EXPECT_EQ(j.at("world_size"), 1);
  for (const char* key : {"images_per_second", "peak_rss_mib", "seconds"})
    EXPECT_GT(j.at(key).get<double>(), 0) << key;
  EXPECT_EQ(io::load_safetensors(s.dir() / "mnist_cnn.safetensors").at("fc1.weight").shape(),
            (Shape{128, 9216}));
}

const std::vector<std::string> kShort = {
    "--train-samples", "500", "--test-samples", "100", "--epochs",     "3",         "--batch-size", "50",
    "--threads",       "1",   "--log-interval", "1",   "--save-model", "--summary", "s.json"};

// The masks of dropout are those of a rank's own seed, which for rank 0 is --seed; the initial weights are rank 0's.
TEST(MnistProgram, DrawsOtherNumbersOnEachRankWithDiffSeed) {
  Scratch s;
  const auto loss_of = [&](const char* ranks, const std::string& more) {
    const Result r =
        run(s.dir(), {"--train-samples", "200", "--test-samples", "100", "--epochs", "1", "--threads", "1",
                      "--summary", "s.json", "--global-batch-size", "50", "--nproc", ranks, more});
    EXPECT_EQ(r.status, 0) << r.output;
    return summary(s.dir() / "s.json").at("test_loss").get<double>();
  };
  EXPECT_EQ(loss_of("1", "--diff-seed"), loss_of("1", "--diff-seed=false"));
  EXPECT_NE(loss_of("2", "--diff-seed"), loss_of("2", "--diff-seed=false"));
}

TEST(MnistProgram, MakesNoTestWithNoValidate) {
  Scratch s;
  std::ofstream(s.dir() / "run.toml") << "# a run\nno-validate = true\nepochs = 2\ntrain-samples = 100\n";
  const Result r = run(s.dir(), {"--config", "run.toml", "--epochs", "1", "--summary", "s.json"});
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_THAT(r.output, HasSubstr("No test; trained at "));
  EXPECT_THAT(r.output, Not(HasSubstr("Test set")));
  const nlohmann::json j = summary(s.dir() / "s.json");
  EXPECT_FALSE(j.contains("test_loss"));
  EXPECT_EQ(j.at("epochs"), 1);
}

TEST(MnistProgram, ContinuesBitIdenticallyAfterBeingInterruptedOrKilled) {
  Scratch straight;
  ASSERT_EQ(run(straight.dir(), kShort).status, 0);
  const std::string weights = bytes_of(straight.dir() / "mnist_cnn.safetensors");
  const nlohmann::json expected = summary(straight.dir() / "s.json");
  ASSERT_FALSE(weights.empty());

  const auto expect_same = [&](const Scratch& s) {
    const Result r = run(s.dir(), with(kShort, {"--resume", "c/mnist.ckpt"}));
    ASSERT_EQ(r.status, 0) << r.output;
    EXPECT_THAT(r.output, HasSubstr("Resuming from"));
    EXPECT_EQ(bytes_of(s.dir() / "mnist_cnn.safetensors"), weights);
    EXPECT_EQ(summary(s.dir() / "s.json").at("test_loss"), expected.at("test_loss"));
    EXPECT_EQ(summary(s.dir() / "s.json").at("epochs"), 3);
  };
  {
    // Ctrl-C within the second epoch: the program saves and prints how to resume.
    Scratch s;
    const Result r = run(s.dir(), with(kShort, {"--checkpoint-dir", "c"}), SIGINT, "Train Epoch: 2 [150/500");
    EXPECT_EQ(r.status, 130) << r.output;
    EXPECT_THAT(r.output, HasSubstr("continue with --resume c/mnist.ckpt"));
    EXPECT_THAT(r.output, Not(HasSubstr("Train Epoch: 3")));
    expect_same(s);
  }
  {
    // SIGKILL: the run resumes from the last checkpoint.
    Scratch s;
    const Result r = run(s.dir(), with(kShort, {"--checkpoint-dir", "c", "--checkpoint-interval", "3"}),
                         SIGKILL, "Train Epoch: 2 [250/500");
    EXPECT_EQ(r.status, 128 + SIGKILL);
    expect_same(s);
  }
}

// A signal to one rank alone stops all of them, and no rank starts again.
TEST(MnistProgram, EndsInterruptedWhenOneRankGetsASignal) {
  for (const int signal : {SIGINT, SIGTERM})
    for (const bool saves : {false, true}) {
      Scratch s;
      std::vector<std::string> args = with(kShort, {"--nproc", "2", "--max-restarts", "2"});
      if (saves) args = with(args, {"--checkpoint-dir", "c"});
      Program program("mnist", s.dir(), args);
      ASSERT_TRUE(program.wait_for("Train Epoch: 1"));
      ASSERT_TRUE(program.kill_rank(1, signal));
      const Result r = program.end();
      EXPECT_EQ(r.status, 130) << r.output;
      EXPECT_THAT(r.output, HasSubstr(saves ? "continue with --resume c/mnist.ckpt" : "nothing is saved"));
      EXPECT_EQ(std::filesystem::exists(s.dir() / "c" / "mnist.ckpt"), saves);
      EXPECT_THAT(r.output, Not(HasSubstr("start again")));
    }
}

// Replicas draw their dropout masks by their position in the list.
TEST(MnistProgram, TrainsOnSeveralDevices) {
  std::string weights[2];
  for (const int first : {0, 1}) {
    Scratch s;
    const std::string devices = first == 0 ? "cpu:0,cpu:1" : "cpu:1,cpu:2";
    const Result r = run(s.dir(), with(kShort, {"--devices", devices}));
    ASSERT_EQ(r.status, 0) << r.output;
    const std::string shown = first == 0 ? "cpu,cpu:1" : devices;
    EXPECT_THAT(r.output, HasSubstr("; " + shown + ", 1 threads; "));
    const nlohmann::json j = summary(s.dir() / "s.json");
    EXPECT_EQ(j.at("device"), shown);
    EXPECT_EQ(j.at("options").at("devices"), shown);
    EXPECT_EQ(j.at("test_samples"), 100);
    EXPECT_LT(j.at("test_loss").get<double>(), 2.2);  // ln(10) before the training
    weights[first] = bytes_of(s.dir() / "mnist_cnn.safetensors");
  }
  EXPECT_FALSE(weights[0].empty());
  EXPECT_EQ(weights[0], weights[1]);
}

TEST(MnistProgram, DryRunTakesOneStep) {
  Scratch s;
  const Result r =
      run(s.dir(), {"--train-samples", "200", "--test-samples", "100", "--dry-run", "--log-interval", "1"});
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_THAT(r.output, HasSubstr("[64/200"));
  EXPECT_THAT(r.output, Not(HasSubstr("[128/200")));
}

TEST(MnistProgram, MistakesGiveOneLineAndAStatus) {
  Scratch s;
  const auto lines = [](const std::string& text) { return std::count(text.begin(), text.end(), '\n'); };
  EXPECT_EQ(run(s.dir(), {"--epochs", "many"}).status, 2);
  EXPECT_EQ(run(s.dir(), {"--no-such-option"}).status, 2);
  EXPECT_EQ(run(s.dir(), {"--batch-size", "0"}).status, 2);

  const std::vector<std::string> two = {"--devices", "cpu:0,cpu:1"};
  EXPECT_EQ(run(s.dir(), with(two, {"--device", "cpu"})).status, 2);
  const Result ranks = run(s.dir(), with(two, {"--nproc", "2"}));
  EXPECT_EQ(ranks.status, 1);
  EXPECT_THAT(ranks.output, HasSubstr("--devices goes with one rank alone"));
  const Result captured = run(s.dir(), with(two, {"--capture"}));
  EXPECT_EQ(captured.status, 1);
  EXPECT_THAT(captured.output, HasSubstr("--devices does not go with --capture"));

  const Result data = run(s.dir(), {"--data", "nowhere"});
  EXPECT_EQ(data.status, 1);
  EXPECT_THAT(data.output, HasSubstr("nowhere"));
  EXPECT_EQ(lines(data.output), 1) << data.output;

  const std::vector<std::string> small = {"--train-samples", "64", "--test-samples", "10", "--epochs", "1"};
  const Result missing = run(s.dir(), with(small, {"--resume", "none.ckpt"}));
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.output, HasSubstr("none.ckpt"));

  std::ofstream(s.dir() / "bad.ckpt") << "this is no checkpoint";
  const Result bad = run(s.dir(), with(small, {"--resume", "bad.ckpt"}));
  EXPECT_EQ(bad.status, 1);
  EXPECT_THAT(bad.output, HasSubstr("bad.ckpt"));

  const Result folder = run(s.dir(), with(small, {"--summary", "no/such/s.json"}));
  EXPECT_EQ(folder.status, 1);
  EXPECT_THAT(folder.output, HasSubstr("no/such"));
}

TEST(MnistProgram, RefusesTheCheckpointOfAnotherRun) {
  Scratch s;
  const std::vector<std::string> small = {"--train-samples", "128", "--test-samples", "10"};
  ASSERT_EQ(run(s.dir(), with(small, {"--epochs", "1", "--checkpoint-dir", "c"})).status, 0);
  const Result r = run(s.dir(), with(small, {"--epochs", "2", "--resume", "c/mnist.ckpt", "--seed", "2"}));
  EXPECT_EQ(r.status, 1);
  EXPECT_THAT(r.output, HasSubstr("seed 1"));
  const Result more = run(s.dir(), with(small, {"--epochs", "2", "--resume", "c/mnist.ckpt"}));
  EXPECT_EQ(more.status, 0) << more.output;
  EXPECT_THAT(more.output, Not(HasSubstr("Train Epoch: 1")));
  EXPECT_THAT(more.output, HasSubstr("Train Epoch: 2"));
}

// ---- several ranks ----

TEST(MnistOnSeveralRanks, RankZeroAloneSpeaks) {
  Scratch s;
  const Result r =
      run(s.dir(), {"--nproc", "2", "--train-samples", "640", "--test-samples", "501", "--epochs", "1",
                    "--batch-size", "32", "--threads", "1", "--summary", "s.json", "--save-model"});
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_EQ(count_of("1,199,882 parameters", r.output), 1) << r.output;
  EXPECT_EQ(count_of("Training on generated digits", r.output), 1);
  EXPECT_EQ(count_of("Train Epoch: 1 [64/640 (10%)]", r.output), 1);
  EXPECT_EQ(count_of("Test set: ", r.output), 1);
  EXPECT_THAT(r.output, HasSubstr("/501 ("));  // each once: 501 is no multiple of 2
  EXPECT_THAT(r.output, HasSubstr("2 ranks, 1 threads each"));
  const nlohmann::json j = summary(s.dir() / "s.json");
  EXPECT_EQ(j.at("world_size"), 2);
  EXPECT_EQ(j.at("test_samples"), 501);
  EXPECT_EQ(j.at("train_samples"), 640);
  EXPECT_TRUE(fs::exists(s.dir() / "mnist_cnn.safetensors"));
}

TEST(MnistOnSeveralRanks, EveryNumberOfRanksMakesTheSameStepsOfTheSameSamples) {
  const std::vector<std::string> args = {
      "--train-samples", "250", "--test-samples", "20", "--epochs",     "2",  "--global-batch-size", "60",
      "--threads",       "1",   "--log-interval", "1",  "--sample-log", "log"};
  std::vector<std::vector<std::multiset<int64_t>>> steps;
  for (const char* ranks : {"1", "2", "3"}) {
    Scratch s;
    const Result r = run(s.dir(), with(args, {"--nproc", ranks}));
    ASSERT_EQ(r.status, 0) << r.output;
    EXPECT_THAT(r.output, HasSubstr("Train Epoch: 2 [120/250 (48%)]"));
    EXPECT_THAT(r.output, HasSubstr("Train Epoch: 2 [250/250 (100%)]"));
    steps.push_back(steps_in(s.dir() / "log"));
  }
  ASSERT_EQ(steps[0].size(), 10u);
  std::set<int64_t> epoch;
  for (size_t i = 0; i < 5; ++i) epoch.insert(steps[0][i].begin(), steps[0][i].end());
  EXPECT_EQ(epoch.size(), 250u);
  EXPECT_EQ(steps[1], steps[0]);
  EXPECT_EQ(steps[2], steps[0]);
}

TEST(MnistOnSeveralRanks, LogsOfTrainingAreOverAllRanks) {
  // At a learning rate of 0, the mean loss of an epoch depends on samples alone; 1 % is for dropout.
  double loss[2];
  for (const int ranks : {1, 2}) {
    Scratch s;
    const Result r = run(s.dir(), {"--train-samples", "600", "--test-samples", "20", "--epochs", "1", "--lr",
                                   "0", "--global-batch-size", "100", "--log-interval", "5", "--threads", "1",
                                   "--nproc", std::to_string(ranks), "--checkpoint-dir", "c"});
    ASSERT_EQ(r.status, 0) << r.output;
    const io::SafetensorsFile c = io::load_safetensors(s.dir() / "c/mnist.ckpt");
    EXPECT_EQ(c.metadata.at("epoch.seen"), "i64:600");
    loss[ranks - 1] = std::stod(c.metadata.at("epoch.sum.loss").substr(4)) / 600;
  }
  EXPECT_NEAR(loss[0], loss[1], 0.01 * loss[0]);
}

TEST(MnistOnSeveralRanks, RunsUnchangedUnderGradusRun) {
  Scratch s;
  Program p("mnist", s.dir(),
            {"--train-samples", "200", "--test-samples", "21", "--epochs", "1", "--threads", "1", "--summary",
             "s.json"},
            {{"LAUNCHER", "3"}});
  const Result r = p.end();
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_EQ(count_of("Test set: ", r.output), 1);
  EXPECT_THAT(r.output, HasSubstr("/21 ("));
  EXPECT_EQ(summary(s.dir() / "s.json").at("world_size"), 3);
}

// As a cluster scheduler preempts a job: SIGTERM to one rank stops all, with a checkpoint.
TEST(MnistOnSeveralRanks, OneRankThatIsAskedToStopStopsAllWithACheckpoint) {
  Scratch straight;
  ASSERT_EQ(run(straight.dir(), with(kShort, {"--nproc", "2"})).status, 0);

  Scratch s;
  const std::vector<std::string> args = with(kShort, {"--checkpoint-dir", "c", "--sample-log", "log"});
  const auto ranks = start_ranks("mnist", s.dir(), {args, args});
  ASSERT_TRUE(ranks[0]->wait_for("Train Epoch: 1 [100/500"));
  ranks[1]->kill(SIGTERM);
  const Result first = ranks[0]->end(), second = ranks[1]->end();
  EXPECT_EQ(first.status, 130) << first.output;
  EXPECT_EQ(second.status, 130) << second.output;
  EXPECT_THAT(first.output, HasSubstr("continue with --resume c/mnist.ckpt"));
  EXPECT_EQ(second.output, "");

  // Stopped within the three epochs: of 500 samples each, in steps of 100.
  const size_t steps = steps_in(s.dir() / "log").size();
  EXPECT_GE(steps, 1u);
  EXPECT_LT(steps, 15u);
  const Result r =
      run(s.dir(), with(kShort, {"--nproc", "2", "--resume", "c/mnist.ckpt", "--sample-log", "log"}));
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_EQ(steps_in(s.dir() / "log").size(), 15u);
  EXPECT_EQ(bytes_of(s.dir() / "mnist_cnn.safetensors"), bytes_of(straight.dir() / "mnist_cnn.safetensors"));
}

TEST(MnistOnSeveralRanks, CtrlCAtTheLauncherLeavesACheckpointForAnyNumberOfRanks) {
  Scratch s;
  const std::vector<std::string> logged = with(kShort, {"--sample-log", "log"});
  const Result r = run(s.dir(), with(logged, {"--nproc", "2", "--checkpoint-dir", "c"}), SIGINT,
                       "Train Epoch: 1 [300/500");
  EXPECT_EQ(r.status, 130) << r.output;
  EXPECT_THAT(r.output, HasSubstr("continue with --resume c/mnist.ckpt"));
  const Result more = run(s.dir(), with(logged, {"--nproc", "3", "--resume", "c/mnist.ckpt"}));
  ASSERT_EQ(more.status, 0) << more.output;
  EXPECT_EQ(check_each_once(s.dir() / "log", 500, 3), "");
}

TEST(MnistOnSeveralRanks, AFailureOfAnyRankReachesTheUser) {
  Scratch s;
  const Result r = run(s.dir(), with(kShort, {"--nproc", "2", "--resume", "none.ckpt"}));
  EXPECT_EQ(r.status, 1);
  EXPECT_THAT(r.output, HasSubstr(" failed: FileError: [load_checkpoint] "));
  EXPECT_THAT(r.output, HasSubstr("none.ckpt"));

  const auto ranks = start_ranks("mnist", s.dir(),
                                 {{"--train-samples", "128", "--test-samples", "10"},
                                  {"--train-samples", "64", "--test-samples", "10"}});
  const char* message = "the ranks' loaders share one order, so they must be alike";
  for (const auto& rank : ranks) {
    const Result failed = rank->end();
    EXPECT_EQ(failed.status, 1);
    EXPECT_THAT(failed.output, HasSubstr(message));
  }
}

}  // namespace
}  // namespace gradus::examples
