// Module: a tree of named parameters, buffers and child modules. Members register themselves, so each
// name is typed once:
//
//   struct Net : nn::Layer {
//     nn::Linear fc{this, "fc", {.in = 784, .out = 10}};        // a child
//     nn::Parameter scale{this, "scale", ones({10})};           // a parameter of its own
//     Tensor forward(const Tensor& x) override { return fc(x) * scale; }
//   };
//
// A module is neither copied nor moved. To get a second instance, build it again and call copy_state_.
// Functions that change parameters (load_state_dict, to, optimizers) change the tensors' contents; the
// tensors stay the same objects.
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradus/nn/call_filter.h"
#include "gradus/tensor/base/required.h"
#include "gradus/tensor/named_tensors.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/tensor.h"

namespace gradus::nn {

class Module;

namespace internal {

// Collects, during its lifetime, notes on modules without a parent that this thread calls within other
// modules. The parameters of such a module do not belong to the module that calls it.
class ApartCalls {
 public:
  ApartCalls();
  ~ApartCalls();
  ApartCalls(const ApartCalls&) = delete;
  ApartCalls& operator=(const ApartCalls&) = delete;
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  friend class nn::Module;
  std::vector<std::string> notes_;
  ApartCalls* const outer_;
};

}  // namespace internal

// Names and tensors in registration order: state.at("fc.weight"), state.contains("fc.bias"). The tensors
// share storage with the module.
using StateDict = NamedTensors;

// A learned tensor: a member of a module, registered under a name. An undefined one is an absent parameter.
class Parameter : public Tensor {
 public:
  Parameter(Module* owner, std::string name, Tensor value);
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;
  ~Parameter();

  // As x[...] of a const Tensor: `weight[0] = v` writes into the parameter, and never replaces it.
  Indexed operator[](std::initializer_list<Index> index) const;
  Indexed operator[](const Index& index) const;

 private:
  Module* owner_;
};

struct BufferOptions {
  bool persistent = true;  // part of state_dict
};

// A tensor of a module's state that is not learned (running statistics).
class Buffer : public Tensor {
 public:
  Buffer(Module* owner, std::string name, Tensor value, BufferOptions options = {});
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

 private:
  Module* owner_;
};

struct LoadOptions {
  bool strict = true;  // missing and unexpected names are errors
  // Modules, parameters and buffers to keep as they are, even if the state contains them: {"fc"} for a head
  // with another number of classes.
  std::vector<std::string> except = {};
};

// Selects parameters of a module, by dotted paths of modules or parameters: {.except
// = {"layer1", "fc.bias"}}.
struct ParameterOptions {
  std::vector<std::string> only = {};  // empty: all
  std::vector<std::string> except = {};
};

// The names that a load skipped: missing and unexpected ones when it was not strict, and those
// kept by `except`.
struct LoadReport {
  std::vector<std::string> missing, unexpected, kept;
};

class Module {
 public:
  // Makes a root.
  Module() = default;
  // Makes a child of `parent`. The name must be unique there and must not contain a dot.
  // Errors: ValueError.
  Module(Module* parent, std::string name);
  virtual ~Module();
  Module(const Module&) = delete;  // pass modules by reference; to copy one, build another and copy_state_
  Module& operator=(const Module&) = delete;

  const std::string& name() const { return name_; }  // "" for a root
  std::string path() const;                          // "layer3.1.conv2"; "" for a root
  Module* parent() const { return parent_; }
  const std::vector<Module*>& children() const { return children_; }
  // Returns this module (named "") and all modules below, each before its children.
  std::vector<std::pair<std::string, Module*>> named_modules();
  // Returns the module at a dotted path below this one.
  // Errors: ValueError listing the names that exist.
  Module& find(const std::string& path);

  // Returns each distinct parameter once, in registration order: this module's own, then the children's.
  std::vector<Tensor> parameters() const;
  StateDict named_parameters() const;
  // Returns the selected parameters only. Parameters that are not attached do not change, so attaching
  // parameters({.except = {"body"}}) freezes the body.
  // Errors: ValueError for a path that leads to no parameter.
  std::vector<Tensor> parameters(const ParameterOptions& options) const;
  StateDict named_parameters(const ParameterOptions& options) const;
  // Returns a parameter by its dotted name: parameter("layer1.0.conv1.weight").
  // Errors: ValueError listing the names.
  Tensor parameter(const std::string& name) const;
  Tensor buffer(const std::string& name) const;
  std::vector<Tensor> buffers() const;
  StateDict named_buffers() const;
  int64_t num_parameters() const;  // elements of parameters()

  // Registers a tensor member of the module. The member must live as long as the module. An undefined tensor
  // is an absent parameter.
  // Errors: ValueError for a name that is empty, dotted or taken.
  void register_parameter(std::string name, Tensor& member);
  void register_buffer(std::string name, Tensor& member, BufferOptions options = {});

  // Removes one of this module's own parameters from the tree and returns its member. For layers that compute
  // a weight from other parameters (spectral_norm).
  // Errors: ValueError listing the existing parameters.
  Tensor& unregister_parameter(const std::string& name);

  // Returns all parameters and persistent buffers by dotted name, shared, not copied.
  StateDict state_dict() const;
  // Copies the given contents into the parameters and buffers, and converts them to their dtypes and devices.
  // Errors: ValueError that counts the missing, unexpected and repeated names and the wrong shapes, and names
  // the first 8 of each; or names in `except` that the module does not have. Nothing is changed then.
  LoadReport load_state_dict(const StateDict& state, LoadOptions options = {});

  // Sets training mode for this module and all below: dropout drops, batch norm uses the batch.
  Module& train(bool on = true);
  Module& eval() { return train(false); }
  bool is_training() const { return training_; }

  // Returns whether an open ParameterScope may have replaced this module's own tensors.
  bool is_substituted() const;

  // Converts the floating-point parameters, buffers and gradients to `dtype`. Tensors registered below this
  // module later are converted on registration, and an optimizer's state at its next step.
  // Errors: DTypeError unless `dtype` is floating point; StateError while an open recording
  // follows one of them.
  Module& to(DType dtype);
  // Moves parameters, buffers and gradients to `device`, and tensors registered later as above.
  // Errors: StateError as above.
  Module& to(Device device);

  // Calls gradus::to, which the members above would hide in a forward.
  static Tensor to(const Tensor& x, DType dtype);
  static Tensor to(const Tensor& x, Device device);

  // Calls f on every module below, children first, and then on this one.
  Module& apply(const std::function<void(Module&)>& f);

  // Returns the name of the type for printing. By default it is the C++ class's name, without namespaces.
  virtual std::string type_name() const;
  // Returns the text between the parentheses when printed: "in=128, out=10".
  virtual std::string extra_repr() const { return ""; }

 protected:
  // Adds a module's name to the context's module path, which errors report. One scope per call of a forward.
  class CallScope {
   public:
    explicit CallScope(const Module& m);
    ~CallScope();
    CallScope(const CallScope&) = delete;
    CallScope& operator=(const CallScope&) = delete;

   private:
    const Module* outer_;  // the module whose forward calls this one
    bool pushed_;
    RunningRange running_;  // for a profile
  };
  // Calls f() under this module's name, and returns its result: errors then report the module's path. Modules
  // with call operators of their own (LSTM, MultiheadAttention) use it for their calls.
  template <class F> auto call(F f) {
    using Result = std::remove_cvref_t<std::invoke_result_t<F&>>;
    const CallScope scope(*this);
    try {
      if constexpr (internal::holds_tensors<Result>())
        if (internal::CallFilter* filter = internal::call_filter) [[unlikely]]
          return internal::filtered<Result>(*filter, *this, f);
      return f();
    } catch (Error& e) {
      e.set_module(Context::current().module_path_text());
      throw;
    }
  }

 private:
  friend class Parameter;
  friend class Buffer;
  friend class ParameterScope;
  struct Slot {
    std::string name;
    Tensor* tensor;
    bool persistent;
  };

  void check_new_name(const std::string& name) const;
  template <class F> bool any_parameter(const F& holds) const;  // in this module or below
  void called_apart_in(const Module& outer) const;
  void forget(const Tensor* member);
  // Calls f(dotted name, slot, is_parameter) for all slots: own parameters, own buffers, then the children's.
  template <class F> void each_slot(const std::string& prefix, F&& f) const;
  void convert(const std::function<Tensor(const Tensor&)>& f, const char* op);
  void adopt(const std::string& name, Tensor& member) const;

  std::string name_;
  Module* parent_ = nullptr;
  std::vector<Module*> children_;
  std::vector<Slot> parameters_, buffers_;
  std::optional<DType> dtype_;  // from the last to(), for tensors registered later
  std::optional<Device> device_;
  bool training_ = true;
  int scopes_ = 0;  // number of this module's open ParameterScopes
};

namespace internal {
// Gives a readable compiler message when a container cannot make a child of class M.
template <class M, class... Args> constexpr void check_child() {
  static_assert(
      std::is_constructible_v<M, Module*, std::string, Args...>,
      "this module cannot be made as a child of these arguments: write `using Layer::Layer;` (or "
      "Module::Module) into its class, or a constructor (nn::Module* parent, std::string name, ...)");
}
}  // namespace internal

// Copies all parameters and buffers of one module into another with the same names and shapes.
// Errors: as load_state_dict.
void copy_state_(const Module& from, Module& to);

struct ParameterScopeOptions {
  bool partial = false;  // parameters that are not named stay as they are
};

// Replaces parameters (or buffers) of `module` by other tensors until the end of the scope. Use it for
// evaluation with averaged weights, for replicas and for functional calls. Scopes of one module end in the
// reverse order of their beginning.
//
//   { nn::ParameterScope scope(net, ema_weights);  evaluate(net); }
class ParameterScope {
 public:
  // Takes one tensor for each of module.parameters(), in order.
  // Errors: ValueError for another number, ShapeError.
  ParameterScope(Module& module, const std::vector<Tensor>& tensors);
  // Takes tensors by name. A parameter with several names gets the same tensor under all of them.
  // Errors: ValueError for an unknown name. Without `partial`, ValueError listing the parameters that are not
  // named; also the buffers, if any buffer is named. ShapeError.
  ParameterScope(Module& module, const StateDict& tensors, ParameterScopeOptions options = {});
  ~ParameterScope();
  ParameterScope(const ParameterScope&) = delete;
  ParameterScope& operator=(const ParameterScope&) = delete;

 private:
  Module& module_;
  std::vector<std::pair<Tensor*, Tensor>> originals_;
};

// Sets the training mode of `module` and all modules below until the end of the scope. Each module then has
// its own mode again.
class ModeScope {
 public:
  ModeScope(Module& module, bool training);
  ~ModeScope();
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;

 private:
  std::vector<std::pair<Module*, bool>> modes_;
};

// Returns the tree with types, options, parameter counts and their total, as text:
//
//   Net(
//     (conv1): Conv2d(in=1, out=32, kernel=3x3)     320
//     (fc): Linear(in=128, out=10)                1,290
//   )
//   1,610 parameters in 4 tensors (6.3 KiB)
std::string to_string(const Module& m);
std::ostream& operator<<(std::ostream& out, const Module& m);

}  // namespace gradus::nn
