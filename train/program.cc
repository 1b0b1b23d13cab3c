// run(): decides whether this process is a rank or starts ranks as child processes, checks the options, calls
// the body between loading and saving the choices of convolution algorithms, and maps exceptions to messages on
// stderr and an exit status (list in program.h).
#include "gradus/train/program.h"

#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "gradus/data/files/download.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/launch/launcher.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/ops/images/conv_benchmark.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/environment.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tensor/runtime/warning.h"
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

// Errors: ValueError for --devices with several ranks or with --capture, and for --capture with several ranks on the CPU.
void check_ranks(const std::string& name, const RunOptions& o, int ranks) {
  if (o.devices.size() > 1 && ranks > 1)
    throw ValueError(name, "--devices goes with one rank alone, without --nproc and --pipeline, got ", ranks,
                     " ranks");
  if (o.devices.size() > 1 && o.capture.value_or(false))
    throw ValueError(name, "--devices does not go with --capture: a step is captured on one device");
  if (ranks > 1 && o.capture.value_or(false) && o.device.value_or(kCPU) == kCPU)
    throw ValueError(name, "--capture on the CPU goes with one rank alone, got ", ranks,
                     ": a replay does not call other ranks there; with --device cuda it does");
}

// Calls load or save of raw::conv_benchmark with a folder in the user's cache. A failure is a warning, or nothing
// for a missing device or library: an op that needs one throws the error.
void access_cache(decltype(raw::ConvBenchmark::load) function, Device device) {
  try {
    function(data::cache_dir() / "cudnn_plans", device);
  } catch (const DeviceError&) {
  } catch (const Error& e) {
    warn_once(concat(e.what(), "; convolutions are timed again"));
  }
}

// Runs `train` on this rank with --threads threads, --deterministic, --tf32 and --cudnn-benchmark. Returns the
// exit status: 0, or 130 after Interrupted.
// Errors: FileError for a missing folder; those of `train`.
int run_on_this_rank(const std::string& name, RunOptions& o, const std::function<void()>& train) {
  for (const std::string& file : {o.summary, o.sample_log})
    if (!file.empty()) check_folder_of(file);
  // Without a GPU the device stays cuda:0: the DeviceError of its first use gives the reason.
  if (const Device own = o.device_by_rank ? dist::get_device() : kCPU; own != kCPU)
    o.device = own, o.devices = {own};
  if (o.threads > 0) set_num_threads(o.threads);
  if (o.deterministic) Context::current().deterministic = true;
  if (o.tf32) Context::current().tf32 = true;
  const bool benchmark =
      o.cudnn_benchmark && o.device && o.device->type == DeviceType::kCUDA && raw::conv_benchmark.enable;
  const std::vector<Device> devices = o.devices.empty() ? std::vector{o.device.value_or(kCPU)} : o.devices;
  if (benchmark) {
    raw::conv_benchmark.enable(true);
    for (const Device device : devices) access_cache(raw::conv_benchmark.load, device);
  }
  int status = 0;
  try {
    train();
  } catch (const Interrupted& interrupted) {
    if (is_first_rank())
      std::cerr << name << ": interrupted; "
                << (interrupted.checkpoint.empty() ? "nothing is saved without --checkpoint-dir"
                                                   : "continue with --resume " + interrupted.checkpoint)
                << std::endl;
    status = 130;  // 128 + SIGINT, as shells report it
  }
  if (benchmark && dist::get_local_rank() == 0)
    for (const Device device : devices) access_cache(raw::conv_benchmark.save, device);
  return status;
}

}  // namespace

CapturedStep::Function training_step(const RunOptions& options, CapturedStep::Function step) {
  if (!options.capture.value_or(false)) return step;
  return [captured = std::make_shared<CapturedStep>(std::move(step))](const CapturedStep::Tensors& inputs) {
    return (*captured)(inputs);
  };
}

int run(const std::string& name, RunOptions& o, const std::function<void()>& train) {
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
