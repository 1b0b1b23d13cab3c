// run(): decides whether this process is a rank or starts ranks as child processes, checks the options, calls
// the body, and maps exceptions to messages on stderr and an exit status (list in program.h).
#include "gradus/train/program.h"

#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "gradus/distributed/launch/launcher.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/environment.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/train/ranks.h"

namespace gradus::training {
namespace fs = std::filesystem;
namespace {

// Errors: FileError if the file's folder does not exist.
void check_folder_of(const fs::path& file) {
  const fs::path dir = file.has_parent_path() ? file.parent_path() : ".";
  if (!fs::is_directory(dir))
    throw FileError("run", "there is no folder ", dir.string(), " for ", file.string());
}

// Errors: DeviceError for several ranks on GPUs; ValueError for several ranks whose steps are captured.
void check_ranks(const std::string& name, const RunOptions& o, int ranks) {
  if (ranks > 1 && o.capture.value_or(false))
    throw ValueError(name, "--capture goes with one rank alone, got ", ranks,
                     ": a replay does not average gradients over ranks");
  if (ranks > 1 && o.device && o.device->type == DeviceType::kCUDA)
    throw DeviceError(name, "--device ", *o.device, " goes with one rank alone, got ", ranks,
                      ": gradients on GPUs are not averaged over ranks yet");
}

// Runs `train` on this rank with --threads threads. Returns the exit status: 0, or 130 after Interrupted.
// Errors: FileError for a missing folder; those of `train`.
int run_on_this_rank(const std::string& name, const RunOptions& o, const std::function<void()>& train) {
  for (const std::string& file : {o.summary, o.sample_log})
    if (!file.empty()) check_folder_of(file);
  if (o.threads > 0) set_num_threads(o.threads);
  try {
    train();
    return 0;
  } catch (const Interrupted& interrupted) {
    if (is_first_rank())
      std::cerr << name << ": interrupted; "
                << (interrupted.checkpoint.empty() ? "nothing is saved without --checkpoint-dir"
                                                   : "continue with --resume " + interrupted.checkpoint)
                << std::endl;
    return 130;  // 128 + SIGINT, as shells report it
  }
}

}  // namespace

CapturedStep::Function training_step(const RunOptions& options, CapturedStep::Function step) {
  if (!options.capture.value_or(false)) return step;
  return [captured = std::make_shared<CapturedStep>(std::move(step))](const CapturedStep::Tensors& inputs) {
    return (*captured)(inputs);
  };
}

int run(const std::string& name, const RunOptions& o, const std::function<void()>& train) {
  const auto body = [&] { return run_on_this_rank(name, o, train); };
  try {
    const std::optional<Environment> job = read_environment();
    check_ranks(name, o, job ? job->world_size : o.nproc);
    // A single rank runs in this process unless it needs a launcher.
    if (o.nproc == 1 && o.max_restarts == 0 && !job) return body();
    return dist::internal::launch_program({.nproc_per_node = o.nproc,
                                           .max_restarts = o.max_restarts,
                                           .threads_per_rank = o.threads,
                                           .shutdown_timeout = dist::Milliseconds(10'000)},
                                          body);
  } catch (const std::exception& e) {
    std::cerr << name << ": " << e.what() << std::endl;
    return 1;
  }
}

}  // namespace gradus::training
