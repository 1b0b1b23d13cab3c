// Differentiable collectives against the same function of all ranks' inputs, computed by one rank: values,
// gradients, and gradients of gradients.
#include "gradus/distributed/group/functional.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/group/group_state.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tests/distributed/late.h"
#include "gradus/tests/distributed/threads.h"
#include "gradus/tests/ops/values.h"

namespace gradus::dist {
namespace {

using testing::HasSubstr;
using Tensors = std::vector<Tensor>;

// --- one row per op ---

// A collective and what it computes. `joint` takes every rank's inputs and returns every rank's results.
struct Row {
  std::string name;
  std::function<Tensors(int rank, int world)> inputs;
  std::function<Tensors(const Tensors&)> collective;
  std::function<std::vector<Tensors>(const std::vector<Tensors>&)> joint;
};

Tensor any(const Shape& shape, int seed) { return random_tensor(shape, DType::kF64, 100 + seed); }
// Only the values -1, 0 and 1: ties and zeros on any number of ranks.
Tensor few(const Shape& shape, int seed) { return round(any(shape, seed) * 1.4); }

Tensor joined(ReduceOp op, const Tensors& xs) {
  const Tensor all = stack(xs);
  switch (op) {
    case ReduceOp::kSum:
      return sum(all, {0});
    case ReduceOp::kAvg:
      return mean(all, {0});
    case ReduceOp::kProduct:
      return prod(all, {0});
    case ReduceOp::kMin:
      return amin(all, {0});
    default:
      return amax(all, {0});
  }
}
Tensors first_of_each(const std::vector<Tensors>& all) {
  Tensors xs;
  for (const Tensors& x : all) xs.push_back(x[0]);
  return xs;
}

constexpr ReduceOp kReductions[] = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProduct, ReduceOp::kMin,
                                    ReduceOp::kMax};

std::vector<Row> rows_of_reductions(const Shape& shape, int root) {
  std::vector<Row> rows;
  for (const ReduceOp op : kReductions)
    for (const bool ties : {false, true}) {
      const auto inputs = [=](int rank, int) { return Tensors{ties ? few(shape, rank) : any(shape, rank)}; };
      const std::string name = concat(name_of(op), ties ? " with ties and zeros" : "");
      rows.push_back({"all_reduce " + name, inputs,
                      [=](const Tensors& x) { return Tensors{functional::all_reduce(x[0], op)}; },
                      [=](const std::vector<Tensors>& all) {
                        return std::vector<Tensors>(all.size(), Tensors{joined(op, first_of_each(all))});
                      }});
      rows.push_back({concat("reduce ", name, " to ", root), inputs,
                      [=](const Tensors& x) { return Tensors{functional::reduce(x[0], op, {.root = root})}; },
                      [=](const std::vector<Tensors>& all) {
                        std::vector<Tensors> ys(all.size(), Tensors{zeros_like(all[0][0])});
                        ys[root] = {joined(op, first_of_each(all))};
                        return ys;
                      }});
    }
  return rows;
}

std::vector<Row> rows_of_moves(int root) {
  std::vector<Row> rows;
  rows.push_back(
      {concat("broadcast from ", root),
       [=](int rank, int) {
         return rank == root ? Tensors{any({2, 3}, rank)} : Tensors{};
       },
       [=](const Tensors& x) {
         return Tensors{functional::broadcast(x.empty() ? Tensor() : x[0], {.root = root})};
       },
       [=](const std::vector<Tensors>& all) { return std::vector<Tensors>(all.size(), all[root]); }});
  // The first dim is 0 on even ranks and 2 on odd ranks.
  const auto uneven = [](int rank, int) { return Tensors{any({(rank * 2 + 1) % 4 - 1, 2}, rank)}; };
  rows.push_back(
      {"all_gather", uneven, [](const Tensors& x) { return functional::all_gather(x[0]); },
       [](const std::vector<Tensors>& all) { return std::vector<Tensors>(all.size(), first_of_each(all)); }});
  rows.push_back({"cat_all_gather", uneven,
                  [](const Tensors& x) { return Tensors{functional::cat_all_gather(x[0])}; },
                  [](const std::vector<Tensors>& all) {
                    return std::vector<Tensors>(all.size(), Tensors{cat(first_of_each(all))});
                  }});
  rows.push_back({"cat_all_gather along dim 1",
                  [](int rank, int) {
                    return Tensors{any({2, rank + 1}, rank)};
                  },
                  [](const Tensors& x) { return Tensors{functional::cat_all_gather(x[0], -1)}; },
                  [](const std::vector<Tensors>& all) {
                    return std::vector<Tensors>(all.size(), Tensors{cat(first_of_each(all), 1)});
                  }});
  rows.push_back({"cat_all_gather of scalars", [](int rank, int) { return Tensors{any({}, rank)}; },
                  [](const Tensors& x) { return Tensors{functional::cat_all_gather(x[0])}; },
                  [](const std::vector<Tensors>& all) {
                    return std::vector<Tensors>(all.size(), Tensors{stack(first_of_each(all))});
                  }});
  rows.push_back({concat("gather to ", root), uneven,
                  [=](const Tensors& x) { return functional::gather(x[0], {.root = root}); },
                  [=](const std::vector<Tensors>& all) {
                    std::vector<Tensors> ys(all.size());
                    ys[root] = first_of_each(all);
                    return ys;
                  }});
  rows.push_back({concat("scatter from ", root),
                  [=](int rank, int world) {
                    Tensors xs;
                    for (int r = 0; rank == root && r < world; ++r) xs.push_back(any({r, 2}, r));
                    return xs;
                  },
                  [=](const Tensors& xs) { return Tensors{functional::scatter(xs, {.root = root})}; },
                  [=](const std::vector<Tensors>& all) {
                    std::vector<Tensors> ys;
                    for (size_t r = 0; r < all.size(); ++r) ys.push_back({all[root][r]});
                    return ys;
                  }});
  return rows;
}

std::vector<Row> rows_of_exchanges() {
  std::vector<Row> rows;
  for (const ReduceOp op : kReductions)
    for (const int64_t dim : {0, 1})
      rows.push_back({concat("reduce_scatter ", name_of(op), " along dim ", dim),
                      [=](int rank, int world) {
                        return Tensors{few(dim == 0 ? Shape{2 * world, 3} : Shape{3, world}, rank)};
                      },
                      [=](const Tensors& x) { return Tensors{functional::reduce_scatter(x[0], op, dim)}; },
                      [=](const std::vector<Tensors>& all) {
                        std::vector<Tensors> ys;
                        for (const Tensor& y :
                             chunk(joined(op, first_of_each(all)), int64_t(all.size()), dim))
                          ys.push_back({y});
                        return ys;
                      }});
  for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, 0}, {0, 1}, {1, 0}, {1, 1}})
    rows.push_back({concat("all_to_all from dim ", from, " to ", to),
                    [](int rank, int world) {
                      return Tensors{any({2 * world, 3 * world}, rank)};
                    },
                    [=](const Tensors& x) { return Tensors{functional::all_to_all(x[0], from, to)}; },
                    [=](const std::vector<Tensors>& all) {
                      const auto world = int64_t(all.size());
                      std::vector<Tensors> ys;
                      for (int64_t r = 0; r < world; ++r) {
                        Tensors parts;
                        for (const Tensors& x : all) parts.push_back(chunk(x[0], world, from)[r]);
                        ys.push_back({cat(parts, to)});
                      }
                      return ys;
                    }});
  // Rank r sends (r + 2 j) % 3 rows to rank j.
  rows.push_back({"uneven all_to_all",
                  [](int rank, int world) {
                    Tensors xs;
                    for (int j = 0; j < world; ++j)
                      xs.push_back(any({(rank + 2 * j) % 3, 2}, rank * world + j));
                    return xs;
                  },
                  [](const Tensors& xs) { return functional::all_to_all(xs); },
                  [](const std::vector<Tensors>& all) {
                    std::vector<Tensors> ys(all.size());
                    for (size_t r = 0; r < all.size(); ++r)
                      for (const Tensors& xs : all) ys[r].push_back(xs[r]);
                    return ys;
                  }});
  return rows;
}

// --- comparison with one rank ---

using Uses = std::function<bool(int rank)>;  // whether a rank's loss contains its results
bool everyone(int) { return true; }

// A nonlinear loss with a different weight for each element. Undefined without any ys.
Tensor loss_of(const Tensors& ys, int rank) {
  Tensor total;
  for (size_t k = 0; k < ys.size(); ++k) {
    const Tensor weight = raw::to(any(ys[k].shape(), 1000 + 10 * rank + int(k)), ys[k].device());
    const Tensor part = sum(weight * (ys[k] + 0.5 * square(ys[k])));
    total = total.defined() ? total + part : part;
  }
  return total;
}

Tensor loss_of_gradients(const Tensors& gradients, int rank) {
  Tensor total;
  for (const Tensor& g : gradients) {
    const Tensor part = sum(raw::to(any(g.shape(), 2000 + rank), g.device()) * square(g));
    total = total.defined() ? total + part : part;
  }
  return total.defined() ? total : zeros({}, {.dtype = DType::kF64});
}

struct Results {
  std::vector<Tensors> values, gradients, second;  // per rank
};

Tensor or_zeros(const Tensor& gradient, const Tensor& x) {
  return gradient.defined() ? gradient : zeros_like(x);
}

// Of one process that computes all ranks' results and the sum of their losses.
Results joint_results(const Row& row, int world, const Uses& uses) {
  std::vector<Tensors> inputs;
  Tensors flat;
  for (int r = 0; r < world; ++r) {
    inputs.push_back(row.inputs(r, world));
    flat.insert(flat.end(), inputs[r].begin(), inputs[r].end());
  }
  const auto per_rank = [&](const Tensors& all) {
    std::vector<Tensors> split;
    size_t at = 0;
    for (const Tensors& x : inputs) {
      split.emplace_back(all.begin() + at, all.begin() + at + x.size());
      at += x.size();
    }
    return split;
  };
  const auto loss = [&](const Tensors& xs) {
    const std::vector<Tensors> ys = row.joint(per_rank(xs));
    Tensor total = zeros({}, {.dtype = DType::kF64});
    for (int r = 0; r < world; ++r)
      if (const Tensor l = uses(r) ? loss_of(ys[r], r) : Tensor(); l.defined()) total = total + l;
    return total;
  };
  Results results;
  results.values = row.joint(inputs);
  results.gradients = per_rank(autograd::grad(loss, flat));
  results.second = per_rank(autograd::grad(
      [&](const Tensors& xs) {
        const std::vector<Tensors> gradients = per_rank(autograd::grad(loss, xs));
        Tensor total = zeros({}, {.dtype = DType::kF64});
        for (int r = 0; r < world; ++r) total = total + loss_of_gradients(gradients[r], r);
        return total;
      },
      flat));
  return results;
}

using Places = std::function<Device(int rank)>;  // where a rank has its tensors
Device in_host_memory(int) { return kCPU; }

Results results_of_ranks(const Row& row, int world, const Uses& uses, const RunRanksOptions& options,
                         const Places& places) {
  Results results{std::vector<Tensors>(world), std::vector<Tensors>(world), std::vector<Tensors>(world)};
  run_ranks(
      world,
      [&] {
        const int rank = get_rank();
        const Device place = places(rank);
        Tensors xs;
        for (const Tensor& x : row.inputs(rank, world)) xs.push_back(late(x, place));
        results.values[rank] = row.collective(xs);  // nothing records
        for (const Tensor& y : results.values[rank]) EXPECT_TRUE(xs.empty() || y.device() == place);

        GradManager gm;
        gm.attach(xs);
        {
          auto recording = gm.record();
          const Tensors ys = row.collective(xs);
          for (size_t k = 0; k < ys.size(); ++k) expect_near(ys[k], results.values[rank][k], 0);
          const Tensor loss = uses(rank) ? loss_of(ys, rank) : Tensor();
          loss.defined() ? gm.backward(loss) : gm.backward();
        }
        for (const Tensor& x : xs) {
          results.gradients[rank].push_back(or_zeros(x.grad(), x));
          x.set_grad({});
        }

        auto recording = gm.record();
        const Tensors gradients = autograd::grad(
            [&](const Tensors& inner) {
              const Tensors ys = row.collective(inner);
              const Tensor loss = uses(rank) ? loss_of(ys, rank) : Tensor();
              return loss.defined() ? loss : zeros({}, {.dtype = DType::kF64});
            },
            xs);
        const Tensor loss = loss_of_gradients(gradients, rank);
        autograd::is_tracked(loss) ? gm.backward(loss) : gm.backward();
        for (const Tensor& x : xs) results.second[rank].push_back(or_zeros(x.grad(), x));
      },
      options);
  return results;
}

void expect_all_near(const std::vector<Tensors>& got, const std::vector<Tensors>& want,
                     const std::string& what) {
  for (size_t r = 0; r < want.size(); ++r) {
    ASSERT_EQ(got[r].size(), want[r].size()) << what;
    for (size_t k = 0; k < want[r].size(); ++k) {
      SCOPED_TRACE(concat(what, " ", k, " of rank ", r));
      expect_near(got[r][k], want[r][k], 1e-10);
    }
  }
}

void compare(const Row& row, int world, const Uses& uses = everyone, const RunRanksOptions& options = {},
             const Places& places = in_host_memory) {
  SCOPED_TRACE(concat(row.name, ", ", world, " ranks"));
  const Results got = results_of_ranks(row, world, uses, options, places),
                want = joint_results(row, world, uses);
  expect_all_near(got.values, want.values, "value");
  expect_all_near(got.gradients, want.gradients, "gradient");
  expect_all_near(got.second, want.second, "second-order gradient");
}

std::vector<Row> all_rows(int root) {
  std::vector<Row> rows = rows_of_reductions({2, 3}, root);
  for (const auto& more : {rows_of_moves(root), rows_of_exchanges()})
    rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

TEST(Functional, EveryCollectiveEqualsTheJointFunctionUpToSecondOrder) {
  for (int world = 1; world <= 4; ++world)
    for (const Row& row : all_rows(0)) compare(row, world);
}

TEST(Functional, AnyRankCanBeTheRoot) {
  for (int world = 2; world <= 4; ++world)
    for (int root = 1; root < world; ++root)
      for (const Row& row : all_rows(root))
        if (row.name.find(concat(" ", root)) != std::string::npos) compare(row, world);
}

TEST(Functional, RanksWhoseLossDoesNotUseTheResultGiveZeros) {
  for (const Row& row : all_rows(1)) {
    compare(row, 3, [](int rank) { return rank == 1; });
    compare(row, 3, [](int rank) { return rank != 1; });
  }
}

TEST(Functional, TakesTensorsOfEveryDeviceWhichMayDifferBetweenRanks) {
  const Device other = Device::parse("cpu:1");
  for (const Row& row : all_rows(1)) {
    compare(row, 2, everyone, {}, [&](int) { return other; });
    compare(
        row, 3, [](int rank) { return rank != 1; }, {}, [&](int rank) { return rank == 1 ? kCPU : other; });
  }
}

TEST(Functional, ARankThatGivesNothingSaysWhereTheResultLies) {
  const Device other = Device::parse("cpu:1");
  run_ranks(2, [&] {
    const bool mine = get_rank() == 0;
    const Tensor x = late(any({2}, 3), other);
    const Tensor y = functional::broadcast(mine ? x : Tensor(), {.device = other});
    EXPECT_EQ(y.device(), other);
    const Tensor z = functional::scatter(mine ? Tensors{x, x} : Tensors{}, {.device = other});
    EXPECT_EQ(z.device(), other);
    expect_near(y + z, any({2}, 3) * 2, 0);
  });
  const Device meta = Device::parse("meta");
  EXPECT_THROW(functional::broadcast(Tensor(), {.device = meta}), Error);
  expect_error<DeviceError>([&] { functional::all_reduce(empty({2}, {.device = meta})); },
                            {"[all_reduce] x", "meta"});
}

TEST(Functional, WorksThroughMessagesAndOnSeveralHosts) {
  for (const Row& row : all_rows(1)) {
    compare(row, 3, everyone, {.messages_only = true});
    compare(row, 4, everyone, {.hosts = 2});
  }
}

// --- beyond the table ---

TEST(Functional, NobodysGradientIsNoGradient) {
  run_ranks(3, [] {
    const Tensor x = any({3}, get_rank()), used = any({3}, 7);
    GradManager gm;
    auto recording = gm.attach({x, used}).record();
    functional::all_reduce(x);
    functional::gather(x);
    gm.backward(sum(used));
    EXPECT_FALSE(x.grad().defined());
    EXPECT_TRUE(used.grad().defined());
  });
}

TEST(Functional, ARankWhoseInputNeedsNoGradientTakesPart) {
  for (int world = 2; world <= 4; ++world)
    run_ranks(world, [=] {
      const Tensor x = any({3}, get_rank()), y = any({3}, 50);
      GradManager gm;
      auto recording = gm.attach(get_rank() == 1 ? x : y).record();
      const Tensor z = sum(functional::all_reduce(x, ReduceOp::kProduct));
      gm.backward(z);
      EXPECT_EQ(x.grad().defined(), get_rank() == 1);
      Tensor others = full_like(x, world);
      for (int r = 0; r < world; ++r)
        if (r != 1) others = others * any({3}, r);
      if (get_rank() == 1) expect_near(x.grad(), others, 1e-12);
    });
}

TEST(Functional, IntegersGoThroughWithoutGradients) {
  run_ranks(3, [] {
    const Tensor w = any({2}, 0), x = tensor({int64_t(get_rank() + 1), int64_t(6)});
    GradManager gm;
    auto recording = gm.attach(w).record();
    const auto check = [&](ReduceOp op, int64_t a, int64_t b) {
      EXPECT_THAT(functional::all_reduce(x, op).to_vector<int64_t>(), testing::ElementsAre(a, b));
      const Tensor at_root = functional::reduce(x, op, {.root = 2});
      if (get_rank() != 2) return;
      EXPECT_THAT(at_root.to_vector<int64_t>(), testing::ElementsAre(a, b));
    };
    check(ReduceOp::kSum, 6, 18);
    check(ReduceOp::kProduct, 6, 216);
    check(ReduceOp::kMax, 3, 6);
    check(ReduceOp::kBor, 3, 6);
    EXPECT_EQ(functional::reduce_scatter(cat({x, x, x}), ReduceOp::kBor).to_vector<int64_t>()[0], 3);
    EXPECT_THROW(functional::all_reduce(w, ReduceOp::kBand), DTypeError);
    gm.backward(sum(w));
  });
}

TEST(Functional, GroupsNameRootsByTheirRankInTheJob) {
  run_ranks(4, [] {
    const Group pair = new_group({3, 1});
    if (!pair.is_member()) return;
    const Tensor x = any({2}, get_rank());
    GradManager gm;
    auto recording = gm.attach(x).record();
    const Tensor y = functional::broadcast(x, {.root = 3, .group = pair});
    expect_near(y, any({2}, 3), 0);
    gm.backward(sum(y) * (get_rank() + 1.0));
    EXPECT_EQ(x.grad().defined(), get_rank() == 3);
    if (get_rank() == 3) expect_near(x.grad(), full_like(x, 2.0 + 4.0), 1e-12);
  });
}

TEST(Functional, TwoManagersEachGetTheirGradients) {
  run_ranks(3, [] {
    const Tensor a = any({2}, get_rank()), b = any({2}, 10 + get_rank());
    GradManager gm_a, gm_b;
    gm_a.attach(a);
    gm_b.attach(b);
    auto recording_a = gm_a.record();
    auto recording_b = gm_b.record();
    const Tensor y = functional::all_reduce(a) * functional::all_reduce(b) + functional::all_reduce(a * b);
    gm_b.backward(sum(y));
    EXPECT_FALSE(a.grad().defined());
    gm_a.backward(sum(y));
    Tensor sum_a = zeros_like(a), sum_b = zeros_like(a);
    for (int r = 0; r < 3; ++r) sum_a = sum_a + any({2}, r), sum_b = sum_b + any({2}, 10 + r);
    expect_near(a.grad(), 3 * sum_b + 3 * b, 1e-12);
    expect_near(b.grad(), 3 * sum_a + 3 * a, 1e-12);
  });
}

TEST(Functional, GoesThroughACheckpoint) {
  for (const bool used_by_all : {true, false})
    run_ranks(2, [=] {
      const Tensor x = any({3}, get_rank());
      GradManager gm;
      auto recording = gm.attach(x).record();
      const auto f = [](const Tensor& h) {
        return autograd::checkpoint([](const Tensor& g) { return functional::all_reduce(square(g)); }, h);
      };
      const Tensor y = autograd::checkpoint(f, 2 * x);
      used_by_all || get_rank() == 0 ? gm.backward(sum(y)) : gm.backward();
      expect_near(x.grad(), (used_by_all ? 2 : 1) * 8 * x, 1e-12);
    });
}

TEST(Functional, ResultsAreKeptInTheBackwardsOrderThoughOneRankDropsThem) {
  run_ranks(3, [] {
    const Tensor x = any({4}, get_rank());
    GradManager gm;
    auto recording = gm.attach(x).record();
    Tensor loss = zeros({}, {.dtype = DType::kF64});
    for (int i = 0; i < 6; ++i) {
      const Tensor y = i % 2 ? functional::all_reduce(x * i) : functional::cat_all_gather(x * i);
      if (i % 3 == get_rank()) loss = loss + sum(y);
    }
    gm.backward(loss);
    expect_near(x.grad(), full_like(x, 0 + 1 + 2 + 3 + 4 + 5), 1e-12);
  });
}

TEST(Functional, AResultThatIsKeptDoesNotKeepTheGroup) {
  run_ranks(2, [] {
    const Ref<internal::GroupState> group(&Group().state());
    const uint32_t before = group->use_count();
    const Tensor x = any({3}, 0);
    GradManager gm;
    auto recording = gm.attach(x).record();
    const Tensor y = functional::all_reduce(x), z = functional::broadcast(y);
    EXPECT_GT(group->use_count(), before);
    gm.backward(sum(z));
    EXPECT_EQ(group->use_count(), before);
  });
}

TEST(Functional, BackwardMayRunOnAnotherThread) {
  run_ranks(2, [] {
    const Tensor x = any({3}, 0);
    GradManager gm;
    gm.attach(x);
    Recording recording = gm.record();
    const Tensor y = sum(functional::all_reduce(x, ReduceOp::kMax));
    std::thread([&] { recording.backward(y); }).join();
    expect_near(x.grad(), ones_like(x), 1e-12);
  });
}

// --- misuse ---

TEST(FunctionalErrors, ADifferentCollectiveIsNamedOnAllRanks) {
  const auto errors = errors_of(3, [] {
    const Tensor x = any({2}, 0);
    get_rank() == 1 ? functional::broadcast(x) : functional::all_reduce(x);
  });
  for (const std::string& e : errors) {
    EXPECT_THAT(e, HasSubstr("rank 1 called functional::broadcast"));
    EXPECT_THAT(e, HasSubstr("rank 0 called functional::all_reduce(f64[2], sum)"));
  }
}

TEST(FunctionalErrors, APlainCollectiveIsADifferentOne) {
  for (const std::string& e : errors_of(2, [] {
         const Tensor x = any({2}, 0);
         get_rank() == 0 ? void(functional::all_reduce(x)) : void(all_reduce(x));
       })) {
    EXPECT_THAT(e, HasSubstr("called all_reduce(f64[2], sum)"));
    EXPECT_THAT(e, HasSubstr("called functional::all_reduce(f64[2], sum)"));
  }
}

TEST(FunctionalErrors, ARankThatDoesNotRecordIsNamedOnAllRanks) {
  for (const std::string& e : errors_of(3, [] {
         const Tensor x = any({2}, 0);
         GradManager gm;
         gm.attach(x);
         Recording recording;
         if (get_rank() != 2) recording = gm.record();
         functional::all_reduce(x);
       })) {
    EXPECT_THAT(e, HasSubstr("rank 2 has 0 open recordings and rank 0 has 1"));
  }
}

TEST(FunctionalErrors, RecordingNothingThatIsFollowedIsNoReasonForThem) {
  run_ranks(2, [] {
    const Tensor x = any({2}, 0), w = any({2}, 1);
    GradManager gm;
    gm.attach(w);
    Recording recording;
    if (get_rank() == 0) recording = gm.record();
    functional::all_reduce(x);
    functional::broadcast(x);
  });
}

TEST(FunctionalErrors, ARankThatDoesNotCallBackwardIsNamed) {
  std::atomic<bool> over = false;
  const auto errors = errors_of(3,
                                [&] {
                                  const Tensor x = any({2}, 0);
                                  GradManager gm;
                                  auto recording = gm.attach(x).record();
                                  const Tensor y = sum(functional::all_reduce(x));
                                  if (get_rank() == 1)
                                    while (!over) std::this_thread::sleep_for(Milliseconds(10));
                                  try {
                                    gm.backward(y);
                                  } catch (...) {
                                    over = true;
                                    throw;
                                  }
                                },
                                {.timeout = Milliseconds(300)});
  for (int r : {0, 2}) {
    EXPECT_THAT(errors[r], HasSubstr("while running backward of all_reduce"));
    EXPECT_THAT(errors[r], HasSubstr("rank 1"));
  }
}

TEST(FunctionalErrors, ARankWhoseBackwardThrowsIsNamedAtOnce) {
  const auto errors = errors_of(3, [] {
    const Tensor x = any({2}, 0);
    GradManager gm;
    auto recording = gm.attach(x).record();
    const Tensor y = functional::all_reduce(x);
    if (get_rank() == 1) gm.backward(y);  // an error: two elements
    gm.backward(sum(y));
  });
  EXPECT_THAT(errors[1], HasSubstr("the loss must have one element"));
  for (int r : {0, 2})
    EXPECT_THAT(errors[r],
                HasSubstr("rank 1 failed in its backward: ShapeError: [backward] the loss must have one"));
}

TEST(FunctionalErrors, AnotherOrderInBackwardIsNamed) {
  const auto errors = errors_of(2, [] {
    const Tensor x = any({2}, 0);
    GradManager gm;
    gm.attach(x);
    auto first = gm.record();
    const Tensor a = sum(functional::all_reduce(x));
    first.pause();
    auto second = gm.record();
    const Tensor b = sum(functional::cat_all_gather(x));
    get_rank() == 0 ? first.backward(a) : second.backward(b);
  });
  for (const std::string& e : errors)
    EXPECT_THAT(e, HasSubstr("called the gradient of functional::all_gather"));
}

TEST(FunctionalErrors, ShapesThatDoNotDivideAreRefused) {
  run_ranks(2, [] {
    EXPECT_THROW(functional::reduce_scatter(any({3}, 0)), ShapeError);
    EXPECT_THROW(functional::all_to_all(any({3}, 0)), ShapeError);
    EXPECT_THROW(functional::all_to_all(Tensors{any({3}, 0)}), ValueError);
    EXPECT_THROW(functional::broadcast(any({3}, 0), {.root = 2}), ValueError);
    EXPECT_THROW(functional::all_reduce(Tensor()), ValueError);
  });
}

}  // namespace
}  // namespace gradus::dist
