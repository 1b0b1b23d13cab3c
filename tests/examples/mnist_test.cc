// The MNIST program from outside: what it learns, what it prints and writes, on one rank and on several, and
// that a run that is interrupted or killed and then resumed ends with the same bits as one that was not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gradus/io/safetensors.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

// A folder of one's own, removed at the end.
class Scratch {
 public:
  Scratch() {
    std::string pattern = (fs::path(testing::TempDir()) / "mnist_XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp");
    dir_ = pattern;
  }
  ~Scratch() { fs::remove_all(dir_); }
  const fs::path& dir() const { return dir_; }

 private:
  fs::path dir_;
};

struct Result {
  int status = -1;  // exit status, or 128 + signal
  std::string output;
};

// The program, started in `dir`.
class Program {
 public:
  using Variables = std::map<std::string, std::string>;

  Program(const fs::path& dir, std::vector<std::string> args, const Variables& variables = {}) {
    const std::string program = fs::absolute("examples/mnist").string();
    args.insert(args.begin(), program);
    if (variables.count("LAUNCHER")) {
      const std::string launcher = fs::absolute("distributed/gradus-run").string();
      args.insert(args.begin(), {launcher, "--nproc-per-node", variables.at("LAUNCHER")});
    }
    int out[2];
    if (pipe(out) != 0) throw std::runtime_error("pipe");
    pid_ = fork();
    if (pid_ == 0) {
      dup2(out[1], STDOUT_FILENO);
      dup2(out[1], STDERR_FILENO);
      close(out[0]), close(out[1]);
      setenv("XDG_CACHE_HOME", dir.c_str(), 1);  // no MNIST of this machine's
      for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
      std::vector<char*> argv;
      for (std::string& a : args) argv.push_back(a.data());
      argv.push_back(nullptr);
      if (chdir(dir.c_str()) == 0) execv(argv[0], argv.data());
      _exit(127);
    }
    close(out[1]);
    out_ = out[0];
  }
  ~Program() { close(out_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void kill(int signal) const { ::kill(pid_, signal); }
  // Reads its output until it says `text`; false when it ends before.
  bool wait_for(const std::string& text) {
    while (result_.output.find(text) == std::string::npos)
      if (!read_some()) return false;
    return true;
  }
  // Waits for its end.
  Result end() {
    while (read_some()) {
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    result_.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return result_;
  }

 private:
  bool read_some() {
    char buffer[4096];
    const ssize_t n = read(out_, buffer, sizeof buffer);
    if (n > 0) result_.output.append(buffer, static_cast<size_t>(n));
    return n > 0;
  }

  pid_t pid_ = -1;
  int out_ = -1;
  Result result_;
};

// Runs the program in `dir`. When its output has `text`, it gets `signal`.
Result run(const fs::path& dir, const std::vector<std::string>& args, int signal = 0,
           const std::string& text = "") {
  Program p(dir, args);
  if (signal && p.wait_for(text)) p.kill(signal);
  return p.end();
}

nlohmann::json summary(const fs::path& file) {
  std::ifstream in(file);
  return nlohmann::json::parse(in);
}

std::string bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
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

// clang-format off
const std::vector<std::string> kShort = {
    "--train-samples", "500", "--test-samples", "100", "--epochs", "3", "--batch-size", "50",
    "--threads", "1", "--log-interval", "1", "--save-model", "--summary", "s.json"};
// clang-format on

std::vector<std::string> with(std::vector<std::string> args, std::initializer_list<std::string> more) {
  args.insert(args.end(), more);
  return args;
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
    // In the middle of the second epoch, as by Ctrl-C: it saves and says how to go on.
    Scratch s;
    const Result r = run(s.dir(), with(kShort, {"--checkpoint-dir", "c"}), SIGINT, "Train Epoch: 2 [150/500");
    EXPECT_EQ(r.status, 130) << r.output;
    EXPECT_THAT(r.output, HasSubstr("continue with --resume c/mnist.ckpt"));
    EXPECT_THAT(r.output, Not(HasSubstr("Train Epoch: 3")));
    expect_same(s);
  }
  {
    // Killed on the spot: it goes on from the last checkpoint.
    Scratch s;
    const Result r = run(s.dir(), with(kShort, {"--checkpoint-dir", "c", "--checkpoint-interval", "3"}),
                         SIGKILL, "Train Epoch: 2 [250/500");
    EXPECT_EQ(r.status, 128 + SIGKILL);
    expect_same(s);
  }
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

int count_of(const std::string& part, const std::string& text) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

// The samples of each step, from a sample log of one run.
std::vector<std::multiset<int64_t>> steps_in(const fs::path& log) {
  std::vector<std::multiset<int64_t>> steps;
  std::ifstream in(log);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("from ")) continue;
    std::istringstream words(line);
    int64_t number = 0;
    words >> number >> number;
    steps.emplace_back();
    while (words >> number) steps.back().insert(number);
  }
  return steps;
}

TEST(MnistOnSeveralRanks, LearnsAndRankZeroAloneSpeaks) {
  Scratch s;
  const Result r =
      run(s.dir(), {"--nproc", "2", "--train-samples", "6400", "--test-samples", "501", "--epochs", "1",
                    "--batch-size", "32", "--threads", "1", "--summary", "s.json", "--save-model"});
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_EQ(count_of("1,199,882 parameters", r.output), 1) << r.output;
  EXPECT_EQ(count_of("Training on generated digits", r.output), 1);
  EXPECT_EQ(count_of("Train Epoch: 1 [64/6400 (1%)]", r.output), 1);
  EXPECT_EQ(count_of("Test set: ", r.output), 1);
  EXPECT_THAT(r.output, HasSubstr("/501 ("));  // each once: 501 is no multiple of 2
  EXPECT_THAT(r.output, HasSubstr("2 ranks, 1 threads each"));
  const nlohmann::json j = summary(s.dir() / "s.json");
  EXPECT_GE(j.at("test_accuracy").get<double>(), 0.85);
  EXPECT_LE(j.at("test_loss").get<double>(), 0.5);
  EXPECT_EQ(j.at("world_size"), 2);
  EXPECT_EQ(j.at("test_samples"), 501);
  EXPECT_EQ(j.at("train_samples"), 6400);
  EXPECT_TRUE(fs::exists(s.dir() / "mnist_cnn.safetensors"));
}

TEST(MnistOnSeveralRanks, EveryNumberOfRanksMakesTheSameStepsOfTheSameSamples) {
  // clang-format off
  const std::vector<std::string> args = {
      "--train-samples", "250", "--test-samples", "20", "--epochs", "2", "--global-batch-size", "60", "--threads", "1",
      "--log-interval", "1", "--sample-log", "log"};
  // clang-format on
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
  // Without learning, the mean over an epoch depends on the samples alone. (Dropout does not: hence the
  // width.)
  double loss[2];
  for (const int ranks : {1, 2}) {
    Scratch s;
    const Result r = run(s.dir(), {"--train-samples", "600", "--test-samples", "20", "--epochs", "1", "--lr",
                                   "0", "--global-batch-size", "100", "--log-interval", "5", "--threads", "1",
                                   "--nproc", std::to_string(ranks), "--checkpoint-dir", "c"});
    ASSERT_EQ(r.status, 0) << r.output;
    const io::SafetensorsFile c = io::load_safetensors(s.dir() / "c/mnist.ckpt");
    EXPECT_EQ(c.metadata.at("epoch.seen"), "i64:600");
    loss[ranks - 1] = std::stod(c.metadata.at("epoch.loss").substr(4)) / 600;
  }
  EXPECT_NEAR(loss[0], loss[1], 0.01 * loss[0]);
}

TEST(MnistOnSeveralRanks, RunsUnchangedUnderGradusRun) {
  Scratch s;
  Program p(s.dir(),
            {"--train-samples", "200", "--test-samples", "21", "--epochs", "1", "--threads", "1", "--summary",
             "s.json"},
            {{"LAUNCHER", "3"}});
  const Result r = p.end();
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_EQ(count_of("Test set: ", r.output), 1);
  EXPECT_THAT(r.output, HasSubstr("/21 ("));
  EXPECT_EQ(summary(s.dir() / "s.json").at("world_size"), 3);
}

// Ranks started by hand with torchrun's variables, one for each list of arguments.
std::vector<std::unique_ptr<Program>> start_ranks(const fs::path& dir,
                                                  const std::vector<std::vector<std::string>>& args) {
  const int count = int(args.size());
  static int port = 20'000 + int(getpid() % 20'000);
  port += 16;
  std::vector<std::unique_ptr<Program>> ranks;
  for (int rank = 0; rank < count; ++rank)
    ranks.push_back(std::make_unique<Program>(dir, args[size_t(rank)],
                                              Program::Variables{{"RANK", std::to_string(rank)},
                                                                 {"WORLD_SIZE", std::to_string(count)},
                                                                 {"LOCAL_RANK", std::to_string(rank)},
                                                                 {"LOCAL_WORLD_SIZE", std::to_string(count)},
                                                                 {"MASTER_ADDR", "127.0.0.1"},
                                                                 {"MASTER_PORT", std::to_string(port)}}));
  return ranks;
}

// What a scheduler does before it takes a machine away: one rank is told, all end, and nothing is lost.
TEST(MnistOnSeveralRanks, OneRankThatIsAskedToStopStopsAllWithACheckpoint) {
  Scratch straight;
  ASSERT_EQ(run(straight.dir(), with(kShort, {"--nproc", "2"})).status, 0);

  Scratch s;
  const std::vector<std::string> args = with(kShort, {"--checkpoint-dir", "c", "--sample-log", "log"});
  const auto ranks = start_ranks(s.dir(), {args, args});
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
  std::map<int64_t, int> uses;
  for (const std::multiset<int64_t>& step : steps_in(s.dir() / "log"))
    for (const int64_t i : step) ++uses[i];
  EXPECT_EQ(uses.size(), 500u);
  for (const auto& [i, count] : uses) EXPECT_EQ(count, 3) << "sample " << i;
}

TEST(MnistOnSeveralRanks, AFailureOfAnyRankReachesTheUser) {
  Scratch s;
  const Result r = run(s.dir(), with(kShort, {"--nproc", "2", "--resume", "none.ckpt"}));
  EXPECT_EQ(r.status, 1);
  EXPECT_THAT(r.output, HasSubstr(" failed: [load_checkpoint] "));
  EXPECT_THAT(r.output, HasSubstr("none.ckpt"));

  const auto ranks = start_ranks(s.dir(), {{"--train-samples", "128", "--test-samples", "10"},
                                           {"--train-samples", "64", "--test-samples", "10"}});
  const char* message = "data sets differ: 128+10 images of GeneratedDigits on rank 0, 64+10 ";
  for (const auto& rank : ranks) {
    const Result failed = rank->end();
    EXPECT_EQ(failed.status, 1);
    EXPECT_THAT(failed.output, HasSubstr(message));
  }
}

}  // namespace
}  // namespace gradus
