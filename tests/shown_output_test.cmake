# Checks that a program prints exactly the output shown on a page: cmake -DPROGRAM=<program> -DPAGE=<file> -P <this>.
cmake_minimum_required(VERSION 3.25)

execute_process(COMMAND "${PROGRAM}" RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE errors)
if(failed)
  message(FATAL_ERROR "${PROGRAM} failed: ${errors}")
endif()
file(READ "${PAGE}" page)
string(FIND "${page}" "```text\n${output}```\n" position)
if(position EQUAL -1)
  message(FATAL_ERROR "${PAGE} does not show what ${PROGRAM} prints:\n${output}")
endif()
