# Fails unless the compiler refuses SOURCE with the message in its first line, `// expect: <message>`.
#
#   cmake -DCOMPILER=g++ -DINCLUDE=<root> -DSYSTEM_INCLUDES=<folders> -DDEFINITIONS=<macros> -DSOURCE=<file> -P <this>
cmake_minimum_required(VERSION 3.25)

list(TRANSFORM SYSTEM_INCLUDES PREPEND -isystem)
list(TRANSFORM DEFINITIONS PREPEND -D)
file(READ "${SOURCE}" text)
if(NOT text MATCHES "^// expect: ([^\n]+)\n")
  message(FATAL_ERROR "${SOURCE}: the first line must be `// expect: <message>`")
endif()
set(expected "${CMAKE_MATCH_1}")

execute_process(
  COMMAND "${COMPILER}" -std=c++20 -fsyntax-only "-I${INCLUDE}" ${SYSTEM_INCLUDES} ${DEFINITIONS} "${SOURCE}"
  RESULT_VARIABLE refused OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT refused)
  message(FATAL_ERROR "${SOURCE} compiles; it must be refused with: ${expected}")
endif()
string(REGEX MATCHALL "(error|note): [^\n]*" messages "${output}")  # not the source lines shown between them
string(FIND "${messages}" "${expected}" position)
if(position EQUAL -1)
  message("${output}")
  message(FATAL_ERROR "${SOURCE} is refused, but not with: ${expected}")
endif()
