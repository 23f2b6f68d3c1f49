// Comparison and text of specs.
#include "sharding/placement/partition_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tessera {
namespace {

std::string quoted(const std::vector<std::string>& names) {
  std::vector<std::string> parts;
  for (const std::string& name : names) parts.push_back("'" + name + "'");
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string entry_text(const SpecEntry& entry) {
  if (entry.is_unconstrained()) return "UNCONSTRAINED";
  if (entry.empty()) return "None";
  return (entry.axes().size() == 1 ? quoted(entry.axes()) : "(" + quoted(entry.axes()) + ")") +
         (entry.pads() ? " padded" : "");
}

bool same_set(std::vector<std::string> a, std::vector<std::string> b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  return a == b;
}

}  // namespace

PartitionSpec PartitionSpec::unreduced(std::vector<std::string> mesh_axes) const {
  PartitionSpec spec = *this;
  spec.unreduced_ = std::move(mesh_axes);
  return spec;
}

PartitionSpec PartitionSpec::reduced(std::vector<std::string> mesh_axes) const {
  PartitionSpec spec = *this;
  spec.reduced_ = std::move(mesh_axes);
  return spec;
}

bool PartitionSpec::is_spelled_like(const PartitionSpec& other) const {
  return entries_.size() == other.entries_.size() && *this == other;
}

std::string PartitionSpec::to_string() const {
  std::vector<std::string> parts;
  for (const SpecEntry& entry : entries_) parts.push_back(entry_text(entry));
  if (!unreduced_.empty()) parts.push_back("unreduced={" + quoted(unreduced_) + "}");
  if (!reduced_.empty()) parts.push_back("reduced={" + quoted(reduced_) + "}");
  return fmt::format("P({})", fmt::join(parts, ", "));
}

bool operator==(const PartitionSpec& a, const PartitionSpec& b) {
  for (size_t i = 0; i < std::max(a.entries_.size(), b.entries_.size()); ++i) {
    const SpecEntry left = i < a.entries_.size() ? a.entries_[i] : SpecEntry();
    const SpecEntry right = i < b.entries_.size() ? b.entries_[i] : SpecEntry();
    if (left != right) return false;
  }
  return same_set(a.unreduced_, b.unreduced_) && same_set(a.reduced_, b.reduced_);
}

}  // namespace tessera
