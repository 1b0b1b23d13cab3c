// Tests of the data sets in memory (TensorDataset, Subset, ConcatDataset), of batches and their errors, of
// random numbers in Dataset::get, and of the ownership rules of DatasetRef and DatasetArg.
#include "gradus/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <type_traits>

#include "gradus/tensor/runtime/context.h"
#include "gradus/tests/support/error.h"

namespace gradus::data {
namespace {

using ::testing::ElementsAre;

// Sample i has the input {2 * i, 2 * i + 1} and the target 10 * i.
TensorDataset five_rows() {
  return TensorDataset(tensor<float>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {5, 2}),
                       tensor<int64_t>({0, 10, 20, 30, 40}, {5}));
}

// Sample i has an input f32[3] filled with i, and the target i. Sample 13 cannot be read. If `ragged`, the
// inputs of samples 0, 3, 6, ... are f32[2].
class Numbers : public Dataset {
 public:
  explicit Numbers(int64_t size, bool ragged = false) : size_(size), ragged_(ragged) {}
  std::string name() const override { return "Numbers"; }
  int64_t size() const override { return size_; }
  Sample get(int64_t i) const override {
    check_index(i);
    if (i == 13) throw FileError("decode", "13.png: cut short");
    return {tensor<float>(std::vector<float>(ragged_ && i % 3 == 0 ? 2 : 3, float(i)),
                          {ragged_ && i % 3 == 0 ? 2 : 3}),
            scalar(double(i))};
  }

 private:
  int64_t size_;
  bool ragged_;
};

// Each sample is the first random number that an op in get() draws from the generator of the current Context.
class Draws : public Dataset {
 public:
  int64_t size() const override { return 100; }
  Sample get(int64_t) const override {
    const PhiloxKey key = Context::current().generator->next();
    return {scalar(double(philox(key.seed, key.stream, 0)[0]), {.dtype = DType::kF64}), {}};
  }
};

TEST(TensorDataset, GivesRowsAndBatches) {
  const TensorDataset d = five_rows();
  ASSERT_EQ(d.size(), 5);
  const Sample s = d.get(3);
  EXPECT_EQ(s.input.shape(), Shape({2}));
  EXPECT_THAT(s.input.to_vector<float>(), ElementsAre(6, 7));
  EXPECT_EQ(s.target.item<int64_t>(), 30);
  const std::vector<int64_t> indices = {4, 0, 4};
  const Batch b = d.get_batch(indices);
  EXPECT_EQ(b.size(), 3);
  EXPECT_EQ(b.input.shape(), Shape({3, 2}));
  EXPECT_THAT(b.input.to_vector<float>(), ElementsAre(8, 9, 0, 1, 8, 9));
  EXPECT_THAT(b.target.to_vector<int64_t>(), ElementsAre(40, 0, 40));
  EXPECT_EQ(b.indices, indices);
}

TEST(TensorDataset, WorksWithoutTargetsAndWithStridedTensors) {
  const Tensor x = tensor<float>({0, 1, 2, 3, 4, 5}, {2, 3});
  const TensorDataset d(view_as_strided(x, {3, 2}, {1, 3}, 0));
  EXPECT_THAT(d.get(1).input.to_vector<float>(), ElementsAre(1, 4));
  EXPECT_FALSE(d.get(1).target.defined());
  EXPECT_FALSE(d.get_batch(std::vector<int64_t>{0, 2}).target.defined());
}

TEST(TensorDataset, RejectsWhatDoesNotFit) {
  EXPECT_THROW(TensorDataset(scalar(1)), ShapeError);
  EXPECT_ERROR(ShapeError, TensorDataset(empty({3, 2}), empty({4})), "f32[3,2]", "f32[4]");
  EXPECT_THROW(five_rows().get(5), IndexError);
  EXPECT_THROW(five_rows().get(-1), IndexError);
  EXPECT_THROW(five_rows().get_batch(std::vector<int64_t>{0, 5}), IndexError);
}

TEST(Dataset, DefaultBatchEqualsStackedSamples) {
  const Numbers d(10);
  const Batch b = d.get_batch(std::vector<int64_t>{7, 2});
  EXPECT_EQ(b.input.shape(), Shape({2, 3}));
  EXPECT_THAT(b.input.to_vector<float>(), ElementsAre(7, 7, 7, 2, 2, 2));
  EXPECT_EQ(b.target.shape(), Shape({2}));
  EXPECT_THAT(b.target.to_vector<float>(), ElementsAre(7, 2));
}

TEST(Dataset, CollateCopiesStridedSamples) {
  const Tensor x = tensor<float>({0, 1, 2, 3, 4, 5}, {2, 3});
  const Tensor t = view_as_strided(x, {3, 2}, {1, 3}, 0);
  const Batch b = collate({{t, {}}, {t, {}}}, std::vector<int64_t>{0, 1}, "d");
  EXPECT_THAT(b.input.to_vector<float>(), ElementsAre(0, 3, 1, 4, 2, 5, 0, 3, 1, 4, 2, 5));
}

// A SampleError has the data set's name and the index, and nests the exception that get() threw.
TEST(Dataset, ErrorsNameTheSampleAndKeepTheirCause) {
  const Numbers d(20);
  try {
    d.get_batch(std::vector<int64_t>{1, 13, 2});
    FAIL();
  } catch (const SampleError& e) {
    EXPECT_EQ(e.dataset, "Numbers");
    EXPECT_EQ(e.index, 13);
    EXPECT_STREQ(e.what(), "[Numbers] sample 13: [decode] 13.png: cut short");
    EXPECT_THROW(std::rethrow_if_nested(e), FileError);
  }
}

TEST(Dataset, SamplesThatCannotBeStackedAreAnErrorThatShowsBoth) {
  EXPECT_ERROR(SampleError, Numbers(9, true).get_batch(std::vector<int64_t>{1, 2, 3}), "sample 3", "f32[2]",
               "f32[3]", "sample 2");
}

// get_batch gives each sample its own generator, so the random numbers of a sample depend on the seed, the
// index and the number of earlier batches, but not on the sample's position in the batch.
TEST(Dataset, RandomNumbersBelongToTheSample) {
  const Draws d;
  const auto draw = [&](std::vector<int64_t> indices) {
    manual_seed(5);
    return d.get_batch(indices).input.to_vector<double>();
  };
  const auto ab = draw({3, 4}), ba = draw({4, 3});
  EXPECT_EQ(ab[0], ba[1]);
  EXPECT_EQ(ab[1], ba[0]);
  EXPECT_NE(ab[0], ab[1]);
  const auto again = d.get_batch(std::vector<int64_t>{4, 3}).input.to_vector<double>();
  EXPECT_NE(again[0], ba[0]) << "a second batch must draw anew";
}

// Batch::indices are indices in the subset; a SampleError has the index in the underlying data set.
TEST(Subset, SelectsInOrderAndNamesTheUnderlyingSample) {
  const Numbers d(20);
  const Subset s(d, {5, 13, 0});
  EXPECT_EQ(s.size(), 3);
  EXPECT_EQ(s.get(0).target.item<int64_t>(), 5);
  const Batch b = s.get_batch(std::vector<int64_t>{2, 0});
  EXPECT_THAT(b.target.to_vector<float>(), ElementsAre(0, 5));
  EXPECT_THAT(b.indices, ElementsAre(2, 0));
  EXPECT_ERROR(SampleError, s.get_batch(std::vector<int64_t>{0, 1}), "[Numbers] sample 13");
  EXPECT_THROW(Subset(d, {20}), IndexError);
  EXPECT_THROW(s.get(3), IndexError);
  EXPECT_EQ(Subset::first(d, 4).size(), 4);
  EXPECT_EQ(Subset::first(d, 400).size(), 20);
}

TEST(Subset, OwnsATemporary) {
  const Subset s(Numbers(20), {5});
  EXPECT_EQ(s.get(0).target.item<int64_t>(), 5);
}

// In a function that returns DatasetRef, `return set;` moves the local data set into the DatasetRef, which
// owns the data set. An lvalue does not convert to DatasetRef implicitly; DatasetRef(set) borrows the lvalue.
// DatasetArg, the type of parameters, borrows lvalues implicitly.
TEST(DatasetRef, BorrowsOnlyWhenItSaysSo) {
  const auto local = []() -> DatasetRef {
    Numbers set(20);
    return set;
  };
  const auto constant = []() -> DatasetRef {
    const Numbers set(21);
    return set;
  };
  EXPECT_EQ(local()->get(5).target.item<int64_t>(), 5);
  EXPECT_EQ(constant()->size(), 21);
  static_assert(std::is_convertible_v<Numbers, DatasetRef>);
  static_assert(std::is_convertible_v<std::shared_ptr<const Dataset>, DatasetRef>);
  static_assert(!std::is_convertible_v<Numbers&, DatasetRef>);
  static_assert(!std::is_convertible_v<const Numbers&, DatasetRef>);
  static_assert(std::is_convertible_v<const Numbers&, DatasetArg>);
  const Numbers lasting(3);
  EXPECT_EQ(&*DatasetRef(lasting), &lasting);
  EXPECT_EQ(&*DatasetArg(lasting), &lasting);
  EXPECT_EQ(&*DatasetArg(DatasetRef(lasting)), &lasting);
}

// Index 15 of 2 + 0 + 14 samples is sample 13 of the third data set; a SampleError has the index 13.
TEST(ConcatDataset, PlacesSetsOneAfterTheOther) {
  const Numbers a(2), none(0), b(14);
  const ConcatDataset all({a, none, b});
  ASSERT_EQ(all.size(), 16);
  EXPECT_THAT(all.get_batch(std::vector<int64_t>{0, 1, 2, 14}).target.to_vector<float>(),
              ElementsAre(0, 1, 0, 12));
  try {
    all.get_batch(std::vector<int64_t>{15});
    FAIL();
  } catch (const SampleError& e) {
    EXPECT_EQ(e.index, 13);
  }
  EXPECT_THROW(all.get(16), IndexError);
  EXPECT_THROW(ConcatDataset({}), ValueError);
}
}  // namespace
}  // namespace gradus::data
