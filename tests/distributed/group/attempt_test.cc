// attempt, which runs a function on every rank: all ranks get all results, or throw the error of the first
// rank that failed, and the job continues. Ranks are threads.
#include "gradus/distributed/group/attempt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tests/distributed/threads.h"
#include "gradus/tests/support/error.h"

namespace gradus::dist {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <class E> std::string text_of(const std::function<std::string()>& f) {
  return error_of<E>([&] { attempt("test", f); });
}

TEST(Attempt, ReturnsWhatAllRanksReturn) {
  run_ranks(3, [] {
    const auto all = attempt("test", [] { return std::string(size_t(get_rank()), 'x'); });
    EXPECT_THAT(all, ElementsAre("", "x", "xx"));
  });
  EXPECT_THAT(attempt("test", [] { return "alone"; }), ElementsAre("alone"));
  EXPECT_THROW(attempt("test", []() -> std::string { throw FileError("read", "is gone"); }), FileError);
}

TEST(Attempt, AllRanksThrowTheFirstErrorAndGoOn) {
  run_ranks(4, [] {
    const std::string text = text_of<FileError>([]() -> std::string {
      if (get_rank() == 1) throw FileError("read", "run.ckpt is gone");
      if (get_rank() == 3) throw ShapeError("read", "is another one");
      return "";
    });
    EXPECT_EQ(text, "[read] run.ckpt is gone");
    const std::string with_context = text_of<ValueError>([]() -> std::string {
      if (get_rank() != 2) return "";
      ValueError error("check", "does not fit");
      error.add_context("while loading run.ckpt");
      throw error;
    });
    EXPECT_EQ(with_context, "while loading run.ckpt: [check] does not fit");
    EXPECT_EQ(attempt("test", [] { return "fine"; }).size(), 4u);
  });
}

TEST(Attempt, AnErrorOfAnotherKindNamesTheRank) {
  run_ranks(2, [] {
    const auto f = []() -> std::string {
      if (get_rank() == 1) throw std::out_of_range("no such place");
      return "";
    };
    if (get_rank() == 1)
      EXPECT_THROW(attempt("test", f), std::out_of_range);
    else
      EXPECT_THAT(text_of<PeerError>(f), HasSubstr("rank 1 failed: no such place"));
  });
}

}  // namespace
}  // namespace gradus::dist
