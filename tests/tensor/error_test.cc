// Error and its subclasses: text, op, context, hierarchy.
#include "gradus/tensor/base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradus {
namespace {

using testing::StrEq;

TEST(Error, TextStartsWithTheOpAndJoinsItsParts) {
  const ShapeError e("conv2d", "weight has ", 16, " input channels but x has ", 8, ": x ",
                     "f32[32,8,28,28] cpu");
  EXPECT_THAT(e.what(), StrEq("[conv2d] weight has 16 input channels but x has 8: x f32[32,8,28,28] cpu"));
  EXPECT_EQ(e.op(), "conv2d");
}

TEST(Error, ContextGoesBeforeTheTextOutermostFirst) {
  try {
    try {
      try {
        throw ValueError("scale", "expected a positive number, got ", -1);
      } catch (Error& e) {
        e.add_context("while running backward of conv2d (layer3.1.conv2)");
        throw;
      }
    } catch (Error& e) {
      e.add_context("rank 3");
      throw;
    }
  } catch (const ValueError& e) {  // the type survives
    EXPECT_THAT(e.what(), StrEq("rank 3: while running backward of conv2d (layer3.1.conv2): "
                                "[scale] expected a positive number, got -1"));
    EXPECT_EQ(e.op(), "scale");
  }
}

TEST(Error, EveryKindIsAnErrorAndARuntimeError) {
  EXPECT_THROW(throw ShapeError("op", ""), Error);
  EXPECT_THROW(throw DTypeError("op", ""), Error);
  EXPECT_THROW(throw DeviceError("op", ""), Error);
  EXPECT_THROW(throw IndexError("op", ""), Error);
  EXPECT_THROW(throw StateError("op", ""), Error);
  EXPECT_THROW(throw FileError("op", ""), std::runtime_error);
}

TEST(Error, OurOwnBugIsNoUserError) {
  try {
    throw InternalError("slot ", 3, " is empty");
  } catch (const Error&) {
    FAIL() << "caught as a user's mistake";
  } catch (const std::logic_error& e) {
    EXPECT_THAT(e.what(), StrEq("internal error: slot 3 is empty"));
  }
}

}  // namespace
}  // namespace gradus
