// Implementation of DataParallelModel: compares and broadcasts a model's tensors, finds new ones, and
// attaches them to the AllReduceCallback (the reducer) of their part. Parts are the whole model, or in
// separate mode each direct child and the root's own parameters. All ranks of the group call the same
// functions in the same order, from one thread; searches that find new tensors are collective.
#include "gradus/distributed/data_parallel/distributed_data_parallel.h"

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <unordered_set>

#include "gradus/autograd/leaf_guard.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/distributed/data_parallel/bcast_list.h"
#include "gradus/distributed/data_parallel/internal/attached_params.h"
#include "gradus/distributed/data_parallel/internal/compare.h"

namespace gradus::dist::internal {
namespace {

// Names of parameters by identity. The map owns autograd leaves, not tensors: the leaf's address stays unique
// after the model has destroyed the parameter, and the parameter's memory is not kept alive.
class ParameterNames {
 public:
  // Returns whether the parameter is new.
  // Errors: DTypeError unless floating point.
  bool add(const std::string& name, const Tensor& param) {
    const Ref<autograd::Leaf> leaf = autograd::leaf_of(param);
    return names_.try_emplace(leaf.get(), leaf, name).second;
  }
  bool contains(const Tensor& param) const { return names_.count(param.ref()->slot.get()) != 0; }
  std::string of(const Tensor& param) const {
    const auto it = names_.find(param.ref()->slot.get());
    return it == names_.end() ? describe(param) : it->second.second;
  }
  void remove_destroyed() {
    std::erase_if(names_, [](const auto& entry) { return !entry.second.first->tensor().defined(); });
  }

 private:
  std::unordered_map<const AutogradSlot*, std::pair<Ref<autograd::Leaf>, std::string>> names_;
};

// Returns one line per tensor with name, dtype and shape, which ranks compare.
std::vector<std::string> lines_of(const char* kind, const nn::StateDict& tensors) {
  std::vector<std::string> lines;
  for (const auto& [name, x] : tensors) lines.push_back(concat(kind, " '", name, "' ", x.dtype(), x.shape()));
  return lines;
}

void check_options(std::string_view op, const DistributedDataParallelOptions& o) {
  if (!(o.bucket_cap_mb > 0)) throw ValueError(op, "expected bucket_cap_mb above 0, got ", o.bucket_cap_mb);
  if (o.device_ids.size() > 1)
    throw ValueError(
        op, "expected at most one of device_ids, got ", o.device_ids.size(),
        ": a rank has one device. For several, leave device_ids empty and place the layers yourself, or use "
        "dist::DataParallel");
  if (o.check_divergence_every < 0)
    throw ValueError(op, "expected check_divergence_every of at least 0, got ", o.check_divergence_every);
  if (!o.process_group.is_member()) throw ValueError(op, "this rank is no member of process_group");
}

}  // namespace

// The parts of the model, by name: "" has the tensors of the whole model, or in separate mode those of the
// root module itself. Owned by the wrapper. Callbacks in managers, which may live longer, have weak pointers.
// As a LeafGuard, it checks each recording that tracks one of the model's parameters.
class DataParallelModel::State final : public autograd::LeafGuard,
                                       public std::enable_shared_from_this<State> {
 public:
  // Parameters, and the reducer of their part.
  using Attachable = std::pair<std::shared_ptr<AllReduceCallback>, nn::StateDict>;

  State(nn::Module& module, DistributedDataParallelOptions options, bool separate)
      : module_(module),
        options_(std::move(options)),
        maker_(separate ? Op::kSeparateDistributedDataParallel : Op::kDistributedDataParallel) {
    check_options(name_of(maker_), options_);
  }

  void start() {
    sync_new_tensors();
    if (parts_.empty())
      throw ValueError(name_of(maker_), "the model has no parameters: without any to learn it needs no ",
                       name_of(maker_));
  }

  // Finds new tensors in all parts, also in parts that the current recording does not track, since they take
  // part in the forward.
  void sync_new_tensors() {
    for (Part& part : parts_) sync_new_tensors(part);
    add_part("");
    if (is_separate())
      for (const nn::Module* child : module_.children()) add_part(child->name());
  }

  // Errors: StateError if a recording tracks `param` but none of its callbacks all-reduces: the ranks'
  // parameters would diverge.
  void check_recording(const Tensor& param, const std::vector<Callback>& callbacks) const override {
    const auto reduces = [](const Callback& c) {
      return dynamic_cast<const AllReduceCallback*>(c.object.get()) != nullptr;
    };
    const AllReduceCallback& reducer = *callback(owners_.of(param));
    if (reducer.group().size() == 1 || reducer.in_no_sync() || std::ranges::any_of(callbacks, reduces))
      return;
    throw StateError("record", "'", names_->of(param), "' is a parameter of a ", name_of(maker_),
                     ", but this GradManager is not attached to it: its gradients would stay this rank's "
                     "own. Call ddp.attach(gm), instead of gm.attach(net.parameters()) or besides; for "
                     "gradients of this rank alone, record within ddp.no_sync()");
  }

  const DistributedDataParallelOptions& options() const { return options_; }
  bool is_separate() const { return maker_ == Op::kSeparateDistributedDataParallel; }
  // Returns the names of the parts in the order in which they were found, which is equal on all ranks.
  std::vector<std::string> part_names() const {
    std::vector<std::string> names;
    for (const Part& part : parts_) names.push_back(part.name);
    return names;
  }
  const std::shared_ptr<AllReduceCallback>& callback(const std::string& part) const {
    return std::ranges::find(parts_, part, &Part::name)->callback;
  }
  // Returns the part's parameters. Claims new ones for the part; leaves out those that another part owns.
  nn::StateDict parameters(const std::string& part) {
    nn::StateDict owned;
    for (auto& [name, p] : tensors(part, &nn::Module::named_parameters))
      if (owners_.add(part, p) || owners_.of(p) == part) owned.emplace_back(name, p);
    return owned;
  }

  // Returns the name of the part.
  // Errors: ValueError if `part` is neither the model nor a child with parameters.
  std::string name_of_part(const nn::Module& part) const {
    const bool is_root = &part == &module_;
    const std::string name = is_root ? "" : part.name();
    if ((is_root || std::ranges::count(module_.children(), &part)) && has_part(name)) return name;
    std::string names;
    for (const Part& p : parts_) names += p.name.empty() ? " the model itself" : " '" + p.name + "'";
    throw ValueError(name_of(maker_),
                     "expected the model or a direct child of it, with parameters of its own, got ",
                     part.type_name(), " '", part.path(), "'; there are:", names);
  }

 private:
  struct Part {
    std::string name;
    // Its group also carries the backwards: if only one rank's model has new tensors, the other ranks' next
    // call in this group is a backward, and the mismatch is an error.
    std::shared_ptr<AllReduceCallback> callback;
    std::unordered_set<std::string> known_buffers = {};
    bool started = false;
  };

  bool has_part(const std::string& name) const { return std::ranges::count(parts_, name, &Part::name) > 0; }
  bool broadcasts_buffers() const { return options_.broadcast_buffers.value_or(!is_separate()); }
  // Returns the module's prefix of a tensor's name: "layer1.bn." for "layer1.bn.weight".
  static std::string module_of(const std::string& name) { return name.substr(0, name.rfind('.') + 1); }

  // Creates the part and its reducer, unless it exists or has no parameters. Collective: duplicates the
  // group, and compares the options of all ranks.
  void add_part(const std::string& name) {
    if (has_part(name) || parameters(name).empty()) return;
    const std::string root = module_.name().empty() ? module_.type_name() : module_.name();
    AllReduceCallbackOptions options{.group = options_.process_group,
                                     .bucket_cap_mb = options_.bucket_cap_mb,
                                     .first_bucket_mb = std::min(1.0, options_.bucket_cap_mb),
                                     .overlap = options_.overlap,
                                     .gradient_as_bucket_view = options_.gradient_as_bucket_view,
                                     .static_graph = options_.static_graph,
                                     .rebuild_buckets = options_.rebuild_buckets,
                                     .comm_hook = options_.comm_hook,
                                     .check_divergence_every = options_.check_divergence_every,
                                     .check_finite = options_.check_finite,
                                     .name_of = [names = std::shared_ptr<const ParameterNames>(names_)](
                                                    const Tensor& p) { return names->of(p); },
                                     .group_name = "DDP of " + (name.empty() ? root : name)};
    if (broadcasts_buffers())  // the callback may outlive the wrapper
      options.broadcast_after = [weak = weak_from_this(), name] {
        std::vector<Tensor> buffers;
        if (const auto state = weak.lock())
          for (auto& [_, b] : state->tensors(name, &nn::Module::named_buffers))
            buffers.push_back(std::move(b));
        return buffers;
      };
    const auto callback = std::make_shared<AllReduceCallback>(ReduceOp::kMean, std::move(options), maker_);
    if (callback->group().size() > 1)
      check_equal(
          maker_, "options",
          {concat("bucket_cap_mb = ", options_.bucket_cap_mb),
           concat("broadcast_buffers = ", broadcasts_buffers()), concat("init_sync = ", options_.init_sync),
           concat("gradient_as_bucket_view = ", options_.gradient_as_bucket_view),
           concat("static_graph = ", options_.static_graph), concat("overlap = ", options_.overlap),
           concat("rebuild_buckets = ", options_.rebuild_buckets),
           concat("check_finite = ", options_.check_finite),
           concat("check_divergence_every = ", options_.check_divergence_every),
           concat("a comm_hook = ", bool(options_.comm_hook))},
          callback->group());
    Part part{name, callback};
    sync_new_tensors(part);
    parts_.push_back(std::move(part));
  }

  // Finds parameters and buffers that are new since the last call. If there are any: compares their names,
  // dtypes and shapes over the ranks, and broadcasts the group's first rank's values.
  void sync_new_tensors(Part& part) {
    nn::StateDict params, buffers;
    std::unordered_set<std::string> changed;  // modules with new parameters: their buffers count as new
    for (auto& [name, p] : parameters(part.name))
      if (!names_->contains(p)) {
        changed.insert(module_of(name));
        params.emplace_back(name, p);
      }
    for (auto& [name, b] : tensors(part.name, &nn::Module::named_buffers))
      if (!part.known_buffers.count(name) || changed.count(module_of(name))) buffers.emplace_back(name, b);
    if (params.empty() && buffers.empty()) return;
    const Group& group = part.callback->group();
    check_devices(params, group);
    if (group.size() > 1) {
      std::vector<std::string> lines = lines_of("parameter", params);
      for (std::string& line : lines_of("buffer", buffers)) lines.push_back(std::move(line));
      try {
        check_equal(maker_, "the models", lines, group);
      } catch (Error& error) {
        if (part.started)
          error.add_context(concat("while ranks agree on what is new in the model ('",
                                   (params.empty() ? buffers : params)[0].first, "' first)"));
        throw;
      }
      std::vector<Tensor> all;
      for (const auto* list : {&params, &buffers})
        for (const auto& [name, x] : *list) all.push_back(x);
      if (options_.init_sync) PackedBroadcast(group, all, 0).finish();
    }
    names_->remove_destroyed();
    std::vector<Ref<autograd::Leaf>> leaves;
    for (const auto& [name, p] : params) {
      names_->add(name, p);
      leaves.push_back(autograd::leaf_of(p));
    }
    guard(leaves);
    for (const auto& [name, b] : buffers) part.known_buffers.insert(name);
    part.started = true;
  }

  void check_devices(const nn::StateDict& params, const Group& group) const {
    for (const auto& [name, p] : params) {
      if (group.size() > 1) check_can_average(name_of(maker_), concat("parameter '", name, "'"), p);
      if (!options_.device_ids.empty() && p.device() != options_.device_ids[0])
        throw ValueError(name_of(maker_), "parameter '", name, "' is on ", p.device(), ", device_ids says ",
                         options_.device_ids[0], ": move the model there first");
      if (p.device().type != params[0].second.device().type)
        throw ValueError(name_of(maker_), "parameters are on devices of several types: '", params[0].first,
                         "' on ", params[0].second.device(), ", '", name, "' on ", p.device());
    }
  }

  // Returns the part's tensors, with their names in the whole model.
  nn::StateDict tensors(const std::string& part, nn::StateDict (nn::Module::*list)() const) const {
    if (!is_separate()) return (module_.*list)();
    nn::StateDict all;
    if (part.empty()) {
      all = (module_.*list)();
      std::erase_if(all, [](const auto& entry) { return entry.first.find('.') != std::string::npos; });
    }
    for (const nn::Module* child : module_.children())
      if (child->name() == part)
        for (auto& [name, x] : (child->*list)()) all.emplace_back(part + "." + name, x);
    return all;
  }

  nn::Module& module_;
  const DistributedDataParallelOptions options_;
  const Op maker_;
  std::deque<Part> parts_;  // callback() returns references into the parts
  // Names of compared parameters.
  const std::shared_ptr<ParameterNames> names_ = std::make_shared<ParameterNames>();
  // The part of each parameter. A shared parameter belongs to the first part that has it.
  ParameterNames owners_;
};

// Attaches the model's new parameters to its manager before every recording, and passes gradients on
// unchanged. The watcher lives as long as the manager and one attached parameter.
// `chosen` returns the parameters to attach, with their reducers; `more` are callbacks after the reducer.
class DataParallelModel::Watcher final : public GradCallback, public std::enable_shared_from_this<Watcher> {
 public:
  using Chosen = std::function<std::vector<State::Attachable>(State&)>;

  Watcher(std::weak_ptr<State> state, Chosen chosen, std::vector<Callback> more)
      : state_(std::move(state)), chosen_(std::move(chosen)), more_(std::move(more)) {}

  void recording_opened(GradManager& gm) override {
    const auto state = state_.lock();
    if (!state) return;  // the wrapper, and maybe the model, is destroyed
    state->sync_new_tensors();
    attached_.remove_destroyed();
    for (const auto& [callback, params] : chosen_(*state)) {
      std::vector<Tensor> new_params;
      for (const auto& [name, p] : params)
        if (attached_.add(name, p)) new_params.push_back(p);
      if (new_params.empty()) continue;
      std::vector<Callback> callbacks{Callback(shared_from_this()), Callback(callback)};
      callbacks.insert(callbacks.end(), more_.begin(), more_.end());
      gm.attach(new_params, std::move(callbacks));
    }
  }
  void begin(const std::vector<Tensor>&, const std::vector<bool>&) override {}
  std::optional<Tensor> ready(const Tensor&, const Tensor& grad) override { return grad; }
  std::vector<Delivery> finish() override { return {}; }

 private:
  const std::weak_ptr<State> state_;
  const Chosen chosen_;
  const std::vector<Callback> more_;
  ParameterNames attached_;
};

DataParallelModel::DataParallelModel(nn::Module& module, DistributedDataParallelOptions options,
                                     bool separate)
    : state_(std::make_shared<State>(module, std::move(options), separate)) {
  state_->start();
}

void DataParallelModel::attach(GradManager& gm, const nn::Module& part, std::vector<Callback> more) {
  state_->sync_new_tensors();
  Watcher::Chosen chosen = [&part](State& state) {
    return std::vector{State::Attachable(state.callback(""), part.named_parameters())};
  };
  if (state_->is_separate())
    chosen = [name = state_->name_of_part(part)](State& state) {
      return std::vector{State::Attachable(state.callback(name), state.parameters(name))};
    };
  std::make_shared<Watcher>(state_, std::move(chosen), std::move(more))->recording_opened(gm);
}

void DataParallelModel::attach_all(GradManager& gm, std::vector<Callback> more) {
  const auto chosen = [](State& state) {
    std::vector<State::Attachable> all;
    for (const std::string& part : state.part_names())
      all.emplace_back(state.callback(part), state.parameters(part));
    return all;
  };
  std::make_shared<Watcher>(state_, chosen, std::move(more))->recording_opened(gm);
}

std::vector<std::shared_ptr<AllReduceCallback>> DataParallelModel::callbacks() const {
  if (state_->is_separate()) state_->sync_new_tensors();
  std::vector<std::shared_ptr<AllReduceCallback>> all;
  for (const std::string& part : state_->part_names()) all.push_back(state_->callback(part));
  return all;
}

const std::shared_ptr<AllReduceCallback>& DataParallelModel::callback(const nn::Module& part) const {
  if (state_->is_separate()) state_->sync_new_tensors();
  return state_->callback(state_->is_separate() ? state_->name_of_part(part) : "");
}

Tensor DataParallelModel::to_device(const Tensor& x) const {
  const auto& ids = state_->options().device_ids;
  return ids.empty() || !x.defined() || x.device() == ids[0] ? x : to(x, ids[0]);
}

Tensor DataParallelModel::to_output(const Tensor& y) const {
  const auto& device = state_->options().output_device;
  return !device || !y.defined() || y.device() == *device ? y : to(y, *device);
}

nn::LoadReport load_without_wrappers(nn::Module& module, const nn::StateDict& state,
                                     nn::LoadOptions options) {
  std::unordered_set<std::string> known;
  for (const auto& [name, x] : module.state_dict()) known.insert(name);
  nn::StateDict renamed;
  for (const auto& [name, x] : state) {
    std::string bare = "." + name;
    for (size_t at; (at = bare.find(".module.")) != std::string::npos;) bare.erase(at, 7);
    bare.erase(0, 1);
    renamed.emplace_back(!known.count(name) && known.count(bare) ? bare : name, x);
  }
  return module.load_state_dict(renamed, options);
}

}  // namespace gradus::dist::internal
