// Losses and distances against PyTorch's values (inputs: loss.py; tolerances: golden_ops.h).
#include <limits>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tests/golden/ops/golden_ops.h"

namespace gradus::golden {
namespace {

std::vector<GoldenOp> cases;

// A case of three results: f by mean, by sum and without reduction.
template <class F> void add(const std::string& name, F f) {
  cases.push_back(
      {name, [f](X x) {
         return std::vector<Tensor>{f(x, Reduction::kMean), f(x, Reduction::kSum), f(x, Reduction::kNone)};
       }});
}

// The same loss on a matrix, a scalar and an empty tensor.
template <class F> void add_points(const std::string& name, F f) {
  for (const char* kind : {"matrix", "scalar", "empty"}) add(name + "/" + kind, f);
}

// t in the dtype of `like`, without autograd.
Tensor constant(const Tensor& t, const Tensor& like) { return raw::to(t, like.dtype()); }
// A bool mask as labels of -1 and 1.
Tensor signs(const Tensor& mask, const Tensor& like) { return constant(mask, like) * 2 - 1; }

void add_pointwise() {
  add_points("mse_loss", [](X x, Reduction r) { return mse_loss(x[0], x[1], {.reduction = r}); });
  add_points("l1_loss", [](X x, Reduction r) { return l1_loss(x[0], x[1], {.reduction = r}); });
  for (const char* beta : {"1.0", "0.5", "4.0", "0.0"})
    add_points(std::string("smooth_l1_loss/") + beta, [b = std::stod(beta)](X x, Reduction r) {
      return smooth_l1_loss(x[0], x[1], {.reduction = r, .beta = b});
    });
  for (const char* delta : {"1.0", "0.5", "4.0"})
    add_points(std::string("huber_loss/") + delta, [d = std::stod(delta)](X x, Reduction r) {
      return huber_loss(x[0], x[1], {.reduction = r, .delta = d});
    });
  add_points("kl_div", [](X x, Reduction r) { return kl_div(x[0], x[1], {.reduction = r}); });
  add_points("kl_div/log_target",
             [](X x, Reduction r) { return kl_div(x[0], x[1], {.reduction = r, .log_target = true}); });
  cases.push_back(
      {"kl_div/batchmean", [](X x) { return kl_div(x[0], x[1], {.reduction = Reduction::kBatchMean}); }});
  cases.push_back({"kl_div/batchmean_log", [](X x) {
                     return kl_div(x[0], x[1], {.reduction = Reduction::kBatchMean, .log_target = true});
                   }});
  add("kl_div/no_target",
      [](X x, Reduction r) { return kl_div(x[0], constant(x[1], x[0]) * 0.5, {.reduction = r}); });
  add("soft_margin_loss",
      [](X x, Reduction r) { return soft_margin_loss(x[0], signs(x[1], x[0]), {.reduction = r}); });
}

void add_likelihoods() {
  add_points("binary_cross_entropy",
             [](X x, Reduction r) { return binary_cross_entropy(x[0], x[1], {.reduction = r}); });
  add("binary_cross_entropy/weight", [](X x, Reduction r) {
    return binary_cross_entropy(x[0], x[1], {.reduction = r, .weight = constant(x[2], x[0])});
  });
  // x and target are masks: exactly 0 and 1, without gradients.
  add("binary_cross_entropy/ends", [](X x, Reduction r) {
    return binary_cross_entropy(raw::to(x[0], DType::kF64), raw::to(x[1], DType::kF64), {.reduction = r});
  });
  const std::string logits = "binary_cross_entropy_with_logits";
  add_points(logits,
             [](X x, Reduction r) { return binary_cross_entropy_with_logits(x[0], x[1], {.reduction = r}); });
  add(logits + "/weight", [](X x, Reduction r) {
    return binary_cross_entropy_with_logits(x[0], x[1], {.reduction = r, .weight = constant(x[2], x[0])});
  });
  add(logits + "/pos_weight", [](X x, Reduction r) {
    return binary_cross_entropy_with_logits(x[0], x[1], {.reduction = r, .pos_weight = constant(x[2], x[0])});
  });
  add(logits + "/both", [](X x, Reduction r) {
    return binary_cross_entropy_with_logits(
        x[0], x[1], {.reduction = r, .weight = constant(x[2], x[0]), .pos_weight = constant(x[3], x[0])});
  });
  for (bool full : {false, true}) {
    const std::string kind = full ? "full" : "plain";
    for (bool log_input : {true, false})
      add_points("poisson_nll_loss/" + kind + (log_input ? "_log" : "_rate"), [=](X x, Reduction r) {
        return poisson_nll_loss(x[0], x[1], {.reduction = r, .log_input = log_input, .full = full});
      });
    for (const char* variant : {"", "_rows", "_kept"})
      add("gaussian_nll_loss/" + kind + variant, [=](X x, Reduction r) {
        return gaussian_nll_loss(x[0], x[1], x[2], {.reduction = r, .full = full});
      });
  }
  add("gaussian_nll_loss/least",
      [](X x, Reduction r) { return gaussian_nll_loss(x[0], x[1], x[2], {.reduction = r, .eps = 0.5}); });
}

void add_margins() {
  for (const char* margin : {"1.0", "0.5"})
    add(std::string("hinge_embedding_loss/") + margin, [m = std::stod(margin)](X x, Reduction r) {
      return hinge_embedding_loss(x[0], signs(x[1], x[0]), {.margin = m, .reduction = r});
    });
  for (const char* margin : {"0.0", "0.5"})
    add(std::string("margin_ranking_loss/") + margin, [m = std::stod(margin)](X x, Reduction r) {
      return margin_ranking_loss(x[0], x[1], signs(x[2], x[0]), {.margin = m, .reduction = r});
    });
  for (const char* margin : {"0.0", "-0.5"})
    add(std::string("cosine_embedding_loss/") + margin, [m = std::stod(margin)](X x, Reduction r) {
      return cosine_embedding_loss(x[0], x[1], signs(x[2], x[0]), {.margin = m, .reduction = r});
    });
  add("cosine_embedding_loss/one", [](X x, Reduction r) {
    return cosine_embedding_loss(x[0], x[1], signs(x[2], x[0]), {.reduction = r});
  });
  for (bool swap : {false, true}) {
    const std::string s = swap ? "_swap" : "";
    for (const char* p : {"1.0", "2.0", "3.0"})
      add(std::string("triplet_margin_loss/") + p + s, [swap, p = std::stod(p)](X x, Reduction r) {
        return triplet_margin_loss(x[0], x[1], x[2], {.margin = 0.75, .p = p, .swap = swap, .reduction = r});
      });
    add("triplet_margin_with_distance_loss/l1" + s, [swap](X x, Reduction r) {
      const auto l1 = [](const Tensor& a, const Tensor& b) { return sum(abs(a - b), -1); };
      return triplet_margin_with_distance_loss(
          x[0], x[1], x[2], {.distance = l1, .margin = 0.75, .swap = swap, .reduction = r});
    });
  }
  for (bool weighted : {false, true}) {
    const std::string w = weighted ? "_weight" : "";
    const auto weight = [=](X x) { return weighted ? constant(x[2], x[0]) : Tensor(); };
    add("multilabel_soft_margin_loss/rows" + w, [=](X x, Reduction r) {
      return multilabel_soft_margin_loss(x[0], x[1], {.weight = weight(x), .reduction = r});
    });
    for (int64_t p : {1, 2})
      add("multi_margin_loss/" + std::to_string(p) + w, [=](X x, Reduction r) {
        return multi_margin_loss(x[0], x[1], {.p = p, .margin = 0.75, .weight = weight(x), .reduction = r});
      });
  }
  add("multi_margin_loss/one",
      [](X x, Reduction r) { return multi_margin_loss(x[0], x[1], {.reduction = r}); });
}

void add_classes() {
  for (const std::string kind : {"rows", "one", "image"})
    for (bool weighted : {false, true}) {
      const std::string name = kind + (weighted ? "_weight" : "");
      const auto weight = [=](X x) { return weighted ? constant(x[2], x[0]) / 2 : Tensor(); };
      for (bool smooth : {false, true}) {
        const double smoothing = smooth ? 0.25 : 0;
        for (bool ignore : {false, true}) {
          if (ignore && kind == "one") continue;
          const int64_t ignored = ignore ? 2 : -100;
          add("cross_entropy/" + name + (ignore ? "_ignore" : "") + (smooth ? "_smooth" : ""),
              [=](X x, Reduction r) {
                return cross_entropy(x[0], x[1],
                                     {.reduction = r,
                                      .weight = weight(x),
                                      .ignore_index = ignored,
                                      .label_smoothing = smoothing});
              });
          if (!smooth)
            add("nll_loss/" + name + (ignore ? "_ignore" : ""), [=](X x, Reduction r) {
              return nll_loss(x[0], x[1], {.reduction = r, .weight = weight(x), .ignore_index = ignored});
            });
        }
        add("cross_entropy/probabilities_" + name + (smooth ? "_smooth" : ""), [=](X x, Reduction r) {
          return cross_entropy(x[0], x[1],
                               {.reduction = r, .weight = weight(x), .label_smoothing = smoothing});
        });
      }
    }
  add("cross_entropy/empty", [](X x, Reduction r) { return cross_entropy(x[0], x[1], {.reduction = r}); });
  add("nll_loss/empty", [](X x, Reduction r) { return nll_loss(x[0], x[1], {.reduction = r}); });
  add("cross_entropy/all_ignored",
      [](X x, Reduction r) { return cross_entropy(x[0], x[1] * 0 - 100, {.reduction = r}); });
  cases.push_back({"cross_entropy/far_apart",
                   [](X x) { return cross_entropy(x[0] * 100, x[1], {.reduction = Reduction::kNone}); }});
}

void add_distances() {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const auto& [name, p] :
       {std::pair<const char*, double>{"1.0", 1}, {"2.0", 2}, {"3.0", 3}, {"inf", infinity}})
    cases.push_back({std::string("pairwise_distance/") + name,
                     [p = p](X x) { return pairwise_distance(x[0], x[1], {.p = p}); }});
  cases.push_back(
      {"pairwise_distance/keepdim", [](X x) { return pairwise_distance(x[0], x[1], {.keepdim = true}); }});
  cases.push_back({"cosine_similarity/rows", [](X x) { return cosine_similarity(x[0], x[1]); }});
  cases.push_back({"cosine_similarity/last", [](X x) { return cosine_similarity(x[0], x[1], {.dim = -1}); }});
  cases.push_back(
      {"cosine_similarity/broadcast", [](X x) { return cosine_similarity(x[0], x[1], {.dim = -1}); }});
  cases.push_back({"cosine_similarity/first", [](X x) { return cosine_similarity(x[0], x[1], {.dim = 0}); }});
}

}  // namespace

static const bool added = [] {
  add_pointwise();
  add_likelihoods();
  add_margins();
  add_classes();
  add_distances();
  return add_golden_ops("loss", cases);
}();

}  // namespace gradus::golden
