// Saves, loads and clears the process's cache of convolution choices (ConvChoiceCache: for each convolution,
// the cuDNN engine and its knobs). A file is for one GPU model and one version of cuDNN. Loading or clearing
// also drops the compiled plans, so that convolutions make plans from the new choices.
#include "gradus/tensor/cuda/cudnn/conv_plans.h"

#include <cctype>
#include <string>
#include <system_error>
#include <utility>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/cuda/cudnn/cudnn.h"
#include "gradus/tensor/cuda/cudnn/plan_file.h"
#include "gradus/tensor/ops/images/conv_benchmark.h"

namespace gradus::cuda {
namespace {

namespace fs = std::filesystem;

int64_t library_version(const char* op) { return static_cast<int64_t>(cudnn(op).cudnnGetVersion()); }

std::string describe(int64_t version, const DeviceModel& m) {
  return concat("cuDNN ", version, " on ", m.name, " (", m.major, '.', m.minor, ')');
}

// Returns FOLDER/NVIDIA_H100_80GB_HBM3_cudnn91900.txt.
fs::path file_in(const char* op, const fs::path& folder, Device device) {
  std::string name = model_of(device).name;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return folder / concat(name, "_cudnn", library_version(op), ".txt");
}

void load_from_folder(const fs::path& folder, Device device) {
  const fs::path path = file_in("load_plans", folder, device);
  std::error_code ignored;
  if (fs::exists(path, ignored)) load_plans(path, device);
}
void save_to_folder(const fs::path& folder, Device device) {
  if (ConvChoiceCache::get().all(model_of(device)).empty()) return;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw FileError("save_plans", folder.string(), ": cannot be created: ", error.message());
  save_plans(file_in("save_plans", folder, device), device);
}

[[maybe_unused]] const bool is_set =
    (raw::conv_benchmark = {&set_cudnn_benchmark, &load_from_folder, &save_to_folder}, true);

}  // namespace

int64_t save_plans(const fs::path& path, Device device) {
  constexpr const char* op = "save_plans";
  const DeviceModel model = model_of(device);
  const PlanFile file{library_version(op), model, ConvChoiceCache::get().all(model)};
  write_plan_file(op, path, file);
  return static_cast<int64_t>(file.choices.size());
}

int64_t load_plans(const fs::path& path, Device device) {
  constexpr const char* op = "load_plans";
  PlanFile file = read_plan_file(op, path);
  const DeviceModel model = model_of(device);
  const int64_t version = library_version(op);
  if (file.cudnn_version != version || file.model != model)
    throw FileError(op, path.string(), ": expected plans for ", describe(version, model), ", got plans for ",
                    describe(file.cudnn_version, file.model));
  const auto count = static_cast<int64_t>(file.choices.size());
  ConvChoiceCache::get().add(model, std::move(file.choices));
  clear_plan_caches();
  return count;
}

void clear_plans() {
  ConvChoiceCache::get().clear();
  clear_plan_caches();
}

}  // namespace gradus::cuda
