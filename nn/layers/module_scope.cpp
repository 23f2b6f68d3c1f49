// A module's path from that of an array in it.
#include "nn/layers/module_scope.h"

namespace tessera::nn::detail {

std::string module_path_of(const StampFinder& finder) {
  if (!finder.found) return "";
  const std::string& stamped = finder.found->path();
  if (finder.below.empty()) return stamped;
  const std::string end = '.' + finder.below;
  return stamped.ends_with(end) ? stamped.substr(0, stamped.size() - end.size()) : "";
}

}  // namespace tessera::nn::detail
