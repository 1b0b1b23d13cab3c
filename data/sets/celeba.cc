// CelebA: ImageFiles whose labels are rows of the table of attributes. A sample's target is that row, so that
// replacements of unreadable images have their own attributes.
#include "gradus/data/sets/celeba.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "gradus/data/sets/text.h"
#include "gradus/data/sets/words.h"
#include "gradus/tensor/base/error.h"

namespace gradus::data {
namespace fs = std::filesystem;

// list_attr_celeba.txt: the number of images, a line of names, then "000001.jpg -1 1 ..." for each image;
// list_eval_partition.txt: "000001.jpg 0", with 0 for training, 1 for validation, 2 for test.
CelebA::Lists CelebA::read_lists(const fs::path& dir, const std::string& split) {
  const std::vector<std::string> splits = {"train", "valid", "test", "all"};
  const auto part = std::find(splits.begin(), splits.end(), split) - splits.begin();
  if (part == 4) throw ValueError("CelebA", "split must be train, valid, test or all, got '", split, "'");
  std::error_code ignored;
  const fs::path folder = fs::exists(dir / "celeba" / "list_attr_celeba.txt", ignored) ? dir / "celeba" : dir;
  const fs::path list = folder / "list_attr_celeba.txt", partition = folder / "list_eval_partition.txt";
  const std::string attribute_text = read_text(list), partition_text = read_text(partition);
  std::string_view words = attribute_text, parts = partition_text;

  const std::optional<double> count = internal::to_number(internal::take_word(words));
  std::string_view header = internal::take_until(words, "\n");
  Lists lists;
  while (true) {
    const std::string_view name = internal::take_word(header);
    if (name.empty()) break;
    lists.names.emplace_back(name);
  }
  if (!count || lists.names.empty())
    throw FileError("CelebA", list.string(), ": expected the number of images and a line of names");
  int64_t row = 0;
  for (;; ++row) {
    const std::string_view name = internal::take_word(words), number = internal::take_word(parts);
    if (name.empty() && number.empty()) break;
    if (!internal::is_file_name(name) || name != number)
      throw FileError("CelebA", partition.string(), ": row ", row + 1, " is of '", internal::shown(number),
                      "', and in ", list.string(), " of '", internal::shown(name),
                      "', expected the same file name");
    const std::string_view which = internal::take_word(parts);
    if (which != "0" && which != "1" && which != "2")
      throw FileError("CelebA", partition.string(), ": row ", row + 1, " has part '", internal::shown(which),
                      "', expected 0, 1 or 2");
    const bool is_used = part == 3 || which[0] - '0' == part;
    if (is_used) lists.images.push_back({folder / "img_align_celeba" / name, std::ssize(lists.images)});
    for (size_t i = 0; i < lists.names.size(); ++i) {
      const std::string_view value = internal::take_word(words);
      if (value != "1" && value != "-1")
        throw FileError("CelebA", list.string(), ": row ", row + 1, " has '", internal::shown(value),
                        "' for ", lists.names[i], ", expected 1 or -1");
      if (is_used) lists.values.push_back(value == "1");
    }
  }
  if (double(row) != *count)
    throw FileError("CelebA", list.string(), " has ", row, " images, expected ", *count,
                    " by its first line");
  if (lists.images.empty()) throw ValueError("CelebA", list.string(), " has no image of split '", split, "'");
  return lists;
}

CelebA::CelebA(const fs::path& dir, const CelebaOptions& options)
    : CelebA(read_lists(dir, options.split), options) {}

CelebA::CelebA(Lists lists, const CelebaOptions& options)
    : lists_(std::move(lists)), files_(lists_.images, options.files) {
  lists_.images = {};
}

Tensor CelebA::attributes(const Tensor& rows) const {
  const size_t count = lists_.names.size();
  std::vector<int64_t> values;
  for (const int64_t row : rows.to_vector<int64_t>())
    for (size_t i = 0; i < count; ++i) values.push_back(lists_.values[size_t(row) * count + i]);
  Shape shape = rows.shape();
  shape.insert(rows.dim(), int64_t(count));
  return tensor<int64_t>(values, shape);
}

Sample CelebA::get(int64_t index) const {
  Sample sample = files_.get(index);
  sample.target = attributes(sample.target);
  return sample;
}

Batch CelebA::get_batch(std::span<const int64_t> indices) const {
  Batch batch = files_.get_batch(indices);
  batch.target = attributes(batch.target);
  return batch;
}

int64_t CelebA::attribute(const std::string& name) const {
  const auto at = std::find(lists_.names.begin(), lists_.names.end(), name);
  if (at == lists_.names.end()) throw ValueError("CelebA", "no attribute is called '", name, "'");
  return at - lists_.names.begin();
}

}  // namespace gradus::data
