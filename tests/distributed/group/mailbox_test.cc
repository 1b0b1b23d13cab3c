// Mailbox, the messages between pipeline stages: tensors matched by address (step, stage, micro-batch, slot,
// gradient) in any order, and errors for messages that do not arrive. Ranks are threads. //tests/cuda/ranks
// runs the tests with "Device" in their names on emulated GPUs.
#include "gradus/distributed/group/mailbox.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <thread>

#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/internal/message_work.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tests/distributed/late.h"
#include "gradus/tests/distributed/threads.h"
#include "gradus/tests/ops/values.h"
#include "gradus/tests/support/error.h"

namespace gradus::dist {
namespace {

using internal::Address;
using internal::Mailbox;
using internal::Parcel;
using testing::HasSubstr;

std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }

Tensor value_of(const Address& a) {
  return random_tensor({a.micro_batch + 1, 3 + a.slot}, DType::kF64,
                       uint64_t(1 + a.micro_batch * 100 + a.stage * 10 + a.slot * 2 + a.gradient));
}

std::vector<Address> all_addresses(uint64_t step) {
  std::vector<Address> all;
  for (int k = 0; k < 3; ++k)
    for (int stage = 0; stage < 4; ++stage)
      for (int slot = 0; slot < 2; ++slot)
        for (bool gradient : {false, true}) all.push_back({step, stage, k, slot, gradient});
  return all;
}

TEST(Mailbox, MessagesAreTakenInAnyOrder) {
  for (bool messages_only : {false, true})
    run_ranks(2,
              [] {
                Mailbox mailbox({}, {.stages = 4, .slots = 2});
                std::mt19937 shuffled(uint32_t(7 + get_rank()));
                const int other = 1 - get_rank();
                for (uint64_t step = 0; step < 3; ++step) {
                  std::vector<Address> all = all_addresses(step);
                  std::ranges::shuffle(all, shuffled);
                  for (size_t i = 0; i < all.size(); i += 3) mailbox.post_receive(other, all[i]);
                  std::ranges::shuffle(all, shuffled);
                  for (const Address& a : all) mailbox.send(other, a, {.tensor = value_of(a)});
                  std::ranges::shuffle(all, shuffled);
                  for (const Address& a : all)
                    EXPECT_EQ(values(mailbox.receive(other, a, "a test").tensor), values(value_of(a)))
                        << to_string(a);
                }
              },
              {.messages_only = messages_only});
}

TEST(Mailbox, CarriesFormAndWhatTheNextStageNeeds) {
  run_ranks(2, [] {
    Mailbox mailbox({}, {.slots = 8});
    const std::vector<Tensor> sent = {
        tensor({1.f, 2.f}),
        channels_last(random_tensor({2, 3, 4, 5}, DType::kF32, 1)),
        transpose(random_tensor({3, 4}, DType::kF64, 2), 0, 1),
        tensor({int64_t{1} << 60, int64_t{-3}}),
        tensor({true, false, true}),
        empty({0, 7}),
        scalar(4.5),
        Tensor(),
    };
    for (int i = 0; i < 8; ++i) {
      const Tensor& x = sent[size_t(i)];
      if (get_rank() == 0) {
        mailbox.send(
            1, {.slot = i},
            {.tensor = x, .parcels = i, .wants_gradient = i % 2 == 1, .generator = {5, uint64_t(i)}});
        continue;
      }
      const Parcel got = mailbox.receive(0, {.slot = i}, "a test");
      EXPECT_EQ(got.parcels, i);
      EXPECT_EQ(got.wants_gradient, i % 2 == 1);
      EXPECT_EQ(got.generator, (std::array<uint64_t, 2>{5, uint64_t(i)}));
      ASSERT_EQ(got.tensor.defined(), x.defined());
      if (!x.defined()) continue;
      EXPECT_EQ(got.tensor.dtype(), x.dtype());
      EXPECT_EQ(got.tensor.shape(), x.shape());
      EXPECT_EQ(got.tensor.is_channels_last(), x.is_channels_last());
      EXPECT_EQ(values(got.tensor), values(x));
    }
  });
}

TEST(Mailbox, MovesTensorsBetweenDevices) {
  run_ranks(2, [] {
    Mailbox mailbox({}, {.slots = 4});
    const Device device = queued_device(get_rank());
    const std::vector<Tensor> sent = {random_tensor({64}), channels_last(random_tensor({2, 3, 4, 5})),
                                      transpose(random_tensor({3, 4}), 0, 1), Tensor()};
    if (get_rank() == 0) {
      for (int i = 0; i < 4; ++i) {
        const Tensor& x = sent[size_t(i)];
        mailbox.send(1, {.slot = i}, {.tensor = i == 0 ? late(x, device) : x ? to(x, device) : x});
      }
      return;
    }
    mailbox.post_receive(0, {.slot = 2}, device);
    for (int i = 3; i >= 0; --i) {
      const Tensor& x = sent[size_t(i)];
      // The device of a posted receive counts. Slot 0 has none.
      const Device given = i == 1 ? device : kCPU;
      const Tensor got = mailbox.receive(0, {.slot = i}, "a test", given).tensor;
      ASSERT_EQ(got.defined(), x.defined());
      if (!x.defined()) continue;
      EXPECT_EQ(got.device(), i == 0 ? kCPU : device);
      EXPECT_EQ(got.is_channels_last(), x.is_channels_last());
      EXPECT_EQ(values(got), values(x));
    }
  });
}

// A tensor much larger than a message ring arrives while the sender makes no call and the receiver only
// polls.
TEST(Mailbox, LargeTensorsMoveWhileBothRanksDoSomethingElse) {
  run_ranks(2, [] {
    Mailbox mailbox({}, {});
    const Tensor x = random_tensor({1 << 20}, DType::kF64, 3);  // 8 MiB
    const auto until = [](auto&& condition) {
      for (int i = 0; i < 5000 && !condition(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return condition();
    };
    if (get_rank() == 0) {
      mailbox.send(1, {}, {.tensor = x});
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // calls nothing
    } else {
      mailbox.post_receive(0, {});
      EXPECT_TRUE(until([&] { return mailbox.has_arrived(0, {}); }));
      EXPECT_EQ(values(mailbox.receive(0, {}, "a test").tensor), values(x));
      EXPECT_FALSE(mailbox.has_arrived(0, {}));
    }
  });
}

TEST(Mailbox, RefusesAddressesWithoutRoom) {
  run_ranks(2, [] {
    Mailbox mailbox({}, {.stages = 2, .slots = 3});
    const auto text = [&](Address a) {
      return error_of<ValueError>([&] { mailbox.send(1 - get_rank(), a, {.tensor = ones({1})}); });
    };
    EXPECT_THAT(text({.stage = 2}), HasSubstr("no room for input 0 of stage 2, micro-batch 0, step 0"));
    EXPECT_THAT(text({.stage = -1}), HasSubstr("no room for"));
    EXPECT_THAT(text({.slot = 3}), HasSubstr("there are 2 stages with 3 inputs"));
    EXPECT_THAT(text({.micro_batch = -1}), HasSubstr("no room for"));
    EXPECT_THAT(text({.micro_batch = 1 << 30}), HasSubstr("too many micro-batches"));
    EXPECT_THROW(Mailbox({}, {.stages = 0}), ValueError);
    EXPECT_THROW(Mailbox({}, {.slots = (1 << 16) + 1}), ValueError);
    EXPECT_THROW(mailbox.send(get_rank(), {}, {}), ValueError);
    EXPECT_THROW(mailbox.send(2, {}, {}), ValueError);
    EXPECT_THROW(mailbox.post_receive(1 - get_rank(), {}, Device("meta")), DeviceError);
  });
}

TEST(Mailbox, TheLargestAddressesHaveNumbersOfTheirOwn) {
  run_ranks(2, [] {
    Mailbox mailbox({}, {.stages = 1 << 10, .slots = 1 << 6});
    const int last = (1 << 15) - 2;
    const std::vector<Address> far = {{.stage = 1023, .micro_batch = last, .slot = 63, .gradient = true},
                                      {.stage = 1023, .micro_batch = last, .slot = 63},
                                      {.stage = 1022, .micro_batch = last, .slot = 63, .gradient = true},
                                      {}};
    for (size_t i = 0; i < far.size(); ++i)
      mailbox.send(1 - get_rank(), far[i], {.tensor = scalar(double(i))});
    for (size_t i = far.size(); i-- > 0;)
      EXPECT_EQ(mailbox.receive(1 - get_rank(), far[i], "a test").tensor.item<double>(), double(i));
  });
}

// "2F0" describes the waiting action in errors: the forward of stage 2, micro-batch 0.
TEST(Mailbox, AMessageOfAnotherStepIsAnError) {
  const std::string text = error_of<MismatchError>([] {
    run_ranks(2, [] {
      Mailbox mailbox({}, {});
      if (get_rank() == 0)
        mailbox.send(1, {.step = 8}, {.tensor = ones({1})});
      else
        mailbox.receive(0, {.step = 7}, "2F0");
      barrier();
    });
  });
  EXPECT_THAT(text, HasSubstr("rank 0 is at step 8, and rank 1 waits for input 0 of stage 0, micro-batch 0, "
                              "step 7"));
}

TEST(Mailbox, ASenderThatLeavesOrThrowsIsNamed) {
  EXPECT_THAT(error_of<PeerError>([] {
                run_ranks(2, [] {
                  Mailbox mailbox({}, {});
                  mailbox.post_receive(1 - get_rank(), {});
                  if (get_rank() == 1) mailbox.receive(0, {}, "2F0");
                });
              }),
              HasSubstr("rank 0"));
  EXPECT_THAT(error_of<ValueError>([] {
                run_ranks(2, [] {
                  Mailbox mailbox({}, {});
                  if (get_rank() == 0) throw ValueError("stage", "cannot go on");
                  mailbox.receive(0, {}, "2F0");
                });
              }),
              HasSubstr("cannot go on"));
}

TEST(Mailbox, AWaitEndsAtTheGroupsTimeoutCountedFromTheTake) {
  const auto start = std::chrono::steady_clock::now();
  const std::string text = error_of<TimeoutError>([] {
    run_ranks(2,
              [] {
                Mailbox mailbox({}, {});
                mailbox.post_receive(1 - get_rank(), {});
                std::this_thread::sleep_for(std::chrono::milliseconds(700));
                if (get_rank() == 1)
                  mailbox.receive(0, {}, "2F0");
                else
                  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
              },
              {.timeout = Milliseconds(500)});
  });
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(1200));
  EXPECT_THAT(text, HasSubstr("500 ms"));
}

TEST(Mailbox, RanksThatWaitForEachOtherAreFound) {
  const std::string text = error_of<DistributedError>([] {
    run_ranks(2, [] {
      Mailbox mailbox({}, {});
      mailbox.receive(1 - get_rank(), {}, concat("action ", get_rank()));
    });
  });
  EXPECT_THAT(text, HasSubstr("action 0, for input 0 of stage 0"));
  EXPECT_THAT(text, HasSubstr("action 1, for input 0 of stage 0"));
}

TEST(Mailbox, DropsWhatNobodyTook) {
  run_ranks(2, [] {
    {
      Mailbox mailbox({}, {});
      mailbox.post_receive(1 - get_rank(), {.micro_batch = 1});
      mailbox.send(1 - get_rank(), {}, {.tensor = ones({100})});
      mailbox.post_receive(1 - get_rank(), {});
    }
    barrier();
  });
}

}  // namespace
}  // namespace gradus::dist
