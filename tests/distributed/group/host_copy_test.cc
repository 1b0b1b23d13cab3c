// Job::share, one copy per host of read-only data in sealed shared memory: the first rank fills it, the
// others map it. Ranks are threads, and processes at the end.
#include "gradus/distributed/group/internal/host_copy.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <numeric>
#include <set>
#include <sstream>
#include <thread>

#include "gradus/data/sets/digits.h"
#include "gradus/data/sets/mnist.h"
#include "gradus/data/sets/preload.h"
#include "gradus/distributed/group/client.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tests/distributed/rank_processes.h"
#include "gradus/tests/distributed/threads.h"
#include "gradus/tests/support/scratch.h"

namespace gradus::dist {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kBytes = 100'000;

HostMemory share(const std::string& key, const Job::Fill& fill, size_t bytes = kBytes) {
  return Job::current()->share(key, bytes, fill);
}
// Fills with `value` after 20 ms, and counts the calls.
Job::Fill counted(std::atomic<int>& fills, unsigned char value = 7, size_t bytes = kBytes) {
  return [&fills, value, bytes](std::byte* memory) {
    ++fills;
    std::this_thread::sleep_for(Milliseconds(20));
    std::memset(memory, value, bytes);
  };
}
bool holds(const HostMemory& memory, unsigned char value, size_t bytes = kBytes) {
  for (size_t i = 0; i < bytes; ++i)
    if (memory.bytes.get()[i] != std::byte(value)) return false;
  return true;
}

// Of the mapping that has `address`: a field of its line in /proc/self/maps, counted from 0.
std::string mapping_field(const void* address, int field) {
  std::ifstream in("/proc/self/maps");
  for (std::string line; std::getline(in, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) != 2 || begin > uintptr_t(address) ||
        uintptr_t(address) >= end)
      continue;
    std::istringstream words(line);
    std::string word;
    for (int i = 0; i <= field; ++i) words >> word;
    return word;
  }
  return "0";
}
// Identifies the shared memory.
uint64_t inode_of(const void* address) { return std::stoull(mapping_field(address, 4)); }

// ---- ranks as threads

TEST(HostCopy, IsFilledOnceForAllRanksOfAHost) {
  for (int hosts : {1, 2}) {
    std::atomic<int> fills{0};
    std::mutex mutex;
    std::set<uint64_t> files;
    run_ranks(4,
              [&] {
                const HostMemory memory = share("key", counted(fills));
                EXPECT_TRUE(memory.shared);
                EXPECT_TRUE(holds(memory, 7));
                {
                  std::lock_guard lock(mutex);
                  files.insert(inode_of(memory.bytes.get()));
                }
                group_barrier();
              },
              {.timeout = Milliseconds(20'000), .hosts = hosts});
    EXPECT_EQ(fills, hosts);
    EXPECT_EQ(files.size(), size_t(hosts));
  }
}

TEST(HostCopy, IsNotAskedForByAll) {
  std::atomic<int> fills{0};
  run_ranks(3, [&] { EXPECT_TRUE(get_rank() != 1 || holds(share("key", counted(fills)), 7)); });
  EXPECT_EQ(fills, 1);
}

TEST(HostCopy, IsOnesOwnWhereNothingIsShared) {
  std::atomic<int> fills{0};
  run_ranks(1, [&] { EXPECT_FALSE(share("key", counted(fills)).shared); });
  run_ranks(2, [&] { EXPECT_FALSE(share("key", counted(fills)).shared); }, {.messages_only = true});
  EXPECT_EQ(fills, 3);
  run_ranks(2, [&] {
    share(
        "nothing", [](std::byte*) {}, 0);
  });
}

TEST(HostCopy, OfEachKeyAndSizeIsAnother) {
  std::atomic<int> fills{0};
  run_ranks(2, [&] {
    const HostMemory a = share("a", counted(fills, 1)), b = share("b", counted(fills, 2)),
                     c = share("a", counted(fills, 3, 10), 10);
    EXPECT_TRUE(holds(a, 1) && holds(b, 2) && holds(c, 3, 10));
    group_barrier();
  });
  EXPECT_EQ(fills, 3);
  run_ranks(2, [&] { EXPECT_THROW(share(std::string(513, 'k'), counted(fills)), ValueError); });
}

TEST(HostCopy, IsFilledByAnotherRankWhenTheFirstCannot) {
  std::atomic<int> fills{0}, errors{0}, right{0};
  run_ranks(3, [&] {
    try {
      const HostMemory memory = share("key", [&](std::byte* to) {
        std::this_thread::sleep_for(Milliseconds(20));
        if (fills++ == 0) throw FileError("read", "broken");
        std::memset(to, 9, kBytes);
      });
      right += holds(memory, 9);
      group_barrier();
    } catch (const FileError&) {
      ++errors;
      group_barrier();
    }
  });
  EXPECT_EQ(errors, 1);
  EXPECT_EQ(right, 2);
  EXPECT_EQ(fills, 2);
}

TEST(HostCopy, IsMadeAnewAfterTheLastUserIsGone) {
  std::atomic<int> fills{0};
  run_ranks(2, [&] {
    for (int round = 0; round < 3; ++round) {
      {
        const HostMemory memory = share("key", counted(fills));
        EXPECT_TRUE(holds(memory, 7));
        group_barrier();
      }
      group_barrier();
    }
    // While one rank has a reference, the others get the same copy.
    const HostMemory kept = get_rank() == 0 ? share("key", counted(fills)) : HostMemory{};
    group_barrier();
    for (int i = 0; i < 3; ++i) share("key", counted(fills));
    group_barrier();
  });
  EXPECT_EQ(fills, 4);
}

TEST(HostCopy, OutlivesTheJob) {
  HostMemory memory;
  std::atomic<int> fills{0};
  run_ranks(2, [&] {
    HostMemory mine = share("key", counted(fills));
    if (get_rank() == 1) memory = std::move(mine);
  });
  EXPECT_TRUE(holds(memory, 7));
}

TEST(HostCopy, ThatTakesLongerThanTheJobsPatienceIsAnErrorNamingTheRank) {
  std::atomic<bool> filling{false};
  const auto errors = errors_of(2,
                                [&] {
                                  if (get_rank() == 1)
                                    while (!filling) std::this_thread::yield();
                                  share("key", [&](std::byte*) {
                                    filling = true;
                                    std::this_thread::sleep_for(Milliseconds(1'500));
                                  });
                                },
                                {.timeout = Milliseconds(300)});
  EXPECT_THAT(errors[1], AllOf(HasSubstr("share"), HasSubstr("rank 0"), HasSubstr("300 ms")));
}

// The descriptor of this process through which others reach its copy.
int copy_descriptor() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    if (target.string().starts_with("/memfd:gradus-copy")) return std::stoi(entry.path().filename());
  }
  return -1;
}

TEST(HostCopy, CanBeChangedByNobody) {
  std::atomic<int> fills{0};
  run_ranks(2, [&] {
    const HostMemory memory = share("key", counted(fills));
    group_barrier();
    if (get_rank() == 0) {
      const int fd = open(concat("/proc/self/fd/", copy_descriptor()).c_str(), O_RDWR);
      ASSERT_GE(fd, 0);
      EXPECT_EQ(pwrite(fd, "x", 1, 0), -1);
      EXPECT_EQ(ftruncate(fd, 1), -1);
      EXPECT_EQ(ftruncate(fd, 2 * kBytes), -1);
      EXPECT_EQ(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
      close(fd);
      EXPECT_TRUE(holds(memory, 7));
      EXPECT_EQ(mapping_field(memory.bytes.get(), 1), "r--s");
    }
    group_barrier();
  });
  EXPECT_EQ(copy_descriptor(), -1) << "left open";
}

// A wrong claim in the store is ignored, and the copy filled anew. A claim is "state rank nonce pid_namespace
// pid fd device inode"; state 2: ready.
void expect_refused(const std::string& claim) {
  SCOPED_TRACE(claim);
  std::atomic<int> fills{0};
  run_ranks(2, [&] {
    if (get_rank() == 0) internal::World::current()->store->set(concat("share/0/", kBytes, "/key"), claim);
    group_barrier();
    const HostMemory memory = share("key", counted(fills));
    EXPECT_TRUE(memory.shared);
    EXPECT_TRUE(holds(memory, 7));
    group_barrier();
  });
  EXPECT_EQ(fills, 1);
}

uint64_t own_namespace() {
  struct stat status {};
  stat("/proc/self/ns/pid", &status);
  return status.st_ino;
}

TEST(HostCopy, IsTakenFromSealedMemoryOfTheRightIdentityOnly) {
  const int fd = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(fd, kBytes), 0);
  struct stat status {};
  fstat(fd, &status);
  const auto claim = [&](uint64_t inode, int number) {
    return concat("2 0 1 ", own_namespace(), ' ', getpid(), ' ', number, ' ', status.st_dev, ' ', inode);
  };
  expect_refused(claim(status.st_ino, fd));  // could still be written to
  expect_refused(claim(status.st_ino, 9'999));
  ASSERT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW), 0);
  expect_refused(claim(status.st_ino + 1, fd));
  // With the seals and the right inode it is accepted, so the cases above fail for the intended reason.
  std::atomic<int> fills{0};
  run_ranks(2, [&] {
    internal::World::current()->store->set(concat("share/0/", kBytes, "/key"), claim(status.st_ino, fd));
    EXPECT_TRUE(holds(share("key", counted(fills)), 0));
  });
  EXPECT_EQ(fills, 0);
  close(fd);
}

TEST(HostCopy, OutOfReachIsReplacedByOnesOwn) {
  std::atomic<int> fills{0};
  run_ranks(2, [&] {
    internal::World::current()->store->set(concat("share/0/", kBytes, "/key"),
                                           concat("2 0 1 ", own_namespace() + 1, ' ', getpid(), " 0 0 0"));
    const HostMemory memory = share("key", counted(fills));
    EXPECT_FALSE(memory.shared);
    EXPECT_TRUE(holds(memory, 7));
  });
  EXPECT_EQ(fills, 2);
  EXPECT_THROW(run_ranks(2,
                         [&] {
                           internal::World::current()->store->set(concat("share/0/", kBytes, "/key"), "2 x");
                           share("key", counted(fills));
                         }),
               StoreError);
}

// ---- data sets

void write_mnist(const Scratch& s, uint32_t n, uint32_t first_label = 0) {
  const auto be32 = [](uint32_t v) {
    return std::string{char(v >> 24), char(v >> 16), char(v >> 8), char(v)};
  };
  std::string images = std::string("\0\0\x08\x03", 4) + be32(n) + be32(28) + be32(28),
              labels = std::string("\0\0\x08\x01", 4) + be32(n);
  for (uint32_t i = 0; i < n * 784; ++i) images += char(i % 251);
  for (uint32_t i = 0; i < n; ++i) labels += char((first_label + i) % 10);
  s.write("train-images-idx3-ubyte", images);
  s.write("train-labels-idx1-ubyte", labels);
}

TEST(ImagesInMemory, AreThereOnceForAllRanksOfAHost) {
  Scratch s;
  write_mnist(s, 50);
  const data::MNIST alone(s.dir());
  EXPECT_EQ(alone.memory().own, 50 * 785);
  EXPECT_EQ(alone.memory().shared, 0);
  std::mutex mutex;
  std::set<uint64_t> files;
  run_ranks(3, [&] {
    const data::MNIST d(s.dir());
    const data::MNIST same_files(s.dir());
    const data::GeneratedDigits drawn({.size = 20});
    EXPECT_EQ(d.memory().own, 0);
    EXPECT_EQ(d.memory().shared, 50 * 785);
    EXPECT_EQ(drawn.memory().own, 0);
    EXPECT_EQ(drawn.memory().shared, 20 * 785);
    EXPECT_EQ(d.get(49).input.to_vector<float>(), alone.get(49).input.to_vector<float>());
    EXPECT_EQ(d.labels().to_vector<int>(), alone.labels().to_vector<int>());
    {
      std::lock_guard lock(mutex);
      for (const Tensor* t : {&d.images(), &d.labels(), &drawn.images(), &same_files.images()})
        files.insert(inode_of(t->raw_ptr()));
    }
    group_barrier();
  });
  EXPECT_EQ(files.size(), 3u);
}

// Sample i is [i, a random number] and i. Sample `bad` has another shape.
struct Rows : data::Dataset {
  Rows(int64_t size, int64_t bad_, std::atomic<int>& reads_) : n(size), bad(bad_), reads(reads_) {}
  std::string name() const override { return "Rows"; }
  int64_t size() const override { return n; }
  data::Sample get(int64_t i) const override {
    ++reads;
    std::vector<float> values = {float(i), gradus::rand({1}).to_vector<float>()[0], float(i)};
    if (i == bad) values.pop_back();
    return {tensor<float>(values, {std::ssize(values)}), tensor<int64_t>({i}, {})};
  }
  int64_t n, bad;
  std::atomic<int>& reads;
};

TEST(Preload, ReadsEachSampleOncePerHost) {
  std::mutex mutex;
  std::set<uint64_t> files;
  std::set<std::vector<float>> contents;
  std::atomic<int> reads{0};
  run_ranks(3, [&] {
    const data::TensorDataset rows = data::preload(Rows(100, -1, reads), {.num_workers = 2});
    std::vector<int64_t> indices(100);
    std::iota(indices.begin(), indices.end(), 0);
    const data::Batch all = rows.get_batch(indices);
    EXPECT_EQ(all.input.shape(), (Shape{100, 3}));
    EXPECT_EQ(all.target.to_vector<int64_t>(), indices);
    for (int64_t i : indices) EXPECT_EQ(all.input.to_vector<float>()[size_t(3 * i)], float(i));
    {
      const std::lock_guard lock(mutex);
      files.insert(inode_of(rows.get(0).input.raw_ptr()));
      contents.insert(all.input.to_vector<float>());
    }
    group_barrier();
  });
  EXPECT_EQ(reads, 100 + 3 * 2) << "and on each rank the first and the last";
  EXPECT_EQ(files.size(), 1u);
  EXPECT_EQ(contents.size(), 1u);
  EXPECT_NE(*files.begin(), 0u);
}

TEST(Preload, DependsOnTheSeedAndNotOnThreads) {
  std::atomic<int> reads{0};
  const auto numbers = [&](const data::PreloadOptions& options) {
    return data::preload(Rows(50, -1, reads), options)
        .get_batch(std::vector<int64_t>{0, 17, 49})
        .input.to_vector<float>();
  };
  EXPECT_EQ(numbers({.num_workers = 3, .seed = 5}), numbers({.seed = 5}));
  EXPECT_NE(numbers({.seed = 6}), numbers({.seed = 5}));
}

TEST(Preload, RefusesSamplesThatDiffer) {
  std::atomic<int> reads{0};
  EXPECT_THROW(data::preload(Rows(0, -1, reads)), ValueError);
  for (int64_t bad : {3, 16, 49}) EXPECT_THROW(data::preload(Rows(50, bad, reads)), data::SampleError) << bad;
  run_ranks(2, [&] { EXPECT_THROW(data::preload(Rows(50, 20, reads)), Error); });
}

TEST(ImagesInMemory, OfAFileThatHasChangedAreReadAgain) {
  Scratch s;
  write_mnist(s, 50);
  run_ranks(2, [&] {
    const data::MNIST before(s.dir());
    group_barrier();
    if (get_rank() == 0) {
      std::this_thread::sleep_for(Milliseconds(20));  // the resolution of file times is some ms
      write_mnist(s, 50, 3);
    }
    group_barrier();
    EXPECT_EQ(data::MNIST(s.dir()).get(0).target.item<int>(), 3);
    EXPECT_EQ(before.get(0).target.item<int>(), 0);
    group_barrier();
  });
}

// ---- ranks as processes

constexpr size_t kLarge = size_t(48) << 20;

// Bytes that no other process maps; 0 under a sanitizer, whose shadow memory would count.
size_t private_bytes() {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return 0;
#endif
  std::ifstream in("/proc/self/smaps_rollup");
  size_t total = 0;
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("Private_")) {
      std::istringstream words(line.substr(line.find(':') + 1));
      size_t kib = 0;
      words >> kib;
      total += kib << 10;
    }
  return total;
}

int use_together() {
  join_job(Milliseconds(20'000));
  const size_t before = private_bytes();
  int fills = 0;
  const HostMemory memory = share(
      "large",
      [&](std::byte* to) {
        ++fills;
        std::memset(to, 5, kLarge);
      },
      kLarge);
  if (!memory.shared || !holds(memory, 5, kLarge)) return 1;
  group_barrier();  // all have touched all of it
  const size_t after = private_bytes();
  std::cout << "fills " << fills << std::endl;
  if (after > before + (8 << 20)) {
    std::cout << "private memory grew from " << before << " to " << after << std::endl;
    return 2;
  }
  group_barrier();
  return 0;
}
const RankFunction use_together_function{"use together", use_together};

TEST(HostCopyOfProcesses, IsNobodysOwnMemory) {
  const auto ends = run_processes("use together", 3, job_options(true));
  int fills = 0;
  for (const RankEnd& end : ends) {
    EXPECT_EQ(end.exit_code, 0) << end.output;
    fills += end.output.find("fills 1") != std::string::npos;
  }
  EXPECT_EQ(fills, 1);
}

int die_while_filling() {
  join_job(Milliseconds(20'000));
  if (test_rank() != 1) get_client().user_get("filling");
  share("key", [&](std::byte*) {
    get_client().user_set("filling", "yes");
    std::this_thread::sleep_for(Milliseconds(300));  // the others wait
    raise(SIGKILL);
  });
  return 0;
}
const RankFunction die_while_filling_function{"die while filling", die_while_filling};

TEST(HostCopyOfProcesses, ThatTheMakersDeathCutsShortIsAnErrorNamingIt) {
  const auto start = std::chrono::steady_clock::now();
  const auto ends = run_processes("die while filling", 3, job_options(true));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << "not by the time limit";
  EXPECT_EQ(ends[1].signal, SIGKILL);
  for (int rank : {0, 2}) {
    EXPECT_EQ(ends[size_t(rank)].exit_code, 3);
    EXPECT_THAT(ends[size_t(rank)].output, HasSubstr("rank 1")) << "rank " << rank;
  }
}

}  // namespace
}  // namespace gradus::dist
