# Builds and runs a project that uses Tessera, in clean folders, for one of the ways to get Tessera.
#
#   cmake -DBUILD=<build folder> -DSOURCE=<repository> -DSCRATCH=<folder> -DCOMPILER=<c++> -DGENERATOR=<its name>
#         -DUSE=install|archive|deb|subdirectory|shared|conan [-DLAUNCHER=<compiler launcher>] [-DCONAN=<conan>]
#         -P <this>
#
# install: the installed package. archive, deb: the unpacked archive or Debian package. subdirectory: Tessera's source.
# shared: installed shared libraries. conan: a Conan package.
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

if(USE STREQUAL "conan" AND NOT CONAN)
  message("SKIPPED: there is no conan")
  return()
endif()
set(mine "${SOURCE}/tests/consumer")
file(REMOVE_RECURSE "${SCRATCH}")
string(REPLACE ";" "\\;" LAUNCHER "${LAUNCHER}")
set(configure "${CMAKE_COMMAND}" -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${COMPILER}"
              "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}")
# Built without optimization: these tests show that Tessera can be built, not how fast it is.
set(quickly -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0)
set(pack "${CMAKE_CPACK_COMMAND}" --config "${BUILD}/CPackConfig.cmake" -B "${SCRATCH}")

if(USE STREQUAL "install")
  run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${SCRATCH}/prefix")
  foreach(folder IN ITEMS sharding nn optim data)
    set(library "${SCRATCH}/prefix/lib/libtessera_${folder}")
    if(NOT EXISTS "${library}.so")  # of a build with BUILD_SHARED_LIBS=ON
      expect("${library}.a")
    endif()
    file(STRINGS "${SOURCE}/${folder}/CMakeLists.txt" public REGEX "^    [a-z_0-9/]+[.]h$")
    list(TRANSFORM public STRIP)
    file(GLOB_RECURSE headers RELATIVE "${SOURCE}/${folder}" "${SOURCE}/${folder}/*.h")
    foreach(header IN LISTS headers)
      set(installed "${SCRATCH}/prefix/include/tessera/${folder}/${header}")
      if(header IN_LIST public)
        expect("${installed}")
      elseif(EXISTS "${installed}")
        message(SEND_ERROR "${installed} is installed, but no public header includes it")
      endif()
    endforeach()
  endforeach()
  expect("${SCRATCH}/prefix/include/tessera/tessera.h")
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
elseif(USE STREQUAL "shared")
  set(prefix "${SCRATCH}/prefix")
  run(${configure} -S "${SOURCE}" -B "${SCRATCH}/tessera" ${quickly} -DBUILD_SHARED_LIBS=ON
      -DTESSERA_BUILD_TESTS=OFF -DTESSERA_BUILD_EXAMPLES=OFF -DTESSERA_BUILD_BENCHMARKS=OFF)
  run("${CMAKE_COMMAND}" --build "${SCRATCH}/tessera")
  run("${CMAKE_COMMAND}" --install "${SCRATCH}/tessera" --prefix "${prefix}")
  file(REMOVE_RECURSE "${SCRATCH}/tessera")  # an installation does not need it
  foreach(folder IN ITEMS sharding nn optim data)
    file(READ_SYMLINK "${prefix}/lib/libtessera_${folder}.so" soname)
    if(NOT soname MATCHES "[.]so[.][0-9]+[.][0-9]+$")
      message(SEND_ERROR "libtessera_${folder}.so is ${soname}, expected a version of two numbers at its end")
    endif()
    expect("${prefix}/lib/${soname}")
  endforeach()
  set(linker -DCMAKE_EXE_LINKER_FLAGS=-Wl,--as-needed)  # the default on some systems
elseif(USE STREQUAL "conan")  # also builds and runs the project
  set(ENV{CONAN_HOME} "${SCRATCH}/conan")
  set(ENV{CXX} "${COMPILER}")
  set(unoptimized "{'value': '-O0', 'cache': True, 'type': 'STRING', 'docstring': ''}")
  run("${CONAN}" profile detect)
  run("${CONAN}" create "${SOURCE}/tests/conan" --no-remote -s compiler.cppstd=20 -s build_type=Debug
      -c "tools.cmake.cmaketoolchain:extra_variables={'CMAKE_CXX_FLAGS_DEBUG': ${unoptimized}}"
      -c "tools.cmake.cmaketoolchain:generator=${GENERATOR}" -c "tools.cmake.cmake_layout:test_folder=${SCRATCH}/test")
endif()
if(prefix)
  run(${configure} -S "${mine}" -B "${SCRATCH}/build" -DCMAKE_BUILD_TYPE=Release "-DCMAKE_PREFIX_PATH=${prefix}"
      ${linker})
elseif(USE STREQUAL "subdirectory")
  run(${configure} -S "${mine}/subdirectory" -B "${SCRATCH}/build" ${quickly} "-DTESSERA_SOURCE=${SOURCE}")
endif()
if(NOT USE STREQUAL "conan")
  run("${CMAKE_COMMAND}" --build "${SCRATCH}/build" --target mine)
  run("${SCRATCH}/build/mine")
endif()
if(NOT said MATCHES "step 300  loss 0[.][12][0-9]+  right 0[.][89][0-9]*\n")
  message(FATAL_ERROR "mine did not learn:\n${said}")
endif()
file(REMOVE_RECURSE "${SCRATCH}")
