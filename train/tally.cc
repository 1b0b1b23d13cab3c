#include "gradus/train/tally.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/job.h"
#include "gradus/train/text.h"

namespace gradus::train {

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
  return *this;
}

bool Sums::contains(std::string_view name) const {
  return std::ranges::any_of(of, [&](const auto& sum) { return sum.first == name; });
}

double Sums::sum(std::string_view name) const {
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
  std::map<std::string, double> all;
  for (const auto& [name, value] : of) all[name] = mean(name);
  return all;
}

std::string mean_text(const std::string& name, double mean) {
  return name.starts_with("accuracy") ? format("%s %.2f %%", name.c_str(), 100 * mean)
                                      : format("%s %.4f", name.c_str(), mean);
}

Sums Tally::reduce() {
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

int64_t count_correct(const Tensor& logits, const Tensor& target, int64_t k, int64_t rows) {
  const Tensor values = raw::contiguous(raw::to(raw::to(logits, kCPU), DType::kF32)),
               classes_of = raw::to(target, kCPU);
  const float* x = values.data<float>();
  const int64_t* y = classes_of.data<int64_t>();
  const int64_t classes = logits.size(1);
  if (rows < 0) rows = logits.size(0);
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

Sums score(const Tensor& loss, const Tensor& logits, const data::Batch& b, ScoreOptions options) {
  const int64_t rows = b.size() - b.padding;
  double sum = 0;
  if (loss.dim() == 0) {
    sum = loss.item<double>() * double(rows);
  } else {
    const Tensor values = raw::contiguous(raw::to(raw::to(loss, kCPU), DType::kF32));
    for (int64_t i = 0; i < rows; ++i) sum += double(values.data<float>()[i]);
  }
  Sums sums{.seen = rows,
            .of = {{"loss", sum}, {"accuracy", double(count_correct(logits, b.target, 1, rows))}}};
  if (options.in_5) sums.of.emplace_back("accuracy_in_5", count_correct(logits, b.target, 5, rows));
  return sums;
}

}  // namespace gradus::train
