// Implementation of DataParallelModel: compares and broadcasts a model's tensors, finds new ones, and attaches
// them to the all-reduce callback.
#include "gradus/distributed/data_parallel/data_parallel_model.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "gradus/autograd/leaf_guard.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/data_parallel/internal/packed_broadcast.h"
#include "gradus/distributed/data_parallel/internal/reducer.h"
#include "gradus/distributed/group/group_state.h"

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

std::string join_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end == std::string::npos ? end : end + 1;
  }
  return lines;
}

// Checks that all ranks have equal lines. `what` is the subject of the error message. Collective.
// Errors: MismatchError, the same on all ranks, naming the first line that differs and the rank.
void check_agreement(Op maker, const std::string& what, const std::vector<std::string>& lines,
                     const Group& group) {
  const std::vector<std::string> all = gather_strings(group.state(), maker, join_lines(lines));
  const std::vector<std::string> first = split_lines(all[0]);
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    const std::vector<std::string> other = split_lines(all[r]);
    const auto [a, b] = std::mismatch(first.begin(), first.end(), other.begin(), other.end());
    const auto text = [](auto it, const auto& list) {
      return it == list.end() ? std::string("no more") : *it;
    };
    const int rank0 = group.ranks()[0], rank = group.ranks()[r];
    throw MismatchError(name_of(maker), rank, what, " differ between ranks: rank ", rank0, " has ",
                        text(a, first), ", rank ", rank, " has ", text(b, other));
  }
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

// Owned by the wrapper. Callbacks in managers, which may live longer, have weak pointers.
class DataParallelModel::State final : public autograd::LeafGuard {
 public:
  State(std::string owner, NamedTensors parameters, NamedTensors buffers,
        DistributedDataParallelOptions options, Op maker)
      : maker_(maker),
        owner_(std::move(owner)),
        parameters_(std::move(parameters)),
        buffers_(std::move(buffers)),
        options_(std::move(options)) {
    check_options(name_of(maker_), options_);
    if (parameters_().empty())
      throw ValueError(name_of(maker_), "the model has no parameters: without any to learn it needs no ",
                       name_of(maker_));
  }

  void start(const std::shared_ptr<State>& self) {
    const std::shared_ptr<const ParameterNames> names = names_;
    AllReduceCallbackOptions options{.group = options_.process_group,
                                     .bucket_cap_mb = options_.bucket_cap_mb,
                                     .first_bucket_mb = std::min(1.0, options_.bucket_cap_mb),
                                     .overlap = options_.overlap,
                                     .gradient_as_bucket_view = options_.gradient_as_bucket_view,
                                     .static_graph = options_.static_graph,
                                     .comm_hook = options_.comm_hook,
                                     .check_divergence_every = options_.check_divergence_every,
                                     .check_finite = options_.check_finite,
                                     .name_of = [names](const Tensor& p) { return names->of(p); },
                                     .group_name = "DDP of " + owner_};
    if (broadcasts_buffers())
      options.broadcast_after = [weak = std::weak_ptr(self)] {
        std::vector<Tensor> tensors;
        if (const auto state = weak.lock())
          for (auto& [name, b] : state->buffers_()) tensors.push_back(std::move(b));
        return tensors;
      };
    callback_ = std::make_shared<internal::Reducer>(ReduceOp::kMean, std::move(options), maker_);
    if (group().size() > 1)
      check_agreement(
          maker_, "options",
          {concat("bucket_cap_mb = ", options_.bucket_cap_mb),
           concat("broadcast_buffers = ", broadcasts_buffers()), concat("init_sync = ", options_.init_sync),
           concat("gradient_as_bucket_view = ", options_.gradient_as_bucket_view),
           concat("static_graph = ", options_.static_graph), concat("overlap = ", options_.overlap),
           concat("check_finite = ", options_.check_finite),
           concat("check_divergence_every = ", options_.check_divergence_every),
           concat("a comm_hook = ", bool(options_.comm_hook))},
          group());
    sync_new_tensors();
  }

  // Finds parameters and buffers that are new since the last call. If there are any: compares their names,
  // dtypes and shapes over the ranks, and broadcasts the group's first rank's values.
  void sync_new_tensors() {
    nn::StateDict params, buffers;
    std::unordered_set<std::string> changed;  // modules with new parameters: their buffers count as new
    for (auto& [name, p] : parameters_())
      if (!names_->contains(p)) {
        changed.insert(module_of(name));
        params.emplace_back(name, p);
      }
    for (auto& [name, b] : buffers_())
      if (!known_buffers_.count(name) || changed.count(module_of(name))) buffers.emplace_back(name, b);
    if (params.empty() && buffers.empty()) return;

    check_devices(params);
    if (group().size() > 1) {
      std::vector<std::string> lines = lines_of("parameter", params);
      for (std::string& line : lines_of("buffer", buffers)) lines.push_back(std::move(line));
      check_models_agree(lines, params.empty() ? buffers[0].first : params[0].first);
      std::vector<Tensor> all;
      for (const auto* list : {&params, &buffers})
        for (const auto& [name, x] : *list) all.push_back(x);
      if (options_.init_sync) PackedBroadcast(group(), all, 0).finish();
    }
    names_->remove_destroyed();
    std::vector<Ref<autograd::Leaf>> leaves;
    for (const auto& [name, p] : params) {
      names_->add(name, p);
      leaves.push_back(autograd::leaf_of(p));
    }
    guard(leaves);
    for (const auto& [name, b] : buffers) known_buffers_.insert(name);
    started_ = true;
  }

  // Errors: StateError if a recording tracks `param` but none of its callbacks all-reduces: the ranks'
  // parameters would diverge.
  void check_recording(const Tensor& param, const std::vector<Callback>& callbacks) const override {
    const auto reduces = [](const Callback& c) {
      return dynamic_cast<const AllReduceCallback*>(c.object.get()) != nullptr;
    };
    if (group().size() == 1 || internal::reducer_of(callback_).in_no_sync() ||
        std::ranges::any_of(callbacks, reduces))
      return;
    throw StateError("record", "'", names_->of(param), "' is a parameter of a ", name_of(maker_),
                     ", but this GradManager is not attached to it: its gradients would stay this rank's "
                     "own. Call ddp.attach(gm), instead of gm.attach(net.parameters()) or besides; for "
                     "gradients of this rank alone, record within ddp.no_sync()");
  }

  const DistributedDataParallelOptions& options() const { return options_; }
  const std::shared_ptr<AllReduceCallback>& callback() const { return callback_; }

 private:
  // The reducer's group, which also carries the backwards: if only one rank's model has new tensors, the
  // other ranks' next call in this group is a backward, and the mismatch is an error.
  const Group& group() const { return internal::reducer_of(callback_).group(); }
  bool broadcasts_buffers() const { return options_.broadcast_buffers.value_or(true); }
  static std::string module_of(const std::string& name) { return name.substr(0, name.rfind('.') + 1); }

  void check_models_agree(const std::vector<std::string>& lines, const std::string& first) const {
    if (!started_) return check_agreement(maker_, "the models", lines, group());
    try {
      check_agreement(maker_, "the models", lines, group());
    } catch (Error& error) {
      error.add_context(concat("while ranks agree on what is new in the model ('", first, "' first)"));
      throw;
    }
  }

  void check_devices(const nn::StateDict& params) const {
    for (const auto& [name, p] : params) {
      if (group().size() > 1) check_can_average(name_of(maker_), concat("parameter '", name, "'"), p);
      if (!options_.device_ids.empty() && p.device() != options_.device_ids[0])
        throw ValueError(name_of(maker_), "parameter '", name, "' is on ", p.device(), ", device_ids says ",
                         options_.device_ids[0], ": move the model there first");
      if (p.device().type != params[0].second.device().type)
        throw ValueError(name_of(maker_), "parameters are on devices of several types: '", params[0].first,
                         "' on ", params[0].second.device(), ", '", name, "' on ", p.device());
    }
  }

  const Op maker_;
  const std::string owner_;
  const NamedTensors parameters_, buffers_;
  const DistributedDataParallelOptions options_;
  const std::shared_ptr<ParameterNames> names_ = std::make_shared<ParameterNames>();
  std::unordered_set<std::string> known_buffers_;
  bool started_ = false;
  std::shared_ptr<AllReduceCallback> callback_;
};

namespace {

// Attaches the model's new parameters to its manager before every recording.
class NewParameterWatcher final : public RecordingWatcher {
 public:
  NewParameterWatcher(std::function<bool()> sync_new_tensors, NamedTensors chosen,
                      std::vector<Callback> callbacks)
      : sync_new_tensors_(std::move(sync_new_tensors)),
        chosen_(std::move(chosen)),
        callbacks_(std::move(callbacks)) {}

  void recording_opened(GradManager& gm) override {
    if (!sync_new_tensors_()) return;
    const nn::StateDict current = chosen_();
    std::vector<Tensor> new_params;
    for (const auto& [name, p] : current)
      if (!attached_.contains(p)) new_params.push_back(p);
    if (new_params.empty()) return;
    attached_.remove_destroyed();
    for (const auto& [name, p] : current) attached_.add(name, p);
    std::vector<Callback> callbacks{Callback(shared_from_this())};
    callbacks.insert(callbacks.end(), callbacks_.begin(), callbacks_.end());
    gm.attach(new_params, std::move(callbacks));
  }

 private:
  const std::function<bool()>
      sync_new_tensors_;  // returns false if the wrapper, and maybe the model, is destroyed
  const NamedTensors chosen_;
  const std::vector<Callback> callbacks_;
  ParameterNames attached_;
};

}  // namespace

DataParallelModel::DataParallelModel(std::string owner, NamedTensors parameters, NamedTensors buffers,
                                     DistributedDataParallelOptions options, Op maker)
    : state_(std::make_shared<State>(std::move(owner), std::move(parameters), std::move(buffers),
                                     std::move(options), maker)) {
  state_->start(state_);
}

std::weak_ptr<RecordingWatcher> DataParallelModel::attach(GradManager& gm, NamedTensors chosen,
                                                          std::vector<Callback> more) {
  more.insert(more.begin(), Callback(callback()));
  const auto sync_new_tensors = [weak = std::weak_ptr(state_)] {
    const auto state = weak.lock();
    if (state) state->sync_new_tensors();
    return bool(state);
  };
  const auto watcher =
      std::make_shared<NewParameterWatcher>(sync_new_tensors, std::move(chosen), std::move(more));
  watcher->recording_opened(gm);
  return watcher;
}

void DataParallelModel::sync_new_tensors() { state_->sync_new_tensors(); }

const std::shared_ptr<AllReduceCallback>& DataParallelModel::callback() const { return state_->callback(); }

Tensor DataParallelModel::to_device(const Tensor& x) const {
  const auto& ids = state_->options().device_ids;
  return ids.empty() || !x.defined() || x.device() == ids[0] ? x : to(x, ids[0]);
}

Tensor DataParallelModel::to_output(const Tensor& y) const {
  const auto& device = state_->options().output_device;
  return !device || !y.defined() || y.device() == *device ? y : to(y, *device);
}

WholeModel::WholeModel(nn::Module& module, DistributedDataParallelOptions options)
    : module_(module),
      model_(
          owner_name(module), [&module] { return module.named_parameters(); },
          [&module] { return module.named_buffers(); }, std::move(options), Op::kDistributedDataParallel) {}

void WholeModel::attach(GradManager& gm, const nn::Module& part, std::vector<Callback> more) {
  model_.attach(
      gm, [&part] { return part.named_parameters(); }, std::move(more));
}

}  // namespace gradus::dist::internal
