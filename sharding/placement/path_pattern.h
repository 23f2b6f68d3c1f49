// Path patterns, by which a rule or a filter selects paths of a tree.
#pragma once

#include <string_view>

namespace tessera {

// Whether the dotted path matches the pattern, in which `*` stands for any part of one name, `**` for any number of
// whole names:
//   layers.*.mlp.**    layers.0.mlp.up.kernel, layers.12.mlp.down.bias
//   **.bias            bias, head.bias, layers.0.attn.q.bias
//   layers.*.norm*     layers.0.norm1, not layers.0.norm1.scale
//   head               the leaf head, not what is below it: that is head.**, which matches head as well
bool path_matches(std::string_view path, std::string_view pattern);

}  // namespace tessera
