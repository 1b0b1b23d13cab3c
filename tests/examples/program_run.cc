// Starts example programs, reads their output, and evaluates their sample logs.
//
// Lines of a sample log: "EPOCH POSITION INDEX..." has the samples of a step, "from EPOCH POSITION" resumes.
#include "gradus/tests/examples/program_run.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace gradus::examples {
namespace fs = std::filesystem;
namespace {

using Position = std::pair<int64_t, int64_t>;  // epoch, samples

std::map<Position, std::multiset<int64_t>> history_in(const fs::path& log) {
  std::map<Position, std::multiset<int64_t>> steps;
  std::ifstream in(log);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string from;
    Position at;
    if (line.starts_with("from ")) {
      words >> from >> at.first >> at.second;
      steps.erase(steps.upper_bound(at), steps.end());
      continue;
    }
    words >> at.first >> at.second;
    for (int64_t index = 0; words >> index;) steps[at].insert(index);
  }
  return steps;
}

}  // namespace

Scratch::Scratch() {
  std::string pattern = (fs::path(testing::TempDir()) / "program_XXXXXX").string();
  if (!mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp");
  dir_ = pattern;
}

Scratch::~Scratch() { fs::remove_all(dir_); }

Program::Program(const std::string& name, const fs::path& dir, std::vector<std::string> args,
                 const Variables& variables)
    : dir_(dir) {
  const bool is_example = name.find('/') == std::string::npos;
  args.insert(args.begin(), fs::absolute(is_example ? "examples/" + name : name).string());
  if (variables.count("LAUNCHER")) {
    const std::string launcher = fs::absolute("distributed/launch/gradus-run").string();
    args.insert(args.begin(), {launcher, "--nproc-per-node", variables.at("LAUNCHER")});
  }
  int out[2];
  if (pipe(out) != 0) throw std::runtime_error("pipe");
  pid_ = fork();
  if (pid_ == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(out[1], STDERR_FILENO);
    close(out[0]), close(out[1]);
    setenv("XDG_CACHE_HOME", dir.c_str(), 1);  // hides data sets of the machine; identifies ranks
    // Programs, their ranks and other tests share few cores: waiting threads must not spin.
    setenv("OMP_WAIT_POLICY", "passive", 0);
    for (const auto& [key, value] : variables) setenv(key.c_str(), value.c_str(), 1);
    std::vector<char*> argv;
    for (std::string& a : args) argv.push_back(a.data());
    argv.push_back(nullptr);
    if (chdir(dir.c_str()) == 0) execv(argv[0], argv.data());
    _exit(127);
  }
  close(out[1]);
  out_ = out[0];
}

Program::~Program() { close(out_); }

void Program::kill(int signal) const { ::kill(pid_, signal); }

bool Program::kill_rank(int rank, int signal) const {
  const auto variable = [](const std::string& text) { return '\0' + text + '\0'; };
  std::error_code error;
  for (const auto& process : fs::directory_iterator("/proc", error)) {
    const std::string variables = '\0' + bytes_of(process.path() / "environ");
    const bool is_rank = variables.find(variable("RANK=" + std::to_string(rank))) != std::string::npos;
    const bool is_here = variables.find(variable("XDG_CACHE_HOME=" + dir_.string())) != std::string::npos;
    if (is_rank && is_here) return ::kill(std::stoi(process.path().filename()), signal) == 0;
  }
  return false;
}

bool Program::wait_for(const std::string& text) {
  while (result_.output.find(text) == std::string::npos)
    if (!read_some()) return false;
  return true;
}

Result Program::end() {
  while (read_some()) {
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  result_.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result_;
}

bool Program::read_some() {
  char buffer[4096];
  const ssize_t n = read(out_, buffer, sizeof buffer);
  if (n > 0) result_.output.append(buffer, static_cast<size_t>(n));
  return n > 0;
}

Result run(const std::string& name, const fs::path& dir, const std::vector<std::string>& args, int signal,
           const std::string& text) {
  Program p(name, dir, args);
  if (signal && p.wait_for(text)) p.kill(signal);
  return p.end();
}

std::vector<std::unique_ptr<Program>> start_ranks(const std::string& name, const fs::path& dir,
                                                  const std::vector<std::vector<std::string>>& args) {
  const std::string count = std::to_string(args.size());
  static int port = 20'000 + int(getpid() % 20'000);
  port += 16;
  std::vector<std::unique_ptr<Program>> ranks;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string rank = std::to_string(i);
    ranks.push_back(std::make_unique<Program>(name, dir, args[i],
                                              Program::Variables{{"RANK", rank},
                                                                 {"WORLD_SIZE", count},
                                                                 {"LOCAL_RANK", rank},
                                                                 {"LOCAL_WORLD_SIZE", count},
                                                                 {"MASTER_ADDR", "127.0.0.1"},
                                                                 {"MASTER_PORT", std::to_string(port)}}));
  }
  return ranks;
}

std::vector<std::string> with(std::vector<std::string> args, std::initializer_list<std::string> more) {
  args.insert(args.end(), more);
  return args;
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

int count_of(const std::string& part, const std::string& text) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

std::vector<std::multiset<int64_t>> steps_in(const fs::path& log) {
  std::vector<std::multiset<int64_t>> steps;
  for (auto& [at, indices] : history_in(log)) steps.push_back(indices);
  return steps;
}

std::string check_each_once(const fs::path& log, int64_t samples, int64_t epochs) {
  std::map<Position, int> uses;  // epoch, sample
  for (auto& [at, indices] : history_in(log))
    for (const int64_t index : indices) ++uses[{at.first, index}];
  std::ostringstream wrong;
  for (int64_t epoch = 0; epoch < epochs; ++epoch)
    for (int64_t i = 0; i < samples; ++i)
      if (const int count = uses[{epoch, i}]; count != 1)
        wrong << "sample " << i << " comes " << count << " times in epoch " << epoch << '\n';
  if (int64_t(uses.size()) != samples * epochs) wrong << "there are samples that should not be\n";
  return wrong.str();
}

}  // namespace gradus::examples
