# A project that uses Tessera, built and run from clean folders: with an installed package, or with Tessera's source.
#
#   cmake -DBUILD=<build folder> -DSOURCE=<repository> -DSCRATCH=<folder> -DCOMPILER=<c++> -DGENERATOR=<its name>
#         -DUSE=install|subdirectory [-DLAUNCHER=<compiler launcher>] -P <this>
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(failed)
    message(FATAL_ERROR "${ARGN}\n${said}")
  endif()
  set(said "${said}" PARENT_SCOPE)
endfunction()

function(expect file)
  if(NOT EXISTS "${file}")
    message(SEND_ERROR "${file} is not installed")
  endif()
endfunction()

set(mine "${SOURCE}/tests/consumer")
file(REMOVE_RECURSE "${SCRATCH}")
string(REPLACE ";" "\\;" LAUNCHER "${LAUNCHER}")
set(configure "${CMAKE_COMMAND}" -B "${SCRATCH}/build" -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${COMPILER}"
              "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}")

if(USE STREQUAL "install")
  run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${SCRATCH}/prefix")
  foreach(folder IN ITEMS sharding nn optim data)
    expect("${SCRATCH}/prefix/lib/libtessera_${folder}.a")
    file(STRINGS "${SOURCE}/${folder}/CMakeLists.txt" public REGEX "^    [a-z_0-9/]+[.]h$")
    list(TRANSFORM public STRIP)
    file(GLOB_RECURSE headers RELATIVE "${SOURCE}/${folder}" "${SOURCE}/${folder}/*.h")
    foreach(header IN LISTS headers)
      set(installed "${SCRATCH}/prefix/include/tessera/${folder}/${header}")
      if(header IN_LIST public)
        expect("${installed}")
      elseif(EXISTS "${installed}")
        message(SEND_ERROR "${installed} is installed, but no door leads to it")
      endif()
    endforeach()
  endforeach()
  run(${configure} -S "${mine}" -DCMAKE_BUILD_TYPE=Release "-DCMAKE_PREFIX_PATH=${SCRATCH}/prefix")
else()
  # Without optimization: what is shown is that the project builds, not how fast it runs.
  run(${configure} -S "${mine}/subdirectory" -DCMAKE_BUILD_TYPE=Debug "-DTESSERA_SOURCE=${SOURCE}"
      "-DCMAKE_CXX_FLAGS_DEBUG=-O0")
endif()
run("${CMAKE_COMMAND}" --build "${SCRATCH}/build" --target mine)
run("${SCRATCH}/build/mine")
if(NOT said MATCHES "step 300  loss 0[.][12][0-9]+  right 0[.][89][0-9]*\n")
  message(FATAL_ERROR "mine did not learn:\n${said}")
endif()
file(REMOVE_RECURSE "${SCRATCH}")
