// Normalizations against PyTorch's values (inputs: norm.py; tolerances: golden_ops.h). x: input, weight,
// bias, running mean and variance.
#include "gradus/tensor/ops/copy.h"
#include "gradus/tests/golden/ops/golden_ops.h"

namespace gradus::golden {
namespace {

// A constant: autograd does not follow it.
Tensor without_history(const Tensor& x) { return raw::contiguous(detach(x)); }

GoldenOp in_training(const std::string& name) {
  return {"batch_norm/" + name, [](X x) {
            return batch_norm(x[0], x.size() > 1 ? x[1] : Tensor(), x.size() > 1 ? x[2] : Tensor(), {}, {},
                              {.training = true});
          }};
}
GoldenOp in_evaluation(const std::string& name) {
  return {"batch_norm/eval_" + name, [](X x) {
            const Tensor mean = without_history(x[3]), var = abs(without_history(x[4])) + 0.5;
            return batch_norm(x[0], x[1], x[2], mean, var, {.eps = 0.01});
          }};
}
GoldenOp instances_in_evaluation(const std::string& name) {
  return {"instance_norm/eval_" + name, [](X x) {
            const Tensor mean = without_history(x[3]), var = abs(without_history(x[4])) + 0.5;
            return instance_norm(x[0], mean, var, x[1], x[2], {.use_input_stats = false, .eps = 0.01});
          }};
}

// x[1] and x[2] give the running statistics, whose values after the call are results too.
template <class Op> GoldenOp with_momentum(const std::string& op, const std::string& momentum, Op f) {
  return {op + "/momentum_" + momentum, [f, a = std::stod(momentum)](X x) {
            const Tensor mean = raw::clone(without_history(x[1])), var = square(without_history(x[2])) + 0.5;
            const Tensor y = f(x[0], mean, var, a);
            return std::vector<Tensor>{y, mean, var};
          }};
}
GoldenOp batch_norm_with(const std::string& momentum) {
  return with_momentum("batch_norm", momentum,
                       [](const Tensor& x, const Tensor& m, const Tensor& v, double a) {
                         return batch_norm(x, {}, {}, m, v, {.training = true, .momentum = a});
                       });
}
GoldenOp instance_norm_with(const std::string& momentum) {
  return with_momentum("instance_norm", momentum,
                       [](const Tensor& x, const Tensor& m, const Tensor& v, double a) {
                         return instance_norm(x, m, v, {}, {}, {.momentum = a});
                       });
}

GoldenOp instances(const std::string& name) {
  return {"instance_norm/" + name, [](X x) { return instance_norm(x[0], {}, {}, x[1], x[2]); }};
}
GoldenOp groups(const std::string& name, int64_t n) {
  return {"group_norm/" + name, [n](X x) { return group_norm(x[0], n, x[1], x[2], 0.01); }};
}
GoldenOp layers(const std::string& name) {
  return {"layer_norm/" + name, [](X x) { return layer_norm(x[0], x[1].shape(), x[1], x[2], 0.01); }};
}
GoldenOp local_response(const std::string& name, int64_t size, const LocalResponseNormFuncOptions& o) {
  return {"local_response_norm/" + name, [=](X x) { return local_response_norm(x[0], size, o); }};
}

}  // namespace

static const bool added = add_golden_ops(
    "norm",
    {
        in_training("train_2d"),
        in_training("train_3d"),
        in_training("train_4d"),
        in_training("train_5d"),
        in_training("train_one_position"),
        in_training("plain"),
        in_training("large"),
        {"batch_norm/large_mean",
         [](X x) { return batch_norm(x[0], x[1], x[2], {}, {}, {.training = true}); }},
        in_evaluation("2d"),
        in_evaluation("3d"),
        in_evaluation("4d"),
        in_evaluation("5d"),
        in_evaluation("one_position"),
        batch_norm_with("0.1"),
        batch_norm_with("0.75"),
        batch_norm_with("0.0"),
        batch_norm_with("1.0"),
        instance_norm_with("0.1"),
        instance_norm_with("0.75"),
        instance_norm_with("0.0"),
        instance_norm_with("1.0"),
        instances("1d"),
        instances("2d"),
        instances("3d"),
        {"instance_norm/two_positions",
         [](X x) { return instance_norm(x[0], {}, {}, x[1], x[2], {.eps = 0.1}); }},
        instances_in_evaluation("1d"),
        instances_in_evaluation("2d"),
        instances_in_evaluation("3d"),
        {"instance_norm/plain", [](X x) { return instance_norm(x[0], {}, {}, {}, {}, {.eps = 0.1}); }},
        {"instance_norm/large_mean", [](X x) { return instance_norm(x[0]); }},
        groups("2d", 2),
        groups("3d", 3),
        groups("4d", 2),
        groups("5d", 4),
        groups("one_group", 1),
        groups("one_element", 2),
        groups("wide", 16),
        groups("empty", 2),
        {"group_norm/plain", [](X x) { return group_norm(x[0], 2); }},
        {"group_norm/large_mean", [](X x) { return group_norm(x[0], 3); }},
        layers("rows"),
        layers("tokens"),
        layers("two_dims"),
        layers("images"),
        layers("whole"),
        layers("one_element"),
        layers("long"),
        layers("empty"),
        {"layer_norm/plain", [](X x) { return layer_norm(x[0], {5}); }},
        {"layer_norm/weight_alone", [](X x) { return layer_norm(x[0], {5}, x[1]); }},
        {"layer_norm/large_mean", [](X x) { return layer_norm(x[0], {60}); }},
        {"rms_norm/rows", [](X x) { return rms_norm(x[0], {7}, x[1], 0.01); }},
        {"rms_norm/two_dims",
         [](X x) {
           return rms_norm(x[0], {4, 5}, x[1], 0.01);
         }},
        {"rms_norm/plain", [](X x) { return rms_norm(x[0], {150}, {}, 1e-6); }},
        local_response("1", 1, {}),
        local_response("2", 2, {.alpha = 0.5}),
        local_response("3", 3, {.alpha = 0.5, .beta = 0.5}),
        local_response("5", 5, {.alpha = 1.0, .beta = 0.75, .k = 2.0}),
        local_response("9", 9, {.alpha = 0.1}),
        local_response("3d", 3, {.alpha = 0.5}),
        local_response("5d", 2, {.alpha = 0.5}),
    });

}  // namespace gradus::golden
