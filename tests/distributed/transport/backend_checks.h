// Checks of a Backend for all implementations: each rank calls all collectives with several sizes, dtypes and
// roots, and compares with closed forms, bit by bit.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gradus/distributed/transport/backend.h"
#include "gradus/tensor/base/dtype.h"

namespace gradus::dist::internal {

// Returns element i of the input of a rank: small whole numbers, so that sums are exact in all dtypes.
inline int contribution(int rank, int64_t i) { return int((rank * 7 + i * 3) % 5); }

template <class T> std::vector<T> contributions(int rank, int64_t n, int64_t from = 0) {
  std::vector<T> values(n);
  for (int64_t i = 0; i < n; ++i) values[i] = T(contribution(rank, from + i));
  return values;
}

// Returns the reduction of the ranks' contributions to elements [from, from + n).
template <class T> std::vector<T> reduced(int ranks, int64_t n, ReduceOp op, int64_t from = 0) {
  std::vector<T> values(n);
  for (int64_t i = 0; i < n; ++i) {
    double x = contribution(0, from + i);
    for (int r = 1; r < ranks; ++r) {
      const double y = contribution(r, from + i);
      if (op == ReduceOp::kSum || op == ReduceOp::kAvg) x += y;
      if (op == ReduceOp::kProduct) x *= y;
      if (op == ReduceOp::kMin) x = std::min(x, y);
      if (op == ReduceOp::kMax) x = std::max(x, y);
    }
    if (op == ReduceOp::kAvg) x = std::is_integral_v<T> ? double(int64_t(x) / ranks) : x / ranks;
    values[i] = T(float(x));
  }
  return values;
}

inline void expect_same(const void* given, const void* expected, size_t bytes, const std::string& what) {
  EXPECT_TRUE(bytes == 0 || std::memcmp(given, expected, bytes) == 0) << what;
}

// Calls of one rank on its backend. All ranks must make the same calls.
class BackendChecks {
 public:
  BackendChecks(Backend& backend, int rank, int size, Membership* membership)
      : backend_(backend), rank_(rank), size_(size), membership_(membership) {}

  void all() {
    exchange();
    for (const int64_t n : {0, 1, 7, 1000, 150'001}) {
      reductions<float>(n, {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kAvg});
      reductions<int64_t>(n, {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kAvg});
      if (n > 1000) continue;
      reductions<double>(n, {ReduceOp::kProduct});
      reductions<bf16>(n, {ReduceOp::kSum});
      reductions<f16>(n, {ReduceOp::kSum, ReduceOp::kMax});
      reductions<uint8_t>(n, {ReduceOp::kMax});
    }
    for (const size_t bytes : {0, 1, 777, 70'000, 600'001})
      for (int root = 0; root < size_; root += std::max(1, size_ - 1)) broadcast(bytes, root);
    for (const size_t unit : {0, 1, 999, 100'003}) {
      for (int root = 0; root < size_; root += std::max(1, size_ - 1)) gather_and_scatter(unit, root);
      all_gather(unit);
      exchange_blocks(unit);
    }
  }

  void exchange() {
    for (const size_t bytes : {size_t(0), size_t(100), kMaxExchangeBytes}) {
      const auto of = [&](int rank) {
        return std::string(rank % 3 == 2 ? bytes / 2 : bytes, char('a' + rank));
      };
      const std::vector<std::string> all = backend_.exchange(call(), of(rank_));
      ASSERT_EQ(int(all.size()), size_);
      for (int r = 0; r < size_; ++r) EXPECT_EQ(all[r], of(r)) << "rank " << rank_ << " of " << size_;
    }
  }

  template <class T> void reductions(int64_t n, const std::vector<ReduceOp>& ops) {
    for (const ReduceOp op : ops) {
      const std::string what =
          concat(name_of(op), " of ", n, ' ', name_of(dtype_v<T>), " on ", size_, " ranks");
      const std::vector<T> in = contributions<T>(rank_, n), expected = reduced<T>(size_, n, op);
      std::vector<T> out(n);
      backend_.all_reduce(call(), in.data(), out.data(), n, dtype_v<T>, op);
      expect_same(out.data(), expected.data(), n * sizeof(T), "all_reduce " + what);
      std::vector<T> in_place = in;
      backend_.all_reduce(call(), in_place.data(), in_place.data(), n, dtype_v<T>, op);
      expect_same(in_place.data(), expected.data(), n * sizeof(T), "all_reduce in place " + what);

      for (int root = 0; root < size_; root += std::max(1, size_ - 1)) {
        std::vector<T> at_root = in;
        backend_.reduce(call(), root, at_root.data(), at_root.data(), n, dtype_v<T>, op);
        const bool is_root = rank_ == root;
        expect_same(at_root.data(), is_root ? expected.data() : in.data(), n * sizeof(T), "reduce " + what);
      }

      // Blocks of 0, n, 2n, 0, ... elements.
      std::vector<std::vector<T>> blocks;
      std::vector<ConstBlock> block_list;
      for (int r = 0; r < size_; ++r) blocks.push_back(contributions<T>(rank_, n * (r % 3), r));
      for (const auto& block : blocks) block_list.push_back({block.data(), block.size() * sizeof(T)});
      std::vector<T> part(n * (rank_ % 3));
      backend_.reduce_scatter(call(), block_list, part.data(), dtype_v<T>, op);
      const std::vector<T> expected_part = reduced<T>(size_, n * (rank_ % 3), op, rank_);
      expect_same(part.data(), expected_part.data(), part.size() * sizeof(T), "reduce_scatter " + what);
    }
  }

  void broadcast(size_t bytes, int root) {
    std::string data = text(root, rank_ == root ? bytes : 0);
    data.resize(bytes, '?');
    backend_.broadcast(call(), root, data.data(), bytes);
    EXPECT_TRUE(data == text(root, bytes))
        << "broadcast of " << bytes << " bytes from " << root << " of " << size_;
  }

  // To the root, and from it. Rank r's block has r * unit bytes.
  void gather_and_scatter(size_t unit, int root) {
    const bool is_root = rank_ == root;
    const std::string mine = text(rank_, rank_ * unit);
    std::string out(mine.size(), '?');
    std::vector<std::string> blocks;
    std::vector<ConstBlock> to_root(size_), from_root(size_);
    std::vector<Block> at_root(size_), from_each(size_);
    for (int r = 0; r < size_; ++r) blocks.push_back(std::string(r * unit, '?'));
    for (int r = 0; is_root && r < size_; ++r) {
      at_root[r] = {blocks[r].data(), blocks[r].size()};
      from_root[r] = {blocks[r].data(), blocks[r].size()};
    }
    to_root[root] = {mine.data(), mine.size()};
    from_each[root] = {out.data(), out.size()};
    backend_.exchange_blocks(call(), to_root, at_root);
    for (int r = 0; is_root && r < size_; ++r)
      EXPECT_TRUE(blocks[r] == text(r, r * unit)) << "gather from " << r;
    backend_.exchange_blocks(call(), from_root, from_each);
    EXPECT_TRUE(out == mine) << "scatter to " << rank_;
  }

  void all_gather(size_t unit) {
    std::vector<std::string> blocks;
    std::vector<Block> list;
    for (int r = 0; r < size_; ++r) blocks.push_back(std::string(r * unit, '?'));
    for (std::string& block : blocks) list.push_back({block.data(), block.size()});
    const std::string mine = text(rank_, rank_ * unit);
    backend_.all_gather(call(), {mine.data(), mine.size()}, list);
    for (int r = 0; r < size_; ++r) EXPECT_TRUE(blocks[r] == text(r, r * unit)) << "all_gather from " << r;
  }

  // Rank i sends (i + 2j) % 4 * unit bytes to rank j.
  void exchange_blocks(size_t unit) {
    const auto message = [&](int from, int to) {
      return text(from * 10 + to, size_t((from + 2 * to) % 4) * unit);
    };
    std::vector<std::string> inputs, outputs;
    std::vector<ConstBlock> in;
    std::vector<Block> out;
    for (int r = 0; r < size_; ++r) {
      inputs.push_back(message(rank_, r));
      outputs.push_back(std::string(message(r, rank_).size(), '?'));
    }
    for (const std::string& block : inputs) in.push_back({block.data(), block.size()});
    for (std::string& block : outputs) out.push_back({block.data(), block.size()});
    backend_.exchange_blocks(call(), in, out);
    for (int r = 0; r < size_; ++r) EXPECT_TRUE(outputs[r] == message(r, rank_)) << "block from " << r;
  }

 private:
  static std::string text(int seed, size_t bytes) {
    std::string data(bytes, ' ');
    for (size_t i = 0; i < bytes; ++i) data[i] = char('A' + (seed + i % 251) % 50);
    return data;
  }

  // A deadline for each collective: under a sanitizer, all together take longer than 60 s.
  Call call() const { return {"test", {membership_, Deadline::after(std::chrono::seconds(60))}}; }

  Backend& backend_;
  const int rank_, size_;
  Membership* const membership_;
};

// Runs body(rank) on one thread per rank. Rethrows the error of the lowest rank that threw.
inline void on_threads(int ranks, const std::function<void(int)>& body) {
  std::vector<std::exception_ptr> errors(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

// Sums of floats of very different magnitudes have the same bits on all ranks and in two runs. Job(size)
// provides backend(rank) and call(rank).
template <class Job> void expect_same_bits_in_every_run(const std::vector<int>& sizes) {
  for (const int64_t n : {100, 200'003})
    for (const int size : sizes) {
      std::vector<std::vector<float>> results;
      for (int run = 0; run < 2; ++run) {
        Job job(size);
        std::vector<std::vector<float>> out(size, std::vector<float>(n));
        on_threads(size, [&](int rank) {
          std::minstd_rand random(rank + 1);
          for (float& x : out[rank]) x = std::ldexp(float(random() % 1000) - 500.f, int(random() % 40) - 20);
          job.backend(rank)->all_reduce(job.call(rank), out[rank].data(), out[rank].data(), n, DType::kF32,
                                        ReduceOp::kSum);
        });
        for (auto& one : out) results.push_back(std::move(one));
      }
      for (const auto& one : results) expect_same(one.data(), results[0].data(), n * sizeof(float), "bits");
    }
}

}  // namespace gradus::dist::internal
