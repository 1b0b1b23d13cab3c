// The programs under examples from outside: started in a folder of their own, killed, their files read.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

namespace gradus::examples {

// A folder of one's own, removed at the end.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  const std::filesystem::path& dir() const { return dir_; }

 private:
  std::filesystem::path dir_;
};

struct Result {
  int status = -1;  // exit status, or 128 + signal
  std::string output;
};

// examples/NAME, started in `dir`; a name with a folder is the whole path.
class Program {
 public:
  using Variables = std::map<std::string, std::string>;

  // The variable LAUNCHER starts it under gradus-run, on so many ranks.
  Program(const std::string& name, const std::filesystem::path& dir, std::vector<std::string> args,
          const Variables& variables = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void kill(int signal) const;
  // Sends a signal to a rank that the program has started itself. Returns whether there was one.
  bool kill_rank(int rank, int signal) const;
  // Reads its output until it says `text`; false when it ends before.
  bool wait_for(const std::string& text);
  // Waits for its end.
  Result end();

 private:
  bool read_some();

  std::filesystem::path dir_;
  pid_t pid_ = -1;
  int out_ = -1;
  Result result_;
};

// Runs the program in `dir`. When its output has `text`, it gets `signal`.
Result run(const std::string& name, const std::filesystem::path& dir, const std::vector<std::string>& args,
           int signal = 0, const std::string& text = "");

// Ranks started by hand with torchrun's variables, one for each list of arguments.
std::vector<std::unique_ptr<Program>> start_ranks(const std::string& name, const std::filesystem::path& dir,
                                                  const std::vector<std::vector<std::string>>& args);

std::vector<std::string> with(std::vector<std::string> args, std::initializer_list<std::string> more);
nlohmann::json summary(const std::filesystem::path& file);
std::string bytes_of(const std::filesystem::path& file);
int count_of(const std::string& part, const std::string& text);

// What a sample log says of a training, over all its runs: the samples of each step that counts, in order. A
// step after the place from which a later run went on does not count.
std::vector<std::multiset<int64_t>> steps_in(const std::filesystem::path& log);
// Says which samples do not come once in each of the epochs; "" when all do.
std::string check_each_once(const std::filesystem::path& log, int64_t samples, int64_t epochs);

}  // namespace gradus::examples
