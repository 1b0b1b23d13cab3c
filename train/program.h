// main() of a training program: starts ranks, reports errors, returns the exit status.
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

// Thrown after SIGINT or SIGTERM, with the checkpoint to resume from ("": none).
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

// Runs `body` on every rank, and returns the exit status of the program: 0; 130 if SIGINT or SIGTERM, also to
// a single rank, stopped the training, without a restart; 1 after an exception, whose text is printed. Checks
// the folders of outputs before it starts.
int run(const std::string& name, const RunOptions& options, const std::function<void()>& body);
// The same with a function of the options: run("mnist", parse(argc, argv), fit).
template <std::derived_from<RunOptions> Options>
int run(const std::string& name, const Options& options, void (*body)(const Options&)) {
  return run(name, options, [&] { body(options); });
}

// Enters autocast if --amp is bf16.
inline Autocast mixed_precision(const RunOptions& options) {
  return autocast(DType::kBF16, {.enabled = options.amp == DType::kBF16});
}

}  // namespace gradus::training
