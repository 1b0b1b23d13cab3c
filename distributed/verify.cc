#include "gradus/distributed/verify.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <ostream>
#include <tuple>
#include <utility>

#include "gradus/autograd/grad_manager.h"
#include "gradus/distributed/allreduce_callback.h"
#include "gradus/distributed/collectives.h"
#include "gradus/distributed/process_group.h"
#include "gradus/distributed/run_ranks.h"
#include "gradus/distributed/sync_batch_norm.h"
#include "gradus/nn/batch_norm.h"
#include "gradus/nn/dropout.h"
#include "gradus/optim/sgd.h"
#include "gradus/tensor/context.h"
#include "gradus/tensor/error.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/index.h"

namespace gradus::dist {
namespace {

using Cause = VerifyReport::Cause;

// What is compared, in this order.
enum Kind { kLoss, kGradients, kParameters, kBuffers, kKinds };
constexpr std::array<const char*, kKinds> kPrefix = {"", "gradient of ", "parameter ", "buffer "};

// What a step left behind on a rank: for each kind, names and tensors.
using State = std::array<nn::StateDict, kKinds>;

State state_of(const nn::Module& model, double loss) {
  State state = {nn::StateDict{{"loss", scalar(loss, {.dtype = DType::kF64})}},
                 {},
                 model.named_parameters(),
                 model.named_buffers()};
  for (const auto& [name, parameter] : state[kParameters])
    state[kGradients].emplace_back(name, parameter.grad());
  return state;
}

State clone(State state) {
  for (nn::StateDict& tensors : state)
    for (auto& [name, x] : tensors)
      if (x.defined()) x = raw::clone(x);
  return state;
}

std::vector<double> values(const Tensor& x) {
  return x.defined() ? x.to_vector<double>() : std::vector<double>();
}

// Of all tensors that are not counts.
double largest_of(const nn::StateDict& tensors) {
  double largest = 0;
  for (const auto& [name, x] : tensors)
    if (x.defined() && is_floating(x.dtype()))
      for (double v : values(x)) largest = std::max(largest, std::abs(v));
  return largest;
}

struct Difference {
  double relative = 0;
  size_t at = 0;  // element
  double given = 0, expected = 0;
};

// The largest difference, relative to the larger of `floor` and the tensors' largest element. None counts as
// zeros.
Difference difference_of(const Tensor& given, const Tensor& expected, double floor) {
  std::vector<double> a = values(given), b = values(expected);
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

// The first tensor that differs, and how.
struct Finding {
  int step = 0;
  Kind kind = kLoss;
  size_t index = 0;
  std::string name;
  int rank = -1;
  Difference difference;
  bool one_element = false;
  std::string buffer;  // the first that differs between ranks after this step

  auto place() const { return std::tuple(step, kind, index); }
};

struct Outcome {
  std::optional<Finding> finding;
  double largest = 0;         // of all differences
  bool drew_numbers = false;  // rank 0 used its generator
};

// A run of the training: how it departs from the plain one.
struct Setup {
  int world = 1;
  bool same_batch = false;       // all ranks get rank 0's; then they are compared with each other alone
  bool sync_batch_norm = false;  // convert the model
  bool weighted = false;         // count samples, not batches
  bool other_seed = false;       // of the random numbers in training
};

// Modules of a type, by name, for which `wanted` holds.
template <class M, class Wanted>
std::vector<std::string> names_of(nn::Module& model, Wanted wanted) {
  std::vector<std::string> names;
  for (auto& [name, module] : model.named_modules())
    if (auto* m = dynamic_cast<M*>(module); m && wanted(*m))
      names.push_back(name.empty() ? "the model" : name);
  return names;
}

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i == 4 && names.size() > 5) return concat(text, " and ", names.size() - 4, " more");
    text += (i == 0 ? "" : ", ") + names[i];
  }
  return text;
}

Tensor as_f64(const Tensor& x) {
  return x.defined() && is_floating(x.dtype()) ? raw::to(x, DType::kF64) : x;
}

// Rows `positions` of a batch whose samples are `joined`.
data::Batch share_of(const data::Batch& joined, const std::vector<int64_t>& positions) {
  const Tensor rows = tensor(positions, {static_cast<int64_t>(positions.size())});
  const auto part = [&](const Tensor& x) { return x.defined() ? raw::index_select(x, 0, rows) : x; };
  data::Batch batch{.input = part(joined.input), .target = part(joined.target)};
  for (int64_t at : positions) batch.indices.push_back(joined.indices[at]);
  return batch;
}

class Verification {
 public:
  Verification(const internal::MakeModule& make, const internal::LossOf& loss, const data::Dataset& data,
               const VerifyOptions& options)
      : make_(make), loss_(loss), options_(options) {
    check_options(data);
    read(data);
  }

  VerifyReport report();

 private:
  struct Shared {
    std::vector<State> states;  // of all ranks, after the step
    Outcome outcome;
  };

  void check_options(const data::Dataset& data) const;
  void read(const data::Dataset& data);
  data::Batch batch_of(const Setup& setup, int step, int rank) const;
  std::vector<int64_t> positions_of(int step, int rank, int world) const;
  std::string sizes(int step) const;

  Outcome run(const Setup& setup);
  void train(const Setup& setup, Shared& shared);
  void take_weights(const nn::Module& model);
  void compare(const Setup& setup, int step, Shared& shared) const;

  std::pair<Cause, std::string> cause_of(const Finding& first);
  std::string difference_text(const Finding& first) const;
  std::string unknown_text(const Finding& first) const;

  const internal::MakeModule& make_;
  const internal::LossOf& loss_;
  const VerifyOptions& options_;
  const Context& caller_ = Context::current();
  std::vector<data::Batch> joined_;                  // one per step
  State weights_;                                    // at the start, of the run with the joined batch
  std::vector<State> expected_;                      // after each step of that run
  std::vector<std::string> batch_norms_, dropouts_;  // in it, in training
};

void Verification::check_options(const data::Dataset& data) const {
  const auto check = [](bool holds, const char* name, const auto& given) {
    if (!holds) throw ValueError("verify", "expected ", name, ", given ", given);
  };
  check(options_.world >= 1, "world >= 1", options_.world);
  check(options_.batch_size >= 1, "batch_size >= 1", options_.batch_size);
  check(options_.steps >= 1, "steps >= 1", options_.steps);
  check(options_.tolerance >= 0, "tolerance >= 0", options_.tolerance);
  if (data.size() < options_.world)
    throw ValueError("verify", "expected a sample for each of ", options_.world, " ranks at least, given ",
                     data.size(), " in ", data.name());
}

// Reads all batches in advance: samples with random changes are then the same in all runs.
void Verification::read(const data::Dataset& data) {
  Context context = caller_.snapshot();
  context.recordings.clear();
  context.generator = std::make_shared<Generator>(options_.seed);
  ContextScope scope(context);
  int64_t at = 0;
  for (int step = 0; step < options_.steps + (options_.unequal && options_.world > 1); ++step) {
    int64_t size = options_.world * options_.batch_size;
    if (step == options_.steps) size += options_.world / 2;
    std::vector<int64_t> indices;
    for (int64_t i = 0; i < size; ++i) indices.push_back(at++ % data.size());
    data::Batch batch = data.get_batch(indices);
    batch.input = as_f64(batch.input), batch.target = as_f64(batch.target);
    batch.indices = std::move(indices);
    joined_.push_back(std::move(batch));
  }
}

std::vector<int64_t> Verification::positions_of(int step, int rank, int world) const {
  std::vector<int64_t> positions;
  for (int64_t at = rank; at < joined_[step].size(); at += world) positions.push_back(at);
  return positions;
}

// Ranks' shares interleave, as a DataLoader's do.
data::Batch Verification::batch_of(const Setup& setup, int step, int rank) const {
  data::Batch batch = share_of(joined_[step], positions_of(step, setup.same_batch ? 0 : rank, setup.world));
  batch.global_size = setup.same_batch ? batch.size() * setup.world : joined_[step].size();
  return batch;
}

// The first run's weights are everybody's.
void Verification::take_weights(const nn::Module& model) {
  State own = state_of(model, 0);
  if (expected_.empty() && weights_[kParameters].empty()) {
    weights_ = clone(own);
    return;
  }
  for (Kind kind : {kParameters, kBuffers}) {
    const nn::StateDict &from = weights_[kind], &to = own[kind];
    for (size_t i = 0; i < std::max(from.size(), to.size()); ++i) {
      const auto describe_at = [i](const nn::StateDict& tensors) {
        return i < tensors.size() ? concat(tensors[i].first, " ", describe(tensors[i].second))
                                  : std::string("none");
      };
      if (describe_at(from) != describe_at(to))
        throw ValueError("verify", "the model has ", kPrefix[kind], describe_at(to), " on rank ", get_rank(),
                         " of ", get_world_size(), " but ", describe_at(from),
                         " in a job of one rank: without the same tensors there is nothing to compare");
      raw::copy_(to[i].second, from[i].second);
    }
  }
}

// Looks for the first difference after a step; on rank 0, which sees the others' tensors.
void Verification::compare(const Setup& setup, int step, Shared& shared) const {
  const std::vector<State>& states = shared.states;
  Outcome& outcome = shared.outcome;
  const auto look = [&](Kind kind, size_t i, const Tensor& given, const Tensor& expected, double floor,
                        int rank) {
    const Difference difference = difference_of(given, expected, floor);
    outcome.largest = std::max(outcome.largest, difference.relative);
    if (difference.relative <= options_.tolerance) return false;
    const std::string& name = states[0][kind][i].first;
    if (kind == kBuffers && rank >= 0 && outcome.finding && outcome.finding->buffer.empty())
      outcome.finding->buffer = name;
    if (!outcome.finding)
      outcome.finding = {step,
                         kind,
                         i,
                         name,
                         rank,
                         difference,
                         given.defined() && given.numel() == 1,
                         kind == kBuffers && rank >= 0 ? name : ""};
    return true;
  };
  for (Kind kind : {kLoss, kGradients, kParameters, kBuffers}) {
    const nn::StateDict& first = states[0][kind];
    const double floor = 1e-3 * largest_of(first);
    for (size_t i = 0; i < first.size(); ++i) {
      // Ranks' losses are those of their own batches.
      if (kind != kLoss || setup.same_batch)
        for (int rank = 1; rank < setup.world; ++rank)
          look(kind, i, states[rank][kind].at(i).second, first[i].second, floor, rank);
      if (setup.same_batch) continue;
      Tensor given = first[i].second;
      if (kind == kLoss) {
        double sum = 0;
        for (const State& state : states) sum += state[kLoss][0].second.item<double>();
        given = scalar(sum / setup.world, {.dtype = DType::kF64});
      }
      look(kind, i, given, expected_[step][kind][i].second, floor, -1);
    }
  }
}

void Verification::train(const Setup& setup, Shared& shared) {
  Context& context = Context::current();
  context.device = caller_.device;
  context.deterministic = caller_.deterministic;
  context.generator->manual_seed(options_.seed);
  const bool first_run = expected_.empty();

  const std::unique_ptr<nn::Module> model = make_();
  if (!model) throw ValueError("verify", "expected a model, given none");
  if (options_.prepare) options_.prepare(*model);
  model->to(DType::kF64);
  take_weights(*model);
  if (first_run) {
    batch_norms_ = names_of<nn::BatchNorm>(*model, [](nn::BatchNorm& m) {
      return !m.reduction() && (m.is_training() || !m.running_mean.defined());
    });
    dropouts_ =
        names_of<nn::Dropout>(*model, [](nn::Dropout& m) { return m.is_training() && m.options().p > 0; });
  }
  if (setup.sync_batch_norm) convert_sync_batchnorm(*model);
  if (setup.other_seed) context.generator->manual_seed(context.generator->seed() + 1);

  const int rank = get_rank();
  const std::array<uint64_t, 2> numbers = context.generator->state();
  GradManager gm;
  gm.attach(model->parameters(), make_allreduce_cb(ReduceOp::kMean));
  optim::SGD optimizer(model->parameters(), {.lr = options_.lr});
  for (int step = 0; step < static_cast<int>(joined_.size()); ++step) {
    const data::Batch batch = batch_of(setup, step, rank);
    Tensor loss;
    {
      auto recording = gm.record();
      loss = loss_(*model, batch);
      if (setup.weighted) loss = loss * internal::weight_of(batch);
      gm.backward(loss);
    }
    optimizer.step();
    const State state = state_of(*model, loss.item<double>());
    if (first_run) {
      if (!std::isfinite(loss.item<double>()))
        throw ValueError("verify", "expected a finite loss, given ", loss.item<double>(), " in step ", step,
                         " on the joined batch: without one there is nothing to compare");
      expected_.push_back(clone(state));
    } else {
      shared.states[rank] = state;
      barrier();
      if (rank == 0) compare(setup, step, shared);
      barrier();
    }
    if (rank == 0) shared.outcome.drew_numbers |= context.generator->state() != numbers;
    if (!first_run && shared.outcome.finding) return;
    optimizer.clear_grad();
  }
}

Outcome Verification::run(const Setup& setup) {
  Shared shared{.states = std::vector<State>(setup.world)};
  run_ranks(setup.world, [&] { train(setup, shared); });
  return shared.outcome;
}

std::string Verification::sizes(int step) const {
  if (step < options_.steps) return concat("equal batches of ", options_.batch_size);
  std::vector<std::string> each;
  for (int rank = 0; rank < options_.world; ++rank)
    each.push_back(std::to_string(positions_of(step, rank, options_.world).size()));
  return "unequal batches of " + list(each);
}

std::string Verification::difference_text(const Finding& first) const {
  std::ostringstream text;
  text.precision(6);
  const Difference& d = first.difference;
  text << kPrefix[first.kind] << first.name << " differs in step " << first.step << " (" << sizes(first.step)
       << "): ";
  if (!first.one_element) text << "element " << d.at << " is ";
  text << d.given;
  if (first.rank >= 0)
    text << " on rank " << first.rank << ", " << d.expected << " on rank 0";
  else
    text << " on " << options_.world << " ranks" << (first.kind == kLoss ? " (mean)" : "") << ", "
         << d.expected << " on one with all samples";
  text.precision(2);
  text << "; relative " << d.relative << ", expected at most " << options_.tolerance << '.';
  return text.str();
}

// What can be said when no run explains it.
std::string Verification::unknown_text(const Finding& first) const {
  const std::string tried =
      "It is neither random numbers, nor the rank, nor batch norm, nor the batches' sizes. ";
  switch (first.kind) {
    case kLoss:
      return tried +
             "Probably the loss of a batch is not the mean of its parts': the model or the loss compares "
             "samples with "
             "each other, or with others of an earlier batch. Gather what is compared "
             "(dist::functional::all_gather).";
    case kGradients:
      return tried +
             "The losses agree, so look at the backward: a rule of one's own, or a collective in the forward "
             "whose "
             "gradient is not that of the sum over ranks.";
    default:
      return tried +
             "The gradients agree, so look at what else writes to the parameter: the model's forward, from "
             "its own "
             "batch.";
  }
}

std::pair<Cause, std::string> Verification::cause_of(const Finding& first) {
  const auto explains = [&](const Setup& setup) {
    const Outcome outcome = run(setup);
    return !outcome.finding || outcome.finding->place() > first.place();
  };
  const Outcome same = run({.world = options_.world, .same_batch = true});
  const bool random = run({.other_seed = true}).finding.has_value();
  if (random || (same.finding && same.drew_numbers)) {
    const std::string who = dropouts_.empty() ? "the model" : list(dropouts_);
    return {
        Cause::kRandomness,
        concat("random numbers: ", who, dropouts_.size() > 1 ? " draw" : " draws",
               " them, and no two ranks, nor the one with the joined batch, draw the same for a sample. That "
               "is no "
               "fault where they are meant so. To verify the rest, switch them off in VerifyOptions::prepare",
               dropouts_.empty() ? "" : " (m.find(\"" + dropouts_[0] + "\").eval())",
               "; numbers that have to agree come from one rank (dist::broadcast).")};
  }
  if (same.finding)
    return {Cause::kDependsOnRank,
            concat("the rank: from the same batch, rank ", same.finding->rank, " computes another ",
                   kPrefix[same.finding->kind], same.finding->name,
                   " than rank 0. Look for get_rank(), for random numbers of the model's own, and for "
                   "variables that "
                   "ranks as threads share.")};
  if (first.kind == kLoss && first.step < options_.steps && options_.world > 1 &&
      std::abs(first.difference.given * options_.world - first.difference.expected) <=
          options_.tolerance * std::abs(first.difference.expected))
    return {Cause::kSumOverBatch,
            "a sum: the loss adds up the samples of the batch, and the ranks' mean is taken of these sums. "
            "Divide by "
            "the size of the batch, or reduce with make_allreduce_cb(kSum)."};
  if (!batch_norms_.empty() && explains({.world = options_.world, .sync_batch_norm = true}))
    return {Cause::kBatchNormStatistics, concat("batch-norm statistics: in ", list(batch_norms_),
                                                " each rank normalises by its own batch. "
                                                "dist::convert_sync_batchnorm(model) makes them those of all "
                                                "ranks together; with it, the difference is gone.")};
  if (explains({.world = options_.world, .weighted = true}))
    return {
        Cause::kUnequalBatches,
        "a mean over unequal batches: the mean of ranks' means is not the mean over all samples. Multiply "
        "the loss "
        "by batch.size() * dist::get_world_size() / batch.global_size; with that, the difference is gone. Or "
        "give "
        "all ranks equal batches (DataLoaderOptions::drop_last, Uneven::kPad, Uneven::kDrop) and verify with "
        ".unequal = false."};
  if (!first.buffer.empty() || first.kind == kBuffers) {
    const std::string& name = first.buffer.empty() ? first.name : first.buffer;
    return {Cause::kBuffer,
            concat("a buffer that is not synchronised: each rank updates ", name,
                   " from its own batch. Make what goes into it that of all ranks (dist::all_reduce, .op = "
                   "kAvg); or, "
                   "where rank 0's is good enough, let DistributedDataParallel broadcast it.")};
  }
  return {Cause::kUnknown, unknown_text(first)};
}

VerifyReport Verification::report() {
  run({});
  const Outcome outcome = run({.world = options_.world});
  VerifyReport report;
  if (!outcome.finding) {
    report.difference = outcome.largest;
    std::ostringstream text;
    text.precision(2);
    text << options_.world
         << " ranks agree with one on the joined batch: loss, gradients, parameters and buffers, to "
         << outcome.largest << ", in " << options_.steps << (options_.steps == 1 ? " step of " : " steps of ")
         << sizes(0);
    if (std::ssize(joined_) > options_.steps) text << " and one of " << sizes(options_.steps);
    report.text = text.str() + ".";
    return report;
  }
  const Finding& first = *outcome.finding;
  report.agrees = false;
  report.tensor = kPrefix[first.kind] + first.name;
  report.step = first.step;
  report.rank = first.rank;
  report.difference = first.difference.relative;
  std::string cause;
  std::tie(report.cause, cause) = cause_of(first);
  report.text = concat(difference_text(first), "\nLikely cause: ", cause);
  return report;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const VerifyReport& report) { return out << report.text; }

namespace internal {

double weight_of(const data::Batch& batch) {
  return double(batch.size()) * get_world_size() / double(batch.global_size);
}

VerifyReport verify(const MakeModule& make, const LossOf& loss, data::DatasetRef data,
                    const VerifyOptions& options) {
  return Verification(make, loss, *data, options).report();
}

}  // namespace internal
}  // namespace gradus::dist
