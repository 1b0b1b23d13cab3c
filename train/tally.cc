#include "gradus/train/tally.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tensor/ops/comparison.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/runtime/job.h"
#include "gradus/train/internal/numbers.h"
#include "gradus/train/text.h"

namespace gradus::training {

namespace {

template <class T>
void add(std::vector<std::pair<std::string, T>>& all, const std::vector<std::pair<std::string, T>>& more) {
  for (const auto& [name, value] : more) {
    const auto mine = std::ranges::find(all, name, &std::pair<std::string, T>::first);
    if (mine == all.end())
      all.emplace_back(name, value);
    else
      mine->second += value;
  }
}

}  // namespace

Sums& Sums::operator+=(const Sums& s) {
  seen += s.seen;
  add(of, s.of);
  add(seen_of, s.seen_of);
  on_device.insert(on_device.end(), s.on_device.begin(), s.on_device.end());
  return *this;
}

bool Sums::contains(std::string_view name) const {
  return std::ranges::any_of(of, [&](const auto& sum) { return sum.first == name; }) ||
         std::ranges::any_of(on_device, [&](const OnDevice& sum) { return sum.name == name; });
}

double Sums::sum(std::string_view name) const {
  if (!on_device.empty()) return read().sum(name);
  for (const auto& [own, value] : of)
    if (own == name) return value;
  return 0;
}

double Sums::mean(std::string_view name) const {
  int64_t count = seen;
  for (const auto& [own, values] : seen_of)
    if (own == name) count = values;
  return count ? sum(name) / double(count) : 0;
}

std::map<std::string, double> Sums::means() const {
  if (!on_device.empty()) return read().means();
  std::map<std::string, double> all;
  for (const auto& [name, value] : of) all[name] = mean(name);
  return all;
}

Sums Sums::read() const {
  std::vector<Tensor> numbers;
  for (const OnDevice& part : on_device) numbers.push_back(part.number);
  const std::vector<double> values = internal::read_numbers(numbers);
  Sums all{.seen = seen, .of = of, .seen_of = seen_of};
  for (size_t i = 0; i < values.size(); ++i)
    add(all.of, {{on_device[i].name, values[i] * on_device[i].times}});
  return all;
}

bool Sums::operator==(const Sums& s) const {
  const Sums a = read(), b = s.read();
  return a.seen == b.seen && a.of == b.of && a.seen_of == b.seen_of;
}

std::string mean_text(const std::string& name, double mean) {
  return name.starts_with("accuracy") ? format("%s %.2f %%", name.c_str(), 100 * mean)
                                      : format("%s %.4f", name.c_str(), mean);
}

void Tally::add(const Sums& s) {
  mine_ += s;
  if (mine_.on_device.size() >= internal::kMostUnread) mine_ = mine_.read();
}

Sums Tally::reduce() {
  mine_ = mine_.read();
  Sums recent;
  if (dist::get_world_size() == 1) {
    recent = mine_;
  } else {
    // A rank that has seen nothing yet has no names.
    dist::WireWriter mine;
    mine.put(Job::current()->replica().index);
    mine.put(mine_.seen);
    mine.put(mine_.of);
    mine.put(mine_.seen_of);
    std::set<int> replicas;
    for (const std::string& bytes : dist::all_gather_object(mine.take())) {
      dist::WireReader wire(bytes);
      int replica = 0;
      wire.get(replica);
      if (!replicas.insert(replica).second) continue;
      Sums one;
      wire.get(one.seen);
      wire.get(one.of);
      wire.get(one.seen_of);
      recent += one;
    }
  }
  mine_ = {};
  total_ += recent;
  return recent;
}

namespace {

// Returns for how many rows of f32 count_correct() holds: a number on their device.
Tensor correct_on_device(const Tensor& x, const Tensor& target, int64_t k) {
  if (k == 1) {
    const auto [largest, place] = raw::max(x, 1);  // a NaN is the largest
    return raw::sum(raw::logical_and(raw::eq(place, target), raw::eq(largest, largest)));
  }
  const Tensor y = raw::unsqueeze(target, 1), classes = arange(x.size(1), {DType::kI64, x.device()});
  const Tensor none = zeros({}, {x.dtype(), x.device()});
  const Tensor at_target = raw::sum(raw::where(raw::eq(classes, y), x, none), {1}, true);
  // What is not at most the target's: larger, or NaN.
  const Tensor larger = raw::unary<functors::LogicalNot>(raw::le(x, at_target));
  const Tensor equal = raw::logical_and(raw::eq(x, at_target), raw::lt(classes, y));
  const Tensor before = raw::sum(raw::logical_or(larger, equal), {1}, true);
  return raw::sum(raw::logical_and(raw::lt(before, k), raw::eq(at_target, at_target)));
}

int64_t correct_on_host(const Tensor& values, const Tensor& target, int64_t k) {
  const float* x = values.data<float>();
  const int64_t* y = target.data<int64_t>();
  const int64_t rows = values.size(0), classes = values.size(1);
  int64_t correct = 0;
  for (int64_t i = 0; i < rows; ++i, x += classes) {
    // The target's place: how many come before it.
    const float at_target = x[y[i]];
    int64_t before = 0;
    for (int64_t c = 0; c < classes; ++c)
      before += x[c] > at_target || (x[c] == at_target && c < y[i]) || (std::isnan(x[c]) && c != y[i]);
    correct += before < k && !std::isnan(at_target);
  }
  return correct;
}

// Returns count_correct() as a number, on the device of the logits if to read it there is to wait.
Tensor correct(const Tensor& logits, const Tensor& target, int64_t k, int64_t rows) {
  const Tensor x = raw::to(raw::narrow(logits, 0, 0, rows), DType::kF32), y = raw::narrow(target, 0, 0, rows);
  if (internal::is_far(x)) return correct_on_device(x, raw::to(y, x.device()), k);
  return scalar(correct_on_host(raw::contiguous(raw::to(x, kCPU)), raw::contiguous(raw::to(y, kCPU)), k),
                {.dtype = DType::kI64});
}

// Returns the sum of one loss of each sample, in f64.
Tensor sum_of(const Tensor& losses) {
  const Tensor values = raw::to(losses, DType::kF32);
  if (internal::is_far(values)) return raw::sum(raw::to(values, DType::kF64));
  double sum = 0;
  for (const float value : values.to_vector<float>()) sum += double(value);
  return scalar(sum, {.dtype = DType::kF64});
}

}  // namespace

int64_t count_correct(const Tensor& logits, const Tensor& target, int64_t k, int64_t rows) {
  return correct(logits, target, k, rows < 0 ? logits.size(0) : rows).item<int64_t>();
}

Sums score(const Tensor& loss, const Tensor& logits, const data::Batch& b, ScoreOptions options) {
  const int64_t rows = b.size() - b.padding;
  Sums sums{.seen = rows};
  const auto add = [&](const char* name, const Tensor& number, double times) {
    if (internal::is_far(number))
      sums.on_device.push_back({name, internal::kept_number(number), times});
    else
      sums.of.emplace_back(name, number.item<double>() * times);
  };
  if (loss.dim() == 0)
    add("loss", loss, double(rows));
  else
    add("loss", sum_of(raw::narrow(loss, 0, 0, rows)), 1);
  add("accuracy", correct(logits, b.target, 1, rows), 1);
  if (options.in_5) add("accuracy_in_5", correct(logits, b.target, 5, rows), 1);
  return sums;
}

}  // namespace gradus::training
