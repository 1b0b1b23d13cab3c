// Sums of metrics over samples by name, and Tally, which adds up the sums of all ranks. A value on a GPU is kept
// there as an f64 scalar; many such scalars are gathered into one vector and copied to the host in one transfer.
#include "gradus/train/tally.h"

#include <algorithm>
#include <set>

#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/runtime/job.h"
#include "gradus/train/text.h"

namespace gradus::training {
namespace {

// Adds the values of names that `all` has, and appends the pairs of other names.
template <class T>
void add(std::vector<std::pair<std::string, T>>& all, const std::vector<std::pair<std::string, T>>& more) {
  for (const auto& [name, value] : more) {
    const auto found = std::ranges::find(all, name, &std::pair<std::string, T>::first);
    if (found == all.end())
      all.emplace_back(name, value);
    else
      found->second += value;
  }
}

}  // namespace

bool internal::is_on_gpu(const Tensor& x) { return x.device().type == DeviceType::kCUDA; }

Tensor internal::to_f64_scalar(const Tensor& x) {
  const Tensor number = empty({}, {DType::kF64, x.device()});
  raw::copy_(number, raw::reshape(x, {}));
  return number;
}

std::vector<double> internal::read_scalars(const std::vector<Tensor>& numbers) {
  if (numbers.empty()) return {};
  const auto count = static_cast<int64_t>(numbers.size());
  const Tensor all = empty({count}, {DType::kF64, numbers[0].device()});
  for (int64_t i = 0; i < count; ++i) raw::copy_(raw::select(all, 0, i), numbers[static_cast<size_t>(i)]);
  return all.to_vector<double>();
}

Sums& Sums::operator+=(const Sums& s) {
  seen += s.seen;
  add(of, s.of);
  add(counts, s.counts);
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
  for (const auto& [own, values] : counts)
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
  const std::vector<double> values = internal::read_scalars(numbers);
  Sums all{.seen = seen, .of = of, .counts = counts};
  for (size_t i = 0; i < values.size(); ++i)
    add(all.of, {{on_device[i].name, values[i] * on_device[i].factor}});
  return all;
}

bool Sums::operator==(const Sums& s) const {
  const Sums a = read(), b = s.read();
  return a.seen == b.seen && a.of == b.of && a.counts == b.counts;
}

std::string mean_text(const std::string& name, double mean) {
  return name.starts_with("accuracy") ? format_text("%s %.2f %%", name, 100 * mean)
                                      : format_text("%s %.4f", name, mean);
}

Tally::Tally(Sums total) : total_(std::move(total)) {}

void Tally::add(const Sums& s) {
  local_ += s;
  if (local_.on_device.size() >= internal::kMaxUnread) local_ = local_.read();
}

Sums Tally::reduce() {
  local_ = local_.read();
  Sums recent;
  if (dist::get_world_size() == 1) {
    recent = local_;
  } else {
    // The names are sent with the values, because a rank that has had no samples does not know them. The ranks of
    // a replica (pipeline stages) have the same samples, so only the first of them counts.
    dist::WireWriter wire;
    wire.put(Job::current()->replica().index, local_.seen, local_.of, local_.counts);
    std::set<int> replicas;
    for (const std::string& bytes : dist::all_gather_object(wire.release())) {
      dist::WireReader reader(bytes);
      int replica = 0;
      reader.get(replica);
      if (!replicas.insert(replica).second) continue;
      Sums one;
      reader.get(one.seen, one.of, one.counts);
      recent += one;
    }
  }
  local_ = {};
  total_ += recent;
  return recent;
}

}  // namespace gradus::training
