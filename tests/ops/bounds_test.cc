// Ops with integer arguments at values that overflow (kNumbers): each call gives a result or an Error within
// 5 s, and at most 1 GiB is allocated. Also meant to run under UndefinedBehaviorSanitizer.
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
  const char* text;  // the op's name, or a call that begins with it
  std::function<void(int64_t n)> run;

  std::string op() const { return std::string(text).substr(0, std::string_view(text).find('(')); }
};
// A call of an op with one of kNumbers, n: CALL(zeros({n})).
#define CALL(...)                                \
  {                                              \
    #__VA_ARGS__, [](int64_t n) { __VA_ARGS__; } \
  }

Tensor vector() { return random_tensor({3}); }
Tensor matrix() { return random_tensor({2, 3}); }
Tensor signal() { return random_tensor({1, 4, 6}); }
Tensor image() { return random_tensor({1, 4, 6, 6}); }
Tensor volume() { return random_tensor({1, 4, 4, 4, 4}); }
Tensor numbers(std::vector<int64_t> v) {
  const Shape shape{int64_t(v.size())};
  return tensor(v, shape);
}

std::vector<Call> creation() {
  return {
      CALL(zeros({n})),
      CALL(zeros({n, 2, n})),
      CALL(ones({2, n})),
      CALL(full({n}, 1)),
      CALL(empty({n, n})),
      CALL(empty({0, n, n})),
      CALL(arange(n)),
      CALL(arange(n, 5)),
      CALL(arange(0, 5, n)),
      CALL(arange_from(0, double(n), 1, {})),
      CALL(linspace(0, 1, n)),
      CALL(logspace(0, 1, n)),
      CALL(eye(n)),
      CALL(eye(2, n)),
      CALL(eye(3, 4, n, {})),
      CALL(tril_indices(n, n)),
      CALL(tril_indices(n, 2)),
      CALL(tril_indices(2, n)),
      CALL(tril_indices(3, 4, n)),
      CALL(tril_indices(int64_t{1} << 40, 4, n)),
      CALL(triu_indices(n, n)),
      CALL(triu_indices(n, 0)),
      CALL(triu_indices(3, 4, n)),
      CALL(rand({n})),
      CALL(randn({n, 2})),
      CALL(randint(n, {3})),
      CALL(randint(n, 5, {3})),
      CALL(randint(-5, n, {3})),
      CALL(randint(5, {n})),
      CALL(randint_like(vector(), -1, n)),
      CALL(randperm(n)),
      CALL(normal(0, 1, {n})),
      CALL(multinomial(full({3}, 1), n)),
      CALL(multinomial(full({3}, 1), n, {.replacement = true})),
  };
}

std::vector<Call> views() {
  return {
      CALL(reshape(matrix(), {n})),
      CALL(reshape(matrix(), {n, n, -1})),
      CALL(view(matrix(), {-1, n})),
      CALL(unflatten(matrix(), 1, {n, n})),
      CALL(unflatten(matrix(), 1, {n, -1})),
      CALL(unflatten(matrix(), n, {3})),
      CALL(flatten(matrix(), n)),
      CALL(flatten(matrix(), 0, n)),
      CALL(permute(matrix(), {0, n})),
      CALL(transpose(matrix(), 0, n)),
      CALL(swapaxes(matrix(), n, n)),
      CALL(swapdims(matrix(), n, 0)),
      CALL(movedim(matrix(), n, 0)),
      CALL(movedim(matrix(), {0, 1}, {n, 0})),
      CALL(moveaxis(matrix(), 0, n)),
      CALL(expand(random_tensor({1, 3}), {n, 3})),
      CALL(expand(random_tensor({1}), {n, n})),
      CALL(broadcast_to(scalar(1), {n})),
      CALL(sum_to(matrix(), {n})),
      CALL(squeeze(matrix(), n)),
      CALL(squeeze(matrix(), Dims{0, n})),
      CALL(unsqueeze(matrix(), n)),
      CALL(narrow(matrix(), 1, n, 1)),
      CALL(narrow(matrix(), 1, 1, n)),
      CALL(narrow(matrix(), 1, n, n)),
      CALL(narrow(matrix(), n, 0, 1)),
      CALL(slice(matrix(), 1, n, kMax)),
      CALL(slice(matrix(), 1, kMin, n)),
      CALL(slice(matrix(), 1, 0, 3, n)),
      CALL(slice(matrix(), n, 0, 3)),
      CALL(slice_backward(matrix(), {2, 5}, 1, n)),
      CALL(slice_backward(matrix(), {2, 5}, 1, 0, n)),
      CALL(slice_backward(matrix(), {2, n}, 1, 0, 2)),
      CALL(select(matrix(), 1, n)),
      CALL(select(matrix(), n, 0)),
      CALL(diagonal(matrix(), {.offset = n})),
      CALL(diagonal(matrix(), {.dim1 = n})),
      CALL(diagonal_backward(vector(), {3, n})),
      CALL(diagonal_backward(vector(), {3, 3}, {.offset = n})),
      CALL(unfold_dim(vector(), 0, n, 1)),
      CALL(unfold_dim(vector(), 0, 2, n)),
      CALL(unfold_dim(vector(), 0, 0, n)),
      CALL(unfold_dim_backward(matrix(), {n}, 0, 3, 1)),
      CALL(unfold_dim_backward(matrix(), {4}, 0, n, n)),
      CALL(as_strided(vector(), {n}, {1})),
      CALL(as_strided(vector(), {2}, {n})),
      CALL(as_strided(vector(), {2, 2}, {n, n})),
      CALL(as_strided(vector(), {1}, {n})),
      CALL(as_strided(vector(), {1}, {1}, n)),
      CALL(as_strided(vector(), {0}, {1}, n)),
      CALL(index(matrix(), {numbers({n})})),
      {"size", [](int64_t n) { matrix().size(n); }},
      {"index", [](int64_t n) { const Tensor y = matrix()[n]; }},
      {"index", [](int64_t n) { const Tensor y = matrix()[{Slice(n, n)}]; }},
      {"index", [](int64_t n) { const Tensor y = matrix()[{Slice(0, n, 2)}]; }},
  };
}

std::vector<Call> rearrangements() {
  return {
      CALL(flip(matrix(), {n})),
      CALL(roll(matrix(), {n})),
      CALL(roll(matrix(), {n, n}, {0, 0})),
      CALL(roll(matrix(), {1}, {n})),
      CALL(rot90(matrix(), n)),
      CALL(rot90(matrix(), 1, {0, n})),
      CALL(tril(matrix(), n)),
      CALL(triu(matrix(), n)),
      CALL(diag_embed(vector(), {.offset = n})),
      CALL(diag_embed(vector(), {.dim1 = n})),
      CALL(diag(vector(), n)),
      CALL(diag(matrix(), n)),
      CALL(repeat(vector(), {n})),
      CALL(repeat(matrix(), {n, n, n})),
      CALL(repeat(empty({2, 0}), {n, n})),
      CALL(repeat(empty({2, 2, 2, 2, 2, 2, 2, 2}), {2, 2, 2, 2, 2, 2, 2, n})),
      CALL(tile(matrix(), {n})),
      CALL(repeat_interleave(matrix(), n)),
      CALL(repeat_interleave(matrix(), n, 1)),
      CALL(repeat_interleave(matrix(), 2, n)),
      CALL(repeat_interleave(vector(), numbers({n, n, n}), 0)),
      CALL(repeat_interleave(vector(), numbers({n, 2, kMax}), 0)),
      CALL(repeat_interleave(vector(), numbers({n, n, 2}), 0, n)),
      CALL(repeat_interleave(vector(), numbers({1, 1, 1}), 0, n)),
      CALL(combinations(vector(), n)),
      CALL(combinations(vector(), n, {.with_replacement = true})),
      CALL(combinations(narrow(vector(), 0, 0, 1), n, {.with_replacement = true})),
  };
}

std::vector<Call> joins() {
  return {
      CALL(cat({matrix(), matrix()}, n)),
      CALL(stack({matrix(), matrix()}, n)),
      CALL(split(vector(), n)),
      CALL(split(vector(), 1, n)),
      CALL(split(vector(), {n, 1})),
      CALL(split(expand(scalar(1), {int64_t{1} << 40}), n)),
      CALL(chunk(vector(), n)),
      CALL(tensor_split(vector(), n)),
      CALL(tensor_split(vector(), {n, 1, n})),
      CALL(tensor_split(vector(), 2, n)),
      CALL(hsplit(matrix(), n)),
      CALL(hsplit(matrix(), std::vector<int64_t>{n})),
      CALL(vsplit(empty({0, 3}), n)),
      CALL(dsplit(signal(), n)),
      CALL(unbind(matrix(), n)),
      CALL(unbind(expand(scalar(1), {n}))),
      CALL(one_hot(numbers({0, 1}), n)),
      CALL(one_hot(numbers({n}))),
  };
}

std::vector<Call> indexing() {
  return {
      CALL(index_select(matrix(), n, numbers({0}))),
      CALL(index_select(matrix(), 0, numbers({n}))),
      CALL(index_select_backward(matrix(), {n, 3}, 0, numbers({0, 1}))),
      CALL(index_select_backward(matrix(), {2, 3}, n, numbers({0, n}))),
      CALL(index_add(matrix(), n, numbers({0}), matrix())),
      CALL(index_add(matrix(), 0, numbers({n, 0}), matrix())),
      CALL(index_copy(matrix(), 0, numbers({n, 0}), matrix())),
      CALL(index_copy(matrix(), n, numbers({0, 0}), matrix())),
      CALL(index_fill(matrix(), n, numbers({0}), 1)),
      CALL(index_fill(matrix(), 0, numbers({n}), 1)),
      CALL(select_scatter(matrix(), vector(), n, 0)),
      CALL(select_scatter(matrix(), vector(), 0, n)),
      CALL(slice_scatter(matrix(), matrix(), 0, n, kMax)),
      CALL(slice_scatter(matrix(), matrix(), 0, 0, n, n)),
      CALL(diagonal_scatter(matrix(), vector(), {.offset = n})),
      CALL(take(matrix(), numbers({n}))),
      CALL(put(matrix(), numbers({n}), scalar(1))),
      CALL(gather(matrix(), n, tensor(std::vector<int64_t>{0}, {1, 1}))),
      CALL(gather(matrix(), 1, tensor(std::vector<int64_t>{n}, {1, 1}))),
      CALL(take_along_dim(matrix(), tensor(std::vector<int64_t>{0}, {1, 1}), n)),
      CALL(gather_backward(scalar(1), {n, 3}, 0, tensor(std::vector<int64_t>{n}, {1, 1}))),
      CALL(scatter(matrix(), n, tensor(std::vector<int64_t>{0}, {1, 1}), 1.0)),
      CALL(scatter(matrix(), 0, tensor(std::vector<int64_t>{n}, {1, 1}), 1.0)),
      CALL(scatter_add(vector(), n, numbers({0, 1, 2}), vector())),
      CALL(scatter_add(vector(), 0, numbers({0, n, 2}), vector())),
      CALL(scatter_reduce(vector(), n, numbers({0, 1, n}), vector(), ScatterReduce::kSum)),
      CALL(masked_scatter_backward(vector(), gt(vector(), 0), {n})),
  };
}

std::vector<Call> reductions() {
  return {
      CALL(sum(matrix(), {n})),
      CALL(mean(matrix(), {n})),
      CALL(prod(matrix(), {n})),
      CALL(amax(matrix(), {n})),
      CALL(amin(matrix(), {n, 0})),
      CALL(max(matrix(), n)),
      CALL(min(matrix(), n)),
      CALL(argmax(matrix(), n)),
      CALL(argmin(matrix(), n)),
      CALL(aminmax(matrix(), n)),
      CALL(var(matrix(), {n})),
      CALL(var(matrix(), {0}, {.correction = n})),
      {"std", [](int64_t n) { gradus::std(matrix(), {0}, {.correction = n}); }},
      CALL(var_mean(matrix(), {1}, {.correction = n})),
      CALL(std_mean(matrix(), {n})),
      CALL(norm(matrix(), {n})),
      CALL(vector_norm(matrix(), 2, {n})),
      CALL(nansum(matrix(), {n})),
      CALL(nanmean(matrix(), {n})),
      CALL(count_nonzero(matrix(), {n})),
      CALL(logsumexp(matrix(), {n})),
      CALL(any(matrix(), {n})),
      CALL(all(matrix(), {n})),
      CALL(cumsum(matrix(), n)),
      CALL(cumprod(matrix(), n)),
      CALL(logcumsumexp(matrix(), n)),
      CALL(cummax(matrix(), n)),
      CALL(cummin(matrix(), n)),
      CALL(linear_recurrence(matrix(), matrix(), n)),
      CALL(diff(matrix(), {.n = n})),
      CALL(diff(matrix(), {.dim = n})),
      CALL(softmax(matrix(), n)),
      CALL(log_softmax(matrix(), n)),
      CALL(softmin(matrix(), n)),
      CALL(gumbel_softmax(matrix(), {.dim = n})),
      CALL(softmax_backward(matrix(), matrix(), n)),
      CALL(log_softmax_backward(matrix(), matrix(), n)),
      CALL(glu(signal(), n)),
      CALL(cosine_similarity(matrix(), matrix(), {.dim = n})),
      CALL(normalize(matrix(), {.dim = n})),
  };
}

std::vector<Call> sorts() {
  return {
      CALL(sort(matrix(), {.dim = n})),
      CALL(argsort(matrix(), {.dim = n})),
      CALL(topk(matrix(), n)),
      CALL(topk(matrix(), 1, {.dim = n})),
      CALL(kthvalue(matrix(), n)),
      CALL(kthvalue(matrix(), 1, {.dim = n})),
      CALL(median(matrix(), {.dim = n})),
      CALL(nanmedian(matrix(), {.dim = n})),
      CALL(mode(matrix(), {.dim = n})),
      CALL(unique(matrix(), {.dim = n})),
      CALL(unique_consecutive(matrix(), {.dim = n})),
      CALL(bincount(numbers({n}))),
      CALL(bincount(numbers({1}), {.minlength = n})),
      CALL(histc(vector(), {.bins = n})),
  };
}

std::vector<Call> matrices() {
  return {
      CALL(tensordot(matrix(), matrix(), n)),
      CALL(tensordot(matrix(), matrix(), {n}, {n})),
      CALL(matrix_power(full({2, 2}, 0.5), n)),
      CALL(cross(matrix(), matrix(), n)),
  };
}

std::vector<Call> functions() {
  return {
      CALL(polygamma(n, full({2}, 1.5))),
      CALL(round(vector(), n)),
      CALL(cross_entropy(matrix(), numbers({0, 1}), {.ignore_index = n})),
      CALL(cross_entropy(matrix(), numbers({0, n}))),
      CALL(nll_loss(matrix(), numbers({0, n}), {.ignore_index = n})),
      CALL(multi_margin_loss(matrix(), numbers({0, 1}), {.p = n})),
      CALL(multi_margin_loss(matrix(), numbers({0, n}))),
      CALL(multilabel_margin_loss(vector(), numbers({0, n, 1}))),
      CALL(embedding(numbers({0}), matrix(), {.padding_idx = n})),
      CALL(embedding(numbers({n}), matrix())),
      CALL(embedding_backward(matrix(), numbers({0, 1}), n)),
      CALL(embedding_bag(numbers({0, 1}), matrix(), numbers({0}), {.padding_idx = n})),
      CALL(embedding_bag(numbers({0, 1}), matrix(), numbers({0, n}))),
      CALL(ctc_loss(signal(), numbers({1}), numbers({n}), numbers({1}))),
      CALL(ctc_loss(signal(), numbers({n}), numbers({1, 1, 1, 1}), numbers({n, 0, 0, n}), {.blank = n})),
      CALL(embedding_backward(matrix(), numbers({0, n}), 2, n)),
      CALL(group_norm(image(), n)),
      CALL(group_norm(empty({1, 0, 2}), n)),
      CALL(local_response_norm(image(), n)),
      CALL(channel_window_sum(image(), {.before = n})),
      CALL(channel_window_sum(image(), {.before = n, .after = n})),
      CALL(layer_norm(matrix(), {n})),
      CALL(rms_norm(matrix(), {n, 3})),
  };
}

std::vector<Call> convolutions() {
  return {
      CALL(conv1d(signal(), random_tensor({2, 4, 3}), {}, {.stride = n})),
      CALL(conv1d(signal(), random_tensor({2, 4, 3}), {}, {.padding = n})),
      CALL(conv1d(signal(), random_tensor({2, 4, 3}), {}, {.dilation = n})),
      CALL(conv1d(signal(), random_tensor({2, 4, 3}), {}, {.dilation = n, .same_padding = true})),
      CALL(conv2d(image(), random_tensor({2, 4, 3, 3}), {}, {.stride = n})),
      CALL(conv2d(image(), random_tensor({2, 4, 3, 3}), {}, {.padding = n})),
      CALL(conv2d(image(), random_tensor({2, 4, 3, 3}), {}, {.dilation = n})),
      CALL(conv2d(image(), random_tensor({2, 4, 3, 3}), {}, {.groups = n})),
      CALL(conv2d_relu(image(), random_tensor({2, 4, 3, 3}), {}, {.stride = n})),
      CALL(conv2d_relu(image(), random_tensor({2, 4, 3, 3}), {}, {.padding = n})),
      CALL(conv2d_relu(image(), random_tensor({2, 4, 3, 3}), {}, {.dilation = n})),
      CALL(conv2d_relu(image(), random_tensor({2, 4, 3, 3}), {}, {.groups = n})),
      CALL(conv3d(volume(), random_tensor({2, 4, 3, 3, 3}), {}, {.stride = n})),
      CALL(conv3d(volume(), random_tensor({2, 4, 3, 3, 3}), {}, {.padding = n})),
      CALL(conv_transpose1d(signal(), random_tensor({4, 2, 3}), {}, {.stride = n})),
      CALL(conv_transpose1d(signal(), random_tensor({4, 2, 3}), {}, {.output_padding = n})),
      CALL(conv_transpose2d(image(), random_tensor({4, 2, 3, 3}), {}, {.stride = n})),
      CALL(conv_transpose2d(image(), random_tensor({4, 2, 3, 3}), {}, {.padding = n})),
      CALL(conv_transpose2d(image(), random_tensor({4, 2, 3, 3}), {}, {.dilation = n})),
      CALL(conv_transpose2d(image(), random_tensor({4, 2, 3, 3}), {}, {.groups = n})),
      CALL(conv_transpose2d(image(), random_tensor({4, 2, 3, 3}), {}, {.stride = n, .output_padding = n})),
      CALL(conv_transpose3d(volume(), random_tensor({4, 2, 3, 3, 3}), {}, {.stride = n})),
      CALL(conv2d_input_grad(image(), random_tensor({4, 2, 3, 3}), {1, 2, n, n})),
      CALL(conv3d_input_grad(volume(), random_tensor({4, 2, 3, 3, 3}), {n, 2, n, n, n})),
      CALL(conv2d_weight_grad(image(), image(), {4, 4, n, n}, true)),
      CALL(conv3d_weight_grad(volume(), volume(), {n, 4, 1, 1, n}, false)),
  };
}

std::vector<Call> pooling() {
  return {
      CALL(unfold(image(), {.kernel = n})),
      CALL(unfold(image(), {.kernel = n, .padding = n})),
      CALL(unfold(image(), {.kernel = 2, .stride = n})),
      CALL(unfold(image(), {.kernel = 2, .padding = n})),
      CALL(unfold(image(), {.kernel = 2, .dilation = n})),
      CALL(fold(signal(), n, {.kernel = 2})),
      CALL(fold(signal(), 4, {.kernel = n, .padding = n})),
      CALL(max_pool1d(signal(), {.kernel = n, .ceil_mode = true})),
      CALL(max_pool1d(signal(), {.kernel = 2, .stride = n, .padding = n})),
      CALL(max_pool2d(image(), {.kernel = n})),
      CALL(max_pool2d(image(), {.kernel = 2, .stride = n, .ceil_mode = true})),
      CALL(max_pool2d(image(), {.kernel = n, .padding = n})),
      CALL(max_pool2d(image(), {.kernel = 2, .dilation = n, .ceil_mode = true})),
      CALL(max_pool3d(volume(), {.kernel = n, .stride = n, .ceil_mode = true})),
      CALL(max_pool1d_with_indices(signal(), {.kernel = n})),
      CALL(max_pool2d_with_indices(image(), {.kernel = n})),
      CALL(max_pool3d_with_indices(volume(), {.kernel = 2, .stride = n})),
      CALL(avg_pool1d(signal(), {.kernel = n, .stride = n, .ceil_mode = true})),
      CALL(avg_pool2d(image(), {.kernel = n, .padding = n})),
      CALL(avg_pool2d(image(), {.kernel = 2, .divisor_override = n})),
      CALL(avg_pool3d(volume(), {.kernel = n, .stride = n, .ceil_mode = true})),
      CALL(lp_pool1d(signal(), {.p = 2.0, .kernel = n})),
      CALL(lp_pool2d(image(), {.p = 2.0, .kernel = 2, .stride = n})),
      CALL(lp_pool3d(volume(), {.p = 2.0, .kernel = 2, .stride = n})),
      CALL(fractional_max_pool2d(image(), {.kernel = n, .output = 2})),
      CALL(fractional_max_pool2d(image(), {.kernel = 2, .output = n})),
      CALL(fractional_max_pool3d(volume(), {.kernel = n, .output = n})),
      CALL(adaptive_avg_pool1d(signal(), n)),
      CALL(adaptive_avg_pool2d(image(), n)),
      CALL(adaptive_avg_pool3d(volume(), n)),
      CALL(adaptive_max_pool1d(signal(), n)),
      CALL(adaptive_max_pool2d(image(), n)),
      CALL(adaptive_max_pool3d(volume(), n)),
      CALL(adaptive_max_pool1d_with_indices(signal(), n)),
      CALL(adaptive_max_pool2d_with_indices(image(), n)),
      CALL(adaptive_max_pool3d_with_indices(volume(), n)),
      CALL(max_unpool(signal(), zeros({1, 4, 6}, {DType::kI64}), {n})),
      CALL(max_unpool(image(), zeros({1, 4, 6, 6}, {DType::kI64}), {n, n})),
      CALL(max_unpool(vector(), zeros({3}, {DType::kI64}), {n})),
  };
}

std::vector<Call> images() {
  return {
      CALL(interpolate(image(), {.size = {n, n}})),
      CALL(interpolate(empty({0, 1, 2, 2}), {.size = {n, 1}})),
      CALL(interpolate(signal(), {.size = {n}, .mode = Interpolation::kLinear})),
      CALL(interpolate(image(), {.size = {n, 2}, .mode = Interpolation::kArea})),
      CALL(interpolate(image(), {.size = {2, n}, .mode = Interpolation::kBicubic, .antialias = true})),
      CALL(interpolate(image(), {.scale_factor = {double(n)}})),
      CALL(pad(image(), {n, 0})),
      CALL(pad(image(), {n, n, n, n})),
      CALL(pad(image(), {n, kMin})),
      CALL(pad(image(), {n, kMax})),
      CALL(pad(image(), {n, 1}, {.mode = PadMode::kReplicate})),
      CALL(pad(image(), {1, n}, {.mode = PadMode::kReflect})),
      CALL(pad(image(), {n, n}, {.mode = PadMode::kCircular})),
      CALL(pixel_shuffle(image(), n)),
      CALL(pixel_shuffle(empty({1, 0, 2, 2}), n)),
      CALL(pixel_unshuffle(image(), n)),
      CALL(pixel_unshuffle(empty({1, 4, 0, 0}), n)),
      CALL(channel_shuffle(image(), n)),
      CALL(upfirdn2d(image(), random_tensor({2, 2}), {.up = n})),
      CALL(upfirdn2d(image(), random_tensor({2, 2}), {.down = n})),
      CALL(upfirdn2d(image(), random_tensor({2, 2}), {.padding = {.left = n, .right = n}})),
      CALL(upfirdn2d(image(), random_tensor({2, 2}), {.padding = {.left = n, .right = kMax}})),
      CALL(upfirdn2d(image(), random_tensor({2}), {.padding = {.top = n}})),
      CALL(upsample2d(image(), random_tensor({2}), n)),
      CALL(downsample2d(image(), random_tensor({2}), n)),
      CALL(affine_grid(random_tensor({1, 2, 3}), n)),
      CALL(affine_grid(random_tensor({1, 2, 3}), Size2(1, n))),
  };
}

std::vector<Call> calls() {
  std::vector<Call> all;
  for (const auto family : {creation, views, rearrangements, joins, indexing, reductions, sorts, matrices,
                            functions, convolutions, pooling, images})
    for (Call& call : family()) all.push_back(std::move(call));
  return all;
}

// Describes an untyped exception or a call of more than 5 s; empty if neither.
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
    // A larger allocation fails instead of filling the machine's memory.
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
      EXPECT_EQ(fault, "") << call.text << " with " << n;
    }
  EXPECT_LT(memory_stats().peak_bytes, int64_t{1} << 30);
}

// The ops that take an integer or an options struct with one, read from the headers of ops.
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
  for (const Call& call : calls()) tried.insert(call.op());
  const std::set<std::string> ops = ops_with_integers();
  EXPECT_GT(ops.size(), 100u) << "the headers were not found";
  std::string missing;
  for (const std::string& op : ops)
    if (!tried.count(op)) missing += " " + op;
  EXPECT_EQ(missing, "") << "ops with integers that the table does not try";
}

TEST_F(Bounds, SizesThatOverflowSaySo) {
  EXPECT_ERROR(ValueError, repeat_interleave(vector(), numbers({kMax, kMax, 4}), 0), "[repeat_interleave]",
               "64 bits");
  EXPECT_ERROR(Error, pixel_shuffle(image(), int64_t{1} << 32), "[pixel_shuffle]", "at most 2147483647");
  EXPECT_ERROR(Error, unfold(image(), {.kernel = int64_t{1} << 30, .padding = int64_t{1} << 30}), "[unfold]");
  EXPECT_ERROR(ValueError, pad(image(), {kMax, 0}), "[pad]", "at most", "9223372036854775807");
  EXPECT_ERROR(ValueError, upfirdn2d(image(), random_tensor({2, 2}), {.padding = {.left = kMax}}),
               "[upfirdn2d]", "at most", "9223372036854775807");
  EXPECT_ERROR(ValueError, max_pool2d(image(), {.kernel = 2, .stride = kMax}),
               "[max_pool2d] stride must be at most 2147483647, got 9223372036854775807");
  EXPECT_ERROR(ValueError, max_pool2d(image(), {.kernel = 2, .stride = -1}),
               "[max_pool2d] stride must be at least 0, got -1");
  EXPECT_ERROR(ValueError, conv2d(image(), random_tensor({2, 4, 3, 3}), {}, {.stride = kMax}),
               "[conv2d] stride must be at most 2147483647, got 9223372036854775807");
}

TEST_F(Bounds, SizesAreCheckedBeforeTheWork) {
  const int64_t large = int64_t{1} << 40;
  EXPECT_ERROR(ShapeError, tril_indices(large, large), "[tril_indices]");
  EXPECT_ERROR(Error, interpolate(image(), {.size = {large, large}}), "[interpolate]");
  EXPECT_ERROR(Error, combinations(vector(), large, {.with_replacement = true}), "[combinations]");
  EXPECT_ERROR(Error, tensor_split(vector(), large), "[tensor_split]", "at most");
  EXPECT_ERROR(Error, pad(image(), {large, 0}), "[pad]", "out of memory");
  EXPECT_ERROR(Error, pad(image(), {large, 0}, {.mode = PadMode::kReplicate}), "[pad]", "at most");
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
