# Tessera's dependencies: each is found if it is installed, or else its pinned wheel is fetched once.
#
#   tessera_check_option(...)     an error unless the option has one of the values
#   tessera_require_tools()       before project(): requires a compiler and a build program, and names a missing one
#   tessera_require_driver()      with TESSERA_REQUIRE_DRIVER, an error if there is no GPU
#   tessera_require_compiler()    g++ >= 12 or clang >= 16
#   tessera_require_libraries()   tessera_deps::torch (LibTorch's CPU tensors) and tessera_deps::boost (headers). If
#                                 installed: tessera_deps::nccl (with the CUDA Toolkit), tessera_deps::icu,
#                                 tessera_deps::zlib and tessera_deps::zstd
#
# A fetched wheel is checked against its sha256 and unpacked into a cache that all presets and clones share.

# ---- Pins: file name (package, version and platform) and sha256; only here -------------------------------------------

set(tessera_libtorch_minimum 2.11)
set(tessera_libtorch_versions 2.11.0 2.15.0)  # the first unless TESSERA_LIBTORCH_VERSION is set
set(tessera_libtorch_2.11.0_wheels_Linux_x86_64
  torch-2.11.0-cp312-cp312-manylinux_2_28_x86_64.whl
  0f68f4ac6d95d12e896c3b7a912b5871619542ec54d3649cf48cc1edd4dd2756
  nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl
  7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
  nvidia_cuda_cupti-13.0.85-py3-none-manylinux_2_25_x86_64.whl
  4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8)
set(tessera_libtorch_2.11.0_wheels_Linux_aarch64
  torch-2.11.0-cp312-cp312-manylinux_2_28_aarch64.whl
  f99924682ef0aa6a4ab3b1b76f40dc6e273fca09f367d15a524266db100a723f
  nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_aarch64.manylinux_2_17_aarch64.whl
  ef9bcbe90493a2b9d810e43d249adb3d02e98dd30200d86607d8d02687c43f55
  nvidia_cuda_cupti-13.0.85-py3-none-manylinux_2_25_aarch64.whl
  796bd679890ee55fb14a94629b698b6db54bcfd833d391d5e94017dd9d7d3151)
set(tessera_libtorch_2.15.0_wheels_Linux_x86_64
  torch-2.15.0-cp312-cp312-manylinux_2_28_x86_64.whl
  6d8c86f4e33a9f12a58149bd9b0d64351632b8eb44479be8ff85e5389932dd79
  nvidia_cuda_runtime-13.2.86-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl
  3498247680dfddce31bad102af7e3e26fc795342a3cac64722bb0fa95e7f60f0
  nvidia_cuda_cupti-13.2.86-py3-none-manylinux_2_25_x86_64.whl
  8fa29f15dd8336181f961764d9d95236fc6b931dd0c8fcf8cd70aab0c310b586)
set(tessera_libtorch_2.15.0_wheels_Linux_aarch64
  torch-2.15.0-cp312-cp312-manylinux_2_28_aarch64.whl
  9e51cf9460c5441dcd2a4f31ece207e35ea7c3d2535be0f929cca4944e2eeb18
  nvidia_cuda_runtime-13.2.86-py3-none-manylinux2014_aarch64.manylinux_2_17_aarch64.whl
  37844957894bfdecf90243568d21a2cb251b66106915b71459a23c8e6ef2da69
  nvidia_cuda_cupti-13.2.86-py3-none-manylinux_2_25_aarch64.whl
  d9a5c133f73fcb9013f3ada0da6fb54d4117618d81f3f5a0419417ea6ee829d4)

# Additional libraries, such as NCCL, that LibTorch's CUDA libraries are linked with. Fetched for TESSERA_CUDA=FETCH.
set(tessera_cuda_2.11.0_wheels_Linux_x86_64
  nvidia_cublas-13.1.0.3-py3-none-manylinux_2_27_x86_64.whl
  ee8722c1f0145ab246bccb9e452153b5e0515fd094c3678df50b2a0888b8b171
  nvidia_cudnn_cu13-9.19.0.56-py3-none-manylinux_2_27_x86_64.whl
  d20e1734305e9d68889a96e3f35094d733ff1f83932ebe462753973e53a572bf
  nvidia_cufft-12.0.0.61-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl
  6c44f692dce8fd5ffd3e3df134b6cdb9c2f72d99cf40b62c32dde45eea9ddad3
  nvidia_cusolver-12.0.4.66-py3-none-manylinux_2_27_x86_64.whl
  0a759da5dea5c0ea10fd307de75cdeb59e7ea4fcb8add0924859b944babf1112
  nvidia_nccl_cu13-2.28.9-py3-none-manylinux_2_18_x86_64.whl
  e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42
  nvidia_cusparselt_cu13-0.8.0-py3-none-manylinux2014_x86_64.whl
  25e30a8a7323935d4ad0340b95a0b69926eee755767e8e0b1cf8dd85b197d3fd
  nvidia_cusparse-12.6.3.3-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl
  2b3c89c88d01ee0e477cb7f82ef60a11a4bcd57b6b87c33f789350b59759360b
  nvidia_cuda_nvrtc-13.0.88-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl
  ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575
  nvidia_nvshmem_cu13-3.4.5-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl
  290f0a2ee94c9f3687a02502f3b9299a9f9fe826e6d0287ee18482e78d495b80
  nvidia_curand-10.4.0.35-py3-none-manylinux_2_27_x86_64.whl
  1aee33a5da6e1db083fe2b90082def8915f30f3248d5896bcec36a579d941bfc
  nvidia_nvjitlink-13.0.88-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl
  13a74f429e23b921c1109976abefacc69835f2f433ebd323d3946e11d804e47b
  nvidia_cufile-1.15.1.6-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl
  08a3ecefae5a01c7f5117351c64f17c7c62efa5fffdbe24fc7d298da19cd0b44)
# The CUDA compiler, fetched for TESSERA_CUDA=FETCH if CUDA Toolkit 13 is not installed.
set(tessera_nvcc_2.11.0_wheels_Linux_x86_64
  nvidia_cuda_nvcc-13.0.88-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl
  56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03
  nvidia_nvvm-13.0.88-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl
  c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0
  nvidia_cuda_cccl-13.0.85-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl
  e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649
  nvidia_cuda_crt-13.0.88-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl
  2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4
  nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl
  7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548)

set(tessera_boost_version 1.85.0)
set(tessera_boost_minimum 1.84)
set(tessera_boost_wheels
  boost_headers-1.85.0.post1-py3-none-any.whl
  4510a571d3bf6c5e913b31d2a9b2441ee79f883ae42d42a5882dd1da46b35e7f)

# The approximate size of each download, for the message before it.
set(tessera_size_of_libtorch "540 MB")
set(tessera_size_of_libtorch-cuda "2.5 GB")
set(tessera_size_of_nvcc "110 MB")
set(tessera_size_of_boost "27 MB")

# LibTorch's CPU library and headers, the two CUDA stubs it is linked with, Boost's headers; not the gigabyte of CUDA.
set(tessera_unpacked_files "torch/include/|torch\\.libs/|nvidia/cu13/lib/lib(cudart|cupti)\\.so|boost_headers/include/\
|torch/lib/(?!libtorch_(cuda|python|nvshmem|global_deps)|libtorch\\.so|libc10_cuda|libcaffe2|libshm).*\\.so")
# The same with LibTorch's CUDA libraries and the CUDA compiler.
set(tessera_unpacked_cuda_files "torch/include/|torch\\.libs/|nvidia/|torch/lib/(?!libtorch_python|libshm).*\\.so")

# The reason why find_package does not find the package; "" in a build of Tessera itself.
set_property(GLOBAL PROPERTY tessera_not_found "")

# Ends the calling function with an error. In find_package, the package is not found instead: the caller decides.
macro(tessera_fail text)
  if(NOT tessera_installed)
    message(FATAL_ERROR "${text}")
  endif()
  set_property(GLOBAL PROPERTY tessera_not_found "${text}")
  return()
endmacro()

# Ends the calling function after a tessera_fail in a function that it called.
macro(tessera_return_if_failed)
  get_property(tessera_failed GLOBAL PROPERTY tessera_not_found)
  if(tessera_failed)
    return()
  endif()
endmacro()

# Ends CMake unless the option is one of the values that follow, in upper or lower case. Stores it in upper case, and
# CMake's other booleans, such as TRUE and 0, as ON and OFF.
function(tessera_check_option option)
  string(TOUPPER "${${option}}" value)
  if(value MATCHES "^(1|YES|TRUE|Y)$")
    set(value ON)
  elseif(value MATCHES "^(0|NO|FALSE|N)$")
    set(value OFF)
  endif()
  if(NOT value IN_LIST ARGN)
    list(JOIN ARGN ", " values)
    message(FATAL_ERROR "[options] ${option}=${${option}}, expected one of ${values}.")
  endif()
  set(${option} ${value} PARENT_SCOPE)
endfunction()

# ---- Tools and the compiler ------------------------------------------------------------------------------------------

function(tessera_require_tools)
  set(missing "")
  if(NOT CMAKE_CXX_COMPILER AND NOT DEFINED ENV{CXX})
    find_program(tessera_any_compiler NAMES c++ g++ clang++ g++-14 g++-13 g++-12 clang++-19 NO_CACHE)
    if(NOT tessera_any_compiler)
      list(APPEND missing g++)
    endif()
  endif()
  if(CMAKE_GENERATOR MATCHES "^Ninja" AND NOT CMAKE_MAKE_PROGRAM)
    find_program(tessera_any_ninja NAMES ninja-build ninja samu NO_CACHE)
    if(NOT tessera_any_ninja)
      list(APPEND missing ninja-build)
    endif()
  endif()
  if(missing)
    list(JOIN missing " " missing)
    message(FATAL_ERROR "[prerequisites] not installed, as Debian and Ubuntu call it: ${missing} "
                        "(apt-get install ${missing}).")
  endif()
endfunction()

function(tessera_require_compiler)
  if(NOT CMAKE_CXX_COMPILER_ID)
    tessera_fail("[compiler] project(): languages without CXX, expected CXX. Write project(NAME LANGUAGES CXX) first.")
  endif()
  set(given "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} (${CMAKE_CXX_COMPILER})")
  if((CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
     OR (CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 16))
    tessera_fail("[compiler] ${given} is too old: Tessera needs g++ >= 12 or clang >= 16. \
Name a newer one in a fresh build folder, e.g. -DCMAKE_CXX_COMPILER=g++-12.")
  elseif(NOT CMAKE_CXX_COMPILER_ID MATCHES "^(GNU|Clang)$")
    message(WARNING "[compiler] ${given} is untested: Tessera is tested with g++ >= 12 and clang >= 16.")
  endif()
endfunction()

# ---- Wheels ----------------------------------------------------------------------------------------------------------

# The cache: -DTESSERA_DEPS_DIR, the environment variable TESSERA_DEPS_DIR, the user's cache folder, or, without a home,
# .deps in the source.
function(tessera_deps_dir result)
  if(TESSERA_DEPS_DIR)
    set(folder "${TESSERA_DEPS_DIR}")
  elseif(NOT "$ENV{TESSERA_DEPS_DIR}" STREQUAL "")
    set(folder "$ENV{TESSERA_DEPS_DIR}")
  elseif(NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
    set(folder "$ENV{XDG_CACHE_HOME}/tessera")
  elseif(NOT "$ENV{HOME}" STREQUAL "")
    set(folder "$ENV{HOME}/.cache/tessera")
  elseif(tessera_installed)
    tessera_fail("[dependencies] HOME: not set, expected the folder of caches. Pass -DTESSERA_DEPS_DIR=<folder>.")
  else()
    set(folder "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/.deps")
  endif()
  get_filename_component(folder "${folder}" REALPATH)
  set(${result} "${folder}" PARENT_SCOPE)
endfunction()

# Python always starts in /. It searches for modules in the folder where it starts, and would import a pip.py or torch/
# of the configured project instead of the real module.

# Downloads one wheel with the user's pip, for any version and platform of that Python.
function(tessera_download_wheel wheel sha256 folder)
  string(REGEX MATCH "^([^-]+)-([^-]+)-" _ "${wheel}")
  set(requirement "${CMAKE_MATCH_1}==${CMAKE_MATCH_2}")
  execute_process(COMMAND python3 -m pip --version WORKING_DIRECTORY / RESULT_VARIABLE no_pip OUTPUT_QUIET
                  ERROR_QUIET)
  if(no_pip)
    tessera_fail("[prerequisites] not installed: python3 with pip, which fetches ${requirement} once (apt-get \
install python3-pip; without a network, -DTESSERA_WHEEL_DIR=<folder with ${wheel}>).")
  endif()
  set(platforms "")
  foreach(tag IN ITEMS manylinux_2_28 manylinux_2_27 manylinux_2_25 manylinux_2_18 manylinux_2_17 manylinux2014)
    list(APPEND platforms --platform ${tag}_${CMAKE_SYSTEM_PROCESSOR})
  endforeach()
  file(WRITE "${folder}/requirements.txt" "${requirement} --hash=sha256:${sha256}\n")
  execute_process(
    COMMAND python3 -m pip download --no-cache-dir --no-deps --only-binary=:all: --require-hashes
            --python-version 3.12 --implementation cp --abi cp312 --abi none ${platforms}
            --dest "${folder}" --requirement "${folder}/requirements.txt"
    WORKING_DIRECTORY / RESULT_VARIABLE failed ERROR_VARIABLE why)
  string(REGEX REPLACE "[\\$]" "/" why "${why}")  # CMake would read these in the argument of a macro
  if(failed OR NOT EXISTS "${folder}/${wheel}")
    tessera_fail("[dependencies] python3 -m pip could not download ${requirement} (${failed}): ${why}\n\
Without a network, put ${wheel} in a folder and pass -DTESSERA_WHEEL_DIR=<folder>.")
  endif()
endfunction()

function(tessera_unpack_wheel wheel sha256 folder)
  file(SHA256 "${wheel}" given)
  if(NOT given STREQUAL sha256)
    tessera_fail("[dependencies] ${wheel} has sha256 ${given}, pinned is ${sha256}. Delete it and fetch it again.")
  endif()
  execute_process(
    COMMAND python3 -c "import os, re, sys, zipfile; os.umask(0o022); wheel = zipfile.ZipFile(sys.argv[1]); \
[os.chmod(wheel.extract(file, sys.argv[2]), 0o755 if file.external_attr >> 16 & 0o100 else 0o644) \
for file in wheel.infolist() if re.match(sys.argv[3], file.filename) and not file.is_dir()]"
            "${wheel}" "${folder}" "${tessera_unpacked_files}|[^/]+\\.dist-info/licenses/"
    WORKING_DIRECTORY / RESULT_VARIABLE failed ERROR_VARIABLE why)
  string(REGEX REPLACE "[\\$]" "/" why "${why}")
  if(failed)
    tessera_fail("[dependencies] python3 could not unpack ${wheel} (${failed}): ${why}")
  endif()
endfunction()

# Programs load libraries from `folder` in the cache, so no other user but root may write to either. A group may if its
# number is the user's: it is the user's own, which useradd makes.
function(tessera_check_cache cache folder)
  execute_process(COMMAND id -u COMMAND_ERROR_IS_FATAL ANY OUTPUT_VARIABLE user OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(is_open ! -type l "(" -perm -002 -o ! -user ${user} ! -user 0 -o -perm -020 ! -group ${user} ")")
  execute_process(COMMAND find "${cache}" -maxdepth 0 ${is_open} COMMAND_ERROR_IS_FATAL ANY OUTPUT_VARIABLE open)
  set(open_below "")
  if(EXISTS "${folder}")
    execute_process(COMMAND find -H "${folder}" ${is_open} COMMAND_ERROR_IS_FATAL ANY OUTPUT_VARIABLE open_below)
  endif()
  if(open OR open_below)
    string(REGEX MATCH "^[^\n]+" first "${open}${open_below}")
    tessera_fail("[dependencies] ${first} can be changed by another user, and programs load libraries from there. \
Give a -DTESSERA_DEPS_DIR=<folder> that only you can write, or remove this one.")
  endif()
endfunction()

# Sets `result` to the cache folder that holds the unpacked `wheels` (file name, sha256, file name, sha256, ...). The
# folder is named by its content and created atomically, also if two builds configure at the same time.
function(tessera_fetch result name wheels install_hint)
  tessera_deps_dir(cache)
  tessera_return_if_failed()
  string(SHA256 content "${wheels}${tessera_unpacked_files}")
  string(SUBSTRING "${content}" 0 8 content)
  set(folder "${cache}/${name}-${content}")
  set(${result} "${folder}" PARENT_SCOPE)
  if(EXISTS "${folder}")
    tessera_check_cache("${cache}" "${folder}")
    return()
  endif()

  if(NOT wheels)
    tessera_fail("[dependencies] ${name} is not installed, and no wheel of it is pinned for \
${CMAKE_SYSTEM_NAME} ${CMAKE_SYSTEM_PROCESSOR}. ${install_hint}")
  endif()
  set(wheel_dir "${TESSERA_WHEEL_DIR}")
  if(NOT wheel_dir)
    set(wheel_dir "$ENV{TESSERA_WHEEL_DIR}")
  endif()
  if(NOT TESSERA_FETCH_DEPS AND NOT wheel_dir)
    tessera_fail("[dependencies] ${name} is neither installed nor in ${cache}, and TESSERA_FETCH_DEPS is OFF. \
${install_hint} Or pass -DTESSERA_FETCH_DEPS=ON, or -DTESSERA_WHEEL_DIR=<folder of wheels>.")
  endif()

  set(new "${cache}")
  set(made "")
  while(NOT EXISTS "${new}")
    list(APPEND made "${new}")
    cmake_path(GET new PARENT_PATH new)
  endwhile()
  file(MAKE_DIRECTORY "${cache}")
  if(made)
    execute_process(COMMAND chmod go-w ${made} COMMAND_ERROR_IS_FATAL ANY)
  endif()
  tessera_check_cache("${cache}" "${folder}")  # before the lock: a link there would be followed
  tessera_return_if_failed()
  file(LOCK "${cache}/lock" GUARD FUNCTION TIMEOUT 3600)
  if(EXISTS "${folder}")  # another configure was faster
    return()
  endif()
  if(wheel_dir)
    message(STATUS "Unpacking ${name} once, from ${wheel_dir} into ${folder}")
  else()
    string(REGEX REPLACE "-[0-9.]+" "" kind "${name}")
    message(NOTICE "-- ${name} is not installed: fetching ${tessera_size_of_${kind}} once, into ${folder}. "
                   "To use another one: ${install_hint}")
  endif()
  set(partial "${cache}/partial")
  file(REMOVE_RECURSE "${partial}")
  file(MAKE_DIRECTORY "${partial}/wheels")
  execute_process(COMMAND chmod go-w "${partial}" "${partial}/wheels" COMMAND_ERROR_IS_FATAL ANY)
  while(wheels)
    list(POP_FRONT wheels wheel sha256)
    if(NOT wheel_dir)
      tessera_download_wheel("${wheel}" ${sha256} "${partial}/wheels")
      tessera_return_if_failed()
      tessera_unpack_wheel("${partial}/wheels/${wheel}" ${sha256} "${partial}/unpacked")
      file(REMOVE "${partial}/wheels/${wheel}")
    elseif(EXISTS "${wheel_dir}/${wheel}")
      tessera_unpack_wheel("${wheel_dir}/${wheel}" ${sha256} "${partial}/unpacked")
    else()
      tessera_fail("[dependencies] TESSERA_WHEEL_DIR=${wheel_dir} has no ${wheel}.")
    endif()
    tessera_return_if_failed()
  endwhile()
  file(RENAME "${partial}/unpacked" "${folder}")
  file(REMOVE_RECURSE "${partial}")
endfunction()

# ---- LibTorch --------------------------------------------------------------------------------------------------------

# Sets `pinned` to the version to fetch, and `wanted` to the condition for an installed one, as text.
function(tessera_choose_torch pinned wanted)
  if(NOT TESSERA_LIBTORCH_VERSION)
    list(GET tessera_libtorch_versions 0 version)
    set(${pinned} ${version} PARENT_SCOPE)
    set(${wanted} ">= ${tessera_libtorch_minimum}" PARENT_SCOPE)
  elseif(tessera_installed OR TESSERA_LIBTORCH_VERSION IN_LIST tessera_libtorch_versions)
    set(${pinned} ${TESSERA_LIBTORCH_VERSION} PARENT_SCOPE)
    set(${wanted} ${TESSERA_LIBTORCH_VERSION} PARENT_SCOPE)
  else()
    list(JOIN tessera_libtorch_versions " or " versions)
    message(FATAL_ERROR "[dependencies] TESSERA_LIBTORCH_VERSION=${TESSERA_LIBTORCH_VERSION} is not pinned: give "
                        "${versions}, or nothing to build with any installed LibTorch >= ${tessera_libtorch_minimum}.")
  endif()
endfunction()

# Sets `result` to the LibTorch of the target torch, Torch_DIR or Torch_ROOT, which must have the wanted version. Without
# them: to the first one under CMAKE_PREFIX_PATH or in python3's torch package that has that version, or to "". It is a
# folder with include/ and lib/: a libtorch distribution, or the folder of a torch package.
function(tessera_find_torch result)
  tessera_choose_torch(pinned wanted)
  set(${result} "" PARENT_SCOPE)
  file(TO_CMAKE_PATH "$ENV{CMAKE_PREFIX_PATH}" prefixes)
  list(PREPEND prefixes ${CMAKE_PREFIX_PATH})
  execute_process(
    COMMAND python3 -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    WORKING_DIRECTORY / OUTPUT_VARIABLE package OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE no_package)
  if(no_package OR CMAKE_CROSSCOMPILING)
    set(package "")
  endif()
  set(named ${Torch_ROOT} $ENV{Torch_ROOT})
  if(Torch_DIR)
    list(PREPEND named "${Torch_DIR}/..")
  endif()
  if(TARGET torch)  # of find_package(Torch)
    get_target_property(library torch IMPORTED_LOCATION)
    cmake_path(GET library PARENT_PATH library)
    list(PREPEND named "${library}/..")
  endif()
  foreach(prefix IN LISTS named prefixes package)
    foreach(root IN ITEMS "${prefix}" "${prefix}/torch" "${prefix}/libtorch" "${prefix}/../..")
      if(NOT EXISTS "${root}/lib/libtorch_cpu.so" OR NOT EXISTS "${root}/include/ATen/core/Tensor.h")
        continue()
      endif()
      get_filename_component(root "${root}" ABSOLUTE)
      tessera_torch_version(version "${root}")
      if(TESSERA_CUDA STREQUAL "FETCH" AND NOT EXISTS "${root}/lib/libtorch_cuda.so")
        message(STATUS "LibTorch ${version} in ${root} is without CUDA: not used")
        continue()
      endif()
      if(TESSERA_LIBTORCH_VERSION STREQUAL version
         OR (NOT TESSERA_LIBTORCH_VERSION AND version VERSION_GREATER_EQUAL tessera_libtorch_minimum))
        set(${result} "${root}" PARENT_SCOPE)
        return()
      endif()
      if(prefix IN_LIST named)
        tessera_fail("[dependencies] ${root}: LibTorch ${version}, named by the target torch, Torch_DIR or Torch_ROOT, \
expected ${wanted}. Name that one, or none.")
      endif()
      message(STATUS "LibTorch ${version} in ${root} is not ${wanted}: not used")
    endforeach()
  endforeach()
endfunction()

# Sets `result` to the version in the headers under `root`, or to 0 if they are too old to have one.
function(tessera_torch_version result root)
  set(version 0)
  set(header "${root}/include/torch/headeronly/version.h")
  if(EXISTS "${header}")
    file(STRINGS "${header}" lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
    string(REGEX REPLACE "[^;0-9]+" "" version "${lines}")
    list(JOIN version "." version)
  endif()
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

# Sets `result` to the wheels of one kind, `cuda` or `nvcc`, for that LibTorch.
function(tessera_cuda_wheels result kind pinned hint)
  set(wheels ${tessera_${kind}_${pinned}_wheels_${CMAKE_SYSTEM_NAME}_${CMAKE_SYSTEM_PROCESSOR}})
  if(NOT wheels)
    tessera_fail("[dependencies] CUDA is not installed, and no wheels of it are pinned for LibTorch ${pinned} \
on ${CMAKE_SYSTEM_NAME} ${CMAKE_SYSTEM_PROCESSOR}. ${hint}")
  endif()
  set(${result} ${wheels} PARENT_SCOPE)
endfunction()

# find_package(Torch) requires a CUDA toolkit for the wheel, so LibTorch's CPU library is imported here without it. Its
# folder is tessera_torch_libraries. libtorch_cpu.so finds libcudart and libcupti by its own rpath, in the layout of the
# wheels.
function(tessera_import_torch)
  tessera_choose_torch(pinned wanted)
  tessera_find_torch(root)
  tessera_return_if_failed()
  if(NOT root)
    set(host ${CMAKE_SYSTEM_NAME}_${CMAKE_SYSTEM_PROCESSOR})
    set(name libtorch-${pinned})
    set(wheels ${tessera_libtorch_${pinned}_wheels_${host}})
    set(hint "Pass -DCMAKE_PREFIX_PATH=<a libtorch ${wanted}>, or install python3's torch package.")
    if(TESSERA_CUDA STREQUAL "FETCH")
      tessera_cuda_wheels(more cuda ${pinned} "${hint}")
      tessera_return_if_failed()
      list(APPEND wheels ${more})
      string(APPEND name -cuda)
      set(tessera_unpacked_files "${tessera_unpacked_cuda_files}")
    endif()
    tessera_fetch(root ${name} "${wheels}" "${hint}")
    tessera_return_if_failed()
    string(APPEND root "/torch")
  endif()
  tessera_torch_version(version "${root}")
  message(STATUS "LibTorch ${version}: ${root}")
  set(tessera_torch_libraries "${root}/lib" PARENT_SCOPE)

  foreach(library IN ITEMS c10 torch_cpu)
    add_library(tessera_deps::${library} SHARED IMPORTED GLOBAL)
    set_target_properties(tessera_deps::${library} PROPERTIES IMPORTED_LOCATION "${root}/lib/lib${library}.so")
  endforeach()
  add_library(tessera_deps::torch INTERFACE IMPORTED GLOBAL)
  target_include_directories(tessera_deps::torch INTERFACE
    "${root}/include" "${root}/include/torch/csrc/api/include")
  target_compile_definitions(tessera_deps::torch INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
  find_package(Threads REQUIRED)
  target_link_libraries(tessera_deps::torch INTERFACE tessera_deps::torch_cpu tessera_deps::c10 Threads::Threads)
endfunction()

# ---- Boost -----------------------------------------------------------------------------------------------------------

# Sets `result` to the version of the Boost headers under `include`, e.g. 1.85.0.
function(tessera_boost_version result include)
  file(STRINGS "${include}/boost/version.hpp" line REGEX "define BOOST_VERSION +[0-9]+")
  string(REGEX MATCH "[0-9]+" number "${line}")
  math(EXPR major "${number} / 100000")
  math(EXPR minor "${number} / 100 % 1000")
  math(EXPR patch "${number} % 100")
  set(${result} "${major}.${minor}.${patch}" PARENT_SCOPE)
endfunction()

# An installation requires the version that is compiled into its libraries, TESSERA_BOOST_VERSION.
function(tessera_import_boost)
  set(wanted ">= ${tessera_boost_minimum}")
  set(fetched ${tessera_boost_version})
  set(wheels "${tessera_boost_wheels}")
  if(TESSERA_BOOST_VERSION)
    set(wanted ${TESSERA_BOOST_VERSION})
    set(fetched ${TESSERA_BOOST_VERSION})
    if(NOT fetched VERSION_EQUAL tessera_boost_version)
      set(wheels "")
    endif()
  endif()
  find_path(include boost/pfr.hpp HINTS "${BOOST_ROOT}" ENV BOOST_ROOT PATH_SUFFIXES include NO_CACHE)
  if(include)
    tessera_boost_version(version "${include}")
    if((TESSERA_BOOST_VERSION AND NOT version VERSION_EQUAL TESSERA_BOOST_VERSION)
       OR version VERSION_LESS tessera_boost_minimum)
      message(STATUS "Boost ${version} in ${include} is not ${wanted}: not used")
      unset(include)
    endif()
  endif()
  if(NOT include)
    tessera_fetch(root boost-${fetched} "${wheels}" "Pass -DBOOST_ROOT=<a Boost ${wanted}>.")
    tessera_return_if_failed()
    set(include "${root}/boost_headers/include")
    tessera_boost_version(version "${include}")
  endif()
  message(STATUS "Boost ${version}: ${include}")
  add_library(tessera_deps::boost INTERFACE IMPORTED GLOBAL)
  target_include_directories(tessera_deps::boost INTERFACE "${include}")
endfunction()

# ---- Optional dependencies -------------------------------------------------------------------------------------------

# Fails with this text if `option` (AUTO, OFF or ON) is ON.
function(tessera_is_missing option)
  if("${${option}}" STREQUAL "ON" AND NOT tessera_installed)  # find_package leaves out what needs it
    message(FATAL_ERROR "[dependencies] ${option}=ON, but " ${ARGN})
  endif()
endfunction()

# ---- CUDA and NCCL ---------------------------------------------------------------------------------------------------

# With TESSERA_REQUIRE_DRIVER, an error if no GPU is usable, before anything is fetched.
function(tessera_require_driver)
  if(NOT TESSERA_REQUIRE_DRIVER)
    return()
  endif()
  execute_process(
    COMMAND python3 -c "import ctypes; exit(ctypes.CDLL('libcuda.so.1').cuInit(0))"
    RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(failed)
    message(FATAL_ERROR "[driver] This machine has no GPU with NVIDIA's driver (libcuda.so.1), so nothing was fetched; "
                        "without one this is built, not run, by cmake --preset train-cuda "
                        "-DTESSERA_REQUIRE_DRIVER=OFF && cmake --build --preset train-cuda --target train_transformer.")
  endif()
endfunction()

# Sets `result` to whether a CUDA Toolkit was found that fits a fetched LibTorch.
function(tessera_toolkit_fits result)
  set(${result} OFF PARENT_SCOPE)
  if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE AND CUDAToolkit_VERSION_MAJOR EQUAL 13)
    set(${result} ON PARENT_SCOPE)
  endif()
endfunction()

# Fetches the CUDA compiler, and selects it as the CUDA Toolkit.
function(tessera_fetch_nvcc)
  tessera_choose_torch(pinned wanted)
  set(hint "Install CUDA Toolkit 13, named by -DCUDAToolkit_ROOT=.")
  tessera_cuda_wheels(wheels nvcc ${pinned} "${hint}")
  tessera_return_if_failed()
  set(tessera_unpacked_files "${tessera_unpacked_cuda_files}")
  tessera_fetch(root nvcc-${pinned} "${wheels}" "${hint}")
  tessera_return_if_failed()
  string(APPEND root /nvidia/cu13)
  if(NOT EXISTS "${root}/lib64")  # wheels lack the file names that a linker searches for
    file(CREATE_LINK libcudart.so.13 "${root}/lib/libcudart.so" SYMBOLIC)
    file(CREATE_LINK lib "${root}/lib64" SYMBOLIC)
  endif()
  foreach(found IN ITEMS CUDAToolkit_BIN_DIR CUDAToolkit_NVCC_EXECUTABLE CUDA_CUDART)
    unset(${found} CACHE)
  endforeach()
  set(CUDAToolkit_ROOT "${root}" CACHE PATH "The CUDA Toolkit" FORCE)
endfunction()

# tessera_deps::nccl, if the CUDA Toolkit and NCCL are installed. Only tessera::nccl is linked with it. Includes
# LibTorch's CUDA libraries if it has them (tessera_deps::torch_cuda). TESSERA_CUDA is AUTO, OFF, ON (an error if they
# are missing) or FETCH (missing ones are fetched, including LibTorch's CUDA libraries).
function(tessera_import_nccl)
  if(TESSERA_CUDA STREQUAL "OFF")
    return()
  endif()
  find_package(CUDAToolkit QUIET)
  tessera_toolkit_fits(fits)
  if(TESSERA_CUDA STREQUAL "FETCH" AND NOT fits)
    tessera_fetch_nvcc()
    find_package(CUDAToolkit QUIET)
  endif()
  set(beside_torch "${tessera_torch_libraries}/../../nvidia/nccl")  # the one that LibTorch's CUDA libraries load
  set(hints "${NCCL_ROOT}" "$ENV{NCCL_ROOT}" "${beside_torch}" ${CUDAToolkit_LIBRARY_ROOT} ${CUDAToolkit_TARGET_DIR})
  find_path(include nccl.h HINTS ${hints} PATH_SUFFIXES include NO_CACHE)
  find_library(library NAMES nccl libnccl.so.2 NAMES_PER_DIR HINTS ${hints} PATH_SUFFIXES lib lib64 NO_CACHE)
  if(NOT CUDAToolkit_FOUND OR NOT include OR NOT library)
    tessera_is_missing(TESSERA_CUDA "there is no CUDA Toolkit with NCCL. Install both (named by -DCUDAToolkit_ROOT= and "
                                    "-DNCCL_ROOT=), have them fetched (-DTESSERA_CUDA=FETCH), or leave them out by "
                                    "-DTESSERA_CUDA=OFF.")
    return()
  endif()
  message(STATUS "NCCL: ${library}, CUDA ${CUDAToolkit_VERSION}")
  add_library(tessera_deps::nccl INTERFACE IMPORTED GLOBAL)
  target_include_directories(tessera_deps::nccl INTERFACE "${include}")
  target_link_libraries(tessera_deps::nccl INTERFACE "${library}" CUDA::cudart)
  if(EXISTS "${tessera_torch_libraries}/libtorch_cuda.so")
    foreach(half IN ITEMS torch_cuda c10_cuda)
      add_library(tessera_deps::${half} SHARED IMPORTED GLOBAL)
      set_target_properties(tessera_deps::${half} PROPERTIES IMPORTED_LOCATION "${tessera_torch_libraries}/lib${half}.so")
      target_link_libraries(tessera_deps::nccl INTERFACE tessera_deps::${half})
    endforeach()
  endif()
endfunction()

# ---- ICU -------------------------------------------------------------------------------------------------------------

# tessera_deps::icu, if ICU is installed: Unicode for tessera::tokenizer, which alone is linked with it. TESSERA_ICU is
# AUTO, OFF or ON (an error if it is missing).
function(tessera_import_icu)
  if(TESSERA_ICU STREQUAL "OFF")
    return()
  endif()
  find_package(ICU QUIET COMPONENTS i18n uc)
  if(NOT ICU_FOUND)
    tessera_is_missing(TESSERA_ICU "there is no ICU. Install it (on Debian and Ubuntu: apt-get install libicu-dev, "
                                   "elsewhere named by -DICU_ROOT=), or leave it out by -DTESSERA_ICU=OFF.")
    return()
  endif()
  message(STATUS "ICU: ${ICU_VERSION}")
  add_library(tessera_deps::icu INTERFACE IMPORTED GLOBAL)
  target_link_libraries(tessera_deps::icu INTERFACE ICU::i18n ICU::uc)
endfunction()

# ---- zlib and libzstd ------------------------------------------------------------------------------------------------

# tessera_deps::zlib and tessera_deps::zstd, if they are installed: compressed text, for tessera::data. TESSERA_ZLIB and
# TESSERA_ZSTD are AUTO, OFF or ON (an error if it is missing).
function(tessera_import_compression)
  if(NOT TESSERA_ZLIB STREQUAL "OFF")
    find_package(ZLIB QUIET)
    if(ZLIB_FOUND)
      message(STATUS "zlib: ${ZLIB_VERSION_STRING}")
      add_library(tessera_deps::zlib INTERFACE IMPORTED GLOBAL)
      target_link_libraries(tessera_deps::zlib INTERFACE ZLIB::ZLIB)
    else()
      tessera_is_missing(TESSERA_ZLIB "there is no zlib. Install it (on Debian and Ubuntu: apt-get install zlib1g-dev, "
                                      "elsewhere named by -DZLIB_ROOT=), or leave it out by -DTESSERA_ZLIB=OFF.")
    endif()
  endif()
  if(NOT TESSERA_ZSTD STREQUAL "OFF")
    find_path(tessera_zstd_include zstd.h HINTS "${ZSTD_ROOT}/include" NO_CACHE)
    find_library(tessera_zstd_library zstd HINTS "${ZSTD_ROOT}/lib" NO_CACHE)
    if(tessera_zstd_include AND tessera_zstd_library)
      message(STATUS "libzstd: ${tessera_zstd_library}")
      add_library(tessera_deps::zstd INTERFACE IMPORTED GLOBAL)
      target_include_directories(tessera_deps::zstd INTERFACE "${tessera_zstd_include}")
      target_link_libraries(tessera_deps::zstd INTERFACE "${tessera_zstd_library}")
    else()
      tessera_is_missing(TESSERA_ZSTD "there is no libzstd. Install it (on Debian and Ubuntu: apt-get install libzstd-dev, "
                                      "elsewhere named by -DZSTD_ROOT=), or leave it out by -DTESSERA_ZSTD=OFF.")
    endif()
  endif()
endfunction()

function(tessera_require_libraries)
  if(NOT TARGET tessera_deps::boost)
    tessera_import_boost()
  endif()
  if(TARGET tessera_deps::boost AND NOT TARGET tessera_deps::torch)
    tessera_import_torch()
  else()
    return()
  endif()
  if(TARGET tessera_deps::torch)
    tessera_import_nccl()
    tessera_import_icu()
    tessera_import_compression()
  endif()
endfunction()
