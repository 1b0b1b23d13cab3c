// Runs the programs under examples as processes in temporary folders: output, exit codes, signals, files.
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

// A temporary folder, removed by the destructor.
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

// A process of examples/NAME with working directory `dir`. A name with a slash is a path.
class Program {
 public:
  using Variables = std::map<std::string, std::string>;

  // A variable LAUNCHER=N starts the program under gradus-run on N ranks.
  Program(const std::string& name, const std::filesystem::path& dir, std::vector<std::string> args,
          const Variables& variables = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void kill(int signal) const;
  // Sends a signal to a rank that the program itself has started. Returns false if there is none.
  bool kill_rank(int rank, int signal) const;
  // Waits until the output has `text`. Returns false if the program ends before.
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

// Runs the program in `dir` to its end. Sends `signal` (0: none) once its output has `text`.
Result run(const std::string& name, const std::filesystem::path& dir, const std::vector<std::string>& args,
           int signal = 0, const std::string& text = "");

// Starts one rank per list of arguments, with torchrun's variables, without a launcher.
std::vector<std::unique_ptr<Program>> start_ranks(const std::string& name, const std::filesystem::path& dir,
                                                  const std::vector<std::vector<std::string>>& args);

// Returns args followed by more.
std::vector<std::string> with(std::vector<std::string> args, std::initializer_list<std::string> more);
// Returns the JSON that a program writes by --summary.
nlohmann::json summary(const std::filesystem::path& file);
std::string bytes_of(const std::filesystem::path& file);
int count_of(const std::string& part, const std::string& text);

// Returns the samples of each step of a training from its --sample-log, in order. Steps that a later run
// repeated after a resumption count once.
std::vector<std::multiset<int64_t>> steps_in(const std::filesystem::path& log);
// Returns which samples do not occur exactly once in each epoch; "" if all do.
std::string check_each_once(const std::filesystem::path& log, int64_t samples, int64_t epochs);

}  // namespace gradus::examples
