# Tests find_package(tessera) of the installation in `prefix`, in projects that are configured, not built.
include("${SOURCE}/tests/support.cmake")
file(STRINGS "${prefix}/lib/cmake/tessera/tesseraConfig.cmake" version REGEX "TESSERA_LIBTORCH_VERSION")
string(REGEX MATCH "[0-9.]+" version "${version}")

# Configures a project with `code`, and the options that follow, and expects a message, or success if `message` is "".
function(check_package message languages code)
  file(WRITE "${SCRATCH}/found/CMakeLists.txt" "cmake_minimum_required(VERSION 3.25)\nproject(found ${languages})\n"
       "${code}\nmessage(FATAL_ERROR \"found=\${tessera_FOUND}, fetch=\${TESSERA_FETCH_DEPS} \"\n"
       "\"\${tessera_NOT_FOUND_MESSAGE}\")\n")
  file(REMOVE_RECURSE "${SCRATCH}/found/build")
  expect("${message}" -E env --unset=Torch_ROOT ${configure} -S "${SCRATCH}/found" -B "${SCRATCH}/found/build"
         "-DCMAKE_PREFIX_PATH=${prefix}" ${ARGN})
endfunction()

# Another LibTorch than the build's.
set(other "${SCRATCH}/other_torch")
file(WRITE "${other}/include/ATen/core/Tensor.h" "")
file(WRITE "${other}/include/torch/headeronly/version.h"
     "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 99\n#define TORCH_VERSION_PATCH 0\n")
file(WRITE "${other}/lib/libtorch_cpu.so" "")
file(WRITE "${other}/share/cmake/Torch/TorchConfig.cmake" "")
set(refused "found=0, fetch=ON [dependencies] ${other}: LibTorch 2.99.0, named by the target torch, Torch_DIR or \
Torch_ROOT, expected ${version}.")
set(find "find_package(tessera QUIET)")
check_package("${refused}" CXX "${find}" "-DTorch_DIR=${other}/share/cmake/Torch")
check_package("${refused}" CXX "${find}" "-DTorch_ROOT=${other}")
check_package("${refused}" CXX "add_library(torch UNKNOWN IMPORTED)
  set_target_properties(torch PROPERTIES IMPORTED_LOCATION \"${other}/lib/libtorch.so\")\n${find}")

# An optional package that is not there lets the project continue, and nothing is downloaded. Another Boost than the
# build's is not used.
file(WRITE "${SCRATCH}/other_boost/include/boost/pfr.hpp" "")
file(WRITE "${SCRATCH}/other_boost/include/boost/version.hpp" "#define BOOST_VERSION 199900\n")
check_package("found=0, fetch=OFF [dependencies] boost-" CXX "${find}" "-DBOOST_ROOT=${SCRATCH}/other_boost"
              -DTESSERA_FETCH_DEPS=OFF "-DTESSERA_DEPS_DIR=${SCRATCH}/no_cache")
check_package("found=0, fetch=ON [dependencies] TESSERA_WHEEL_DIR=${SCRATCH} has no boost_headers-" CXX "${find}"
              "-DTESSERA_WHEEL_DIR=${SCRATCH}" "-DTESSERA_DEPS_DIR=${SCRATCH}/no_cache")
check_package("found=0, fetch=ON [compiler] project(): languages without CXX, expected CXX." C "${find}")
check_package("found=0, fetch=ON [find_package] COMPONENTS nosuch: expected one of sharding;" CXX
              "find_package(tessera QUIET COMPONENTS nn nosuch)")
check_package("found=1, fetch=ON" CXX "find_package(tessera QUIET COMPONENTS nn OPTIONAL_COMPONENTS nosuch)")

# A library is left out if a dependency is missing here.
file(STRINGS "${prefix}/lib/cmake/tessera/tesseraConfig.cmake" with_icu REGEX "TESSERA_ICU \"ON\"")
if(with_icu)
  set(no_icu -DCMAKE_DISABLE_FIND_PACKAGE_ICU=ON)
  check_package("found=1, fetch=ON" CXX "find_package(tessera COMPONENTS nn data)
    if(TARGET tessera::tokenizer)\nmessage(FATAL_ERROR \"a tokenizer without ICU\")\nendif()" ${no_icu})
  check_package("found=0, fetch=ON [find_package] COMPONENTS tokenizer: expected one of" CXX
                "find_package(tessera QUIET COMPONENTS tokenizer)" ${no_icu})
endif()
