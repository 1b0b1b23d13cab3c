// CommandLine: a program's options, from its command line into variables.
//
//   struct Args : training::RunOptions {
//     int64_t batch_size = 64;
//     double lr = 1.0;
//   } args;
//   training::CommandLine line("mnist", "Trains a convolutional network on MNIST", args);
//   line.add("--batch-size", args.batch_size, "images per training step, of each rank", {.at_least = 1});
//   line.add("--lr", args.lr, "learning rate", {.at_least = 0});
//   line.parse_or_exit(argc, argv);
//
// It knows the options of RunOptions by itself. What the variables hold before are the defaults.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gradus/tensor/base/device.h"
#include "gradus/tensor/base/dtype.h"

namespace gradus::training {

using OptionValue = std::variant<bool, int64_t, uint64_t, double, std::string>;

// What programs that train have in common.
struct RunOptions {
  int nproc = 1, max_restarts = 0;     // --nproc, --max-restarts: ranks that the program starts itself
  int64_t epochs = 1, iterations = 0;  // --epochs; --iterations: ends after so many steps; 0: by epochs
  int64_t images = 0;                  // --images: ends when so many have been shown; 0: by the two above
  uint64_t seed = 1;                   // --seed
  int64_t log_interval = 10;           // --log-interval: batches between two lines of the log
  bool dry_run = false;                // --dry-run: one training step and one test step
  int workers = 0, threads = 0;        // --workers of the loader; --threads that compute; 0: the default
  std::string resume = {}, checkpoint_dir = {};  // --resume FILE; --checkpoint-dir DIR
  int64_t checkpoint_interval = 0;               // --checkpoint-interval: batches; 0: after each epoch alone
  std::string summary = {}, sample_log = {};     // --summary FILE (JSON), --sample-log FILE
  std::string tensorboard = {};                  // --tensorboard DIR
  // Programs that read one of these set a default.
  std::optional<Device> device = {};  // --device: where the network and the batches are
  std::optional<DType> amp = {};      // --amp: what products and convolutions are computed in; f32, or bf16

  // Every option of the program with its value, defaults included, once the command line has been read.
  std::vector<std::pair<std::string, OptionValue>> values = {};
};

struct ArgumentOptions {
  std::optional<double> at_least = {}, at_most = {}, above = {};
  std::vector<std::string> one_of = {};
  std::string value = "";  // how --help names the value: "DIR"
};

class CommandLine {
 public:
  // `program` names the checkpoints: DIR/PROGRAM.ckpt.
  CommandLine(const std::string& program, const std::string& about, RunOptions& run);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Adds an option. Names are separated by commas: "-a,--arch". A name without dashes is an argument without
  // a name of its own. A bool is set by its name alone. Integers may be written as count_of() reads them. The
  // variable must outlive the CommandLine.
  void add(const std::string& names, int& variable, const std::string& help, const ArgumentOptions& o = {});
  void add(const std::string& names, int64_t& variable, const std::string& help,
           const ArgumentOptions& o = {});
  void add(const std::string& names, uint64_t& variable, const std::string& help,
           const ArgumentOptions& o = {});
  void add(const std::string& names, double& variable, const std::string& help,
           const ArgumentOptions& o = {});
  void add(const std::string& names, std::string& variable, const std::string& help,
           const ArgumentOptions& o = {});
  void add(const std::string& names, bool& variable, const std::string& help);

  // Reads the command line, or ends the program: with status 0 after --help, with 2 after a mistake.
  void parse_or_exit(int argc, char** argv);

 private:
  template <class T>
  void add_option(const std::string& names, T& variable, const std::string& help, const ArgumentOptions& o);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns the count that a text says: "60000", "60k" and "0.06M" are the same. Returns nothing for a text
// that says no whole number from 0 to 2^40.
std::optional<int64_t> count_of(const std::string& text);

}  // namespace gradus::training
