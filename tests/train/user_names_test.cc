// Compiles only if `using namespace gradus` does not clash with a program's functions train, test, evaluate,
// sample.
#include <gtest/gtest.h>

#include "gradus/gradus.h"

using namespace gradus;

namespace {
int calls = 0;
}

void train() { ++calls; }
void train(nn::Module&) { ++calls; }
void test() { ++calls; }
void evaluate() { ++calls; }
void sample() { ++calls; }

TEST(UserNames, MeetNoNamespace) {
  nn::Dropout net;
  train();
  train(net);
  test();
  evaluate();
  sample();
  EXPECT_EQ(calls, 5);
}
