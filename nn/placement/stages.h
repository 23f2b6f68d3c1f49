// Stages: the elements of a vector dealt out to the sub-meshes along a mesh axis.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nn/tree/tree.h"
#include "sharding/placement/layout.h"

namespace tessera::nn::detail {

// For each leaf the layout that places it. Where a rule of `layout` sends the name of a vector to a mesh axis of S
// devices, as {"layers", "pipe"}, what lies in element i of its L elements gets the layout on the sub-mesh at i * S / L
// of that axis. Of all other leaves those that a rule puts on a stage get the layout there, the rest `layout`. Errors,
// which begin with `verb`: fewer elements than stages (uneven), a rule of several mesh axes, a stage out of range or
// along another axis than a vector's (bad_argument).
std::vector<Layout> stage_layouts(const Leaves& leaves, const Layout& layout, std::string_view verb);
// The same for the arrays of these paths.
std::vector<Layout> stage_layouts(const std::vector<std::string>& paths, const Layout& layout, std::string_view verb);
// Whether this rule, one of the layout's, deals out a vector of this tree, or puts an array of it on a stage.
bool puts_on_stages(const Rule& rule, const Leaves& leaves, const Layout& layout);
// "pipe[1]" of a sub-mesh; empty of any other mesh.
std::string stage_name(const Mesh& mesh);

}  // namespace tessera::nn::detail
