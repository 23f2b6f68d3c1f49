// A module's path from that of an array in it.
#include "nn/layers/module_scope.h"

namespace tessera::nn::detail {

std::string StampFinder::module_path() const {
  if (!found_) return "";
  const std::string &stamped = found_->path(), &below = place_.path();
  if (below.empty()) return stamped;
  const std::string end = '.' + below;
  return stamped.ends_with(end) ? stamped.substr(0, stamped.size() - end.size()) : "";
}

}  // namespace tessera::nn::detail
