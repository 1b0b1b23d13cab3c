// A reader of ELF symbol tables: .symtab, or .dynsym of a stripped file. The format is that of elf(5), 64 bits. All
// offsets and sizes in a file are checked against limits; reads beyond its end fail.
#include "gradus/distributed/launch/internal/symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "gradus/distributed/base/file_descriptor.h"
#include "gradus/distributed/base/split.h"
#include "gradus/tensor/base/error.h"

namespace gradus::dist::internal {
namespace {

constexpr size_t kMaxTable = 512u << 20;  // bytes of a table that is read
constexpr size_t kMaxLines = 256, kMaxName = 240;

// Reads `count` values of T at `offset`. Returns an empty vector if the file has not as many.
template <class T> std::vector<T> read_at(const FileDescriptor& file, uint64_t offset, uint64_t count) {
  if (count == 0 || count > kMaxTable / sizeof(T) || offset > uint64_t(INT64_MAX)) return {};
  struct stat status;
  if (fstat(file.fd(), &status) != 0 || offset + count * sizeof(T) > uint64_t(status.st_size)) return {};
  std::vector<T> values(count);
  char* at = reinterpret_cast<char*>(values.data());
  for (size_t left = count * sizeof(T); left > 0;) {
    const ssize_t n = pread(file.fd(), at, left, off_t(offset));
    if (n <= 0) return {};
    at += n;
    offset += uint64_t(n);
    left -= size_t(n);
  }
  return values;
}

// The functions of one file.
class Symbols {
 public:
  explicit Symbols(const std::string& path) {
    const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    struct stat status;
    if (!file || fstat(file.fd(), &status) != 0 || !S_ISREG(status.st_mode)) return;
    const auto header = read_at<Elf64_Ehdr>(file, 0, 1);
    if (header.empty() || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0 ||
        header[0].e_ident[EI_CLASS] != ELFCLASS64 || header[0].e_shentsize != sizeof(Elf64_Shdr))
      return;
    const auto sections = read_at<Elf64_Shdr>(file, header[0].e_shoff, header[0].e_shnum);
    for (const Elf64_Word type : {SHT_SYMTAB, SHT_DYNSYM})
      for (const Elf64_Shdr& section : sections) {
        if (section.sh_type != type || section.sh_link >= sections.size() || !symbols_.empty()) continue;
        symbols_ = read_at<Elf64_Sym>(file, section.sh_offset, section.sh_size / sizeof(Elf64_Sym));
        names_ = read_at<char>(file, sections[section.sh_link].sh_offset, sections[section.sh_link].sh_size);
      }
    if (!names_.empty()) names_.back() = '\0';
  }

  // Returns the function at an address, and the distance from its begin.
  std::optional<std::pair<std::string, uint64_t>> find(uint64_t address) const {
    for (const Elf64_Sym& symbol : symbols_)
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && address >= symbol.st_value &&
          address - symbol.st_value < symbol.st_size && symbol.st_name < names_.size())
        return std::pair(demangled(&names_[symbol.st_name]), address - symbol.st_value);
    return {};
  }

 private:
  static std::string demangled(const char* name) {
    int status = 0;
    char* const text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
    std::string result = status == 0 && text ? text : name;
    std::free(text);
    const std::string_view long_name =
        "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >";
    for (size_t at = 0; (at = result.find(long_name, at)) != result.npos;)
      result.replace(at, long_name.size(), "std::string");
    if (result.size() > kMaxName) result = result.substr(0, kMaxName) + "...";
    return result;
  }

  std::vector<Elf64_Sym> symbols_;
  std::vector<char> names_;
};

}  // namespace

std::string with_symbols(const std::string& backtrace) {
  std::map<std::string, Symbols> files;
  std::string result;
  size_t count = 0;
  for (const std::string& line : split(backtrace, "\n")) {
    const size_t path = line.find(' '), offset = line.rfind("+0x");
    uint64_t address = 0;
    const bool is_frame = line.starts_with('#') && path != line.npos && offset != line.npos &&
                          path + 1 < offset && line[path + 1] == '/' && ++count <= kMaxLines;
    const char* const end = line.data() + line.size();
    if (is_frame && std::from_chars(line.data() + offset + 3, end, address, 16).ptr == end) {
      const std::string file = line.substr(path + 1, offset - path - 1);
      if (const auto symbol = files.try_emplace(file, file).first->second.find(address)) {
        result += concat(line.substr(0, path + 1), symbol->first, "+", symbol->second, " (",
                         file.substr(file.rfind('/') + 1), ")\n");
        continue;
      }
    }
    result += line + '\n';
  }
  return result;
}

}  // namespace gradus::dist::internal
