// Workloads in Gradus: optimizer steps over 100 tensors of 100,000 elements (10M), over many small
// parameters and of a sparse embedding, and gradient clipping.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in other files of
// this folder (optim_libtorch.cc).
#include "benchmarks/workloads.h"
#include "gradus/gradus.h"

namespace gradus::bench {
namespace {

constexpr int64_t kLarge = 100000;

std::vector<Tensor> parameters(int64_t number, int64_t size) {
  std::vector<Tensor> all;
  for (int64_t i = 0; i < number; ++i) {
    all.push_back(randn({size}));
    all.back().set_grad(randn({size}));
  }
  return all;
}

// `states`: number of state tensors per parameter that a step reads and writes.
template <class O, class Options> Entry step(const char* name, int states, Options options) {
  return {name, [=] {
            const auto opt = std::make_shared<O>(parameters(100, kLarge), options);
            const double bytes = 100.0 * kLarge * sizeof(float);
            return streaming([=] { opt->step(); }, (2 + states) * bytes, (1 + states) * bytes);
          }};
}

// A step of an embedding with 50,000 rows and a sparse gradient of the 2,048 rows that were read.
template <class O, class Options> Entry sparse_step(const char* name, Options options) {
  struct State {
    explicit State(Options options) : opt(words.parameters(), options) { gm.attach(words.parameters()); }
    nn::Embedding words{{.num_embeddings = 50000, .embedding_dim = 256, .sparse = true}};
    GradManager gm;
    O opt;
    const Tensor read = randint(50000, {64, 32}), dy = randn({64, 32, 256});
  };
  return {name, [=] {
            const auto state = std::make_shared<State>(options);
            return work([=] {
              auto recording = state->gm.record();
              state->gm.backward(state->words(state->read), state->dy);
              state->opt.step().clear_grad();
            });
          }};
}

}  // namespace

static const AddWorkloads added(
    Side::kGradus, "optim",
    {
        step<optim::SGD>("SGD with momentum, 10M", 1, optim::SGDOptions{.lr = 1e-5, .momentum = 0.9}),
        step<optim::Adam>("Adam, 10M", 2, optim::AdamOptions{.lr = 1e-5}),
        step<optim::AdamW>("AdamW, 10M", 2, optim::AdamWOptions{.lr = 1e-5}),
        step<optim::Adagrad>("Adagrad, 10M", 1, optim::AdagradOptions{.lr = 1e-5}),
        step<optim::RMSprop>("RMSprop, 10M", 1, optim::RMSpropOptions{.lr = 1e-5}),
        {"Adam, 200 parameters of 64",
         [] {
           const auto opt =
               std::make_shared<optim::Adam>(parameters(200, 64), optim::AdamOptions{.lr = 1e-5});
           return work([=] { opt->step(); });
         }},
        sparse_step<optim::SGD>("SGD of a sparse embedding, 2K rows of 50K x 256",
                                optim::SGDOptions{.lr = 1e-3}),
        sparse_step<optim::Adagrad>("Adagrad of a sparse embedding, 2K rows of 50K x 256",
                                    optim::AdagradOptions{.lr = 1e-3}),
        {"clip_grad_norm_, 10M",
         [] {
           const auto params = parameters(100, kLarge);
           const double bytes = 100.0 * kLarge * sizeof(float);
           return streaming([=] { optim::clip_grad_norm_(params, 1e9); }, bytes, 0);
         }},
    });

}  // namespace gradus::bench
