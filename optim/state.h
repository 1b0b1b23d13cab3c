// State: what a checkpoint stores of an optimizer, a schedule or an average. StateReader: reads one by names.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gradus/tensor/named_tensors.h"

namespace gradus::optim {

// Named tensors and numbers.
struct State {
  NamedTensors tensors;
  std::vector<std::pair<std::string, double>> numbers;
};

// Collects everything that is wrong with a state, for one error, before anything is changed:
//
//   StateReader in(state);
//   const int64_t epoch = in.count("last_epoch");
//   in.then([=, this] { epoch_ = epoch; });
//   in.finish("this schedule");
//
// Each name is read once. What does not fit is read as 0, or as an undefined tensor.
class StateReader {
 public:
  explicit StateReader(const State& state);
  // Returns a reader of the same state that puts "prefix." in front of every name.
  StateReader below(const std::string& prefix) const;

  // Return whether there is something unread: of this name, or any.
  bool contains(const std::string& name) const;
  bool empty() const;

  // Returns any number; `otherwise` if it is missing, which is wrong all the same.
  double number(const std::string& name, double otherwise = 0);
  // Returns a finite number that is not negative.
  double rate(const std::string& name);
  // Returns a whole number.
  int64_t count(const std::string& name, int64_t least = 0);
  // Returns a copy of a tensor of this shape, with the options' dtype and device. Floating-point dtypes
  // are converted to each other, and so are integer dtypes.
  Tensor tensor(const std::string& name, const Shape& shape, const TensorOptions& options);

  // Adds a line to the list of what is wrong with `name`.
  void wrong(const std::string& name, const std::string& text);
  // Calls f in finish(), in the order of the calls, if nothing is wrong.
  void then(std::function<void()> f);
  // Checks that nothing is missing, unexpected, repeated or wrong, after the reading.
  // Errors: ValueError listing all of it. It says that the state does not fit `what`.
  void check(const std::string& what) const;
  // Ends the reading: checks, and calls what then() was given.
  void finish(const std::string& what);

 private:
  struct Content;
  StateReader(std::shared_ptr<Content> content, std::string prefix);
  std::shared_ptr<Content> content_;
  std::string prefix_;
};

}  // namespace gradus::optim
