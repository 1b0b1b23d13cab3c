// The collectives of torch.distributed. Each function checks this rank's tensors,
// and builds a Collective: a CallRecord, optional sizes, a check and a data movement. GroupState::run then
// exchanges the records and sizes of all members, runs the check on every rank, and calls `move` on the
// calling thread or on the group's queue thread (always for async_op). The lambdas hold the tensors, and so
// keep them alive until the call has ended.
#include "gradus/distributed/group/collectives.h"

#include <algorithm>
#include <numeric>

#include "gradus/distributed/group/collective_argument.h"
#include "gradus/distributed/group/group_state.h"
#include "gradus/distributed/group/internal/call_batch.h"
#include "gradus/tensor/ops/arithmetic.h"

namespace gradus::dist {

using internal::Block;
using internal::blocks;
using internal::CallBatch;
using internal::CallRecord;
using internal::CallTensors;
using internal::check_dtypes;
using internal::Collective;
using internal::const_block;
using internal::const_blocks;
using internal::ConstBlock;
using internal::GroupState;
using internal::make_record;
using internal::MatchedCall;
using internal::Op;
using internal::TensorSpec;

namespace {

// Returns the group's state, after checking that this rank is a member.
GroupState& member_state(const Group& group, const char* op) {
  GroupState& state = group.state();
  state.check_member(op);
  return state;
}

// Returns a record for lists that differ from rank to rank: their dtype and total number of elements.
CallRecord make_list_record(Op op, DType dtype, int64_t numel, ReduceOp reduce = ReduceOp::kSum) {
  return {.op = op,
          .reduce = reduce,
          .dtype = dtype,
          .ndim = 1,
          .dims = {numel},
          .bytes = numel * size_of(dtype)};
}

int64_t numel_of(const CallRecord& record) { return TensorSpec(record).shape.product(); }
std::string text_of(const CallRecord& record) { return concat(record.dtype, TensorSpec(record).shape); }

std::vector<int64_t> sizes_of(const std::vector<Tensor>& xs) {
  std::vector<int64_t> sizes;
  for (const Tensor& x : xs) sizes.push_back(x.numel());
  return sizes;
}

// Cuts x's memory into consecutive blocks of sizes[i] elements. B: Block or ConstBlock.
template <class B> std::vector<B> cut(const Tensor& x, std::span<const int64_t> sizes) {
  std::vector<B> parts;
  char* at = static_cast<char*>(x.raw_ptr());
  for (int64_t n : sizes) {
    parts.push_back({at, size_t(n * size_of(x.dtype()))});
    at += parts.back().bytes;
  }
  return parts;
}

// Increments the version counters, by which autograd detects in-place writes.
void bump(const std::vector<Tensor>& written) {
  for (const Tensor& x : written) x.storage()->bump_version();
}

// The reduction of a call's data.
class Reducer {
 public:
  // `args`: receives a factor on the call's GPU.
  // Errors: those of check_reduce_op and premul_sum.
  Reducer(const char* op, const ReduceOperation& reduction, DType dtype, CallTensors& args)
      : record_op(reduction.op),
        data_op(reduction.op == ReduceOp::kPremulSum ? ReduceOp::kSum : reduction.op),
        factor_(reduction.factor.value_or(1)) {
    const Tensor& factor = reduction.factor_tensor;
    if (reduction.op != ReduceOp::kPremulSum || !(reduction.factor || factor)) {
      check_reduce_op(op, reduction.op, dtype);
      return;
    }
    if (!is_floating(dtype)) throw DTypeError(op, "premul_sum is for floating point, got ", dtype);
    if (!factor) return;
    if (factor.numel() != 1)
      throw ShapeError(op, "the factor of premul_sum must have one element, got ", describe(factor));
    if (!is_floating(factor.dtype()))
      throw DTypeError(op, "the factor of premul_sum must be floating point, got ", describe(factor));
    if (args.device() == kCPU || factor.device().type != DeviceType::kCUDA) {
      factor_ = factor.item<double>();
    } else {
      const Tensor x = args.input("factor", factor);
      on_gpu_ = view_as_strided(x, {}, {}, x.impl().offset);
    }
  }

  // Returns the data to reduce: x, or for premul_sum the product with the factor, in x if `in_place`.
  Tensor prepare(const Tensor& x, bool in_place) const {
    if (record_op != ReduceOp::kPremulSum) return x;
    if (x.device().type == DeviceType::kCUDA) {
      if (!in_place) return on_gpu_ ? raw::mul(x, on_gpu_) : raw::mul(x, factor_);
      on_gpu_ ? raw::mul_(x, on_gpu_) : raw::mul_(x, factor_);
      return x;
    }
    const Tensor y = in_place ? x : empty(x.shape(), {.dtype = x.dtype()});
    scale_into(y.raw_ptr(), x.raw_ptr(), x.numel(), x.dtype(), factor_);
    return y;
  }

  const ReduceOp record_op;  // that members compare
  const ReduceOp data_op;    // of the prepared data

 private:
  double factor_;
  Tensor on_gpu_;
};

// Runs the call. The versions of the tensors that it writes change when the data has moved, for async_op also now.
template <class Options>
Work run(GroupState& group, Collective collective, CallTensors& args, const Options& options) {
  CallBatch* const batch = CallBatch::current();
  if (batch) batch->flush();
  const bool async = options.async_op || batch;
  if (async) bump(args.written());
  collective.device = args.device();
  collective.tensors = args.on_gpu();
  collective.move = [move = std::move(collective.move),
                     written = std::move(args.written())](MatchedCall& matched) {
    move(matched);
    bump(written);
  };
  Work work = group.run(std::move(collective), async, options.timeout);
  if (batch) batch->add(work);
  return work;
}

// Errors: ValueError unless the list has one tensor per rank of the group.
void check_length(const char* op, const char* what, const std::vector<Tensor>& xs, const GroupState& group) {
  if (int(xs.size()) != group.size())
    throw ValueError(op, what, " must hold one tensor per rank of group '", group.name(), "' (", group.size(),
                     "), got ", xs.size());
}
// Checks a list that the root (an index in the group) passes, and that is empty on the other ranks.
void check_root_list(const char* op, const char* what, const std::vector<Tensor>& xs, const GroupState& group,
                     int root) {
  if (root == group.index()) return check_length(op, what, xs, group);
  if (!xs.empty())
    throw ValueError(op, what, " must be given on rank ", group.members()[root], " alone, but rank ",
                     group.members()[group.index()], " gives ", xs.size());
}

Failure mismatch(int rank, std::string text) { return {Failure::Kind::kMismatch, rank, std::move(text)}; }

// Returns a check for gather and all_gather: on each rank that announced output sizes, output i has as many
// elements as the input of group rank i.
std::function<std::optional<Failure>(const MatchedCall&)> check_gathered(const GroupState& group) {
  return [&group](const MatchedCall& matched) -> std::optional<Failure> {
    const std::vector<int>& ranks = group.members();
    for (size_t r = 0; r < ranks.size(); ++r) {
      const std::vector<int64_t>& sizes = matched.sizes[r];
      for (size_t i = 0; i < sizes.size() && i < ranks.size(); ++i)
        if (sizes[i] != numel_of(matched.records[i]))
          return mismatch(
              ranks[r], concat("rank ", ranks[r], " has room for ", sizes[i], " elements of rank ", ranks[i],
                               ", which gives ", text_of(matched.records[i])));
    }
    return std::nullopt;
  };
}

}  // namespace

// ---- reductions ----

Work all_reduce(const Tensor& x, const AllReduceOptions& options) {
  if (CallBatch* batch = CallBatch::current(); batch && batch->add_all_reduce(x, options)) return Work();
  GroupState& group = member_state(options.group, "all_reduce");
  CallTensors args("all_reduce");
  args.output("x", x);
  const Reducer reducer("all_reduce", options.op, x.dtype(), args);
  Collective call{.op = "all_reduce", .record = make_record(Op::kAllReduce, x, reducer.record_op)};
  call.move = [x, reducer](MatchedCall& matched) {
    reducer.prepare(x, true);
    matched.data().all_reduce(matched.call, x.raw_ptr(), x.raw_ptr(), x.numel(), x.dtype(), reducer.data_op);
  };
  return run(group, std::move(call), args, options);
}

namespace {

// Returns a call, without `move`, on all tensors of the list, of one dtype. Its check requires equal shapes on
// all ranks.
Collective coalesced_call(const char* op, Op kind, const GroupState& group, const std::vector<Tensor>& xs,
                          ReduceOp reduce = ReduceOp::kSum, int root = -1) {
  int64_t total = 0;
  std::vector<int64_t> shapes;  // number of dims, then the dims, of each
  for (const Tensor& x : xs) {
    total += x.numel();
    shapes.push_back(x.dim());
    shapes.insert(shapes.end(), x.shape().begin(), x.shape().end());
  }
  const DType dtype = xs.empty() ? DType::kF32 : xs[0].dtype();
  check_dtypes(op, dtype, xs);
  if (shapes.size() > 512) {  // too long for a record: sends their hash
    uint64_t hash = 0xcbf29ce484222325;
    for (int64_t n : shapes) hash = (hash ^ uint64_t(n)) * 0x100000001b3;
    shapes = {-1, int64_t(hash)};
  }
  const auto text = [](const std::vector<int64_t>& shapes) {
    if (!shapes.empty() && shapes[0] < 0) return concat("shapes of hash ", uint64_t(shapes.at(1)));
    std::string text = "shapes";
    for (size_t i = 0; i < shapes.size(); i += 1 + size_t(shapes[i])) {
      if (size_t(shapes[i]) >= shapes.size() - i)
        return text + " (malformed)";  // they come from another rank
      text += concat(' ', Shape(std::span(shapes).subspan(i + 1, size_t(shapes[i]))));
    }
    return text;
  };
  Collective call{
      .op = op, .record = make_list_record(kind, dtype, total, reduce), .sizes = std::move(shapes)};
  call.record.root = root;
  call.check = [&group, text](const MatchedCall& matched) {
    return find_size_mismatch(matched, group, text);
  };
  return call;
}

int64_t total_numel(const std::vector<Tensor>& xs) {
  return std::accumulate(xs.begin(), xs.end(), int64_t(0),
                         [](int64_t n, const Tensor& x) { return n + x.numel(); });
}

// Cuts each row-major tensor into `size` equal parts. Returns the first part of each, then the second of each...
std::vector<Tensor> equal_parts(const std::vector<Tensor>& xs, int64_t size) {
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < size; ++i)
    for (const Tensor& x : xs) {
      const int64_t n = x.numel() / size;
      parts.push_back(view_as_strided(x, {n}, {1}, x.impl().offset + i * n));
    }
  return parts;
}

// Errors: ValueError unless the lists are equally long; ShapeError unless all[i] has `size` times as many
// elements as parts[i].
void check_pairs(const char* op, const std::vector<Tensor>& all, const char* all_name,
                 const std::vector<Tensor>& parts, const char* parts_name, int size) {
  if (all.size() != parts.size())
    throw ValueError(op, "expected as many outputs as xs, got ", all_name, " of ", all.size(), " and ",
                     parts_name, " of ", parts.size(), " tensors");
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].numel() != parts[i].numel() * size)
      throw ShapeError(op, all_name, '[', i, "] must have ", size, " (ranks) times the elements of ",
                       parts_name, '[', i, "]: ", describe(all[i]), ", ", describe(parts[i]));
}

}  // namespace

Work all_reduce_coalesced(const std::vector<Tensor>& xs, const AllReduceOptions& options) {
  constexpr const char* kOp = "all_reduce_coalesced";
  GroupState& group = member_state(options.group, kOp);
  CallTensors args(kOp);
  args.outputs("xs", xs);
  const DType dtype = xs.empty() ? DType::kF32 : xs[0].dtype();
  const Reducer reducer(kOp, options.op, dtype, args);
  Collective call = coalesced_call(kOp, Op::kAllReduce, group, xs, reducer.record_op);
  call.move = [xs, total = total_numel(xs), dtype, device = args.device(), reducer](MatchedCall& matched) {
    if (total == 0) return;
    const Tensor flat = empty({total}, {.dtype = dtype, .device = device});
    internal::pack(flat, xs);
    reducer.prepare(flat, true);
    matched.data().all_reduce(matched.call, flat.raw_ptr(), flat.raw_ptr(), total, dtype, reducer.data_op);
    internal::unpack(xs, flat);
  };
  return run(group, std::move(call), args, options);
}

Work reduce(const Tensor& x, const ReduceOptions& options) {
  GroupState& group = member_state(options.group, "reduce");
  const int root = group.index_of(options.dst, "reduce", "dst");
  const bool is_root = root == group.index();
  CallTensors args("reduce");
  const Tensor in = is_root ? args.output("x", x) : args.input("x", x);
  const Reducer reducer("reduce", options.op, x.dtype(), args);
  Collective call{.op = "reduce", .record = make_record(Op::kReduce, x, reducer.record_op, root)};
  call.move = [in, is_root, root, reducer](MatchedCall& matched) {
    const Tensor data = reducer.prepare(in, is_root);
    matched.data().reduce(matched.call, root, data.raw_ptr(), is_root ? in.raw_ptr() : nullptr, in.numel(),
                          in.dtype(), reducer.data_op);
  };
  return run(group, std::move(call), args, options);
}

Work reduce_scatter(const Tensor& output, const std::vector<Tensor>& inputs,
                    const AllReduceOptions& options) {
  constexpr const char* kOp = "reduce_scatter";
  GroupState& group = member_state(options.group, kOp);
  CallTensors args(kOp);
  const Tensor out = args.output("output", output);
  check_length(kOp, "inputs", inputs, group);
  const std::vector<Tensor> ins = args.inputs("inputs", inputs);
  check_dtypes(kOp, output.dtype(), ins);
  const Reducer reducer(kOp, options.op, output.dtype(), args);
  if (output.numel() != ins[group.index()].numel())
    throw ShapeError(kOp, "output has ", output.numel(), " elements, but inputs[", group.index(), "] has ",
                     ins[group.index()].numel(), ": output ", describe(output));
  std::vector<int64_t> sizes = sizes_of(ins);
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t(0));
  Collective call{.op = kOp,
                  .record = make_list_record(Op::kReduceScatter, output.dtype(), total, reducer.record_op),
                  .sizes = std::move(sizes)};
  call.check = [&group](const MatchedCall& matched) {
    return find_size_mismatch(
        matched, group, [](const auto& sizes) { return "inputs of sizes " + internal::to_text(sizes); });
  };
  call.move = [out, ins, reducer](MatchedCall& matched) {
    std::vector<Tensor> data;
    for (const Tensor& in : ins) data.push_back(reducer.prepare(in, false));
    matched.data().reduce_scatter(matched.call, const_blocks(data), out.raw_ptr(), out.dtype(),
                                  reducer.data_op);
  };
  return run(group, std::move(call), args, options);
}

Work reduce_scatter_tensor(const Tensor& output, const Tensor& x, const AllReduceOptions& options) {
  constexpr const char* kOp = "reduce_scatter_tensor";
  GroupState& group = member_state(options.group, kOp);
  CallTensors args(kOp);
  const Tensor out = args.output("output", output), in = args.input("x", x);
  check_dtypes(kOp, output.dtype(), {&in, 1});
  const Reducer reducer(kOp, options.op, in.dtype(), args);
  if (output.numel() * group.size() != in.numel())
    throw ShapeError(kOp, "output must have numel / size elements of x's ", in.numel(), " / ", group.size(),
                     ": output ", describe(output), ", x ", describe(x));
  Collective call{.op = kOp, .record = make_record(Op::kReduceScatter, in, reducer.record_op)};
  call.move = [out, in, reducer](MatchedCall& matched) {
    const std::vector<int64_t> sizes(matched.records.size(), out.numel());
    const Tensor data = reducer.prepare(in, false);
    matched.data().reduce_scatter(matched.call, cut<ConstBlock>(data, sizes), out.raw_ptr(), out.dtype(),
                                  reducer.data_op);
  };
  return run(group, std::move(call), args, options);
}

Work reduce_scatter_tensor_coalesced(const std::vector<Tensor>& outputs, const std::vector<Tensor>& xs,
                                     const AllReduceOptions& options) {
  constexpr const char* kOp = "reduce_scatter_tensor_coalesced";
  GroupState& group = member_state(options.group, kOp);
  CallTensors args(kOp);
  const std::vector<Tensor> outs = args.outputs("outputs", outputs), ins = args.inputs("xs", xs);
  check_pairs(kOp, ins, "xs", outs, "outputs", group.size());
  const DType dtype = xs.empty() ? DType::kF32 : xs[0].dtype();
  check_dtypes(kOp, dtype, outs);
  const Reducer reducer(kOp, options.op, dtype, args);
  Collective call = coalesced_call(kOp, Op::kReduceScatter, group, ins, reducer.record_op);
  call.move = [outs, ins, total = total_numel(outs), dtype, device = args.device(),
               reducer](MatchedCall& matched) {
    if (total == 0) return;
    const auto size = int64_t(matched.records.size());
    const Tensor all = empty({size * total}, {.dtype = dtype, .device = device});
    const Tensor part = empty({total}, {.dtype = dtype, .device = device});
    internal::pack(all, equal_parts(ins, size));
    reducer.prepare(all, true);
    const std::vector<int64_t> sizes(matched.records.size(), total);
    matched.data().reduce_scatter(matched.call, cut<ConstBlock>(all, sizes), part.raw_ptr(), dtype,
                                  reducer.data_op);
    internal::unpack(outs, part);
  };
  return run(group, std::move(call), args, options);
}

// ---- from one rank, to one rank ----

Work broadcast(const Tensor& x, const BroadcastOptions& options) {
  GroupState& group = member_state(options.group, "broadcast");
  const int root = group.index_of(options.src, "broadcast", "src");
  const bool is_root = root == group.index();
  CallTensors args("broadcast");
  args.output("x", x, !is_root);
  Collective call{.op = "broadcast", .record = make_record(Op::kBroadcast, x, {}, root)};
  call.move = [x, root](MatchedCall& matched) {
    matched.data().broadcast(matched.call, root, x.raw_ptr(), x.nbytes());
  };
  return run(group, std::move(call), args, options);
}

Work broadcast_coalesced(const std::vector<Tensor>& xs, const BroadcastOptions& options) {
  constexpr const char* kOp = "broadcast_coalesced";
  GroupState& group = member_state(options.group, kOp);
  const int root = group.index_of(options.src, kOp, "src");
  const bool is_root = root == group.index();
  CallTensors args(kOp);
  for (size_t i = 0; i < xs.size(); ++i) args.output(concat("xs[", i, ']'), xs[i], !is_root);
  Collective call = coalesced_call(kOp, Op::kBroadcast, group, xs, {}, root);
  call.move = [xs, total = total_numel(xs), device = args.device(), is_root, root](MatchedCall& matched) {
    if (total == 0) return;
    const Tensor flat = empty({total}, {.dtype = xs[0].dtype(), .device = device});
    if (is_root) internal::pack(flat, xs);
    matched.data().broadcast(matched.call, root, flat.raw_ptr(), flat.nbytes());
    if (!is_root) internal::unpack(xs, flat);
  };
  return run(group, std::move(call), args, options);
}

Work internal::gather_to(const std::vector<Tensor>& outputs, const Tensor& x, const GatherOptions& options) {
  GroupState& group = member_state(options.group, "gather");
  const int root = group.index_of(options.dst, "gather", "dst");
  CallTensors args("gather");
  const Tensor in = args.input("x", x);
  check_root_list("gather", "outputs", outputs, group, root);
  const std::vector<Tensor> outs = args.outputs("outputs", outputs);
  check_dtypes("gather", in.dtype(), outputs);
  Collective call{
      .op = "gather", .record = make_record(Op::kGather, in, {}, root), .sizes = sizes_of(outputs)};
  call.check = check_gathered(group);
  call.move = [in, outs, root](MatchedCall& matched) { matched.gather(root, const_block(in), blocks(outs)); };
  return run(group, std::move(call), args, options);
}

std::vector<Tensor> gather(const Tensor& x, const GatherOptions& options) {
  GroupState& group = member_state(options.group, "gather");
  const int root = group.index_of(options.dst, "gather", "dst");
  if (options.async_op)
    throw ValueError("gather", "the form that returns tensors cannot be asynchronous: give it outputs");
  CallTensors args("gather");
  const Tensor in = args.input("x", x);
  std::vector<Tensor> outputs;
  Collective call{.op = "gather", .record = make_record(Op::kGather, in, {}, root)};
  call.device = args.device();
  call.tensors = args.on_gpu();
  call.check = check_gathered(group);
  call.move = [&](MatchedCall& matched) {
    if (root == group.index())
      for (const CallRecord& record : matched.records)
        outputs.push_back(TensorSpec(record).make(in.device()));
    matched.gather(root, internal::const_block(in), internal::blocks(outputs));
  };
  group.run(std::move(call), false, options.timeout);
  return outputs;
}

Work scatter(const Tensor& x, const std::vector<Tensor>& inputs, const ScatterOptions& options) {
  GroupState& group = member_state(options.group, "scatter");
  const int root = group.index_of(options.src, "scatter", "src");
  CallTensors args("scatter");
  const Tensor out = args.output("x", x);
  check_root_list("scatter", "inputs", inputs, group, root);
  const std::vector<Tensor> ins = args.inputs("inputs", inputs);
  check_dtypes("scatter", x.dtype(), ins);
  Collective call{.op = "scatter", .record = make_record(Op::kScatter, x, {}, root), .sizes = sizes_of(ins)};
  call.check = [&group, root](const MatchedCall& matched) -> std::optional<Failure> {
    const std::vector<int>& ranks = group.members();
    for (size_t i = 0; i < matched.sizes[root].size() && i < ranks.size(); ++i)
      if (matched.sizes[root][i] != numel_of(matched.records[i]))
        return mismatch(ranks[i],
                        concat("rank ", ranks[i], "'s x ", text_of(matched.records[i]), " does not hold the ",
                               matched.sizes[root][i], " elements that rank ", ranks[root], " gives it"));
    return std::nullopt;
  };
  call.move = [out, ins, root](MatchedCall& matched) {
    matched.scatter(root, const_blocks(ins), internal::block(out));
  };
  return run(group, std::move(call), args, options);
}

// ---- from all ranks to all ----

Work all_gather(const std::vector<Tensor>& outputs, const Tensor& x, const CollectiveOptions& options) {
  GroupState& group = member_state(options.group, "all_gather");
  CallTensors args("all_gather");
  const Tensor in = args.input("x", x);
  check_length("all_gather", "outputs", outputs, group);
  const std::vector<Tensor> outs = args.outputs("outputs", outputs);
  check_dtypes("all_gather", in.dtype(), outputs);
  Collective call{.op = "all_gather", .record = make_record(Op::kAllGather, in), .sizes = sizes_of(outputs)};
  call.check = check_gathered(group);
  call.move = [in, outs](MatchedCall& matched) {
    matched.data().all_gather(matched.call, const_block(in), blocks(outs));
  };
  return run(group, std::move(call), args, options);
}

std::vector<Tensor> all_gather(const Tensor& x, const CollectiveOptions& options) {
  GroupState& group = member_state(options.group, "all_gather");
  if (options.async_op)
    throw ValueError("all_gather", "the form that returns tensors cannot be asynchronous: give it outputs");
  CallTensors args("all_gather");
  const Tensor in = args.input("x", x);
  std::vector<Tensor> outputs;
  Collective call{.op = "all_gather", .record = make_record(Op::kAllGather, in)};
  call.device = args.device();
  call.tensors = args.on_gpu();
  call.check = check_gathered(group);
  call.move = [&](MatchedCall& matched) {
    for (const CallRecord& record : matched.records) outputs.push_back(TensorSpec(record).make(in.device()));
    matched.data().all_gather(matched.call, const_block(in), blocks(outputs));
  };
  group.run(std::move(call), false, options.timeout);
  return outputs;
}

Work all_gather_into_tensor(const Tensor& output, const Tensor& x, const CollectiveOptions& options) {
  constexpr const char* kOp = "all_gather_into_tensor";
  GroupState& group = member_state(options.group, kOp);
  CallTensors args(kOp);
  const Tensor out = args.output("output", output), in = args.input("x", x);
  check_dtypes(kOp, in.dtype(), {&output, 1});
  if (output.numel() != in.numel() * group.size())
    throw ShapeError(kOp, "output must have size * numel = ", group.size(), " * ", in.numel(),
                     " elements: output ", describe(output), ", x ", describe(x));
  const std::vector<int64_t> sizes(group.size(), in.numel());
  Collective call{.op = kOp, .record = make_record(Op::kAllGather, in), .sizes = sizes};
  call.check = check_gathered(group);
  call.move = [out, in, sizes](MatchedCall& matched) {
    matched.data().all_gather(matched.call, const_block(in), cut<Block>(out, sizes));
  };
  return run(group, std::move(call), args, options);
}

Work all_gather_into_tensor_coalesced(const std::vector<Tensor>& outputs, const std::vector<Tensor>& xs,
                                      const CollectiveOptions& options) {
  constexpr const char* kOp = "all_gather_into_tensor_coalesced";
  GroupState& group = member_state(options.group, kOp);
  CallTensors args(kOp);
  const std::vector<Tensor> outs = args.outputs("outputs", outputs), ins = args.inputs("xs", xs);
  check_pairs(kOp, outs, "outputs", ins, "xs", group.size());
  const DType dtype = xs.empty() ? DType::kF32 : xs[0].dtype();
  check_dtypes(kOp, dtype, outs);
  Collective call = coalesced_call(kOp, Op::kAllGather, group, ins);
  call.move = [outs, ins, total = total_numel(ins), dtype, device = args.device()](MatchedCall& matched) {
    if (total == 0) return;
    const auto size = int64_t(matched.records.size());
    const Tensor part = empty({total}, {.dtype = dtype, .device = device});
    const Tensor all = empty({size * total}, {.dtype = dtype, .device = device});
    internal::pack(part, ins);
    const std::vector<int64_t> sizes(matched.records.size(), total);
    matched.data().all_gather(matched.call, const_block(part), cut<Block>(all, sizes));
    internal::unpack(equal_parts(outs, size), all);
  };
  return run(group, std::move(call), args, options);
}

namespace {

// Returns an all-to-all call, without `move`, whose check requires that rank j receives from rank r as many
// elements as r sends to j. `sizes`: elements to each group rank, then elements from each.
Collective exchange_call(const char* op, const GroupState& group, DType dtype, std::vector<int64_t> sizes) {
  const int64_t total = std::accumulate(sizes.begin(), sizes.begin() + group.size(), int64_t(0));
  Collective call{
      .op = op, .record = make_list_record(Op::kAllToAll, dtype, total), .sizes = std::move(sizes)};
  call.check = [&group](const MatchedCall& matched) -> std::optional<Failure> {
    const std::vector<int>& ranks = group.members();
    const size_t n = ranks.size();
    for (size_t r = 0; r < n; ++r)
      for (size_t j = 0; j < n; ++j) {
        const int64_t given = matched.sizes[r].at(j), awaited = matched.sizes[j].at(n + r);
        if (given != awaited)
          return mismatch(ranks[r], concat("rank ", ranks[r], " gives ", given, " elements to rank ",
                                           ranks[j], ", which awaits ", awaited));
      }
    return std::nullopt;
  };
  return call;
}

// Returns the number of elements in the rows that are sent to or received from each rank. `splits`: rows per
// rank; empty: equal splits. `what`: the name of x in errors.
// Errors: ShapeError for an x without dims; ValueError unless there is one split per rank, not negative, and
// their sum is the number of x's rows.
std::vector<int64_t> split_rows(const char* op, const char* what, const Tensor& x,
                                std::vector<int64_t> splits, int size) {
  if (x.dim() == 0) throw ShapeError(op, what, " has no rows to split: ", describe(x));
  const int64_t rows = x.size(0);
  if (splits.empty()) {
    if (rows % size)
      throw ValueError(op, what, "'s ", rows, " rows cannot be split evenly over ", size,
                       " ranks: give splits");
    splits.assign(size, rows / size);
  }
  const bool negative = std::ranges::any_of(splits, [](int64_t n) { return n < 0; });
  if (int(splits.size()) != size || negative ||
      std::accumulate(splits.begin(), splits.end(), int64_t(0)) != rows)
    throw ValueError(op, what, "'s splits ", internal::to_text(splits), " must be one per rank (", size,
                     ") and add up to its ", rows, " rows: ", describe(x));
  const int64_t row = rows ? x.numel() / rows : 0;
  for (int64_t& n : splits) n *= row;
  return splits;
}

}  // namespace

Work all_to_all(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                const CollectiveOptions& options) {
  constexpr const char* kOp = "all_to_all";
  GroupState& group = member_state(options.group, kOp);
  check_length(kOp, "outputs", outputs, group);
  check_length(kOp, "inputs", inputs, group);
  CallTensors args(kOp);
  const std::vector<Tensor> outs = args.outputs("outputs", outputs), ins = args.inputs("inputs", inputs);
  const DType dtype = ins[0].dtype();
  check_dtypes(kOp, dtype, ins);
  check_dtypes(kOp, dtype, outputs);
  std::vector<int64_t> sizes = sizes_of(ins);
  for (const Tensor& x : outputs) sizes.push_back(x.numel());
  Collective call = exchange_call(kOp, group, dtype, std::move(sizes));
  call.move = [ins, outs](MatchedCall& matched) {
    matched.data().exchange_blocks(matched.call, const_blocks(ins), blocks(outs));
  };
  return run(group, std::move(call), args, options);
}

Work all_to_all_single(const Tensor& output, const Tensor& x, const std::vector<int64_t>& output_splits,
                       const std::vector<int64_t>& input_splits, const CollectiveOptions& options) {
  constexpr const char* kOp = "all_to_all_single";
  GroupState& group = member_state(options.group, kOp);
  CallTensors args(kOp);
  const Tensor out = args.output("output", output), in = args.input("x", x);
  check_dtypes(kOp, in.dtype(), {&output, 1});
  std::vector<int64_t> sizes = split_rows(kOp, "x", in, input_splits, group.size());
  const std::vector<int64_t> awaited = split_rows(kOp, "output", output, output_splits, group.size());
  sizes.insert(sizes.end(), awaited.begin(), awaited.end());
  Collective call = exchange_call(kOp, group, in.dtype(), sizes);
  call.move = [in, out, sizes](MatchedCall& matched) {
    const std::span all(sizes);
    const size_t n = matched.records.size();
    matched.data().exchange_blocks(matched.call, cut<ConstBlock>(in, all.first(n)),
                                   cut<Block>(out, all.last(n)));
  };
  return run(group, std::move(call), args, options);
}

Work barrier(const CollectiveOptions& options) {
  return member_state(options.group, "barrier")
      .run({.op = "barrier", .record = {.op = Op::kBarrier}}, options.async_op, options.timeout);
}

// ---- several calls ----

ReduceOperation premul_sum(double factor) {
  ReduceOperation reduction(ReduceOp::kPremulSum);
  reduction.factor = factor;
  return reduction;
}
ReduceOperation premul_sum(const Tensor& factor) {
  internal::check_has_data("premul_sum", "factor", factor);
  ReduceOperation reduction(ReduceOp::kPremulSum);
  reduction.factor_tensor = factor;
  return reduction;
}

void coalesced(const std::function<void()>& f) {
  if (CallBatch::current()) return f();  // a part of the outer call
  CallBatch batch;
  f();
  batch.finish();
}

}  // namespace gradus::dist
