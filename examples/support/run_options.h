// RunOptions: the command line that training programs have in common.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace gradus::examples {

// A program sets its own defaults before add_run_options.
struct RunOptions {
  int nproc = 1, max_restarts = 0;
  int64_t epochs = 1;
  uint64_t seed = 1;
  int64_t log_interval = 10;
  bool dry_run = false;
  int workers = 0, threads = 0;
  std::string resume, checkpoint_dir;
  int64_t checkpoint_interval = 0;
  std::string summary, sample_log, tensorboard;

  // Every option of the program with its value, defaults included: what a summary says.
  std::vector<std::pair<std::string, std::string>> values;
};

// Makes the options known under the names that all programs give them; `program` names the checkpoints.
void add_run_options(CLI::App& app, RunOptions& options, const std::string& program);

// Numbers from `low` on.
CLI::Validator at_least(int64_t low);

// Reads the command line, or ends the program: with status 0 after --help, with 2 after a mistake.
void parse_or_exit(CLI::App& app, RunOptions& options, int argc, char** argv);

}  // namespace gradus::examples
