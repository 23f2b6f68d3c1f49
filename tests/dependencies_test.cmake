# Tests dependencies.cmake with fake wheels and libraries: each is found, fetched once, or refused with a clear message.
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")
file(REMOVE_RECURSE "${SCRATCH}")

# Runs `code` in a new CMake process after dependencies.cmake, without environment variables for caches and prefixes.
# The optional third argument is the working folder; a prefix of the command follows.
function(check message code)
  file(WRITE "${SCRATCH}/case.cmake" "cmake_minimum_required(VERSION 3.25)\n"
       "include(\"${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../dependencies.cmake\")\n"
       "set(TESSERA_DEPS_DIR \"${SCRATCH}/cache\")\n${code}\n")
  set(prefix ${ARGN})
  set(folder "${SCRATCH}")
  if(prefix)
    list(POP_FRONT prefix folder)
  endif()
  expect("${message}" -E chdir "${folder}" ${prefix} "${CMAKE_COMMAND}" -E env --unset=TESSERA_DEPS_DIR
         --unset=TESSERA_WHEEL_DIR --unset=CMAKE_PREFIX_PATH "PYTHONPATH=${SCRATCH}/python"
         "PATH=${SCRATCH}/bin:$ENV{PATH}" "${CMAKE_COMMAND}" -P "${SCRATCH}/case.cmake")
endfunction()

# Creates a file tree like a LibTorch of `version` (three numbers).
function(make_torch root version)
  string(REPLACE "." ";" numbers "${version}")
  list(GET numbers 0 major)
  list(GET numbers 1 minor)
  file(WRITE "${root}/include/ATen/core/Tensor.h" "")
  file(WRITE "${root}/include/torch/headeronly/version.h"
       "#define TORCH_VERSION_MAJOR ${major}\n#define TORCH_VERSION_MINOR ${minor}\n#define TORCH_VERSION_PATCH 0\n"
       "#define TORCH_VERSION_ABI_TAG 0\n#define TORCH_VERSION \\\n")
  foreach(library IN ITEMS torch_cpu torch_cuda c10)
    file(WRITE "${root}/lib/lib${library}.so" "")
  endforeach()
endfunction()

# ---- Tools and the compiler ------------------------------------------------------------------------------------------

file(MAKE_DIRECTORY "${SCRATCH}/no_tools")
check("not installed, as Debian and Ubuntu call it: g++ ninja-build (apt-get install g++ ninja-build)."
      "set(ENV{PATH} \"${SCRATCH}/no_tools\")\nunset(ENV{CXX})\nset(CMAKE_GENERATOR Ninja)\ntessera_require_tools()")
check("" "set(ENV{CXX} anything)\nset(CMAKE_GENERATOR \"Unix Makefiles\")\ntessera_require_tools()")

function(check_compiler message id version)
  check("${message}" "set(CMAKE_CXX_COMPILER_ID ${id})\nset(CMAKE_CXX_COMPILER_VERSION ${version})
                      set(CMAKE_CXX_COMPILER /usr/bin/c++)\ntessera_require_compiler()")
endfunction()

check_compiler("GNU 11.4.0 (/usr/bin/c++) is too old: Tessera needs g++ >= 12 or clang >= 16" GNU 11.4.0)
check_compiler("Clang 15.0.7 (/usr/bin/c++) is too old: Tessera needs g++ >= 12 or clang >= 16" Clang 15.0.7)
check_compiler("" GNU 12.1.0)
check_compiler("" Clang 16.0.0)

# ---- Options ---------------------------------------------------------------------------------------------------------

check("[options] TESSERA_CUDA=maybe, expected one of AUTO, ON, OFF."
      "set(TESSERA_CUDA maybe)\ntessera_check_option(TESSERA_CUDA AUTO ON OFF)")
set(values off 0 True auto)
set(meanings OFF OFF ON AUTO)
foreach(value meaning IN ZIP_LISTS values meanings)
  check("" "set(TESSERA_CUDA ${value})\ntessera_check_option(TESSERA_CUDA AUTO ON OFF)
            if(NOT TESSERA_CUDA STREQUAL ${meaning})\nmessage(FATAL_ERROR \"\${TESSERA_CUDA}\")\nendif()")
endforeach()

# ---- Wheels ----------------------------------------------------------------------------------------------------------

make_torch("${SCRATCH}/wheel/torch" 2.11.0)
file(WRITE "${SCRATCH}/wheel/torch-2.11.0.dist-info/licenses/LICENSE" "")
file(MAKE_DIRECTORY "${SCRATCH}/wheels" "${SCRATCH}/no_wheels")
file(WRITE "${SCRATCH}/wheel/nvidia/cu13/bin/nvcc" "#!/bin/sh\n")
file(CHMOD "${SCRATCH}/wheel/nvidia/cu13/bin/nvcc" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
execute_process(COMMAND "${CMAKE_COMMAND}" -E tar c "${SCRATCH}/wheels/torch-2.11.0-any.whl" --format=zip torch nvidia
                        torch-2.11.0.dist-info
                WORKING_DIRECTORY "${SCRATCH}/wheel")
file(SHA256 "${SCRATCH}/wheels/torch-2.11.0-any.whl" sha256)
set(fetch "tessera_fetch(root libtorch \"torch-2.11.0-any.whl;${sha256}\" \"Install it.\")")
string(SHA256 wrong "another file")

check("libtorch is neither installed nor in ${SCRATCH}/cache, and TESSERA_FETCH_DEPS is OFF. Install it. Or pass"
      "set(TESSERA_FETCH_DEPS OFF)\n${fetch}")
check("libtorch is not installed, and no wheel of it is pinned for"
      "set(TESSERA_FETCH_DEPS ON)\ntessera_fetch(root libtorch \"\" \"Install it.\")")
check("has no torch-2.11.0-any.whl" "set(TESSERA_WHEEL_DIR \"${SCRATCH}/no_wheels\")\n${fetch}")
check("/wheels/torch-2.11.0-any.whl has sha256 ${sha256}, pinned is ${wrong}."
      "set(TESSERA_WHEEL_DIR \"${SCRATCH}/wheels\")
       tessera_fetch(root libtorch \"torch-2.11.0-any.whl;${wrong}\" \"Install it.\")")

check("" "set(TESSERA_WHEEL_DIR \"${SCRATCH}/wheels\")\n${fetch}
          foreach(file IN ITEMS torch/include/ATen/core/Tensor.h torch/lib/libtorch_cpu.so torch/lib/libc10.so
                                torch-2.11.0.dist-info/licenses/LICENSE)
            if(NOT EXISTS \"\${root}/\${file}\")\nmessage(FATAL_ERROR \"not unpacked: \${file}\")\nendif()
          endforeach()
          if(EXISTS \"\${root}/torch/lib/libtorch_cuda.so\")\nmessage(FATAL_ERROR \"CUDA was unpacked\")\nendif()")
check("" "set(TESSERA_FETCH_DEPS OFF)\n${fetch}")  # the second time it is in the cache

# A cache folder that another user can change is refused. An empty variable means no cache folder.
file(GLOB cached "${SCRATCH}/cache/libtorch-*")
execute_process(COMMAND id -u COMMAND_ERROR_IS_FATAL ANY OUTPUT_VARIABLE user OUTPUT_STRIP_TRAILING_WHITESPACE)
function(check_open open change restore)
  execute_process(COMMAND ${change} "${open}" COMMAND_ERROR_IS_FATAL ANY)
  check("[dependencies] ${open} can be changed by another user" "set(TESSERA_FETCH_DEPS OFF)\n${fetch}")
  execute_process(COMMAND ${restore} "${open}" COMMAND_ERROR_IS_FATAL ANY)
endfunction()
foreach(open IN ITEMS "${SCRATCH}/cache" "${cached}/torch/lib/libtorch_cpu.so")
  check_open("${open}" "chmod;o+w" "chmod;o-w")
  if(user EQUAL 0)  # only root can give files away
    check_open("${open}" "chown;1234" "chown;0")
    execute_process(COMMAND chgrp 1234 "${open}" COMMAND_ERROR_IS_FATAL ANY)
    check_open("${open}" "chmod;g+w" "chmod;g-w")
  endif()
endforeach()
# Also before the first download, and if a link leads to the folder.
file(MAKE_DIRECTORY "${SCRATCH}/open_cache")
file(CREATE_LINK open_cache "${SCRATCH}/link_to_cache" SYMBOLIC)
execute_process(COMMAND chmod 777 "${SCRATCH}/open_cache" COMMAND_ERROR_IS_FATAL ANY)
foreach(cache IN ITEMS open_cache link_to_cache)
  check("[dependencies] ${SCRATCH}/open_cache can be changed by another user"
        "set(TESSERA_WHEEL_DIR \"${SCRATCH}/wheels\")\nset(TESSERA_DEPS_DIR \"${SCRATCH}/${cache}\")\n${fetch}")
endforeach()
# Nothing is written there.
file(WRITE "${SCRATCH}/precious" "mine")
file(CREATE_LINK ../precious "${SCRATCH}/open_cache/lock" SYMBOLIC)
check("can be changed by another user"
      "set(TESSERA_WHEEL_DIR \"${SCRATCH}/wheels\")\nset(TESSERA_DEPS_DIR \"${SCRATCH}/open_cache\")\n${fetch}")
file(READ "${SCRATCH}/precious" precious)
if(NOT precious STREQUAL "mine")
  message(SEND_ERROR "the lock was written through a link")
endif()
# A new cache is writable by its user only, whatever the umask is.
check("" "set(TESSERA_WHEEL_DIR \"${SCRATCH}/wheels\")\nset(TESSERA_DEPS_DIR \"${SCRATCH}/private/cache\")\n${fetch}"
      . sh -c "umask 0 && exec $@" sh)
execute_process(COMMAND find "${SCRATCH}/private" ! -name lock -perm /022 OUTPUT_VARIABLE open)
if(open OR NOT EXISTS "${SCRATCH}/private")
  message(SEND_ERROR "others can write: ${open}")
endif()
check("" "set(TESSERA_DEPS_DIR \"\")\nset(ENV{XDG_CACHE_HOME} \"\")\nset(ENV{HOME} \"${SCRATCH}/home\")
          tessera_deps_dir(folder)
          if(NOT folder STREQUAL \"${SCRATCH}/home/.cache/tessera\")\nmessage(FATAL_ERROR \"\${folder}\")\nendif()")

# Python must not import modules from the folder in which CMake is called.
make_torch("${SCRATCH}/strange/torch" 2.11.0)
file(WRITE "${SCRATCH}/strange/torch/__init__.py" "")
file(WRITE "${SCRATCH}/strange/zipfile.py" "raise SystemExit(1)\n")
check("" "set(TESSERA_WHEEL_DIR \"${SCRATCH}/wheels\")\nset(TESSERA_DEPS_DIR \"${SCRATCH}/another_cache\")\n${fetch}
          tessera_find_torch(found)
          if(found MATCHES strange)\nmessage(FATAL_ERROR \"\${found}\")\nendif()" "${SCRATCH}/strange")

# LibTorch's CUDA libraries, with the programs of the CUDA compiler. The cache stores both separately.
check("" "set(TESSERA_WHEEL_DIR \"${SCRATCH}/wheels\")
          set(tessera_unpacked_files \"\${tessera_unpacked_cuda_files}\")
          set(TESSERA_DEPS_DIR \"${SCRATCH}/cuda_cache\")\n${fetch}
          if(NOT EXISTS \"\${root}/torch/lib/libtorch_cuda.so\")\nmessage(FATAL_ERROR \"no CUDA\")\nendif()
          execute_process(COMMAND \"\${root}/nvidia/cu13/bin/nvcc\" COMMAND_ERROR_IS_FATAL ANY)")
check("CUDA is not installed, and no wheels of it are pinned for LibTorch 2.12.0 on"
      "set(CMAKE_SYSTEM_NAME Linux)\ntessera_cuda_wheels(wheels cuda 2.12.0 \"Install it.\")")
file(GLOB left RELATIVE "${SCRATCH}/cache" "${SCRATCH}/cache/*")
if(NOT left MATCHES "^libtorch-[0-9a-f]+;lock$")
  message(SEND_ERROR "the cache holds more than what was fetched: ${left}")
endif()

file(WRITE "${SCRATCH}/bin/python3" "#!/bin/sh\necho no pip >&2\nexit 1\n")
file(CHMOD "${SCRATCH}/bin/python3" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
check("[driver] This machine has no GPU with NVIDIA's driver (libcuda.so.1), so nothing was fetched; without one this is"
      "set(TESSERA_REQUIRE_DRIVER ON)\ntessera_require_driver()")
check("" "tessera_require_driver()")
check("not installed: python3 with pip, which fetches torch==2.11.0 once (apt-get install python3-pip;"
      "set(TESSERA_FETCH_DEPS ON)\nset(tessera_unpacked_files x)\n${fetch}")
file(WRITE "${SCRATCH}/bin/python3" "#!/bin/sh\n[ \"$3\" = --version ] && exit\necho no network >&2\nexit 1\n")
check("python3 -m pip could not download torch==2.11.0 (1): no network"
      "set(TESSERA_FETCH_DEPS ON)\nset(tessera_unpacked_files x)\n${fetch}")
foreach(download IN ITEMS "libtorch-2.11.0-cuda 2.5 GB" "boost-1.85.0 27 MB")  # announced before it begins
  string(REGEX MATCH "([^ ]+) (.+)" _ "${download}")
  check("${CMAKE_MATCH_1} is not installed: fetching ${CMAKE_MATCH_2} once, into ${SCRATCH}/cache/${CMAKE_MATCH_1}-"
        "set(TESSERA_FETCH_DEPS ON)\ntessera_fetch(root ${CMAKE_MATCH_1} \"a-1-any.whl;${sha256}\" \"Install it.\")")
endforeach()
file(REMOVE "${SCRATCH}/bin/python3")

# ---- Installed dependencies ------------------------------------------------------------------------------------------

function(check_torch expected prefix_path)  # and optionally the requested version
  check("" "set(CMAKE_PREFIX_PATH \"${prefix_path}\")\nset(TESSERA_LIBTORCH_VERSION \"${ARGN}\")
            tessera_find_torch(found)
            if(NOT found STREQUAL \"${expected}\")\nmessage(FATAL_ERROR \"found '\${found}'\")\nendif()")
endfunction()

make_torch("${SCRATCH}/old/torch" 2.9.1)
make_torch("${SCRATCH}/new/libtorch" 2.12.0)
make_torch("${SCRATCH}/newer" 2.15.0)
make_torch("${SCRATCH}/python/torch" 2.11.0)
file(MAKE_DIRECTORY "${SCRATCH}/new/libtorch/share/cmake")
file(WRITE "${SCRATCH}/python/torch/__init__.py" "raise ImportError('torch must not be imported')\n")
check_torch("${SCRATCH}/new/libtorch" "${SCRATCH}/old;${SCRATCH}/new")
check_torch("${SCRATCH}/new/libtorch" "${SCRATCH}/new/libtorch")
check_torch("${SCRATCH}/new/libtorch" "${SCRATCH}/new/libtorch/share/cmake")
check_torch("${SCRATCH}/python/torch" "${SCRATCH}/old")
check_torch("${SCRATCH}/python/torch" "")
check("" "set(CMAKE_CROSSCOMPILING ON)  # python3 is for another processor\ntessera_find_torch(found)
          if(found)\nmessage(FATAL_ERROR \"found \${found}\")\nendif()")
check_torch("${SCRATCH}/newer" "${SCRATCH}/newer;${SCRATCH}/new")

# A requested version is used, installed or fetched, and no other version.
check_torch("${SCRATCH}/newer" "${SCRATCH}/new;${SCRATCH}/newer" 2.15.0)
check_torch("${SCRATCH}/python/torch" "${SCRATCH}/new;${SCRATCH}/newer" 2.11.0)
check_torch("" "${SCRATCH}/new" 2.15.0)
check("TESSERA_LIBTORCH_VERSION=2.12.0 is not pinned: give 2.11.0 or 2.15.0, or nothing"
      "set(CMAKE_PREFIX_PATH \"${SCRATCH}/new\")\nset(TESSERA_LIBTORCH_VERSION 2.12.0)\ntessera_import_torch()")

function(check_fetched message version processor)
  check("${message}" "set(CMAKE_SYSTEM_NAME Linux)\nset(CMAKE_SYSTEM_PROCESSOR ${processor})
                      set(TESSERA_WHEEL_DIR \"${SCRATCH}/no_wheels\")
                      set(TESSERA_LIBTORCH_VERSION \"${version}\")\ntessera_import_torch()")
endfunction()

make_torch("${SCRATCH}/python/torch" 2.9.1)
foreach(processor IN ITEMS x86_64 aarch64)
  check_fetched("has no torch-2.11.0-cp312-cp312-manylinux_2_28_${processor}.whl" "" ${processor})
  check_fetched("has no torch-2.11.0-cp312-cp312-manylinux_2_28_${processor}.whl" 2.11.0 ${processor})
  check_fetched("has no torch-2.15.0-cp312-cp312-manylinux_2_28_${processor}.whl" 2.15.0 ${processor})
endforeach()
check_fetched("Pass -DCMAKE_PREFIX_PATH=<a libtorch 2.15.0>, or install" 2.15.0 riscv64)
check_fetched("Pass -DCMAKE_PREFIX_PATH=<a libtorch >= 2.11>, or install" "" riscv64)

file(WRITE "${SCRATCH}/boost/boost/version.hpp" "#define BOOST_VERSION 108401 // 1.84.1\n")
check("" "tessera_boost_version(version \"${SCRATCH}/boost\")
          if(NOT version STREQUAL 1.84.1)\nmessage(FATAL_ERROR \"\${version}\")\nendif()")

# The GPU engine is left out without the CUDA Toolkit, unless it was requested.
function(check_nccl message wanted)
  check("${message}" "set(CMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit ON)\nset(TESSERA_CUDA ${wanted})\ntessera_import_nccl()
                      if(TARGET tessera_deps::nccl)\nmessage(FATAL_ERROR \"an NCCL from nowhere\")\nendif()")
endfunction()

check_nccl("" AUTO)
check_nccl("" OFF)
check_nccl("TESSERA_CUDA=ON, but there is no CUDA Toolkit with NCCL." ON)
check("TESSERA_ICU=ON, but there is no ICU. Install it (on Debian and Ubuntu: apt-get install libicu-dev, elsewhere named"
      "set(CMAKE_DISABLE_FIND_PACKAGE_ICU ON)\nset(TESSERA_ICU ON)\ntessera_import_icu()")
