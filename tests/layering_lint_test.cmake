# Tests the layering lint: it accepts a small repository, and reports the file for each rule that is broken.
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")

set(repository "${SCRATCH}/repository")

function(write_valid_repository)
  file(REMOVE_RECURSE "${repository}")
  file(WRITE "${repository}/sharding/placement.h" "// Placement.\n#pragma once\n#include \"sharding/placement/mesh.h\"\n")
  file(WRITE "${repository}/sharding/CMakeLists.txt"
       "# Sharding.\n    placement.h\n    placement/mesh.h\n    placement/mesh.cpp\n    runtime/nccl/group.cpp\n")
  file(WRITE "${repository}/sharding/placement/mesh.h" "// A mesh.\n#pragma once\n#include <ATen/core/Tensor.h>\n")
  file(WRITE "${repository}/sharding/placement/mesh.cpp"
       "// A mesh.\n#include \"sharding/placement/mesh.h\"\n#include \"sharding/placement/part.h\"\n#include <ATen/ATen.h>\n")
  file(WRITE "${repository}/sharding/placement/part.h"
       "// A part of how a mesh is made.\n#include \"sharding/placement/mesh.h\"\n")
  file(WRITE "${repository}/sharding/files/file.h" "// A file.\n#pragma once\n")
  file(WRITE "${repository}/sharding/runtime/nccl/group.cpp" "// A group.\n#include <nccl.h>\n")
  file(WRITE "${repository}/nn/tree/tree.h" "// A tree.\n#include <boost/pfr.hpp>\n#include \"sharding/placement/mesh.h\"\n")
  file(WRITE "${repository}/nn/layers/internal/local.h" "// Inside.\n#include <ATen/ATen.h>\n")
  file(WRITE "${repository}/optim/formulas/adam.h"
       "// Adam.\n#include \"nn/tree/tree.h\"\n#include \"sharding/placement/mesh.h\"\n")
  file(WRITE "${repository}/optim/formulas.h" "// Formulas.\n#include \"optim/formulas/adam.h\"\n")
  file(WRITE "${repository}/data/loader.h" "// A batch.\n#include \"nn/tree/tree.h\"\n")
  file(WRITE "${repository}/data/batches/to_global.h"
       "// To arrays.\n#include \"nn/tree/tree.h\"\n#include \"sharding/placement/mesh.h\"\n")
  file(WRITE "${repository}/examples/train.cpp"
       "// Trains.\n#include <tessera/optim/formulas.h>\n#include <tessera/data/loader.h>\n#include <tessera/sharding/placement.h>\n")
  file(WRITE "${repository}/tests/run.sh" "#!/bin/sh\n# Runs.\n")
  file(WRITE "${repository}/tests/compile_fail/base.cpp" "// expect: no base class\n")
  file(MAKE_DIRECTORY "${repository}/docs" "${repository}/build-mine" "${repository}/.git")
endfunction()

# Expects the lint to reject the valid repository with `text` in `file`; `rule` is the beginning of its message.
function(refuse rule file text)
  write_valid_repository()
  file(WRITE "${repository}/${file}" "${text}")
  expect("${rule}" "-DROOT=${repository}" -P "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/layering_lint.cmake")
endfunction()

write_valid_repository()
expect("" "-DROOT=${repository}" -P "${CMAKE_CURRENT_LIST_DIR}/layering_lint.cmake")

refuse("sharding/array/a.h: includes nn/tree/tree.h" sharding/array/a.h "// A.\n#include \"nn/tree/tree.h\"\n")
refuse("sharding/array/a.cpp: includes data/loader.h" sharding/array/a.cpp "// A.\n#  include <data/loader.h>\n")
refuse("nn/layers/a.h: includes optim/formulas/adam.h" nn/layers/a.h "// A.\n#include \"optim/formulas/adam.h\"\n")
refuse("nn/tree/a.h: includes data/loader.h" nn/tree/a.h "// A.\n#include \"data/loader.h\"\n")
refuse("optim/formulas/a.h: includes data/loader.h" optim/formulas/a.h "// A.\n#include \"data/loader.h\"\n")
refuse("data/a.h: includes sharding/placement/mesh.h" data/a.h "// A.\n#include \"sharding/placement/mesh.h\"\n")
refuse("data/a.h: includes nn/layers/linear.h" data/a.h "// A.\n#include \"nn/layers/linear.h\"\n")
refuse("data/batches/to_global.cpp: includes optim/formulas/adam.h" data/batches/to_global.cpp "// A.\n#include \"optim/formulas/adam.h\"\n")
refuse("nn/tree/a.h: includes examples/train.h" nn/tree/a.h "// A.\n#include \"examples/train.h\"\n")

refuse("sharding/shard_map/a.cpp: includes sharding/redistribution/engine.h" sharding/shard_map/a.cpp
       "// A.\n#include \"sharding/redistribution/engine.h\"\n")

# Components: an include against the order, an umbrella header in the library, a component's header in a program, a file
# outside a component, a cycle.
refuse("sharding/runtime/a.h: includes sharding/placement/mesh.h, against the order of components" sharding/runtime/a.h
       "// A.\n#include \"sharding/placement/mesh.h\"\n")
refuse("sharding/array/a.h: includes sharding/files/file.h, against the order of components" sharding/array/a.h
       "// A.\n#include \"sharding/files/file.h\"\n")
refuse("sharding/placement/a.h: includes sharding/files/file.h, against the order of components" sharding/placement/a.h
       "// A.\n#include \"sharding/files/file.h\"\n")
refuse("nn/tree/a.h: includes nn/layers/linear.h, against the order of components" nn/tree/a.h
       "// A.\n#include \"nn/layers/linear.h\"\n")
refuse("sharding/array/a.h: includes sharding/placement.h, an umbrella header" sharding/array/a.h
       "// A.\n#include \"sharding/placement.h\"\n")
refuse("optim/formulas/a.cpp: includes nn/tree.h, an umbrella header" optim/formulas/a.cpp "// A.\n#include \"nn/tree.h\"\n")
refuse("optim/formulas/a.h: includes optim/wrappers/chain.h, against the order of components" optim/formulas/a.h
       "// A.\n#include \"optim/wrappers/chain.h\"\n")
refuse("optim/a.cpp: is in none of the components" optim/a.cpp "// A.\n")
refuse("examples/a.cpp: includes sharding/placement/mesh.h, a header of a component" examples/a.cpp
       "// A.\n#include \"sharding/placement/mesh.h\"\n")
refuse("sharding/mesh.cpp: is in none of the components" sharding/mesh.cpp "// A mesh.\n")
refuse("sharding/common/a.h: is in none of the components" sharding/common/a.h "// A.\n")
refuse("nn/tree.cpp: is in none of the components" nn/tree.cpp "// A tree.\n")
refuse("sharding/placement/mesh: is part of a cycle" sharding/placement/mesh.h
       "// A mesh.\n#include \"sharding/placement/part.h\"\n")
refuse("sharding/array.h: is not among the HEADERS" sharding/array.h "// Arrays.\n")
refuse("sharding/placement/part.h: is among the HEADERS" sharding/CMakeLists.txt
       "# Sharding.\n    placement.h\n    placement/mesh.h\n    placement/part.h\n")
refuse("sharding/array/a.cpp: is not among the sources" sharding/array/a.cpp "// A.\n")
refuse("sharding/array/a.h: includes \"../placement/mesh.h\", which is not a path" sharding/array/a.h
       "// A.\n#include \"../placement/mesh.h\"\n")
refuse("sharding/array/a.h: includes \"sharding/array/../placement/mesh.h\", which is not a path" sharding/array/a.h
       "// A.\n#include \"sharding/array/../placement/mesh.h\"\n")
refuse("sharding/array/more/a.h: is in none of the components" sharding/array/more/a.h "// A.\n")
refuse("examples/a.cpp: has #include \"optim/formulas/adam.h\": programs include <tessera/...>" examples/a.cpp
       "// A.\n#include \"optim/formulas/adam.h\"\n")
refuse("optim/formulas/a.h: has #include <tessera/nn/tree.h>: the library includes" optim/formulas/a.h "// A.\n#include <tessera/nn/tree.h>\n")
refuse("examples/a.cpp: includes sharding/pch.h" examples/a.cpp "// A.\n#include \"sharding/pch.h\"\n")

refuse("nn/layers/a.h: includes boost/pfr/core.hpp; only" nn/layers/a.h "// A.\n#include <boost/pfr/core.hpp>\n")
refuse("sharding/placement/mesh.cpp: includes nccl.h; only" sharding/placement/mesh.cpp "// A.\n#include <nccl.h>\n")
refuse("sharding/array/a.cpp: includes torch/csrc/distributed/c10d/Work.hpp; only" sharding/array/a.cpp
       "// A.\n#include <torch/csrc/distributed/c10d/Work.hpp>\n")
refuse("nn/tree/a.h: includes ATen/ATen.h, which adds ten" nn/tree/a.h "// A.\n#include <ATen/ATen.h>\n")
refuse("optim/formulas/a.h: includes torch/torch.h, which adds ten" optim/formulas/a.h "// A.\n#include <torch/torch.h>\n")
refuse("nn/tree/a.h: the first line" nn/tree/a.h "#pragma once\n")
refuse("nn/tree/a.h: the first line" nn/tree/a.h "// Not a sentence\n#pragma once\n")
refuse("tests/a.cpp: the first line" tests/a.cpp "#include <vector>\n")
refuse("tests/CMakeLists.txt: the first line" tests/CMakeLists.txt "add_test()\n")
refuse("tests/compile_fail/a.cpp: the first line" tests/compile_fail/a.cpp "// A.\n")
refuse("common: is not a folder of this repository" common/a.h "// A.\n")
refuse("tests/array/a_test.cpp: is listed in no CMakeLists.txt" tests/array/a_test.cpp "// A.\n")

# Loops over a part of a temporary, which is destroyed before the first iteration. The last
# repository is valid: it iterates over named objects, results of calls and fields of results, which outlive the loop.
refuse("sharding/array/a.h: iterates over a part of a temporary, made(x)->local" sharding/array/a.h
       "// A.\nvoid f() {\n  for (int i :\n       made(x)->local)\n    g(i);\n}\n")
refuse("tests/a.h: iterates over a part of a temporary, detail::made(*at->second, {.name = \"a\"})->local" tests/a.h
       "// A.\nvoid f() {\n  for (const auto& [a, b] : detail::made(*at->second, {.name = \"a\"})->local) {\n    g(a);\n  }\n}\n")
refuse("nn/tree/a.h: iterates over a part of a temporary, x.made().details->leaves" nn/tree/a.h
       "// A.\nvoid f() {\n  for (int i : x.made().details->leaves) g(i);\n}\n")
refuse("nn/tree/a.h: iterates over a part of a temporary, made(g(x))[0].rows" nn/tree/a.h
       "// A.\nvoid f() {\n  for (int i : made(g(x))[0].rows) g(i);\n}\n")
refuse("nn/tree/a.h: iterates over a part of a temporary, made(x).impl()->local" nn/tree/a.h
       "// A.\nvoid f() {\n  for (int i : made(x).impl()->local) g(i);\n}\n")
refuse("nn/tree/a.h: iterates over a part of a temporary, *x.made(1)" nn/tree/a.h
       "// A.\nvoid f() {\n  for (int i : *x.made(1)) g(i);\n}\n")
write_valid_repository()
file(WRITE "${repository}/nn/tree/tree.h" [[
// A tree.
void f() {
  for (int i : x->local[0].rows) g(made(i)->local);
  for (int i : x[h(1)]->leaves) g(i);
  for (int i : m[0].value.impl()->local) g(i);
  for (int i : made(x)->rows()) g(i);
  for (int i : bare(x).rows) g(i);
  for (int i : joined(made(x)->rows, made(y)->rows)) g(i);
  for (int i : {made(x)->first, made(y)->first}) g(i);
  for (int i : *x) g(i);
  for (int i = 0; i < made(x)->size; ++i) g(i);
  for (int i : x)
    if (made(i)->is_empty) g(i);
}
]])
expect("" "-DROOT=${repository}" -P "${CMAKE_CURRENT_LIST_DIR}/layering_lint.cmake")
