// Segments: zeroed memory that the threads or processes of a job share. Opening them, members that do not
// arrive, exit or are killed meanwhile, and files of another process that are not opened by mistake.
#include "gradus/distributed/transport/segment.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <thread>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/base/file_descriptor.h"
#include "gradus/tests/distributed/transport/backend_checks.h"
#include "gradus/tests/distributed/transport/forked_process.h"

namespace gradus::dist::internal {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr size_t kBytes = 100'000;

// A store in shared memory, for forked processes, with the operations that segments need.
class SharedStore : public Store {
 public:
  StoreAnswer execute(const StoreRequest& request) override {
    if (request.op == Op::kNumKeys)
      return {.number =
                  std::count_if(entries(), entries() + kEntries, [](Entry& e) { return e.state == kSet; })};
    Entry* found = find(request.keys.at(0));
    for (const Deadline deadline = Deadline::after(request.timeout); request.waits() && !found;) {
      if (deadline.passed()) throw TimeoutError("store", -1, "no key ", request.keys[0]);
      if (guard) guard->check("store");
      std::this_thread::sleep_for(1ms);
      found = find(request.keys[0]);
    }
    if (request.op == Op::kSet) add(request.keys[0], request.values[0]);
    if (request.op == Op::kDelete && found) found->state = kDeleted;
    return {.number = found != nullptr, .value = request.op == Op::kGet ? found->value : ""};
  }
  const Membership* guard = nullptr;  // waits end when the job fails

 private:
  static constexpr int kEntries = 256, kFree = 0, kWriting = 1, kSet = 2, kDeleted = 3;
  struct Entry {
    std::atomic<int> state;
    char key[64], value[64];
  };
  Entry* entries() const { return reinterpret_cast<Entry*>(memory_.data()); }
  Entry* find(std::string_view key) const {
    for (Entry* e = entries(); e < entries() + kEntries; ++e)
      if (e->state == kSet && key == e->key) return e;
    return nullptr;
  }
  void add(std::string_view key, std::string_view value) {
    for (Entry* e = entries(); e < entries() + kEntries; ++e) {
      int free = kFree;
      if (!e->state.compare_exchange_strong(free, kWriting)) continue;
      key.copy(e->key, sizeof e->key - 1);
      value.copy(e->value, sizeof e->value - 1);
      e->state = kSet;
      return;
    }
    FAIL() << "no room in the store";
  }
  Segment memory_{kEntries * sizeof(Entry)};
};

struct Job {
  explicit Job(int size, bool processes = true) : memberships(make_local_memberships(size)) {
    for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
    segments = processes ? make_process_segments(store) : make_thread_segments();
  }
  std::shared_ptr<Segment> open(int rank, const std::string& key = "key", Milliseconds timeout = 60s) {
    return segments->open(key, ranks, rank, kBytes, {memberships[rank].get(), Deadline::after(timeout)});
  }
  std::vector<int> ranks;
  std::vector<std::shared_ptr<Membership>> memberships;
  std::shared_ptr<SharedStore> store = std::make_shared<SharedStore>();
  std::shared_ptr<SegmentProvider> segments;
};

int open_files() {
  const auto files = std::filesystem::directory_iterator("/proc/self/fd");
  return int(std::distance(begin(files), end(files)));
}

class Segments : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(, Segments, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "OfProcesses" : "OfThreads"; });

TEST_P(Segments, MembersShareZeroedMemory) {
  Job job(4, GetParam());
  const int files = open_files();
  on_threads(4, [&](int rank) {
    for (const char* key : {"one", "two"}) {
      const std::shared_ptr<Segment> segment = job.open(rank, key);
      ASSERT_EQ(segment->bytes(), kBytes);
      auto* words = reinterpret_cast<std::atomic<int>*>(segment->data());
      for (int i = 0; i < 4; ++i)
        while (i == rank && words[i].fetch_add(i + 1) != 0) FAIL() << "not zero";
      for (int i = 0; i < 4; ++i)
        while (words[i].load() != i + 1) std::this_thread::yield();
      EXPECT_EQ(segment->data()[kBytes - 1], std::byte(0));
    }
  });
  EXPECT_EQ(open_files(), files);
  EXPECT_EQ(job.store->num_keys(), 0);
}

TEST_P(Segments, ASegmentOfOneNeedsNobody) {
  Job job(1, GetParam());
  EXPECT_EQ(job.open(0)->bytes(), kBytes);
}

TEST(SegmentsOfProcesses, AMemberThatDoesNotComeIsNamedInTime) {
  Job job(3);
  const TimePoint start = now();
  on_threads(2, [&](int rank) {
    try {
      const auto segment = job.open(rank, "key", 200ms);
      EXPECT_EQ(rank, 1);  // rank 1 needs only rank 0
    } catch (const TimeoutError& error) {
      EXPECT_EQ(error.rank(), 2) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("rank 2 did not come to shared memory within 200 ms"));
    }
  });
  EXPECT_LT(now() - start, 2s);
}

TEST(SegmentsOfProcesses, AFirstMemberThatDoesNotComeIsNamedInTime) {
  Job job(2);
  try {
    job.open(1, "key", 200ms);
    ADD_FAILURE() << "opened";
  } catch (const TimeoutError& error) {
    EXPECT_EQ(error.rank(), 0) << error.what();
  }
}

TEST(SegmentsOfProcesses, AMemberThatHasLeftIsAnErrorAtOnce) {
  Job job(2);
  job.memberships[1]->leave();
  const TimePoint start = now();
  EXPECT_THROW(job.open(0), PeerError);
  EXPECT_LT(now() - start, 1s);
}

TEST(SegmentsOfProcesses, ALimitOfFileSizesIsAnError) {
  Job job(2);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit{1, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  EXPECT_THROW(job.open(0, "key", 1s), Error);
  setrlimit(RLIMIT_FSIZE, &before);
}

TEST(SegmentsOfProcesses, ANameThatIsNoneIsAnError) {
  for (const char* name : {"", "a/3", "1", "1/", "/1", "1/2/3", "1/../2", "-1/3"}) {
    Job job(2);
    job.store->set("segment/key", name);
    EXPECT_THROW(job.open(1, "key", 1s), StoreError);
  }
}

// Rank 0 publishes "pid/descriptor" of its memory. After its end, another process may have that process id:
// here the descriptor is another file, unsealed memory, memory of another size, or closed.
TEST(SegmentsOfProcesses, AnotherFileOfTheFirstMemberIsNotOpened) {
  const FileDescriptor file(open("/proc/self/status", O_RDONLY | O_CLOEXEC)),
      open_size(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)),
      short_memory(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(open_size.fd(), kBytes), 0);
  ASSERT_EQ(fcntl(short_memory.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  for (const int fd : {file.fd(), open_size.fd(), short_memory.fd(), 1'000'000}) {
    Job job(2);
    job.store->set("segment/key", concat(getpid(), '/', fd));
    try {
      job.open(1, "key", 100ms);
      ADD_FAILURE() << "opened";
    } catch (const DistributedError& error) {
      EXPECT_EQ(error.rank(), 0) << error.what();
    }
  }
}

TEST(SegmentsOfProcesses, ProcessesShareMemoryAndLeaveNothingBehind) {
  Job job(3);
  const auto body = [&job](int rank) {
    const auto segment = job.open(rank);
    auto* words = reinterpret_cast<std::atomic<int>*>(segment->data());
    words[rank] = getpid();
    while (words[0] == 0 || words[1] == 0 || words[2] == 0) std::this_thread::yield();
    return segment;
  };
  ForkedProcess one([&] { body(1); });
  ForkedProcess two([&] {
    const auto segment = body(2);
    pause();
  });
  const auto segment = body(0);
  EXPECT_EQ(one.wait(), 0);
  EXPECT_EQ(WTERMSIG(two.kill()), SIGKILL);
  reinterpret_cast<std::atomic<int>*>(segment->data())[0] = 1;  // the memory exists while one member maps it
}

// Members are killed at many points of opening: the others end with the job's failure, or have
// got the memory.
TEST(SegmentsOfProcesses, AMemberThatIsKilledWhileOpeningHoldsUpNobody) {
  int failed = 0;
  for (int i = 0; i < 15; ++i) {
    Job job(2);
    const int victim_rank = i % 2, my_rank = 1 - victim_rank;  // rank 0 creates, rank 1 opens
    ForkedProcess victim([&] {
      for (int n = 0; n < 60; ++n) job.open(victim_rank, concat("key", n));
      pause();
    });
    job.store->guard = job.memberships[my_rank].get();
    TimePoint killed_at{};
    std::thread watcher([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(i * 200));
      killed_at = now();
      victim.kill();
      job.memberships[my_rank]->report({Failure::Kind::kDied, victim_rank, "a rank was killed"});
    });
    try {
      for (int n = 0; n < 60; ++n) job.open(my_rank, concat("key", n));
    } catch (const PeerError& error) {
      ++failed;
      EXPECT_EQ(error.rank(), victim_rank) << error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    watcher.join();
    EXPECT_LT(now() - killed_at, 1s);
  }
  EXPECT_GT(failed, 0);
}

TEST(HostId, IsTheSameEachTimeOrWhatTheEnvironmentSays) {
  EXPECT_EQ(host_id(), host_id());
  EXPECT_GT(host_id().size(), 20u);
  setenv("GRADUS_HOST_ID", "box-7", 1);
  EXPECT_EQ(host_id(), "box-7");
  setenv("GRADUS_HOST_ID", std::string(1000, 'x').c_str(), 1);
  EXPECT_THROW(host_id(), ValueError);
  unsetenv("GRADUS_HOST_ID");
}

}  // namespace
}  // namespace gradus::dist::internal
