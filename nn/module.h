// Module: a tree of named parameters, buffers and child modules, as torch.nn.Module. Members register
// themselves with their parent in their constructors:
//
//   struct Net : nn::Layer {
//     nn::Linear fc{this, "fc", {.in = 784, .out = 10}};        // a child
//     nn::Parameter scale{this, "scale", ones({10})};           // a parameter of its own
//     Tensor forward(const Tensor& x) override { return fc(x) * scale; }
//   };
//
// A parent has pointers to its children and to registered tensors; it owns neither. Modules can be neither
// copied nor moved, and are not thread-safe. For a copy, construct a second instance and call copy_state_.
// Functions that change parameters (load_state_dict, to, optimizers) change the contents of the tensors and
// keep their identity.
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradus/nn/call_interceptor.h"
#include "gradus/tensor/base/required.h"
#include "gradus/tensor/named_tensors.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/tensor.h"

namespace gradus::nn {

class Module;

namespace internal {

// Collects during its lifetime a message for each module without a parent that this thread calls in the
// forward of another module. See Note [Unregistered modules].
class UnregisteredCalls {
 public:
  UnregisteredCalls();
  ~UnregisteredCalls();
  UnregisteredCalls(const UnregisteredCalls&) = delete;
  UnregisteredCalls& operator=(const UnregisteredCalls&) = delete;
  const std::vector<std::string>& messages() const { return messages_; }

 private:
  friend class nn::Module;
  std::vector<std::string> messages_;
  UnregisteredCalls* const outer_;
};

}  // namespace internal

// Names and tensors in registration order: state.at("fc.weight"), state.contains("fc.bias"). The tensors are
// those of the module, not copies.
using StateDict = NamedTensors;

// A learned tensor: a member of a module, registered with `owner`, which outlives it, from construction to
// destruction. An undefined Parameter counts as absent.
// Errors, also of Buffer: those of Module::register_parameter and register_buffer.
class Parameter : public Tensor {
 public:
  Parameter(Module* owner, std::string name, Tensor value);
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;
  ~Parameter();

  // As x[...] of a const Tensor: `weight[0] = v` writes into the parameter and never assigns a new tensor to
  // it.
  Indexed operator[](std::initializer_list<Index> index) const;
  Indexed operator[](const Index& index) const;

 private:
  Module* owner_;
};

struct BufferOptions {
  bool persistent = true;  // part of state_dict
};

// A tensor of a module's state that is not learned, such as running statistics.
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
  // Dotted paths of modules, parameters and buffers that are not loaded, even if the state contains them:
  // {"fc"} for a head with another number of classes.
  std::vector<std::string> except = {};
};

// Selects parameters of a module, by dotted paths of modules or parameters:
// {.except = {"layer1", "fc.bias"}}.
struct ParameterOptions {
  std::vector<std::string> only = {};  // empty: all
  std::vector<std::string> except = {};
};

// Names that load_state_dict did not load: missing and unexpected ones when not strict, and those in `except`
// (kept).
struct LoadReport {
  std::vector<std::string> missing, unexpected, kept;
};

class Module {
 public:
  // Makes a root module.
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
  // Returns this module (with path "") and all modules below, each before its children.
  std::vector<std::pair<std::string, Module*>> named_modules();
  // Returns the module at a dotted path below this one.
  // Errors: ValueError listing the names that exist.
  Module& find(const std::string& path);

  // Returns each distinct parameter once, in registration order: this module's own, then the children's.
  std::vector<Tensor> parameters() const;
  StateDict named_parameters() const;
  // Return the selected parameters. To freeze a part of a network, attach only the other parameters to the
  // GradManager: gm.attach(net.parameters({.except = {"body"}})).
  // Errors: ValueError for a path without parameters.
  std::vector<Tensor> parameters(const ParameterOptions& options) const;
  StateDict named_parameters(const ParameterOptions& options) const;
  // Returns a parameter by its dotted name: parameter("layer1.0.conv1.weight").
  // Errors: ValueError listing the names.
  Tensor parameter(const std::string& name) const;
  Tensor buffer(const std::string& name) const;
  std::vector<Tensor> buffers() const;
  StateDict named_buffers() const;
  int64_t num_parameters() const;  // elements of parameters()
  // Returns false while this module, or one below, is a layer with a size of kLazy before its first call. All
  // functions that return or replace parameters and buffers then throw a StateError; to(), train() and apply() work.
  bool is_initialized() const;

  // Register a tensor member of the module, which must live as long as the module. An undefined tensor counts
  // as absent.
  // Errors: ValueError for a name that is empty, dotted or taken; DTypeError for an integer parameter.
  void register_parameter(std::string name, Tensor& member);
  void register_buffer(std::string name, Tensor& member, BufferOptions options = {});

  // Unregisters one of this module's own parameters and returns the member. Used by layers that compute a
  // weight from other parameters (spectral_norm).
  // Errors: ValueError listing the existing parameters.
  Tensor& unregister_parameter(const std::string& name);

  // Returns all parameters and persistent buffers by dotted name, without copying.
  StateDict state_dict() const;
  // Copies the elements of `state` into the parameters and persistent buffers, converted to their dtypes and
  // devices.
  // Errors: ValueError that lists up to 8 missing, unexpected, repeated and mismatching names each, or a path
  // in `except` that the module does not have; StateError while an open recording follows a parameter. After
  // an error the module is unchanged.
  LoadReport load_state_dict(const StateDict& state, LoadOptions options = {});

  // Sets training mode (on) or evaluation mode for this module and all modules below, as
  // torch.nn.Module.train.
  Module& train(bool on = true);
  Module& eval() { return train(false); }
  bool is_training() const { return training_; }

  // Returns whether an ancestor, this module or a module below has an open ParameterScope, which may have
  // replaced tensors of this module.
  bool is_substituted() const;

  // Converts the floating-point parameters, buffers and gradients to `dtype`. Tensors registered later in
  // this module or below are converted on registration. An optimizer converts its state at its next step.
  // Errors: DTypeError unless `dtype` is floating point; StateError while an open recording
  // follows one of them.
  Module& to(DType dtype);
  // Moves parameters, buffers and gradients, and tensors registered later, to `device`. As to(dtype), waits
  // for the device, and leaves the module unchanged after an error.
  // Errors: StateError while an open recording follows one of them.
  Module& to(Device device);

  // Call gradus::to. Without these overloads, the members above would hide gradus::to in member functions.
  static Tensor to(const Tensor& x, DType dtype);
  static Tensor to(const Tensor& x, Device device);

  // Calls f on every module below, children first, and then on this one.
  Module& apply(const std::function<void(Module&)>& f);

  // Returns the name of the type for printing. By default it is the C++ class's name, without namespaces.
  virtual std::string type_name() const;
  // Returns the text between the parentheses when printed: "in=128, out=10".
  virtual std::string extra_repr() const { return ""; }

 protected:
  // For layers with a size of kLazy. uninitialized() marks the module, and returns an undefined tensor, the value of
  // its parameters until then. The first call sets each with `initialize`, which converts the value as at a
  // registration, and then calls set_initialized.
  Tensor uninitialized();
  void initialize(Tensor& member, Tensor value);
  void set_initialized() { uninitialized_ = false; }
  bool has_sizes() const { return !uninitialized_; }

  // Adds the module's name to the Context's module path, which errors and profiles report, during a call.
  class CallScope {
   public:
    explicit CallScope(const Module& m);
    ~CallScope();
    CallScope(const CallScope&) = delete;
    CallScope& operator=(const CallScope&) = delete;

   private:
    const Module* outer_;  // the module whose forward calls this one
    bool pushed_;
    RunningRange running_;  // the call's range in a profile
  };
  // Returns f(), called as a call of this module: in a CallScope, through the thread's CallInterceptor, and
  // with the module's path added to errors. Used by call operators of modules other than Layer (LSTM,
  // MultiheadAttention).
  template <class F> auto call(F f) {
    using Result = std::remove_cvref_t<std::invoke_result_t<F&>>;
    const CallScope scope(*this);
    try {
      if constexpr (internal::contains_tensors<Result>())
        if (internal::CallInterceptor* interceptor = internal::call_interceptor) [[unlikely]]
          return internal::intercepted<Result>(*interceptor, *this, f);
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
  void check_initialized() const;  // Errors: StateError
  template <class F>
  bool any_parameter(const F& predicate) const;  // of this module or below; predicate(tensor)
  void warn_unregistered_call(const Module& outer) const;
  void unregister(const Tensor* member);
  // Calls f(dotted name, slot, is_parameter) for all slots: own parameters, own buffers, then the children's.
  template <class F> void each_slot(const std::string& prefix, F&& f) const;
  void convert(const std::function<Tensor(const Tensor&)>& f, const char* op);
  void convert_registered(const std::string& name, Tensor& member) const;

  std::string name_;
  Module* parent_ = nullptr;
  std::vector<Module*> children_;
  std::vector<Slot> parameters_, buffers_;
  std::optional<DType> dtype_;  // of the last to(), for tensors registered later
  std::optional<Device> device_;
  bool training_ = true;
  bool uninitialized_ = false;  // a size is kLazy, and there was no call
  int open_scopes_ = 0;         // number of this module's open ParameterScopes
};

namespace internal {
// Fails to compile with a readable message if a container cannot construct a child of class M.
template <class M, class... Args> constexpr void check_child() {
  static_assert(
      std::is_constructible_v<M, Module*, std::string, Args...>,
      "this module cannot be made as a child of these arguments: write `using Layer::Layer;` (or "
      "Module::Module) into its class, or a constructor (nn::Module* parent, std::string name, ...)");
}
}  // namespace internal

// Copies the elements of all parameters and persistent buffers of one module to those of another.
// Errors: as load_state_dict.
void copy_state_(const Module& from, Module& to);

struct ParameterScopeOptions {
  bool partial = false;  // true: parameters that are not named are not replaced
};

// Replaces parameters (or buffers) of `module` by other tensors for a scope, as torch.func.functional_call.
// Used for evaluation with averaged weights, and for replicas. The destructor restores the original tensors.
// Scopes of one module must nest, and must not outlive the module.
//
//   { nn::ParameterScope scope(net, ema_weights);  evaluate(net); }
class ParameterScope {
 public:
  // Takes one tensor for each of module.parameters(), in order. Dtypes and devices may differ.
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

// Sets the training mode of `module` and all modules below for a scope, and restores each module's previous
// mode.
class ModeScope {
 public:
  ModeScope(Module& module, bool training);
  ~ModeScope();
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;

 private:
  std::vector<std::pair<Module*, bool>> modes_;
};

// Returns the tree of modules with types, options and numbers of parameters as text:
//
//   Net(
//     (conv1): Conv2d(in=1, out=32, kernel=3x3)     320
//     (fc): Linear(in=128, out=10)                1,290
//   )
//   1,610 parameters in 4 tensors (6.3 KiB)
std::string to_string(const Module& m);
std::ostream& operator<<(std::ostream& out, const Module& m);

}  // namespace gradus::nn
