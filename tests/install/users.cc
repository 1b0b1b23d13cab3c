// Typical user code: partial lists of options, parts of tensors, numbers of all types. headers_test.sh
// compiles it with -Wall -Wextra -Wshadow -Wconversion -Werror against the installed headers; nothing runs
// it.
#include <cmath>
#include <iostream>

#include "gradus/gradus.h"

using namespace gradus;

struct Generator : nn::Layer {
  nn::Embedding words{this, "words", {.num_embeddings = 10, .embedding_dim = 4}};
  nn::LSTM lstm{this, "lstm", {.input_size = 4, .hidden_size = 8}};
  nn::LayerNorm norm{this, "norm", {.shape = 8}};
  nn::Linear out{this, "out", {.in = 8, .out = 2}};
  Tensor forward(const Tensor& x) override { return to(out(norm(x)), x.device()); }
};

int main() {
  const size_t batch = 2;
  const int width = 8;
  Tensor x = randn({batch, width, 4, 4}, {.device = "cpu:0"});
  x += 1;
  x[0][1] *= 0.5;
  auto part = x[{Ellipsis, Slice(None, 2)}];
  Tensor y = max_pool2d(x, 2) * 2 + mean(part, -1, {.keepdim = true});
  y = interpolate(y, {.size = {4, 4}});
  y = batch_norm(y, {}, {}, {}, {}, {.training = true});
  y = conv2d(y, randn({3, width, 1, 1}), None, {.stride = 1});

  Generator net;
  GradManager gm;
  gm.attach(net.parameters(), dist::make_allreduce_cb(dist::ReduceOp::kMean, {.bucket_cap_mb = 10}));
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  optim::MultiStepLR schedule(opt, {.milestones = {30, 80}});
  const Tensor logits = net(ones({batch, width}));
  Tensor loss = nn::cross_entropy(logits, tensor({0, 1}), {.label_smoothing = 0.1});
  loss = loss + mean(tensor({1, 2.5})) + nansum(tensor({NAN, 2.0})) + mean(tensor({{1.0}, {2.0}}));
  loss = loss + binary_cross_entropy_with_logits(logits, zeros_like(logits), {.reduction = Reduction::kSum});
  gm.backward(loss);
  io::Checkpoint checkpoint;
  checkpoint.each([](const std::string& name, const auto& value) { std::cout << name << value << "\n"; });
  TrainingState state({{"net", net}, {"opt", opt}}, {});
  data::DataLoader loader(data::GeneratedDigits({.size = 8}), {.batch_size = 4});
  const data::Transform transform = data::Compose(
      {data::ToTensor(), data::Normalize({.mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}}),
       data::RandomErasing({.value = {0.5}})});
  const data::Batch one{.input = triplet_margin_with_distance_loss(x, x, x, {.margin = 2})};
  return dist::launcher({.nproc_per_node = 4},
                        [] { dist::init_process_group({.timeout = std::chrono::seconds(60)}); });
}
