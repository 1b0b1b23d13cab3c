// Element-wise integer, comparison, logical and select functors: the device's bits are the host's.
#include "elementwise_test.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/comparison.h"

namespace device_test {
namespace {

using namespace gradus::functors;  // NOLINT

template <class F> void test_integers(const char* name, const F& f) {
  Group group(std::string("integers ") + name);
  if (!group) return;
  test_functor<int64_t, int64_t, int64_t, int64_t, int64_t>(group, f);
  test_functor<int32_t, int32_t, int32_t, int32_t, int32_t>(group, f);
  test_functor<uint8_t, uint8_t, uint8_t, uint8_t, uint8_t>(group, f);
}
// i16 and i8 are computed in i32 by the strided kernel.
template <class T> void test_narrow(const char* name) {
  Group group(std::string("integers add in ") + name);
  if (group) test_functor<T, int32_t, int32_t, int32_t, int32_t>(group, Add{});
}
template <class F> void test_predicate(const char* name, const F& f) {
  Group group(std::string("comparison ") + name);
  if (!group) return;
  test_functor<float, float, bool, float, float>(group, f);
  test_functor<bf16, float, bool, float, float>(group, f);
  test_functor<double, double, bool, double, double>(group, f);
  test_functor<int64_t, int64_t, bool, int64_t, int64_t>(group, f);
}

}  // namespace

void test_elementwise_integers() {
  test_integers("add", Add{});
  test_integers("mul", Mul{});
  test_integers("remainder", Remainder{});
  test_integers("floor_divide", FloorDivide{});
  test_integers("bitwise_xor", BitwiseXor{});
  test_narrow<int16_t>("i16");
  test_narrow<int8_t>("i8");
  test_predicate("lt", Lt{});
  test_predicate("eq", Eq{});
  {
    Group group("logical_and");
    if (group) test_functor<bool, bool, bool, bool, bool>(group, LogicalAnd{});
  }
  {
    Group group("where");
    if (group) {
      test_functor<float, float, float, uint8_t, float, float>(group, Where{});
      test_functor<double, double, double, uint8_t, double, double>(group, Where{});
      test_functor<int64_t, int64_t, int64_t, uint8_t, int64_t, int64_t>(group, Where{});
    }
  }
}

}  // namespace device_test
