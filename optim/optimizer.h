// Optimizer: updates parameters in place from their gradients. Parameters come in groups, each with
// its own options.
//
//   optim::SGD opt(net.parameters(), {.lr = 0.1, .momentum = 0.9});
//   opt.add_param_group(head.parameters(), {.lr = 1.0});
//   gm.backward(loss);
//   opt.step().clear_grad();
//
// A parameter without a gradient is skipped: neither it nor its state changes.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gradus/optim/state.h"
#include "gradus/tensor/base/required.h"
#include "gradus/tensor/ops/optim_step.h"
#include "gradus/tensor/tensor.h"

namespace gradus::optim {

class OptimizerWrapper;

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Updates every parameter that has a gradient, once. Of a parameter with a sparse gradient, SGD without momentum,
  // Adagrad, Adam and RMSprop update the gradient's rows and their states alone; for others the gradient is made
  // dense.
  // Errors: ValueError for a sparse gradient if one of these four has weight decay; StateError while an open
  // recording follows a parameter (run its backward or release it first); ShapeError, DTypeError, DeviceError for a
  // gradient that does not fit.
  Optimizer& step();
  // As step, but leaves parameters and states as they are if `found`, f32[] as raw::unscale_ returns it, is
  // not 0. On a CUDA device the kernels read `found`, and the host does not wait. The host waits for optimizers
  // without can_skip_on_device, and if a parameter is on another device than `found`.
  Optimizer& step_unless(const Tensor& found);
  // Drops all gradients: grad() is undefined afterward.
  Optimizer& clear_grad();

  // Keeps an f32 copy ("state.0.master") of every 16-bit parameter, from the parameter's next step on. Steps
  // change the copy, and the parameter is its rounded value. So steps that are too small for 16 bits add up.
  // When other code has changed the parameter, the next step copies the parameter again. Off: parameters are
  // rounded at each step.
  Optimizer& keep_master_weights(bool on = true);

  // Keeps the learning rates, and the counts of steps, on the parameters' CUDA devices, where kernels read
  // them, as PyTorch's `capturable` with a tensor as `lr`. A step that was captured then counts each time it
  // runs, and has the rate that was set last. set_lr queues the new rate on the current stream and does not
  // wait. All other options stay those of the launch. Off: rates are the launch's again.
  // Errors: ValueError for an optimizer without can_skip_on_device, such as LBFGS.
  Optimizer& make_capturable(bool on = true);

  size_t num_groups() const { return groups_.size(); }
  const std::vector<Tensor>& parameters(size_t group) const { return groups_.at(group).params; }
  std::vector<Tensor> parameters() const;  // of all groups

  // Adds parameters with the options of the first group, except for those given in `changes`: the rate, and
  // others by name ("weight_decay").
  // Errors: ValueError for a name that the options do not have, for a value that they do not allow, and for a
  // parameter that the optimizer already has.
  void add_param_group(const std::vector<Tensor>& params,
                       const std::vector<std::pair<std::string, double>>& changes = {});

  double lr(size_t group = 0) const;
  void set_lr(double lr);  // of all groups. Errors: ValueError below 0
  void set_lr(size_t group, double lr);
  double momentum(size_t group = 0) const;  // beta1 if the optimizer has betas; 0 if it has neither
  bool has_momentum() const;
  // Errors: ValueError if it has no momentum, and for a value that the optimizer's options do not allow.
  void set_momentum(size_t group, double momentum);
  // Returns the rate that schedules start from: the group's rate when the first schedule was made, or the one
  // set by set_initial_lr.
  double initial_lr(size_t group) const;
  void set_initial_lr(size_t group, double lr);

  // Returns options and per-parameter state, by parameter number: "state.0.momentum_buffer", "group.0.lr".
  // The tensors are shared, not copied. It waits for counts of steps that are on a device, as they are after
  // a step_unless there.
  // Errors: StateError between the batches of a step of an OptimizerWrapper, whose gradients are no part of it.
  virtual State state_dict() const;
  // Loads a state_dict of an optimizer of the same kind over parameters of the same shapes.
  // Tensors are copied.
  // Errors: StateError as in state_dict; ValueError that lists everything missing and unexpected and every
  // wrong shape. Nothing is changed then.
  void load_state_dict(const State& state);
  // Reads a state and leaves the changes to in.then(): load_state_dict as a part of a larger state's.
  virtual void read_state(StateReader in);

 protected:
  struct ParamState {
    int64_t step = 0;
    std::array<Tensor, 3> tensors;
    std::array<double, 2> numbers = {};
    Tensor on_device;  // StepItem::on_device: counts in place of `step` and `numbers` where it is defined
    Tensor master;     // f32; undefined if none is kept
    // The version of the parameter's storage when it was last rounded from `master`; none:
    // loaded from a file.
    std::optional<uint32_t> rounded_into;
  };
  // Names and values of a group's options, as numbers.
  using Numbers = std::vector<std::pair<const char*, double>>;

  Optimizer() = default;
  // Errors: ValueError for an undefined, repeated or empty list of parameters; DTypeError
  // unless floating point.
  void add_params(const std::vector<Tensor>& params);
  // Errors: StateError while an open recording follows the parameter, and for a gradient that a
  // GradScaler has multiplied.
  void check_step(const Tensor& param, const Tensor& grad) const;

  // Returns the optimizer's name: "SGD".
  virtual const char* kind() const = 0;
  // Return the names of the states, with a group's options or with these, in the order of StepItem::state;
  // null for a state that the options do not use.
  // Errors: ValueError for numbers that the options do not allow.
  virtual std::vector<const char*> group_state_names(size_t group) const = 0;
  virtual std::vector<const char*> state_names_with(const Numbers& numbers) const = 0;
  // Returns the value to fill a new state with.
  virtual double initial_state(size_t /*group*/, size_t /*state*/) const { return 0; }
  // Return the names of StepItem::numbers, and their initial values, and update them after a step.
  virtual std::vector<const char*> number_names() const { return {}; }
  virtual std::array<double, 2> initial_numbers(size_t /*group*/) const { return {}; }
  virtual void advance_numbers(size_t /*group*/, const raw::StepItem& /*item*/,
                               std::array<double, 2>& /*numbers*/) const {}
  virtual void step_group(size_t group, const std::vector<raw::StepItem>& items) = 0;
  // Returns whether step_group can step the rows of a sparse gradient alone. Where it cannot, the gradient is made
  // dense.
  // Errors: ValueError for options that concern all rows, such as weight decay.
  virtual bool steps_rows(size_t /*group*/) const { return false; }
  // Returns whether step_group's CUDA kernels read StepItem::on_device, `found` and `lr`.
  virtual bool can_skip_on_device() const { return false; }
  virtual void add_group(const std::vector<Tensor>& params, const Numbers& numbers) = 0;
  virtual Numbers group_numbers(size_t group) const = 0;
  virtual void set_group_numbers(size_t group, const Numbers& numbers) = 0;
  virtual double group_lr(size_t group) const = 0;
  virtual void set_group_lr(size_t group, double lr) = 0;
  // Queues a group's new rate for the devices that have the rate.
  void send_lr(size_t group, double lr) const;

 private:
  friend class OptimizerWrapper;
  void check_between_steps(const std::string& name) const;
  struct Group {
    std::vector<Tensor> params;
    std::vector<ParamState> states;
    std::optional<double> initial_lr;
    std::vector<Tensor> rates;  // StepItem::lr of each device
  };
  void check_group(size_t group) const;
  Tensor new_state(size_t group, size_t state, const Tensor& param) const;
  bool keeps_master_of(const Tensor& param) const;
  Tensor rate_on(Device device, size_t group);
  Optimizer& step_all(const Tensor& found);
  raw::StepItem step_item(size_t group, size_t param, const Tensor& found, bool counts_on_device);
  void prepare_state(size_t group, const Tensor& param, ParamState& state, bool counts_on_device);
  void end_step(size_t group, size_t param, const raw::StepItem& item);
  std::vector<Group> groups_;
  bool master_weights_ = false, capturable_ = false;
  int64_t accumulated_ = 0;  // batches whose gradients wait for the step; an OptimizerWrapper counts them
};

// An optimizer with options O per group. O is an aggregate with a member `lr`, a function `check()` and a
// static function `each(options, f)` that calls f("name", member) for every member. The library's optimizers
// are instantiated only in their own files (extern template). Members are not inline, because each program
// that includes them would compile them all.
template <class O> class OptimizerWith : public Optimizer {
 public:
  using Options = O;
  // Adds parameters with their own options.
  // Errors: ValueError for a parameter that the optimizer already has.
  void add_param_group(const std::vector<Tensor>& params, Options options);
  const Options& options(size_t group = 0) const { return options_.at(group); }
  void set_options(size_t group, Options options);

 protected:
  // Returns the names of the states with these options; see group_state_names.
  virtual std::vector<const char*> state_names(const Options& options) const = 0;
  std::vector<const char*> group_state_names(size_t group) const override;
  std::vector<const char*> state_names_with(const Numbers& numbers) const override;
  Numbers group_numbers(size_t group) const override;
  void set_group_numbers(size_t group, const Numbers& numbers) override;
  void add_group(const std::vector<Tensor>& params, const Numbers& numbers) override;
  double group_lr(size_t group) const override;
  void set_group_lr(size_t group, double lr) override;

 private:
  static Options with_numbers(Options options, const Numbers& numbers);
  std::vector<Options> options_;
};

template <class O> void OptimizerWith<O>::add_param_group(const std::vector<Tensor>& params, O options) {
  options.check();
  add_params(params);
  options_.push_back(options);
}
template <class O> void OptimizerWith<O>::set_options(size_t group, O options) {
  options.check();
  O& now = options_.at(group);
  if (double(now.lr) != double(options.lr)) send_lr(group, options.lr);
  now = options;
}
template <class O> std::vector<const char*> OptimizerWith<O>::group_state_names(size_t group) const {
  return state_names(options_[group]);
}
template <class O> std::vector<const char*> OptimizerWith<O>::state_names_with(const Numbers& numbers) const {
  const O options = with_numbers(options_.at(0), numbers);
  options.check();
  return state_names(options);
}
template <class O> Optimizer::Numbers OptimizerWith<O>::group_numbers(size_t group) const {
  Numbers numbers;
  O::each(options_[group], [&](const char* name, const auto& v) { numbers.emplace_back(name, double(v)); });
  return numbers;
}
template <class O> void OptimizerWith<O>::set_group_numbers(size_t group, const Numbers& numbers) {
  set_options(group, with_numbers(options_[group], numbers));
}
template <class O>
void OptimizerWith<O>::add_group(const std::vector<Tensor>& params, const Numbers& numbers) {
  OptimizerWith::add_param_group(params, with_numbers(options_.at(0), numbers));
}
template <class O> double OptimizerWith<O>::group_lr(size_t group) const { return options_[group].lr; }
template <class O> void OptimizerWith<O>::set_group_lr(size_t group, double lr) {
  O options = options_[group];
  options.lr = lr;
  set_options(group, options);
}
template <class O> O OptimizerWith<O>::with_numbers(O options, const Numbers& numbers) {
  auto it = numbers.begin();
  O::each(options, [&]<class T>(const char*, T& v) { v = static_cast<T>((it++)->second); });
  return options;
}

// Throws ValueError naming `op` and the option unless `holds` is true.
void check_option(bool holds, const char* op, const char* name, const char* expected, double value);
// Throws ValueError unless an optimizer that steps rows alone has no weight decay.
void check_no_decay_of_rows(const char* op, double weight_decay);
// Checks betas in the same way; they must lie in [0, 1).
void check_betas(const char* op, const std::array<double, 2>& betas);

}  // namespace gradus::optim
