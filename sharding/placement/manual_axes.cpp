// The manual axes of this thread.
#include "sharding/placement/manual_axes.h"

#include <utility>

namespace tessera::detail {
namespace {

thread_local ManualAxes innermost;

}  // namespace

const ManualAxes& manual_axes() { return innermost; }

ManualScope::ManualScope(const ManualAxes& axes) : outer_(std::exchange(innermost, axes)) {}
ManualScope::~ManualScope() { innermost = outer_; }

}  // namespace tessera::detail
