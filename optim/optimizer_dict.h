// OptimizerDict: the optimizers of a model with several losses, by name.
//
//   optim::OptimizerDict optimizers{{"gen", opt_g}, {"disc", opt_d}};
//   optimizers["disc"].step().clear_grad();
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gradus/optim/optimizer.h"

namespace gradus::optim {

// Holds references: the optimizers must outlive it. Keeps the order in which they were named. There is no
// step() and no backward() for all of them, because each loss has its own time for them (mmengine's
// OptimWrapperDict refuses them as well).
class OptimizerDict {
 public:
  using Entry = std::pair<std::string, std::reference_wrapper<Optimizer>>;
  // Errors: ValueError for a name that is empty, dotted or repeated.
  OptimizerDict(std::initializer_list<Entry> optimizers);

  // Errors: ValueError listing the existing names.
  Optimizer& operator[](const std::string& name) const;
  bool contains(const std::string& name) const;
  size_t size() const { return entries_.size(); }
  std::vector<std::string> names() const;
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

  const OptimizerDict& clear_grad() const;                      // clears the gradients of all optimizers
  std::map<std::string, std::vector<double>> lr() const;        // for each name, the rates of its groups
  std::map<std::string, std::vector<double>> momentum() const;  // the same for Optimizer::momentum

  // Returns "disc.state.0.momentum_buffer", ...
  State state_dict() const;
  // Errors: ValueError listing what does not fit an optimizer, or belongs to none. Nothing is changed then.
  void load_state_dict(const State& state) const;

 private:
  std::vector<Entry> entries_;
};

}  // namespace gradus::optim
