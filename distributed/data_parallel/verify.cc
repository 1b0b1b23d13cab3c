// verify: trains a model with SGD in f64, first on one rank with the joined batches, then on `world` ranks
// (threads of this process, run_ranks) with a share of each batch, and compares losses, gradients, parameters
// and buffers after each step. If they differ, further runs change one setting each (same batch, other seed,
// SyncBatchNorm, weighted loss) and attribute the first difference to a cause. All runs read the same
// samples, in memory, and start from the same weights.
#include "gradus/distributed/data_parallel/verify.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <ostream>
#include <sstream>
#include <tuple>
#include <utility>

#include "gradus/autograd/grad_manager.h"
#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/data_parallel/sync_batch_norm.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/nn/layers/batch_norm.h"
#include "gradus/nn/layers/dropout.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/index.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::dist {
namespace {

using Cause = VerifyReport::Cause;
using Names = std::vector<std::string>;

// ---- states, and their comparison between ranks

// The kinds of tensors, in the order in which they are compared.
enum class StateKind { kLoss, kGradient, kParameter, kBuffer };

// The names and tensors of each StateKind, in its order. Tensors share the model's memory unless cloned.
struct TrainingState {
  std::array<nn::StateDict, 4> tensors;

  TrainingState() = default;
  TrainingState(const nn::Module& model, double loss);
  const nn::StateDict& operator[](StateKind kind) const { return tensors[static_cast<int>(kind)]; }
  double loss() const { return tensors[0].at(0).second.item<double>(); }
  TrainingState clone() const;
};

// The largest difference between elements of two tensors.
struct Difference {
  double relative = 0;
  size_t at = 0;                    // row-major index of the element
  double actual = 0, expected = 0;  // the values of this element
};

// A tensor that differs by more than the tolerance.
struct StateDifference {
  int step = 0;
  StateKind kind = StateKind::kLoss;
  size_t index = 0;
  std::string name;
  int rank = -1;  // the rank that differs from rank 0; -1: all ranks differ from the expected value
  Difference difference;
  bool one_element = false;  // the tensor has one element

  auto position() const { return std::tuple(step, kind, index); }
};

// The comparisons of one run, up to the step of the first difference.
struct Outcome {
  std::optional<StateDifference> first;  // nullopt: none
  double largest = 0;                    // the largest relative difference in all steps
  std::string buffer;                    // name of the first buffer that differs between ranks
  bool drew_numbers = false;             // rank 0 used its random generator
};

std::vector<double> values(const Tensor& x) {
  return x.defined() ? x.to_vector<double>() : std::vector<double>();
}

double largest_of(const nn::StateDict& tensors) {
  double largest = 0;
  for (const auto& [name, x] : tensors)
    if (x.defined() && is_floating(x.dtype()))
      for (double v : values(x)) largest = std::max(largest, std::abs(v));
  return largest;
}

// Returns max |actual - expected| / max(floor, max |actual|, max |expected|), and its element. Missing
// elements count as zeros; two NaN are equal; a difference to a NaN or infinity is infinite.
Difference difference_of(const Tensor& actual, const Tensor& expected, double floor) {
  std::vector<double> a = values(actual), b = values(expected);
  a.resize(std::max(a.size(), b.size()));
  b.resize(a.size());
  Difference result;
  double scale = floor, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    scale = std::max({scale, std::abs(a[i]), std::abs(b[i])});
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    double difference = std::abs(a[i] - b[i]);
    if (!std::isfinite(difference)) difference = std::numeric_limits<double>::infinity();
    if (difference > largest) largest = difference, result = {0, i, a[i], b[i]};
  }
  if (largest > 0) result.relative = std::isinf(largest) ? largest : largest / scale;
  return result;
}

// Returns "gradient of ", "parameter ", ...
const char* prefix(StateKind kind) {
  constexpr std::array<const char*, 4> kPrefixes = {"", "gradient of ", "parameter ", "buffer "};
  return kPrefixes[static_cast<int>(kind)];
}

TrainingState::TrainingState(const nn::Module& model, double loss)
    : tensors{nn::StateDict{{"loss", scalar(loss, {.dtype = DType::kF64})}},
              {},
              model.named_parameters(),
              model.named_buffers()} {
  for (const auto& [name, parameter] : tensors[2]) tensors[1].emplace_back(name, parameter.grad());
}

TrainingState TrainingState::clone() const {
  TrainingState copy = *this;
  for (nn::StateDict& dict : copy.tensors)
    for (auto& [name, x] : dict)
      if (x.defined()) x = raw::clone(x);
  return copy;
}

// Adds to `result` the comparison of the ranks' states after a step. Compares each rank's state with rank
// 0's; losses only if all ranks had the same batch. If `expected` (the one-rank state) is not null, also
// compares rank 0's state, with the mean of the ranks' losses in place of its loss, with `expected`.
// Differences are relative: |x - y| / max(max |tensor|, 1e-3 max |all tensors of this kind|).
void compare(const std::vector<TrainingState>& ranks, const TrainingState* expected, int step,
             double tolerance, bool same_batch, Outcome& result) {
  for (StateKind kind : {StateKind::kLoss, StateKind::kGradient, StateKind::kParameter, StateKind::kBuffer}) {
    const nn::StateDict& first = ranks[0][kind];
    const double floor = 1e-3 * largest_of(first);
    for (size_t i = 0; i < first.size(); ++i) {
      const auto& [name, value] = first[i];
      const auto compare_tensors = [&, &name = name](const Tensor& actual, const Tensor& other, int rank) {
        const Difference difference = difference_of(actual, other, floor);
        result.largest = std::max(result.largest, difference.relative);
        if (difference.relative <= tolerance) return;
        if (kind == StateKind::kBuffer && rank >= 0 && result.buffer.empty()) result.buffer = name;
        const bool one_element = actual.defined() && actual.numel() == 1;
        if (!result.first) result.first = {step, kind, i, name, rank, difference, one_element};
      };
      const bool is_loss = kind == StateKind::kLoss;
      if (!is_loss || same_batch)
        for (size_t rank = 1; rank < ranks.size(); ++rank)
          compare_tensors(ranks[rank][kind].at(i).second, value, static_cast<int>(rank));
      if (!expected) continue;
      double sum = 0;
      for (const TrainingState& state : ranks) sum += state.loss();
      compare_tensors(is_loss ? scalar(sum / double(ranks.size()), {.dtype = DType::kF64}) : value,
                      (*expected)[kind].at(i).second, -1);
    }
  }
}

// ---- the runs

// The configuration of one training run.
struct Setup {
  int world = 1;
  bool same_batch = false;       // all ranks get rank 0's batch, and are compared with each other only
  bool sync_batch_norm = false;  // call convert_sync_batchnorm on the model
  bool weighted = false;         // multiply the loss by weight_of(batch)
  bool other_seed = false;       // use another seed for random numbers during training
};

// Returns the names of the modules of type M for which `wanted` returns true.
template <class M, class Wanted> Names names_of(nn::Module& model, Wanted wanted) {
  Names names;
  for (auto& [name, module] : model.named_modules())
    if (auto* m = dynamic_cast<M*>(module); m && wanted(*m))
      names.push_back(name.empty() ? "the model" : name);
  return names;
}

std::string list(const Names& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i == 4 && names.size() > 5) return concat(text, " and ", names.size() - 4, " more");
    text += (i == 0 ? "" : ", ") + names[i];
  }
  return text;
}

Tensor as_f64(const Tensor& x) { return x.defined() && is_floating(x.dtype()) ? raw::to(x, DType::kF64) : x; }

// ---- texts of the likely causes, with instructions

std::string random_text(const Names& dropouts) {
  const std::string who =
      dropouts.empty() ? "the model draws" : list(dropouts) + (dropouts.size() > 1 ? " draw" : " draws");
  const std::string how = dropouts.empty() ? "" : concat(" (m.find(\"", dropouts[0], "\").eval())");
  return concat(
      "random numbers: ", who,
      " them, and for a sample they are others on several ranks than on one. That is no fault where it is "
      "meant so. To verify the rest, switch them off in VerifyOptions::prepare",
      how, "; numbers that have to agree come from one rank (dist::broadcast).");
}

std::string rank_text(const StateDifference& same_batch) {
  return concat(
      "the rank: from the same batch, rank ", same_batch.rank, " computes another ", prefix(same_batch.kind),
      same_batch.name,
      " than rank 0. Look for get_rank(), for random numbers of the model's own, and for variables that "
      "ranks as threads share.");
}

const char* const kSumText =
    "a sum: the loss adds up the samples of a batch, and the mean over ranks is one of these sums. Divide by "
    "the size of the batch, or reduce with make_allreduce_cb(kSum).";

std::string batch_norm_text(const Names& batch_norms) {
  return concat(
      "batch-norm statistics: in ", list(batch_norms),
      " each rank normalizes by its own batch. dist::convert_sync_batchnorm(model) makes them those of all "
      "ranks together; with it, the difference is gone.");
}

const char* const kUnequalText =
    "a mean over unequal batches: the mean of the ranks' means is not the mean over all samples. Multiply "
    "the loss by batch.size() * dist::get_world_size() / batch.global_size; with that, the difference is "
    "gone. Or give all ranks equal batches (DataLoaderOptions::drop_last, Uneven::kPad, Uneven::kDrop) and "
    "verify with .unequal = false.";

std::string buffer_text(const std::string& name) {
  return concat(
      "a buffer that is not synchronized: each rank updates ", name,
      " from its own batch. Make what goes into it that of all ranks (dist::all_reduce, ReduceOp::kMean); "
      "or, where rank 0's is good enough, let DistributedDataParallel broadcast it.");
}

std::string unknown_text(StateKind kind) {
  const std::string tried =
      "unknown: neither random numbers, nor the rank, nor batch norm, nor the batches' sizes. ";
  if (kind == StateKind::kLoss)
    return tried +
           "Probably a batch's loss is not the mean of its parts': it compares samples with each other. "
           "Gather what it compares (dist::functional::all_gather).";
  if (kind == StateKind::kGradient)
    return tried +
           "The losses agree, so look at the backward: at rules of the model's own, and at collectives in "
           "the forward, whose gradients are sums over ranks.";
  return tried +
         "The gradients agree, so look for what else writes to the parameter, from a rank's own batch.";
}

// Runs the training in several configurations and compares the results.
class Verification {
 public:
  Verification(const internal::MakeModule& make, const internal::LossOf& loss, const data::Dataset& data,
               const VerifyOptions& options)
      : make_(make), loss_(loss), options_(options) {
    check_options(data);
    read(data);
  }

  VerifyReport report() {
    run({});
    const Outcome outcome = run({.world = options_.world});
    VerifyReport report;
    if (!outcome.first) {
      report.difference = outcome.largest;
      std::ostringstream text;
      text.precision(2);
      text << options_.world << (options_.world == 1 ? " rank agrees" : " ranks agree")
           << " with one on the joined batch: loss, gradients, parameters and buffers, to " << outcome.largest
           << ", in " << options_.steps << (options_.steps == 1 ? " step of " : " steps of ") << sizes(0);
      if (std::ssize(joined_) > options_.steps) text << " and one of " << sizes(options_.steps);
      report.text = text.str() + ".";
      return report;
    }
    const StateDifference& first = *outcome.first;
    report.agrees = false;
    report.tensor = prefix(first.kind) + first.name;
    report.step = first.step;
    report.rank = first.rank;
    report.difference = first.difference.relative;
    std::string cause;
    std::tie(report.cause, cause) = cause_of(outcome);
    report.text = concat(text_of(first), "\nLikely cause: ", cause);
    return report;
  }

 private:
  // What the ranks of a run share, as threads.
  struct Shared {
    std::vector<TrainingState> states;  // per rank, after the current step
    Outcome outcome;
  };

  void check_options(const data::Dataset& data) const {
    const auto check = [](bool holds, const char* expected, const auto& given) {
      if (!holds) throw ValueError("verify", "expected ", expected, ", got ", given);
    };
    check(options_.world >= 1, "world >= 1", options_.world);
    check(options_.batch_size >= 1, "batch_size >= 1", options_.batch_size);
    check(options_.steps >= 1, "steps >= 1", options_.steps);
    check(options_.tolerance >= 0, "tolerance >= 0", options_.tolerance);
    if (data.size() < options_.world)
      throw ValueError("verify", "expected a sample for each of ", options_.world, " ranks at least, got ",
                       data.size(), " in ", data.name());
  }

  // Reads all batches in advance, so that random transforms give the same samples in all runs.
  void read(const data::Dataset& data) {
    Context context = caller_.snapshot();
    context.recordings.clear();
    context.generator = std::make_shared<RandomGenerator>(options_.seed);
    ContextScope scope(context);
    const int steps = options_.steps + (options_.unequal && options_.world > 1);
    int64_t at = 0;
    for (int step = 0; step < steps; ++step) {
      int64_t size = options_.world * options_.batch_size;
      if (step == options_.steps) size += options_.world / 2;  // the step with unequal batches
      std::vector<int64_t> indices;
      for (int64_t i = 0; i < size; ++i) indices.push_back(at++ % data.size());
      data::Batch batch = data.get_batch(indices);
      batch.input = as_f64(batch.input), batch.target = as_f64(batch.target);
      batch.indices = std::move(indices);
      joined_.push_back(std::move(batch));
    }
  }

  // Returns the positions of a rank's samples in a joined batch, as in a DataLoader: rank, rank + world, ...
  std::vector<int64_t> positions_of(int step, int rank, int world) const {
    std::vector<int64_t> positions;
    for (int64_t at = rank; at < joined_[step].size(); at += world) positions.push_back(at);
    return positions;
  }

  // Returns the batch of a rank in a step: a copy of its rows of the joined batch.
  data::Batch batch_of(const Setup& setup, int step, int rank) const {
    const data::Batch& joined = joined_[step];
    const std::vector<int64_t> positions = positions_of(step, setup.same_batch ? 0 : rank, setup.world);
    const Tensor rows = tensor(positions, {std::ssize(positions)});
    const auto part = [&](const Tensor& x) { return x.defined() ? raw::index_select(x, 0, rows) : x; };
    data::Batch batch{.input = part(joined.input), .target = part(joined.target)};
    for (int64_t at : positions) batch.indices.push_back(joined.indices[at]);
    batch.global_size = setup.same_batch ? batch.size() * setup.world : joined.size();
    return batch;
  }

  // Trains with this setup. The first call, with one rank, stores the expected states and compares nothing.
  Outcome run(const Setup& setup) {
    Shared shared{.states = std::vector<TrainingState>(setup.world)};
    run_ranks(setup.world, [&] { train(setup, shared); });
    return shared.outcome;
  }

  // The training of one rank, on its thread. Ends after the step of the first difference, on all ranks.
  void train(const Setup& setup, Shared& shared) {
    Context& context = Context::current();
    context.device = caller_.device;
    context.deterministic = caller_.deterministic;
    context.generator->manual_seed(options_.seed);
    const int rank = get_rank();
    const bool first_run = !start_;
    const std::unique_ptr<nn::Module> model = make_();
    if (!model) throw ValueError("verify", "expected a model, got none");
    if (options_.prepare) options_.prepare(*model);
    model->to(DType::kF64);
    take_weights(*model);
    if (first_run) {
      batch_norms_ = names_of<nn::BatchNorm>(
          *model, [](nn::BatchNorm& m) { return !m.reduction() && m.uses_batch_statistics(); });
      dropouts_ =
          names_of<nn::Dropout>(*model, [](nn::Dropout& m) { return m.is_training() && m.options().p > 0; });
    }
    if (setup.sync_batch_norm) convert_sync_batchnorm(*model);
    if (setup.other_seed) context.generator->manual_seed(context.generator->seed() + 1);
    const std::array<uint64_t, 2> numbers = context.generator->state();
    GradManager gm;
    gm.attach(model->parameters(), make_allreduce_cb(ReduceOp::kMean));
    optim::SGD optimizer(model->parameters(), {.lr = options_.lr});
    for (int step = 0; step < std::ssize(joined_); ++step) {
      const data::Batch batch = batch_of(setup, step, rank);
      Tensor loss;
      {
        auto recording = gm.record();
        loss = loss_(*model, batch);
        if (setup.weighted) loss = loss * internal::weight_of(batch);
        gm.backward(loss);
      }
      optimizer.step();
      const TrainingState state(*model, loss.item<double>());
      if (first_run) {
        if (!std::isfinite(state.loss()))
          throw ValueError("verify", "expected a finite loss, got ", state.loss(),
                           " on the joined batch of step ", step);
        expected_.push_back(state.clone());
        optimizer.clear_grad();
        continue;
      }
      shared.states[rank] = state;
      barrier();
      if (rank == 0) {  // ranks are threads: rank 0 reads all ranks' tensors
        Outcome& outcome = shared.outcome;
        compare(shared.states, setup.same_batch ? nullptr : &expected_[step], step, options_.tolerance,
                setup.same_batch, outcome);
        outcome.drew_numbers |= context.generator->state() != numbers;
      }
      barrier();
      if (shared.outcome.first) return;
      optimizer.clear_grad();
    }
  }

  // Stores the initial weights in the first run, and loads them in later runs.
  void take_weights(const nn::Module& model) {
    const TrainingState model_state(model, 0);
    if (!start_) {
      start_ = model_state.clone();
      return;
    }
    // Each rank may have a GPU of its own.
    const auto description = [](const Tensor& x) {
      return x.device().type == DeviceType::kCUDA ? concat(x.dtype(), x.shape(), " cuda") : describe(x);
    };
    for (StateKind kind : {StateKind::kParameter, StateKind::kBuffer}) {
      const nn::StateDict &from = (*start_)[kind], &to = model_state[kind];
      for (size_t i = 0; i < std::max(from.size(), to.size()); ++i) {
        const auto text = [&](const nn::StateDict& dict) {
          return i < dict.size() ? concat(prefix(kind), dict[i].first, " ", description(dict[i].second))
                                 : "no more";
        };
        if (text(from) != text(to))
          throw ValueError(
              "verify", "expected a model with the same tensors whatever the number of ranks, got ", text(to),
              " on rank ", get_rank(), " of ", get_world_size(), " but ", text(from), " in a job of one");
        raw::copy_(to[i].second, from[i].second);
      }
    }
  }

  // Runs the training in other configurations until one removes the first difference, or differs by itself.
  // Returns the cause and its text.
  std::pair<Cause, std::string> cause_of(const Outcome& outcome) {
    const StateDifference& first = *outcome.first;
    const int world = options_.world;
    // Returns whether the setup removes the first difference, or postpones it.
    const auto explains = [&](const Setup& setup) {
      const std::optional<StateDifference> remaining = run(setup).first;
      return !remaining || remaining->position() > first.position();
    };
    const Outcome same = run({.world = world, .same_batch = true});
    const bool random = run({.other_seed = true}).first.has_value();
    if (random || (same.first && same.drew_numbers)) return {Cause::kRandomness, random_text(dropouts_)};
    if (same.first) return {Cause::kDependsOnRank, rank_text(*same.first)};
    const double actual = first.difference.actual, expected = first.difference.expected;
    if (first.kind == StateKind::kLoss && first.step < options_.steps &&
        std::abs(actual * world - expected) <= options_.tolerance * std::abs(expected))
      return {Cause::kSumOverBatch, kSumText};
    if (!batch_norms_.empty() && explains({.world = world, .sync_batch_norm = true}))
      return {Cause::kBatchNormStatistics, batch_norm_text(batch_norms_)};
    if (explains({.world = world, .weighted = true})) return {Cause::kUnequalBatches, kUnequalText};
    const std::string& buffer = first.kind == StateKind::kBuffer ? first.name : outcome.buffer;
    if (!buffer.empty()) return {Cause::kBuffer, buffer_text(buffer)};
    return {Cause::kUnknown, unknown_text(first.kind)};
  }

  std::string sizes(int step) const {
    if (step < options_.steps) return concat("equal batches of ", options_.batch_size);
    Names each;
    for (int rank = 0; rank < options_.world; ++rank)
      each.push_back(std::to_string(positions_of(step, rank, options_.world).size()));
    return "unequal batches of " + list(each);
  }

  std::string text_of(const StateDifference& first) const {
    std::ostringstream text;
    const Difference& d = first.difference;
    text << prefix(first.kind) << first.name << " differs in step " << first.step << " (" << sizes(first.step)
         << "): ";
    if (!first.one_element) text << "element " << d.at << " is ";
    text << d.actual;
    if (first.rank >= 0)
      text << " on rank " << first.rank << ", " << d.expected << " on rank 0";
    else
      text << " on " << options_.world << " ranks" << (first.kind == StateKind::kLoss ? " (mean)" : "")
           << ", " << d.expected << " on one with all samples";
    text.precision(2);
    text << "; relative " << d.relative << ", expected at most " << options_.tolerance << '.';
    return std::move(text).str();
  }

  const internal::MakeModule& make_;
  const internal::LossOf& loss_;
  const VerifyOptions& options_;
  const Context& caller_ = Context::current();
  std::vector<data::Batch> joined_;  // joined batch of each step
  // Results of the first run, which trains one rank on the joined batches.
  std::optional<TrainingState> start_;   // initial weights
  std::vector<TrainingState> expected_;  // states after each step
  Names batch_norms_, dropouts_;         // names of the layers in training mode
};

}  // namespace

std::ostream& operator<<(std::ostream& out, const VerifyReport& report) { return out << report.text; }

namespace internal {

double weight_of(const data::Batch& batch) {
  return double(batch.size()) * get_world_size() / double(batch.global_size);
}

VerifyReport verify(const MakeModule& make, const LossOf& loss, data::DatasetArg data,
                    const VerifyOptions& options) {
  return Verification(make, loss, *data, options).report();
}

}  // namespace internal
}  // namespace gradus::dist
