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

namespace gradus::dist {

using internal::Block;
using internal::blocks;
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

// Runs the call. The versions of the tensors that it writes change when the data has moved, for async_op also now.
template <class Options>
Work run(GroupState& group, Collective collective, const CallTensors& args, const Options& options) {
  if (options.async_op) bump(args.written());
  collective.device = args.device();
  collective.tensors = args.all();
  collective.move = [move = std::move(collective.move), written = args.written()](MatchedCall& matched) {
    move(matched);
    bump(written);
  };
  return group.run(std::move(collective), options.async_op, options.timeout);
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
  GroupState& group = member_state(options.group, "all_reduce");
  CallTensors args("all_reduce");
  args.output("x", x);
  check_reduce_op("all_reduce", options.op, x.dtype());
  Collective call{.op = "all_reduce", .record = make_record(Op::kAllReduce, x, options.op)};
  call.move = [x, op = options.op](MatchedCall& matched) {
    matched.data().all_reduce(matched.call, x.raw_ptr(), x.raw_ptr(), x.numel(), x.dtype(), op);
  };
  return run(group, std::move(call), args, options);
}

Work all_reduce_coalesced(const std::vector<Tensor>& xs, const AllReduceOptions& options) {
  constexpr const char* kOp = "all_reduce_coalesced";
  GroupState& group = member_state(options.group, kOp);
  CallTensors args(kOp);
  args.outputs("xs", xs);
  int64_t total = 0;
  std::vector<int64_t> shapes;  // number of dims, then the dims, of each
  for (const Tensor& x : xs) {
    total += x.numel();
    shapes.push_back(x.dim());
    shapes.insert(shapes.end(), x.shape().begin(), x.shape().end());
  }
  const DType dtype = xs.empty() ? DType::kF32 : xs[0].dtype();
  check_dtypes(kOp, dtype, xs);
  check_reduce_op(kOp, options.op, dtype);
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

  Collective call{.op = kOp,
                  .record = make_list_record(Op::kAllReduce, dtype, total, options.op),
                  .sizes = std::move(shapes)};
  call.check = [&group, text](const MatchedCall& matched) {
    return find_size_mismatch(matched, group, text);
  };
  call.move = [xs, total, dtype, device = args.device(), op = options.op](MatchedCall& matched) {
    if (total == 0) return;
    const Tensor flat = empty({total}, {.dtype = dtype, .device = device});
    internal::pack(flat, xs);
    matched.data().all_reduce(matched.call, flat.raw_ptr(), flat.raw_ptr(), total, dtype, op);
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
  check_reduce_op("reduce", options.op, x.dtype());
  Collective call{.op = "reduce", .record = make_record(Op::kReduce, x, options.op, root)};
  call.move = [in, is_root, root, op = options.op](MatchedCall& matched) {
    matched.data().reduce(matched.call, root, in.raw_ptr(), is_root ? in.raw_ptr() : nullptr, in.numel(),
                          in.dtype(), op);
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
  check_reduce_op(kOp, options.op, output.dtype());
  if (output.numel() != ins[group.index()].numel())
    throw ShapeError(kOp, "output has ", output.numel(), " elements, but inputs[", group.index(), "] has ",
                     ins[group.index()].numel(), ": output ", describe(output));
  std::vector<int64_t> sizes = sizes_of(ins);
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t(0));
  Collective call{.op = kOp,
                  .record = make_list_record(Op::kReduceScatter, output.dtype(), total, options.op),
                  .sizes = std::move(sizes)};
  call.check = [&group](const MatchedCall& matched) {
    return find_size_mismatch(
        matched, group, [](const auto& sizes) { return "inputs of sizes " + internal::to_text(sizes); });
  };
  call.move = [out, ins, op = options.op](MatchedCall& matched) {
    matched.data().reduce_scatter(matched.call, const_blocks(ins), out.raw_ptr(), out.dtype(), op);
  };
  return run(group, std::move(call), args, options);
}

Work reduce_scatter_tensor(const Tensor& output, const Tensor& x, const AllReduceOptions& options) {
  constexpr const char* kOp = "reduce_scatter_tensor";
  GroupState& group = member_state(options.group, kOp);
  CallTensors args(kOp);
  const Tensor out = args.output("output", output), in = args.input("x", x);
  check_dtypes(kOp, output.dtype(), {&in, 1});
  check_reduce_op(kOp, options.op, in.dtype());
  if (output.numel() * group.size() != in.numel())
    throw ShapeError(kOp, "output must have numel / size elements of x's ", in.numel(), " / ", group.size(),
                     ": output ", describe(output), ", x ", describe(x));
  Collective call{.op = kOp, .record = make_record(Op::kReduceScatter, in, options.op)};
  call.move = [out, in, op = options.op](MatchedCall& matched) {
    const std::vector<int64_t> sizes(matched.records.size(), out.numel());
    matched.data().reduce_scatter(matched.call, cut<ConstBlock>(in, sizes), out.raw_ptr(), out.dtype(), op);
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

Work gather(const Tensor& x, const std::vector<Tensor>& outputs, const GatherOptions& options) {
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
  call.tensors = args.all();
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

}  // namespace gradus::dist
