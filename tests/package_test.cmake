# A project that uses Tessera, built and run from clean folders, by each way in which it can have Tessera.
#
#   cmake -DBUILD=<build folder> -DSOURCE=<repository> -DSCRATCH=<folder> -DCOMPILER=<c++> -DGENERATOR=<its name>
#         -DUSE=install|archive|deb|subdirectory [-DLAUNCHER=<compiler launcher>] -P <this>
#
# install: as it is installed. archive, deb: what is unpacked of an archive or a Debian package. subdirectory: with
# Tessera's source.
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
set(pack "${CMAKE_CPACK_COMMAND}" --config "${BUILD}/CPackConfig.cmake" -B "${SCRATCH}")

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
  set(prefix "${SCRATCH}/prefix")
elseif(USE STREQUAL "archive")
  run(${pack} -G TGZ)
  file(GLOB made "${SCRATCH}/tessera-*.tar.gz")
  file(ARCHIVE_EXTRACT INPUT "${made}" DESTINATION "${SCRATCH}")
  string(REPLACE ".tar.gz" "/usr" prefix "${made}")
elseif(USE STREQUAL "deb")
  run(${pack} -G DEB)
  file(GLOB made "${SCRATCH}/tessera-*.deb")
  run(dpkg-deb -x "${made}" "${SCRATCH}/unpacked")
  set(prefix "${SCRATCH}/unpacked/usr")
endif()
if(prefix)
  run(${configure} -S "${mine}" -DCMAKE_BUILD_TYPE=Release "-DCMAKE_PREFIX_PATH=${prefix}")
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
