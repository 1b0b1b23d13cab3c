// The backward engine. A depth-first search marks the nodes on paths from roots to targets. A priority queue
// then runs the backward rules of these nodes, newest node first, once all their consumers have run;
// gradients are summed where paths meet. All of it happens on the calling thread; GPU work is only queued, on
// the nodes' streams. Vocabulary: a slot is a vertex of the graph: a node (recorded op) or a leaf (attached
// tensor). A target is an output of a slot whose gradient is delivered to the caller. An input is a target
// that is not deferred. dys are gradients of a node's outputs, dxs of its inputs. Contracts, and the Notes
// named below: autograd/engine.h.
#include "gradus/autograd/engine.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <optional>
#include <queue>
#include <unordered_map>

#include "gradus/autograd/graph/anomaly.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/graph/relu_fusion.h"
#include "gradus/autograd/graph/sparse_gradient.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/optim_step.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus::autograd {
namespace {

// A slot that the roots reach, and its state in this pass.
struct Visit {
  AutogradSlot* slot = nullptr;
  int dependencies = 0;          // edges into this slot from slots that have not run yet
  bool leads = false;            // whether this slot leads to a target
  bool leads_to_inputs = false;  // whether this slot leads to an input; false if nothing is deferred
  bool scheduled = false;        // whether this slot has been pushed on the queue
  Tensor term;                   // of a leaf: not yet added to dys[0], see Note [Sums of leaves]
  std::vector<Tensor> dys;       // gradients so far, per output
  // Per dy: an event of the producer's stream, for which the consumer's stream has not waited yet. Null if
  // both are the same stream.
  std::vector<Event> made;
  // True for a slot that has passed gradients along its edges to inputs; run_deferred serves the other edges.
  bool deferred = false;
  // Of a deferred node: the gradients of the other edges if its rule computes all gradients at once. Else
  // `dxs` is empty, and `dys` is kept for a second run of the rule.
  std::vector<Tensor> dxs;
};

// Limit of the deferred terms' memory, see Note [Sums of leaves].
constexpr int64_t kMaxPendingBytes = int64_t{32} << 20;

// Makes a stream the current one of its device for a scope. Inline streams (cpu:0) need no scope.
class OptionalStreamScope {
 public:
  explicit OptionalStreamScope(const Stream& stream) {
    if (!stream.is_inline()) scope_.emplace(stream);
  }

 private:
  std::optional<StreamScope> scope_;
};

// The state and the steps of one BackwardPass.
class Pass {
 public:
  explicit Pass(BackwardPass& p) : p_(p), deferring_(!p.deferred.empty()) {}

  // Runs all marked nodes. If targets are deferred, runs only the nodes that lead to inputs.
  void run() {
    find_targets();
    mark();
    if (!deferring_) begin();
    deliver_unreached();
    count_dependencies();
    seed_roots();
    if (deferring_) release_roots();
    run_nodes();
    join();
  }
  // Runs the nodes and edges that run() has deferred, on the caller's current streams of this call.
  void run_deferred() {
    deferring_ = false;
    for (const Stream& s : std::exchange(caller_streams_, current_streams()))
      order(s, caller_stream(s.device()));
    begin();
    deliver_unreached();
    for (auto& [target, gradient] : std::exchange(late_deliveries_, {}))
      p_.deliver(target, std::move(gradient));
    run_nodes();
    join();
  }

 private:
  void begin() {
    if (!p_.begin) return;
    std::vector<bool> reached;
    for (const Edge& t : p_.targets) reached.push_back(t.slot && index_.count(t.slot.get()));
    p_.begin(reached);
  }

  // Delivers an undefined tensor for each target of this run that the roots do not reach.
  void deliver_unreached() {
    for (size_t t = 0; t < p_.targets.size(); ++t) {
      const bool is_deferred = !p_.deferred.empty() && p_.deferred[t];
      const bool is_of_this_run = deferring_ ? !is_deferred : p_.deferred.empty() || is_deferred;
      if (is_of_this_run && (!p_.targets[t].slot || !index_.count(p_.targets[t].slot.get())))
        p_.deliver(t, Tensor());
    }
  }

  // Keeps the graph of the roots alive until run_deferred, but releases the memory of their values.
  void release_roots() {
    for (const Tensor& root : p_.roots) root_slots_.push_back(root.ref()->slot);
    p_.roots.clear();
  }

  void seed_roots() {
    for (size_t i = 0; i < p_.roots.size(); ++i) {
      const Tensor& root = p_.roots[i];
      if (root.ref()->slot)
        accumulate(nullptr, {root.ref()->slot, root.ref()->slot_index}, std::move(p_.dys[i]));
    }
  }

  void run_nodes() {
    for (size_t v = 0; v < visits_.size(); ++v)
      if (visits_[v].leads && visits_[v].dependencies == 0) schedule(v);
    while (!ready_.empty()) {
      const size_t v = ready_.top().second;
      ready_.pop();
      run_node(v);
    }
    add_deferred_terms();
    for (const size_t v : std::exchange(complete_leaves_, {})) run_node(v);
  }

  void find_targets() {
    for (size_t t = 0; t < p_.targets.size(); ++t) {
      const Edge& target = p_.targets[t];
      if (!target.slot) continue;
      targets_of_[target.slot.get()].push_back(t);
      if (!target.slot->is_leaf()) computed_targets_.push_back(target);
    }
  }

  bool belongs(const AutogradSlot* slot) const {
    return slot->is_leaf() || static_cast<const Node*>(slot)->belongs_to(&p_.recording);
  }
  bool in_recording(const AutogradSlot* slot) const { return belongs(slot) || p_.recording.has_leaf(slot); }

  // A fused node has no gradient of the value between its ops. Splits the node if this value is a target.
  void split_if_target(AutogradSlot* slot) {
    if (computed_targets_.empty()) return;
    if (auto* node = dynamic_cast<FusesPreviousRelu*>(slot))
      for (const Edge& t : computed_targets_)
        if (node->fused_relu_sequence() == static_cast<Node*>(t.slot.get())->sequence()) node->unfuse(t);
  }

  // Returns the edges along which a slot passes gradients on: a node's inputs, or the producer of a leaf
  // that was computed.
  std::span<const Edge> edges_of(const AutogradSlot* slot) const {
    if (slot->is_leaf()) {
      const Edge& producer = static_cast<const Leaf*>(slot)->producer;
      return {&producer, producer.slot ? size_t{1} : size_t{0}};
    }
    // A node of another recording can be a leaf of this one; gradients end there.
    return belongs(slot) ? std::span<const Edge>(static_cast<const Node*>(slot)->edges())
                         : std::span<const Edge>();
  }

  // Fills visits_ and index_ with the slots that the roots reach in this recording, and flags those that lead
  // to a target. Depth-first search, without recursion. Required nodes (NodeTraits) are roots too, unless the
  // pass keeps the graph.
  void mark() {
    struct Step {
      size_t visit, edge;
    };
    std::vector<Step> path;
    const auto is_input = [&](const AutogradSlot* slot) {
      const auto found = targets_of_.find(slot);
      return found != targets_of_.end() &&
             std::ranges::any_of(found->second, [&](size_t t) { return !p_.deferred[t]; });
    };
    auto enter = [&](AutogradSlot* slot) {
      const auto [it, fresh] = index_.try_emplace(slot, visits_.size());
      if (!fresh) return;
      split_if_target(slot);
      visits_.push_back({.slot = slot});
      visits_.back().leads =
          targets_of_.count(slot) || (!slot->is_leaf() && static_cast<Node*>(slot)->is_required());
      visits_.back().leads_to_inputs = deferring_ && is_input(slot);
      path.push_back({it->second, 0});
    };
    auto walk = [&](AutogradSlot* from) {
      if (!in_recording(from)) return;
      enter(from);
      while (!path.empty()) {
        const auto [visit, edge] = path.back();
        const auto edges = edges_of(visits_[visit].slot);
        if (edge < edges.size()) {
          ++path.back().edge;
          if (AutogradSlot* next = edges[edge].slot.get(); next && in_recording(next)) enter(next);
          continue;
        }
        for (const Edge& e : edges)
          if (const auto found = e.slot ? index_.find(e.slot.get()) : index_.end(); found != index_.end()) {
            visits_[visit].leads = visits_[visit].leads || visits_[found->second].leads;
            visits_[visit].leads_to_inputs =
                visits_[visit].leads_to_inputs || visits_[found->second].leads_to_inputs;
          }
        path.pop_back();
      }
    };
    for (const Tensor& root : p_.roots)
      if (root.ref()->slot) walk(root.ref()->slot.get());
    if (!p_.keep_graph) required_nodes_ = p_.recording.required_nodes();
    for (const Ref<Node>& node : required_nodes_) walk(node.get());
  }

  bool leads(const AutogradSlot* slot) const {
    auto it = index_.find(slot);
    return it != index_.end() && visits_[it->second].leads;
  }

  void count_dependencies() {
    for (const Visit& v : visits_) {
      if (!v.leads) continue;
      for (const Edge& e : edges_of(v.slot))
        if (e.slot && leads(e.slot.get())) ++visits_[index_[e.slot.get()]].dependencies;
    }
  }

  // Returns whether gradients flow along this edge, now or in run_deferred.
  bool leads(const Edge& e) const { return e.slot && leads(e.slot.get()); }
  bool leads_to_inputs(const Edge& e) const { return visits_[index_.at(e.slot.get())].leads_to_inputs; }

  // Queues a slot with its priority: leaves first, then the node with the highest sequence number.
  void schedule(size_t v) {
    if (visits_[v].scheduled || (deferring_ && !visits_[v].leads_to_inputs)) return;
    visits_[v].scheduled = true;
    const AutogradSlot* slot = visits_[v].slot;
    ready_.emplace(slot->is_leaf() ? ~uint64_t{0} : static_cast<const Node*>(slot)->sequence(), v);
  }

  // A sparse gradient is a tensor on the meta device; its elements are on the device that computes with them.
  static Device device_of(const Tensor& gradient) { return elements_of(gradient).device(); }

  // See Note [Streams of a backward]. A deque, because stream references stay valid when it grows.
  static std::deque<Stream> current_streams() {
    const auto& streams = Context::current().streams;
    return {streams.begin(), streams.end()};
  }
  const Stream& caller_stream(Device device) {
    for (const Stream& s : caller_streams_)
      if (s.device() == device) return s;
    return caller_streams_.emplace_back(Stream::of(device));
  }
  // Returns the stream on which a slot's gradients on this device are computed and read: a node's stream, if
  // it is on this device; else, and for leaves and a null slot, the caller's stream of the device.
  const Stream& stream_of(const AutogradSlot* slot, Device device) {
    if (slot && !slot->is_leaf())
      if (const Stream& own = static_cast<const Node*>(slot)->stream(); own.device() == device) return own;
    return caller_stream(device);
  }
  // Makes `later` wait for the work queued on `earlier`.
  static void order(const Stream& earlier, const Stream& later) {
    if (!(earlier == later)) later.wait(Event::record(earlier));
  }
  // Makes the caller's streams wait for all work that the nodes have queued.
  void join() {
    for (const Stream& s : node_streams_) order(s, caller_stream(s.device()));
  }
  // Makes the stream that reads this output's gradient wait for the stream that computed the gradient.
  void wait_for_producer(Visit& v, size_t output) {
    if (output < v.made.size() && v.dys[output].defined())
      stream_of(v.slot, device_of(v.dys[output])).wait(std::exchange(v.made[output], {}));
  }
  void add_node_stream(const Stream& s) {
    if (!(s == caller_stream(s.device())) && std::ranges::find(node_streams_, s) == node_streams_.end())
      node_streams_.push_back(s);
  }

  // Converts a gradient to the shape, dtype, device and layout of the value at the edge's destination.
  // Returns dy unchanged for a leaf whose tensor is gone, unless a producer still describes the value.
  static Tensor conform_to(const Edge& to, Tensor dy) {
    if (!to.slot->is_leaf())
      return conform_to(std::move(dy), *static_cast<const Node*>(to.slot.get()), to.index);
    const Leaf& leaf = *static_cast<const Leaf*>(to.slot.get());
    if (const Tensor x = leaf.tensor(); x.defined()) return conform_gradient(std::move(dy), ValueInfo(x));
    if (!leaf.producer.slot) return dy;
    return conform_gradient(
        std::move(dy), static_cast<const Node*>(leaf.producer.slot.get())->outputs()[leaf.producer.index]);
  }

  // Adds dy to the gradient of output `to.index` of slot `to.slot`, on the reading stream. `from` is the slot
  // that computed dy; null: the caller. Ignores an undefined dy, and slots that lead to no target.
  void accumulate(const AutogradSlot* from, const Edge& to, Tensor dy) {
    if (!dy.defined() || !leads(to.slot.get())) return;
    Visit& v = visits_[index_[to.slot.get()]];
    const Device device = device_of(dy);
    const Stream &producer_stream = stream_of(from, device),
                 &consumer_stream = stream_of(to.slot.get(), device);
    Event made;
    if (!(producer_stream == consumer_stream)) made = Event::record(producer_stream);
    if (v.dys.size() <= to.index) v.dys.resize(to.index + 1);
    Tensor& sum = v.dys[to.index];
    if (v.term.defined()) add_deferred_terms();
    if (!sum.defined()) {
      sum = std::move(dy);
      if (producer_stream == consumer_stream) return;
      v.made.resize(v.dys.size());
      v.made[to.index] = std::move(made);
      return;
    }
    wait_for_producer(v, to.index);
    consumer_stream.wait(made);
    const OptionalStreamScope scope(consumer_stream);
    if (is_sparse(sum) && is_sparse(dy))
      sum = add_sparse(sum, dy);
    else if (is_sparse(sum) || is_sparse(dy))
      sum = add(to_dense(sum), to_dense(dy));
    else if (!may_reuse(sum) || sum.dtype() != dy.dtype() || is_tracked(sum) || is_tracked(dy))
      sum = add(sum, dy);
    else if (can_defer_sum(v))
      defer_sum(v, std::move(dy));
    else
      raw::add_(sum, dy);
  }

  // Returns whether the next term of this sum may be deferred. See Note [Sums of leaves].
  bool can_defer_sum(const Visit& v) const {
    if (p_.read_after_pass.empty() || !v.slot->is_leaf() || v.dys[0].device().type == DeviceType::kCPU)
      return false;
    const auto found = targets_of_.find(v.slot);
    return found != targets_of_.end() && !leads_further(v) &&
           std::ranges::all_of(found->second, [&](size_t t) { return p_.read_after_pass[t]; });
  }
  void defer_sum(Visit& v, Tensor term) {
    pending_bytes_ += term.storage()->bytes();  // a view keeps all of it
    v.term = std::move(term);
    pending_leaves_.push_back(index_.at(v.slot));
    if (pending_bytes_ > kMaxPendingBytes) add_deferred_terms();
  }
  // Adds all pending terms to their leaves' gradients, in few launches.
  void add_deferred_terms() {
    std::vector<Tensor> sums, terms;
    for (const size_t v : std::exchange(pending_leaves_, {})) {
      sums.push_back(visits_[v].dys[0]);
      terms.push_back(std::exchange(visits_[v].term, {}));
    }
    pending_bytes_ = 0;
    raw::add_all_(sums, terms);
  }

  // As above for a node's output. A dy in the other dtype that the rule accepts (gradient_dtype) keeps it.
  static Tensor conform_to(Tensor dy, const Node& node, uint32_t output) {
    const ValueInfo& value = node.outputs()[output];
    if (dy.dtype() == value.dtype || dy.dtype() != node.gradient_dtype(output))
      return conform_gradient(std::move(dy), value);
    ValueInfo wide = value;
    wide.dtype = dy.dtype();
    return conform_gradient(std::move(dy), wide);
  }

  // Returns the gradient in its value's dtype, for delivery to the caller.
  static Tensor to_value_dtype(Tensor dy, const AutogradSlot& slot, uint32_t output) {
    if (!dy.defined() || slot.is_leaf()) return dy;
    const OptionalStreamScope scope(static_cast<const Node&>(slot).stream());
    return conform_gradient(std::move(dy), static_cast<const Node&>(slot).outputs()[output]);
  }

  // Delivers the gradients of a slot's targets. Moves the last one if no rule reads it afterward.
  void deliver_targets(Visit& v) {
    auto it = targets_of_.find(v.slot);
    if (it == targets_of_.end()) return;
    // The node's stream sums and converts the gradients of its outputs, even if its rule does not run.
    if (!v.slot->is_leaf()) add_node_stream(static_cast<const Node*>(v.slot)->stream());
    const bool passes_on = !v.slot->is_leaf() || leads_further(v);
    for (size_t i = 0; i < it->second.size(); ++i) {
      const size_t t = it->second[i];
      const uint32_t output = p_.targets[t].index;
      if (deferring_ && p_.deferred[t])  // a deferred target that leads to an input
        late_deliveries_.emplace_back(
            t, output < v.dys.size() ? to_value_dtype(v.dys[output], *v.slot, output) : Tensor());
      else if (output >= v.dys.size())
        p_.deliver(t, Tensor());
      else if (passes_on || i + 1 < it->second.size())
        p_.deliver(t, to_value_dtype(v.dys[output], *v.slot, output));
      else
        p_.deliver(t, to_value_dtype(std::move(v.dys[output]), *v.slot, output));
    }
  }

  // Returns whether this slot passes gradients on.
  bool leads_further(const Visit& v) const {
    return std::ranges::any_of(edges_of(v.slot), [&](const Edge& e) { return leads(e); });
  }

  // Processes a slot that has all its gradients. A leaf with a pending term waits for the end of run_nodes.
  void run_node(size_t index) {
    Visit& visit = visits_[index];
    if (visit.term.defined()) return complete_leaves_.push_back(index);
    for (size_t i = 0; i < visit.made.size(); ++i) wait_for_producer(visit, i);
    visit.made.clear();
    const bool was_deferred = std::exchange(visit.deferred, false);
    if (!was_deferred) deliver_targets(visit);
    if (visit.slot->is_leaf())
      pass_to_producer(visit);
    else if (belongs(visit.slot))
      run_rule(visit, was_deferred);
    else
      visit.dys.clear();
  }

  // Passes the gradient of a leaf that a recorded op computed on to that op.
  void pass_to_producer(Visit& visit) {
    const Edge& producer = static_cast<Leaf*>(visit.slot)->producer;
    std::vector<Tensor> dys = std::move(visit.dys);
    if (!leads(producer)) return;
    if (deferring_ && !leads_to_inputs(producer)) return defer(visit, std::move(dys), {});
    if (!dys.empty()) accumulate(visit.slot, producer, std::move(dys[0]));
    count_down(producer);
  }

  // Runs a node's rule, and passes the gradients on. `was_deferred`: the node has run in run(), and this call
  // serves the edges that were left.
  void run_rule(Visit& visit, bool was_deferred) {
    Node& node = *static_cast<Node*>(visit.slot);
    const size_t n = node.edges().size();
    std::vector<char> now(n, 0), later(n, 0);
    for (size_t i = 0; i < n; ++i)
      if (const Edge& e = node.edges()[i]; leads(e)) {
        now[i] = was_deferred ? !leads_to_inputs(e) : !deferring_ || leads_to_inputs(e);
        later[i] = !was_deferred && !now[i];
      }
    const bool any_later = std::ranges::any_of(later, std::identity());
    const bool splits = any_later && node.is_deferrable();  // else the rule computes all gradients at once
    std::vector<Tensor> dys = std::move(visit.dys), dxs = std::move(visit.dxs), kept_dys;
    if (dxs.empty()) {
      dxs.resize(n);
      const bool any_dy = std::ranges::any_of(dys, [](const Tensor& dy) { return dy.defined(); });
      if (node.is_required() || (any_dy && std::ranges::any_of(now, std::identity()))) {
        if (splits) kept_dys = dys;
        std::vector<char> needs = now;
        if (!splits)
          for (size_t i = 0; i < n; ++i) needs[i] = now[i] || later[i];
        compute(node, dys, needs, dxs, !splits);
      }
    }
    dys.clear();
    for (size_t i = 0; i < n; ++i) {
      if (!now[i]) continue;
      accumulate(&node, node.edges()[i], std::move(dxs[i]));
      count_down(node.edges()[i]);
    }
    if (any_later) defer(visit, std::move(kept_dys), splits ? std::vector<Tensor>() : std::move(dxs));
  }

  // Sets dxs[i] for each needed input i to its gradient, with the input's shape, dtype and device. `is_last`:
  // the rule does not run again in this pass. Saved tensors are then freed, unless the pass keeps the graph.
  void compute(Node& node, std::vector<Tensor>& dys, std::span<const char> needs, std::vector<Tensor>& dxs,
               bool is_last) {
    dys.resize(node.outputs().size());
    add_node_stream(node.stream());
    const OptionalStreamScope scope(node.stream());
    for (Tensor& dy : dys) dy = to_dense(dy);
    call(node, {.dys = dys, .needs = needs, .dxs = dxs, .ending = p_.keep_graph ? nullptr : &p_.recording},
         is_last);
    for (size_t i = 0; i < needs.size(); ++i)
      if (needs[i] && dxs[i].defined()) dxs[i] = conform_to(node.edges()[i], std::move(dxs[i]));
  }

  // Keeps dys or dxs in the visit, for the edges that run_deferred serves.
  void defer(Visit& visit, std::vector<Tensor> dys, std::vector<Tensor> dxs) {
    for (const Tensor& dx : dxs)
      if (dx.defined()) caller_stream(device_of(dx));  // run_deferred's stream waits for this one
    visit.dys = std::move(dys);
    visit.dxs = std::move(dxs);
    visit.deferred = true;
    visit.scheduled = false;
  }

  // Called once per edge after its gradient has been passed on. Queues the destination after its last edge.
  void count_down(const Edge& e) {
    const size_t v = index_[e.slot.get()];
    if (--visits_[v].dependencies == 0) schedule(v);
  }

  // Calls a node's rule. In the last call the rule may consume the tensors that it saved.
  void call(Node& node, const RuleArgs& args, bool is_last) {
    Context& context = Context::current();
    AutogradSlot* const outer_node = std::exchange(context.running_node, &node);
    const bool ends = args.ending && !node.belongs_to_others(args.ending);
    const bool outer_last = std::exchange(context.is_last_run, ends && is_last);
    struct Restore {
      Context& c;
      AutogradSlot* node;
      bool last;
      ~Restore() { c.running_node = node, c.is_last_run = last; }
    } restore{context, outer_node, outer_last};
    const RunningRange running =
        observed({.kind = RangeKind::kBackward, .name = node.op(), .module = node.module_path()});
    try {
      node.run(args);
      check_gradients(args.dxs);
    } catch (Error& e) {
      e.add_context(concat("while running backward of ", node.op(),
                           node.module_path().empty() ? "" : " (" + node.module_path() + ")"));
      throw;
    }
    if (args.ending && node.is_required()) p_.recording.mark_run(node);
    // Frees what the rule saved before the next node runs.
    if (ends) node.drop(is_last ? std::span<const char>() : args.needs);
  }

  BackwardPass& p_;
  std::unordered_map<const AutogradSlot*, size_t> index_;                    // position in visits_
  std::unordered_map<const AutogradSlot*, std::vector<size_t>> targets_of_;  // positions in p_.targets
  std::vector<Edge> computed_targets_;  // the targets that are results of nodes
  std::vector<Visit> visits_;
  std::vector<Ref<Node>> required_nodes_;
  std::priority_queue<std::pair<uint64_t, size_t>> ready_;  // priority and position in visits_
  std::vector<size_t> pending_leaves_;                      // visits with a pending term
  std::vector<size_t> complete_leaves_;  // those of pending_leaves_ that have received all gradients
  int64_t pending_bytes_ = 0;
  bool deferring_;                                          // while run() defers targets
  std::vector<Ref<AutogradSlot>> root_slots_;               // keep the graph until run_deferred
  std::vector<std::pair<size_t, Tensor>> late_deliveries_;  // deferred targets that run() reached
  std::deque<Stream> caller_streams_ = current_streams();   // the caller's current streams, one per device
  std::vector<Stream> node_streams_;  // other streams that have run rules, sums or conversions
};

// Calls f without autocast, and with the open recordings that record the backward's own ops: with keep_graph
// all, else all but pass.recording and the recordings inside it. If f throws, finishes the recording unless
// the pass keeps the graph.
template <class F> void run_backward(BackwardPass& pass, const F& f) {
  const RecordingsScope scope(pass.keep_graph ? open_recordings() : recordings_of_backward(pass.recording));
  const NoAutocast as_recorded;
  try {
    f();
  } catch (...) {
    if (!pass.keep_graph) pass.recording.finish(std::current_exception());
    throw;
  }
}

// Converts the gradients of the roots to the roots' shapes, dtypes and devices.
void conform_dys(BackwardPass& pass) {
  for (size_t i = 0; i < pass.roots.size(); ++i)
    pass.dys[i] = conform_gradient(std::move(pass.dys[i]), ValueInfo(pass.roots[i]));
}

}  // namespace

Tensor conform_gradient(Tensor gradient, const ValueInfo& value) {
  if (is_sparse(gradient)) {
    const Tensor& values = sparse_rows(gradient).values;
    if (gradient.shape() == value.shape && values.dtype() == value.dtype && values.device() == value.device)
      return gradient;
    gradient = to_dense(gradient);
  }
  if (!(gradient.shape() == value.shape)) {
    // Rules ignore broadcasting, so dims that the op has broadcast are summed here. Any other difference in
    // shape is an error in a rule.
    if (gradient.dim() < value.shape.size())
      throw ShapeError("backward", "a gradient of shape ", gradient.shape(), " for a value of shape ",
                       value.shape);
    gradient = sum_to(gradient, value.shape);
  }
  if (gradient.dtype() != value.dtype) gradient = to(gradient, value.dtype);
  if (!(gradient.device() == value.device)) gradient = to(gradient, value.device);
  if (value.channels_last && !gradient.is_channels_last()) gradient = channels_last(gradient);
  return gradient;
}

void run(BackwardPass& pass) {
  conform_dys(pass);
  run_backward(pass, [&] { Pass(pass).run(); });
}

struct DeferringPass::Impl {
  explicit Impl(BackwardPass b) : backward(std::move(b)), pass(backward) {}
  BackwardPass backward;
  Pass pass;
};

DeferringPass::DeferringPass(BackwardPass pass) : impl_(std::make_unique<Impl>(std::move(pass))) {}
DeferringPass::~DeferringPass() = default;

void DeferringPass::run() {
  conform_dys(impl_->backward);
  run_backward(impl_->backward, [&] { impl_->pass.run(); });
}
void DeferringPass::run_deferred() {
  run_backward(impl_->backward, [&] { impl_->pass.run_deferred(); });
}

}  // namespace gradus::autograd
