// OptimizerDict: named optimizers of a model with several losses, such as a GAN; mmengine's OptimWrapperDict.
//
//   optim::OptimizerDict optimizers{{"gen", opt_g, gm_g}, {"disc", opt_d, gm_d}};
//   {
//     auto recording = optimizers["disc"].record();
//     optimizers["disc"].update_params(loss);  // backward, step, clear_grad
//   }
#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gradus/optim/optimizer_wrapper.h"

namespace gradus::optim {

// Refers to optimizers, managers and wrappers, which must outlive the dict. Entries keep their order. There
// is no step() or backward() for all optimizers, because each loss is optimized at its own time.
class OptimizerDict {
 public:
  struct Entry {
    Entry(std::string name, OptimizerWrapper& wrapper);
    // Construct a wrapper, which the dict owns. Without a manager the wrapper has no update_params(loss).
    // Errors: those of OptimizerWrapper.
    Entry(std::string name, Optimizer& optimizer);
    Entry(std::string name, Optimizer& optimizer, GradManager& gm, OptimizerWrapperOptions options = {});

    std::string name;
    std::shared_ptr<OptimizerWrapper> wrapper;
  };
  // Errors: ValueError for a name that is empty, dotted or repeated, and for an optimizer with two names.
  OptimizerDict(std::initializer_list<Entry> optimizers);

  // Errors: ValueError listing the existing names if there is no such optimizer.
  OptimizerWrapper& operator[](const std::string& name) const;
  bool contains(const std::string& name) const;
  size_t size() const { return entries_.size(); }
  std::vector<std::string> names() const;
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

  const OptimizerDict& clear_grad() const;                      // clears the gradients of all optimizers
  std::map<std::string, std::vector<double>> lr() const;        // per name, the learning rates of the groups
  std::map<std::string, std::vector<double>> momentum() const;  // the same for Optimizer::momentum

  // Returns the states of all optimizers, with names as "disc.state.0.momentum_buffer".
  // Errors: StateError naming an optimizer with accumulated gradients.
  State state_dict() const;
  // Loads the states of all optimizers.
  // Errors: as state_dict; ValueError listing missing, unexpected and mismatching entries. All optimizers are
  // then unchanged.
  void load_state_dict(const State& state) const;

 private:
  void check_between_steps() const;
  std::vector<Entry> entries_;
};

}  // namespace gradus::optim
