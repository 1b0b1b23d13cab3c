// Pipelines against the undivided model.
#include "gradus/distributed/pipeline/pipeline.h"

#include <gmock/gmock.h>

#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tests/distributed/pipeline/small_models.h"
#include "gradus/tests/ops/values.h"

namespace gradus::dist {
namespace {

// What a training ends with: the losses, and all parameters by name.
struct Trained {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> parameters;
};

constexpr int kSteps = 5;

template <class M> struct Case;
template <> struct Case<ResidualMLP> {
  static Tensor input(int64_t rows, int step) { return random_tensor({rows, 6}, DType::kF64, 10 + step); }
  static Tensor target(int64_t rows, int step) { return random_tensor({rows, 3}, DType::kF64, 20 + step); }
  static Tensor loss(const Tensor& y, const Tensor& t) { return nn::mse_loss(y, t); }
  static std::vector<std::string> cuts(int stages) {
    if (stages == 1) return {};
    if (stages == 2) return {"b1"};
    if (stages == 4) return {"b0", "b1", "b2"};
    return {"in", "b0.fc1", "b0", "b1", "b2.fc1", "b2", "b3"};
  }
};
template <> struct Case<TiedText> {
  static Tensor input(int64_t rows, int step) {
    std::vector<int64_t> tokens;
    for (int64_t i = 0; i < rows * 5; ++i) tokens.push_back((i * i + step * 7 + i) % 11);
    return tensor(tokens, {rows, 5});
  }
  static Tensor target(int64_t rows, int step) { return input(rows, step + 1); }
  static Tensor loss(const Tensor& y, const Tensor& t) {
    return nn::cross_entropy(flatten(y, 0, 1), flatten(t, 0, 1));
  }
  static std::vector<std::string> cuts(int stages) {
    if (stages == 1) return {};
    if (stages == 2) return {"b0"};
    if (stages == 4) return {"b0", "b1", "b2"};
    return {"embed", "b0.norm", "b0", "b1.norm", "b1", "b2.norm", "b2"};
  }
};

template <class M> std::unique_ptr<M> make() {
  auto model = std::make_unique<M>();
  model->to(DType::kF64);
  return model;
}

template <class M> Trained undivided(int64_t rows) {
  manual_seed(5);
  const auto model = make<M>();
  GradManager gm;
  gm.attach(model->parameters());
  optim::SGD opt(model->parameters(), {.lr = 0.1, .momentum = 0.9});
  Trained trained;
  for (int i = 0; i < kSteps; ++i) {
    auto recording = gm.record();
    const Tensor loss = Case<M>::loss((*model)(Case<M>::input(rows, i)), Case<M>::target(rows, i));
    gm.backward(loss);
    opt.step().clear_grad();
    trained.losses.push_back(loss.item<double>());
  }
  for (const auto& [name, p] : model->named_parameters()) trained.parameters[name] = p.template to_vector<double>();
  return trained;
}

double difference(const Trained& got, const Trained& want) {
  double worst = 0;
  const auto compare = [&](const std::vector<double>& a, const std::vector<double>& b) {
    if (a.size() != b.size()) return void(worst = INFINITY);
    double largest = 1e-300, most = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      largest = std::max(largest, std::abs(b[i]));
      most = std::max(most, a[i] == b[i] ? 0 : std::abs(a[i] - b[i]));
    }
    worst = std::max(worst, most / largest);
  };
  compare(got.losses, want.losses);
  for (const auto& [name, values] : got.parameters) compare(values, want.parameters.at(name));
  return worst;
}

// Trains on `ranks` threads. Returns what each rank has.
template <class M> std::vector<Trained> in_pipeline(int ranks, int64_t rows, PipelineOptions options) {
  std::vector<Trained> trained(ranks);
  options.stages = ranks;
  options.cut_after = Case<M>::cuts(ranks * options.interleave);
  run_ranks(ranks, [&] {
    manual_seed(5);
    Pipeline<M> pipe(make<M>, Case<M>::input(2, 0), options);
    GradManager gm;
    pipe.attach(gm);
    optim::SGD opt(pipe.parameters(), {.lr = 0.1, .momentum = 0.9});
    Trained& mine = trained[get_rank()];
    for (int i = 0; i < kSteps; ++i) {
      mine.losses.push_back(pipe.step(gm, Case<M>::input(rows, i), Case<M>::target(rows, i), Case<M>::loss));
      opt.step().clear_grad();
    }
    for (const auto& [name, p] : pipe.named_parameters()) mine.parameters[name] = p.template to_vector<double>();
  });
  return trained;
}

template <class M> void expect_undivided() {
  for (const int64_t rows : {16, 13}) {
    const Trained want = undivided<M>(rows);
    for (Schedule schedule : {Schedule::kGPipe, Schedule::kGPipeLIFO, Schedule::k1F1B, Schedule::k1F1BSlowLinks,
                              Schedule::kInterleaved1F1B, Schedule::kLoopedBreadthFirst})
      for (const int ranks : {1, 2, 4})
        for (const int micro_batches : {1, 2, 4, 8}) {
          PipelineOptions options{.schedule = schedule, .micro_batches = micro_batches};
          const bool loops =
              schedule == Schedule::kInterleaved1F1B || schedule == Schedule::kLoopedBreadthFirst;
          if (loops) options.interleave = 2;
          if (schedule == Schedule::k1F1BSlowLinks) options.extra_warmup = 1;
          std::set<std::string> seen;
          for (const Trained& got : in_pipeline<M>(ranks, rows, options)) {
            EXPECT_LE(difference(got, want), 1e-12)
                << name_of(schedule) << " P " << ranks << " M " << micro_batches << " rows " << rows;
            EXPECT_EQ(got.losses.size(), size_t(kSteps));
            for (const auto& [name, values] : got.parameters) seen.insert(name);
          }
          EXPECT_EQ(seen.size(), want.parameters.size());
        }
  }
}

TEST(Pipeline, TrainsAResidualMLPAsOneProcessDoes) { expect_undivided<ResidualMLP>(); }
TEST(Pipeline, TrainsAModelWithTiedWeightsAsOneProcessDoes) { expect_undivided<TiedText>(); }

TEST(Pipeline, ARankHoldsItsOwnStagesOnly) {
  run_ranks(2, [] {
    Pipeline<ResidualMLP> pipe(make<ResidualMLP>, random_tensor({2, 6}, DType::kF64), {.cut_after = {"b1"}});
    for (const auto& [name, p] : pipe.module().named_parameters()) {
      const bool first = name.starts_with("in") || name.starts_with("b0") || name.starts_with("b1");
      EXPECT_EQ(p.device().type == DeviceType::kCPU, first == (get_rank() == 0)) << name;
    }
  });
}

}  // namespace
}  // namespace gradus::dist
