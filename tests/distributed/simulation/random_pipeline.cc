// Random trainings of pipelines under simulated faults.
#include "gradus/tests/distributed/simulation/random_pipeline.h"

#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/pipeline/pipeline.h"
#include "gradus/tests/distributed/pipeline/small_models.h"
#include "gradus/tests/distributed/simulation/random_program.h"

namespace gradus::dist {
namespace {

constexpr int kSteps = 3;

// What a seed determines. At a misdeed, rank `culprit` throws or returns before step `step`.
struct Plan {
  PipelineOptions options;
  int replicas = 1;
  int64_t rows = 1;  // of a replica's batch
  enum class Misdeed { kNone, kThrows, kLeaves } misdeed = Misdeed::kNone;
  int culprit = -1, step = -1;

  int world() const { return options.stages * replicas; }
};

Plan make_plan(uint64_t seed) {
  std::mt19937_64 random(seed * 7919 + 5);
  const auto below = [&](uint64_t n) { return int(random() % n); };
  Plan plan;
  PipelineOptions& o = plan.options;
  o.schedule = Schedule(below(8));
  o.stages = 1 + below(4);
  const bool loops = o.schedule == Schedule::kInterleaved1F1B ||
                     o.schedule == Schedule::kLoopedBreadthFirst || o.schedule == Schedule::kZeroBubbleV;
  if (loops) o.interleave = 2;
  if (o.schedule == Schedule::k1F1BSlowLinks) o.extra_warmup = below(3);
  o.micro_batches = 1 + below(5);
  if (o.stages <= 2) plan.replicas = 1 + below(2);
  plan.rows = 1 + below(9);
  const std::vector<std::string> places = {"in", "b0.fc1", "b0", "b1", "b2.fc1", "b2", "b3"};
  const size_t stages = size_t(o.stages) * size_t(o.interleave);
  for (size_t i = 1; i < stages; ++i) o.cut_after.push_back(places[i * (places.size() + 1) / stages - 1]);
  if (below(4) == 0) {
    plan.misdeed = below(2) == 0 ? Plan::Misdeed::kThrows : Plan::Misdeed::kLeaves;
    plan.culprit = below(uint64_t(plan.world()));
    plan.step = below(kSteps);
  }
  return plan;
}

Tensor values(const Shape& shape, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> all(size_t(checked_numel(shape, "values")));
  for (double& x : all) x = double(random() % 2001) / 1000 - 1;
  return tensor(all, shape);
}

struct Batch {
  Tensor x, y;
};
// Returns the batch of all replicas.
Batch batch_of(const Plan& plan, int step) {
  const int64_t rows = plan.rows * plan.replicas;
  return {values({rows, 6}, uint64_t(100 + step)), values({rows, 3}, uint64_t(200 + step))};
}

std::unique_ptr<ResidualMLP> make_model() {
  auto model = std::make_unique<ResidualMLP>();
  model->to(DType::kF64);
  return model;
}

// The losses of the steps, and the sums of their gradients.
struct Trained {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> grads;
};

Trained undivided(const Plan& plan) {
  manual_seed(5);
  const auto model = make_model();
  GradManager gm;
  gm.attach(model->parameters());
  Trained trained;
  for (int step = 0; step < kSteps; ++step) {
    const Batch b = batch_of(plan, step);
    auto recording = gm.record();
    const Tensor loss = nn::mse_loss((*model)(b.x), b.y);
    gm.backward(loss);
    trained.losses.push_back(loss.item<double>());
  }
  for (const auto& [name, p] : model->named_parameters()) trained.grads[name] = p.grad().to_vector<double>();
  return trained;
}

std::string difference(const std::vector<double>& got, const std::vector<double>& want,
                       const std::string& of) {
  if (got.size() != want.size()) return concat("other sizes of ", of, '\n');
  for (size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(got[i] - want[i]) <= 1e-12 * std::max(1.0, std::abs(want[i]))))
      return concat(of, " is ", got[i], ", and should be ", want[i], '\n');
  return "";
}

// Returns "" if a rank's error fits the faults of the run, else a message.
std::string judge(const Plan& plan, const SimulationReport& run, int rank) {
  const bool throws = plan.misdeed == Plan::Misdeed::kThrows, leaves = plan.misdeed == Plan::Misdeed::kLeaves;
  try {
    std::rethrow_exception(run.errors[size_t(rank)]);
  } catch (const PeerError& e) {
    if ((e.rank() == run.killed || e.rank() == plan.culprit) && e.rank() >= 0) return "";
    if (run.dropped || leaves) return "";
    return concat("rank ", rank, " threw ", e.what(), '\n');
  } catch (const TimeoutError& e) {
    return run.dropped || leaves ? "" : concat("rank ", rank, " threw ", e.what(), '\n');
  } catch (const std::exception& e) {
    const bool own = throws && rank == plan.culprit && e.what() == std::string("on purpose");
    return own ? "" : concat("rank ", rank, " threw ", e.what(), '\n');
  }
}

}  // namespace

PipelineReport try_pipeline(uint64_t seed) {
  const Plan plan = make_plan(seed);
  const Trained want = undivided(plan);
  SimulationOptions options = make_scenario(seed).options;
  if (plan.world() == 1) options = {.seed = seed};
  std::vector<std::string> wrong(size_t(plan.world()));
  std::vector<char> came(size_t(plan.world()));
  PipelineReport report;
  report.run = simulate(plan.world(), options, [&] {
    const int me = get_rank();
    manual_seed(5);
    Pipeline<ResidualMLP> pipe(make_model, zeros({1, 6}, {.dtype = DType::kF64}), plan.options);
    GradManager gm;
    pipe.attach(gm);
    std::vector<double> losses;
    for (int step = 0; step < kSteps; ++step) {
      if (me == plan.culprit && step == plan.step) {
        if (plan.misdeed == Plan::Misdeed::kLeaves) return;
        throw std::runtime_error("on purpose");
      }
      const Batch b = batch_of(plan, step);
      const int64_t begin = me / plan.options.stages * plan.rows;
      losses.push_back(
          pipe.step(gm, narrow(b.x, 0, begin, plan.rows), narrow(b.y, 0, begin, plan.rows), nn::mse_loss));
    }
    std::string& text = wrong[size_t(me)];
    text += difference(losses, want.losses, "a loss");
    for (const auto& [name, p] : pipe.named_parameters())
      text += difference(p.grad().to_vector<double>(), want.grads.at(name), name + ".grad");
    came[size_t(me)] = true;
    barrier();
  });
  if (report.run.hung) report.wrong += "it hung\n";
  report.trained = true;
  for (int rank = 0; rank < plan.world(); ++rank) {
    report.wrong += wrong[size_t(rank)];
    report.trained = report.trained && came[size_t(rank)];
    if (rank != report.run.killed && report.run.errors[size_t(rank)])
      report.wrong += judge(plan, report.run, rank);
  }
  const bool disturbed = report.run.killed >= 0 || report.run.dropped || plan.misdeed != Plan::Misdeed::kNone;
  if (!disturbed && !report.trained) report.wrong += "not all ranks trained to the end\n";
  return report;
}

}  // namespace gradus::dist
