// Implementation of SeparateDistributedDataParallel: one DataParallelModel per child module.
#include "gradus/distributed/data_parallel/separate_data_parallel.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "gradus/autograd/graph/recording_state.h"
#include "gradus/distributed/base/call_record.h"

namespace gradus::dist::internal {
namespace {

constexpr const char* kOp = "SeparateDistributedDataParallel";

}  // namespace

// One DataParallelModel per part. A part is a direct child of the model, identified by the child's name, or
// "" for the parameters and buffers of the root module itself.
class SeparateModels::State {
 public:
  State(nn::Module& module, DistributedDataParallelOptions options)
      : module_(module), options_(std::move(options)) {
    if (!options_.broadcast_buffers) options_.broadcast_buffers = false;
    sync_new_tensors();
    if (order_.empty())
      throw ValueError(kOp, "the model has no parameters: without any to learn it needs no ", kOp);
  }

  // Finds new tensors in all parts, also in parts that the current recording does not track, since they take
  // part in the forward.
  void sync_new_tensors() {
    for (const std::string& part : order_) models_.at(part).sync_new_tensors();
    add_part("");
    for (const nn::Module* child : module_.children()) add_part(child->name());
  }

  // Returns the parts in the order in which they were found, which is equal on all ranks.
  const std::vector<std::string>& order() const { return order_; }
  DataParallelModel& model(const std::string& part) { return models_.at(part); }

  nn::StateDict parameters(const std::string& part) {
    nn::StateDict owned;
    for (auto& [name, p] : tensors(part, &nn::Module::named_parameters)) {
      const Ref<autograd::Leaf> leaf = autograd::leaf_of(p);
      if (owners_.try_emplace(leaf.get(), leaf, part).first->second.second == part)
        owned.emplace_back(name, p);
    }
    return owned;
  }
  nn::StateDict buffers(const std::string& part) { return tensors(part, &nn::Module::named_buffers); }

  // Returns the name of the part.
  // Errors: ValueError if `part` is neither the model nor a child with parameters.
  std::string name_of(const nn::Module& part) const {
    const auto& children = module_.children();
    const bool is_part =
        &part == &module_ || std::find(children.begin(), children.end(), &part) != children.end();
    const std::string name = &part == &module_ ? "" : part.name();
    if (is_part && models_.count(name)) return name;
    std::string names;
    for (const std::string& n : order_) names += n.empty() ? " the model itself" : " '" + n + "'";
    throw ValueError(kOp, "expected the model or a direct child of it, with parameters of its own, got ",
                     part.type_name(), " '", part.path(), "'; there are:", names);
  }

 private:
  void add_part(const std::string& part) {
    if (models_.count(part) || parameters(part).empty()) return;
    models_.emplace(
        part, DataParallelModel(
                  part.empty() ? owner_name(module_) : part, [this, part] { return parameters(part); },
                  [this, part] { return buffers(part); }, options_, Op::kSeparateDistributedDataParallel));
    order_.push_back(part);
  }

  // Returns the part's tensors, with their names in the whole model.
  nn::StateDict tensors(const std::string& part, nn::StateDict (nn::Module::*list)() const) const {
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
  DistributedDataParallelOptions options_;
  std::map<std::string, DataParallelModel> models_;
  std::vector<std::string> order_;
  // The part of each parameter. A shared parameter belongs to the first part that has it.
  std::unordered_map<const AutogradSlot*, std::pair<Ref<autograd::Leaf>, std::string>> owners_;
};

// Runs before every recording of a manager: finds new tensors, and, if the manager is attached to the whole
// model (`all`), attaches new parts. The watcher of a single part expires with the part's parameters;
// parameters that replace them are attached as a new part.
class SeparateModels::Watcher final : public RecordingWatcher {
 public:
  Watcher(std::weak_ptr<State> state, bool all, std::vector<Callback> more)
      : state_(std::move(state)), all_(all), more_(std::move(more)) {}

  void recording_opened(GradManager& gm) override {
    const auto state = state_.lock();
    if (!state) return;
    state->sync_new_tensors();
    if (!all_) return;
    for (const std::string& part : state->order())
      if (attached_[part].expired()) attach(gm, part);
  }
  void attach(GradManager& gm, const std::string& part) {
    const auto state = state_.lock();
    std::vector<Callback> callbacks = more_;
    callbacks.push_back(shared_from_this());
    attached_[part] = state->model(part).attach(
        gm, [state = state.get(), part] { return state->parameters(part); }, std::move(callbacks));
  }

 private:
  const std::weak_ptr<State> state_;
  const bool all_;
  const std::vector<Callback> more_;
  std::map<std::string, std::weak_ptr<RecordingWatcher>> attached_;
};

SeparateModels::SeparateModels(nn::Module& module, DistributedDataParallelOptions options)
    : state_(std::make_shared<State>(module, std::move(options))) {}

void SeparateModels::attach(GradManager& gm, const nn::Module& part, std::vector<Callback> more) {
  state_->sync_new_tensors();
  std::make_shared<Watcher>(state_, false, std::move(more))->attach(gm, state_->name_of(part));
}

void SeparateModels::attach_all(GradManager& gm, std::vector<Callback> more) {
  std::make_shared<Watcher>(state_, true, std::move(more))->recording_opened(gm);
}

std::vector<std::shared_ptr<AllReduceCallback>> SeparateModels::callbacks() const {
  state_->sync_new_tensors();
  std::vector<std::shared_ptr<AllReduceCallback>> all;
  for (const std::string& part : state_->order()) all.push_back(state_->model(part).callback());
  return all;
}

const std::shared_ptr<AllReduceCallback>& SeparateModels::callback(const nn::Module& part) const {
  state_->sync_new_tensors();
  return state_->model(state_->name_of(part)).callback();
}

const DataParallelModel& SeparateModels::first() const { return state_->model(state_->order()[0]); }

}  // namespace gradus::dist::internal
