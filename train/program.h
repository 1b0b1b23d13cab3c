// The frame of a training program: its ranks, its errors, its exit status.
//
//   int main(int argc, char** argv) { return training::run("mnist", parse(argc, argv), fit); }
#pragma once

#include <concepts>
#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/train/command_line.h"

namespace gradus::training {

// Somebody asked to stop: where to go on, if there is a checkpoint.
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

// Calls `body` on every rank, and returns the program's exit status: 0; 130 when SIGINT or SIGTERM stopped the
// training, also if one rank alone got it (then no rank starts again); 1 after an exception, which becomes
// one line. Outputs that cannot be written are noticed before the training.
int run(const std::string& name, const RunOptions& options, const std::function<void()>& body);
// The same for a function of the options: run("mnist", parse(argc, argv), fit).
template <std::derived_from<RunOptions> Options>
int run(const std::string& name, const Options& options, void (*body)(const Options&)) {
  return run(name, options, [&] { body(options); });
}

// Opens the scope in which networks compute as --amp says.
inline Autocast mixed_precision(const RunOptions& options) {
  return autocast(DType::kBF16, {.enabled = options.amp == DType::kBF16});
}

}  // namespace gradus::training
