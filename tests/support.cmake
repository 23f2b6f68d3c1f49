# Shared by tests written in CMake: runs a script, and checks how it ended and what it printed.

# Runs `cmake <arguments>`, which must fail with an output that contains `message`, or succeed if `message` is "".
function(expect message)
  execute_process(COMMAND "${CMAKE_COMMAND}" ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")  # CMake wraps errors at the terminal's width
  string(FIND "${said}" "${message}" position)
  if(message STREQUAL "" AND failed)
    message(SEND_ERROR "expected success of: ${ARGN}\ngot: ${said}")
  elseif(NOT message STREQUAL "" AND NOT failed)
    message(SEND_ERROR "expected an error saying: ${message}\nof: ${ARGN}\ngot: success")
  elseif(position EQUAL -1)
    message(SEND_ERROR "expected an error saying: ${message}\nof: ${ARGN}\ngot: ${said}")
  endif()
endfunction()
