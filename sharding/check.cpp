// Replicas compared by their bits, pending sums by the operation's linearity.
#include "sharding/check.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>

#include "sharding/consensus.h"
#include "sharding/process_group.h"

namespace tessera::detail {
namespace {

[[maybe_unused]] const bool from_environment = [] {
  const char* value = std::getenv("TESSERA_CHECK");
  return checks = value && std::string_view(value) == "1";
}();

std::string name_of(const ArrayImpl& a) {
  return (a.details && a.details->path ? *a.details->path + ": " : "") + a.type->to_string();
}

[[noreturn]] void broken(const char* verb, const std::string& what) {
  fail(ErrorKind::inconsistent, verb,
       what +
           " Give all processes the same arguments, seeds and values, and write into no tensor of the library's; "
           "else it is an error of the library.");
}

// FNV-1a over words.
uint64_t checksum(const at::Tensor& t) {
  const at::Tensor plain = t.detach().cpu().contiguous();
  const auto* bytes = static_cast<const char*>(plain.const_data_ptr());
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < plain.nbytes(); i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i, std::min(sizeof(word), plain.nbytes() - i));
    hash = (hash ^ word) * 0x100000001b3;
  }
  return hash;
}

bool shares_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr() && a.strides() == b.strides();
}

void check_tensors(const ArrayImpl& a, const char* verb) {
  const Type* type = a.type;
  const size_t expected = type->mesh ? type->mesh->slots(a.slots) : 1;
  if (a.local.size() != expected)
    broken(verb, fmt::format("{} has {} local tensors, expected {}.", name_of(a), a.local.size(), expected));
  for (const at::Tensor& t : a.local)
    if (t.sizes() != at::IntArrayRef(type->local) || t.scalar_type() != static_cast<at::ScalarType>(type->dtype))
      broken(verb, fmt::format("{} has a local tensor {}{}, expected {}{}.", name_of(a), c10::toString(t.scalar_type()),
                               to_string(t.sizes().vec()), tessera::name_of(type->dtype), to_string(type->local)));
}

std::string reason_of(const Cause& cause) {
  const std::source_location& line = cause.where;
  return fmt::format("for {} at {}:{}", cause.operation, line.file_name(), line.line());
}

// The device of the mesh at a slot, the first one of those that share its tensor.
int device_at(const ArrayImpl& a, int slot) {
  const MeshImpl* mesh = a.type->mesh;
  Coordinates coordinates(mesh);
  unravel(mesh, a.slots, slot, coordinates);
  return mesh->devices[ravel_place(mesh, mesh->all(), coordinates)];
}

void check_replicas(const ArrayImpl& a, const char* verb) {
  const MeshImpl* mesh = a.type->mesh;
  for (int s = 0; s < mesh->slots(a.slots); ++s) {
    const int first = project(mesh, a.type->own(), project(mesh, a.slots, s, a.type->own()), a.slots);
    const at::Tensor &one = a.local[first], &other = a.local[s];
    if (first == s || shares_memory(one, other)) continue;
    if (const uint64_t x = checksum(one), y = checksum(other); x != y)
      broken(verb, fmt::format("{}: devices {} and {} hold different values of the same block (checksums {:016x} and "
                               "{:016x}).",
                               name_of(a), device_at(a, first), device_at(a, s), x, y));
  }
}

}  // namespace

void check_array(const ArrayImpl& a, const char* verb) {
  check_tensors(a, verb);
  if (a.type->mesh && (a.slots & ~a.type->own())) check_replicas(a, verb);
}

void check_operands(const Operation& operation, const std::vector<const Type*>& operands) {
  Mask pending = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Mask mine = operands[i]->unreduced;
    const bool allowed = operation.linearity == Linearity::additive          ? mine == operands[0]->unreduced
                         : operation.linearity == Linearity::multilinear     ? (mine & pending) == 0
                         : operation.linearity == Linearity::linear_in_first ? mine == 0 || i == 0
                                                                             : mine == 0;
    if (!allowed)
      broken(operation.name, fmt::format("operand {} {} is a pending sum, which this operation would read as a value.",
                                         i, operands[i]->to_string()));
    pending |= mine;
  }
}

void check_same_move(const char* kind, const MeshImpl* mesh, Mask axes, const at::Tensor& x, const Cause& cause) {
  check_agreement("TESSERA_CHECK", mesh->processes,
                  fmt::format("{} over {} of {} {} ({} bytes), {}", kind, mesh->names(axes),
                              tessera::name_of(static_cast<DType>(x.scalar_type())), to_string(x.sizes().vec()),
                              x.nbytes(), reason_of(cause)));
}

void check_replicas_across_processes(const Type* type, const Tensors& local, const Cause& cause) {
  const MeshImpl* mesh = type->mesh;
  if (!mesh || !(mesh->crossing() & ~type->own())) return;
  const std::string path = cause.path ? *cause.path + ": " : "";
  check_agreement("TESSERA_CHECK", mesh->processes,
                  fmt::format("replicas of {}{}, {}", path, type->to_string(), reason_of(cause)));
  const std::vector<int> processes = processes_along(mesh, mesh->all());
  at::Tensor mine = at::empty({static_cast<int64_t>(local.size())}, at::kLong);
  for (size_t i = 0; i < local.size(); ++i) mine[static_cast<int64_t>(i)] = static_cast<int64_t>(checksum(local[i]));
  at::Tensor all = at::empty({static_cast<int64_t>(processes.size()), mine.numel()}, at::kLong);
  process_group(processes).all_gather(mine, all, {"TESSERA_CHECK", cause.where, mesh->kept_names(mesh->all())})->wait();
  std::map<int, size_t> first_with;  // the same blocks
  for (size_t p = 0; p < processes.size(); ++p) {
    Coordinates coordinates(mesh);
    move_to_process(mesh, mesh->all(), static_cast<int>(p), coordinates);
    const size_t first = first_with.try_emplace(process_along(mesh, type->own(), coordinates), p).first->second;
    if (at::equal(all[static_cast<int64_t>(first)], all[static_cast<int64_t>(p)])) continue;
    broken("TESSERA_CHECK", fmt::format("{}{}: processes {} and {} hold different values of the same block, before {}.",
                                        path, type->to_string(), processes[first], processes[p], cause.operation));
  }
}

}  // namespace tessera::detail
