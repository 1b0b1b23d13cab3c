// What main() of a training program calls: run() starts the ranks (processes of a distributed job) that the
// command line requests, prints errors, and returns the exit status.
//
//   int main(int argc, char** argv) { return training::run("mnist", parse(argc, argv), fit); }
#pragma once

#include <concepts>
#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "gradus/autograd/captured_step.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/train/command_line.h"

namespace gradus::training {

// Thrown by the training loop (Training), on every rank, once a rank has received SIGINT or SIGTERM. `checkpoint`
// is the file to resume from, empty if nothing was saved.
struct Interrupted : std::exception {
  explicit Interrupted(std::string file)
      : checkpoint(std::move(file)),
        text_("interrupted; " +
              (checkpoint.empty() ? "nothing is saved" : "the training goes on from " + checkpoint)) {}
  const char* what() const noexcept override { return text_.c_str(); }

  std::string checkpoint;

 private:
  std::string text_;
};

// Runs `body` on every rank and returns the exit status of the program. `name` begins the messages. One rank runs
// in this process; with --nproc or --max-restarts, launch_program() starts the ranks as child processes, each of
// which runs the program again; under a launcher such as torchrun, this process is one of the ranks.
//
// Before it calls `body`, a rank checks that the folders of the --summary and --sample-log files exist, and if
// options.device_by_rank sets options.device and options.devices to dist::get_device(); without a GPU they stay
// cuda:0. With --device cuda, `body` runs between load and save of raw::conv_benchmark, unless
// --cudnn-benchmark=false; on each host the rank of local rank 0 saves. A rank whose `body` throws Interrupted is not
// restarted. After another failure of a rank all ranks are restarted, at most --max-restarts times.
//
// Exit status; unless it is 0, the reason is printed:
//   0        `body` returned on every rank
//   130      `body` threw Interrupted, also if only one rank received the signal
//   128 + n  the process that started child processes received the signal n
//   1        another error, such as an exception of `body`, or ValueError for --devices with several ranks or
//            --capture, and for --capture with several ranks on the CPU
int run(const std::string& name, RunOptions& options, const std::function<void()>& body);
// The same for a body that takes the options: run("mnist", parse(argc, argv), fit).
template <std::derived_from<RunOptions> Options>
int run(const std::string& name, Options options, void (*body)(const Options&)) {
  return run(name, options, [&] { body(options); });
}

// Returns a scope (RAII) in which ops of this thread run under bf16 autocast if --amp is bf16; otherwise they run
// without autocast.
inline Autocast mixed_precision(const RunOptions& options) {
  return autocast(DType::kBF16, {.enabled = options.amp == DType::kBF16});
}

// Returns the step of a training loop: `step` itself, or with --capture a CapturedStep of it.
CapturedStep::Function training_step(const RunOptions& options, CapturedStep::Function step);

}  // namespace gradus::training
