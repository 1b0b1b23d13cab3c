// Every integer that an op takes, at the numbers that overflow: each call gives a typed error or a result,
// soon, and asks for no memory that it does not get. Meant for a run under UndefinedBehaviorSanitizer too.
#include <sys/resource.h>

#include <chrono>
#include <exception>
#include <functional>
#include <limits>

#include <gmock/gmock.h>

#include "gradus/autograd/indexing.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/allocator.h"
#include "gradus/tests/ops/public_ops.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max(), kMin = std::numeric_limits<int64_t>::min();
const int64_t kNumbers[] = {kMax, kMax - 1, int64_t{1} << 62,    int64_t{1} << 40, 1,
                            0,    -1,       -(int64_t{1} << 40), kMin + 1,         kMin};

struct Call {
  const char* op;
  std::function<void(int64_t n)> run;
};

Tensor vector() { return random_tensor({3}); }
Tensor matrix() { return random_tensor({2, 3}); }
Tensor signal() { return random_tensor({1, 4, 6}); }
Tensor image() { return random_tensor({1, 4, 6, 6}); }
Tensor volume() { return random_tensor({1, 4, 4, 4, 4}); }
Tensor numbers(std::vector<int64_t> v) {
  const Shape shape{int64_t(v.size())};
  return tensor(v, shape);
}

std::vector<Call> calls() {
  return {
      // Creation and random numbers.
      {"zeros", [](int64_t n) { zeros({n}); }},
      {"zeros",
       [](int64_t n) {
         zeros({n, 2, n});
       }},
      {"ones",
       [](int64_t n) {
         ones({2, n});
       }},
      {"full", [](int64_t n) { full({n}, 1); }},
      {"empty",
       [](int64_t n) {
         empty({n, n});
       }},
      {"empty",
       [](int64_t n) {
         empty({0, n, n});
       }},
      {"arange", [](int64_t n) { arange(n); }},
      {"arange", [](int64_t n) { arange(n, 5); }},
      {"arange", [](int64_t n) { arange(0, 5, n); }},
      {"arange_from", [](int64_t n) { arange_from(0, double(n), 1, {}); }},
      {"linspace", [](int64_t n) { linspace(0, 1, n); }},
      {"logspace", [](int64_t n) { logspace(0, 1, n); }},
      {"eye", [](int64_t n) { eye(n); }},
      {"eye", [](int64_t n) { eye(2, n); }},
      {"eye", [](int64_t n) { eye(3, 4, n, {}); }},
      {"tril_indices", [](int64_t n) { tril_indices(n, n); }},
      {"tril_indices", [](int64_t n) { tril_indices(n, 2); }},
      {"tril_indices", [](int64_t n) { tril_indices(2, n); }},
      {"tril_indices", [](int64_t n) { tril_indices(3, 4, n); }},
      {"tril_indices", [](int64_t n) { tril_indices(int64_t{1} << 40, 4, n); }},
      {"triu_indices", [](int64_t n) { triu_indices(n, n); }},
      {"triu_indices", [](int64_t n) { triu_indices(n, 0); }},
      {"triu_indices", [](int64_t n) { triu_indices(3, 4, n); }},
      {"rand", [](int64_t n) { rand({n}); }},
      {"randn",
       [](int64_t n) {
         randn({n, 2});
       }},
      {"randint", [](int64_t n) { randint(n, {3}); }},
      {"randint", [](int64_t n) { randint(n, 5, {3}); }},
      {"randint", [](int64_t n) { randint(-5, n, {3}); }},
      {"randint", [](int64_t n) { randint(5, {n}); }},
      {"randint_like", [](int64_t n) { randint_like(vector(), -1, n); }},
      {"randperm", [](int64_t n) { randperm(n); }},
      {"normal", [](int64_t n) { normal(0, 1, {n}); }},
      {"multinomial", [](int64_t n) { multinomial(full({3}, 1), n); }},
      {"multinomial", [](int64_t n) { multinomial(full({3}, 1), n, {.replacement = true}); }},
      // Views.
      {"reshape", [](int64_t n) { reshape(matrix(), {n}); }},
      {"reshape",
       [](int64_t n) {
         reshape(matrix(), {n, n, -1});
       }},
      {"view",
       [](int64_t n) {
         view(matrix(), {-1, n});
       }},
      {"unflatten",
       [](int64_t n) {
         unflatten(matrix(), 1, {n, n});
       }},
      {"unflatten",
       [](int64_t n) {
         unflatten(matrix(), 1, {n, -1});
       }},
      {"unflatten", [](int64_t n) { unflatten(matrix(), n, {3}); }},
      {"flatten", [](int64_t n) { flatten(matrix(), n); }},
      {"flatten", [](int64_t n) { flatten(matrix(), 0, n); }},
      {"permute",
       [](int64_t n) {
         permute(matrix(), {0, n});
       }},
      {"transpose", [](int64_t n) { transpose(matrix(), 0, n); }},
      {"swapaxes", [](int64_t n) { swapaxes(matrix(), n, n); }},
      {"swapdims", [](int64_t n) { swapdims(matrix(), n, 0); }},
      {"movedim", [](int64_t n) { movedim(matrix(), n, 0); }},
      {"movedim",
       [](int64_t n) {
         movedim(matrix(), {0, 1}, {n, 0});
       }},
      {"moveaxis", [](int64_t n) { moveaxis(matrix(), 0, n); }},
      {"expand",
       [](int64_t n) {
         expand(random_tensor({1, 3}), {n, 3});
       }},
      {"expand",
       [](int64_t n) {
         expand(random_tensor({1}), {n, n});
       }},
      {"broadcast_to", [](int64_t n) { broadcast_to(scalar(1), {n}); }},
      {"sum_to", [](int64_t n) { sum_to(matrix(), {n}); }},
      {"squeeze", [](int64_t n) { squeeze(matrix(), n); }},
      {"squeeze",
       [](int64_t n) {
         squeeze(matrix(), Dims{0, n});
       }},
      {"unsqueeze", [](int64_t n) { unsqueeze(matrix(), n); }},
      {"narrow", [](int64_t n) { narrow(matrix(), 1, n, 1); }},
      {"narrow", [](int64_t n) { narrow(matrix(), 1, 1, n); }},
      {"narrow", [](int64_t n) { narrow(matrix(), 1, n, n); }},
      {"narrow", [](int64_t n) { narrow(matrix(), n, 0, 1); }},
      {"slice", [](int64_t n) { slice(matrix(), 1, n, kMax); }},
      {"slice", [](int64_t n) { slice(matrix(), 1, kMin, n); }},
      {"slice", [](int64_t n) { slice(matrix(), 1, 0, 3, n); }},
      {"slice", [](int64_t n) { slice(matrix(), n, 0, 3); }},
      {"slice_backward",
       [](int64_t n) {
         slice_backward(matrix(), {2, 5}, 1, n);
       }},
      {"slice_backward",
       [](int64_t n) {
         slice_backward(matrix(), {2, 5}, 1, 0, n);
       }},
      {"slice_backward",
       [](int64_t n) {
         slice_backward(matrix(), {2, n}, 1, 0, 2);
       }},
      {"select", [](int64_t n) { select(matrix(), 1, n); }},
      {"select", [](int64_t n) { select(matrix(), n, 0); }},
      {"diagonal", [](int64_t n) { diagonal(matrix(), {.offset = n}); }},
      {"diagonal", [](int64_t n) { diagonal(matrix(), {.dim1 = n}); }},
      {"diagonal_backward",
       [](int64_t n) {
         diagonal_backward(vector(), {3, n});
       }},
      {"diagonal_backward",
       [](int64_t n) {
         diagonal_backward(vector(), {3, 3}, {.offset = n});
       }},
      {"unfold_dim", [](int64_t n) { unfold_dim(vector(), 0, n, 1); }},
      {"unfold_dim", [](int64_t n) { unfold_dim(vector(), 0, 2, n); }},
      {"unfold_dim", [](int64_t n) { unfold_dim(vector(), 0, 0, n); }},
      {"unfold_dim_backward", [](int64_t n) { unfold_dim_backward(matrix(), {n}, 0, 3, 1); }},
      {"unfold_dim_backward", [](int64_t n) { unfold_dim_backward(matrix(), {4}, 0, n, n); }},
      {"as_strided", [](int64_t n) { as_strided(vector(), {n}, {1}); }},
      {"as_strided", [](int64_t n) { as_strided(vector(), {2}, {n}); }},
      {"as_strided",
       [](int64_t n) {
         as_strided(vector(), {2, 2}, {n, n});
       }},
      {"as_strided", [](int64_t n) { as_strided(vector(), {1}, {n}); }},
      {"as_strided", [](int64_t n) { as_strided(vector(), {1}, {1}, n); }},
      {"as_strided", [](int64_t n) { as_strided(vector(), {0}, {1}, n); }},
      {"index", [](int64_t n) { index(matrix(), {numbers({n})}); }},
      {"size", [](int64_t n) { matrix().size(n); }},
      {"index", [](int64_t n) { const Tensor y = matrix()[n]; }},
      {"index", [](int64_t n) { const Tensor y = matrix()[{Slice(n, n)}]; }},
      {"index", [](int64_t n) { const Tensor y = matrix()[{Slice(0, n, 2)}]; }},
      // What reorders and repeats.
      {"flip", [](int64_t n) { flip(matrix(), {n}); }},
      {"roll", [](int64_t n) { roll(matrix(), {n}); }},
      {"roll",
       [](int64_t n) {
         roll(matrix(), {n, n}, {0, 0});
       }},
      {"roll", [](int64_t n) { roll(matrix(), {1}, {n}); }},
      {"rot90", [](int64_t n) { rot90(matrix(), n); }},
      {"rot90",
       [](int64_t n) {
         rot90(matrix(), 1, {0, n});
       }},
      {"tril", [](int64_t n) { tril(matrix(), n); }},
      {"triu", [](int64_t n) { triu(matrix(), n); }},
      {"diag_embed", [](int64_t n) { diag_embed(vector(), {.offset = n}); }},
      {"diag_embed", [](int64_t n) { diag_embed(vector(), {.dim1 = n}); }},
      {"diag", [](int64_t n) { diag(vector(), n); }},
      {"diag", [](int64_t n) { diag(matrix(), n); }},
      {"repeat", [](int64_t n) { repeat(vector(), {n}); }},
      {"repeat",
       [](int64_t n) {
         repeat(matrix(), {n, n, n});
       }},
      {"repeat",
       [](int64_t n) {
         repeat(empty({2, 0}), {n, n});
       }},
      {"repeat",
       [](int64_t n) {
         repeat(empty({2, 2, 2, 2, 2, 2, 2, 2}), {2, 2, 2, 2, 2, 2, 2, n});
       }},
      {"tile", [](int64_t n) { tile(matrix(), {n}); }},
      {"repeat_interleave", [](int64_t n) { repeat_interleave(matrix(), n); }},
      {"repeat_interleave", [](int64_t n) { repeat_interleave(matrix(), n, 1); }},
      {"repeat_interleave", [](int64_t n) { repeat_interleave(matrix(), 2, n); }},
      {"repeat_interleave",
       [](int64_t n) {
         repeat_interleave(vector(), numbers({n, n, n}), 0);
       }},
      {"repeat_interleave",
       [](int64_t n) {
         repeat_interleave(vector(), numbers({n, 2, kMax}), 0);
       }},
      {"repeat_interleave",
       [](int64_t n) {
         repeat_interleave(vector(), numbers({n, n, 2}), 0, n);
       }},
      {"repeat_interleave",
       [](int64_t n) {
         repeat_interleave(vector(), numbers({1, 1, 1}), 0, n);
       }},
      {"combinations", [](int64_t n) { combinations(vector(), n); }},
      {"combinations", [](int64_t n) { combinations(vector(), n, {.with_replacement = true}); }},
      {"combinations",
       [](int64_t n) { combinations(narrow(vector(), 0, 0, 1), n, {.with_replacement = true}); }},
      // Joining and cutting.
      {"cat",
       [](int64_t n) {
         cat({matrix(), matrix()}, n);
       }},
      {"stack",
       [](int64_t n) {
         stack({matrix(), matrix()}, n);
       }},
      {"split", [](int64_t n) { split(vector(), n); }},
      {"split", [](int64_t n) { split(vector(), 1, n); }},
      {"split",
       [](int64_t n) {
         split(vector(), {n, 1});
       }},
      {"split", [](int64_t n) { split(expand(scalar(1), {int64_t{1} << 40}), n); }},
      {"chunk", [](int64_t n) { chunk(vector(), n); }},
      {"tensor_split", [](int64_t n) { tensor_split(vector(), n); }},
      {"tensor_split",
       [](int64_t n) {
         tensor_split(vector(), {n, 1, n});
       }},
      {"tensor_split", [](int64_t n) { tensor_split(vector(), 2, n); }},
      {"hsplit", [](int64_t n) { hsplit(matrix(), n); }},
      {"hsplit", [](int64_t n) { hsplit(matrix(), std::vector<int64_t>{n}); }},
      {"vsplit",
       [](int64_t n) {
         vsplit(empty({0, 3}), n);
       }},
      {"dsplit", [](int64_t n) { dsplit(signal(), n); }},
      {"unbind", [](int64_t n) { unbind(matrix(), n); }},
      {"unbind", [](int64_t n) { unbind(expand(scalar(1), {n})); }},
      {"one_hot",
       [](int64_t n) {
         one_hot(numbers({0, 1}), n);
       }},
      {"one_hot", [](int64_t n) { one_hot(numbers({n})); }},
      // Indices.
      {"index_select", [](int64_t n) { index_select(matrix(), n, numbers({0})); }},
      {"index_select", [](int64_t n) { index_select(matrix(), 0, numbers({n})); }},
      {"index_select_backward",
       [](int64_t n) {
         index_select_backward(matrix(), {n, 3}, 0, numbers({0, 1}));
       }},
      {"index_select_backward",
       [](int64_t n) {
         index_select_backward(matrix(), {2, 3}, n, numbers({0, n}));
       }},
      {"index_add", [](int64_t n) { index_add(matrix(), n, numbers({0}), matrix()); }},
      {"index_add",
       [](int64_t n) {
         index_add(matrix(), 0, numbers({n, 0}), matrix());
       }},
      {"index_copy",
       [](int64_t n) {
         index_copy(matrix(), 0, numbers({n, 0}), matrix());
       }},
      {"index_copy",
       [](int64_t n) {
         index_copy(matrix(), n, numbers({0, 0}), matrix());
       }},
      {"index_fill", [](int64_t n) { index_fill(matrix(), n, numbers({0}), 1); }},
      {"index_fill", [](int64_t n) { index_fill(matrix(), 0, numbers({n}), 1); }},
      {"select_scatter", [](int64_t n) { select_scatter(matrix(), vector(), n, 0); }},
      {"select_scatter", [](int64_t n) { select_scatter(matrix(), vector(), 0, n); }},
      {"slice_scatter", [](int64_t n) { slice_scatter(matrix(), matrix(), 0, n, kMax); }},
      {"slice_scatter", [](int64_t n) { slice_scatter(matrix(), matrix(), 0, 0, n, n); }},
      {"diagonal_scatter", [](int64_t n) { diagonal_scatter(matrix(), vector(), {.offset = n}); }},
      {"take", [](int64_t n) { take(matrix(), numbers({n})); }},
      {"put", [](int64_t n) { put(matrix(), numbers({n}), scalar(1)); }},
      {"gather",
       [](int64_t n) {
         gather(matrix(), n, tensor(std::vector<int64_t>{0}, {1, 1}));
       }},
      {"gather",
       [](int64_t n) {
         gather(matrix(), 1, tensor(std::vector<int64_t>{n}, {1, 1}));
       }},
      {"take_along_dim",
       [](int64_t n) {
         take_along_dim(matrix(), tensor(std::vector<int64_t>{0}, {1, 1}), n);
       }},
      {"gather_backward",
       [](int64_t n) {
         gather_backward(scalar(1), {n, 3}, 0, tensor(std::vector<int64_t>{n}, {1, 1}));
       }},
      {"scatter",
       [](int64_t n) {
         scatter(matrix(), n, tensor(std::vector<int64_t>{0}, {1, 1}), 1.0);
       }},
      {"scatter",
       [](int64_t n) {
         scatter(matrix(), 0, tensor(std::vector<int64_t>{n}, {1, 1}), 1.0);
       }},
      {"scatter_add",
       [](int64_t n) {
         scatter_add(vector(), n, numbers({0, 1, 2}), vector());
       }},
      {"scatter_add",
       [](int64_t n) {
         scatter_add(vector(), 0, numbers({0, n, 2}), vector());
       }},
      {"scatter_reduce",
       [](int64_t n) {
         scatter_reduce(vector(), n, numbers({0, 1, n}), vector(), ScatterReduce::kSum);
       }},
      {"masked_scatter_backward", [](int64_t n) { masked_scatter_backward(vector(), gt(vector(), 0), {n}); }},
      // Reductions and what goes along a dim.
      {"sum", [](int64_t n) { sum(matrix(), {n}); }},
      {"mean", [](int64_t n) { mean(matrix(), {n}); }},
      {"prod", [](int64_t n) { prod(matrix(), {n}); }},
      {"amax", [](int64_t n) { amax(matrix(), {n}); }},
      {"amin",
       [](int64_t n) {
         amin(matrix(), {n, 0});
       }},
      {"max", [](int64_t n) { max(matrix(), n); }},
      {"min", [](int64_t n) { min(matrix(), n); }},
      {"argmax", [](int64_t n) { argmax(matrix(), n); }},
      {"argmin", [](int64_t n) { argmin(matrix(), n); }},
      {"aminmax", [](int64_t n) { aminmax(matrix(), n); }},
      {"var", [](int64_t n) { var(matrix(), {n}); }},
      {"var", [](int64_t n) { var(matrix(), {0}, {.correction = n}); }},
      {"std", [](int64_t n) { gradus::std(matrix(), {0}, {.correction = n}); }},
      {"var_mean", [](int64_t n) { var_mean(matrix(), {1}, {.correction = n}); }},
      {"std_mean", [](int64_t n) { std_mean(matrix(), {n}); }},
      {"norm", [](int64_t n) { norm(matrix(), {n}); }},
      {"vector_norm", [](int64_t n) { vector_norm(matrix(), 2, {n}); }},
      {"nansum", [](int64_t n) { nansum(matrix(), {n}); }},
      {"nanmean", [](int64_t n) { nanmean(matrix(), {n}); }},
      {"count_nonzero", [](int64_t n) { count_nonzero(matrix(), {n}); }},
      {"logsumexp", [](int64_t n) { logsumexp(matrix(), {n}); }},
      {"any", [](int64_t n) { any(matrix(), {n}); }},
      {"all", [](int64_t n) { all(matrix(), {n}); }},
      {"cumsum", [](int64_t n) { cumsum(matrix(), n); }},
      {"cumprod", [](int64_t n) { cumprod(matrix(), n); }},
      {"logcumsumexp", [](int64_t n) { logcumsumexp(matrix(), n); }},
      {"cummax", [](int64_t n) { cummax(matrix(), n); }},
      {"cummin", [](int64_t n) { cummin(matrix(), n); }},
      {"linear_recurrence", [](int64_t n) { linear_recurrence(matrix(), matrix(), n); }},
      {"diff", [](int64_t n) { diff(matrix(), {.n = n}); }},
      {"diff", [](int64_t n) { diff(matrix(), {.dim = n}); }},
      {"softmax", [](int64_t n) { softmax(matrix(), n); }},
      {"log_softmax", [](int64_t n) { log_softmax(matrix(), n); }},
      {"softmin", [](int64_t n) { softmin(matrix(), n); }},
      {"gumbel_softmax", [](int64_t n) { gumbel_softmax(matrix(), {.dim = n}); }},
      {"softmax_backward", [](int64_t n) { softmax_backward(matrix(), matrix(), n); }},
      {"log_softmax_backward", [](int64_t n) { log_softmax_backward(matrix(), matrix(), n); }},
      {"glu", [](int64_t n) { glu(signal(), n); }},
      {"cosine_similarity", [](int64_t n) { cosine_similarity(matrix(), matrix(), {.dim = n}); }},
      {"normalize", [](int64_t n) { normalize(matrix(), {.dim = n}); }},
      // Sorting and counting.
      {"sort", [](int64_t n) { sort(matrix(), {.dim = n}); }},
      {"argsort", [](int64_t n) { argsort(matrix(), {.dim = n}); }},
      {"topk", [](int64_t n) { topk(matrix(), n); }},
      {"topk", [](int64_t n) { topk(matrix(), 1, {.dim = n}); }},
      {"kthvalue", [](int64_t n) { kthvalue(matrix(), n); }},
      {"kthvalue", [](int64_t n) { kthvalue(matrix(), 1, {.dim = n}); }},
      {"median", [](int64_t n) { median(matrix(), {.dim = n}); }},
      {"nanmedian", [](int64_t n) { nanmedian(matrix(), {.dim = n}); }},
      {"mode", [](int64_t n) { mode(matrix(), {.dim = n}); }},
      {"unique", [](int64_t n) { unique(matrix(), {.dim = n}); }},
      {"unique_consecutive", [](int64_t n) { unique_consecutive(matrix(), {.dim = n}); }},
      {"bincount", [](int64_t n) { bincount(numbers({n})); }},
      {"bincount", [](int64_t n) { bincount(numbers({1}), {.minlength = n}); }},
      {"histc", [](int64_t n) { histc(vector(), {.bins = n}); }},
      // Matrices.
      {"tensordot", [](int64_t n) { tensordot(matrix(), matrix(), n); }},
      {"tensordot", [](int64_t n) { tensordot(matrix(), matrix(), {n}, {n}); }},
      {"matrix_power",
       [](int64_t n) {
         matrix_power(full({2, 2}, 0.5), n);
       }},
      {"cross", [](int64_t n) { cross(matrix(), matrix(), n); }},
      // Functions, losses, normalizations.
      {"polygamma", [](int64_t n) { polygamma(n, full({2}, 1.5)); }},
      {"round", [](int64_t n) { round(vector(), n); }},
      {"cross_entropy",
       [](int64_t n) {
         cross_entropy(matrix(), numbers({0, 1}), {.ignore_index = n});
       }},
      {"cross_entropy",
       [](int64_t n) {
         cross_entropy(matrix(), numbers({0, n}));
       }},
      {"nll_loss",
       [](int64_t n) {
         nll_loss(matrix(), numbers({0, n}), {.ignore_index = n});
       }},
      {"multi_margin_loss",
       [](int64_t n) {
         multi_margin_loss(matrix(), numbers({0, 1}), {.p = n});
       }},
      {"multi_margin_loss",
       [](int64_t n) {
         multi_margin_loss(matrix(), numbers({0, n}));
       }},
      {"embedding", [](int64_t n) { embedding(numbers({0}), matrix(), {.padding_idx = n}); }},
      {"embedding", [](int64_t n) { embedding(numbers({n}), matrix()); }},
      {"embedding_backward",
       [](int64_t n) {
         embedding_backward(matrix(), numbers({0, 1}), n);
       }},
      {"embedding_backward",
       [](int64_t n) {
         embedding_backward(matrix(), numbers({0, n}), 2, n);
       }},
      {"group_norm", [](int64_t n) { group_norm(image(), n); }},
      {"group_norm",
       [](int64_t n) {
         group_norm(empty({1, 0, 2}), n);
       }},
      {"local_response_norm", [](int64_t n) { local_response_norm(image(), n); }},
      {"channel_window_sum", [](int64_t n) { channel_window_sum(image(), {.before = n}); }},
      {"channel_window_sum", [](int64_t n) { channel_window_sum(image(), {.before = n, .after = n}); }},
      {"layer_norm", [](int64_t n) { layer_norm(matrix(), {n}); }},
      {"rms_norm",
       [](int64_t n) {
         rms_norm(matrix(), {n, 3});
       }},
      // Convolutions.
      {"conv1d",
       [](int64_t n) {
         conv1d(signal(), random_tensor({2, 4, 3}), {}, {.stride = n});
       }},
      {"conv1d",
       [](int64_t n) {
         conv1d(signal(), random_tensor({2, 4, 3}), {}, {.padding = n});
       }},
      {"conv1d",
       [](int64_t n) {
         conv1d(signal(), random_tensor({2, 4, 3}), {}, {.dilation = n});
       }},
      {"conv1d",
       [](int64_t n) {
         conv1d(signal(), random_tensor({2, 4, 3}), {}, {.dilation = n, .same_padding = true});
       }},
      {"conv2d",
       [](int64_t n) {
         conv2d(image(), random_tensor({2, 4, 3, 3}), {}, {.stride = n});
       }},
      {"conv2d",
       [](int64_t n) {
         conv2d(image(), random_tensor({2, 4, 3, 3}), {}, {.padding = n});
       }},
      {"conv2d",
       [](int64_t n) {
         conv2d(image(), random_tensor({2, 4, 3, 3}), {}, {.dilation = n});
       }},
      {"conv2d",
       [](int64_t n) {
         conv2d(image(), random_tensor({2, 4, 3, 3}), {}, {.groups = n});
       }},
      {"conv2d_relu",
       [](int64_t n) {
         conv2d_relu(image(), random_tensor({2, 4, 3, 3}), {}, {.stride = n});
       }},
      {"conv2d_relu",
       [](int64_t n) {
         conv2d_relu(image(), random_tensor({2, 4, 3, 3}), {}, {.padding = n});
       }},
      {"conv2d_relu",
       [](int64_t n) {
         conv2d_relu(image(), random_tensor({2, 4, 3, 3}), {}, {.dilation = n});
       }},
      {"conv2d_relu",
       [](int64_t n) {
         conv2d_relu(image(), random_tensor({2, 4, 3, 3}), {}, {.groups = n});
       }},
      {"conv3d",
       [](int64_t n) {
         conv3d(volume(), random_tensor({2, 4, 3, 3, 3}), {}, {.stride = n});
       }},
      {"conv3d",
       [](int64_t n) {
         conv3d(volume(), random_tensor({2, 4, 3, 3, 3}), {}, {.padding = n});
       }},
      {"conv_transpose1d",
       [](int64_t n) {
         conv_transpose1d(signal(), random_tensor({4, 2, 3}), {}, {.stride = n});
       }},
      {"conv_transpose1d",
       [](int64_t n) {
         conv_transpose1d(signal(), random_tensor({4, 2, 3}), {}, {.output_padding = n});
       }},
      {"conv_transpose2d",
       [](int64_t n) {
         conv_transpose2d(image(), random_tensor({4, 2, 3, 3}), {}, {.stride = n});
       }},
      {"conv_transpose2d",
       [](int64_t n) {
         conv_transpose2d(image(), random_tensor({4, 2, 3, 3}), {}, {.padding = n});
       }},
      {"conv_transpose2d",
       [](int64_t n) {
         conv_transpose2d(image(), random_tensor({4, 2, 3, 3}), {}, {.dilation = n});
       }},
      {"conv_transpose2d",
       [](int64_t n) {
         conv_transpose2d(image(), random_tensor({4, 2, 3, 3}), {}, {.groups = n});
       }},
      {"conv_transpose2d",
       [](int64_t n) {
         conv_transpose2d(image(), random_tensor({4, 2, 3, 3}), {}, {.stride = n, .output_padding = n});
       }},
      {"conv_transpose3d",
       [](int64_t n) {
         conv_transpose3d(volume(), random_tensor({4, 2, 3, 3, 3}), {}, {.stride = n});
       }},
      {"conv2d_input_grad",
       [](int64_t n) {
         conv2d_input_grad(image(), random_tensor({4, 2, 3, 3}), {1, 2, n, n});
       }},
      {"conv3d_input_grad",
       [](int64_t n) {
         conv3d_input_grad(volume(), random_tensor({4, 2, 3, 3, 3}), {n, 2, n, n, n});
       }},
      {"conv2d_weight_grad",
       [](int64_t n) {
         conv2d_weight_grad(image(), image(), {4, 4, n, n}, true);
       }},
      {"conv3d_weight_grad",
       [](int64_t n) {
         conv3d_weight_grad(volume(), volume(), {n, 4, 1, 1, n}, false);
       }},
      // Windows.
      {"unfold", [](int64_t n) { unfold(image(), {.kernel = n}); }},
      {"unfold", [](int64_t n) { unfold(image(), {.kernel = n, .padding = n}); }},
      {"unfold", [](int64_t n) { unfold(image(), {.kernel = 2, .stride = n}); }},
      {"unfold", [](int64_t n) { unfold(image(), {.kernel = 2, .padding = n}); }},
      {"unfold", [](int64_t n) { unfold(image(), {.kernel = 2, .dilation = n}); }},
      {"fold", [](int64_t n) { fold(signal(), n, {.kernel = 2}); }},
      {"fold", [](int64_t n) { fold(signal(), 4, {.kernel = n, .padding = n}); }},
      {"max_pool1d", [](int64_t n) { max_pool1d(signal(), {.kernel = n, .ceil_mode = true}); }},
      {"max_pool1d", [](int64_t n) { max_pool1d(signal(), {.kernel = 2, .stride = n, .padding = n}); }},
      {"max_pool2d", [](int64_t n) { max_pool2d(image(), {.kernel = n}); }},
      {"max_pool2d", [](int64_t n) { max_pool2d(image(), {.kernel = 2, .stride = n, .ceil_mode = true}); }},
      {"max_pool2d", [](int64_t n) { max_pool2d(image(), {.kernel = n, .padding = n}); }},
      {"max_pool2d", [](int64_t n) { max_pool2d(image(), {.kernel = 2, .dilation = n, .ceil_mode = true}); }},
      {"max_pool3d", [](int64_t n) { max_pool3d(volume(), {.kernel = n, .stride = n, .ceil_mode = true}); }},
      {"max_pool1d_with_indices", [](int64_t n) { max_pool1d_with_indices(signal(), {.kernel = n}); }},
      {"max_pool2d_with_indices", [](int64_t n) { max_pool2d_with_indices(image(), {.kernel = n}); }},
      {"max_pool3d_with_indices",
       [](int64_t n) { max_pool3d_with_indices(volume(), {.kernel = 2, .stride = n}); }},
      {"avg_pool1d", [](int64_t n) { avg_pool1d(signal(), {.kernel = n, .stride = n, .ceil_mode = true}); }},
      {"avg_pool2d", [](int64_t n) { avg_pool2d(image(), {.kernel = n, .padding = n}); }},
      {"avg_pool2d", [](int64_t n) { avg_pool2d(image(), {.kernel = 2, .divisor_override = n}); }},
      {"avg_pool3d", [](int64_t n) { avg_pool3d(volume(), {.kernel = n, .stride = n, .ceil_mode = true}); }},
      {"lp_pool1d", [](int64_t n) { lp_pool1d(signal(), {.p = 2.0, .kernel = n}); }},
      {"lp_pool2d", [](int64_t n) { lp_pool2d(image(), {.p = 2.0, .kernel = 2, .stride = n}); }},
      {"adaptive_avg_pool1d", [](int64_t n) { adaptive_avg_pool1d(signal(), n); }},
      {"adaptive_avg_pool2d", [](int64_t n) { adaptive_avg_pool2d(image(), n); }},
      {"adaptive_avg_pool3d", [](int64_t n) { adaptive_avg_pool3d(volume(), n); }},
      {"adaptive_max_pool1d", [](int64_t n) { adaptive_max_pool1d(signal(), n); }},
      {"adaptive_max_pool2d", [](int64_t n) { adaptive_max_pool2d(image(), n); }},
      {"adaptive_max_pool3d", [](int64_t n) { adaptive_max_pool3d(volume(), n); }},
      {"adaptive_max_pool1d_with_indices", [](int64_t n) { adaptive_max_pool1d_with_indices(signal(), n); }},
      {"adaptive_max_pool2d_with_indices", [](int64_t n) { adaptive_max_pool2d_with_indices(image(), n); }},
      {"adaptive_max_pool3d_with_indices", [](int64_t n) { adaptive_max_pool3d_with_indices(volume(), n); }},
      {"max_unpool",
       [](int64_t n) {
         max_unpool(signal(), zeros({1, 4, 6}, {DType::kI64}), {n});
       }},
      {"max_unpool",
       [](int64_t n) {
         max_unpool(image(), zeros({1, 4, 6, 6}, {DType::kI64}), {n, n});
       }},
      {"max_unpool", [](int64_t n) { max_unpool(vector(), zeros({3}, {DType::kI64}), {n}); }},
      // Images.
      {"interpolate",
       [](int64_t n) {
         interpolate(image(), {.size = {n, n}});
       }},
      {"interpolate",
       [](int64_t n) {
         interpolate(empty({0, 1, 2, 2}), {.size = {n, 1}});
       }},
      {"interpolate",
       [](int64_t n) { interpolate(signal(), {.size = {n}, .mode = Interpolation::kLinear}); }},
      {"interpolate",
       [](int64_t n) {
         interpolate(image(), {.size = {n, 2}, .mode = Interpolation::kArea});
       }},
      {"interpolate",
       [](int64_t n) {
         interpolate(image(), {.size = {2, n}, .mode = Interpolation::kBicubic, .antialias = true});
       }},
      {"interpolate", [](int64_t n) { interpolate(image(), {.scale_factor = {double(n)}}); }},
      {"pad",
       [](int64_t n) {
         pad(image(), {n, 0});
       }},
      {"pad",
       [](int64_t n) {
         pad(image(), {n, n, n, n});
       }},
      {"pad",
       [](int64_t n) {
         pad(image(), {n, kMin});
       }},
      {"pad",
       [](int64_t n) {
         pad(image(), {n, kMax});
       }},
      {"pad",
       [](int64_t n) {
         pad(image(), {n, 1}, {.mode = PadMode::kReplicate});
       }},
      {"pad",
       [](int64_t n) {
         pad(image(), {1, n}, {.mode = PadMode::kReflect});
       }},
      {"pad",
       [](int64_t n) {
         pad(image(), {n, n}, {.mode = PadMode::kCircular});
       }},
      {"pixel_shuffle", [](int64_t n) { pixel_shuffle(image(), n); }},
      {"pixel_shuffle",
       [](int64_t n) {
         pixel_shuffle(empty({1, 0, 2, 2}), n);
       }},
      {"pixel_unshuffle", [](int64_t n) { pixel_unshuffle(image(), n); }},
      {"pixel_unshuffle",
       [](int64_t n) {
         pixel_unshuffle(empty({1, 4, 0, 0}), n);
       }},
      {"channel_shuffle", [](int64_t n) { channel_shuffle(image(), n); }},
      {"upfirdn2d",
       [](int64_t n) {
         upfirdn2d(image(), random_tensor({2, 2}), {.up = n});
       }},
      {"upfirdn2d",
       [](int64_t n) {
         upfirdn2d(image(), random_tensor({2, 2}), {.down = n});
       }},
      {"upfirdn2d",
       [](int64_t n) {
         upfirdn2d(image(), random_tensor({2, 2}), {.padding = {.left = n, .right = n}});
       }},
      {"upfirdn2d",
       [](int64_t n) {
         upfirdn2d(image(), random_tensor({2, 2}), {.padding = {.left = n, .right = kMax}});
       }},
      {"upfirdn2d", [](int64_t n) { upfirdn2d(image(), random_tensor({2}), {.padding = {.top = n}}); }},
      {"upsample2d", [](int64_t n) { upsample2d(image(), random_tensor({2}), n); }},
      {"downsample2d", [](int64_t n) { downsample2d(image(), random_tensor({2}), n); }},
      {"affine_grid",
       [](int64_t n) {
         affine_grid(random_tensor({1, 2, 3}), n);
       }},
      {"affine_grid",
       [](int64_t n) {
         affine_grid(random_tensor({1, 2, 3}), Size2(1, n));
       }},
  };
}

// What a call did wrong; empty: nothing.
std::string fault_of(const Call& call, int64_t n) {
  const auto begin = std::chrono::steady_clock::now();
  std::string fault;
  try {
    call.run(n);
  } catch (const Error& e) {
    if (std::string(e.what()).empty()) fault = "an error without a text";
  } catch (const std::exception& e) {
    fault = std::string("an untyped exception: ") + e.what();
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  if (fault.empty() && took.count() > 5) fault = "took " + std::to_string(took.count()) + " s";
  return fault;
}

class Bounds : public testing::Test {
 protected:
  void SetUp() override {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their own memory counts too
    // What asks for much more than the tensors of this test fails, instead of filling the machine.
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = rlim_t{8} << 30;
    setrlimit(RLIMIT_AS, &limit);
#endif
  }
};

TEST_F(Bounds, EveryNumberGivesAResultOrATypedErrorSoon) {
  for (const Call& call : calls())
    for (const int64_t n : kNumbers) {
      const std::string fault = fault_of(call, n);
      EXPECT_EQ(fault, "") << call.op << " with " << n;
    }
  EXPECT_LT(memory_stats().peak_bytes, int64_t{1} << 30);
}

// Options that have an integer, and the ops that take one or an integer itself.
std::set<std::string> ops_with_integers() {
  const std::regex integer(R"(\b(int64_t|Dims|Shape|Strides|Size2|Size3)\b)");
  const std::regex declaration(R"(^(?:Tensor|void|std::\w+<.*>|[A-Z]\w*) (\w+)\((.*))");
  std::set<std::string> options, ops;
  for (const bool structs : {true, false}) {
    for (const char* folder : {"autograd/ops", "tensor/ops"}) {
      for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
        if (file.path().extension() != ".h") continue;
        std::ifstream text(file.path());
        std::string inside;
        bool in_raw = false;
        for (std::string line; std::getline(text, line);) {
          std::smatch m;
          if (line.rfind("namespace ", 0) == 0) in_raw = line != "namespace gradus {";
          if (line.rfind("}  // namespace", 0) == 0) in_raw = false;
          if (structs) {
            if (std::regex_search(line, m, std::regex(R"(^struct (\w+) \{)"))) inside = m[1];
            if (!inside.empty() && std::regex_search(line, integer)) options.insert(inside);
            if (line == "};") inside.clear();
          } else if (!in_raw && std::regex_search(line, m, declaration)) {
            const std::string op = m[1];
            std::string parameters = m[2];
            while (parameters.find(");") == std::string::npos && std::getline(text, line)) parameters += line;
            bool has = std::regex_search(parameters, integer);
            for (const std::string& o : options)
              has = has || std::regex_search(parameters, std::regex("\\b" + o + "\\b"));
            if (has) ops.insert(op);
          }
        }
      }
    }
  }
  return ops;
}

TEST_F(Bounds, EveryOpWithAnIntegerIsTried) {
  // Sizes here are those of a tensor that exists; they come from no caller.
  std::set<std::string> tried{"max_pool_scatter", "max_pool_gather", "avg_pool_spread", "cross_entropy_grad"};
  for (const Call& call : calls()) tried.insert(call.op);
  const std::set<std::string> ops = ops_with_integers();
  EXPECT_GT(ops.size(), 100u) << "the headers were not found";
  std::string missing;
  for (const std::string& op : ops)
    if (!tried.count(op)) missing += " " + op;
  EXPECT_EQ(missing, "") << "ops with integers that the table does not try";
}

// So that errors carry its name, and undefined arguments theirs.
TEST(OpCalls, EveryPublicOpBeginsWithOne) {
  const std::set<std::string> ops = optest::public_ops();
  const std::regex definition(R"(^(?:Tensor|void|bool|std::\w+<.*>|[A-Z]\w*) (\w+)\(.*)");
  std::set<std::string> without;
  int with = 0;
  optest::visit_op_files(".cc", [&](const std::string& line, std::istream& text) {
    std::smatch m;
    if (!std::regex_match(line, m, definition) || !ops.count(m[1])) return;
    const std::string op = m[1];
    std::string head = line, next;
    while (head.find('{') == std::string::npos && head.find(';') == std::string::npos &&
           std::getline(text, next))
      head += next;
    if (head.find("OpCall call(") == std::string::npos && std::getline(text, next)) head += next;
    head.find("OpCall call(") == std::string::npos ? void(without.insert(op)) : void(++with);
  });
  EXPECT_GT(with, 400) << "the sources were not found";
  EXPECT_THAT(without, testing::IsEmpty());
}

TEST_F(Bounds, SizesThatOverflowSaySo) {
  expect_error<ValueError>(
      [] {
        repeat_interleave(vector(), numbers({kMax, kMax, 4}), 0);
      },
      {"[repeat_interleave]", "64 bits"});
  expect_error<Error>([] { pixel_shuffle(image(), int64_t{1} << 32); },
                      {"[pixel_shuffle]", "at most 2147483647"});
  expect_error<Error>([] { unfold(image(), {.kernel = int64_t{1} << 30, .padding = int64_t{1} << 30}); },
                      {"[unfold]"});
  expect_error<ValueError>([] { pad(image(), {kMax, 0}); }, {"[pad]", "at most", "9223372036854775807"});
  expect_error<ValueError>(
      [] {
        upfirdn2d(image(), random_tensor({2, 2}), {.padding = {.left = kMax}});
      },
      {"[upfirdn2d]", "at most", "9223372036854775807"});
  expect_error<ValueError>([] { max_pool2d(image(), {.kernel = 2, .stride = kMax}); },
                           {"[max_pool2d] stride must be at most 2147483647, given 9223372036854775807"});
  expect_error<ValueError>([] { max_pool2d(image(), {.kernel = 2, .stride = -1}); },
                           {"[max_pool2d] stride must be at least 0, given -1"});
  expect_error<ValueError>(
      [] {
        conv2d(image(), random_tensor({2, 4, 3, 3}), {}, {.stride = kMax});
      },
      {"[conv2d] stride must be at most 2147483647, given 9223372036854775807"});
}

TEST_F(Bounds, SizesAreCheckedBeforeTheWork) {
  const int64_t large = int64_t{1} << 40;
  expect_error<ShapeError>([=] { tril_indices(large, large); }, {"[tril_indices]"});
  expect_error<Error>([=] { interpolate(image(), {.size = {large, large}}); }, {"[interpolate]"});
  expect_error<Error>([=] { combinations(vector(), large, {.with_replacement = true}); }, {"[combinations]"});
  expect_error<Error>([=] { tensor_split(vector(), large); }, {"[tensor_split]", "at most"});
  expect_error<Error>([=] { pad(image(), {large, 0}); }, {"[pad]", "out of memory"});
  expect_error<Error>([=] { pad(image(), {large, 0}, {.mode = PadMode::kReplicate}); }, {"[pad]", "at most"});
}

TEST_F(Bounds, NumbersThatFitStillCount) {
  EXPECT_EQ(tril_indices(3, 2, 0).to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 1, 2, 2, 0, 0, 1, 0, 1}));
  EXPECT_EQ(triu_indices(2, 3, 1).to_vector<int64_t>(), (std::vector<int64_t>{0, 0, 1, 1, 2, 2}));
  for (int64_t rows : {0, 1, 2, 5})
    for (int64_t cols : {0, 1, 3, 4})
      for (int64_t offset = -6; offset <= 6; ++offset) {
        std::vector<int64_t> lower[2], upper[2];
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t j = 0; j < cols; ++j) {
            if (j - i <= offset) lower[0].push_back(i), lower[1].push_back(j);
            if (j - i >= offset) upper[0].push_back(i), upper[1].push_back(j);
          }
        lower[0].insert(lower[0].end(), lower[1].begin(), lower[1].end());
        upper[0].insert(upper[0].end(), upper[1].begin(), upper[1].end());
        EXPECT_EQ(tril_indices(rows, cols, offset).to_vector<int64_t>(), lower[0])
            << rows << ' ' << cols << ' ' << offset;
        EXPECT_EQ(triu_indices(rows, cols, offset).to_vector<int64_t>(), upper[0])
            << rows << ' ' << cols << ' ' << offset;
      }
  EXPECT_EQ(triu_indices(int64_t{1} << 40, 2).to_vector<int64_t>(), (std::vector<int64_t>{0, 0, 1, 0, 1, 1}));
  EXPECT_EQ(combinations(tensor({1.f, 2.f, 3.f}), 2).to_vector<float>(),
            (std::vector<float>{1, 2, 1, 3, 2, 3}));
  EXPECT_EQ(combinations(tensor({1.f, 2.f}), 3, {.with_replacement = true}).to_vector<float>(),
            (std::vector<float>{1, 1, 1, 1, 1, 2, 1, 2, 2, 2, 2, 2}));
  EXPECT_EQ(combinations(tensor({1.f, 2.f}), 3).shape(), (Shape{0, 3}));
  EXPECT_EQ(repeat(ones({1, 2, 1, 1, 1, 1, 1, 2}), {2, 2, 1, 1, 1, 1, 1, 3}).shape(),
            (Shape{2, 4, 1, 1, 1, 1, 1, 6}));
}

}  // namespace
}  // namespace gradus
