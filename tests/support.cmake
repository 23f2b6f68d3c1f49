# What the tests written in CMake share: run a script, and look at how it ended and what it said.

# Runs `cmake <arguments>` and demands that it fails saying `message`, or with message "" that it succeeds.
function(expect message)
  execute_process(COMMAND "${CMAKE_COMMAND}" ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")  # errors are wrapped at the terminal's width
  string(FIND "${said}" "${message}" position)
  if(message STREQUAL "" AND failed)
    message(SEND_ERROR "expected success of: ${ARGN}\ngot: ${said}")
  elseif(NOT message STREQUAL "" AND NOT failed)
    message(SEND_ERROR "expected an error saying: ${message}\nof: ${ARGN}\ngot: success")
  elseif(position EQUAL -1)
    message(SEND_ERROR "expected an error saying: ${message}\nof: ${ARGN}\ngot: ${said}")
  endif()
endfunction()
