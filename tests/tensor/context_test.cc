// Context, the settings of a thread: defaults, snapshots for other threads, scopes that restore the previous
// one.
#include "gradus/tensor/runtime/context.h"

#include <string>
#include <thread>

#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

const Device kOther = Device::parse("cpu:1");

TEST(Context, EveryThreadStartsWithOneOfItsOwn) {
  Context* const here = &Context::current();
  EXPECT_EQ(here, &Context::current());
  std::thread([&] {
    EXPECT_NE(here, &Context::current());
    EXPECT_NE(here->generator, Context::current().generator);
    EXPECT_EQ(Context::current().device, kCPU);
    Context::current().device = kOther;
  }).join();
  EXPECT_EQ(here->device, kCPU);
}

TEST(Context, ASnapshotCarriesTheSettingsToAnotherThread) {
  Context mine = Context::current().snapshot();
  const ContextScope scope(mine);
  mine.device = kOther;
  mine.deterministic = mine.tf32 = true;
  set_num_threads(3);
  std::thread([ctx = Context::current().snapshot()]() mutable {
    const ContextScope scope(ctx);
    EXPECT_EQ(&Context::current(), &ctx);
    EXPECT_EQ(Context::current().device, kOther);
    EXPECT_TRUE(Context::current().deterministic);
    EXPECT_TRUE(Context::current().tf32);
    EXPECT_EQ(num_threads(), 3);
    set_num_threads(5);
  }).join();
  EXPECT_EQ(num_threads(), 3);
}

TEST(Context, ASnapshotSharesTheGenerator) {
  Context& mine = Context::current();
  Context copy = mine.snapshot();
  EXPECT_EQ(copy.generator, mine.generator);
  copy.device = kOther;
  EXPECT_EQ(mine.device, kCPU);
}

TEST(ContextScope, PutsTheFormerBackEvenAfterAnException) {
  Context* const outer = &Context::current();
  Context a, b;
  try {
    const ContextScope first(a);
    {
      const ContextScope second(b);
      EXPECT_EQ(&Context::current(), &b);
    }
    EXPECT_EQ(&Context::current(), &a);
    throw ValueError("body", "ends");
  } catch (const ValueError&) {
  }
  EXPECT_EQ(&Context::current(), outer);
}

TEST(Context, ManualSeedTouchesTheCurrentGeneratorOnly) {
  Context a, b;
  const ContextScope scope(a);
  manual_seed(7);
  EXPECT_EQ(a.generator->seed(), 7u);
  EXPECT_EQ(b.generator->seed(), 0u);
}

TEST(Context, ModulePathJoinsNamesAndSkipsEmptyOnes) {
  Context c;
  const std::string root, layer = "layer3", block = "1", conv = "conv2";
  EXPECT_EQ(c.module_path_text(), "");
  c.module_path = {&root, &layer, &block, &conv};
  EXPECT_EQ(c.module_path_text(), "layer3.1.conv2");
}

TEST(StreamScope, MakesAStreamCurrentForItsDeviceAlone) {
  const Stream mine = Stream::create(kOther);
  {
    const StreamScope scope(mine);
    EXPECT_EQ(current_stream(kOther), mine);
    EXPECT_TRUE(current_stream(kCPU).is_inline());
    EXPECT_EQ(current_stream(Device::parse("cpu:2")), Stream::of(Device::parse("cpu:2")));
    std::thread([] { EXPECT_EQ(current_stream(kOther), Stream::of(kOther)); }).join();
    std::thread([&, ctx = Context::current().snapshot()]() mutable {
      const ContextScope scope(ctx);
      EXPECT_EQ(current_stream(kOther), mine);
    }).join();
  }
  EXPECT_EQ(current_stream(kOther), Stream::of(kOther));
  EXPECT_TRUE(Context::current().streams.empty());
}

TEST(StreamScope, Nests) {
  const Stream a = Stream::create(kOther), b = Stream::create(kOther);
  const StreamScope outer(a);
  {
    const StreamScope inner(b);
    EXPECT_EQ(current_stream(kOther), b);
    const StreamScope innermost(Stream::of(kOther));
    EXPECT_EQ(current_stream(kOther), Stream::of(kOther));
  }
  EXPECT_EQ(current_stream(kOther), a);
}

TEST(Threads, AreAtLeastOneAndAtMostTheUsableCoresByDefault) {
  Context fresh;
  const ContextScope scope(fresh);
  EXPECT_GE(usable_cores(), 1);
  const char* const set = std::getenv("OMP_NUM_THREADS");  // the ThreadSanitizer build sets it
  EXPECT_EQ(num_threads(), set ? std::atoi(set) : usable_cores());
  EXPECT_ERROR(ValueError, set_num_threads(0), "[set_num_threads] expected at least 1, got 0");
  EXPECT_THROW(set_num_threads(-4), ValueError);
}

}  // namespace
}  // namespace gradus
