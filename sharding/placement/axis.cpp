// Construction and text of logical axes.
#include "sharding/placement/axis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sharding/base/error.h"

namespace tessera {

Axis::Axis(std::string name, int64_t size) : name(std::move(name)), size(size) {}

AxisName mesh_axis(std::string name) {
  AxisName axis(std::move(name));
  axis.mesh_axis_ = true;
  return axis;
}

std::string AxisName::to_string() const {
  if (is_none()) return "none";
  return mesh_axis_ ? "@" + name_ : name_;
}

AxisName::AxisName(const char* logical) {
  if (!logical || !*logical)
    fail(ErrorKind::invalid_argument, "Axes", "an empty name given, expected one such as \"embed\", or none.");
  name_ = logical;
}

Axes::Axes(const Axes& axes) = default;
Axes::Axes(Axes&& axes) noexcept = default;
Axes& Axes::operator=(const Axes& axes) = default;
Axes& Axes::operator=(Axes&& axes) noexcept = default;
Axes::~Axes() = default;

void Axes::append(const AxisName& name) { push_back(name); }

std::string Axes::to_string() const {
  std::vector<std::string> names;
  for (const AxisName& axis : *this) names.push_back(axis.to_string());
  return fmt::format("({})", fmt::join(names, ", "));
}

}  // namespace tessera
