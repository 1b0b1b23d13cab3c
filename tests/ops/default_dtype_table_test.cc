// The default dtype must not affect ops on floating-point inputs: each row of the op table (op_table.h) gives
// the same dtype and bits under a default of f64 as under f32.
#include <gtest/gtest.h>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tensor/runtime/random.h"
#include "gradus/tests/ops/table/op_table.h"

namespace gradus::optest {
namespace {

// Sets the default dtype while alive.
struct DefaultDtype {
  explicit DefaultDtype(DType t) { set_default_dtype(t); }
  ~DefaultDtype() { set_default_dtype(DType::kF32); }
};

class DefaultDtypeTable : public testing::TestWithParam<size_t> {};

TEST_P(DefaultDtypeTable, RowsOfFloatsGiveTheSame) {
  const OpCase& row = all_rows()[GetParam()];
  set_num_threads(1);
  for (size_t sample = 0; sample < row.samples.size(); ++sample)
    for (DType t : row.dtypes) {
      if (!is_floating(t)) continue;
      const std::vector<Tensor> x = make_inputs(row, sample, t);
      if (std::none_of(x.begin(), x.end(), [](const Tensor& v) { return is_floating(v.dtype()); })) continue;
      const auto run = [&] {
        manual_seed(7);
        return row.run(x);
      };
      const Tensor want = run();
      const DefaultDtype scope(DType::kF64);
      const Tensor got = run();
      ASSERT_EQ(name_of(got.dtype()), name_of(want.dtype()))
          << row.op << "/" << row.variant << " of " << name_of(t);
      EXPECT_EQ(bits(got), bits(want)) << row.op << "/" << row.variant << " of " << name_of(t);
    }
}

INSTANTIATE_TEST_SUITE_P(All, DefaultDtypeTable, testing::Range(size_t(0), all_rows().size()));

}  // namespace
}  // namespace gradus::optest
