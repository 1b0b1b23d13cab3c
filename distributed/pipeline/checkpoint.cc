// Checkpoints of PipelineBase: save, load and load_weights. The file is that of the undivided (one-rank)
// model, so it can be loaded with any number of stages and replicas. All three functions are collective over
// the job. `group_` has the ranks of one pipeline; tensors of other ranks' stages are on the meta device.
// attempt() runs a function on all ranks, exchanges the strings that it returns, and throws on all ranks if
// it throws on one.
#include <algorithm>
#include <charconv>
#include <exception>
#include <map>
#include <optional>
#include <system_error>
#include <type_traits>
#include <unordered_map>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/group/agreement.h"
#include "gradus/distributed/group/attempt.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/pipeline/pipeline_base.h"
#include "gradus/distributed/pipeline/staged_model.h"
#include "gradus/io/checkpoint_file.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::dist::internal {
namespace {

// Note [Checkpoints of several ranks]
// Saving: each rank of the first replica sends the names and shapes of its tensors. The job's first rank
// writes the file. It requests the elements from their owners in the order of the file, in chunks, so that it
// never has memory for a whole tensor of another rank. A final request tells the owners that writing has
// ended.
//
// Loading: each rank reads only its own tensors. The ranks combine the checksums of the tensors that they
// have read, and compare the result with the file's checksum. State changes only after this check.

constexpr const char* kOp = "Pipeline";
constexpr const char* kModel = "model";
constexpr const char* kOptimizer = "optimizer";
constexpr const char* kGenerator = "generator";
constexpr uint32_t kTag = 0x636b7074;  // "ckpt": tag of requests and chunks
constexpr int64_t kMaxChunkBytes = 4 << 20;

bool has_data(const Tensor& x) { return x.device().type != DeviceType::kMeta; }

bool is_in_section(const std::string& name, const std::string& section) {
  return name == section || name.starts_with(section + ".");
}
bool is_reserved(const std::string& name) {
  return is_in_section(name, kModel) || is_in_section(name, kOptimizer) || is_in_section(name, kGenerator);
}

// A rank's contribution to the file; a visitor for Checkpoint::each.
struct RankContents {
  std::vector<std::pair<std::string, double>> numbers;
  NamedTensors tensors;  // on meta if received from another rank

  void operator()(const std::string& name, const Tensor& x) { tensors.emplace_back(name, x); }
  void operator()(const std::string& name, double x) { numbers.emplace_back(name, x); }
  template <class T> void operator()(const std::string& name, const T&) {
    throw InternalError("a pipeline offers '", name, "', which is neither a tensor nor a number");
  }
};

// Names, dtypes and shapes of tensors.
using Forms = std::vector<std::pair<std::string, std::pair<DType, Shape>>>;

std::string to_wire(const RankContents& contents) {
  Forms forms;
  for (const auto& [name, x] : contents.tensors) forms.emplace_back(name, std::pair(x.dtype(), x.shape()));
  return dist::to_wire(std::pair(contents.numbers, forms));
}

RankContents contents_from_wire(std::string_view bytes) {
  auto [numbers, forms] = from_wire<std::pair<decltype(RankContents::numbers), Forms>>(bytes);
  RankContents contents{std::move(numbers), {}};
  for (const auto& [name, form] : forms)
    contents.tensors.emplace_back(name,
                                  empty(form.second, {.dtype = form.first, .device = {DeviceType::kMeta}}));
  return contents;
}

// A request for a chunk of a tensor: the elements from `first` on, in row-major order, at most
// kMaxChunkBytes. Tensor -1 ends the requests.
struct ChunkRequest {
  int64_t tensor = -1, first = 0;
};

int64_t size_of_chunk(const Tensor& x, int64_t first) {
  return std::min(x.numel() - first, kMaxChunkBytes / size_of(x.dtype()));
}

void request_chunk(const Group& group, int member, const ChunkRequest& chunk) {
  send(tensor(std::vector<int64_t>{chunk.tensor, chunk.first}, {2}),
       {.dst = get_global_rank(group, member), .tag = kTag, .group = group});
}

// Answers the requests of the group's first rank for chunks of `tensors`.
void serve(const NamedTensors& tensors, const Group& group) {
  const int writer = get_global_rank(group, 0);
  const Tensor request = empty({2}, {.dtype = DType::kI64});
  ChunkRequest last;
  for (Tensor rows;;) {  // row-major copy of the last requested tensor
    recv(request, {.src = writer, .tag = kTag, .group = group});
    const ChunkRequest chunk{request.ptr<int64_t>()[0], request.ptr<int64_t>()[1]};
    if (chunk.tensor < 0) return;
    if (chunk.tensor != last.tensor) rows = raw::contiguous(raw::to(tensors.at(chunk.tensor).second, kCPU));
    last = chunk;
    send(view_as_strided(rows, {size_of_chunk(rows, chunk.first)}, {1}, rows.impl().offset + chunk.first),
         {.dst = writer, .tag = kTag, .group = group});
  }
}

// Writes the file, on the group's first rank. `more`: the user's entries. `all_contents` are those of the
// members, without data; `own` is this rank's, with data. A tensor's source is the first member with it.
void write(const std::filesystem::path& path, const io::Checkpoint& more,
           const std::vector<RankContents>& all_contents, const RankContents& own, const Group& group,
           const io::SaveOptions& options) {
  struct Source {
    int member;
    int64_t tensor;
  };
  std::map<std::string, Source> sources;
  io::Checkpoint content = more;
  content.put(kGenerator, *Context::current().generator);
  for (int member = 0; member < group.size(); ++member) {
    const RankContents& contents = all_contents[member];
    for (const auto& [name, value] : contents.numbers) {
      if (content.contains(name) && content.get<double>(name) != value)
        throw ValueError(kOp, "expected '", name, "' to be the same on all ranks, got ",
                         content.get<double>(name), " and, on rank ", get_global_rank(group, member), ", ",
                         value);
      content.put(name, value);
    }
    for (size_t i = 0; i < contents.tensors.size(); ++i)
      if (sources.try_emplace(contents.tensors[i].first, Source{member, int64_t(i)}).second)
        content.put(contents.tensors[i].first, contents.tensors[i].second);
  }
  std::error_code error;  // ignored: CheckpointWriter reports a missing folder
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  io::CheckpointWriter file(path, content, options);
  for (const auto& [name, x] : file.tensors()) {
    const auto source = sources.find(name);
    if (source == sources.end()) {
      file.write(x);
    } else if (const auto [member, number] = source->second; member == 0) {
      file.write(own.tensors.at(number).second);
    } else {
      for (int64_t first = 0; first < x.numel();) {
        const Tensor chunk = empty({size_of_chunk(x, first)}, {.dtype = x.dtype()});
        request_chunk(group, member, {number, first});
        recv(chunk, {.src = get_global_rank(group, member), .tag = kTag, .group = group});
        file.write(chunk);
        first += chunk.numel();
      }
    }
  }
  file.commit();
}

// Returns the file's tensors for module.load_state_dict: the module's own tensors are read, those of other
// ranks have no data. read(name) reads one tensor from the file.
// Errors: those of load_state_dict.
NamedTensors read_own(nn::Module& module, const NamedTensors& of_file, const nn::LoadOptions& options,
                      const std::function<Tensor(const std::string&)>& read) {
  std::map<std::string, Tensor> own;
  for (const auto& [name, x] : module.state_dict()) own[name] = x;
  const auto fits = [](const Tensor& a, const Tensor& b) {
    return a.shape() == b.shape() && is_floating(a.dtype()) == is_floating(b.dtype());
  };
  NamedTensors given;
  for (const auto& [name, x] : of_file) {
    const auto found = own.find(name);
    given.emplace_back(name, found != own.end() && fits(found->second, x) ? found->second : x);
  }
  // Checks all names and shapes without changing any tensor: matching tensors are loaded from themselves.
  const nn::LoadReport report = module.load_state_dict(given, options);
  for (const std::string& name : report.kept) own.erase(name);
  for (auto& [name, x] : given)
    if (has_data(x) && own.contains(name)) x = read(name);
  return given;
}

constexpr std::string_view kState = "state", kGroup = "group";

// A parsed name of an entry of optimizer state: "state.3.exp_avg" or "group.0.lr".
struct Name {
  std::string_view kind;
  size_t number = 0;
  std::string_view rest;
};

std::optional<Name> parse(std::string_view text) {
  const size_t dot = text.find('.');
  if (dot == text.npos) return {};
  Name name;
  name.kind = text.substr(0, dot);
  const auto [end, error] = std::from_chars(text.data() + dot + 1, text.data() + text.size(), name.number);
  if (error != std::errc() || end == text.data() + text.size() || *end != '.') return {};
  name.rest = text.substr(size_t(end - text.data()) + 1);
  if (name.kind != kState && name.kind != kGroup) return {};
  return name;
}

std::string to_string(const Name& name) { return concat(name.kind, '.', name.number, '.', name.rest); }

// Returns g if `text` is "group.<g>.params", the entry with the size of group g, and g < groups.
std::optional<size_t> group_of_size_entry(std::string_view text, size_t groups) {
  const std::optional<Name> name = parse(text);
  if (!name || name->kind != kGroup || name->rest != "params" || name->number >= groups) return {};
  return name->number;
}

// Note [Numbers of parameters]
// Optimizer state identifies parameters by index: "state.3.exp_avg" belongs to parameter 3, counted over all
// parameter groups. The undivided state uses the indices of an optimizer in a one-rank program, whose groups
// list parameters in the model's order. A rank's optimizer may have any order.
class ParameterNumbers {
 public:
  // Exchanges the names of the optimizers' parameters between all ranks of the job. Collective.
  // Errors, on all ranks: ValueError if an optimizer has a parameter that is not in its rank's stages, or if
  // the parameter groups differ between ranks.
  ParameterNumbers(StagedModel& model, const optim::Optimizer& opt) {
    std::vector<std::vector<std::string>> local_names;  // names, by group
    const std::vector<std::string> all = attempt(kOp, [&] {
      std::unordered_map<const TensorImpl*, std::string> names;
      for (const auto& [name, p] : model.named_parameters()) names[p.ref().get()] = name;
      for (size_t g = 0; g < opt.num_groups(); ++g) {
        local_names.emplace_back();
        for (const Tensor& p : opt.parameters(g)) {
          const auto found = names.find(p.ref().get());
          if (found == names.end())
            throw ValueError(kOp, "expected an optimizer over pipe.parameters(), got one with ", describe(p),
                             " in group ", g);
          local_names.back().push_back(found->second);
        }
      }
      return dist::to_wire(local_names);
    });
    std::unordered_map<std::string, size_t> group_of;
    size_t expected = 0;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const auto groups = from_wire<std::vector<std::vector<std::string>>>(all[rank]);
      if (rank == 0) expected = groups.size();
      if (groups.size() != expected)
        throw ValueError(kOp,
                         "expected as many groups of parameters on all ranks: the optimizer of rank 0 has ",
                         expected, ", that of rank ", rank, " has ", groups.size());
      for (size_t g = 0; g < groups.size(); ++g)
        for (const std::string& name : groups[g])
          if (group_of.try_emplace(name, g).first->second != g)
            throw ValueError(kOp, "parameter '", name, "' is in group ", g, " on rank ", rank,
                             ", and elsewhere in group ", group_of[name]);
    }
    std::unordered_map<std::string, size_t> number_of;
    for (size_t g = 0; g < local_names.size(); ++g) {
      const size_t first = parameters_;
      for (const auto& [name, p] : model.module().named_parameters())
        if (const auto group = group_of.find(name); group != group_of.end() && group->second == g)
          number_of[name] = parameters_++;
      sizes_.push_back(parameters_ - first);
      own_sizes_.push_back(local_names[g].size());
    }
    for (const auto& group : local_names)
      for (const std::string& name : group) {
        own_[number_of.at(name)] = undivided_.size();
        undivided_.push_back(number_of.at(name));
      }
  }

  // Converts this rank's state to undivided indices.
  // Errors: ValueError for an entry that belongs to no parameter (LBFGS).
  optim::State undivided(const optim::State& own) const {
    const auto translate = [&](const std::string& text) {
      std::optional<Name> name = parse(text);
      if (!name)
        throw ValueError(kOp, "the optimizer's '", text,
                         "' belongs to no parameter, and cannot be cut into stages");
      if (name->kind == kState) name->number = undivided_.at(name->number);
      return to_string(*name);
    };
    optim::State state;
    for (const auto& [text, x] : own.tensors) state.tensors.emplace_back(translate(text), x);
    for (const auto& [text, value] : own.numbers) {
      const std::optional<size_t> group = group_of_size_entry(text, sizes_.size());
      state.numbers.emplace_back(translate(text), group ? double(sizes_[*group]) : value);
    }
    return state;
  }

  // Converts an undivided state to this rank's indices. Entries of other ranks' parameters are dropped;
  // unknown entries are kept unchanged. read(name) returns a tensor's data.
  // Errors: ValueError if the sizes of parameter groups differ.
  optim::State own(const optim::State& undivided,
                   const std::function<Tensor(const std::string&)>& read) const {
    // Returns this rank's name of an entry, or nullopt for an entry of another rank's parameter.
    const auto translate = [&](const std::string& text) -> std::optional<std::string> {
      std::optional<Name> name = parse(text);
      if (!name || name->kind != kState || name->number >= parameters_) return text;
      const auto found = own_.find(name->number);
      if (found == own_.end()) return {};
      name->number = found->second;
      return to_string(*name);
    };
    optim::State state;
    for (const auto& [text, value] : undivided.numbers) {
      const std::optional<std::string> name = translate(text);
      if (!name) continue;
      const std::optional<size_t> group = group_of_size_entry(text, sizes_.size());
      if (group && value != double(sizes_[*group]))
        throw ValueError(kOp, "expected ", sizes_[*group], " parameters in the optimizer's group ", *group,
                         ", got ", value);
      state.numbers.emplace_back(*name, group ? double(own_sizes_[*group]) : value);
    }
    for (const auto& [text, x] : undivided.tensors)
      if (const auto name = translate(text)) state.tensors.emplace_back(*name, read(text));
    return state;
  }

 private:
  std::vector<size_t> undivided_;  // undivided index of each of this rank's indices
  std::map<size_t, size_t> own_;   // inverse of undivided_
  std::vector<size_t> sizes_;      // sizes of the undivided parameter groups
  std::vector<size_t> own_sizes_;  // sizes of this rank's parameter groups
  size_t parameters_ = 0;          // number of parameters in all undivided groups
};

using CheckCheckpoint = std::function<void(const io::LoadedCheckpoint&)>;

// Throws the error, if any, on all ranks. Collective.
void rethrow_on_all(const std::exception_ptr& error) {
  attempt(kOp, [&] {
    if (error) std::rethrow_exception(error);
    return std::string();
  });
}

// Opens the file on all ranks and calls `check`. Returns the exception that `check` throws on any rank.
// Errors: FileError for a damaged file.
std::exception_ptr open(std::optional<io::CheckpointReader>& file, const std::filesystem::path& path,
                        const CheckCheckpoint& check) {
  std::exception_ptr error;
  attempt(kOp, [&] {
    file.emplace(path);
    io::LoadedCheckpoint found;
    found.checkpoint = file->content();
    found.path = path.string();
    try {
      if (check) check(found);
    } catch (...) {
      file->check();  // reports damage first: a damaged file may fail `check`
      error = std::current_exception();
    }
    return std::string();
  });
  try {
    if (check) rethrow_on_all(error);
  } catch (const DistributedError&) {
    throw;
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

// Loads the file, unless `check` throws: then sets `refused` to the exception and loads nothing. State
// changes only after all ranks have verified the checksum. Collective.
io::LoadedCheckpoint load_file(const std::filesystem::path& path, nn::Module& module, optim::Optimizer& opt,
                               const ParameterNumbers& numbers, const CheckCheckpoint& check,
                               std::exception_ptr& refused) {
  std::optional<io::CheckpointReader> file;
  if ((refused = open(file, path, check))) return {};
  std::optional<optim::StateReader> state;
  NamedTensors weights;
  RandomGenerator generator = *Context::current().generator;
  io::LoadedCheckpoint loaded;
  const auto read = [&](const io::Checkpoint& content) {
    weights = read_own(module, content.tensors(kModel), {},
                       [&](const std::string& name) { return file->read(concat(kModel, '.', name)); });
    const io::Checkpoint section = content.section(kOptimizer), values = section.section("numbers");
    optim::State undivided{section.tensors("tensors"), {}};
    for (const std::string& name : values.names())
      undivided.numbers.emplace_back(name, values.get<double>(name));
    state.emplace(numbers.own(undivided, [&](const std::string& name) {
      return file->read(concat(kOptimizer, ".tensors.", name));
    }));
    opt.read_state(*state);
    state->check(concat("the optimizer of rank ", get_rank(), ", which counts its own parameters alone"));
    if (!content.names(kGenerator).empty()) content.get(kGenerator, generator);
    content.each([&]<class T>(const std::string& name, const T& value) {
      if (is_reserved(name)) return;
      if constexpr (std::is_same_v<T, Tensor>)
        loaded.checkpoint.put(name, file->read(name));
      else
        loaded.checkpoint.put(name, value);
    });
  };
  const std::vector<std::string> checksums = attempt(kOp, [&] {
    try {
      read(file->content());
    } catch (ValueError& e) {
      file->check();  // reports damage first: a damaged file may have wrong names and shapes
      e.add_context("while loading " + path.string());
      throw;
    }
    const auto& [header, tensors] = file->checksums();
    return dist::to_wire(std::pair(header, std::vector(tensors.begin(), tensors.end())));
  });
  attempt(kOp, [&] {
    for (const std::string& bytes : checksums) {
      const auto [header, tensors] =
          from_wire<std::pair<uint32_t, std::vector<std::pair<int64_t, uint32_t>>>>(bytes);
      file->join({header, {tensors.begin(), tensors.end()}});
    }
    file->check();
    return std::string();
  });
  module.load_state_dict(weights);
  state->finish("the optimizer");
  *Context::current().generator = generator;
  loaded.bytes_read = file->bytes_read();
  return loaded;
}

}  // namespace

void PipelineBase::save(const std::filesystem::path& path, const optim::Optimizer& opt,
                        const io::Checkpoint& more, const io::SaveOptions& options) {
  const ParameterNumbers numbers(*model_, opt);
  const bool is_first_replica = grid_.index("replica") == 0;
  RankContents own;
  const std::vector<std::string> all = attempt(kOp, [&] {
    for (const std::string& name : more.names())
      if (is_reserved(name)) throw ValueError(kOp, "the pipeline itself saves '", name, "'");
    if (is_first_replica) {
      NamedTensors state;
      for (const auto& [name, x] : model_->module().state_dict())
        if (has_data(x)) state.emplace_back(name, x);
      io::Checkpoint c;
      c.put(kModel, state);
      c.put(kOptimizer, numbers.undivided(opt.state_dict()));
      c.each(own);
    }
    return to_wire(own);
  });
  std::exception_ptr error;
  if (get_rank() == 0) {
    try {
      std::vector<RankContents> all_contents;
      for (int member = 0; member < group_.size(); ++member)
        all_contents.push_back(contents_from_wire(all[get_global_rank(group_, member)]));
      write(path, more, all_contents, own, group_, options);
    } catch (const DistributedError&) {
      throw;
    } catch (...) {
      error = std::current_exception();
    }
    for (int member = 1; member < group_.size(); ++member) request_chunk(group_, member, {});
  } else if (is_first_replica) {
    try {
      serve(own.tensors, group_);
    } catch (...) {
      report_backward_failure(group_.state().world(), std::current_exception(), "failed while it saved");
      throw;
    }
  }
  rethrow_on_all(error);
}

io::LoadedCheckpoint PipelineBase::load(const std::filesystem::path& path, optim::Optimizer& opt,
                                        const CheckCheckpoint& check) {
  const ParameterNumbers numbers(*model_, opt);
  std::exception_ptr refused;  // no exception here: load_newest would fall back to the previous file
  io::LoadedCheckpoint loaded = io::load_newest(path, [&](const std::filesystem::path& p) {
    return load_file(p, model_->module(), opt, numbers, check, refused);
  });
  if (refused) std::rethrow_exception(refused);
  return loaded;
}

nn::LoadReport PipelineBase::load_weights(const std::filesystem::path& path, const nn::LoadOptions& options,
                                          const std::string& section) {
  NamedTensors weights;
  attempt(kOp, [&] {
    io::SafetensorsReader file(path);
    NamedTensors content;
    std::map<std::string, const io::SafetensorsEntry*> entries;
    const std::string prefix = section.empty() ? "" : section + '.';
    for (const io::SafetensorsEntry& e : file.header().entries) {
      if (!e.name.starts_with(prefix)) continue;
      const std::string name = e.name.substr(prefix.size());
      content.emplace_back(name, empty(e.shape, {.dtype = e.dtype, .device = {DeviceType::kMeta}}));
      entries[name] = &e;
    }
    try {
      weights = read_own(model_->module(), content, options,
                         [&](const std::string& name) { return file.read(*entries.at(name)); });
    } catch (ValueError& e) {
      e.add_context("while loading " + path.string());
      throw;
    }
    return std::string();
  });
  return model_->module().load_state_dict(weights, options);
}

}  // namespace gradus::dist::internal
