// Optimizer: updates parameters in place from their gradients, as torch.optim.Optimizer. Each group of
// parameters has its own options.
//
//   optim::SGD opt(net.parameters(), {.lr = 0.1, .momentum = 0.9});
//   opt.add_param_group(head.parameters(), {.lr = 1.0});
//   gm.backward(loss);
//   opt.step().clear_grad();
//
// A parameter without a gradient is skipped: the parameter and its state do not change. The optimizer has
// references to the parameters' tensors, which Module::to() converts in place. Calls from several threads
// must not overlap.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gradus/optim/state.h"
#include "gradus/tensor/base/required.h"
#include "gradus/tensor/ops/optim_step.h"
#include "gradus/tensor/runtime/capture.h"
#include "gradus/tensor/tensor.h"

namespace gradus::optim {

class OptimizerWrapper;

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Updates every parameter that has a gradient once. For a sparse gradient, SGD without momentum, Adagrad,
  // Adam, AdamW, SparseAdam and RMSprop update only the gradient's rows and their states; other optimizers convert the
  // gradient to a dense one.
  // Errors: ValueError for a sparse gradient if one of these six has weight decay, and for a dense gradient of
  // SparseAdam; StateError while an open
  // recording follows a parameter (run its backward or release it first), and for a gradient that a
  // GradScaler has scaled; ShapeError, DTypeError, DeviceError for a gradient that does not match its
  // parameter.
  Optimizer& step();
  // As step, but leaves parameters and states unchanged if `found` is not 0: the found-inf flag of
  // raw::unscale_, f32[]. On a CUDA device the kernels read `found`, and the host does not wait. The host
  // waits for optimizers without can_skip_on_device, and if a parameter with a gradient is on another device
  // than `found`.
  Optimizer& step_unless(const Tensor& found);
  // Sets all gradients to undefined, as zero_grad(set_to_none=True) of PyTorch.
  Optimizer& clear_grad();

  // Master weights: keeps an f32 copy ("state.0.master") of every 16-bit parameter from its next step on. A
  // step updates the copy, and rounds it into the parameter, so that updates smaller than the 16-bit
  // precision accumulate. If other code has written to the parameter, the next step copies the parameter
  // again. Off: steps update the 16-bit parameters.
  Optimizer& keep_master_weights(bool on = true);

  // For CUDA graphs: keeps learning rates and step counts on the parameters' CUDA devices, where kernels read
  // them, as PyTorch's `capturable` with a tensor as `lr`. Each replay of a captured step increments the step
  // count and uses the learning rate that was set last. set_lr queues the new rate on the current stream and
  // does not wait. All other options are those at the capture. Off: kernels get the rate at the launch.
  // Errors: ValueError for an optimizer without can_skip_on_device, such as LBFGS.
  Optimizer& make_capturable(bool on = true);

  size_t num_groups() const { return groups_.size(); }
  const std::vector<Tensor>& parameters(size_t group) const { return groups_.at(group).params; }
  std::vector<Tensor> parameters() const;  // of all groups

  // Adds a group of parameters with the options of the first group, except for those in `changes`, by name
  // ("lr", "weight_decay").
  // Errors: ValueError for a name that the options do not have, for a value out of range, and for a parameter
  // that the optimizer already has.
  void add_param_group(const std::vector<Tensor>& params,
                       const std::vector<std::pair<std::string, double>>& changes = {});

  // Errors of these functions: IndexError for a group that does not exist.
  double lr(size_t group = 0) const;
  void set_lr(double lr);  // of all groups. Errors: ValueError below 0
  void set_lr(size_t group, double lr);
  double momentum(size_t group = 0) const;  // beta1 if the optimizer has betas; 0 without momentum
  bool has_momentum() const;
  // Errors: ValueError for an optimizer without momentum, and for a value out of range.
  void set_momentum(size_t group, double momentum);
  // Returns the learning rate from which schedules start: the group's rate when its first schedule was
  // constructed, or the rate of set_initial_lr.
  double initial_lr(size_t group) const;
  void set_initial_lr(size_t group, double lr);

  // Returns options and per-parameter state, by index of group and parameter: "group.0.lr",
  // "state.0.momentum_buffer". The tensors are the optimizer's own, not copies. Waits for the device if step
  // counts are on a device.
  // Errors: StateError while an OptimizerWrapper has accumulated gradients, which a state does not contain.
  virtual State state_dict() const;
  // Loads, by copying, the state_dict of an optimizer of the same type with parameters of the same shapes.
  // Errors: StateError as state_dict; ValueError that lists all missing, unexpected and mismatching entries.
  // The optimizer is then unchanged.
  void load_state_dict(const State& state);
  // Reads the optimizer's part of a larger state, and registers the changes with in.on_success().
  virtual void read_state(StateReader in);

 protected:
  struct ParamState {
    int64_t step = 0;
    std::array<Tensor, 3> tensors;
    std::array<double, 2> numbers = {};
    Tensor on_device;  // StepItem::on_device; if defined, replaces `step` and `numbers`
    Tensor master;     // f32 master copy; undefined if the parameter has none
    // Version of the parameter's storage after `master` was last rounded into it; nullopt: `master` was
    // loaded.
    std::optional<uint32_t> rounded_version;
  };
  // Names and values of a group's options, as numbers.
  using OptionValues = std::vector<std::pair<const char*, double>>;

  Optimizer() = default;
  // Errors: ValueError for an undefined, repeated or empty list of parameters; DTypeError
  // unless floating point.
  void add_params(const std::vector<Tensor>& params);
  // Errors: StateError while an open recording follows the parameter, and for a gradient that a GradScaler
  // has scaled.
  void check_step(const Tensor& param, const Tensor& grad) const;

  // Returns the optimizer's name: "SGD".
  virtual const char* kind() const = 0;
  // Return the names of the state tensors in the order of StepItem::state, null for tensors that the options
  // do not use: for a group's options, or for these option values.
  // Errors: ValueError for values out of range.
  virtual std::vector<const char*> group_state_names(size_t group) const = 0;
  virtual std::vector<const char*> state_names_with(const OptionValues& values) const = 0;
  // Returns the shape of state tensor `state` of a parameter; nullopt if the parameter does not have it.
  virtual std::optional<Shape> state_shape(size_t state, const Tensor& param) const;
  // Throws ValueError for a parameter that the optimizer cannot step.
  virtual void check_param(const Tensor& /*param*/) const {}
  // Returns the initial value of the elements of state tensor `state`, an index into StepItem::state.
  virtual double initial_state(size_t /*group*/, size_t /*state*/) const { return 0; }
  // The names of StepItem::numbers (scalar state per parameter), their initial values, and their update after
  // a step.
  virtual std::vector<const char*> number_names() const { return {}; }
  virtual std::array<double, 2> initial_numbers(size_t /*group*/) const { return {}; }
  virtual void advance_numbers(size_t /*group*/, const raw::StepItem& /*item*/,
                               std::array<double, 2>& /*numbers*/) const {}
  // Updates the parameters of `items` in place: one item per parameter of the group that has a gradient.
  virtual void step_group(size_t group, const std::vector<raw::StepItem>& items) = 0;
  // Returns whether step_group can update only the rows of a sparse gradient. If false, the gradient is
  // converted to a dense one.
  // Errors: ValueError for options that change all rows, such as weight decay.
  virtual bool supports_sparse_rows(size_t /*group*/) const { return false; }
  // Returns whether step_group can update only the rows of a sparse gradient: a dense one is a ValueError.
  virtual bool needs_sparse_rows() const { return false; }
  // Returns whether step_group's CUDA kernels read StepItem::on_device, `found` and `lr`.
  virtual bool can_skip_on_device() const { return false; }
  // `values` has all options of a group, in the order of option_values.
  virtual void add_group(const std::vector<Tensor>& params, const OptionValues& values) = 0;
  virtual OptionValues option_values(size_t group) const = 0;
  virtual void set_option_values(size_t group, const OptionValues& values) = 0;
  virtual double group_lr(size_t group) const = 0;
  virtual void set_group_lr(size_t group, double lr) = 0;
  // Counts a change of options other than the learning rate.
  void count_change(const OptionValues& before, const OptionValues& after);
  // Queues a write of a group's new learning rate on the devices that have a copy of the rate.
  void update_device_lr(size_t group, double lr) const;

 private:
  friend class OptimizerWrapper;
  // Errors: StateError, naming the function, while an OptimizerWrapper has accumulated gradients.
  void check_between_steps(const std::string& name) const;
  struct Group {
    std::vector<Tensor> params;
    std::vector<ParamState> states;
    std::optional<double> initial_lr;
    std::vector<Tensor> rates;  // StepItem::lr of each device
  };
  void check_group(size_t group) const;
  Tensor new_state(size_t group, size_t state, const Tensor& param) const;
  // Returns the names of a parameter's state tensors, null for those that the parameter does not have.
  std::vector<const char*> state_names_of(std::vector<const char*> names, const Tensor& param) const;
  bool keeps_master_of(const Tensor& param) const;
  Tensor device_lr(Device device, size_t group);
  // `found`: the flag of step_unless, f32[] on a CUDA device; undefined: an unconditional step.
  Optimizer& step_all(const Tensor& found);
  // The gradient of one parameter, by the indices of its group and of the parameter in it.
  struct Gradient {
    size_t group, param;
    Tensor grad;
  };
  void step_with(const std::vector<Gradient>& grads, const Tensor& found);
  bool are_masters_current() const;
  raw::StepItem step_item(const Gradient& of, const Tensor& found, bool counts_on_device);
  void prepare_state(size_t group, const Tensor& param, ParamState& state, bool counts_on_device);
  void end_step(size_t group, size_t param, const raw::StepItem& item);
  std::vector<Group> groups_;
  bool master_weights_ = false, capturable_ = false;
  uint64_t changes_ = 0;     // of states, options and groups, which replays of a captured step do not see
  int64_t accumulated_ = 0;  // batches accumulated since the last step, counted by an OptimizerWrapper
};

// An optimizer with options O per group. O is an aggregate with a member `lr`, a function `check()` and a
// static function `each(options, f)` that calls f("name", member) for every member. The library's optimizers
// are instantiated only in their own files (extern template); members are defined outside of the class, so
// that `extern template` applies.
template <class O> class OptimizerWith : public Optimizer {
 public:
  using Options = O;
  // Adds a group of parameters with these options.
  // Errors: ValueError for a parameter that the optimizer already has.
  void add_param_group(const std::vector<Tensor>& params, Options options);
  const Options& options(size_t group = 0) const { return options_.at(group); }
  void set_options(size_t group, Options options);

 protected:
  // Returns the names of the state tensors for these options; see group_state_names.
  virtual std::vector<const char*> state_names(const Options& options) const = 0;
  std::vector<const char*> group_state_names(size_t group) const override;
  std::vector<const char*> state_names_with(const OptionValues& values) const override;
  OptionValues option_values(size_t group) const override;
  void set_option_values(size_t group, const OptionValues& values) override;
  void add_group(const std::vector<Tensor>& params, const OptionValues& values) override;
  double group_lr(size_t group) const override;
  void set_group_lr(size_t group, double lr) override;

 private:
  static Options with_values(Options options, const OptionValues& values);
  std::vector<Options> options_;
};

template <class O> void OptimizerWith<O>::add_param_group(const std::vector<Tensor>& params, O options) {
  options.check();
  add_params(params);
  options_.push_back(options);
}
template <class O> void OptimizerWith<O>::set_options(size_t group, O options) {
  options.check();
  refuse_capture(kind(), "options are numbers of the host; set them between steps");
  O& now = options_.at(group);
  if (double(now.lr) != double(options.lr)) update_device_lr(group, options.lr);
  const OptionValues before = option_values(group);
  now = options;
  count_change(before, option_values(group));
}
template <class O> std::vector<const char*> OptimizerWith<O>::group_state_names(size_t group) const {
  return state_names(options_[group]);
}
template <class O>
std::vector<const char*> OptimizerWith<O>::state_names_with(const OptionValues& values) const {
  const O options = with_values(options_.at(0), values);
  options.check();
  return state_names(options);
}
template <class O> Optimizer::OptionValues OptimizerWith<O>::option_values(size_t group) const {
  OptionValues values;
  O::each(options_[group], [&](const char* name, const auto& v) { values.emplace_back(name, double(v)); });
  return values;
}
template <class O> void OptimizerWith<O>::set_option_values(size_t group, const OptionValues& values) {
  set_options(group, with_values(options_[group], values));
}
template <class O>
void OptimizerWith<O>::add_group(const std::vector<Tensor>& params, const OptionValues& values) {
  OptimizerWith::add_param_group(params, with_values(options_.at(0), values));
}
template <class O> double OptimizerWith<O>::group_lr(size_t group) const { return options_[group].lr; }
template <class O> void OptimizerWith<O>::set_group_lr(size_t group, double lr) {
  O options = options_[group];
  options.lr = lr;
  set_options(group, options);
}
template <class O> O OptimizerWith<O>::with_values(O options, const OptionValues& values) {
  auto it = values.begin();
  O::each(options, [&]<class T>(const char*, T& v) { v = static_cast<T>((it++)->second); });
  return options;
}

// An optimizer whose step is one kernel call per group. Beside the members that OptimizerWith requires, O has
//   static constexpr const char* kName;                       the optimizer's name: "SGD"
//   static raw::StepSlot<O> step_kernel;                      its CUDA kernel reads on_device, found and lr
//   std::vector<const char*> state_names() const;             see Optimizer::group_state_names
// and those of these functions, described in Optimizer, whose results differ from Optimizer's:
//   double initial_state(size_t state) const;
//   bool supports_sparse_rows() const;
//   static constexpr bool kNeedsSparseRows = true;
//   std::vector<const char*> number_names() const;            together with
//   std::array<double, 2> initial_numbers() const;            and
//   void advance_numbers(const raw::StepItem&, std::array<double, 2>& numbers) const;
template <class O> class KernelOptimizer final : public OptimizerWith<O> {
 public:
  explicit KernelOptimizer(const std::vector<Tensor>& params, O options = {});

 private:
  const char* kind() const override { return O::kName; }
  std::vector<const char*> state_names(const O& o) const override { return o.state_names(); }
  double initial_state(size_t group, size_t state) const override;
  std::vector<const char*> number_names() const override;
  std::array<double, 2> initial_numbers(size_t group) const override;
  void advance_numbers(size_t group, const raw::StepItem& item,
                       std::array<double, 2>& numbers) const override;
  void step_group(size_t group, const std::vector<raw::StepItem>& items) override;
  bool supports_sparse_rows(size_t group) const override;
  bool needs_sparse_rows() const override;
  bool can_skip_on_device() const override { return true; }
};

template <class O> KernelOptimizer<O>::KernelOptimizer(const std::vector<Tensor>& params, O options) {
  this->add_param_group(params, options);
}
template <class O> double KernelOptimizer<O>::initial_state(size_t group, size_t state) const {
  if constexpr (requires(const O& o) { o.initial_state(state); })
    return this->options(group).initial_state(state);
  return 0;
}
template <class O> std::vector<const char*> KernelOptimizer<O>::number_names() const {
  if constexpr (requires(const O& o) { o.number_names(); }) return this->options().number_names();
  return {};
}
template <class O> std::array<double, 2> KernelOptimizer<O>::initial_numbers(size_t group) const {
  if constexpr (requires(const O& o) { o.initial_numbers(); }) return this->options(group).initial_numbers();
  return {};
}
template <class O>
void KernelOptimizer<O>::advance_numbers(size_t group, const raw::StepItem& item,
                                         std::array<double, 2>& numbers) const {
  if constexpr (requires(const O& o) { o.advance_numbers(item, numbers); })
    this->options(group).advance_numbers(item, numbers);
}
// The file that instantiates this function must include gradus/tensor/kernel.h.
template <class O>
void KernelOptimizer<O>::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::run_step(O::step_kernel, items, this->options(group));
}
template <class O> bool KernelOptimizer<O>::supports_sparse_rows(size_t group) const {
  if constexpr (requires(const O& o) { o.supports_sparse_rows(); })
    return this->options(group).supports_sparse_rows();
  return false;
}
template <class O> bool KernelOptimizer<O>::needs_sparse_rows() const {
  return requires { O::kNeedsSparseRows; };
}

// Throws ValueError "[op] expected NAME EXPECTED, got VALUE" unless `holds`.
void check_option(bool holds, const char* op, const char* name, const char* expected, double value);
// Throws ValueError unless all options, by name, are >= 0.
void check_not_negative(const char* op, std::initializer_list<std::pair<const char*, double>> options);
// Throws ValueError unless weight_decay is 0, as required for updates of the rows of a sparse gradient alone.
void check_no_weight_decay_for_sparse(const char* op, double weight_decay);
// Throws ValueError unless both betas are in [0, 1).
void check_betas(const char* op, const std::array<double, 2>& betas);

}  // namespace gradus::optim
