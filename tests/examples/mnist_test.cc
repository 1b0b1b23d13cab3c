// The MNIST program from outside: what it learns, what it prints and writes, and that a run that is
// interrupted or killed and then resumed ends with the same bits as one that was not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
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

// Runs the program in `dir`. When a line of its output satisfies `until`, it gets `signal`.
Result run(const fs::path& dir, std::vector<std::string> args, int signal = 0,
           const std::function<bool(const std::string&)>& until = {}) {
  const std::string program = fs::absolute("examples/mnist").string();
  args.insert(args.begin(), program);
  int out[2];
  if (pipe(out) != 0) throw std::runtime_error("pipe");
  const pid_t child = fork();
  if (child == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(out[1], STDERR_FILENO);
    close(out[0]), close(out[1]);
    setenv("XDG_CACHE_HOME", dir.c_str(), 1);  // no MNIST of this machine's
    std::vector<char*> argv;
    for (std::string& a : args) argv.push_back(a.data());
    argv.push_back(nullptr);
    if (chdir(dir.c_str()) == 0) execv(program.c_str(), argv.data());
    _exit(127);
  }
  close(out[1]);
  Result r;
  bool sent = signal == 0;
  char buffer[4096];
  for (ssize_t n; (n = read(out[0], buffer, sizeof buffer)) > 0;) {
    r.output.append(buffer, static_cast<size_t>(n));
    if (!sent && until(r.output)) kill(child, signal), sent = true;
  }
  close(out[0]);
  int status = 0;
  waitpid(child, &status, 0);
  r.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return r;
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

  const auto saw = [](const char* text) {
    return [text](const std::string& output) { return output.find(text) != std::string::npos; };
  };
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
    const Result r =
        run(s.dir(), with(kShort, {"--checkpoint-dir", "c"}), SIGINT, saw("Train Epoch: 2 [150/500"));
    EXPECT_EQ(r.status, 130) << r.output;
    EXPECT_THAT(r.output, HasSubstr("continue with --resume c/mnist.ckpt"));
    EXPECT_THAT(r.output, Not(HasSubstr("Train Epoch: 3")));
    expect_same(s);
  }
  {
    // Killed on the spot: it goes on from the last checkpoint.
    Scratch s;
    const Result r = run(s.dir(), with(kShort, {"--checkpoint-dir", "c", "--checkpoint-interval", "3"}),
                         SIGKILL, saw("Train Epoch: 2 [250/500"));
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

}  // namespace
}  // namespace gradus
