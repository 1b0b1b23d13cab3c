// Recorder: adds one node per op to the open recordings (gradient tapes) of this thread that follow an input,
// that is, have the input's slot (leaf or node of the graph) as a leaf or result. Saved: tensors kept for
// backward, with a check of their version. Also the checks of in-place writes and of buffer reuse.
#include "gradus/autograd/graph/record.h"

#include "gradus/autograd/graph/anomaly.h"
#include "gradus/autograd/graph/recording_state.h"
#include "gradus/autograd/graph/relu_fusion.h"
#include "gradus/tensor/runtime/allocator.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::autograd {
namespace {

// The node of an op with one JointRule.
class JointNode final : public Node {
 public:
  JointNode(const char* op, JointRule rule, NodeTraits traits) : Node(op, traits), rule_(std::move(rule)) {}

  void run(const RuleArgs& args) override {
    std::vector<Tensor> dys(std::make_move_iterator(args.dys.begin()),
                            std::make_move_iterator(args.dys.end()));
    std::vector<Tensor> dxs = rule_(std::move(dys), Needs(args.needs));
    if (dxs.size() != args.dxs.size())
      throw StateError(op(), "its backward returned ", dxs.size(), " gradients for ", args.dxs.size(),
                       " inputs");
    std::move(dxs.begin(), dxs.end(), args.dxs.begin());
  }
  void drop(std::span<const char> inputs) override {
    if (inputs.empty()) rule_ = nullptr;  // inputs share what the rule saved
  }

 private:
  JointRule rule_;
};

}  // namespace

// Note [Versions]
// Every in-place write increments the version of the storage. Saved::get throws if the version has changed
// since the tensor was saved, because the rule would compute a wrong gradient.
Tensor Saved::get() const {
  if (!tensor_.defined()) return tensor_;
  if (const uint32_t now = tensor_.storage()->version(); now != version_) {
    const std::string which = input_ >= 0 ? concat("input ", int(input_)) : std::string("a tensor");
    throw StateError(op_, which, " saved for backward was modified in place afterward (version ", version_,
                     ", now ", now, "): ", describe(tensor_), "; clone it before the write");
  }
  if (!is_output_) return tensor_;
  // save_output stored the output without its slot, to avoid a cycle; the running node is the output's node.
  AutogradSlot* node = Context::current().running_node;
  Tensor y = detach(tensor_);
  y.impl().slot = Ref<AutogradSlot>(node);
  y.impl().slot_index = output_;
  return y;
}

Tensor Saved::release() {
  if (!Context::current().is_last_run || !tensor_.defined()) return get();
  get();  // for the check of the version
  return std::move(tensor_);
}

Recorder::Recorder(const char* op, const std::vector<Tensor>& inputs) : op_(op) {
  Context& context = Context::current();
  if (context.recordings.empty()) return;
  std::vector<const Tensor*> all;
  for (const Tensor& x : inputs) all.push_back(&x);
  join(context, all);
}

Recorder::Recorder(const char* op, std::span<const Edge> inputs) : op_(op) {
  Context& context = Context::current();
  for (const Ref<Counted>& r : context.recordings)
    for (const Edge& e : inputs)
      if (e.slot && as_recording(r)->follows(e.slot.get())) {
        joined_.push_back(as_recording(r));
        break;
      }
}

// Collects the open recordings that follow at least one input.
void Recorder::join(Context& context, std::span<const Tensor* const> inputs) {
  for (const Ref<Counted>& open : context.recordings) {
    RecordingState* r = as_recording(open);
    for (const Tensor* x : inputs) {
      if (!x->defined() || !x->ref()->slot || !r->follows(x->ref()->slot.get())) continue;
      joined_.push_back(r);
      break;
    }
  }
  for (size_t i = 0; i < inputs.size() && i < inputs_.size(); ++i) inputs_[i] = inputs[i]->ref().get();
}

Saved Recorder::save(const Tensor& x) const {
  Saved s;
  if (!x.defined()) return s;
  s.tensor_ = x;
  s.op_ = op_;
  s.version_ = x.storage()->version();
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i] && inputs_[i] == x.ref().get()) s.input_ = static_cast<int8_t>(i);
  return s;
}

Saved Recorder::save_output(const Tensor& y, int output) const {
  Saved s = save(detach(y));
  s.is_output_ = true;
  s.output_ = static_cast<uint8_t>(output);
  return s;
}

Edge Recorder::edge_to(const Tensor& x) const {
  if (!x.defined() || !x.ref()->slot) return {};
  const TensorImpl& impl = *x.ref();
  for (RecordingState* r : joined_)
    if (r->follows(impl.slot.get())) return {impl.slot, impl.slot_index};
  return {};
}

void Recorder::record_joint(std::span<const Tensor> outputs, const std::vector<Tensor>& inputs,
                            JointRule rule, NodeTraits traits) {
  std::vector<Edge> edges;
  for (const Tensor& x : inputs) edges.push_back(edge_to(x));
  attach(Ref<Node>(new JointNode(op_, std::move(rule), traits)), outputs, std::move(edges));
}

// Points the outputs at the node and adds the node to all joined recordings. If all of them are probes, which
// need edges only, the node drops its rules at once.
void Recorder::attach(Ref<Node> node, std::span<const Tensor> outputs, std::vector<Edge> edges) {
  node->edges_ = std::move(edges);
  node->outputs_.reserve(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& y = outputs[i];
    if (!y.defined()) {
      node->outputs_.emplace_back();
      continue;
    }
    node->outputs_.emplace_back(y);
    TensorImpl& impl = y.impl();
    if (impl.slot) throw InternalError("[", op_, "] the result tensor is already recorded");
    impl.slot = node;
    impl.slot_index = static_cast<uint32_t>(i);
    if (i == 0) node->stream_ = current_stream(y.device());
  }
  bool all_probes = true;
  node->open_memberships_ = static_cast<int>(joined_.size());
  Membership* m = &node->membership_;
  for (size_t i = 0; i < joined_.size(); ++i) {
    if (i > 0) {
      m->next_membership = std::make_unique<Membership>();
      m = m->next_membership.get();
    }
    m->recording = Ref<RecordingState>(joined_[i]);
    m->node = node.get();
    joined_[i]->add_node(*m);
    all_probes = all_probes && joined_[i]->is_probe();
  }
  if (all_probes) node->drop();
  check_results(op_, outputs);
}

bool is_tracked(const Tensor& x) { return x.defined() && x.ref()->slot && x.ref()->slot->is_recorded(); }

bool fuse_relu_into_node_of(const Tensor& x) {
  const auto& slot = x.ref()->slot;
  // Another reference to the slot is an edge of another node, whose input is the value before the relu.
  if (!slot || slot->is_leaf() || slot->use_count() != 1) return false;
  auto* node = dynamic_cast<FusesNextRelu*>(slot.get());
  return node && node->fuse_relu();
}

bool may_reuse(const Tensor& x) {
  // is_dense excludes broadcast views: several of their elements share one address.
  if (!x.is_sole_owner() || !x.is_dense()) return false;
  if (is_used_on_other_streams(x.device(), x.storage()->data())) return false;
  const auto& slot = x.ref()->slot;
  return !slot || !slot->is_leaf();
}

namespace {

// Stored in Storage::autograd_data, which autocast and GradScaler use for their own data.
struct OnesMark final : Counted {
  explicit OnesMark(uint32_t filled_version) : version(filled_version) {}
  const uint32_t version;  // of the storage when it was filled with ones
};

}  // namespace

void mark_ones(const Tensor& x) { x.storage()->autograd_data = make_ref<OnesMark>(x.storage()->version()); }

bool is_known_ones(const Tensor& x) {
  const auto* mark = dynamic_cast<const OnesMark*>(x.storage()->autograd_data.get());
  return mark && mark->version == x.storage()->version();
}

void check_same_device(const char* op, const char* name_x, const Tensor& x, const char* name_y,
                       const Tensor& y) {
  if (!are_compatible_devices(x.device(), y.device()))
    throw DeviceError(op, name_x, " is on ", x.device(), " but ", name_y, " on ", y.device());
}

void check_not_leaf(const char* op, const Tensor& x) {
  if (x.defined() && x.ref()->slot && x.ref()->slot->is_leaf())
    throw StateError(op, "would overwrite an attached tensor (a parameter) under a recording: x ",
                     describe(x), "; write into it under `const auto off = no_record();`, or into clone(x)");
}

void check_in_place(const char* op, const Tensor& x) {
  if (!is_tracked(x)) return;
  check_not_leaf(op, x);
  throw StateError(op, "would overwrite a tensor that an open recording follows: ", describe(x),
                   "; use the op without '_', or do this outside of the recording");
}

}  // namespace gradus::autograd
