// The wire form of an exception: index in kTypes (size(kTypes) for any other type), op and what(). The
// receiver throws the type of the index, or a PeerError that names the failed rank and what it did (`verb`).
#include "gradus/distributed/base/error_wire.h"

#include <algorithm>
#include <iterator>

#include "gradus/distributed/base/wire.h"

namespace gradus::dist::internal {
namespace {

// Throws an E with this op and what() text, which may begin with a context: "while loading a.ckpt: [op] ...".
template <class E> void raise(const std::string& op, const std::string& what) {
  const std::string start = concat('[', op, "] ");
  const size_t at = what.find(start);
  if (at == what.npos) throw E(op, what);
  E error(op, what.substr(at + start.size()));
  if (at > 2) error.add_context(what.substr(0, at - 2));  // without its ": "
  throw error;
}

// An error class that keeps its type. `is` tests an error by dynamic_cast; `raise` throws one of the class.
struct Type {
  bool (*is)(const Error& error);
  void (*raise)(const std::string& op, const std::string& what);
};
template <class E>
constexpr Type kType{[](const Error& error) { return dynamic_cast<const E*>(&error) != nullptr; }, raise<E>};
constexpr Type kTypes[] = {kType<ShapeError>, kType<DTypeError>, kType<DeviceError>, kType<IndexError>,
                           kType<ValueError>, kType<StateError>, kType<FileError>};

std::string to_wire(uint64_t type, const std::string& op, const std::string& what) {
  WireWriter wire;
  wire.put(type, op, what);
  return wire.release();
}

}  // namespace

std::string error_to_wire(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    const auto type = std::ranges::find_if(kTypes, [&](const Type& t) { return t.is(e); });
    return to_wire(uint64_t(type - std::begin(kTypes)), e.op(), e.what());
  } catch (const std::exception& e) {
    return to_wire(std::size(kTypes), "", e.what());
  } catch (...) {
    return to_wire(std::size(kTypes), "", "an exception of an unknown type");
  }
}

void throw_from_wire(std::string_view bytes, std::string_view op, int rank, std::string_view verb) {
  WireReader wire(bytes);
  uint64_t type = 0;
  std::string own_op, what;
  wire.get(type, own_op, what);
  if (type < std::size(kTypes)) kTypes[type].raise(own_op, what);
  throw PeerError(op, rank, "rank ", rank, ' ', verb, ": ", what);
}

}  // namespace gradus::dist::internal
