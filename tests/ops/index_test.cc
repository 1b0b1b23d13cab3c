// Indexing with x[{...}], gather, scatter, index ops and embedding: values written out, gradients by
// differences, recordings, errors. x[...] is an Indexed, which `values` converts to a Tensor.
#include "gradus/autograd/ops/index.h"

#include "gradus/autograd/functional.h"
#include "gradus/autograd/gradcheck.h"
#include "gradus/autograd/indexing.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/comparison.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/embedding.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

using Values = std::vector<float>;
using Indices = std::vector<int64_t>;

Tensor counting(const Shape& shape) {
  Tensor x = empty(shape);
  for (int64_t i = 0; i < x.numel(); ++i) x.ptr<float>()[i] = static_cast<float>(i);
  return x;
}

Tensor i64(const Indices& v, const Shape& shape) { return tensor(v, shape); }
Tensor i64(const Indices& v) { return tensor(v, {static_cast<int64_t>(v.size())}); }
Tensor values(const Tensor& x) { return x; }

// --- reading ---

TEST(Indexing, NumbersAndSlicesGiveViews) {
  const Tensor x = counting({3, 4, 5});
  const Tensor y = x[{1, Slice(1, 3), Slice(None, None, 2)}];
  EXPECT_EQ(y.to_vector<float>(), (Values{25, 27, 29, 30, 32, 34}));
  EXPECT_TRUE(y.storage() == x.storage());
  EXPECT_EQ(values(x[0]).shape(), (Shape{4, 5}));
  EXPECT_EQ((x[{-1, -1, -1}].item<int>()), 59);
  EXPECT_EQ(values(x[Slice(1)]).shape(), (Shape{2, 4, 5}));
  EXPECT_EQ(values(x[{Slice(-2, None), 0}]).to_vector<float>(),
            (Values{20, 21, 22, 23, 24, 40, 41, 42, 43, 44}));
  EXPECT_EQ(values(x[{Slice(2, 1)}]).shape(), (Shape{0, 4, 5}));
  EXPECT_EQ(values(x[{}]).shape(), x.shape());
}

TEST(Indexing, NoneAndEllipsis) {
  const Tensor x = counting({3, 4, 5});
  EXPECT_EQ(values(x[{Ellipsis, 0}]).shape(), (Shape{3, 4}));
  EXPECT_EQ(values(x[{0, Ellipsis, None}]).shape(), (Shape{4, 5, 1}));
  EXPECT_EQ(values(x[{None, Ellipsis, Slice(0, 2), None, 1}]).shape(), (Shape{1, 3, 2, 1}));
  EXPECT_EQ(values(x[{0, 1, 2, Ellipsis}]).shape(), Shape{});
  EXPECT_EQ(values(x[None]).shape(), (Shape{1, 3, 4, 5}));
}

TEST(Indexing, TensorsBroadcastTogether) {
  const Tensor x = counting({3, 4});
  const Tensor rows = i64({2, 0}), columns = i64({-1, 1});
  EXPECT_EQ(values(x[rows]).to_vector<float>(), (Values{8, 9, 10, 11, 0, 1, 2, 3}));
  EXPECT_EQ(values(x[{rows, columns}]).to_vector<float>(), (Values{11, 1}));
  EXPECT_EQ(values(x[{i64({2, 0}, {2, 1}), columns}]).to_vector<float>(), (Values{11, 9, 3, 1}));
  EXPECT_EQ(values(x[{Slice(1), columns}]).to_vector<float>(), (Values{7, 5, 11, 9}));
  EXPECT_EQ(values(x[{to(rows, DType::kI32)}]).shape(), (Shape{2, 4}));
  EXPECT_EQ(values(x[i64({1}, {})]).to_vector<float>(), (Values{4, 5, 6, 7}));
  EXPECT_EQ(values(x[i64({})]).shape(), (Shape{0, 4}));
}

TEST(Indexing, SeparatedTensorsPutTheirDimsInFront) {
  const Tensor x = counting({2, 3, 4, 5});
  EXPECT_EQ(values(x[{Slice(), i64({0, 2, 1}), Slice(), i64({1})}]).shape(), (Shape{3, 2, 4}));
  EXPECT_EQ(values(x[{Slice(), i64({0, 2, 1}), i64({1})}]).shape(), (Shape{2, 3, 5}));
  EXPECT_EQ((x[{Slice(), i64({0, 2, 1}), Slice(), i64({1})}].get().to_vector<float>()[0]), 1);
}

TEST(Indexing, Masks) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(values(x[gt(x, 2)]).to_vector<float>(), (Values{3, 4, 5}));
  EXPECT_EQ(values(x[lt(x, 0)]).shape(), Shape{0});
  const Tensor rows = to(tensor({0, 1}), DType::kBool);
  EXPECT_EQ(values(x[rows]).to_vector<float>(), (Values{3, 4, 5}));
  EXPECT_EQ(values(x[{rows, Slice(1)}]).to_vector<float>(), (Values{4, 5}));
  EXPECT_EQ(
      masked_select(x, rows.numel() == 2 ? to(tensor({1, 0, 1}), DType::kBool) : rows).to_vector<float>(),
      (Values{0, 2, 3, 5}));
  EXPECT_EQ(nonzero(gt(x, 3)).to_vector<int64_t>(), (Indices{1, 1, 1, 2}));
  EXPECT_EQ(nonzero(tensor({0.f, 2.f})).to_vector<int64_t>(), Indices{1});
}

TEST(Indexing, NamesWhatIsOutOfRange) {
  const Tensor x = counting({3, 4});
  EXPECT_ERROR(IndexError, values(x[{0, 4}]), "index 4", "size 4");
  EXPECT_ERROR(IndexError, values(x[-4]), "index -4", "dim 0", "size 3");
  EXPECT_ERROR(IndexError, values(x[{Slice(), i64({0, 7})}]), "index 7", "dim 1", "size 4");
  EXPECT_ERROR(IndexError, values(x[{0, 0, 0}]), "3 dims", "f32[3,4] cpu");
  EXPECT_ERROR(IndexError, values(x[{Ellipsis, Ellipsis}]), "Ellipsis");
  EXPECT_ERROR(IndexError, values(x[to(tensor({1, 0}), DType::kBool)]), "mask", "bool[2]", "f32[3,4]");
  EXPECT_ERROR(DTypeError, values(x[tensor({0.f})]), "f32[1] cpu");
  EXPECT_ERROR(ValueError, values(x[Slice(0, 3, -1)]), "-1");
}

// --- assigning ---

TEST(Indexing, AssignsInPlaceAndBumpsTheVersion) {
  Tensor x = counting({2, 3});
  const Tensor alias = x;
  const uint32_t version = x.storage()->version();
  x[{0, Slice(1)}] = tensor({-1.f, -2.f});
  x[{1}] = 9;
  EXPECT_EQ(alias.to_vector<float>(), (Values{0, -1, -2, 9, 9, 9}));
  EXPECT_TRUE(alias.is_same(x));
  EXPECT_GT(x.storage()->version(), version);
  x[{Slice(), i64({0, 2})}] = tensor({1, 2});
  EXPECT_EQ(x.to_vector<float>(), (Values{1, -1, 2, 1, 9, 2}));
  x[lt(x, 0)] = 0;
  EXPECT_EQ(x.to_vector<float>(), (Values{1, 0, 2, 1, 9, 2}));
  x[{Slice(0, 1)}] = x[{Slice(1, 2)}];
  EXPECT_EQ(x.to_vector<float>(), (Values{1, 9, 2, 1, 9, 2}));
  x[0] += tensor({1.f});
  x[{Ellipsis, 2}] *= tensor({10.f});
  EXPECT_EQ(x.to_vector<float>(), (Values{2, 10, 30, 1, 9, 20}));
  alias[{0, 0}] = -7;
  EXPECT_EQ((x[{0, 0}].item<float>()), -7);
}

TEST(Indexing, OverlappingPartsOfOneTensor) {
  Tensor x = counting({6});
  x[{Slice(1)}] = x[{Slice(0, 5)}];
  EXPECT_EQ(x.to_vector<float>(), (Values{0, 0, 1, 2, 3, 4}));
}

TEST(Indexing, RefusesValuesThatDoNotFit) {
  Tensor x = counting({2, 3});
  EXPECT_THROW(x[0] = tensor({1.f, 2.f}), ShapeError);
  EXPECT_THROW((x[{Slice(), i64({0, 1})}] = tensor({1.f, 2.f, 3.f})), ShapeError);
  x[0] = reshape(tensor({1.f, 2.f, 3.f}), {1, 1, 3});
  EXPECT_EQ(x.to_vector<float>(), (Values{1, 2, 3, 3, 4, 5}));
}

TEST(Indexing, OnARecordedTensorMakesANewValue) {
  Tensor w = counting({2, 3}), v = tensor({10.f, 20.f});
  GradManager gm;
  gm.attach(std::vector<Tensor>{w, v});
  const Tensor leaf = w;
  {
    auto recording = gm.record();
    Tensor y = w * 2;
    const Tensor before = y;
    y[{1, Slice(0, 2)}] = v;
    EXPECT_EQ(before.to_vector<float>(), (Values{0, 2, 4, 6, 8, 10}));
    EXPECT_EQ(y.to_vector<float>(), (Values{0, 2, 4, 10, 20, 10}));
    y[{i64({0})}] = 1;
    y[{0, 2}] *= tensor({3.f});
    EXPECT_EQ(y.to_vector<float>(), (Values{1, 1, 3, 10, 20, 10}));
    Tensor constant = counting({3});
    constant[{Slice(0, 2)}] = v;  // the value is recorded: so is the result
    gm.backward(sum(square(y)) + sum(constant * 100));
  }
  EXPECT_EQ(leaf.grad().to_vector<float>(), (Values{0, 0, 0, 0, 0, 40}));
  EXPECT_EQ(v.grad().to_vector<float>(), (Values{120, 140}));
}

TEST(Indexing, AConstHandleCannotTakeANewValue) {
  const Tensor w = counting({3});
  GradManager gm;
  gm.attach(w);
  auto recording = gm.record();
  const Tensor y = w * 2;
  EXPECT_ERROR(StateError, y[0] = 1, "const handle", "f32[3] cpu");
}

// Assigning would make a new tensor while the GradManager keeps the old one.
TEST(Indexing, AnAttachedTensorIsNotReplaced) {
  Tensor w = counting({2, 3}), v = tensor({10.f});
  const Tensor attached = w, mask = gt(w, 4);
  GradManager of_w, of_v;
  of_w.attach(w), of_v.attach(v);
  const auto expect_refused = [](const std::function<void()>& f) {
    expect_error<StateError>(f, {"attached", "f32[2,3] cpu", "no_record()", "clone(x)"});
  };
  {
    auto recording = of_w.record();
    expect_refused([&] { w[0] = 1; });
    expect_refused([&] { w[0][1] = v; });
    expect_refused([&] { w[mask] = 1; });
    expect_refused([&] { w[mask][0] = 1; });
    expect_refused([&] { w[0] *= 2; });
    expect_refused([&] { w += 1; });
    Tensor copy = clone(w);
    copy[0] = v;
    of_w.backward(sum(copy));
  }
  {
    auto recording = of_v.record();  // follows the value alone
    expect_refused([&] { w[0] = v; });
    expect_refused([&] { w += v; });
    const auto off = no_record();
    w[0] = v;
  }
  EXPECT_TRUE(w.is_same(attached));
  EXPECT_EQ(w.to_vector<float>(), (Values{10, 10, 10, 3, 4, 5}));
  EXPECT_EQ(w.grad().to_vector<float>(), (Values{0, 0, 0, 1, 1, 1}));
  w[1] = 0;
  w += 1;
  EXPECT_EQ(attached.to_vector<float>(), (Values{11, 11, 11, 1, 1, 1}));
}

TEST(Indexing, GradientsOfReadsAndAssignments) {
  const auto f = [](const std::vector<Tensor>& in) {
    Tensor x = in[0] * 1;
    const Tensor m = to(tensor({1, 0, 1}), DType::kBool);
    x[{0, Slice(None, None, 2)}] = in[1] * in[1];
    x[{Slice(), i64({1, 2}), i64({0, 0})}] = in[1];
    x[{1, m}] *= in[2];
    return square(x[{Slice(), i64({0, 2, 0}), None}]) + x[{Ellipsis, m, Slice(0, 2)}].get()[{1, 0}];
  };
  const std::vector<Tensor> x = {random_tensor({2, 3, 2}, DType::kF64), random_tensor({2}, DType::kF64, 2),
                                 random_tensor({1}, DType::kF64, 3)};
  const auto first = autograd::gradcheck(f, x), second = autograd::gradgradcheck(f, x);
  EXPECT_TRUE(first) << first.message;
  EXPECT_TRUE(second) << second.message;
}

// --- gather, scatter, index_select ---

TEST(Index, GatherAndScatterAreTransposes) {
  const Tensor x = random_tensor({4, 5, 6}), dy = random_tensor({3, 7, 2}, DType::kF32, 2);
  Tensor index = empty({3, 7, 2}, {.dtype = DType::kI64});
  for (int64_t i = 0; i < index.numel(); ++i) index.ptr<int64_t>()[i] = i * i % 5;
  const Tensor y = gather(x, 1, index);
  EXPECT_EQ(y.to_vector<float>()[3], (x[{0, 4, 1}].item<float>()));  // index[0,1,1] is 9 % 5
  EXPECT_NEAR(sum_of_products(y, dy), sum_of_products(x, gather_backward(dy, x.shape(), 1, index)), 1e-5);
}

TEST(Index, RepeatedIndicesAddInOrderForAnyThreadCount) {
  const Tensor src = random_tensor({5000, 130});
  Tensor index = empty({5000}, {.dtype = DType::kI64});
  for (int64_t i = 0; i < 5000; ++i) index.ptr<int64_t>()[i] = i * 7919 % 11;
  const int before = num_threads();
  Tensor x = empty({11, 130});
  fill_(x, 0);
  set_num_threads(1);
  const Values one = index_add(x, 0, index, src).to_vector<float>();
  set_num_threads(3);
  EXPECT_EQ(index_add(x, 0, index, src).to_vector<float>(), one);
  EXPECT_EQ(scatter_add(x, 0, reshape(index, {5000, 1}), src).to_vector<float>()[130], one[130]);
  set_num_threads(before);
}

TEST(Index, ScatterKeepsTheLastOfEquals) {
  const Tensor x = counting({4});
  EXPECT_EQ(scatter(x, 0, i64({1, 1}), tensor({8.f, 9.f})).to_vector<float>(), (Values{0, 9, 2, 3}));
  EXPECT_EQ(index_copy(x, 0, i64({3, 3}), tensor({8.f, 9.f})).to_vector<float>(), (Values{0, 1, 2, 9}));
  EXPECT_EQ(x.to_vector<float>(), (Values{0, 1, 2, 3}));
}

TEST(Index, WorksOnAnyLayoutAndDType) {
  const Tensor x = counting({2, 3, 2, 2}), at = i64({2, 0});
  for (DType t :
       {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64, DType::kI32, DType::kU8}) {
    const Tensor y = to(x, t);
    EXPECT_EQ(index_select(channels_last(y), 1, at).to_vector<float>(),
              index_select(x, 1, at).to_vector<float>());
    const Tensor two = index_select(y, 1, at);
    EXPECT_EQ(index_add(y, 1, at, two).to_vector<float>(),
              index_add(x, 1, at, to(two, DType::kF32)).to_vector<float>());
  }
  const Tensor b = to(tensor({0, 1, 0}), DType::kBool);
  EXPECT_EQ(index_add(b, 0, i64({0}), to(tensor({1}), DType::kBool)).to_vector<int>(),
            (std::vector<int>{1, 1, 0}));
}

TEST(Index, ChecksWhatItIsGiven) {
  const Tensor x = counting({3, 4});
  EXPECT_ERROR(IndexError, index_select(x, 1, i64({4})), "[index_select]", "index 4", "dim 1", "size 4");
  EXPECT_ERROR(IndexError, index_select(x, 1, i64({-1})), "index -1");
  EXPECT_ERROR(IndexError, gather(x, 0, i64({3}, {1, 1})), "[gather]", "index 3", "dim 0", "size 3");
  EXPECT_ERROR(IndexError, scatter_add(x, 1, i64({9}, {1, 1}), counting({1, 1})), "[scatter_add]", "index 9");
  EXPECT_ERROR(ShapeError, gather(x, 0, i64({0, 0, 0, 0, 0}, {1, 5})), "i64[1,5]", "f32[3,4]");
  EXPECT_ERROR(ShapeError, gather(x, 0, i64({0})), "i64[1]");
  EXPECT_ERROR(ShapeError, index_add(x, 0, i64({0}), counting({2, 4})), "[2,4]", "[1,4]");
  EXPECT_ERROR(ShapeError, index_select(x, 0, i64({0}, {1, 1})), "1-dimensional");
  EXPECT_ERROR(DTypeError, index_select(x, 0, tensor({0.f})), "i64 or i32", "f32[1]");
  EXPECT_ERROR(DTypeError, index_add(x, 0, i64({0}), i64({0, 0, 0, 0}, {1, 4})), "f32", "i64");
  EXPECT_ERROR(DTypeError, masked_fill(x, x, 0), "bool");
}

TEST(Index, OfNothing) {
  const Tensor x = counting({3, 4}), none = i64({});
  EXPECT_EQ(index_select(x, 0, none).shape(), (Shape{0, 4}));
  EXPECT_EQ(index_add(x, 0, none, empty({0, 4})).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(gather(x, 1, i64({}, {3, 0})).shape(), (Shape{3, 0}));
  EXPECT_EQ(scatter(x, 1, i64({}, {3, 0}), 1.0).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(masked_select(empty({0}), to(empty({0}), DType::kBool)).shape(), Shape{0});
  EXPECT_THROW(index_select(empty({0, 2}), 0, i64({0})), IndexError);
}

TEST(ScatterReduce, ProductsOfSeveralZerosHaveNoSecondOrder) {
  const Tensor x = tensor({2.0, 3.0}), src = tensor({0.0, 0.0, 4.0}), at = i64({0, 0, 1});
  const auto product = [&](const std::vector<Tensor>& v) {
    return scatter_reduce(x, 0, at, v[0], ScatterReduce::kProd);
  };
  const auto gradient = [&](const std::vector<Tensor>& v) {
    return autograd::grad(product, v, tensor({1.0, 1.0}))[0];
  };
  EXPECT_EQ(gradient({src}).to_vector<double>(), (std::vector<double>{0, 0, 3}));
  EXPECT_ERROR(StateError, autograd::grad(gradient, {src}, tensor({1.0, 1.0, 1.0})), "scatter_reduce",
               "second order");
}

TEST(Embedding, OptionsOfTheGradient) {
  const Tensor weight = counting({4, 2}), words = i64({3, 1, 3, 0});
  const auto gradient = [&](EmbeddingFuncOptions options) {
    return autograd::grad([&](const std::vector<Tensor>& v) { return embedding(words, v[0], options); },
                          {weight}, full({4, 2}, 6))[0]
        .to_vector<float>();
  };
  EXPECT_EQ(gradient({}), (Values{6, 6, 6, 6, 0, 0, 12, 12}));
  EXPECT_EQ(gradient({.padding_idx = -1}), (Values{6, 6, 6, 6, 0, 0, 0, 0}));
  EXPECT_EQ(gradient({.scale_grad_by_freq = true}), (Values{6, 6, 6, 6, 0, 0, 6, 6}));
}

TEST(Indexed, ComparesWithPythonForMixtures) {
  const Tensor x = counting({2, 3, 4, 5});
  const Tensor rows = to(tensor({1, 0, 1}), DType::kBool), two = i64({3, 0});
  EXPECT_EQ(values(x[{0, rows, two}]).shape(), (Shape{2, 5}));
  EXPECT_EQ(values(x[{Ellipsis, two, None}]).shape(), (Shape{2, 3, 4, 2, 1}));
  EXPECT_EQ(values(x[{two.numel() == 2 ? i64({1, 0}) : two, None, rows}]).shape(), (Shape{2, 1, 4, 5}));
  EXPECT_EQ(values(x[{None, i64({1}), Slice(), two}]).shape(), (Shape{2, 1, 3, 5}));
  EXPECT_ERROR(ValueError, values(x[Slice(None, None, -1)]), "-1");
}

}  // namespace
}  // namespace gradus
