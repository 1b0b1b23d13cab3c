// The op fuzzer: finds the sizes of each row that may vary and the kernels that it runs, draws cases with
// sizes around the constants in those kernels' sources, and simplifies those that fail.
#include "gradus/tests/ops/fuzz/fuzz.h"

#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <ostream>
#include <set>

#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus::optest {
namespace {

// The sizes in the sources of each op's kernel.
const std::map<std::string, std::vector<int64_t>>& kernel_sizes() {
  static const std::map<std::string, std::vector<int64_t>> sizes = {
#include "gradus/tests/ops/fuzz/kernel_sizes.inc"
  };
  return sizes;
}

// Records the names of the kernels that run.
class Kernels : public Observer {
 public:
  int64_t announce(const Range& range) override {
    if (range.kind == RangeKind::kKernel) names.emplace(range.name);
    return -1;
  }
  std::set<std::string> names;
};

template <class F> std::set<std::string> kernels_of(F f) {
  Ref<Kernels> kernels(new Kernels);
  Context context = Context::current().snapshot();
  context.observer = kernels;
  ContextScope scope(context);
  internal::observers.fetch_add(1);
  try {
    f();
  } catch (const std::exception&) {
  }
  internal::observers.fetch_sub(1);
  return kernels->names;
}

// The number of earlier rows with the same op and variant.
int alike_before(const OpCase& row) {
  int n = 0;
  for (const OpCase* r = &row; r-- != all_rows().data();) n += r->op == row.op && r->variant == row.variant;
  return n;
}

// The running case, printed if a signal ends the program; SIGPROF: the case does not end.
char running[4096];
constexpr int kSecondsForOne = 60;  // of CPU time, which a busy machine does not use up
bool has_alarm = false;
void set_alarm(int seconds) {
  const itimerval limit{.it_interval = {}, .it_value = {.tv_sec = seconds, .tv_usec = 0}};
  setitimer(ITIMER_PROF, &limit, nullptr);
}
void print_running(int signal) {
  const char* title =
      signal == SIGPROF ? "WRONG: does not end:\n" : "WRONG: a signal ended the program during\n";
  if (write(STDOUT_FILENO, title, strlen(title)) < 0 || write(STDOUT_FILENO, running, strlen(running)) < 0)
    _exit(1);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void now_runs(const std::string& what) {
  if (has_alarm) set_alarm(kSecondsForOne);
  std::snprintf(running, sizeof(running), "%s\n", what.c_str());
}

std::string name_of_row(const OpCase& r) { return r.op + (r.variant.empty() ? "" : " / " + r.variant); }

// --- which sizes of a row may be changed ---

// A size that may vary: `places` are the (input, dim) pairs that share it; it also bounds the indices in the
// inputs `bounded`.
struct Freedom {
  std::vector<std::pair<size_t, int>> places;
  std::vector<size_t> bounded;
  int64_t size, unit;  // varies in multiples of `unit`
};

struct RowFreedom {
  std::vector<std::vector<Freedom>> of_sample;
  std::vector<DType> dtypes;
};

struct RowKernels {
  std::set<std::string> names;  // that run
  std::vector<int64_t> sizes;   // constants in their sources
  bool heavy = false;           // the reference takes long: products of matrices
};

FuzzCase plain_case(const OpCase& row, size_t sample, DType t) {
  FuzzCase c{.op = row.op, .variant = row.variant, .alike = alike_before(row), .sample = sample, .dtype = t};
  for (const Input& i : row.samples[sample]) {
    c.shapes.push_back(i.shape), c.below.push_back(i.hi);
    c.layouts += 'c';
  }
  return c;
}

void set_size(FuzzCase& c, const Freedom& f, int64_t n) {
  for (const auto& [k, d] : f.places) c.shapes[k][d] = n;
  for (size_t k : f.bounded) c.below[k] = double(n);
}

bool agrees(const OpCase& row, const FuzzCase& c) {
  const FuzzOutcome o = outcome_of(row, c);
  return !o.refused && o.wrong.empty();
}

bool may_take(const OpCase& row, const FuzzCase& c, const Freedom& f, std::initializer_list<int64_t> sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [&](int64_t n) {
    FuzzCase other = c;
    set_size(other, f, n);
    return agrees(row, other);
  });
}

// Finds by trial the smallest sets of dims that must have the same size for op and reference to work.
std::vector<Freedom> freedom_of(const OpCase& row, size_t sample, DType t) {
  const FuzzCase c = plain_case(row, sample, t);
  std::vector<Freedom> found;
  std::set<std::pair<size_t, int>> done;
  if (!agrees(row, c)) return found;
  for (size_t k = 0; k < c.shapes.size(); ++k)
    for (int d = 0; d < c.shapes[k].size(); ++d) {
      const int64_t n = c.shapes[k][d];
      // Inputs with given values keep their size, except indices, which may be repeated.
      const auto given = [&](size_t i) {
        return !row.samples[sample][i].values.empty() && !row.samples[sample][i].fixed;
      };
      if (n == 0 || done.count({k, d}) || given(k)) continue;
      std::vector<std::pair<size_t, int>> alike;
      std::vector<size_t> bounded;
      for (size_t i = 0; i < c.shapes.size(); ++i) {
        for (int e = 0; e < c.shapes[i].size(); ++e)
          if (c.shapes[i][e] == n && !done.count({i, e}) && !given(i) && std::pair(i, e) != std::pair(k, d) &&
              alike.size() < 5)
            alike.push_back({i, e});
        const Input& input = row.samples[sample][i];
        if (input.fixed && input.fill == Fill::kInteger && input.values.empty() && input.hi == double(n))
          bounded.push_back(i);
      }
      std::vector<unsigned> subsets(size_t(1) << alike.size());
      for (size_t i = 0; i < subsets.size(); ++i) subsets[i] = unsigned(i);
      std::stable_sort(subsets.begin(), subsets.end(),
                       [](unsigned a, unsigned b) { return std::popcount(a) < std::popcount(b); });
      for (unsigned subset : subsets) {
        Freedom f{.places = {{k, d}}, .bounded = bounded, .size = n, .unit = 1};
        for (size_t i = 0; i < alike.size(); ++i)
          if (subset >> i & 1) f.places.push_back(alike[i]);
        bool free = may_take(row, c, f, {n + 1, n + 2});
        if (!free && !bounded.empty()) {
          f.bounded.clear();
          free = may_take(row, c, f, {n + 1, n + 2});
        }
        if (!free && n > 1) {
          f.unit = n;
          free = may_take(row, c, f, {2 * n, 3 * n});
        }
        if (!free) continue;
        done.insert(f.places.begin(), f.places.end());
        found.push_back(f);
        break;
      }
    }
  return found;
}

const RowFreedom& freedom_of(const OpCase& row) {
  static std::map<const OpCase*, RowFreedom> known;
  const auto [at, fresh] = known.try_emplace(&row);
  RowFreedom& f = at->second;
  if (!fresh) return f;
  now_runs("sizes near the samples' of " + name_of_row(row));
  const bool has_f64 = std::count(row.dtypes.begin(), row.dtypes.end(), DType::kF64);
  const DType t = has_f64 ? DType::kF64 : row.dtypes[0];
  for (size_t s = 0; s < row.samples.size(); ++s) f.of_sample.push_back(freedom_of(row, s, t));
  // The row's dtypes, and others that the op takes and in which the reference holds for the samples.
  f.dtypes = row.dtypes;
  for (DType other : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI64, DType::kI32,
                      DType::kI16, DType::kI8, DType::kU8, DType::kBool}) {
    if (std::count(f.dtypes.begin(), f.dtypes.end(), other)) continue;
    bool all = true;
    for (size_t s = 0; all && s < row.samples.size(); ++s) all = agrees(row, plain_case(row, s, other));
    if (all) f.dtypes.push_back(other);
  }
  return f;
}

const RowKernels& ran_by(const OpCase& row) {
  static std::map<const OpCase*, RowKernels> known;
  const auto [at, fresh] = known.try_emplace(&row);
  RowKernels& k = at->second;
  if (!fresh) return k;
  now_runs("the samples of " + name_of_row(row));
  k.names = kernels_of([&] {
    for (size_t s = 0; s < row.samples.size(); ++s) outcome_of(row, plain_case(row, s, row.dtypes[0]));
  });
  std::set<int64_t> sizes;
  for (const std::string& name : k.names) {
    k.heavy = k.heavy || name.find("conv") == 0 || name == "matmul";
    if (const auto of = kernel_sizes().find(name); of != kernel_sizes().end())
      sizes.insert(of->second.begin(), of->second.end());
  }
  k.sizes.assign(sizes.begin(), sizes.end());
  return k;
}

// Whether a sample has an input without elements.
bool may_be_empty(const OpCase& row) {
  for (const Sample& sample : row.samples)
    for (const Input& i : sample)
      if (i.shape.product() == 0) return true;
  return false;
}

// --- choosing cases ---

// The random numbers of case `number`.
class Dice {
 public:
  Dice(uint64_t seed, uint64_t number) : seed_(seed), number_(number) {}
  uint64_t bits() {
    const auto b = philox(seed_, number_, at_++);
    return uint64_t(b[0]) << 32 | b[1];
  }
  int64_t below(int64_t n) { return int64_t(bits() % uint64_t(n)); }
  bool chance(int64_t percent) { return below(100) < percent; }
  template <class C> const auto& of(const C& c) { return c[size_t(below(int64_t(std::size(c))))]; }

 private:
  uint64_t seed_, number_, at_ = 0;
};

// A constant of the kernels, or a multiple of it, or its number of elements if it counts bytes; exactly,
// next to it, or with a short remainder.
int64_t special_size(Dice& dice, const RowKernels& k, DType t) {
  if (k.sizes.empty()) return 1 + dice.below(40);
  int64_t v = dice.of(k.sizes);
  if (dice.chance(15)) v = std::max<int64_t>(1, v / size_of(t));
  if (dice.chance(25)) v *= 2 + dice.below(4);
  if (dice.chance(10)) v *= dice.of(k.sizes);
  if (dice.chance(20)) return v + 2 + dice.below(16);
  return std::max<int64_t>(1, v + dice.below(3) - 1);
}

int64_t elements_of(const FuzzCase& c) {
  double n = 0;
  for (const Shape& s : c.shapes) {
    double product = 1;
    for (int64_t d : s) product *= double(d);
    n += product;
  }
  return int64_t(std::min(n, 1e15));
}

// The product of the sizes that may vary: an upper bound for the elements of results of products and
// broadcasting.
double extent_of(const FuzzCase& c, const std::vector<Freedom>& free) {
  double product = 1;
  for (const Freedom& f : free) {
    const auto [k, d] = f.places[0];
    product *= double(std::max<int64_t>(1, c.shapes[k][d]));
  }
  return product;
}

// A case of the row with random sizes, layouts, threads and values.
FuzzCase choose(const OpCase& row, Dice& dice) {
  const RowFreedom& f = freedom_of(row);
  const RowKernels& kernels = ran_by(row);
  const bool empty = may_be_empty(row);
  FuzzCase c = plain_case(row, size_t(dice.below(int64_t(row.samples.size()))), dice.of(f.dtypes));
  const std::vector<Freedom>& free = f.of_sample[c.sample];
  // Most cases are small, and many; some reach the thresholds from which on there are several tasks.
  const int64_t kind = dice.below(100);
  const int64_t room = std::max(elements_of(c), int64_t(kind < 60   ? 1 << (kernels.heavy ? 11 : 12)
                                                        : kind < 92 ? 1 << (kernels.heavy ? 13 : 14)
                                                                    : 1 << (kernels.heavy ? 16 : 18)));
  // In half of the cases all sizes start small, so that one can be large. Often several sizes are multiples
  // of 16 or 32, as vector kernels require.
  if (dice.chance(50))
    for (const Freedom& one : free) set_size(c, one, one.unit * (1 + dice.below(3)));
  const int64_t vector = dice.chance(kernels.heavy ? 50 : 20) ? int64_t(16) << dice.below(2) : 0;
  // Such kernels often take few filter sizes: small sizes that occur once are kept.
  const bool keeps_filters = vector && kernels.heavy && dice.chance(70);
  std::vector<size_t> order(free.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (size_t i = 0; i + 1 < order.size(); ++i)
    std::swap(order[i], order[i + size_t(dice.below(int64_t(order.size() - i)))]);
  for (size_t i : order) {
    const Freedom& one = free[i];
    if (keeps_filters && one.size <= 3 && one.places.size() == 1) {
      set_size(c, one, one.size);
      continue;
    }
    for (int attempt = 0; attempt < 4; ++attempt) {
      int64_t n = empty && dice.chance(5)     ? 0
                  : vector && dice.chance(50) ? vector * (1 + dice.below(3))
                  : vector && dice.chance(30) ? one.size
                  : dice.chance(65)           ? special_size(dice, kernels, c.dtype)
                                              : 1 + dice.below(20);
      n = (n + one.unit - 1) / one.unit * one.unit;
      FuzzCase other = c;
      set_size(other, one, n);
      if (elements_of(other) > room && dice.chance(50)) {
        // n as a threshold of the total number of elements.
        set_size(other, one, one.unit);
        const int64_t rest = std::max<int64_t>(1, elements_of(other) / one.unit);
        set_size(other, one, std::max<int64_t>(1, (n / rest + dice.below(3)) / one.unit) * one.unit);
      }
      if (elements_of(other) > room || extent_of(other, free) > double(kMaxElements)) continue;
      c = other;
      break;
    }
  }
  for (size_t k = 0; row.layouts && k < c.layouts.size(); ++k)
    if (!dice.chance(35)) {
      // Given values are not repeated along a dim (layout b of FuzzCase::layouts).
      const bool given = !row.samples[c.sample][k].values.empty();
      c.layouts[k] = "srnob"[dice.below(given ? 4 : 5)];
    }
  c.threads = dice.chance(40) ? 1 : 1 + int(dice.below(8));
  c.seed = dice.bits() >> 16;
  return c;
}

// A simpler case that still fails: row-major layouts, one thread and the sample's sizes where possible.
FuzzCase simplified(const OpCase& row, FuzzCase c) {
  const auto try_out = [&](const FuzzCase& other) {
    const FuzzOutcome o = outcome_of(row, other);
    if (!o.refused && !o.wrong.empty()) c = other;
  };
  FuzzCase other = c;
  other.threads = 1;
  try_out(other);
  for (size_t k = 0; k < c.layouts.size(); ++k) {
    other = c, other.layouts[k] = 'c';
    try_out(other);
  }
  for (const Freedom& f : freedom_of(row).of_sample[c.sample])
    for (int64_t n : {f.size, f.unit, 2 * f.unit}) {
      other = c;
      set_size(other, f, n);
      if (elements_of(other) < elements_of(c)) try_out(other);
    }
  return c;
}

}  // namespace

FuzzReport fuzz(const FuzzOptions& options) {
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGILL, SIGPROF}) std::signal(signal, print_running);
  has_alarm = options.seconds > 0;
  // Cases are drawn by kernel, since hundreds of rows share a few kernels; more often for a kernel with more
  // constants.
  std::map<std::string, std::vector<const OpCase*>> by_kernel;
  for (const OpCase& r : all_rows())
    if (r.reference && (options.op.empty() || r.op == options.op))
      for (const std::string& kernel : ran_by(r).names) by_kernel[kernel].push_back(&r);
  std::vector<const std::vector<const OpCase*>*> tickets;
  for (const auto& [kernel, rows] : by_kernel) {
    const auto of = kernel_sizes().find(kernel);
    const size_t sizes = of == kernel_sizes().end() ? 0 : of->second.size();
    tickets.insert(tickets.end(), 1 + sizes / 4, &rows);
  }
  FuzzReport report;
  std::set<const OpCase*> bad;
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  while (!tickets.empty() && report.failures.size() < options.failures &&
         (options.cases == 0 || report.cases < options.cases) &&
         (options.seconds == 0 || elapsed() < options.seconds)) {
    Dice dice(options.seed, uint64_t(report.cases));
    const OpCase& row = *dice.of(*dice.of(tickets));
    const FuzzCase c = choose(row, dice);
    now_runs(program_of(c));
    const FuzzOutcome o = bad.count(&row) ? FuzzOutcome() : outcome_of(row, c);
    ++report.cases;
    report.refused += o.refused, report.gradients += o.gradient;
    if (o.wrong.empty()) continue;
    bad.insert(&row);
    const FuzzCase simple = simplified(row, c);
    report.failures.push_back(concat("case ", report.cases - 1, " of seed ", options.seed, ": ",
                                     name_of_row(row), ": ", check(simple), "\n", program_of(simple)));
    if (options.failed) options.failed(report.failures.back());
  }
  set_alarm(0);
  report.seconds = elapsed();
  return report;
}

void describe_rows(std::ostream& o) {
  for (const OpCase& r : all_rows()) {
    o << name_of_row(r) << ":" << std::flush;
    if (!r.reference) {
      o << " no reference\n";
      continue;
    }
    const RowFreedom& f = freedom_of(r);
    for (size_t s = 0; s < f.of_sample.size(); ++s) {
      o << " sample";
      for (const Input& i : r.samples[s]) o << " " << to_string(i.shape);
      o << " free";
      for (const Freedom& one : f.of_sample[s])
        o << " " << one.size << (one.unit > 1 ? "*" : "") << (one.bounded.empty() ? "" : "<") << "x"
          << one.places.size();
      o << ";";
    }
    for (DType t : f.dtypes) o << " " << gradus::name_of(t);
    o << (ran_by(r).heavy ? " heavy" : "") << "\n";
  }
}

}  // namespace gradus::optest
