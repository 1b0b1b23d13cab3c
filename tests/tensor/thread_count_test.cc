// OMP_NUM_THREADS is the default of num_threads().
#include <gtest/gtest.h>

#include <cstdlib>

#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus {
namespace {

// A static initializer: the variable is read once. The first number is for the outermost nesting level.
const bool is_set = setenv("OMP_NUM_THREADS", "3,2", 1) == 0;

TEST(ThreadCount, IsThatOfOpenMpsVariable) {
  ASSERT_TRUE(is_set);
  EXPECT_EQ(num_threads(), 3);
  Context fresh;
  ContextScope scope(fresh);
  EXPECT_EQ(num_threads(), 3);
  set_num_threads(2);
  EXPECT_EQ(num_threads(), 2);
}

}  // namespace
}  // namespace gradus
