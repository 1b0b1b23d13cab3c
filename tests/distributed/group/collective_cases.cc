// The cases are built from tensors of period kPeriod, whose expected results are computed per element from
// the values of all ranks. They run among all ranks and among every second rank, synchronously and
// asynchronously.
#include "gradus/tests/distributed/group/collective_cases.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "gradus/autograd/ops/copy.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"

namespace gradus::dist {
namespace {

// ---- values

// Contributions repeat after so many elements, so that large tensors are cheap to make and to check.
constexpr int64_t kPeriod = 60;

// Element i of rank r's input, small enough that sums over 8 ranks are exact in every dtype.
double value_of(ReduceOp op, DType dtype, int rank, int64_t i) {
  i %= kPeriod;
  if (dtype == DType::kBool) return (rank + i) % 3 != 0;
  switch (op) {
    case ReduceOp::kProduct:
      return 1 + (rank + i) % 2;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return (rank * 7 + i * 3) % 11;
    case ReduceOp::kBand:
    case ReduceOp::kBor:
    case ReduceOp::kBxor:
      return (rank * 37 + i * 11) & 0x7f;
    default:
      return (rank + i) % 5;
  }
}

double combine(ReduceOp op, DType dtype, double a, double b) {
  if (dtype == DType::kBool) {
    if (op == ReduceOp::kSum) op = ReduceOp::kBor;
    if (op == ReduceOp::kProduct) op = ReduceOp::kBand;
  }
  switch (op) {
    case ReduceOp::kProduct:
      return a * b;
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kBand:
      return double(int64_t(a) & int64_t(b));
    case ReduceOp::kBor:
      return double(int64_t(a) | int64_t(b));
    case ReduceOp::kBxor:
      return double(int64_t(a) ^ int64_t(b));
    default:
      return a + b;
  }
}

double reduced(ReduceOp op, DType dtype, const std::vector<int>& ranks, int64_t i) {
  double x = value_of(op, dtype, ranks[0], i);
  for (size_t r = 1; r < ranks.size(); ++r) x = combine(op, dtype, x, value_of(op, dtype, ranks[r], i));
  if (op == ReduceOp::kAvg) x /= double(ranks.size());
  return op == ReduceOp::kAvg && !is_floating(dtype) ? std::trunc(x) : x;
}

// ---- tensors

using Function = std::function<double(int64_t i)>;  // of period kPeriod

Tensor make(DType dtype, const Shape& shape, const Function& f) {
  const Tensor x = empty(shape, {.dtype = dtype});
  dispatch_all(dtype, [&]<class T>() {
    T table[kPeriod];
    for (int64_t i = 0; i < kPeriod; ++i) table[i] = T(float(f(i)));
    T* const data = x.ptr<T>();
    for (int64_t i = 0; i < x.numel(); ++i) data[i] = table[i % kPeriod];
  });
  return x;
}
Tensor make(DType dtype, const Shape& shape, double value) {
  return make(dtype, shape, [value](int64_t) { return value; });
}

std::string compare(const std::string& what, const Tensor& x, const Function& f) {
  std::string wrong;
  dispatch_all(x.dtype(), [&]<class T>() {
    double table[kPeriod];
    for (int64_t i = 0; i < kPeriod; ++i) table[i] = f(i);
    // Quotients are rounded, all else is exact.
    const double tolerance = !is_floating(x.dtype()) ? 0 : size_of(x.dtype()) == 2 ? 0x1p-8 : 0x1p-22;
    const T* const data = x.ptr<T>();
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double expected = table[i % kPeriod], value = double(data[i]);
      if (std::abs(value - expected) <= tolerance * std::abs(expected)) continue;
      wrong = concat(what, '[', i, "] is ", value, ", expected ", expected, ' ');
      return;
    }
  });
  return wrong;
}

// ---- the list

struct Setting {
  std::string text;  // "", ", among every second rank"
  Group group;
  std::vector<int> ranks;  // of the group, in its order
  int me = 0;              // index
  bool async = false;
  bool thorough = true;  // all dtypes and large tensors: in one setting, as the others move data alike
};

class CaseList {
 public:
  explicit CaseList(const CaseLimits& limits) : limits_(limits) {}

  std::vector<CollectiveCase> make_all() {
    const Group all = world();
    // Every second rank, in descending order: indices differ from ranks.
    const Group some = all.split(all.rank() % 2, -all.rank());
    for (const bool async : {false, true})
      for (const bool whole : {true, false}) {
        async_ = async;
        const Group& group = whole ? all : some;
        const Setting s{.text = concat(whole ? "" : ", among every second rank", async ? ", async" : ""),
                        .group = group,
                        .ranks = group.ranks(),
                        .me = group.rank(),
                        .async = async,
                        .thorough = whole && !async};
        reductions(s);
        movements(s);
        messages(s);
        objects(s);
      }
    async_ = false;
    many_at_once(all, some);
    return std::move(cases_);
  }

  std::vector<CollectiveCase> make_for(const Group& group) {
    const Setting s{.group = group, .ranks = group.ranks(), .me = group.rank()};
    reductions(s);
    movements(s);
    objects(s);
    return std::move(cases_);
  }

 private:
  // `body` starts a call, or, without an argument, is the whole case and returns what is wrong.
  template <class Body> void add(const char* op, const std::string& name, Body body) {
    std::function<StartedCase(bool)> start;
    if constexpr (std::is_invocable_v<Body, bool>)
      start = std::move(body);
    else
      start = [body](bool) { return StartedCase{Work(), [wrong = std::string(body())] { return wrong; }}; };
    cases_.push_back({op, name, std::move(start), async_});
  }

  // Calls f for all dtypes if the elements matter (reductions), else for some (movements of bytes).
  void for_each_form(const Setting& s, const std::function<void(DType, int64_t n)>& f,
                     bool elements_matter) const {
    for (DType dtype : limits_.dtypes)
      for (int64_t n : {int64_t(0), int64_t(1), int64_t(1031), limits_.large}) {
        const bool common = dtype == DType::kF32 || dtype == DType::kI64 || dtype == DType::kU8;
        if (s.thorough ? !common && !elements_matter : dtype != DType::kF32 && dtype != DType::kU8) continue;
        if (n == limits_.large && (!s.thorough || dtype != DType::kF32)) continue;
        f(dtype, n);
      }
  }

  void for_each_reduction(const Setting& s, const std::function<void(DType, int64_t n, ReduceOp)>& f) const {
    for_each_form(
        s,
        [&](DType dtype, int64_t n) {
          for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax,
                              ReduceOp::kAvg, ReduceOp::kBand, ReduceOp::kBor, ReduceOp::kBxor}) {
            if (op >= ReduceOp::kBand && is_floating(dtype)) continue;
            if (op == ReduceOp::kAvg && dtype == DType::kBool) continue;
            if (n == limits_.large && op != ReduceOp::kSum && op != ReduceOp::kMax) continue;
            f(dtype, n, op);
          }
        },
        true);
  }

  // Elements from `from` on: of this rank's input, of the reduction's result, of the input of `rank`.
  Function mine(ReduceOp op, DType dtype, int64_t from = 0) const {
    return [=, at = from + limits_.shift, rank = get_rank()](int64_t i) {
      return value_of(op, dtype, rank, at + i);
    };
  }
  Function result(const Setting& s, ReduceOp op, DType dtype, int64_t from = 0) const {
    return [=, at = from + limits_.shift, ranks = s.ranks](int64_t i) {
      return reduced(op, dtype, ranks, at + i);
    };
  }
  Function of_rank(int rank, DType dtype, int64_t from = 0) const {
    return
        [=, at = from + limits_.shift](int64_t i) { return value_of(ReduceOp::kSum, dtype, rank, at + i); };
  }

  void reductions(const Setting& s) {
    for_each_reduction(s, [&](DType dtype, int64_t n, ReduceOp op) {
      const std::string name = concat(dtype, '[', n, "] ", name_of(op), s.text);
      add("all_reduce", name, [=, this](bool async) -> StartedCase {
        const Tensor x = make(dtype, {n}, mine(op, dtype));
        Work work = all_reduce(x, {.op = op, .group = s.group, .async_op = async});
        return {std::move(work), [=, this] { return compare("x", x, result(s, op, dtype)); }};
      });
      if (op != ReduceOp::kSum && op != ReduceOp::kMax && op != ReduceOp::kAvg) return;
      for (int root : roots(s))
        add("reduce", concat(name, " to ", root), [=, this](bool async) -> StartedCase {
          const Tensor x = make(dtype, {n}, mine(op, dtype));
          Work work = reduce(x, {.dst = root, .op = op, .group = s.group, .async_op = async});
          return {std::move(work), [=, this] {
                    return compare("x", x, root == get_rank() ? result(s, op, dtype) : mine(op, dtype));
                  }};
        });
      add("reduce_scatter_tensor", name, [=, this](bool async) -> StartedCase {
        const int64_t size = int64_t(s.ranks.size());
        const Tensor x = make(dtype, {size, n}, mine(op, dtype));
        const Tensor y = make(dtype, {n}, 1);
        Work work = reduce_scatter_tensor(y, x, {.op = op, .group = s.group, .async_op = async});
        return {std::move(work), [=, this] { return compare("output", y, result(s, op, dtype, s.me * n)); }};
      });
      add("reduce_scatter", name, [=, this](bool async) -> StartedCase {  // member j gets n + j elements
        std::vector<Tensor> xs;
        for (int64_t j = 0; j < int64_t(s.ranks.size()); ++j)
          xs.push_back(make(dtype, {n ? n + j : 0}, mine(op, dtype, j)));
        const Tensor y = make(dtype, {n ? n + s.me : 0}, 1);
        Work work = reduce_scatter(y, xs, {.op = op, .group = s.group, .async_op = async});
        return {std::move(work), [=, this] { return compare("output", y, result(s, op, dtype, s.me)); }};
      });
      add("all_reduce_coalesced", name, [=, this](bool async) -> StartedCase {
        const std::vector<Shape> shapes = {{n}, {}, {3, n}, {0, 2}, {7}};
        std::vector<Tensor> xs;
        for (const Shape& shape : shapes) xs.push_back(make(dtype, shape, mine(op, dtype)));
        Work work = all_reduce_coalesced(xs, {.op = op, .group = s.group, .async_op = async});
        return {std::move(work), [=, this] {
                  std::string wrong;
                  for (size_t i = 0; i < xs.size(); ++i)
                    wrong += compare(concat("xs[", i, "]"), xs[i], result(s, op, dtype));
                  return wrong;
                }};
      });
    });
    add("all_reduce_coalesced", "nothing" + s.text, [=](bool async) -> StartedCase {
      return {all_reduce_coalesced({}, {.group = s.group, .async_op = async}), [] { return ""; }};
    });
  }

  // The first and the last member.
  static std::vector<int> roots(const Setting& s) {
    if (s.ranks.size() == 1) return {s.ranks[0]};
    return {s.ranks.front(), s.ranks.back()};
  }

  // How many elements member i gives, where members may differ: n, nothing, 2n, 3n, n, ...
  static int64_t uneven(int64_t n, int i) { return n * std::vector<int64_t>{1, 0, 2, 3}[i % 4]; }

  std::vector<Tensor> make_uneven(const Setting& s, DType dtype, int64_t n) const {
    std::vector<Tensor> ys;
    for (int i = 0; i < int(s.ranks.size()); ++i) ys.push_back(make(dtype, {uneven(n, i)}, 1));
    return ys;
  }
  std::string compare_gathered(const Setting& s, DType dtype, const std::vector<Tensor>& ys) const {
    std::string wrong;
    for (size_t i = 0; i < ys.size(); ++i)
      wrong += compare(concat("outputs[", i, "]"), ys[i], of_rank(s.ranks[i], dtype));
    return wrong;
  }

  void movements(const Setting& s) {
    const int size = int(s.ranks.size());
    for_each_form(
        s,
        [&](DType dtype, int64_t n) {
          const std::string name = concat(dtype, '[', n, "]", s.text);
          const auto my_values = of_rank(get_rank(), dtype);
          for (int root : roots(s)) {
            const bool is_root = root == get_rank();
            add("broadcast", concat(name, " from ", root), [=, this](bool async) -> StartedCase {
              const Tensor x = is_root ? make(dtype, {n}, of_rank(root, dtype)) : make(dtype, {n}, 1);
              Work work = broadcast(x, {.src = root, .group = s.group, .async_op = async});
              return {std::move(work), [=, this] { return compare("x", x, of_rank(root, dtype)); }};
            });
            add("gather", concat(name, " to ", root), [=, this](bool async) -> StartedCase {
              const Tensor x = make(dtype, {uneven(n, s.me)}, my_values);
              const std::vector<Tensor> ys = is_root ? make_uneven(s, dtype, n) : std::vector<Tensor>();
              Work work = gather(x, ys, {.dst = root, .group = s.group, .async_op = async});
              return {std::move(work),
                      [=, this] { return compare_gathered(s, dtype, ys) + compare("x", x, my_values); }};
            });
            add("scatter", concat(name, " from ", root), [=, this](bool async) -> StartedCase {
              std::vector<Tensor> xs;
              for (int j = 0; is_root && j < size; ++j)
                xs.push_back(make(dtype, {uneven(n, j)}, of_rank(root, dtype, j)));
              const Tensor y = make(dtype, {uneven(n, s.me)}, 1);
              Work work = scatter(y, xs, {.src = root, .group = s.group, .async_op = async});
              return {std::move(work), [=, this] { return compare("x", y, of_rank(root, dtype, s.me)); }};
            });
          }
          add("all_gather", name, [=, this](bool async) -> StartedCase {
            const Tensor x = make(dtype, {uneven(n, s.me)}, my_values);
            const std::vector<Tensor> ys = make_uneven(s, dtype, n);
            Work work = all_gather(ys, x, {.group = s.group, .async_op = async});
            return {std::move(work), [=, this] { return compare_gathered(s, dtype, ys); }};
          });
          if (!s.async)
            add("all_gather", name + ", of unknown shapes", [=, this] {
              const Shape shape = s.me % 2 ? Shape{uneven(n, s.me), 1, 1} : Shape{uneven(n, s.me)};
              const std::vector<Tensor> ys = all_gather(make(dtype, shape, my_values), {.group = s.group});
              std::string wrong = compare_gathered(s, dtype, ys);
              for (int i = 0; i < size; ++i)
                if (ys[i].dim() != (i % 2 ? 3 : 1) || ys[i].size(0) != uneven(n, i))
                  wrong += concat("outputs[", i, "] is ", describe(ys[i]), ' ');
              return wrong;
            });
          add("all_gather_into_tensor", name, [=, this](bool async) -> StartedCase {
            const Tensor x = make(dtype, {n}, my_values);
            const Tensor y = make(dtype, {size * n}, 1);
            Work work = all_gather_into_tensor(y, x, {.group = s.group, .async_op = async});
            return {std::move(work), [=, this] {
                      std::string wrong;
                      for (int i = 0; i < size && n; ++i)
                        wrong += compare(concat("part ", i, " of output"),
                                         view_as_strided(y, {n}, {1}, i * n), of_rank(s.ranks[i], dtype));
                      return wrong;
                    }};
          });
          // Member i gives j uneven(n, i + j) elements.
          add("all_to_all", name, [=, this](bool async) -> StartedCase {
            std::vector<Tensor> xs, ys;
            for (int j = 0; j < size; ++j) {
              xs.push_back(make(dtype, {uneven(n, s.me + j)}, of_rank(get_rank(), dtype, j)));
              ys.push_back(make(dtype, {uneven(n, s.me + j)}, 1));
            }
            Work work = all_to_all(ys, xs, {.group = s.group, .async_op = async});
            return {std::move(work), [=, this] {
                      std::string wrong;
                      for (int j = 0; j < size; ++j)
                        wrong += compare(concat("outputs[", j, "]"), ys[j], of_rank(s.ranks[j], dtype, s.me));
                      return wrong;
                    }};
          });
          add("all_to_all_single", name, [=](bool async) -> StartedCase {
            std::vector<int64_t> splits;
            for (int j = 0; j < size; ++j) splits.push_back(uneven(n, s.me + j));
            const int64_t rows = std::accumulate(splits.begin(), splits.end(), int64_t(0));
            const Tensor x = make(dtype, {rows, 2}, double(s.me + 1));
            const Tensor y = make(dtype, {rows, 2}, 1);
            Work work = all_to_all_single(y, x, splits, splits, {.group = s.group, .async_op = async});
            return {std::move(work), [=] {
                      std::string wrong;
                      for (int64_t j = 0, row = 0; j < size; row += splits[j++])
                        if (splits[j])
                          wrong +=
                              compare(concat("part ", j), view_as_strided(y, {splits[j] * 2}, {1}, row * 2),
                                      [&](int64_t) { return dtype == DType::kBool ? 1 : double(j + 1); });
                      return wrong;
                    }};
          });
          add("all_to_all_single", name + ", even", [=](bool async) -> StartedCase {
            const Tensor x = make(dtype, {size, n}, double(s.me + 1));
            const Tensor y = make(dtype, {size, n}, 1);
            Work work = all_to_all_single(y, x, {}, {}, {.group = s.group, .async_op = async});
            return {std::move(work), [=] {
                      std::string wrong;
                      for (int64_t j = 0; j < size && n; ++j)
                        wrong += compare(concat("part ", j), view_as_strided(y, {n}, {1}, j * n),
                                         [&](int64_t) { return dtype == DType::kBool ? 1 : double(j + 1); });
                      return wrong;
                    }};
          });
        },
        false);
    add("barrier", "twice" + s.text, [=](bool async) -> StartedCase {
      barrier({.group = s.group, .async_op = async}).wait();
      return {barrier({.group = s.group, .async_op = async}), [] { return ""; }};
    });
  }

  void messages(const Setting& s) {
    const int size = int(s.ranks.size());
    if (size == 1) return;
    const int next = s.ranks[(s.me + 1) % size], previous = s.ranks[(s.me + size - 1) % size];
    for_each_form(
        s,
        [&](DType dtype, int64_t n) {
          add("send_recv", concat(dtype, '[', n, "] around", s.text), [=, this] {
            const Tensor x = make(dtype, {n}, of_rank(get_rank(), dtype));
            const Tensor y = make(dtype, {n}, 1);
            if (s.async) {
              const Work receive = irecv(y, {.src = previous, .group = s.group});
              const Work send = isend(x, {.dst = next, .group = s.group});
              receive.wait();
              send.wait();
              if (receive.source_rank() != previous) return concat("from ", receive.source_rank());
            } else if (s.me % 2 == 0) {  // even ranks send first, to avoid a deadlock
              send(x, {.dst = next, .group = s.group});
              recv(y, {.src = previous, .group = s.group});
            } else {
              recv(y, {.src = previous, .group = s.group});
              send(x, {.dst = next, .group = s.group});
            }
            return compare("received", y, of_rank(previous, dtype));
          });
        },
        false);
    add("send_recv", "several of one tag keep their order, tags are apart" + s.text, [=] {
      if (s.me == 0) {
        std::vector<Work> sends;
        for (int i = 0; i < 5; ++i)
          sends.push_back(isend(make(DType::kF32, {1}, i), {.dst = s.ranks[1], .tag = 7, .group = s.group}));
        sends.push_back(isend(make(DType::kF32, {1}, 100), {.dst = s.ranks[1], .tag = 8, .group = s.group}));
        for (const Work& w : sends) w.wait();
      }
      std::string wrong;
      if (s.me == 1) {
        const auto take = [&](uint32_t tag, double expected) {
          const Tensor y = make(DType::kF32, {1}, 1);
          recv(y, {.src = s.ranks[0], .tag = tag, .group = s.group});
          wrong += compare("received", y, [=](int64_t) { return expected; });
        };
        take(8, 100);
        for (int i = 0; i < 5; ++i) take(7, i);
      }
      return wrong;
    });
    add("send_recv", "from any rank" + s.text, [=] {
      if (s.me != 0) {
        send(make(DType::kI64, {3}, get_rank()), {.dst = s.ranks[0], .tag = 3, .group = s.group});
        return std::string();
      }
      std::vector<int> sources;
      std::string wrong;
      for (int i = 1; i < size; ++i) {
        const Tensor y = make(DType::kI64, {3}, 1);
        const int source = recv(y, {.tag = 3, .group = s.group});
        sources.push_back(source);
        wrong += compare("received", y, [=](int64_t) { return double(source); });
      }
      std::vector<int> expected(s.ranks.begin() + 1, s.ranks.end());
      std::ranges::sort(expected);
      std::ranges::sort(sources);
      return sources == expected ? wrong : wrong + "not each rank's message came once";
    });
    add("batch_isend_irecv", "everyone with everyone" + s.text, [=] {
      std::vector<P2POp> ops;
      std::vector<Tensor> ys(size);
      for (int j = 0; j < size; ++j) {
        if (j == s.me) continue;
        ys[j] = make(DType::kF32, {5000}, 1);
        ops.push_back(
            {P2POp::Kind::kSend, make(DType::kF32, {5000}, s.me * size + j), s.ranks[j], 5, s.group});
        ops.push_back({P2POp::Kind::kRecv, ys[j], s.ranks[j], 5, s.group});
      }
      for (const Work& work : batch_isend_irecv(ops)) work.wait();
      std::string wrong;
      for (int j = 0; j < size; ++j)
        if (j != s.me)
          wrong += compare(concat("from ", j), ys[j], [&](int64_t) { return double(j * size + s.me); });
      return wrong;
    });
  }

  static std::string object_of(int rank, size_t n) {
    return concat(rank, ':') + std::string(n, char('a' + rank % 26));
  }

  void objects(const Setting& s) {
    if (s.async) return;
    const int size = int(s.ranks.size());
    for (size_t n : {size_t(0), size_t(1), size_t(100'000)}) {
      const std::string name = concat("of ", n, " bytes", s.text);
      // Sizes differ from rank to rank.
      const std::string mine = object_of(get_rank(), n * s.me);
      const auto expect_all = [=](const std::vector<std::string>& all) {
        for (int i = 0; i < size; ++i)
          if (all.at(i) != object_of(s.ranks[i], n * i)) return concat("object ", i, " is wrong");
        return std::string();
      };
      add("objects", "all_gather " + name,
          [=] { return expect_all(all_gather_object(mine, {.group = s.group})); });
      for (int root : roots(s)) {
        const bool is_root = root == get_rank();
        const int root_index = root == s.ranks[0] ? 0 : size - 1;
        add("objects", concat("broadcast ", name, " from ", root), [=] {
          const std::string got = broadcast_object(is_root ? mine : "", {.src = root, .group = s.group});
          return got == object_of(root, n * root_index) ? "" : "wrong object";
        });
        add("objects", concat("gather ", name, " to ", root), [=] {
          const auto all = gather_object(mine, {.dst = root, .group = s.group});
          return is_root ? expect_all(all) : all.empty() ? std::string() : "an object where none should be";
        });
        add("objects", concat("scatter ", name, " from ", root), [=] {
          std::vector<std::string> all;
          for (int i = 0; is_root && i < size; ++i) all.push_back(object_of(i, n * i));
          const std::string got = scatter_object(all, {.src = root, .group = s.group});
          return got == object_of(s.me, n * s.me) ? "" : "wrong object";
        });
      }
      if (size > 1)
        add("objects", "send and recv " + name, [=] {
          if (s.me == 0) send_object(object_of(9, n), {.dst = s.ranks[1], .group = s.group});
          if (s.me != 1) return "";
          return recv_object({.src = s.ranks[0], .group = s.group}) == object_of(9, n) ? "" : "wrong object";
        });
    }
  }

  void many_at_once(const Group& all, const Group& some) {
    add("many_at_once", "asynchronous calls in two groups, waited for in reverse", [=] {
      std::vector<std::pair<Tensor, Work>> calls;
      for (int i = 0; i < 64; ++i) {
        const Tensor x = make(DType::kF32, {1 + i * 37}, i);
        calls.emplace_back(x, all_reduce(x, {.group = i % 3 ? all : some, .async_op = true}));
      }
      const Tensor y = make(DType::kF32, {3}, 1);
      all_reduce(y, {.group = all});  // waits for its turn
      std::string wrong = compare("y", y, [&](int64_t) { return double(all.size()); });
      for (int i = 63; i >= 0; --i) {
        calls[i].second.wait();
        if (!calls[i].second.is_completed()) wrong += "not completed after wait ";
        const double size = i % 3 ? all.size() : some.size();
        wrong += compare(concat("call ", i), calls[i].first, [&](int64_t) { return i * size; });
      }
      return wrong;
    });
    add("many_at_once", "a thousand small ones", [=] {
      const Tensor x = make(DType::kF64, {2}, 1);
      for (int i = 0; i < 1000; ++i) all_reduce(x, {.op = ReduceOp::kAvg, .group = all});
      return compare("x", x, [](int64_t) { return 1.0; });
    });
  }

  const CaseLimits limits_;
  bool async_ = false;
  std::vector<CollectiveCase> cases_;
};

}  // namespace

std::vector<std::string> collective_ops() {
  return {"all_reduce",
          "all_reduce_coalesced",
          "reduce",
          "broadcast",
          "gather",
          "scatter",
          "all_gather",
          "all_gather_into_tensor",
          "reduce_scatter",
          "reduce_scatter_tensor",
          "all_to_all",
          "all_to_all_single",
          "barrier",
          "send_recv",
          "batch_isend_irecv",
          "objects",
          "many_at_once"};
}

namespace {

// The cases and their checks capture `this` of their list, so they keep it alive.
std::vector<CollectiveCase> owning(const std::shared_ptr<CaseList>& list, std::vector<CollectiveCase> cases) {
  for (CollectiveCase& c : cases)
    c.start = [list, start = std::move(c.start)](bool async) {
      StartedCase started = start(async);
      started.check = [list, check = std::move(started.check)] { return check(); };
      return started;
    };
  return cases;
}

}  // namespace

std::vector<CollectiveCase> collective_cases(const CaseLimits& limits) {
  const auto list = std::make_shared<CaseList>(limits);
  return owning(list, list->make_all());
}

std::vector<CollectiveCase> collective_cases_of(const Group& group, const CaseLimits& limits) {
  const auto list = std::make_shared<CaseList>(limits);
  return owning(list, list->make_for(group));
}

std::string CollectiveCase::run() const {
  const StartedCase started = start(async);
  started.work.wait();
  return started.check();
}

}  // namespace gradus::dist
