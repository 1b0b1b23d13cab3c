// Differentiable collectives. Each call moves row-major tensors through the group's Collectives and, if a member (a rank of the group) wants gradients, records a CollectiveNode whose rule is the
// transposed collective: all_gather and reduce_scatter, broadcast and reduce, gather and scatter are pairs;
// all_reduce of a sum and all_to_all are their own. All members must call the same functions in the same
// order, also in the backward.
#include "gradus/distributed/group/functional.h"

#include <functional>
#include <type_traits>
#include <utility>

#include "gradus/autograd/grad_manager.h"  // NoRecord
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/graph/recording_state.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/comparison.h"
#include "gradus/autograd/ops/concat.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/distributed/group/agreement.h"
#include "gradus/distributed/group/collective_argument.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::dist::functional {
namespace {

using autograd::RecordingState;
using autograd::Saved;
using internal::block;
using internal::blocks;
using internal::const_block;
using internal::const_blocks;
using internal::Forward;
using internal::MatchedCall;
using internal::Op;
using internal::resolved;
using internal::TensorSpec;
// specs[i][k]: dtype and shape of the k-th tensor that member i sends.
using TensorSpecs = std::vector<std::vector<TensorSpec>>;

// Computes the inputs' gradients from the outputs' gradients, all of which are defined. A rule communicates,
// so all members run the rule together.
using Rule = std::function<std::vector<Tensor>(std::vector<Tensor> dys)>;

// Note [Collectives in backward]
// A collective's node runs on every rank that calls backward, whether or not a gradient has arrived there.
// The engine runs the newest node first, so all ranks come to their collectives in the same order: the
// reverse of the forward's. Ranks without a gradient take part with zeros. If no rank has a gradient, no data
// moves and the inputs get no gradients, as for an op whose result is not used.
class CollectiveNode final : public autograd::Node {
 public:
  CollectiveNode(const internal::CallRecord& record, Group group, Rule rule)
      : Node(name_of(record.op).data(), {.required = true}),
        record_(record),
        group_(std::move(group)),
        rule_(std::move(rule)) {}

  void run(const autograd::RuleArgs& args) override {
    const auto& [dys, needs, dxs, ending] = args;
    bool local = false;
    for (const Tensor& dy : dys) local = local || dy.defined();
    if (!internal::any_rank_has_gradient(group_, record_, local)) return;
    std::vector<Tensor> all;
    for (size_t i = 0; i < dys.size(); ++i) {
      const autograd::ValueInfo& y = outputs()[i];
      all.push_back(dys[i].defined() ? std::move(dys[i])
                                     : zeros(y.shape, {.dtype = y.dtype, .device = y.device}));
    }
    std::vector<Tensor> grads = rule_(std::move(all));
    for (size_t i = 0; i < dxs.size(); ++i)
      if (needs[i]) dxs[i] = std::move(grads[i]);
  }

  // The backward ended before this node ran, so the other ranks would wait: fails the job.
  void skipped(const RecordingState&, std::exception_ptr error) noexcept override {
    internal::report_backward_failure(group_.state().world(), error);
  }
  // The result's tensor may keep this node alive for long. The node must not keep the job alive.
  void drop(std::span<const char>) override {
    rule_ = nullptr;
    group_ = Group();
  }

 private:
  const internal::CallRecord record_;
  Group group_;
  Rule rule_;
};

std::span<const Tensor> as_span(const Tensor& x) { return {&x, 1}; }
std::span<const Tensor> as_span(const std::vector<Tensor>& xs) { return xs; }

// Runs the call, and records it if any member wants gradients. `outputs` is a tensor or a list, which forward.move may
// set. `rule` is a Rule, or makes one from a Recorder, to save tensors.
template <class Outputs, class AnyRule>
void run(const Group& group, const Forward& forward, Outputs& outputs, AnyRule rule) {
  const internal::Agreement agreed = internal::run_forward(group, forward);
  Recorder recorder(name_of(forward.op).data(), agreed.recordings);
  if (!recorder) return;
  std::vector<autograd::Edge> edges;
  for (const Tensor& x : forward.inputs) edges.push_back(recorder.edge_to(x));
  const auto make_rule = [&]() -> Rule {
    if constexpr (std::is_invocable_v<AnyRule, Recorder&>)
      return rule(recorder);
    else
      return std::move(rule);
  };
  Ref<autograd::Node> node(new CollectiveNode(agreed.record, group, make_rule()));
  recorder.attach(std::move(node), as_span(outputs), std::move(edges));
}

// Returns x, or a recorded dense copy.
Tensor prepared(const char* op, const Tensor& given) {
  internal::check_has_data(op, "x", given);
  const Tensor x = contiguous(given);
  if (x.device().type != DeviceType::kCUDA) internal::wait_for_device(x);
  return x;
}
// Returns a new tensor like x.
Tensor result_like(const Tensor& x) { return empty(x.shape(), {.dtype = x.dtype(), .device = x.device()}); }

// Returns prepared tensors, one per member, after a check that all have one dtype.
std::vector<Tensor> prepared(const char* op, const std::vector<Tensor>& xs, const Group& group) {
  group.state().check_member(op);
  if (int(xs.size()) != group.size())
    throw ValueError(op, "needs one tensor per member: given ", xs.size(), " for ", group.size());
  std::vector<Tensor> all;
  for (const Tensor& x : xs) all.push_back(prepared(op, x));
  internal::check_dtypes(op, all[0].dtype(), all);
  return all;
}

// Returns the gradient of one term of a sum (dy) or of an average (dy divided by the group's size).
Tensor scaled(const Tensor& dy, ReduceOp op, const Group& group) {
  return op == ReduceOp::kAvg ? dy / group.size() : dy;
}

// Returns whether the gradient needs neither the inputs nor the result.
bool has_smooth_rule(ReduceOp op) { return op == ReduceOp::kSum || op == ReduceOp::kAvg; }

// Returns the root's index in the group; options.root is its rank in the job.
int root_index(const char* op, const RootOptions& options) {
  return options.group.state().index_of(options.root, op, "root");
}

std::vector<int64_t> equal_parts(const char* op, const Tensor& x, int64_t dim, const Group& group) {
  const int64_t n = x.size(dim), members = group.size();
  if (n % members != 0)
    throw ShapeError(op, "dim ", dim, " does not divide into ", members, " equal parts: x ", describe(x));
  return std::vector<int64_t>(members, n / members);
}

// Returns the share of a maximum's (or minimum's) gradient that x gets, per element: 1 / (number of members
// whose element equals the result y or is NaN), or 0.
Tensor share_of_winners(const Tensor& x, const Tensor& y, const Group& group) {
  const NoRecord off;
  const Tensor wins = to(logical_or(eq(x, y), isnan(x)), x.dtype());
  return wins / all_reduce(wins, ReduceOp::kSum, {.group = group});
}

// Returns the product of the other members' x; undefined for a group of one.
Tensor product_of_others(const Tensor& x, const Group& group) {
  const std::vector<Tensor> all = all_gather(x, {.group = group});
  Tensor product;
  for (int i = 0; i < group.size(); ++i)
    if (i != group.rank()) product = product.defined() ? product * all[i] : all[i];
  return product;
}

// Returns the reduction over all members of their given[r], where r is this rank's index in the group.
Tensor reduce_scatter_parts(const std::vector<Tensor>& given, ReduceOp op, const Group& group) {
  const std::vector<Tensor> xs = prepared("reduce_scatter", given, group);
  Tensor y = result_like(xs[group.rank()]);
  const auto move = [&](MatchedCall& matched, const TensorSpecs&) {
    matched.data().reduce_scatter(matched.call, const_blocks(xs), y.raw_ptr(), y.dtype(), op);
  };
  run(group, {.op = Op::kReduceScatter, .reduce = op, .inputs = xs, .move = move}, y,
      [op, group](std::vector<Tensor> dys) {
        return all_gather(scaled(dys[0], op, group), {.group = group});
      });
  return y;
}

}  // namespace

Tensor all_reduce(const Tensor& given, ReduceOp op, const FunctionalOptions& options) {
  const Group group = resolved(options.group);
  const Tensor x = prepared("all_reduce", given);
  check_reduce_op("all_reduce", op, x.dtype());
  Tensor y = result_like(x);
  const auto move = [&](MatchedCall& matched, const TensorSpecs&) {
    matched.data().all_reduce(matched.call, x.raw_ptr(), y.raw_ptr(), x.numel(), x.dtype(), op);
  };
  run(group, {.op = Op::kAllReduce, .reduce = op, .inputs = {&x, 1}, .move = move}, y,
      [&](Recorder& r) -> Rule {
        if (has_smooth_rule(op))
          return [op, group](std::vector<Tensor> dys) {
            return std::vector{all_reduce(dys[0], op, {.group = group})};
          };
        if (op == ReduceOp::kProduct)
          return [x = r.save(x), group](std::vector<Tensor> dys) {
            const Tensor dy = all_reduce(dys[0], ReduceOp::kSum, {.group = group});
            const Tensor others = product_of_others(x.get(), group);
            return std::vector{others.defined() ? dy * others : dy};
          };
        return [share = share_of_winners(x, y, group), group](std::vector<Tensor> dys) {
          return std::vector{all_reduce(dys[0], ReduceOp::kSum, {.group = group}) * share};
        };
      });
  return y;
}

Tensor all_reduce_sum(const Tensor& x, const FunctionalOptions& options) {
  return all_reduce(x, ReduceOp::kSum, options);
}
Tensor all_reduce_max(const Tensor& x, const FunctionalOptions& options) {
  return all_reduce(x, ReduceOp::kMax, options);
}
Tensor all_reduce_min(const Tensor& x, const FunctionalOptions& options) {
  return all_reduce(x, ReduceOp::kMin, options);
}

Tensor reduce(const Tensor& given, ReduceOp op, const RootOptions& options) {
  const Group group = resolved(options.group);
  const int root = root_index("reduce", options);
  const RootOptions back{.root = options.root, .group = group};
  const Tensor x = prepared("reduce", given);
  check_reduce_op("reduce", op, x.dtype());
  const bool at_root = group.rank() == root;
  if (!has_smooth_rule(op) && is_floating(x.dtype())) {
    // The gradients of product, maximum and minimum need the result, or the others' inputs, on all ranks.
    const Tensor y = all_reduce(x, op, {.group = group});
    if (at_root) return y;
    const Tensor nothing = zeros_like(x);
    if (Recorder r{"reduce", y}) r.record(nothing, wrt(y, [](const Tensor&) { return Tensor(); }));
    return nothing;
  }
  Tensor y = at_root ? result_like(x) : zeros_like(x);
  const auto move = [&](MatchedCall& matched, const TensorSpecs&) {
    matched.data().reduce(matched.call, root, x.raw_ptr(), at_root ? y.raw_ptr() : nullptr, x.numel(),
                          x.dtype(), op);
  };
  run(group, {.op = Op::kReduce, .reduce = op, .root = root, .inputs = {&x, 1}, .move = move}, y,
      [op, back](std::vector<Tensor> dys) {
        return std::vector{broadcast(scaled(dys[0], op, back.group), back)};
      });
  return y;
}

Tensor broadcast(const Tensor& given, const RootOptions& options) {
  const Group group = resolved(options.group);
  const int root = root_index("broadcast", options);
  const RootOptions back{.root = options.root, .group = group};
  const bool at_root = group.rank() == root;
  std::vector<Tensor> inputs;  // the root's x; elsewhere none
  if (at_root) inputs.push_back(prepared("broadcast", given));
  const Device device = given.defined() ? given.device() : options.device;
  Tensor y;
  const auto move = [&](MatchedCall& matched, const TensorSpecs&) {
    y = TensorSpec(matched.records[root]).make(device);
    if (at_root) internal::pack(y, inputs);
    matched.data().broadcast(matched.call, root, y.raw_ptr(), y.nbytes());
  };
  run(group, {.op = Op::kBroadcast, .device = device, .root = root, .inputs = inputs, .move = move}, y,
      [back](std::vector<Tensor> dys) { return std::vector{reduce(dys[0], ReduceOp::kSum, back)}; });
  return y;
}

std::vector<Tensor> all_gather(const Tensor& given, const FunctionalOptions& options) {
  const Group group = resolved(options.group);
  const Tensor x = prepared("all_gather", given);
  std::vector<Tensor> ys;
  const auto move = [&](MatchedCall& matched, const TensorSpecs&) {
    for (const internal::CallRecord& r : matched.records) ys.push_back(TensorSpec(r).make(x.device()));
    matched.data().all_gather(matched.call, const_block(x), blocks(ys));
  };
  run(group, {.op = Op::kAllGather, .inputs = {&x, 1}, .move = move}, ys, [group](std::vector<Tensor> dys) {
    return std::vector{reduce_scatter_parts(dys, ReduceOp::kSum, group)};
  });
  return ys;
}

Tensor cat_all_gather(const Tensor& x, int64_t dim, const FunctionalOptions& options) {
  const std::vector<Tensor> all = all_gather(x, options);
  return x.dim() == 0 ? stack(all, dim) : cat(all, dim);
}

std::vector<Tensor> gather(const Tensor& given, const RootOptions& options) {
  const Group group = resolved(options.group);
  const int root = root_index("gather", options);
  const Tensor x = prepared("gather", given);
  const RootOptions back{.root = options.root, .group = group, .device = x.device()};
  std::vector<Tensor> ys;
  const auto move = [&](MatchedCall& matched, const TensorSpecs&) {
    if (group.rank() == root)
      for (const internal::CallRecord& r : matched.records) ys.push_back(TensorSpec(r).make(x.device()));
    matched.gather(root, const_block(x), blocks(ys));
  };
  run(group, {.op = Op::kGather, .root = root, .inputs = {&x, 1}, .move = move}, ys,
      [back](std::vector<Tensor> dys) { return std::vector{scatter(dys, back)}; });
  return ys;
}

Tensor scatter(const std::vector<Tensor>& given, const RootOptions& options) {
  const Group group = resolved(options.group);
  const int root = root_index("scatter", options);
  const RootOptions back{.root = options.root, .group = group};
  const bool at_root = group.rank() == root;
  if (!at_root && !given.empty())
    throw ValueError("scatter", "only the root, rank ", options.root, ", gives tensors: given ",
                     given.size());
  std::vector<Tensor> xs;
  if (at_root) xs = prepared("scatter", given, group);
  const Device device = at_root ? xs[group.rank()].device() : options.device;
  Tensor y;
  const auto move = [&](MatchedCall& matched, const TensorSpecs& specs) {
    y = specs[root].at(group.rank()).make(device);
    matched.scatter(root, const_blocks(xs), block(y));
  };
  run(group, {.op = Op::kScatter, .device = device, .root = root, .inputs = xs, .move = move}, y,
      [back](std::vector<Tensor> dys) { return gather(dys[0], back); });
  return y;
}

Tensor reduce_scatter(const Tensor& x, ReduceOp op, int64_t dim, const FunctionalOptions& options) {
  const Group group = resolved(options.group);
  if (!x.defined()) throw ValueError("reduce_scatter", "got an undefined tensor");
  check_reduce_op("reduce_scatter", op, x.dtype());
  const std::vector<Tensor> parts = split(x, equal_parts("reduce_scatter", x, dim, group), dim);
  if (has_smooth_rule(op) || !is_floating(x.dtype())) return reduce_scatter_parts(parts, op, group);
  // Sends every part to its rank and reduces the parts by prod, amax or amin, which have gradients.
  const Tensor all = stack(all_to_all(parts, options));
  return op == ReduceOp::kProduct ? prod(all, {0}) : op == ReduceOp::kMax ? amax(all, {0}) : amin(all, {0});
}

Tensor all_to_all(const Tensor& x, int64_t split_dim, int64_t concat_dim, const FunctionalOptions& options) {
  if (!x.defined()) throw ValueError("all_to_all", "got an undefined tensor");
  const auto parts = split(x, equal_parts("all_to_all", x, split_dim, options.group), split_dim);
  return cat(all_to_all(parts, options), concat_dim);
}

std::vector<Tensor> all_to_all(const std::vector<Tensor>& given, const FunctionalOptions& options) {
  const Group group = resolved(options.group);
  const std::vector<Tensor> xs = prepared("all_to_all", given, group);
  const Device device = xs[group.rank()].device();
  std::vector<Tensor> ys;
  const auto move = [&](MatchedCall& matched, const TensorSpecs& specs) {
    for (const std::vector<TensorSpec>& sent : specs) ys.push_back(sent.at(group.rank()).make(device));
    matched.data().exchange_blocks(matched.call, const_blocks(xs), blocks(ys));
  };
  run(group, {.op = Op::kAllToAll, .inputs = xs, .move = move}, ys,
      [group](std::vector<Tensor> dys) { return all_to_all(dys, {.group = group}); });
  return ys;
}

}  // namespace gradus::dist::functional
