// CommandLine: reads a program's options from its command line into variables.
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
// The options of RunOptions are added by the constructor. The values of variables before parsing are the
// defaults.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "gradus/tensor/base/device.h"
#include "gradus/tensor/base/dtype.h"

namespace gradus::training {

using OptionValue = std::variant<bool, int64_t, uint64_t, double, std::string>;

// The options of all programs that train, each with its name on the command line.
struct RunOptions {
  int nproc = 1, max_restarts = 0;     // --nproc, --max-restarts: ranks that the program starts itself
  int64_t epochs = 1, iterations = 0;  // --epochs; --iterations: steps to train for; 0: by epochs
  int64_t images = 0;                  // --images: images, of all ranks, to train on; 0: by the two above
  uint64_t seed = 1;                   // --seed
  bool diff_seed = false;              // --diff-seed: in training each rank draws numbers with seed + rank
  bool no_validate = false;            // --no-validate: no tests in training
  int64_t log_interval = 10;           // --log-interval: batches between two lines of the log
  bool dry_run = false;                // --dry-run: one training step and one test step
  int workers = 0, threads = 0;        // --workers: threads of the loader; --threads: of kernels; 0: default
  std::string resume = {}, checkpoint_dir = {};  // --resume FILE; --checkpoint-dir DIR
  int64_t checkpoint_interval = 0;               // --checkpoint-interval: batches; 0: after each epoch only
  std::string summary = {}, sample_log = {};     // --summary FILE (JSON), --sample-log FILE
  std::string tensorboard = {};                  // --tensorboard DIR
  // A program has --device, --devices, --amp or --capture only if it sets a default.
  std::optional<Device> device = {};  // --device: of the network and the batches; else the first of --devices
  // --devices, in programs with --device: each runs its part of a batch (dist::DataParallel). Without --devices,
  // parsing sets it to {device}.
  std::vector<Device> devices = {};
  // Whether --device was "cuda", without a number: run() then sets `device` and `devices` to dist::get_device().
  bool device_by_rank = false;
  std::optional<DType> amp = {};     // --amp: dtype of products and convolutions; f32 or bf16
  std::optional<bool> capture = {};  // --capture: steps are recorded and replayed (training_step)
  // With --device. --deterministic and --tf32: those of Context. --cudnn-benchmark: the first call of a convolution on
  // a GPU times cuDNN's engines, and chooses the fastest. The choices are cached on disk.
  bool deterministic = false, tf32 = false, cudnn_benchmark = true;

  // Every option of the program with its value, also defaults. Set by parse_or_exit().
  std::vector<std::pair<std::string, OptionValue>> values = {};
};

template <class T>
concept OptionVariable = std::same_as<T, int> || std::same_as<T, int64_t> || std::same_as<T, uint64_t> ||
                         std::same_as<T, double> || std::same_as<T, std::string>;

struct ArgumentOptions {
  // Bounds of a number: value >= at_least, value <= at_most, value > above. With any of them, numbers below 0
  // are refused unless at_least or above allows them, and integers above 2^40 unless at_most does.
  std::optional<double> at_least = {}, at_most = {}, above = {};
  std::vector<std::string> one_of = {};  // the allowed strings; empty: all
  std::string value = "";                // the name of the value in --help: "DIR"
};

class CommandLine {
 public:
  // `program` names the checkpoints: DIR/PROGRAM.ckpt. `about` is shown by --help. `run` must outlive this
  // object.
  CommandLine(const std::string& program, const std::string& about, RunOptions& run);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Adds an option. Names are separated by commas: "-a,--arch". A name without dashes is a positional
  // argument, a bool is a flag. An int64_t may have a unit, as in parse_count(). The variable must outlive
  // the CommandLine.
  template <OptionVariable T>
  void add(const std::string& names, T& variable, const std::string& help, const ArgumentOptions& o = {});
  void add(const std::string& names, bool& variable, const std::string& help);

  // Parses the command line, and the file of --config: TOML or INI, lines of NAME = VALUE, options of a section
  // [NAME] being NAME.OPTION. Exits with status 0 after --help, and with 2 after an error.
  void parse_or_exit(int argc, char** argv);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Parses different devices, as "cuda:0,cuda:1".
// Errors: ValueError for a text that Device::parse refuses, for meta, and for a repeated device.
std::vector<Device> parse_devices(std::string_view text);
// Returns run.devices as parse_devices() reads them, "cuda:0,cuda:1"; if there are none, run.device or "cpu".
std::string devices_text(const RunOptions& run);

// Parses a count from 0 to 2^40: "60000", "60k" and "0.06M" are equal. Returns nothing for other texts.
std::optional<int64_t> parse_count(const std::string& text);

}  // namespace gradus::training
