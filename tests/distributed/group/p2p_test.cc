// Point-to-point messages (send, recv, isend, irecv) and objects beyond the cases of collectives_test:
// mismatches, timeouts, pending messages, layouts, devices. Ranks are threads. //tests/cuda/ranks runs the
// tests with "Device" in their names on emulated GPUs.
#include <gmock/gmock.h>

#include <functional>
#include <thread>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/object.h"
#include "gradus/tests/distributed/late.h"
#include "gradus/tests/distributed/threads.h"
#include "gradus/tests/support/error.h"

namespace gradus::dist {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Tensor value(float x) { return tensor(std::vector<float>{x}, {1}); }

TEST(Messages, OfAnotherSizeDtypeOrKindAreAMismatchOnBothSides) {
  struct Case {
    std::function<void()> send, receive;
    const char *op, *text;  // the receiver's op; a part of both errors
  };
  const Case cases[] = {
      {[] { send(empty({3}), {.dst = 1}); }, [] { recv(empty({4}), {.src = 0}); }, "[recv]",
       "rank 0 sent f32[3], where rank 1 receives f32[4]"},
      {[] { send(empty({2}, {.dtype = DType::kI32}), {.dst = 1}); }, [] { recv(empty({2})); }, "[recv]",
       "rank 0 sent i32[2], where rank 1 receives f32[2]"},
      {[] { send_object("text", {.dst = 1}); }, [] { recv(empty({1})); }, "[recv]",
       "rank 0 sent an object, where rank 1 receives f32[1]"},
      {[] { send(empty({1}), {.dst = 1}); }, [] { recv_object(); }, "[recv_object]",
       "rank 0 sent f32[1], where rank 1 receives an object"},
  };
  for (const Case& c : cases) {
    const auto errors = errors_of(2, [&] {
      get_rank() == 0 ? c.send() : c.receive();
      barrier();
    });
    EXPECT_THAT(errors[0], HasSubstr(c.text));
    EXPECT_THAT(errors[1], AllOf(HasSubstr(c.op), HasSubstr(c.text)));
  }
}

TEST(Messages, OfAnotherShapeButAsManyElementsFit) {
  run_ranks(2, [] {
    if (get_rank() == 0) send(tensor(std::vector<float>{1, 2, 3, 4}, {2, 2}), {.dst = 1});
    if (get_rank() == 1) {
      const Tensor y = empty({4});
      recv(y);
      EXPECT_EQ(y.to_vector<float>(), std::vector<float>({1, 2, 3, 4}));
    }
  });
}

TEST(Messages, NobodySendsToItself) {
  run_ranks(2, [] {
    EXPECT_THROW(send(value(1), {.dst = get_rank()}), ValueError);
    EXPECT_THROW(recv(value(1), {.src = get_rank()}), ValueError);
    EXPECT_THROW(send(value(1), {.dst = 2}), ValueError);
    EXPECT_THROW(recv(value(1), {.src = -2}), ValueError);
  });
  EXPECT_THROW(send(value(1), {.dst = 0}), ValueError);  // without a job
  EXPECT_THROW(recv(value(1)), ValueError);
}

TEST(Messages, ThatDoNotComeAreATimeoutThatSaysWhatTheOtherDoes) {
  const auto errors = errors_of(2, [] {
    if (get_rank() == 0) recv(value(1), {.timeout = Milliseconds(100)});
    if (get_rank() == 1) barrier();
  });
  EXPECT_THAT(errors[0],
              HasSubstr("[recv] rank 0 or rank 1 holds up recv from any rank (tag 0) in group 'world', which "
                        "did not end within 100 ms: they wait for each other: rank 0: it is in recv from "
                        "any rank (tag 0) in group 'world'; rank 1: it is in barrier #1 of group 'world'"));
  EXPECT_THAT(errors[1], HasSubstr("[barrier] rank 0 or rank 1 holds up recv from any rank"));
}

TEST(Messages, FromARankThatHasLeftAreAnError) {
  const auto errors = errors_of(2, [] {
    if (get_rank() == 0) recv(value(1), {.src = 1});
  });
  EXPECT_THAT(errors[0], HasSubstr("[recv] rank 1 has left the job"));
}

TEST(Messages, MoveWhileNobodyWaitsForThem) {
  run_ranks(2, [] {
    const Tensor x = empty({1 << 20});
    if (get_rank() == 0) {
      const Work work = isend(x, {.dst = 1});
      barrier();  // which the other one reaches once it has the message
      work.wait();
    } else {
      recv(x, {.src = 0});
      barrier();
    }
  });
}

TEST(Messages, ThatNobodyWaitsForKeepTheirTensor) {
  run_ranks(2, [] {
    for (int i = 0; i < 20; ++i) {
      if (get_rank() == 0) isend(tensor(std::vector<float>(100'000, float(i)), {100'000}), {.dst = 1});
      if (get_rank() == 1) {
        const Tensor y = empty({100'000});
        recv(y, {.src = 0});
        EXPECT_EQ(y.to_vector<float>()[99'999], i);
      }
    }
    barrier();
  });
}

TEST(Messages, TellWhenTheyAreDone) {
  run_ranks(2, [] {
    if (get_rank() == 0) {
      const Tensor y = value(-1);
      const uint32_t before = y.storage()->version();
      const Work work = irecv(y);
      EXPECT_FALSE(work.is_completed());
      EXPECT_THROW(work.wait(Milliseconds(20)), TimeoutError);  // ends this wait, not the receive
      send(value(1), {.dst = 1});
      work.wait();
      work.wait();
      EXPECT_TRUE(work.is_completed());
      EXPECT_EQ(work.source_rank(), 1);
      EXPECT_EQ(y.item<float>(), 7);
      EXPECT_GT(y.storage()->version(), before);
    } else {
      recv(value(1), {.src = 0});
      const Work work = isend(value(7), {.dst = 0});
      work.wait();
      EXPECT_EQ(work.source_rank(), -1);
    }
  });
}

TEST(Messages, UnderARecordingPointToTheirDifferentiableForms) {
  run_ranks(2, [] {
    const Tensor w = value(2);
    GradManager gm;
    auto recording = gm.attach(w).record();
    EXPECT_ERROR(StateError, send(w * 2, {.dst = 1 - get_rank()}), "dist::remote_send");
  });
}

TEST(Messages, StridedTensorsCanBeSentButNotReceived) {
  run_ranks(2, [] {
    const Tensor x = transpose(tensor(std::vector<float>{1, 2, 3, 4}, {2, 2}), 0, 1);
    if (get_rank() == 0) {
      send(x, {.dst = 1});
    } else {
      EXPECT_THROW(recv(x), ShapeError);
      const Tensor y = empty({2, 2});
      recv(y);
      EXPECT_EQ(y.to_vector<float>(), std::vector<float>({1, 3, 2, 4}));
    }
  });
}

// ---- devices ----

std::vector<float> values(const Tensor& x) { return x.to_vector<float>(); }
// Returns a tensor of 64 elements x on a device of this rank, which has not written it yet.
Tensor late_value(float x) { return late(full({64}, x), queued_device(get_rank())); }
std::vector<float> all(float x) { return std::vector<float>(64, x); }

TEST(DeviceMessages, CarryWhatTheDeviceWritesAndChangeTheVersionOnce) {
  run_ranks(2, [] {
    if (get_rank() == 0) {
      send(late_value(1), {.dst = 1});
      send(transpose(late(tensor({{1.f, 2.f}, {3.f, 4.f}}), queued_device(0)), 0, 1), {.dst = 1});
      return isend(late_value(3), {.dst = 1}).wait();
    }
    const Tensor x = late_value(-1), y = late(zeros({2, 2}), queued_device(1)), on_cpu = zeros({64});
    const uint32_t before = x.storage()->version();
    EXPECT_EQ(recv(x), 0);
    EXPECT_EQ(x.storage()->version(), before + 1);
    EXPECT_EQ(values(x), all(1));
    recv(y);
    EXPECT_THAT(values(y), ElementsAre(1, 3, 2, 4));
    recv(on_cpu);
    EXPECT_EQ(values(on_cpu), all(3));
  });
}

TEST(DeviceMessages, AreReceivedInAnyOrderOfWaitsAndByPolling) {
  run_ranks(2, [] {
    if (get_rank() == 0) {
      for (uint32_t tag = 0; tag < 4; ++tag) send(late_value(float(tag)), {.dst = 1, .tag = tag});
      return;
    }
    std::vector<Tensor> xs;
    std::vector<Work> works;
    for (uint32_t tag = 0; tag < 4; ++tag) {
      xs.push_back(late_value(-1));
      works.push_back(irecv(xs.back(), {.src = 0, .tag = tag}));
    }
    for (size_t i : {2, 0, 3}) {
      works[i].wait();
      EXPECT_EQ(values(xs[i]), all(float(i)));
    }
    const uint32_t before = late_value(-1).storage()->version();
    while (!works[1].is_completed()) std::this_thread::sleep_for(Milliseconds(1));
    EXPECT_EQ(values(xs[1]), all(1));
    works[1].wait();
    EXPECT_EQ(xs[1].storage()->version(), before + 1);
  });
}

// The receive follows the work of the stream on which it starts. Streams of later waits follow the copy.
TEST(DeviceMessages, AreOrderedWithTheStreamsOfAllWaits) {
  run_ranks(2, [] {
    for (int round = 0; round < 10; ++round) {
      if (get_rank() == 0) {
        send(full({64}, round), {.dst = 1});
        continue;
      }
      const Tensor x = late_value(-1);
      const Work work = irecv(x);
      {
        const StreamScope scope(Stream::create(x.device()));
        work.wait();
      }
      work.wait();
      EXPECT_EQ(values(x * 2), all(2 * float(round)));
    }
  });
}

TEST(DeviceMessages, AreReceivedByAWaitAfterOneThatTimesOut) {
  run_ranks(2, [] {
    if (get_rank() == 0) {
      recv(value(1));
      return send(late_value(7), {.dst = 1});
    }
    const Tensor x = late_value(-1);
    const uint32_t before = x.storage()->version();
    const Work work = irecv(x);
    EXPECT_THROW(work.wait(Milliseconds(20)), TimeoutError);
    EXPECT_EQ(values(x), all(-1));
    EXPECT_EQ(x.storage()->version(), before);
    send(value(1), {.dst = 0});
    work.wait();
    EXPECT_EQ(values(x), all(7));
  });
}

// The message of tag 0 is dropped. It has arrived when that of tag 1 has, before or after its receive starts. The
// receive of tag 2 makes the rank forget receives that have ended.
TEST(DeviceMessages, ThatNobodyWaitsForAreNotCopiedToGpus) {
  for (const bool arrives_early : {false, true})
    run_ranks(2, [=] {
      const Tensor unused = value(0);
      if (get_rank() == 0) {
        if (!arrives_early) recv(unused);
        for (uint32_t tag = 0; tag < 2; ++tag) send(value(1), {.dst = 1, .tag = tag});
        recv(unused);
        return send(value(1), {.dst = 1, .tag = 2});
      }
      const Tensor x = to(value(-1), queued_device(1));
      const uint32_t before = x.storage()->version();
      if (arrives_early) recv(unused, {.tag = 1});
      irecv(x);
      if (!arrives_early) {
        send(value(1), {.dst = 0});
        recv(unused, {.tag = 1});
      }
      const Work last = irecv(unused, {.tag = 2});
      send(value(1), {.dst = 0});
      last.wait();
      if (x.device().type != DeviceType::kCUDA) return;
      EXPECT_EQ(x.item<float>(), -1);
      EXPECT_EQ(x.storage()->version(), before);
    });
}

TEST(DeviceMessages, RefuseTensorsWithoutData) {
  const Tensor meta = empty({1}, {.device = Device::parse("meta")});
  run_ranks(2, [&] {
    const int other = 1 - get_rank();
    EXPECT_ERROR(DeviceError, send(meta, {.dst = other}), "[send] x has no data");
    EXPECT_ERROR(DeviceError, irecv(meta), "[irecv] x has no data");
    EXPECT_ERROR(ValueError, isend(Tensor(), {.dst = other}), "[isend] x is undefined");
    EXPECT_ERROR(ValueError, recv(Tensor()), "[recv] x is undefined");
  });
}

TEST(DeviceMessages, OfObjectsArriveInHostMemory) {
  run_ranks(2, [] {
    if (get_rank() == 0) return send_object(to_wire(late_value(5)), {.dst = 1});
    const Tensor x = from_wire<Tensor>(recv_object());
    EXPECT_EQ(x.device(), kCPU);
    EXPECT_EQ(values(x), all(5));
  });
}

// ---- objects ----

TEST(Objects, WithoutAJobAreCopies) {
  EXPECT_EQ(broadcast_object("a"), "a");
  EXPECT_THAT(all_gather_object("a"), ElementsAre("a"));
  EXPECT_THAT(gather_object("a"), ElementsAre("a"));
  EXPECT_EQ(scatter_object({"a"}), "a");
}

TEST(Objects, MayHoldAnyBytes) {
  const std::string bytes("\0\xff\n\0", 4);
  run_ranks(3, [&] {
    EXPECT_EQ(broadcast_object(get_rank() == 1 ? bytes : "ignored", {.src = 1}), bytes);
    EXPECT_THAT(all_gather_object(get_rank() == 2 ? "" : bytes), ElementsAre(bytes, bytes, ""));
  });
}

TEST(Objects, ListsAreGivenOnTheRootAlone) {
  run_ranks(2, [] {
    if (get_rank() == 0)
      EXPECT_THROW(scatter_object({"one"}), ValueError);
    else
      EXPECT_THROW(scatter_object({"one", "two"}), ValueError);
    EXPECT_THROW(all_gather_object("x", {.async_op = true}), ValueError);
    EXPECT_THROW(broadcast_object("x", {.src = 2}), ValueError);
  });
}

using Log = std::map<std::string, double>;

TEST(Objects, MayHaveOtherTypesThanStrings) {
  run_ranks(3, [] {
    const int rank = get_rank();
    const Log log = {{"loss", 0.5 * rank}};
    EXPECT_THAT(all_gather_object(log), ElementsAre(Log{{"loss", 0}}, Log{{"loss", 0.5}}, Log{{"loss", 1}}));
    EXPECT_EQ(broadcast_object(rank == 2 ? log : Log(), {.src = 2}), (Log{{"loss", 1}}));
    EXPECT_EQ(gather_object(rank, {.dst = 1}), rank == 1 ? std::vector({0, 1, 2}) : std::vector<int>());
    EXPECT_EQ(scatter_object<int>(rank == 0 ? std::vector<int>{7, 8, 9} : std::vector<int>()), 7 + rank);
    const Tensor x = broadcast_object(rank == 0 ? full({2}, 3) : Tensor());
    EXPECT_EQ(values(x), (std::vector<float>{3, 3}));
    EXPECT_EQ(bcast_val(std::pair(rank, std::string("x"))), std::pair(0, std::string("x")));
    EXPECT_EQ(bcast_val(rank == 0 ? "name" : "ignored"), "name");
    if (rank == 0) send_object(std::optional<int>(4), {.dst = 1});
    if (rank == 1) {
      EXPECT_EQ(recv_object<std::optional<int>>({.src = 0}), 4);
    }
  });
}

TEST(Objects, ValIsThatOfTheGroupsFirstRank) {
  run_ranks(3, [] {
    const Group group = new_group({2, 0});
    if (group.is_member()) {
      EXPECT_EQ(bcast_val(10 * get_rank(), group), 20);
    }
  });
}

TEST(Objects, OfAnotherTypeAreAMismatch) {
  run_ranks(2, [] {
    if (get_rank() == 0) {
      send_object(1, {.dst = 1});
      send_object("text", {.dst = 1});
      send_object("int\nabc", {.dst = 1});  // not the four bytes of an int
      return;
    }
    EXPECT_ERROR(MismatchError, recv_object<double>(), "[recv_object] expected a value of type double",
                 "type int");
    EXPECT_ERROR(MismatchError, recv_object<double>(), "type double, got a string");
    EXPECT_THROW(recv_object<int>(), StoreError);
  });
}

TEST(Objects, ComeFromAnyRank) {
  run_ranks(3, [] {
    if (get_rank() > 0) return send_object(std::to_string(get_rank()), {.dst = 0});
    std::vector<std::string> got = {recv_object(), recv_object()};
    EXPECT_THAT(got, testing::UnorderedElementsAre("1", "2"));
  });
}

}  // namespace
}  // namespace gradus::dist
