// Pascal VOC: lists of images, and a reader of the subset of XML that annotations use: elements, attributes (which
// are ignored), text, comments and declarations; no DTD, CDATA sections or entities.
#include "gradus/data/sets/voc.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "gradus/data/sets/text.h"
#include "gradus/data/sets/words.h"
#include "gradus/tensor/base/error.h"

namespace gradus::data {
namespace fs = std::filesystem;
namespace {

template <class... Parts> [[noreturn]] void fail(const fs::path& file, const Parts&... parts) {
  throw FileError("voc", file.string(), ": ", parts...);
}

// Calls end(path, text) at the end of each element: "annotation/object/name" and the text since the last tag.
void read_xml(const fs::path& file,
              const std::function<void(const std::string& path, std::string_view text)>& end) {
  constexpr size_t kMaxDepth = 16;
  const std::string content = read_text(file, {.max_bytes = 1 << 20});
  std::string_view rest = content;
  std::vector<size_t> sizes;  // of `path` before each open element
  std::string path;
  bool has_root = false;
  while (true) {
    std::string_view text = internal::take_until(rest, "<");
    text = text.substr(0, text.find_last_not_of(internal::kBlanks) + 1);
    if (sizes.empty() && !text.empty())
      fail(file, "expected an XML element, got '", internal::shown(text), "'");
    if (rest.empty()) break;
    const bool is_comment = rest.starts_with("<!--");
    const std::string_view close = is_comment ? "-->" : rest.starts_with("<?") ? "?>" : ">";
    const size_t length = rest.find(close, is_comment ? 4 : 1);
    if (length == rest.npos) fail(file, "the tag '", internal::shown(rest), "' does not end");
    std::string_view tag = rest.substr(1, length - 1);
    rest.remove_prefix(length + close.size());
    if (is_comment || tag.starts_with('?')) continue;
    const bool closes = tag.starts_with('/'), is_empty = tag.ends_with('/');
    if (closes) tag.remove_prefix(1);
    const std::string_view name = tag.substr(0, tag.find_first_of(" \t\r\n/"));
    if (name.empty() || name.starts_with('!'))
      fail(file, "the tag '", internal::shown(tag), "' is not supported");
    if (!closes) {
      if (sizes.empty() && std::exchange(has_root, true)) fail(file, "expected one root element");
      if (sizes.size() == kMaxDepth) fail(file, "elements are nested more than ", kMaxDepth, " deep");
      sizes.push_back(path.size());
      path.append(sizes.size() > 1 ? "/" : "").append(name);
      if (!is_empty) continue;
    } else if (sizes.empty() || path.substr(sizes.back() + (sizes.size() > 1)) != name) {
      fail(file, "</", internal::shown(name), "> does not end <", path, ">");
    }
    end(path, closes ? text : "");
    path.resize(sizes.back());
    sizes.pop_back();
  }
  if (!sizes.empty() || !has_root) fail(file, "ends within <", path, ">");
}

std::vector<std::string> read_list(const fs::path& file) {
  const std::string text = read_text(file);
  std::string_view rest = text;
  std::vector<std::string> names;
  while (true) {
    std::string_view line = internal::take_until(rest, "\n");
    const std::string_view name =
        internal::take_word(line);  // ImageSets/Main/dog_train.txt has a second word
    if (name.empty()) break;
    if (!internal::is_file_name(name))
      fail(file, "expected the name of an image, got '", internal::shown(name), "'");
    names.emplace_back(name);
  }
  if (names.empty()) fail(file, "names no image");
  return names;
}

std::vector<ImageFile> list_images(const fs::path& dir, const std::string& image_set) {
  std::vector<ImageFile> files;
  for (const std::string& name : read_list(dir / "ImageSets" / "Main" / (image_set + ".txt")))
    files.push_back({dir / "JPEGImages" / (name + ".jpg"), std::ssize(files)});
  return files;
}

}  // namespace

const std::vector<std::string>& voc_classes() {
  static const std::vector<std::string> classes = {
      "background", "aeroplane", "bicycle",     "bird",  "boat",        "bottle", "bus",
      "car",        "cat",       "chair",       "cow",   "diningtable", "dog",    "horse",
      "motorbike",  "person",    "pottedplant", "sheep", "sofa",        "train",  "tvmonitor"};
  return classes;
}

std::vector<SegmentationFile> voc_segmentation(const fs::path& dir, const std::string& image_set) {
  std::vector<SegmentationFile> files;
  for (const std::string& name : read_list(dir / "ImageSets" / "Segmentation" / (image_set + ".txt")))
    files.push_back({dir / "JPEGImages" / (name + ".jpg"), dir / "SegmentationClass" / (name + ".png")});
  return files;
}

std::vector<VocObject> read_voc_annotation(const fs::path& file) {
  constexpr int kMaxPixels = 1 << 24;
  static const std::string kObject = "annotation/object", kBox = kObject + "/bndbox/";
  std::vector<VocObject> objects;
  VocObject object;
  std::array<std::optional<double>, 4> box;
  read_xml(file, [&](const std::string& path, std::string_view text) {
    const std::array<const char*, 4> sides = {"xmin", "ymin", "xmax", "ymax"};
    for (size_t i = 0; i < 4; ++i)
      if (path == kBox + sides[i]) box[i] = internal::to_number(text);
    if (path == kObject + "/name") object.name = text;
    if (path == kObject + "/difficult") object.difficult = text == "1";
    if (path == kObject + "/truncated") object.truncated = text == "1";
    if (path != kObject) return;
    const auto [x_min, y_min, x_max, y_max] = std::exchange(box, {});
    if (object.name.empty()) fail(file, "object ", objects.size() + 1, " has no name");
    const auto is_side = [](std::optional<double> low, std::optional<double> high) {
      return low && high && *low >= 0 && *low < *high && *high <= kMaxPixels;
    };
    if (!is_side(x_min, x_max) || !is_side(y_min, y_max))
      fail(file, "object ", objects.size() + 1, " needs a bndbox with 0 <= xmin < xmax <= ", kMaxPixels,
           " and the same for ymin and ymax");
    object.x_min = *x_min, object.y_min = *y_min, object.x_max = *x_max, object.y_max = *y_max;
    objects.push_back(std::exchange(object, {}));
  });
  return objects;
}

VOCDetection::VOCDetection(const fs::path& dir, const std::string& image_set,
                           const VocDetectionOptions& options)
    : files_(list_images(dir, image_set), options.files), max_objects_(options.max_objects) {
  if (max_objects_ < 1 || max_objects_ > 1 << 20)
    throw ValueError(name(), "max_objects must be from 1 to 2^20, got ", max_objects_);
  for (const std::string& id : read_list(dir / "ImageSets" / "Main" / (image_set + ".txt"))) {
    const fs::path file = dir / "Annotations" / (id + ".xml");
    std::vector<Row>& rows = objects_.emplace_back();
    for (const VocObject& o : read_voc_annotation(file)) {
      const auto at = std::find(options.classes.begin(), options.classes.end(), o.name);
      if (at == options.classes.end())
        fail(file, "'", internal::shown(o.name), "' is not one of the classes");
      rows.push_back({float(o.x_min), float(o.y_min), float(o.x_max), float(o.y_max),
                      float(at - options.classes.begin()), float(o.difficult)});
    }
    if (std::ssize(rows) > max_objects_)
      fail(file, "has ", rows.size(), " objects, more than max_objects = ", max_objects_);
  }
}

Sample VOCDetection::get(int64_t index) const {
  Sample sample = files_.get(index);
  std::vector<float> values;
  for (const Row& row : objects_[size_t(sample.target.item<int64_t>())])
    values.insert(values.end(), row.begin(), row.end());
  values.resize(size_t(max_objects_) * 6, -1);
  sample.target = tensor<float>(values, {max_objects_, 6});
  return sample;
}

}  // namespace gradus::data
