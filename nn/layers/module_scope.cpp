// A module's path from that of an array in it.
#include "nn/layers/module_scope.h"

namespace tessera::nn::detail {

std::string module_path_of(const std::string& stamp, const std::string& below) {
  if (below.empty()) return stamp;
  const std::string end = '.' + below;
  return stamp.ends_with(end) ? stamp.substr(0, stamp.size() - end.size()) : "";
}

}  // namespace tessera::nn::detail
