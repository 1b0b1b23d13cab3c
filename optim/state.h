// State: the named tensors and numbers that a checkpoint stores for an optimizer, a schedule, an average of
// weights or a GradScaler. StateReader: reads a State by name, and changes an object only if all entries fit.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gradus/tensor/named_tensors.h"

namespace gradus::optim {

struct State {
  NamedTensors tensors;  // references, not copies
  std::vector<std::pair<std::string, double>> numbers;
};

// Reads a State completely before any change is applied, and reports all errors at once:
//
//   StateReader in(state);
//   const int64_t epoch = in.count("last_epoch");
//   in.on_success([=, this] { epoch_ = epoch; });
//   in.finish("this schedule");
//
// Each name can be read once. Entries that are missing or do not match are read as the default or minimum of
// the call, or as an undefined tensor. Readers by with_prefix share entries and errors with this one.
class StateReader {
 public:
  explicit StateReader(const State& state);
  // Returns a reader of the same state that prepends "prefix." to every name.
  StateReader with_prefix(const std::string& prefix) const;

  // Return whether an unread entry has this name (with the prefix), and whether no entry with the prefix is
  // unread.
  bool contains(const std::string& name) const;
  bool empty() const;

  // Returns a number. A missing number is an error and is read as `default_value`.
  double number(const std::string& name, double default_value = 0);
  // Returns a finite number >= 0.
  double rate(const std::string& name);
  // Returns an integer in [min, 2^53).
  int64_t count(const std::string& name, int64_t min = 0);
  // Returns a copy of a tensor of this shape, converted to the options' dtype and device. A floating-point
  // dtype does not match an integer dtype.
  Tensor tensor(const std::string& name, const Shape& shape, const TensorOptions& options);

  // Adds an error about the entry `name`.
  void add_error(const std::string& name, const std::string& text);
  // Registers f, which finish() calls in order of registration if there is no error.
  void on_success(std::function<void()> f);
  // Checks, after all entries have been read, that there was no error and that no entry is unread.
  // Errors: ValueError that the state does not fit `what`, listing all errors and unread entries.
  void check(const std::string& what) const;
  // Calls check(what), and then the functions registered by on_success().
  void finish(const std::string& what);

 private:
  struct Content;
  StateReader(std::shared_ptr<Content> content, std::string prefix);
  std::shared_ptr<Content> content_;
  std::string prefix_;
};

}  // namespace gradus::optim
